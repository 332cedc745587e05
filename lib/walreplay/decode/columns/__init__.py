"""Builders: the cells of one column, tile by tile, to one typed Arrow column.

A builder appends to numpy arrays that grow geometrically; `finish` hands them to Arrow as they are.  A kernel
converts all rows of an append and leaves out what is not in the common form; only those cells become Python
objects, and the exact readers of `walreplay.types` decide about each (see `walreplay.types.base`).

Cells in binary format have kernels of their own for the types that are common.  What those leave out, and all
other types, becomes PostgreSQL's text first and goes the way of text, so that both formats give the same rows.

Invariants: the first `rows` entries of the outputs are final; an append that raises leaves `rows` as it was.
"""

from walreplay.decode.columns.base import ColumnBuilder
from walreplay.decode.columns.cells import BINARY, NULL, UNCHANGED
from walreplay.decode.columns.make import make_builder

__all__ = ["BINARY", "NULL", "UNCHANGED", "ColumnBuilder", "make_builder"]

"""Column builders: they turn the cells of one column, tile by tile, into one typed Arrow column.

A builder appends to numpy arrays that grow geometrically; `finish` hands them to Arrow without a copy.  A kernel
converts all rows of an append and skips the values that are not in the common form.  Only those become Python objects,
and the exact readers of `walreplay.types` decide about each (see `walreplay.types.base`).

The kernels read common types in binary format, too.  All other binary values become PostgreSQL's text first, and
are then read as text, so that both formats become the same rows.

Invariants: the first `rows` entries of the outputs are final; an append that raises leaves `rows` as it was.

Entry point: `make_builder`.

Uses: decode, kernels, types.
Used by: decode, evolution, loading.
"""

from walreplay.decode.columns.base import ColumnBuilder
from walreplay.decode.columns.make import make_builder
from walreplay.decode.columns.variable import canonical_texts
from walreplay.decode.kernels.binary import BINARY, NULL, UNCHANGED

__all__ = ["BINARY", "NULL", "UNCHANGED", "ColumnBuilder", "canonical_texts", "make_builder"]

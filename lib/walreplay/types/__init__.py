"""PostgreSQL's types: the Arrow type that each becomes, and the exact reading of a single value.

One module per family of types.  These readers are scalar, and define what is right.  `walreplay.decode.columns`
converts whole columns, and calls these readers for the few values that its kernels skip.

Entry point: `resolve`, from a type's oid to a `ColumnType`.

Uses: protocol.
Used by: archive, changes, config, decode, evolution, fold, loading, spark, stream, table, task_settings, writing.
"""

from walreplay.types.base import ColumnType, DoesNotFit, Family, Rescued
from walreplay.types.registry import TypeOptions, resolve

__all__ = ["ColumnType", "DoesNotFit", "Family", "Rescued", "TypeOptions", "resolve"]

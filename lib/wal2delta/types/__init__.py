"""PostgreSQL's types: which Arrow type each becomes, and the exact reading of one value of each family.

One module a family.  These readers are scalar and define what is right; `wal2delta.decode.columns` converts
whole columns and comes back here for the few values that its kernels do not take.
"""

from wal2delta.types.base import ColumnType, DoesNotFit, Family, Rescued
from wal2delta.types.options import TypeOptions
from wal2delta.types.registry import resolve

__all__ = ["ColumnType", "DoesNotFit", "Family", "Rescued", "TypeOptions", "resolve"]

"""PostgreSQL's types: which Arrow type each becomes, and the exact reading of one value of each family.

One module a family.  These readers are scalar and define what is right; `walreplay.decode.columns` converts
whole columns and comes back here for the few values that its kernels do not take.
"""

from walreplay.types.base import ColumnType, DoesNotFit, Family, Rescued
from walreplay.types.options import TypeOptions
from walreplay.types.registry import resolve

__all__ = ["ColumnType", "DoesNotFit", "Family", "Rescued", "TypeOptions", "resolve"]

"""Choose the builder for a column's type."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from walreplay.decode.columns.base import ColumnBuilder
from walreplay.decode.columns.fixed import (
    BooleanBuilder,
    FixedBuilder,
    FloatBuilder,
    decimal,
    integer,
    overridden_decimal,
    overridden_integer,
    rounded,
)
from walreplay.decode.columns.variable import (
    ListBuilder,
    OverriddenListBuilder,
    VariableBuilder,
    VectorBuilder,
    bytea,
    string,
)
from walreplay.decode.kernels import programs
from walreplay.decode.placing import Placing
from walreplay.types import families
from walreplay.types.base import ColumnType, Family
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.datetime import FIRST_DAY, FIRST_MICRO, LAST_DAY, LAST_MICRO, days_from_text, micros_from_text
from walreplay.types.families import read_overridden
from walreplay.types.numbers import boolean_from_text, double_from_numeric
from walreplay.types.text import UTF8

if TYPE_CHECKING:
    from collections.abc import Callable

    from walreplay.decode.columns.base import Names

_NO_NAMES: Final[Names] = MappingProxyType({})


_WITHOUT_TEXT: Final = frozenset({"numeric", "uuid"})
"""Types that stay text, but only ASCII; their bytes in binary format are no text."""


def make_builder(column_type: ColumnType, names: Names = _NO_NAMES, *, codec: str = UTF8) -> ColumnBuilder:
    """Return the builder for a column's type.

    Args:
        names: (namespace, name) of types by oid, from Type messages; values in binary format may contain such types.
        codec: the encoding of text, from `walreplay.types.text.codec_of`.  The column is UTF-8.
    """
    builder = _builder(column_type, names)
    if _holds_text(column_type):
        builder.take_encoding(codec)
    return builder


def _holds_text(column_type: ColumnType) -> bool:
    """Return whether a type's text may have characters outside of ASCII."""
    if column_type.overridden:
        return True
    if column_type.element is not None:
        return _holds_text(column_type.element)
    builtin = BUILTIN_TYPES.get(column_type.oid)
    is_plain = builtin is not None and builtin.name in _WITHOUT_TEXT
    return column_type.family.holds_text and not is_plain


def _builder(column_type: ColumnType, names: Names) -> ColumnBuilder:
    if column_type.overridden:
        return _overridden(column_type, names)
    return _BUILDERS[column_type.family](column_type, names)


def _array(column_type: ColumnType, names: Names) -> ColumnBuilder:
    if column_type.element is None:
        raise ValueError("an array's type names its elements' type")
    return ListBuilder(column_type, names, _builder(column_type.element, names))


def _overridden(column_type: ColumnType, names: Names) -> ColumnBuilder:
    """Return the builder for the type as which a column is read, with the reader for overridden columns."""
    reader = partial(read_overridden, column_type=column_type)
    if column_type.element is not None:
        return OverriddenListBuilder(column_type, names, _builder(column_type.element, names))
    if column_type.family in _OVERRIDDEN:
        return _OVERRIDDEN[column_type.family](column_type, names, reader)
    builder = _BUILDERS[column_type.family](column_type, names)
    if column_type.family.meaning is not None and isinstance(builder, (FixedBuilder, VariableBuilder)):
        builder._reader = reader
    return builder


def _microseconds(kind: int, *, with_zone: bool) -> Callable[[ColumnType, Names], ColumnBuilder]:
    reader = partial(micros_from_text, with_zone=with_zone)
    return partial(FixedBuilder, dtype=np.int64, placing=Placing(kind, FIRST_MICRO, LAST_MICRO), reader=reader)


_INTEGERS: Final = {
    families.INT16: programs.INT16,
    families.INT32: programs.INT32,
    families.INT64: programs.INT64_,
    families.UNSIGNED: programs.UNSIGNED,
}
"""How the kernels convert integers."""

_BUILDERS: Final[dict[Family, Callable[[ColumnType, Names], ColumnBuilder]]] = {
    families.BOOLEAN: partial(
        BooleanBuilder, dtype=np.uint8, placing=Placing(programs.BOOLEAN), reader=boolean_from_text
    ),
    **{family: partial(integer, kind=kind) for family, kind in _INTEGERS.items()},
    families.FLOAT32: partial(FloatBuilder, dtype=np.float32, placing=Placing(programs.FLOAT32)),
    families.FLOAT64: partial(FloatBuilder, dtype=np.float64, placing=Placing(programs.FLOAT64)),
    families.DECIMAL: decimal,
    families.STRING: string,
    families.BINARY: bytea,
    families.DATE: partial(
        FixedBuilder, dtype=np.int32, placing=Placing(programs.DATE, FIRST_DAY, LAST_DAY), reader=days_from_text
    ),
    families.TIMESTAMP: _microseconds(programs.TIMESTAMP, with_zone=False),
    families.TIMESTAMPTZ: _microseconds(programs.TIMESTAMPTZ, with_zone=True),
    families.ARRAY: _array,
    families.NUMERIC_AS_DOUBLE: partial(rounded, reader=double_from_numeric),
    families.VECTOR: VectorBuilder,  # of pgvector
}
"""The one table of families outside of `walreplay.types.families`."""

_OVERRIDDEN: Final[dict[Family, Callable[[ColumnType, Names, Callable[[str], Any]], ColumnBuilder]]] = {
    **{family: partial(overridden_integer, kind=kind) for family, kind in _INTEGERS.items()},
    **dict.fromkeys((families.FLOAT32, families.FLOAT64), rounded),
    families.DECIMAL: overridden_decimal,
}
"""Builders that read most texts in other types' forms at once; those of other families read them one by one."""

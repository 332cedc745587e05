"""PostgreSQL's text for a value in binary format, as its output function writes it.

The settings are those that docs/capturing.md asks for: UTC, DateStyle ISO, IntervalStyle postgres, bytea in hex,
shortest exact floats.  money is written as the locales C and en_US do: the bytes do not name a currency.

A built-in type is known by its oid, another one by the name that a Type message gave.  The name does not say what kind
of type it is, but the forms of the bytes cannot be mistaken for each other.  A composite value and an array begin with
a NUL byte and name the types of their parts.  Bytes that are text throughout are an enum's label, or a value of a type
that is sent as text.  A user-defined range does not name its bounds' type, so it is not rendered.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from walreplay.errors import ValueFormatError
from walreplay.types import datetime, numbers, special_forms, strings
from walreplay.types.base import malformed
from walreplay.types.builtin import BUILTIN_TYPES, EXTENSION_TEXTS, EXTENSION_TYPES, OIDS
from walreplay.types.composite import (
    BinaryArray,
    array_from_binary,
    array_text,
    composite_text,
    fields_from_binary,
    multirange_text,
    number_list_text,
    range_text,
)
from walreplay.types.text import UTF8, decode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Names = Mapping[int, tuple[str, str]]
    Writer = Callable[[bytes], str]
    TextWriter = Callable[[bytes, str], str]


class NotRendered(Exception):
    """The bytes do not tell what PostgreSQL would write."""


def render(data: bytes, oid: int, typmod: int, names: Names, *, codec: str = UTF8) -> str:
    """Write a value in binary format as PostgreSQL's text.

    Args:
        data: the value's bytes, from the type's send function.
        oid: the value's type.
        typmod: its type modifier.  It is not used, because it has already been applied to the bytes.
        names: (namespace, name) of user-defined types by oid, from Type messages; "" is pg_catalog.
        codec: the encoding of texts inside the value, from `walreplay.types.text.codec_of`.

    Raises:
        ValueFormatError: the type is built in, and the bytes are not in its form.
        NotRendered: the type is unknown or has a part of an unknown type, or its bytes are a server's memory.
    """
    try:
        return _render(data, oid, _Context(names, codec))
    except RecursionError:  # no schema nests composite types that deep
        raise NotRendered from None


class _Context(NamedTuple):
    """What `render` was given besides the bytes; it is the same for all values inside a value."""

    names: Names
    codec: str


def _render(data: bytes, oid: int, context: _Context) -> str:
    if oid not in BUILTIN_TYPES:
        announced = context.names.get(oid)
        if announced is None:
            raise NotRendered
        namespace, name = announced
        if namespace not in _CATALOG or name not in OIDS:  # a domain over a built-in type has that type's name
            return _user_defined(data, name, context)
        oid = OIDS[name]
    builtin = BUILTIN_TYPES[oid]
    if builtin.element:
        array = array_from_binary(data)
        if array.element_oid != builtin.element:
            raise malformed("array", "names another element type than its own")
        return _array(array, context)
    if builtin.name in _TEXT_WRITERS:
        return _TEXT_WRITERS[builtin.name](data, context.codec)
    if builtin.name in _WRITERS:
        return _WRITERS[builtin.name](data)
    raise NotRendered


def _array(array: BinaryArray, context: _Context) -> str:
    oid = array.element_oid
    builtin = BUILTIN_TYPES.get(oid)
    return array_text(array, lambda element: _render(element, oid, context), builtin.delimiter if builtin else ",")


def _user_defined(data: bytes, name: str, context: _Context) -> str:
    """Write a value of a type of which only the name is known, which may be the name of an extension's type."""
    fields = _or_none(fields_from_binary, data) if data.startswith(b"\0") else None
    # A composite is told by its form, which no extension's value has by chance: an empty sparsevec has 0 for an oid.
    if not fields or not all(oid for oid, _ in fields):
        with suppress(ValueFormatError):
            if name in EXTENSION_TYPES:
                return EXTENSION_TYPES[name](data)
            if name in EXTENSION_TEXTS:
                return EXTENSION_TEXTS[name](data, context.codec)
    if not data.startswith(b"\0"):
        return _label(data, context.codec)  # composites and arrays begin with a NUL
    try:
        # An array's name is its element type's name after one underscore or several.
        if name.startswith("_") and (array := _or_none(array_from_binary, data)) is not None:
            return _array(array, context)
        if not fields:
            raise NotRendered  # four NUL bytes may also be a value of another kind of type
        return composite_text([None if field is None else _render(field, oid, context) for oid, field in fields])
    except ValueFormatError:
        raise NotRendered from None


_Parts = TypeVar("_Parts")


def _or_none(read: Callable[[bytes], _Parts], data: bytes) -> _Parts | None:
    try:
        return read(data)
    except ValueFormatError:
        return None


def _label(data: bytes, codec: str) -> str:
    """Decode the bytes as text, but refuse characters that are usual in binary numbers and not in labels."""
    try:
        text = decode_text(data, codec)
    except ValueFormatError:
        raise NotRendered from None
    if _CONTROL.search(text):
        raise NotRendered
    return text


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CATALOG: Final = ("", "pg_catalog")

_TEXT_WRITERS: Final[dict[str, TextWriter]] = {
    **dict.fromkeys(("bpchar", "json", "name", "pg_node_tree", "refcursor", "text", "varchar"), decode_text),
    "jsonb": strings.jsonb_text,
    "jsonpath": strings.jsonpath_text,
    "tsquery": special_forms.tsquery_text,
    "tsvector": special_forms.tsvector_text,
    "xml": strings.xml_text,
}
"""The built-in types that contain text."""

_RANGES: Final[dict[str, Writer]] = {
    "date": datetime.date_text,
    "int4": numbers.int4_text,
    "int8": numbers.int8_text,
    "num": numbers.numeric_text,
    "ts": datetime.timestamp_text,
    "tstz": datetime.timestamptz_text,
}
"""The types of ranges' bounds, by what the names of range and multirange begin with."""

_WRITERS: Final[dict[str, Writer]] = {
    "abstime": datetime.abstime_text,
    "bit": strings.bits_text,
    "bool": numbers.boolean_text,
    "box": special_forms.box_text,
    "bytea": strings.bytea_text,
    "char": strings.char_text,
    "cid": special_forms.unsigned_text,
    "cidr": special_forms.cidr_text,
    "circle": special_forms.circle_text,
    "date": datetime.date_text,
    "float4": numbers.float4_text,
    "float8": numbers.float8_text,
    "inet": special_forms.inet_text,
    "int2": numbers.int2_text,
    "int2vector": partial(number_list_text, element_text=numbers.int2_text),
    "int4": numbers.int4_text,
    "int8": numbers.int8_text,
    "interval": datetime.interval_text,
    "line": special_forms.line_text,
    "lseg": special_forms.lseg_text,
    "macaddr": special_forms.macaddr_text,
    "macaddr8": special_forms.macaddr8_text,
    "money": numbers.money_text,
    "numeric": numbers.numeric_text,
    "oid": special_forms.unsigned_text,
    "oidvector": partial(number_list_text, element_text=special_forms.unsigned_text),
    "path": special_forms.path_text,
    "pg_lsn": special_forms.pg_lsn_text,
    "pg_snapshot": special_forms.snapshot_text,
    "point": special_forms.point_text,
    "polygon": special_forms.polygon_text,
    **{name: special_forms.regclass_text for name in OIDS if name.startswith("reg")},
    **dict.fromkeys(("regoper", "regoperator"), special_forms.unsigned_text),
    "reltime": datetime.reltime_text,
    "tid": special_forms.tid_text,
    "time": datetime.time_text,
    "timestamp": datetime.timestamp_text,
    "timestamptz": datetime.timestamptz_text,
    "timetz": datetime.timetz_text,
    "tinterval": datetime.tinterval_text,
    "txid_snapshot": special_forms.snapshot_text,
    "uuid": special_forms.uuid_text,
    "varbit": strings.bits_text,
    "xid": special_forms.unsigned_text,
    "xid8": special_forms.xid8_text,
    **{f"{name}range": partial(range_text, bound_text=bound) for name, bound in _RANGES.items()},
    **{f"{name}multirange": partial(multirange_text, bound_text=bound) for name, bound in _RANGES.items()},
}
"""Left out are aclitem and gtsvector, which have no binary form, and the statistics types (pg_ndistinct and the
like), whose bytes are a server's memory."""

"""The built-in types of PostgreSQL 10 to 18, as literals, and extension types that are known by their name.

Built-in types: from the catalog of a PostgreSQL 18 server (pg_type below oid 10000, where oids are the same on every
server; row types and pseudo-types left out), plus abstime, reltime and tinterval, which ended with PostgreSQL 11.

Extension types: hstore, citext, ltree, cube, pgvector's, PostGIS's.  Another type may have the same name.  So a value
that is not in the extension's form is refused as malformed; the caller treats it as the type that it may be instead.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from walreplay.types.base import Cursor, malformed
from walreplay.types.numbers import double_text, single_text
from walreplay.types.strings import versioned_text
from walreplay.types.text import decode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class BuiltinType(NamedTuple):
    """One row of pg_type; `element` is 0 except for true array types (int2vector and oidvector are none)."""

    name: str
    sql_name: str
    element: int
    delimiter: str


_NO_ARRAYS: Final[dict[int, tuple[str, str, int]]] = {
    16: ("bool", "boolean", 1000),
    17: ("bytea", "bytea", 1001),
    18: ("char", '"char"', 1002),
    19: ("name", "name", 1003),
    20: ("int8", "bigint", 1016),
    21: ("int2", "smallint", 1005),
    22: ("int2vector", "int2vector", 1006),
    23: ("int4", "integer", 1007),
    24: ("regproc", "regproc", 1008),
    25: ("text", "text", 1009),
    26: ("oid", "oid", 1028),
    27: ("tid", "tid", 1010),
    28: ("xid", "xid", 1011),
    29: ("cid", "cid", 1012),
    30: ("oidvector", "oidvector", 1013),
    114: ("json", "json", 199),
    142: ("xml", "xml", 143),
    194: ("pg_node_tree", "pg_node_tree", 0),
    600: ("point", "point", 1017),
    601: ("lseg", "lseg", 1018),
    602: ("path", "path", 1019),
    603: ("box", "box", 1020),
    604: ("polygon", "polygon", 1027),
    628: ("line", "line", 629),
    650: ("cidr", "cidr", 651),
    700: ("float4", "real", 1021),
    701: ("float8", "double precision", 1022),
    702: ("abstime", "abstime", 1023),
    703: ("reltime", "reltime", 1024),
    704: ("tinterval", "tinterval", 1025),
    718: ("circle", "circle", 719),
    774: ("macaddr8", "macaddr8", 775),
    790: ("money", "money", 791),
    829: ("macaddr", "macaddr", 1040),
    869: ("inet", "inet", 1041),
    1033: ("aclitem", "aclitem", 1034),
    1042: ("bpchar", "character", 1014),
    1043: ("varchar", "character varying", 1015),
    1082: ("date", "date", 1182),
    1083: ("time", "time without time zone", 1183),
    1114: ("timestamp", "timestamp without time zone", 1115),
    1184: ("timestamptz", "timestamp with time zone", 1185),
    1186: ("interval", "interval", 1187),
    1266: ("timetz", "time with time zone", 1270),
    1560: ("bit", "bit", 1561),
    1562: ("varbit", "bit varying", 1563),
    1700: ("numeric", "numeric", 1231),
    1790: ("refcursor", "refcursor", 2201),
    2202: ("regprocedure", "regprocedure", 2207),
    2203: ("regoper", "regoper", 2208),
    2204: ("regoperator", "regoperator", 2209),
    2205: ("regclass", "regclass", 2210),
    2206: ("regtype", "regtype", 2211),
    2950: ("uuid", "uuid", 2951),
    2970: ("txid_snapshot", "txid_snapshot", 2949),
    3220: ("pg_lsn", "pg_lsn", 3221),
    3361: ("pg_ndistinct", "pg_ndistinct", 0),
    3402: ("pg_dependencies", "pg_dependencies", 0),
    3614: ("tsvector", "tsvector", 3643),
    3615: ("tsquery", "tsquery", 3645),
    3642: ("gtsvector", "gtsvector", 3644),
    3734: ("regconfig", "regconfig", 3735),
    3769: ("regdictionary", "regdictionary", 3770),
    3802: ("jsonb", "jsonb", 3807),
    3904: ("int4range", "int4range", 3905),
    3906: ("numrange", "numrange", 3907),
    3908: ("tsrange", "tsrange", 3909),
    3910: ("tstzrange", "tstzrange", 3911),
    3912: ("daterange", "daterange", 3913),
    3926: ("int8range", "int8range", 3927),
    4072: ("jsonpath", "jsonpath", 4073),
    4089: ("regnamespace", "regnamespace", 4090),
    4096: ("regrole", "regrole", 4097),
    4191: ("regcollation", "regcollation", 4192),
    4451: ("int4multirange", "int4multirange", 6150),
    4532: ("nummultirange", "nummultirange", 6151),
    4533: ("tsmultirange", "tsmultirange", 6152),
    4534: ("tstzmultirange", "tstzmultirange", 6153),
    4535: ("datemultirange", "datemultirange", 6155),
    4536: ("int8multirange", "int8multirange", 6157),
    4600: ("pg_brin_bloom_summary", "pg_brin_bloom_summary", 0),
    4601: ("pg_brin_minmax_multi_summary", "pg_brin_minmax_multi_summary", 0),
    5017: ("pg_mcv_list", "pg_mcv_list", 0),
    5038: ("pg_snapshot", "pg_snapshot", 5039),
    5069: ("xid8", "xid8", 271),
}
"""Name, SQL name and the oid of the type's arrays, which is 0 if it has none."""

_DELIMITERS: Final = {"box": ";"}  # the only built-in type with another delimiter


def _builtin_types() -> Iterator[tuple[int, BuiltinType]]:
    for oid, (name, sql_name, array) in _NO_ARRAYS.items():
        delimiter = _DELIMITERS.get(name, ",")
        yield oid, BuiltinType(name, sql_name, 0, delimiter)
        if array:  # 0: pg_type has no arrays of it
            yield array, BuiltinType(f"_{name}", f"{sql_name}[]", oid, delimiter)


BUILTIN_TYPES: Final = dict(sorted(_builtin_types()))  # By oid, in the order of the oids

OIDS: Final = {builtin.name: oid for oid, builtin in BUILTIN_TYPES.items()}

STEADY_TEXTS: Final = frozenset({16, 18, 19, 20, 21, 23, 25, 26, 28, 114, 1042, 1043, 1700, 2950, 3802})
"""Types whose texts depend on no setting of a session, and that have a binary format: numbers that are exact, booleans,
strings, uuid, json and jsonb."""


_VECTOR: Final = Struct("!hh")  # Number of elements, nothing
_SPARSE: Final = Struct("!iii")  # Number of elements, number of those that are not zero, nothing
_CUBE: Final = Struct("!I")  # A bit for a point, the number of dimensions

_CUBE_POINT: Final = 0x8000_0000
_CUBE_DIMENSIONS: Final = 0x7FFF_FFFF
_ORDER: Final = Struct("!B")  # 0 for big-endian, 1 for little-endian
_BIG, _LITTLE = Struct(">I"), Struct("<I")
_EWKB_KIND: Final = 0x1FFF_FFFF
_EWKB_Z, _EWKB_M, _EWKB_SRID = 0x8000_0000, 0x4000_0000, 0x2000_0000
_EWKB_KINDS, _EWKB_POINT = 17, 1
_EWKB_LINES, _EWKB_RINGS = (2, 8), (3, 17)
"""Kinds that are points, and kinds that are rings of points; all others consist of geometries."""


def hstore_text(data: bytes, codec: str) -> str:
    """Write an hstore's bytes as the extension does."""
    cursor = Cursor(data, "hstore")
    pairs = []
    for _ in range(cursor.count(8)):  # a pair has two lengths
        key, value = cursor.present(), cursor.sized()
        pairs.append(f"{_hstore_quoted(key, codec)}=>{'NULL' if value is None else _hstore_quoted(value, codec)}")
    cursor.finish()
    return ", ".join(pairs)


def cube_text(data: bytes) -> str:
    """Write a cube's bytes as the extension does: a point once, any other cube as two corners."""
    cursor = Cursor(data, "cube")
    (header,) = cursor.unpack(_CUBE)
    size = header & _CUBE_DIMENSIONS
    corners = 1 if header & _CUBE_POINT else 2
    if cursor.left != 8 * size * corners:
        raise malformed("cube", "has another length than its dimensions ask for")
    numbers = cursor.unpack(Struct(f"!{size * corners}d"))
    lower, upper = numbers[:size], numbers[-size:] if size else ()
    if lower == upper:  # written once, however it is stored
        return _cube_corner(lower)
    return f"{_cube_corner(lower)},{_cube_corner(upper)}"


def vector_text(data: bytes, what: str, code: str) -> str:
    """Write the bytes of pgvector's vector or halfvec as the extension does: with the digits of single precision."""
    cursor = Cursor(data, what)
    size, unused = cursor.unpack(_VECTOR)
    layout = Struct(f"!{max(size, 0)}{code}")
    if size < 1 or unused or cursor.left != layout.size:
        raise malformed(what, "has another length than its number of elements asks for")
    return f"[{','.join(map(single_text, cursor.unpack(layout)))}]"


def sparsevec_text(data: bytes) -> str:
    """Write the bytes of pgvector's sparsevec as the extension does; the text counts from 1, the bytes from 0."""
    cursor = Cursor(data, "sparsevec")
    size, count, unused = cursor.unpack(_SPARSE)
    if count < 0 or unused or cursor.left != 8 * count:
        raise malformed("sparsevec", "has another length than its number of elements asks for")
    places = cursor.unpack(Struct(f"!{count}i"))
    numbers = cursor.unpack(Struct(f"!{count}f"))
    elements = (f"{place + 1}:{single_text(number)}" for place, number in zip(places, numbers, strict=True))
    return f"{{{','.join(elements)}}}/{size}"


def ewkb_text(data: bytes) -> str:
    """Write the bytes of PostGIS's geometry or geography as the extension does: its EWKB in hex."""
    cursor = Cursor(data, "geometry")
    _skip_geometry(cursor)
    cursor.finish()
    return data.hex().upper()


def _skip_geometry(cursor: Cursor) -> None:
    """Skip a geometry and those inside it; whatever else has the type's name is hardly ever one from end to end."""
    (order,) = cursor.unpack(_ORDER)
    word = _LITTLE if order else _BIG  # each geometry has a byte order of its own
    (header,) = cursor.unpack(word)
    kind, size = header & _EWKB_KIND, 16 + 8 * bool(header & _EWKB_Z) + 8 * bool(header & _EWKB_M)
    if order > 1 or not 1 <= kind <= _EWKB_KINDS:
        raise malformed("geometry", "is not in EWKB")
    cursor.take(4 if header & _EWKB_SRID else 0)
    if kind == _EWKB_POINT:
        cursor.take(size)
        return
    for _ in range(1 if kind in _EWKB_LINES else cursor.count(4, word)):
        if kind in _EWKB_LINES or kind in _EWKB_RINGS:
            cursor.take(size * cursor.count(size, word))
        else:
            _skip_geometry(cursor)


EXTENSION_TYPES: Final[dict[str, Callable[[bytes], str]]] = {
    "cube": cube_text,
    "geography": ewkb_text,
    "geometry": ewkb_text,
    "halfvec": partial(vector_text, what="halfvec", code="e"),
    "sparsevec": sparsevec_text,
    "vector": partial(vector_text, what="vector", code="f"),
}
"""The function that writes a type's bytes as text, by the type's name in any schema."""

EXTENSION_TEXTS: Final[dict[str, Callable[[bytes, str], str]]] = {
    "citext": decode_text,
    "hstore": hstore_text,
    **dict.fromkeys(("lquery", "ltree", "ltxtquery"), partial(versioned_text, what="ltree")),
}
"""The same for types that contain text; the second argument is the text's codec."""


def _cube_corner(numbers: tuple[float, ...]) -> str:
    return f"({', '.join(map(double_text, numbers))})"


def _hstore_quoted(data: bytes, codec: str) -> str:
    text = decode_text(data, codec).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'

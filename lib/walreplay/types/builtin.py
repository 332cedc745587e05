"""The built-in types of PostgreSQL 10 to 18, as literals, and extension types that are known by their name.

Built-in types: from the catalog of a PostgreSQL 18 server (pg_type below oid 10000, where oids are the same on every
server; row types and pseudo-types left out), plus abstime, reltime and tinterval, which ended with PostgreSQL 11.

Extension types: hstore, citext, ltree, cube, pgvector's, PostGIS's.  Another type may have the same name.  So a value
that is not in the extension's form is refused as malformed; the caller treats it as the type that it may be instead.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from walreplay.types.base import Cursor, malformed
from walreplay.types.numbers import double_text, single_text
from walreplay.types.strings import versioned_text
from walreplay.types.text import decode_text

if TYPE_CHECKING:
    from collections.abc import Callable


class BuiltinType(NamedTuple):
    """One row of pg_type; `element` is 0 except for true array types (int2vector and oidvector are none)."""

    name: str
    sql_name: str
    element: int
    delimiter: str


BUILTIN_TYPES: Final[dict[int, BuiltinType]] = {
    16: BuiltinType("bool", "boolean", 0, ","),
    17: BuiltinType("bytea", "bytea", 0, ","),
    18: BuiltinType("char", '"char"', 0, ","),
    19: BuiltinType("name", "name", 0, ","),
    20: BuiltinType("int8", "bigint", 0, ","),
    21: BuiltinType("int2", "smallint", 0, ","),
    22: BuiltinType("int2vector", "int2vector", 0, ","),
    23: BuiltinType("int4", "integer", 0, ","),
    24: BuiltinType("regproc", "regproc", 0, ","),
    25: BuiltinType("text", "text", 0, ","),
    26: BuiltinType("oid", "oid", 0, ","),
    27: BuiltinType("tid", "tid", 0, ","),
    28: BuiltinType("xid", "xid", 0, ","),
    29: BuiltinType("cid", "cid", 0, ","),
    30: BuiltinType("oidvector", "oidvector", 0, ","),
    114: BuiltinType("json", "json", 0, ","),
    142: BuiltinType("xml", "xml", 0, ","),
    143: BuiltinType("_xml", "xml[]", 142, ","),
    194: BuiltinType("pg_node_tree", "pg_node_tree", 0, ","),
    199: BuiltinType("_json", "json[]", 114, ","),
    271: BuiltinType("_xid8", "xid8[]", 5069, ","),
    600: BuiltinType("point", "point", 0, ","),
    601: BuiltinType("lseg", "lseg", 0, ","),
    602: BuiltinType("path", "path", 0, ","),
    603: BuiltinType("box", "box", 0, ";"),
    604: BuiltinType("polygon", "polygon", 0, ","),
    628: BuiltinType("line", "line", 0, ","),
    629: BuiltinType("_line", "line[]", 628, ","),
    650: BuiltinType("cidr", "cidr", 0, ","),
    651: BuiltinType("_cidr", "cidr[]", 650, ","),
    700: BuiltinType("float4", "real", 0, ","),
    701: BuiltinType("float8", "double precision", 0, ","),
    702: BuiltinType("abstime", "abstime", 0, ","),
    703: BuiltinType("reltime", "reltime", 0, ","),
    704: BuiltinType("tinterval", "tinterval", 0, ","),
    718: BuiltinType("circle", "circle", 0, ","),
    719: BuiltinType("_circle", "circle[]", 718, ","),
    774: BuiltinType("macaddr8", "macaddr8", 0, ","),
    775: BuiltinType("_macaddr8", "macaddr8[]", 774, ","),
    790: BuiltinType("money", "money", 0, ","),
    791: BuiltinType("_money", "money[]", 790, ","),
    829: BuiltinType("macaddr", "macaddr", 0, ","),
    869: BuiltinType("inet", "inet", 0, ","),
    1000: BuiltinType("_bool", "boolean[]", 16, ","),
    1001: BuiltinType("_bytea", "bytea[]", 17, ","),
    1002: BuiltinType("_char", '"char"[]', 18, ","),
    1003: BuiltinType("_name", "name[]", 19, ","),
    1005: BuiltinType("_int2", "smallint[]", 21, ","),
    1006: BuiltinType("_int2vector", "int2vector[]", 22, ","),
    1007: BuiltinType("_int4", "integer[]", 23, ","),
    1008: BuiltinType("_regproc", "regproc[]", 24, ","),
    1009: BuiltinType("_text", "text[]", 25, ","),
    1010: BuiltinType("_tid", "tid[]", 27, ","),
    1011: BuiltinType("_xid", "xid[]", 28, ","),
    1012: BuiltinType("_cid", "cid[]", 29, ","),
    1013: BuiltinType("_oidvector", "oidvector[]", 30, ","),
    1014: BuiltinType("_bpchar", "character[]", 1042, ","),
    1015: BuiltinType("_varchar", "character varying[]", 1043, ","),
    1016: BuiltinType("_int8", "bigint[]", 20, ","),
    1017: BuiltinType("_point", "point[]", 600, ","),
    1018: BuiltinType("_lseg", "lseg[]", 601, ","),
    1019: BuiltinType("_path", "path[]", 602, ","),
    1020: BuiltinType("_box", "box[]", 603, ";"),
    1021: BuiltinType("_float4", "real[]", 700, ","),
    1022: BuiltinType("_float8", "double precision[]", 701, ","),
    1023: BuiltinType("_abstime", "abstime[]", 702, ","),
    1024: BuiltinType("_reltime", "reltime[]", 703, ","),
    1025: BuiltinType("_tinterval", "tinterval[]", 704, ","),
    1027: BuiltinType("_polygon", "polygon[]", 604, ","),
    1028: BuiltinType("_oid", "oid[]", 26, ","),
    1033: BuiltinType("aclitem", "aclitem", 0, ","),
    1034: BuiltinType("_aclitem", "aclitem[]", 1033, ","),
    1040: BuiltinType("_macaddr", "macaddr[]", 829, ","),
    1041: BuiltinType("_inet", "inet[]", 869, ","),
    1042: BuiltinType("bpchar", "character", 0, ","),
    1043: BuiltinType("varchar", "character varying", 0, ","),
    1082: BuiltinType("date", "date", 0, ","),
    1083: BuiltinType("time", "time without time zone", 0, ","),
    1114: BuiltinType("timestamp", "timestamp without time zone", 0, ","),
    1115: BuiltinType("_timestamp", "timestamp without time zone[]", 1114, ","),
    1182: BuiltinType("_date", "date[]", 1082, ","),
    1183: BuiltinType("_time", "time without time zone[]", 1083, ","),
    1184: BuiltinType("timestamptz", "timestamp with time zone", 0, ","),
    1185: BuiltinType("_timestamptz", "timestamp with time zone[]", 1184, ","),
    1186: BuiltinType("interval", "interval", 0, ","),
    1187: BuiltinType("_interval", "interval[]", 1186, ","),
    1231: BuiltinType("_numeric", "numeric[]", 1700, ","),
    1266: BuiltinType("timetz", "time with time zone", 0, ","),
    1270: BuiltinType("_timetz", "time with time zone[]", 1266, ","),
    1560: BuiltinType("bit", "bit", 0, ","),
    1561: BuiltinType("_bit", "bit[]", 1560, ","),
    1562: BuiltinType("varbit", "bit varying", 0, ","),
    1563: BuiltinType("_varbit", "bit varying[]", 1562, ","),
    1700: BuiltinType("numeric", "numeric", 0, ","),
    1790: BuiltinType("refcursor", "refcursor", 0, ","),
    2201: BuiltinType("_refcursor", "refcursor[]", 1790, ","),
    2202: BuiltinType("regprocedure", "regprocedure", 0, ","),
    2203: BuiltinType("regoper", "regoper", 0, ","),
    2204: BuiltinType("regoperator", "regoperator", 0, ","),
    2205: BuiltinType("regclass", "regclass", 0, ","),
    2206: BuiltinType("regtype", "regtype", 0, ","),
    2207: BuiltinType("_regprocedure", "regprocedure[]", 2202, ","),
    2208: BuiltinType("_regoper", "regoper[]", 2203, ","),
    2209: BuiltinType("_regoperator", "regoperator[]", 2204, ","),
    2210: BuiltinType("_regclass", "regclass[]", 2205, ","),
    2211: BuiltinType("_regtype", "regtype[]", 2206, ","),
    2949: BuiltinType("_txid_snapshot", "txid_snapshot[]", 2970, ","),
    2950: BuiltinType("uuid", "uuid", 0, ","),
    2951: BuiltinType("_uuid", "uuid[]", 2950, ","),
    2970: BuiltinType("txid_snapshot", "txid_snapshot", 0, ","),
    3220: BuiltinType("pg_lsn", "pg_lsn", 0, ","),
    3221: BuiltinType("_pg_lsn", "pg_lsn[]", 3220, ","),
    3361: BuiltinType("pg_ndistinct", "pg_ndistinct", 0, ","),
    3402: BuiltinType("pg_dependencies", "pg_dependencies", 0, ","),
    3614: BuiltinType("tsvector", "tsvector", 0, ","),
    3615: BuiltinType("tsquery", "tsquery", 0, ","),
    3642: BuiltinType("gtsvector", "gtsvector", 0, ","),
    3643: BuiltinType("_tsvector", "tsvector[]", 3614, ","),
    3644: BuiltinType("_gtsvector", "gtsvector[]", 3642, ","),
    3645: BuiltinType("_tsquery", "tsquery[]", 3615, ","),
    3734: BuiltinType("regconfig", "regconfig", 0, ","),
    3735: BuiltinType("_regconfig", "regconfig[]", 3734, ","),
    3769: BuiltinType("regdictionary", "regdictionary", 0, ","),
    3770: BuiltinType("_regdictionary", "regdictionary[]", 3769, ","),
    3802: BuiltinType("jsonb", "jsonb", 0, ","),
    3807: BuiltinType("_jsonb", "jsonb[]", 3802, ","),
    3904: BuiltinType("int4range", "int4range", 0, ","),
    3905: BuiltinType("_int4range", "int4range[]", 3904, ","),
    3906: BuiltinType("numrange", "numrange", 0, ","),
    3907: BuiltinType("_numrange", "numrange[]", 3906, ","),
    3908: BuiltinType("tsrange", "tsrange", 0, ","),
    3909: BuiltinType("_tsrange", "tsrange[]", 3908, ","),
    3910: BuiltinType("tstzrange", "tstzrange", 0, ","),
    3911: BuiltinType("_tstzrange", "tstzrange[]", 3910, ","),
    3912: BuiltinType("daterange", "daterange", 0, ","),
    3913: BuiltinType("_daterange", "daterange[]", 3912, ","),
    3926: BuiltinType("int8range", "int8range", 0, ","),
    3927: BuiltinType("_int8range", "int8range[]", 3926, ","),
    4072: BuiltinType("jsonpath", "jsonpath", 0, ","),
    4073: BuiltinType("_jsonpath", "jsonpath[]", 4072, ","),
    4089: BuiltinType("regnamespace", "regnamespace", 0, ","),
    4090: BuiltinType("_regnamespace", "regnamespace[]", 4089, ","),
    4096: BuiltinType("regrole", "regrole", 0, ","),
    4097: BuiltinType("_regrole", "regrole[]", 4096, ","),
    4191: BuiltinType("regcollation", "regcollation", 0, ","),
    4192: BuiltinType("_regcollation", "regcollation[]", 4191, ","),
    4451: BuiltinType("int4multirange", "int4multirange", 0, ","),
    4532: BuiltinType("nummultirange", "nummultirange", 0, ","),
    4533: BuiltinType("tsmultirange", "tsmultirange", 0, ","),
    4534: BuiltinType("tstzmultirange", "tstzmultirange", 0, ","),
    4535: BuiltinType("datemultirange", "datemultirange", 0, ","),
    4536: BuiltinType("int8multirange", "int8multirange", 0, ","),
    4600: BuiltinType("pg_brin_bloom_summary", "pg_brin_bloom_summary", 0, ","),
    4601: BuiltinType("pg_brin_minmax_multi_summary", "pg_brin_minmax_multi_summary", 0, ","),
    5017: BuiltinType("pg_mcv_list", "pg_mcv_list", 0, ","),
    5038: BuiltinType("pg_snapshot", "pg_snapshot", 0, ","),
    5039: BuiltinType("_pg_snapshot", "pg_snapshot[]", 5038, ","),
    5069: BuiltinType("xid8", "xid8", 0, ","),
    6150: BuiltinType("_int4multirange", "int4multirange[]", 4451, ","),
    6151: BuiltinType("_nummultirange", "nummultirange[]", 4532, ","),
    6152: BuiltinType("_tsmultirange", "tsmultirange[]", 4533, ","),
    6153: BuiltinType("_tstzmultirange", "tstzmultirange[]", 4534, ","),
    6155: BuiltinType("_datemultirange", "datemultirange[]", 4535, ","),
    6157: BuiltinType("_int8multirange", "int8multirange[]", 4536, ","),
}

STEADY_TEXTS: Final = frozenset({16, 18, 19, 20, 21, 23, 25, 26, 28, 114, 1042, 1043, 1700, 2950, 3802})
"""Types whose texts depend on no setting of a session, and that have a binary format: numbers that are exact, booleans,
strings, uuid, json and jsonb."""


_VECTOR: Final = Struct("!hh")
"""Number of elements, nothing."""
_SPARSE: Final = Struct("!iii")
"""Number of elements, number of those that are not zero, nothing."""
_CUBE: Final = Struct("!I")
"""A bit for a point, the number of dimensions."""

_CUBE_POINT: Final = 0x8000_0000
_CUBE_DIMENSIONS: Final = 0x7FFF_FFFF
_ORDER: Final = Struct("!B")
"""0 for big-endian, 1 for little-endian."""
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
    for _ in range(cursor.count(8)):
        key, value = cursor.present(), cursor.sized()
        pairs.append(f"{_hstore_quoted(key, codec)}=>{'NULL' if value is None else _hstore_quoted(value, codec)}")
    cursor.finish()
    return ", ".join(pairs)


def ltree_text(data: bytes, codec: str) -> str:
    """Write the bytes of an ltree, lquery or ltxtquery as the extension does."""
    return versioned_text(data, codec, "ltree")


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
    if lower == upper:
        return _cube_corner(lower)
    return f"{_cube_corner(lower)},{_cube_corner(upper)}"


def vector_text(data: bytes) -> str:
    """Write the bytes of pgvector's vector as the extension does."""
    return _dense(data, "vector", "f")


def halfvec_text(data: bytes) -> str:
    """Write the bytes of pgvector's halfvec as the extension does: with as many digits as single precision has."""
    return _dense(data, "halfvec", "e")


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
    word = _LITTLE if order else _BIG
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
    "halfvec": halfvec_text,
    "sparsevec": sparsevec_text,
    "vector": vector_text,
}
"""The function that writes a type's bytes as text, by the type's name in any schema."""

EXTENSION_TEXTS: Final[dict[str, Callable[[bytes, str], str]]] = {
    "citext": decode_text,
    "hstore": hstore_text,
    "lquery": ltree_text,
    "ltree": ltree_text,
    "ltxtquery": ltree_text,
}
"""The same for types that contain text; the second argument is the text's codec."""


def _dense(data: bytes, what: str, code: str) -> str:
    cursor = Cursor(data, what)
    size, unused = cursor.unpack(_VECTOR)
    layout = Struct(f"!{max(size, 0)}{code}")
    if size < 1 or unused or cursor.left != layout.size:
        raise malformed(what, "has another length than its number of elements asks for")
    return f"[{','.join(map(single_text, cursor.unpack(layout)))}]"


def _cube_corner(numbers: tuple[float, ...]) -> str:
    return f"({', '.join(map(double_text, numbers))})"


def _hstore_quoted(data: bytes, codec: str) -> str:
    text = decode_text(data, codec).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'

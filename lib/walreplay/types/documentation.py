"""The documentation's table of types, generated from the registry, so that it cannot differ from the code.

``python -m walreplay.types.documentation docs/types.md`` writes it between its marks in that file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from walreplay.types.base import Family
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.names import VECTORS
from walreplay.types.registry import resolve

BEGIN: Final = "<!-- The table: written by python -m walreplay.types.documentation docs/types.md -->"
END: Final = "<!-- The table ends. -->"


class TypeDescription(NamedTuple):
    """One row of the table.

    Args:
        postgres: the SQL names of types that become the same Delta type.
        delta: the type of the Delta column under default options.
        misfits: what happens to values that the column cannot hold.
    """

    postgres: str
    delta: str
    misfits: str


_NUMERIC: Final = 1700
_INTEGERS: Final = 1007
_NUMERIC_12_2: Final = (12 << 16 | 2) + 4
_USER_DEFINED: Final = 1 << 30

_NONE: Final = "all values fit"
_TIMES: Final = "infinity, -infinity and years outside 1 to 9999 are rescued"

_FLOATS: Final = "NaN and the infinities are values; what a server before 12 rounds above the largest one is rescued"

_MISFITS: Final[dict[Family, str]] = {
    Family.FLOAT32: _FLOATS,
    Family.FLOAT64: _FLOATS,
    Family.DECIMAL: "NaN and the infinities are rescued, as is what has more digits than p and s allow",
    Family.DATE: _TIMES,
    Family.TIMESTAMP: _TIMES,
    Family.TIMESTAMPTZ: f"{_TIMES}, judged in UTC",
    Family.ARRAY: "the whole array is rescued when it has several dimensions, bounds of its own (`[0:1]={1,2}`) or "
    "an element that does not fit",
    Family.VECTOR: "what is not a list of finite numbers in brackets is rescued",
}

_GROUPS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("bool",), ""),
    (("int2",), ""),
    (("int4",), ""),
    (("int8",), ""),
    (("oid", "xid"), ""),
    (("float4",), ""),
    (("float8",), ""),
    (("numeric",), ""),
    (("text", "varchar", "name", "char"), "as sent"),
    (("bpchar",), "as sent, padded with blanks to its length"),
    (("uuid",), ""),
    (("json", "jsonb", "jsonpath"), "as sent"),
    (("xml",), "as sent"),
    (("bytea",), ""),
    (("date",), ""),
    (("timestamp",), ""),
    (("timestamptz",), ""),
    (("time", "timetz"), "24:00:00 too"),
    (("interval",), "in the IntervalStyle postgres"),
    (("money",), "with the sign and the separators of the server's lc_monetary"),
    (("bit", "varbit"), ""),
    (("inet", "cidr", "macaddr", "macaddr8"), ""),
    (("point", "line", "lseg", "box", "path", "polygon", "circle"), ""),
    (("tsvector", "tsquery"), ""),
    (("int4range", "int8range", "numrange"), ""),
    (("int4multirange", "int8multirange", "nummultirange"), ""),
    (("daterange", "tsrange", "datemultirange", "tsmultirange"), "in the sender's DateStyle"),
    (("tstzrange", "tstzmultirange"), "in the sender's DateStyle; in UTC if that is ISO"),
    (("xid8", "cid", "tid", "pg_lsn", "pg_snapshot", "txid_snapshot"), ""),
    (
        (
            "regclass",
            "regcollation",
            "regconfig",
            "regdictionary",
            "regnamespace",
            "regoper",
            "regoperator",
            "regproc",
            "regprocedure",
            "regrole",
            "regtype",
        ),
        "the name that the oid had when it was sent",
    ),
    (("int2vector", "oidvector"), "numbers with blanks between them"),
    (("refcursor", "aclitem"), ""),
    (("abstime", "reltime", "tinterval"), "up to PostgreSQL 11"),
    (
        (
            "gtsvector",
            "pg_brin_bloom_summary",
            "pg_brin_minmax_multi_summary",
            "pg_dependencies",
            "pg_mcv_list",
            "pg_ndistinct",
            "pg_node_tree",
        ),
        "PostgreSQL's own, which tables of users do not have",
    ),
)
"""Types (by their names in pg_type) that share a row of the table, and a note on their text."""


def describe() -> list[TypeDescription]:
    """List the table's rows: the Delta type of every type under default options, and what happens to misfits."""
    rows = []
    oids = {builtin.name: oid for oid, builtin in BUILTIN_TYPES.items()}
    for names, note in _GROUPS:
        found = [resolve(oids[name], -1, {}) for name in names]
        titles = ", ".join(BUILTIN_TYPES[oids[name]].sql_name for name in names)
        if names == ("numeric",):
            rows.append(_decimal())
            titles = "numeric without precision, with more than 38 digits, or with a scale outside 0 to p"
            note = "exact"
        misfits = "; ".join([_MISFITS.get(found[0].family, _NONE), *([note] if note else [])])
        rows.append(TypeDescription(titles, delta_name(found[0].arrow), misfits))
    array = resolve(_INTEGERS, -1, {})
    vector = resolve(_USER_DEFINED, -1, {_USER_DEFINED: ("public", VECTORS[0])})
    other = resolve(_USER_DEFINED, -1, {_USER_DEFINED: ("public", "mood")})
    text = f"{_NONE}; PostgreSQL's text"
    return [
        *rows,
        TypeDescription(
            "arrays of all these",
            delta_name(array.arrow).replace(delta_name(array.arrow.value_type), "the element's type"),
            _MISFITS[array.family],
        ),
        TypeDescription("domains", "their base type's", "as for the base type, without the precision of a numeric"),
        TypeDescription(f"{', '.join(VECTORS)} (pgvector)", delta_name(vector.arrow), _MISFITS[vector.family]),
        TypeDescription("enums, hstore, citext, ltree, sparsevec, geometry, …", delta_name(other.arrow), text),
        TypeDescription("composite types, ranges of users, arrays of user-defined types", "string", text),
    ]


def documented_types() -> list[str]:
    """List the built-in types that the table names one by one, as they are called in pg_type."""
    return [name for names, _ in _GROUPS for name in names]


def _decimal() -> TypeDescription:
    found = resolve(_NUMERIC, _NUMERIC_12_2, {})
    name = delta_name(found.arrow).replace("(12,2)", "(p,s)")
    return TypeDescription("numeric(p,s), p up to 38, s from 0 to p", name, _MISFITS[found.family])


_DELTA_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}


def delta_name(kind: pa.DataType) -> str:
    """Return a column's type as Delta's users write it."""
    if pa.types.is_list(kind):
        return f"array<{delta_name(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _DELTA_NAMES[kind]


def markdown() -> str:
    """Write the table, with its marks."""
    rows = ["| PostgreSQL | Delta | values that do not fit |", "|---|---|---|"]
    rows += [f"| {row.postgres} | {row.delta} | {row.misfits} |" for row in describe()]
    return "\n".join([BEGIN, *rows, END])


def renewed(page: str) -> str:
    """Return a page with a new table between its marks.

    Raises:
        ValueError: the page does not have each of the two marks exactly once.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after or END in after:
        raise ValueError("the page has no place for the table: its two marks, once each")
    return before + markdown() + after


def main(arguments: list[str]) -> None:
    """Renew the table in each of the files."""
    for name in arguments:
        path = Path(name)
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

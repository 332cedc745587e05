"""The documentation's table of types, generated from the registry, so that it cannot differ from the code.

``PYTHONPATH=tests python -m support.type_table docs/types.md`` writes it between its marks in that file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from walreplay.delta.statements import sql_type
from walreplay.types.base import FAMILIES, Family
from walreplay.types.builtin import BUILTIN_TYPES, OIDS
from walreplay.types.families import STRING
from walreplay.types.names import VECTORS
from walreplay.types.registry import resolve

BEGIN: Final = "<!-- The table: written by python -m support.type_table docs/types.md -->"
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


_NUMERIC_12_2: Final = (12 << 16 | 2) + 4
_USER_DEFINED: Final = 1 << 30

_NONE: Final = "all values fit"
_TITLES: Final = {"numeric": "numeric without precision, with more than 38 digits, or with a scale outside 0 to p"}

_GROUPS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("numeric",), "exact"),
    (("text", "varchar", "name", "char"), "as sent"),
    (("bpchar",), "as sent, padded with blanks to its length"),
    (("uuid",), ""),
    (("json", "jsonb", "jsonpath"), "as sent"),
    (("xml",), "as sent"),
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
        tuple(sorted(name for name in OIDS if name.startswith("reg"))),
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
"""Types (by their names in pg_type) that share a row of the table if they are text, and a note on it."""


def describe() -> list[TypeDescription]:
    """List the table's rows: the Delta type of every type under default options, and what happens to misfits."""
    rows = [_row(family.types, family) for family in FAMILIES.values() if family.types]
    numeric = resolve(OIDS["numeric"], _NUMERIC_12_2, {})
    delta = delta_name(numeric.arrow).replace("(12,2)", "(p,s)")
    rows.append(TypeDescription("numeric(p,s), p up to 38, s from 0 to p", delta, numeric.family.misfits))
    rows += [_row(names, STRING, note) for names, note in _texts()]
    array = resolve(OIDS["_int4"], -1, {})
    vector = resolve(_USER_DEFINED, -1, {_USER_DEFINED: ("public", VECTORS[0])})
    other = resolve(_USER_DEFINED, -1, {_USER_DEFINED: ("public", "mood")})
    text = f"{_NONE}; PostgreSQL's text"
    return [
        *rows,
        TypeDescription(
            "arrays of all these",
            delta_name(array.arrow).replace(delta_name(array.arrow.value_type), "the element's type"),
            array.family.misfits,
        ),
        TypeDescription("domains", "their base type's", "as for the base type, without the precision of a numeric"),
        TypeDescription(f"{', '.join(VECTORS)} (pgvector)", delta_name(vector.arrow), vector.family.misfits),
        TypeDescription("enums, hstore, citext, ltree, sparsevec, geometry, …", delta_name(other.arrow), text),
        TypeDescription("composite types, ranges of users, arrays of user-defined types", "string", text),
    ]


def _row(names: Iterable[str], family: Family, note: str = "") -> TypeDescription:
    sql_names = {builtin.name: builtin.sql_name for builtin in BUILTIN_TYPES.values()} | _TITLES
    misfits = "; ".join([family.misfits or _NONE, *([note] if note else [])])
    return TypeDescription(", ".join(sql_names[name] for name in names), delta_name(family.arrow), misfits)


def _texts() -> Iterator[tuple[list[str], str]]:
    """Yield the groups of types that are text, without those that have a family of their own."""
    with_family = {name for family in FAMILIES.values() for name in family.types}
    for names, note in _GROUPS:
        if texts := [name for name in names if name not in with_family]:
            yield texts, note


def documented_types() -> list[str]:
    """List the built-in types that the table names one by one, as they are called in pg_type."""
    with_family = [name for family in FAMILIES.values() for name in family.types]
    return [*with_family, *(name for names, _ in _texts() for name in names)]


def delta_name(kind: pa.DataType) -> str:
    """Return a column's type as Delta's users write it."""
    return sql_type(kind).lower()


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

"""Types and names are written as a server writes them."""

from __future__ import annotations

import pytest

from support.hostile_names import NAMES
from support.postgres import chosen_versions, running_server
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.names import quoted, type_written

pytestmark = pytest.mark.integration

_GRAMMAR = 18
_INTERVALS = (
    "",
    "(3)",
    " year",
    " year to month",
    " day to hour",
    " day to second(2)",
    " hour to minute",
    " second(0)",
)
_DECLARED = (
    *("char", "char(7)", "bpchar", "varchar", "varchar(1)", "varchar(10485760)", '"char"', "bit", "bit(9)", "varbit"),
    *("varbit(3)", "numeric", "numeric(1)", "numeric(1000,500)", "numeric(3,-3)", "numeric(2,5)", "float(1)", "float"),
    *(
        f"{name}{precision}"
        for name in ("time", "timetz", "timestamp", "timestamptz")
        for precision in ("", "(0)", "(6)")
    ),
    *(f"interval{fields}" for fields in _INTERVALS),
)


@pytest.mark.parametrize("version", chosen_versions())
def test_types_and_names_are_written_as_a_server_writes_them(version: int) -> None:
    with running_server(version) as server:
        listed = ", ".join(f"c{n} {kind}, a{n} {kind}[]" for n, kind in enumerate(_DECLARED))
        server.execute(f"CREATE TABLE t ({listed})")
        columns = "SELECT atttypid::int, atttypmod, format_type(atttypid, atttypmod) FROM pg_attribute"
        found = server.rows(f"{columns} WHERE attrelid = 't'::regclass AND attnum > 0")
        found += server.rows("SELECT oid::int, -1, format_type(oid, -1) FROM pg_type WHERE oid < 10000")
        words = [word for (word,) in server.rows("SELECT word FROM pg_get_keywords()")]
        quotes = server.rows("SELECT name, quote_ident(name) FROM unnest(%s::text[]) AS name", [*words, *NAMES])
    compared = [(type_written(oid, typmod, {}), text) for oid, typmod, text in found if oid in BUILTIN_TYPES]
    assert len(compared) > 200
    assert [pair for pair in compared if pair[0] != pair[1]] == []
    # An older grammar has fewer words.
    differing = [(name, text) for name, text in quotes if quoted(name) != text]
    assert [pair for pair in differing if version >= _GRAMMAR or pair[1].startswith('"')] == []

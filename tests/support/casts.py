"""What PostgreSQL makes of old values where a column's type is changed without USING: asked of a server, pair by pair.

Which pairs there are is the server's to say, too: an ALTER TABLE that it refuses is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from walreplay.types import ColumnType, resolve

if TYPE_CHECKING:
    pass

_LONG = "é" * 31 + "y"

_MOMENTS = [
    "'2024-01-15 12:00:00.6'",
    "'1969-12-31 23:59:59.5'",
    "'1999-12-31 23:59:59.123455'",
    "'2024-02-29 00:00:00'",
    "'9999-12-31 23:59:59.999999'",
    "'0001-12-31 23:59:59.7 BC'",
    "'0044-03-15 11:30:00.25 BC'",
    "'12024-07-01 10:00:00.0000005'",
    "'infinity'",
    "'-infinity'",
]
_CLOCKS = ["'00:00:00'", "'12:00:00.5'", "'23:59:59.9999995'", "'23:59:59.6'", "'24:00:00'", "'01:02:03.045678'"]
_TEXTS = [
    "''",
    "'x'",
    "'abc   '",
    "'  a'",
    "'12'",
    f"'{_LONG * 2}'",
    "repeat('x', 60) || '     y'",
    r"'\101'",
    "'(1,2)'",
]
_DOUBLES = ["0.5", "-1.5", "2.5", "123456789.12345679", "0.1", "1e20", "1.2345678901234568e18", "-0.0", "1e-7", "'NaN'"]
_INTERVALS = [
    "'1 day 02:00:00.5'",
    "'-1 year 5 mons -3 days -04:05:06.7899995'",
    "'14 mons 3 days 26:01:02.5'",
    "'-00:59:59.5'",
    "'0'",
]
_JSON = [
    """' {"b" : 1, "aa":[1.50,1e3,-0.0,1E-2], "a":{"z":null,"z":true}, "a":"x"} '""",
    r"""'"\u00e9\ud83d\ude00\n\u0001\/\"\\\t\b"'""",
    "'[ ]'",
    "'{ }'",
    "'12345678901234567890.10'",
    """'{"é":1,"zz":2,"":3}'""",
    r"""'"\u0000"'""",
]

VALUES = {
    "boolean": ["true", "false"],
    "smallint": ["1", "-7", "32767"],
    "integer": ["0", "-1", "16777217", "-2147483648", "12345"],
    "bigint": ["1", "-1", "9007199254740993", "4294967295", "12345"],
    "oid": ["0", "5", "4294967295"],
    "xid": ["'5'"],
    "real": ["0.5", "1.5", "-2.5", "123456789", "0.1", "1.17e-30", "'NaN'", "'Infinity'", "16777216"],
    "double precision": [*_DOUBLES, "'-Infinity'", "3.4028235677973366e38", "1.00000017881393432617187499"],
    "numeric": ["0.5", "-1.5", "2.345", "-2.355", "12345678901234567890.12345", "'NaN'", "0.000", "99999.995"],
    "numeric(10,4)": ["0.5", "-1.5000", "2.3450", "-2.3550", "999.9950", "'NaN'", "-0.4999"],
    "numeric(45,5)": ["1234567890123456789.12345", "-0.00005"],
    "money": ["'1.50'", "'-12'"],
    "text": _TEXTS,
    "character varying": _TEXTS,
    "character varying(70)": _TEXTS,
    "bpchar": _TEXTS,
    "character(70)": _TEXTS,
    "name": ["'x'", "'abc '", f"'{_LONG}'"],
    '"char"': ["'x'", "''", "'é'"],
    "bytea": [r"'\x00ff'", "''"],
    "date": ["'2024-02-29'", "'infinity'", "'0044-03-15 BC'", "'12024-01-01'"],
    "timestamp": _MOMENTS,
    "timestamp(3)": _MOMENTS,
    "timestamptz": _MOMENTS,
    "time": _CLOCKS,
    "timetz": [f"{clock[:-1]}+05:30'" for clock in _CLOCKS],
    "interval": _INTERVALS,
    "interval hour to second(3)": _INTERVALS,
    "bit(3)": ["'101'"],
    "bit varying(5)": ["'101'", "'11111'", "''"],
    "inet": ["'10.1.2.3/8'", "'10.0.0.1'", "'2001:db8::ff/33'", "'::1'", "'::ffff:1.2.3.4/120'", "'255.255.255.255/0'"],
    "cidr": ["'10.0.0.0/8'", "'10.0.0.1'", "'::1'", "'2001:db8::/32'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "macaddr8": ["'08:00:2b:ff:fe:01:02:03'", "'08:00:2b:01:02:03:04:05'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "json": _JSON,
    "jsonb": _JSON[:-1],
    "point": ["'(1,2.5)'"],
    "lseg": ["'[(1,2),(3,4)]'"],
    "box": ["'(3,4),(1,2)'"],
    "path": ["'((0,0),(1,1),(2,0))'", "'[(0,0),(1,1)]'"],
    "polygon": ["'((0,0),(1,1),(2,0))'"],
    "circle": ["'<(1,2),3>'"],
    "line": ["'{1,2,3}'"],
    "int4range": ["'[1,5)'"],
    "tstzrange": ["'[2024-01-15 12:00+00,)'"],
    "tsmultirange": ["'{[2024-01-15 12:00,2024-01-16)}'"],
    "tsvector": ["'a b'"],
    "pg_lsn": ["'0/16B3748'"],
    "regclass": ["'pg_class'", "'0'"],
    "regproc": ["'pg_backend_pid'"],
    "regtype": ["'integer'"],
    "regrole": ["'postgres'"],
    "integer[]": ["'{1,NULL,-1}'", "'{}'", "'{{1},{2}}'"],
    "boolean[]": ["'{t,NULL}'"],
    "text[]": ["""'{"abc  ",NULL,"a\\"b"}'""", f"'{{{_LONG * 2}}}'"],
    "double precision[]": ["'{0.5,123456789.12345679,NULL}'", "'{NaN}'"],
    "numeric(10,4)[]": ["'{0.5,2.3455}'", "'{NaN,1.55555}'"],
    "timestamp[]": ["""'{"2024-01-15 12:00:00.6",NULL}'""", """'{"2024-01-15 12:00:00.6",infinity}'"""],
    "timestamptz[]": ["""'{"2024-01-15 12:00:00.6"}'"""],
    "interval[]": ["""'{"1 day 02:00:00.5"}'"""],
    "inet[]": ["'{10.1.2.3/8,10.0.0.1}'"],
    "json[]": ["""'{"[ 1 ]"}'"""],
}
"""By the type that they are of, some values as SQL writes them."""

MODIFIED = [
    *(f"numeric({digits})" for digits in ("5,2", "10,0", "12,4", "30,10", "5,-2", "38,38", "50,3")),
    *("character varying(3)", "character varying(200)", "character(3)", "character(200)"),
    *(
        f"{name}({digits})"
        for name in ("timestamp", "timestamptz", "time", "timetz", "interval")
        for digits in (0, 1, 3, 6)
    ),
    *("interval year", "interval month", "interval day", "interval hour", "interval minute", "interval second"),
    *("interval year to month", "interval day to hour", "interval day to second(2)", "interval minute to second(0)"),
    *("bit(1)", "bit(5)", "bit varying(3)"),
    *("timestamp(0)[]", "interval day[]", "numeric(5,2)[]", "character varying(3)[]", "name[]", "cidr[]", "jsonb[]"),
    *("bigint[]", "real[]", "numeric[]", "character(5)[]", "timestamptz(0)[]", "smallint[]"),
]


class Cast(NamedTuple):
    """A value before and behind ALTER COLUMN TYPE: its types, and its texts as the server sends them."""

    old: str
    new: str
    before: str | None
    after: str | None


class Caster:
    """Changes the types of columns on a server, and asks what has become of the values."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._types: dict[str, ColumnType] = {}
        connection.execute(b"SET client_min_messages = error")

    def column_type(self, name: str) -> ColumnType:
        """Return the type of a column as a Relation message has it."""
        if name not in self._types:
            rows = self._rows(f"CREATE TEMP TABLE t (v {name})", "SELECT atttypid::int8, atttypmod FROM pg_attribute "
                              "WHERE attrelid = 't'::regclass AND attname = 'v'")  # fmt: skip
            ((oid, typmod),) = rows or [(0, 0)]
            self._types[name] = resolve(oid, typmod, {})
        return self._types[name]

    def casts(self, old: str, news: Sequence[str], values: Sequence[str]) -> Iterator[Cast]:
        """Yield what becomes of each value by each of the types that it has a cast to."""
        self._connection.execute(b"DROP TABLE IF EXISTS s")
        self._connection.execute(f"CREATE TEMP TABLE s (id int, v {old})".encode())
        for number, value in enumerate(values):
            self._connection.execute(f"INSERT INTO s VALUES ({number}, {value})".encode())
        before = dict(self._rows(_SENT))
        for new in news:
            alter = _ELSEWHERE, f"ALTER TABLE s ALTER v TYPE {new}", "SET LOCAL TimeZone = 'UTC'", _SENT
            after = self._rows(*alter)
            if after is None and self._is_cast(old, new):
                # Some value is refused: each by itself.
                after = []
                for number in before:
                    after += self._rows(f"DELETE FROM s WHERE id <> {number}", *alter) or []
            for number, text in after or []:
                yield Cast(old, new, before[number], text)

    def _is_cast(self, old: str, new: str) -> bool:
        return self._rows(f"CREATE TEMP TABLE t (v {old})", f"ALTER TABLE t ALTER v TYPE {new}", "SELECT 1") is not None

    def _rows(self, *statements: str) -> Any:
        """Return the last statement's rows, and roll all of them back; None if the server refuses one."""
        try:
            with self._connection.transaction(force_rollback=True):
                for statement in statements:
                    cursor = self._connection.execute(statement.encode())
                return cursor.fetchall()
        except psycopg.Error:
            return None
        except UnicodeDecodeError:  # "char" to bpchar may give a byte that is no character
            return None


_SENT = """SELECT id, CASE WHEN v IS NOT NULL THEN format('%s', v) END FROM s ORDER BY id"""
_ELSEWHERE = "SET LOCAL TimeZone = 'America/New_York'"

"""What a server sends again may be in other bytes, if the session has other settings; other contents are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from struct import pack

import pytest

from support.framings import frame
from support.wire import encode
from walreplay import read_changes
from walreplay.errors import OrderError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

_COLUMNS = (
    m.Column("id", 23, -1, True),
    m.Column("at", 1184, -1, False),
    m.Column("name", 25, -1, False),
    m.Column("spans", 1186, -1, False),
    m.Column("price", 1700, -1, False),
    m.Column("mark", 16_500, -1, False),
)
_TABLE = m.Relation(9, "s", "t", "d", _COLUMNS)
_WHOLE = replace(_TABLE, replica_identity="f")

Row = tuple[str | bytes | None, ...]
"""A cell is sent as text, or in binary format; ``UNCHANGED`` is what is not sent."""
UNCHANGED = b"unchanged"

_UTC: Row = ("1", "2024-01-01 00:00:00+00", "a name, and a longer one", "1 day", "1.50", "x")
_ELSEWHERE: Row = ("1", "2024-01-01 05:45:00+05:45", "a name, and a longer one", "P1D", "1.50", "\\x78")
_BINARY: Row = (b"\0\0\0\1", bytes(8), b"a name, and a longer one", bytes(16), b"\0\2\0\0\0\0\0\2\0\1\23\210", "x")


def _tuple(row: Row) -> m.TupleData:
    return m.TupleData(tuple(map(_cell, row)))


def _cell(value: str | bytes | None) -> m.Cell:
    if value is None:
        return m.Cell("n", None)
    if value is UNCHANGED:
        return m.Cell("u", None)
    return m.Cell("t", value.encode()) if isinstance(value, str) else m.Cell("b", value)


def _sent(*rows: Row, xid: int = 7, time: int = 5, relation: m.Relation = _TABLE) -> list[m.AnyMessage]:
    inserts = [m.Insert(relation.oid, _tuple(row)) for row in rows]
    return [m.Begin(100, time, xid), relation, *inserts, m.Commit(0, 100, 108, time)]


def _read(folder: Path, *sessions: Sequence[m.AnyMessage]) -> int:
    """Read sessions, the first without anything behind it, and count the rows."""
    for number, messages in enumerate(sessions):
        (folder / f"{number}.bin").write_bytes(frame(messages, Framing.RAW))
    return sum(batch.data.num_rows for batch in read_changes(folder))


@pytest.mark.parametrize(("first", "again"), list(permutations((_UTC, _ELSEWHERE, _BINARY), 2)))
@pytest.mark.parametrize("makes", ["inserts", "updates", "deletes"])
def test_a_copy_under_other_settings_is_one(tmp_path: Path, first: Row, again: Row, makes: str) -> None:
    def made(row: Row) -> list[m.AnyMessage]:
        gone = (row[0], row[1], None, *row[3:])
        changes: dict[str, tuple[m.AnyMessage, ...]] = {
            "inserts": (m.Insert(9, _tuple(row)), m.Insert(9, _tuple((None,) * 6)), m.Truncate((9,), 0)),
            "updates": (
                m.Update(9, _tuple((row[0], *[UNCHANGED] * 4, row[5])), _tuple(gone)),
                m.Update(9, _tuple(row)),
            ),
            "deletes": (m.Delete(9, _tuple(gone)), m.Delete(9, _tuple(row))),
        }
        return [m.Begin(100, 5, 7), _WHOLE, *changes[makes], m.Commit(0, 100, 108, 5)]

    assert _read(tmp_path, made(first), made(again)) == {"inserts": 3, "updates": 2, "deletes": 2}[makes]


def _streamed(*rows: Row) -> list[m.AnyMessage]:
    """Return the transaction of `_sent`, sent while it ran: half of its rows, what was rolled back, the other half."""
    half = len(rows) // 2
    messages: list[m.AnyMessage] = [m.StreamStart(7, True), replace(_TABLE, xid=7)]
    messages += [m.Insert(9, _tuple(row), xid=7) for row in rows[:half]]
    messages += [m.Insert(9, _tuple(rows[0]), xid=8), m.StreamStop(), m.StreamAbort(7, 8), m.StreamStart(7, False)]
    messages += [m.Insert(9, _tuple(row), xid=7) for row in rows[half:]]
    return [*messages, m.StreamStop(), m.StreamCommit(7, 0, 100, 108, 5)]


@pytest.mark.parametrize("again", [_ELSEWHERE, _BINARY], ids=["text", "binary"])
def test_a_copy_that_was_streamed_and_lies_in_two_files_is_one(tmp_path: Path, again: Row) -> None:
    rows = [_with(_UTC, id=key) for key in "1234"]
    copies = [_with(again, id=key if again is _ELSEWHERE else pack(">i", int(key))) for key in "1234"]
    first, second = (frame(messages, Framing.RECVLOGICAL) for messages in (_sent(*rows), _streamed(*copies)))
    for cut in range(1, len(second), 7):
        parts = first[:-cut], first[-cut:], second[:cut], second[cut:]
        for number, data in enumerate(parts if cut < len(first) else (first, *parts[2:])):
            (tmp_path / f"{number}.bin").write_bytes(data)
        assert sum(batch.data.num_rows for batch in read_changes(tmp_path)) == len(rows)
        for file in tmp_path.iterdir():
            file.unlink()


def _with(row: Row, **values: str | bytes | None) -> Row:
    return tuple(values.get(column.name, value) for column, value in zip(_COLUMNS, row, strict=True))


_OTHER_MOMENT = _with(_BINARY, id=None, name=None, price=None, at=bytes(7) + b"\1")


def _truncated(*oids: tuple[int, ...]) -> list[m.AnyMessage]:
    return [m.Begin(100, 5, 7), _TABLE, replace(_TABLE, oid=10), *(m.Truncate(one, 0) for one in oids), *_sent()[2:]]


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (_sent(_UTC), _sent(_with(_ELSEWHERE, id="2"))),
        (_sent(_UTC), _sent(_with(_ELSEWHERE, name="a name, and a longer One"))),
        (_sent(_UTC), _sent(_with(_ELSEWHERE, spans=None))),
        (_sent(_UTC), _sent(_with(_ELSEWHERE, mark=None))),
        (_sent(_BINARY), _sent(_with(_BINARY, at=bytes(7) + b"\1"))),
        (_sent(_with(_BINARY, id=None, name=None, price=None)), _sent(_OTHER_MOMENT)),
        (_truncated((9, 10), (9,)), _truncated((10, 9), (9,))),
        (_truncated((9,), (10,)), _truncated((10,), (9,))),
        (_sent(_UTC, _with(_UTC, id="2")), _sent(_with(_UTC, id="2"), _UTC)),
        (_sent(_UTC), _sent(_UTC, _UTC)),
        (_sent(_UTC), _sent(_BINARY, _BINARY)),
        (_sent(_UTC), _sent(_BINARY, relation=replace(_TABLE, oid=10))),
        (_sent(_UTC), _sent(_BINARY[:-1], relation=replace(_TABLE, columns=_COLUMNS[:-1]))),
        (_sent(_UTC), _sent(_UTC, xid=8)),
        (_sent(_UTC), _sent(_UTC, time=6)),
        (_sent(_UTC), [*_sent(_UTC)[:2], m.Update(9, _tuple(_BINARY)), *_sent(_UTC)[3:]]),
        (_sent(_UTC), [*_sent(_UTC)[:2], m.Truncate((9,), 0), *_sent(_UTC)[3:]]),
    ],
    ids=[
        "another key",
        "another text",
        "no value",
        "no value of a type that is not known",
        "another moment in binary",
        "another moment in binary, without values of other columns",
        "truncates of other tables",
        "another order of truncates",
        "another order",
        "more rows",
        "more rows in binary",
        "another table in binary",
        "fewer columns in binary",
        "another transaction",
        "another time",
        "another change in binary",
        "a truncate",
    ],
)
def test_another_transaction_is_none(
    tmp_path: Path, first: Sequence[m.AnyMessage], again: Sequence[m.AnyMessage]
) -> None:
    with pytest.raises(OrderError, match="comes again, but differs from its first copy"):
        _read(tmp_path, first, again)


@pytest.mark.parametrize("row", [_UTC, _BINARY], ids=["text", "binary"])
def test_a_value_that_was_damaged_is_seen_in_every_byte(tmp_path: Path, row: Row) -> None:
    data = frame(_sent(row, _with(row, name="b" if isinstance(row[0], str) else b"b")), Framing.RAW)
    varies = [_ELSEWHERE.index(value) for value in _ELSEWHERE if value not in _UTC] if row is _UTC else [5]
    (tmp_path / "1").write_bytes(data)
    seen: list[str] = []
    for number, value in enumerate(row):
        at = data.index(encode(m.Insert(9, _tuple(row)))) + _offset(row, number)
        for byte in range(at, at + len(_bytes(value))):
            (tmp_path / "2").write_bytes(data[:byte] + bytes([data[byte] ^ 1]) + data[byte + 1 :])
            if _is_refused(lambda: list(read_changes(tmp_path))) != (number not in varies):
                seen.append(f"{_COLUMNS[number].name}, {byte - at}")
    assert seen == []


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _offset(row: Row, number: int) -> int:
    return 8 + sum(5 + len(_bytes(value)) for value in row[:number]) + 5


def _is_refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except OrderError as error:
        return "comes again, but differs" in str(error)
    return False

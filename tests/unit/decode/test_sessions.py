"""Torn messages that the beginning of the next session completes, so that both together look like one."""

from __future__ import annotations

from pathlib import Path

from wal2delta import read_changes
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing
from wal2delta.protocol.writer import frame

COLUMNS = (m.Column("id", 23, -1, True), m.Column("body", 25, -1, False))
TABLE = m.Relation(9, "shop", "t", "d", COLUMNS)
OTHER = m.Relation(8, "shop", "log", "d", COLUMNS)
STREAMED = m.Relation(9, "shop", "t", "d", COLUMNS, xid=700)


def raw(*messages: m.AnyMessage) -> bytes:
    return frame(messages, Framing.RAW)


def row(id_: bytes, body: bytes = b"x", *, oid: int = 9, xid: int | None = None, kind: str = "t") -> m.Insert:
    return m.Insert(oid, m.TupleData((m.Cell("t", id_), m.Cell(kind, body))), xid)


def transaction(lsn: int, *changes: m.AnyMessage, time: int = 800_000_000_000_000) -> list[m.AnyMessage]:
    return [m.Begin(lsn, time, lsn % 1000), *changes, m.Commit(0, lsn, lsn + 8, time)]


def ids(tmp_path: Path, *parts: bytes) -> list[int]:
    """Give the ids of all rows, each file's bytes given."""
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.bin").write_bytes(part)
    return [id_ for batch in read_changes(tmp_path) for id_ in batch.data.column("id").to_pylist()]


def test_a_type_that_nothing_announced_tells_a_relation_that_is_torn(tmp_path: Path) -> None:
    # Six bytes are missing: a Stream Start's.
    relation = raw(m.Relation(8, "shop", "log", "d", COLUMNS, xid=700))
    before = raw(m.StreamStart(700, True), STREAMED, row(b"1", xid=700)) + relation[:-6]
    after = raw(
        *(m.StreamStart(700, True), STREAMED, row(b"1", xid=700), row(b"2", xid=700), m.StreamStop()),
        m.StreamCommit(700, 0, 100, 108, 800_000_000_000_000),
    )
    assert ids(tmp_path, before + after) == [1, 2]


def test_without_any_type_messages_relations_of_own_types_are_believed(tmp_path: Path) -> None:
    table = m.Relation(9, "shop", "t", "d", (COLUMNS[0], m.Column("mood", 16_500, -1, False)))
    data = raw(*transaction(100, table, row(b"1")), *transaction(200, row(b"2")), *transaction(300, table, row(b"3")))
    assert ids(tmp_path, data) == [1, 2, 3]


def test_a_stream_that_goes_on_though_it_was_not_begun_again_tells_that_a_row_was_torn(tmp_path: Path) -> None:
    def streams(last: bytes) -> list[m.AnyMessage]:
        other = m.Relation(9, "shop", "t", "d", COLUMNS, xid=701)
        return [
            *(m.StreamStart(700, True), STREAMED, row(b"1", xid=700), m.StreamStop()),
            *(m.StreamStart(701, True), other, row(b"2", xid=701), m.StreamStop()),
            *(m.StreamStart(700, False), row(last, b"123456", xid=700, kind="b")),
        ]

    # A binary value of six bytes, all of which are missing.
    before = raw(*streams(b"3"))[:-6]
    commits = [m.StreamCommit(xid, 0, lsn, lsn + 8, 800_000_000_000_000) for xid, lsn in ((700, 100), (701, 200))]
    after = raw(*streams(b"3"), m.StreamStop(), *commits)
    assert ids(tmp_path, before + after) == [1, 3, 2]


def test_a_begin_that_the_next_sessions_begin_completes_may_look_like_a_session_of_its_own(tmp_path: Path) -> None:
    # Behind the two stands what looks like a Prepare: a P is the LSN's last byte.
    lsn = 0x16B_3B50
    begin = raw(m.Begin(lsn, 800_000_000_021_501, 704))[:13]
    session = raw(
        *transaction(lsn, TABLE, row(b"2"), time=800_000_000_021_501),
        *(message for number in range(1, 9) for message in transaction(lsn + 64 * number, row(b"%d" % (2 + number)))),
    )
    assert ids(tmp_path, raw(*transaction(lsn - 64, TABLE, row(b"1"))) + begin + session) == list(range(1, 11))


def test_the_content_of_a_torn_logical_message_may_look_like_a_sessions_start(tmp_path: Path) -> None:
    content = b"M\0\0" + b"x" * 18
    message = m.Message(True, 90, "p", content)
    begun = raw(m.Begin(100, 800_000_000_000_000, 100))
    torn = begun + raw(message)[:-10]
    session = raw(*transaction(100, message, TABLE, row(b"1")), *transaction(200, row(b"2")))
    for cut in range(len(session)):
        assert ids(tmp_path, torn + session[:cut], session[cut:]) == [1, 2], cut

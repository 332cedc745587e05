"""Torn messages that the beginning of the next session completes, so that both together look like one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.framings import frame
from walreplay import read_changes
from walreplay.errors import CaptureError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

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
    """Return the ids of all rows, each file's bytes given."""
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
    lsn, time = 0x16B_3B50, 800_000_000_021_501
    begin = raw(m.Begin(lsn, time, 704))[:13]
    table = m.Relation(16401, "public", "t", "d", COLUMNS)
    truncate = m.Truncate((16401,), 1)
    streamed = [
        *(m.StreamStart(700, True), m.Type(16500, "public", "mood", xid=700), STREAMED),
        *(row(b"%d" % id_, b"z" * 32, xid=700) for id_ in range(3, 8)),
        *(m.StreamStop(), m.StreamCommit(700, 0, lsn + 200, lsn + 216, time + 3000)),
    ]
    session = raw(*transaction(lsn, table, truncate, time=time), *streamed)
    first = raw(*transaction(lsn - 64, TABLE, row(b"1"), time=time - 1000))
    assert ids(tmp_path, first + begin + session) == [1, *range(3, 8), None]


def test_the_content_of_a_torn_logical_message_may_look_like_a_sessions_start(tmp_path: Path) -> None:
    # As a Begin does.
    lsn, content = 0x100_0058, b"B" + bytes(6) + b"\x10" + bytes(13)
    message = m.Message(True, lsn - 24, "p1", content)
    torn = raw(m.Begin(lsn, 800_000_000_002_000, lsn % 1000)) + raw(message)[:-10]
    session = raw(
        *transaction(lsn, message, TABLE, row(b"1"), time=800_000_000_002_000), *transaction(1 << 32, row(b"2"))
    )
    for cut in range(len(session)):
        assert ids(tmp_path, torn + session[:cut], session[cut:]) == [1, 2], cut


def test_a_transaction_that_a_message_seems_to_begin_has_to_be_sent_again_by_the_session_behind_it(
    tmp_path: Path,
) -> None:
    # In its frame the content is a Begin, whose transaction no session goes on with.
    content = b"B" + bytes(6) + b"\x10" + bytes(13)
    message = m.Message(False, 0x100_00A8, "p2", content)
    torn = frame([message], Framing.LENGTH)[:-7]
    session = frame([message, *transaction(0x100_00D8, TABLE, row(b"1"))], Framing.LENGTH)
    assert ids(tmp_path, torn + session) == [1]


def test_a_session_may_begin_with_an_unfinished_logical_message_where_a_stream_was_cut_off(tmp_path: Path) -> None:
    # In the stream it would have an xid, and flags that are the LSN's third byte.
    opened = [*transaction(0x100, TABLE, row(b"1")), m.StreamStart(700, True), STREAMED, row(b"2", xid=700)]
    message = m.Message(False, 0xA3F_C046_81B8, "p", b"content")
    for framing in (Framing.LENGTH, Framing.LENGTH_LE):
        before, after = frame(opened, framing), frame([message], framing)
        for cut in range(len(after)):
            assert ids(tmp_path, before, after[:cut]) == [1], cut


def test_nothing_is_to_be_cut_out_if_a_transaction_would_be_lost(tmp_path: Path) -> None:
    first = raw(*transaction(100, TABLE, row(b"1")))
    opened = raw(m.Begin(200, 800_000_000_000_000, 200), row(b"2"))
    begin = raw(m.Begin(300, 800_000_000_000_000, 300))[:9]
    for lsn, advice in ((200, True), (300, False)):  # where the session behind them begins
        session = raw(*transaction(lsn, TABLE, row(b"3"), row(b"4")), *transaction(400, row(b"5")))
        with pytest.raises(CaptureError) as refusal:
            ids(tmp_path, first + opened[:-3] + begin + session)
        assert ("cut out" in str(refusal.value)) is advice


@pytest.mark.parametrize("framing", [Framing.RAW, Framing.RECVLOGICAL])
def test_text_that_was_torn_is_no_chain_of_stream_aborts(tmp_path: Path, framing: Framing) -> None:
    # An A, any eight bytes, and a tag behind them are one, and the next text behind it is torn again.
    drawn = random.Random(7)
    for number in range(25):
        body = bytes(drawn.choice(b"AAABSPKMcbr\n") for _ in range(drawn.randint(30, 400)))
        messages = [*transaction(100, TABLE, row(b"1")), *transaction(200, row(b"2", body), row(b"3"))]
        whole = frame(messages, framing)
        start = whole.index(body)
        ends = [drawn.randint(start + 9, start + len(body) - 1)] * drawn.randint(1, 5)
        folder = tmp_path / str(number)
        folder.mkdir()
        assert ids(folder, b"".join(whole[:end] for end in ends) + whole) == [1, 2, 3], number

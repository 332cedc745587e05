"""Damage that the messages' own redundancy shows, and bytes made to keep a reader busy."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Final

import pytest

from support.captures import case
from support.extent import further
from support.framings import FORMS, Form, frame
from support.harm import REFUSED, RIGHT, Harm, Whole, apply, cut
from walreplay.archive.messages import inspect_captures
from walreplay.decode.stream import StreamWalker
from walreplay.decode.walk import Place
from walreplay.errors import CaptureError, MalformedMessage, NotSupported
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

TABLE: Final = m.Relation(9, "shop", "t", "d", (m.Column("id", 23, -1, True),))
TIME: Final = 800_000_000_000_000
Damage = Callable[[m.BeginPrepare, m.Prepare, m.CommitPrepared], tuple[m.BeginPrepare, m.Prepare, m.CommitPrepared]]

NO_LSN: Final = 1 << 63
"""No server comes so far, and no column of Delta has room for it."""

YEAR_10_000: Final = 252_455_616_000_000_000


def row(id_: int) -> m.Insert:
    return m.Insert(9, m.TupleData((m.Cell("t", b"%d" % id_),)))


def transaction(lsn: int, *changes: m.AnyMessage, at: int = TIME) -> list[m.AnyMessage]:
    return [m.Begin(lsn, at, lsn % 1000), *changes, m.Commit(0, lsn, lsn + 8, at)]


@pytest.mark.parametrize("bit", further(range(8), but=(0, 7)))
def test_each_damaged_byte_of_a_begins_lsn_or_time_is_refused(bit: int) -> None:
    whole = Whole.of(case("o23"))
    begins = [at for at, message in read_stream(whole.data, framing=whole.framing) if isinstance(message, m.Begin)]
    for at in [at + number for at in begins[-3:] for number in range(1, 17)]:
        harmed = bytearray(whole.data)
        harmed[at] ^= 1 << bit
        assert whole.outcome(Harm("one bit flipped", at, at + 1, cut(bytes(harmed), whole.edges))) == REFUSED, at


@pytest.mark.parametrize(
    "end",
    [
        transaction(200, row(2), at=YEAR_10_000),
        transaction(200, row(2), at=-YEAR_10_000),
        [m.CommitPrepared(0, 200, 208, YEAR_10_000, 7, "gid")],
        [m.StreamStart(7, True), m.StreamStop(), m.StreamCommit(7, 0, 200, 208, YEAR_10_000)],
        [m.BeginPrepare(200, 208, YEAR_10_000, 7, "gid"), m.Prepare(0, 200, 208, YEAR_10_000, 7, "gid")],
        [m.Prepare(0, 200, 208, -YEAR_10_000, 7, "gid")],
        [m.StreamStart(7, True), m.StreamStop(), m.StreamPrepare(0, 200, 208, YEAR_10_000, 7, "gid")],
        [m.CommitPrepared(0, 200, 192, TIME, 7, "gid")],
        [m.StreamStart(7, True), m.StreamStop(), m.StreamCommit(7, 0, 200, 192, TIME)],
        [m.CommitPrepared(0, NO_LSN, NO_LSN + 8, TIME, 7, "gid")],
        [m.StreamStart(7, True), m.StreamStop(), m.StreamCommit(7, 0, NO_LSN, NO_LSN + 8, TIME)],
        [m.Prepare(0, NO_LSN, NO_LSN + 8, TIME, 7, "gid")],
        [m.StreamStart(7, True), m.StreamStop(), m.StreamPrepare(0, NO_LSN, NO_LSN + 8, TIME, 7, "gid")],
        [m.RollbackPrepared(0, 200, NO_LSN, TIME, TIME, 7, "gid")],
        [m.Message(False, NO_LSN, "prefix", b"content")],
        transaction(NO_LSN, row(2)),
    ],
    ids=[
        *("begin", "long ago", "prepared", "streamed", "in preparation", "prepared at once", "streamed, then prepared"),
        *("prepared ends before", "streamed ends before"),
        *("prepared, no LSN", "streamed, no LSN", "prepared at no LSN", "streamed, then prepared at no LSN"),
        *("rolled back at no LSN", "message at no LSN", "begin of no LSN"),
    ],
)
def test_times_and_ends_that_cannot_be_are_refused(end: list[m.AnyMessage]) -> None:
    data = frame([*transaction(100, TABLE, row(1)), *end, *transaction(300, row(3))], Framing.LENGTH)
    with pytest.raises(CaptureError):
        apply({"x": data}, Framing.LENGTH)


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("comes_again", [True, False])
def test_a_commit_whose_newline_was_lost_is_whole(files: int, comes_again: bool) -> None:
    first = frame([*transaction(100, TABLE, row(1)), *transaction(200, row(2))], Framing.RECVLOGICAL)[:-1]
    again = transaction(200, TABLE, row(2)) if comes_again else []
    then = frame([*again, *transaction(300, TABLE, row(3)), *transaction(400, row(4))], Framing.RECVLOGICAL)
    parts = {"0": first, "1": then} if files == 2 else {"0": first + then}
    assert [row_[0] for row_ in apply(parts, Framing.RECVLOGICAL).rows] == [100, 200, 300, 400]


def test_a_block_that_lost_its_last_newline_ends_its_session() -> None:
    """The stream that the new session does not begin again is void, whatever the runs."""
    streamed = [m.StreamStart(7, True), m.Relation(9, "shop", "t", "d", TABLE.columns, xid=7), m.StreamStop()]
    other = [m.StreamStart(8, True), m.Relation(9, "shop", "t", "d", TABLE.columns, xid=8), m.StreamStop()]
    first = frame([*streamed, *other], Framing.RECVLOGICAL)[:-1]
    then = frame([*streamed, m.StreamCommit(7, 0, 200, 208, TIME)], Framing.RECVLOGICAL)
    assert apply({"0": first, "1": then}, Framing.RECVLOGICAL).plan.resume.open_transactions == ()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_session_that_begins_with_an_abort_of_nothing_is_found(form: Form) -> None:
    abort = m.StreamAbort(900, 901)
    first = form.write([*transaction(100, TABLE, row(1)), *transaction(200, row(2)), *transaction(300, row(3))])
    then = form.write([abort, *transaction(200, TABLE, row(2)), *transaction(300, row(3)), *transaction(400, row(4))])
    got = apply({"x": first[: -form.head - 20] + then}, form.framing)
    assert [row_[0] for row_ in got.rows] == [100, 200, 300, 400]


@pytest.mark.parametrize("tile_bytes", [0, 1 << 20], ids=["scanned", "decoded"])
def test_a_row_of_more_columns_than_any_table_has_is_refused_though_nothing_announced_its_relation(
    tile_bytes: int,
) -> None:
    # Whatever is accepted has to have room in the tile's arrays, behind which kernels would write.
    def walked(columns: int) -> int:
        tuple_ = m.TupleData((m.Cell("n"),) * columns)
        data = frame([m.StreamStart(7, False), *[m.Insert(9, tuple_, xid=7)] * 2, m.StreamStop()], Framing.RAW)
        walker = _AnyRelation(Framing.RAW, place=Place(Framing.RAW), relations={}, tile_bytes=tile_bytes)
        assert sum(len(tile.rows) for tile in walker.walk(data)) == (2 if tile_bytes else 0)
        return walker.position - len(data)

    assert walked(m.MAX_COLUMNS) == 0
    with pytest.raises(MalformedMessage, match="number of columns"):
        walked(m.MAX_COLUMNS + 1)


class _AnyRelation(StreamWalker):
    def on_unknown_relation(self, oid: int, offset: int) -> int:
        return -1


def test_a_buffer_with_places_that_need_more_than_31_bits_is_refused() -> None:
    data = frame(transaction(100, TABLE, row(1)), Framing.RAW)
    buffer = mmap.mmap(-1, 1 << 31)  # takes no memory where nothing is written
    buffer[: len(data)] = data
    walker = StreamWalker(Framing.RAW, place=Place(Framing.RAW), relations={}, tile_bytes=1 << 20)
    with pytest.raises(NotSupported):
        list(walker.walk(buffer, 0, len(data)))


def test_inspecting_damage_at_a_files_end_refuses_it(tmp_path: Path) -> None:
    transactions = [message for lsn in range(100, 3000, 100) for message in transaction(lsn, TABLE, row(lsn))]
    data = bytearray(frame(transactions, Framing.LENGTH))
    # The length of a message in the middle is damaged: it seems to need more bytes than there are.
    begin = frame(transactions[:40], Framing.LENGTH)
    data[len(begin)] = 0x20
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(MalformedMessage) as caught:
        inspect_captures([tmp_path])
    assert caught.value.path == str(tmp_path / "x")
    assert caught.value.offset == len(begin)


SOUPS: Final = {
    "stream starts": b"S\0\0\0\1\1",
    "begins": b"B" + pack(">QQI", 1 << 24, TIME, 7),
    "aborts": b"A\0\0\0\1\0\0\0\1",
    "lengths of begins": b"\0\0\0\x15B",
    "tags": b"BSAbPKrM",
    "zeros": b"\0",
    "frames": b"d\0\0\0\x1ew",
    "headers": b"PGCOPY\n\xff\r\n\0",
    "sessions": b"\0\0\0\x15B" + pack(">QQI", 1 << 24, TIME, 7) + b"\0\0\0\6S\0\0\0\1\1",
}


@pytest.mark.parametrize("soup", further(SOUPS, but=("sessions", "tags", "zeros", "frames", "aborts")))
def test_hostile_bytes_end_soon_in_any_framing(soup: str) -> None:
    """Half a second each, or less; a busy machine counts more for the same work, so one of three tries is enough."""

    def seconds() -> float:
        began = time.process_time()
        with suppress(CaptureError):
            apply({"x": data}, framing)
        return time.process_time() - began

    for framing in [*Framing, None]:
        for before in (b"", frame(transaction(100, TABLE, row(1)), framing or Framing.RAW)):
            data = before + (SOUPS[soup] * (1 << 14))[: 24 << 10]
            assert any(seconds() < 2 for _ in range(3)), framing


def test_flips_are_right_where_a_bit_has_no_meaning() -> None:
    """The end LSN of a Commit: nothing of it is kept."""
    whole = Whole.of(case("o23"))
    commit = next(at for at, message in read_stream(whole.data, framing=whole.framing) if isinstance(message, m.Commit))
    harmed = bytearray(whole.data)
    harmed[commit + 17] ^= 1
    assert whole.outcome(Harm("one bit flipped", 0, 1, cut(bytes(harmed), whole.edges))) == RIGHT


@pytest.mark.parametrize("torn", range(1, 5))
@pytest.mark.parametrize("framing", [framing for framing in Framing if framing.has_bare_length])
def test_a_stream_whose_first_length_alone_was_written_is_recognised(framing: Framing, torn: int) -> None:
    session = frame([m.Message(False, 90, "p", b"content"), *transaction(100, TABLE, row(1))], framing)
    data = session[:torn] + session
    for size in (len(data), 38):
        assert [row_[0] for row_ in apply(cut(data, [size] if size < len(data) else [])).rows] == [100], size


@pytest.mark.parametrize(
    "damage",
    [
        lambda b, p, k: (replace(b, gid="gie"), p, k),
        lambda b, p, k: (replace(b, xid=8), p, k),
        lambda b, p, k: (b, replace(p, gid="gie"), k),
        lambda b, p, k: (b, replace(p, xid=8), k),
        lambda b, p, k: (b, p, replace(k, gid="gie")),
        lambda b, p, k: (b, p, replace(k, xid=8)),
    ],
    ids=["begin's gid", "begin's xid", "prepare's gid", "prepare's xid", "commit's gid", "commit's xid"],
)
@pytest.mark.parametrize("framing", [Framing.RAW, Framing.RECVLOGICAL, Framing.COPYDATA])
def test_a_prepared_transaction_whose_gid_or_xid_is_damaged_is_refused(framing: Framing, damage: Damage) -> None:
    begin, end = m.BeginPrepare(200, 208, TIME, 7, "gid"), m.Prepare(0, 200, 208, TIME, 7, "gid")
    decided = m.CommitPrepared(0, 300, 308, TIME, 7, "gid")
    begun, prepared, committed = damage(begin, end, decided)
    messages = [*transaction(100, TABLE, row(1)), begun, row(2), prepared, committed, *transaction(400, row(3))]
    with pytest.raises(CaptureError):
        apply({"x": frame(messages, framing)}, framing)


def test_a_rollback_that_is_no_longer_its_own_transactions_is_refused() -> None:
    table = replace(TABLE, xid=7)
    changes = [replace(row(id_), xid=xid) for id_, xid in ((1, 7), (2, 71))]
    messages = [
        *(m.StreamStart(7, True), table, *changes, m.StreamStop(), m.StreamAbort(8, 71)),
        m.StreamCommit(7, 0, 200, 208, TIME),
    ]
    with pytest.raises(CaptureError):
        apply({"x": frame(messages, Framing.LENGTH)}, Framing.LENGTH)

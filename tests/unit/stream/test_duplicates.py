"""Equal files: what a reconnect leaves is taken, and a copy that would bring rows twice, or lose some, is refused."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from support.framings import frame
from support.resending import framed
from support.runs import Files, plan_run
from walreplay.changes import decode_plan
from walreplay.errors import OrderError
from walreplay.ledger.state import to_json
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.stream.duplicates import DuplicateFileError

TABLE: Final = m.Relation(9, "shop", "t", "d", (m.Column("id", 23, -1, True),))
XID: Final = 5


def rows(*numbers: int) -> list[m.Insert]:
    return [m.Insert(9, m.TupleData((m.Cell("t", b"%d" % number),))) for number in numbers]


def block(*numbers: int, first: bool = False, subxid: int = XID) -> list[m.AnyMessage]:
    inside: list[m.Relation | m.Insert] = [*([TABLE] if first else []), *rows(*numbers)]
    return [m.StreamStart(XID, first), *(replace(message, xid=subxid) for message in inside), m.StreamStop()]


BEFORE: Final = [m.Begin(100, 100, 4), TABLE, *rows(0), m.Commit(0, 100, 108, 100)]

KINDS: Final = {
    "ordinary": (
        [*BEFORE, m.Begin(200, 200, XID), *rows(11, 12, 13, 14)],
        [*rows(21, 22, 23, 24, 25)],
        [*rows(31, 32), m.Commit(0, 200, 208, 200)],
    ),
    "streamed": (
        [*BEFORE, *block(11, 12, 13, 14, first=True)],
        [*block(21, 22, 23, 24, 25)],
        [*block(31, 32), m.StreamCommit(XID, 0, 200, 208, 200)],
    ),
    "subtransaction": (
        [*BEFORE, *block(11, 12, 13, first=True, subxid=6)],
        [*block(21, 22, 23, subxid=6)],
        [*block(31, 32), m.StreamCommit(XID, 0, 200, 208, 200)],
    ),
    "prepared": (
        [*BEFORE, m.BeginPrepare(200, 208, 200, XID, "mine"), *rows(11, 12, 13, 14)],
        [*rows(21, 22, 23, 24, 25)],
        [*rows(31, 32), m.Prepare(0, 200, 208, 200, XID, "mine"), m.CommitPrepared(0, 300, 308, 300, XID, "mine")],
    ),
}
"""A transaction in three files, of which the first begins a session."""


def files_of(*parts: Sequence[m.AnyMessage]) -> Files:
    return {f"cap.{number:04}": frame(list(part), Framing.RAW) for number, part in enumerate(parts)}


def ids(files: Files, *, stages: int = 1) -> list[int]:
    """Return the ids that runs find."""
    found: list[int] = []
    stored: str | None = None
    for last in range(len(files) - stages + 1, len(files) + 1):
        some = dict(list(files.items())[:last])
        planned = plan_run(some, stored, framing=Framing.RAW)
        assert planned is not None
        for batch in decode_plan(planned.plan, some.__getitem__):
            found += batch.data["id"].to_pylist()
        stored = to_json(planned.plan.resume)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_begins_again_by_the_same_bytes_is_taken(kind: str) -> None:
    first, second, third = KINDS[kind]
    right = ids(files_of(first, second, third))
    assert len(right) > 8
    for parts in (
        (first, first, second, third),
        (first, second, first, second, third),
        (first, second, first, second, first, second, third),
        (first, second, first, first, second, third),
    ):
        for stages in range(1, len(parts) + 1):
            assert ids(files_of(*parts), stages=stages) == right


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_twice_in_a_session_are_refused(kind: str) -> None:
    first, second, third = KINDS[kind]
    for parts in ((first, second, second, third), (first, second, first, second, second, third)):
        with pytest.raises(DuplicateFileError, match="the same bytes as") as caught:
            ids(files_of(*parts))
        assert caught.value.remedy


@pytest.mark.parametrize("kind", KINDS)
def test_equal_files_that_a_server_has_sent_are_taken_as_one(kind: str) -> None:
    first, second, third = KINDS[kind]
    rows_sent = sum(isinstance(message, m.Insert) for message in second)
    joined = ids(files_of(first, [*second, *second], third))
    assert len(joined) == len(ids(files_of(first, second, third))) + rows_sent


def equal_in_crc_32(content: bytes, digits: int) -> bytes:
    """Return other bytes with the same CRC-32: of 40 digits some are 1 in place of 0."""
    basis = dict[int, tuple[int, int]]()  # CRC-32 is linear: what digits change in it, by the highest bit of that
    for number in range(40):
        change = zlib.crc32(flipped(content, digits, 1 << number)) ^ zlib.crc32(content)
        digits_changed = 1 << number
        while change.bit_length() in basis:
            other, other_digits = basis[change.bit_length()]
            change, digits_changed = change ^ other, digits_changed ^ other_digits
        if not change:
            return flipped(content, digits, digits_changed)
        basis[change.bit_length()] = change, digits_changed
    raise AssertionError


def flipped(content: bytes, digits: int, changed: int) -> bytes:
    return bytes(byte ^ (changed >> (at - digits) & 1 if at >= digits else 0) for at, byte in enumerate(content))


def test_two_files_with_one_crc_32_are_two() -> None:
    text = m.Relation(9, "shop", "t", "d", (m.Column("id", 25, -1, True),))
    row = frame([m.Insert(9, m.TupleData((m.Cell("t", b"0" * 40),)))] * 5, Framing.RAW)
    other = equal_in_crc_32(row, len(row) - 40)
    assert row != other
    assert zlib.crc32(row) == zlib.crc32(other)
    first, last = frame([m.Begin(100, 100, 4), text], Framing.RAW), frame([m.Commit(0, 100, 108, 100)], Framing.RAW)
    assert len({*ids({"1": first, "2": row, "3": other, "4": last})}) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stages", [1, 2])
def test_a_copy_that_makes_a_transaction_lose_rows_is_refused(kind: str, stages: int) -> None:
    first, second, third = KINDS[kind]
    with pytest.raises(OrderError, match="has fewer rows than a session before"):
        ids(files_of(first, second, first, third), stages=stages)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_rows_are_missed_though_a_session_between_has_ended_before_their_transaction(kind: str, stages: int) -> None:
    first, second, third = KINDS[kind]
    whole, short = files_of(first, second, BEFORE, first, second, third), files_of(first, second, BEFORE, first, third)
    # Without a torn message only an LSN shows that a session ends, and a stream may belong to the next one.
    torn = m.Relation(10, "shop", "u", "d", TABLE.columns) if kind != "ordinary" else rows(26)[0]
    for files in (whole, short):
        files["cap.0001"] += frame([torn], Framing.RAW)[:-2]
    assert len(ids(whole, stages=stages)) == 12 - 3 * (kind == "subtransaction")
    with pytest.raises(OrderError, match="has fewer rows than a session before"):
        ids(short, stages=stages)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_subtransaction_that_rolled_back_as_one_of_another_transaction_is_refused(stages: int) -> None:
    first, second, third = KINDS["subtransaction"]
    aborted = [*BEFORE, m.StreamAbort(XID + 4, 6)]
    with pytest.raises(OrderError, match="has rolled back as one of another transaction"):
        ids(files_of(aborted, [*first[len(BEFORE) :], *second], third), stages=stages)


def test_a_subtransaction_that_rolls_back_may_come_again_with_fewer_rows() -> None:
    first, second, third = KINDS["subtransaction"]
    gone = m.StreamAbort(XID, 6)
    assert ids(files_of(first, second, first, [gone, *third])) == [0, 31, 32]


_PREPARES: Final = {
    "prepared": (KINDS["prepared"], m.Prepare(0, 200, 208, 200, XID, "mine")),
    "streamed and prepared": (KINDS["streamed"], m.StreamPrepare(0, 200, 208, 200, XID, "mine")),
}


@pytest.mark.parametrize("kind", _PREPARES)
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_prepared_transaction_may_come_again_with_fewer_rows_if_it_rolls_back(kind: str, stages: int) -> None:
    # A server that has rolled it back by then stops to send it, and then says that it was prepared.
    (first, second, _), prepare = _PREPARES[kind]
    rolled_back = m.RollbackPrepared(0, 208, 308, 200, 300, XID, "mine")
    files = files_of(first, second, first, [prepare], [rolled_back])
    assert ids(files, stages=stages) == [0]
    committed = m.CommitPrepared(0, 300, 308, 300, XID, "mine")
    with pytest.raises(OrderError, match="has fewer rows than a session before"):
        ids(files_of(first, second, first, [prepare], [committed]), stages=stages)


def test_equal_files_without_messages_are_no_copies() -> None:
    idle = framed([], Framing.COPYDATA) * 3
    assert len(idle) > 64
    row = framed([*BEFORE], Framing.COPYDATA)
    files = {"1": idle, "2": idle, "3": row, "4": idle, "5": idle}
    planned = plan_run(files, None)
    assert planned is not None
    assert planned.plan.transactions == 1

"""Where a stream is cut into files, and what of it is there when a run begins, changes nothing about its rows."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.batches import listed
from support.captures import case
from support.damage import damages
from support.extent import examples, further
from support.framings import frame, reframe, transaction
from support.runs import Files, Planned, cut, grown_to, plan_run, plan_runs
from support.wire import encode
from walreplay.changes import decode_plan
from walreplay.errors import FramingError, WalReplayError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.opening import RECOGNISABLE_BYTES
from walreplay.protocol.reader import read_stream
from walreplay.stream.plan import OpenTransaction, Plan

CAPTURES = [
    *("o01", "o02", "o03", "o04", "o05", "o06", "o07", "o08", "o09", "o10"),
    *("o11", "o12", "o13", "o17", "o18", "o19", "o20", "o21", "o22", "o23", "o24", "o25"),
]
"""The captures of one session."""

SMALL = ["o20", "o21", "o22", "o11"]

Rows = dict[str, list[tuple[Any, ...]]]


@cache
def stream(name: str) -> bytes:
    (data,) = case(name).streams()
    return data


@cache
def whole(name: str) -> tuple[Plan, Rows]:
    """Plan and decode a capture that is one file."""
    files = {"whole": stream(name)}
    ((_, planned),) = plan_runs([files])
    return planned.plan, rows_of(planned.plan, files)


def rows_of(plan: Plan, files: Files, *, tile_bytes: int | None = None) -> Rows:
    """Return each relation's row changes in their order, with all that the batches say of them."""
    found: Rows = {}
    for batch in decode_plan(plan, files.__getitem__, tile_bytes=tile_bytes):
        rows = [(where, f"{text} {batch.relation}") for where, text in listed(batch)]
        found.setdefault(batch.relation.qualified_name, []).extend(rows)
    for name, rows in found.items():
        places = [row[0] for row in rows]
        assert places == sorted(places), f"{name} is out of order"
    return found


def what_is_open(item: OpenTransaction) -> tuple[Any, ...]:
    return item.kind, item.xid, item.gid, item.lsn, item.since


def joined(parts: list[Rows]) -> Rows:
    found: Rows = {}
    for part in parts:
        for name, rows in part.items():
            found.setdefault(name, []).extend(rows)
    return found


def check_same(name: str, runs: list[tuple[Files, Planned]], *, tile_bytes: int | None = None) -> None:
    """See that runs give what the capture gives as one file in one run."""
    plan, rows = whole(name)
    got = joined([rows_of(planned.plan, files, tile_bytes=tile_bytes) for files, planned in runs])
    assert got == rows
    last = runs[-1][1].plan
    assert (last.upto_lsn, last.upto_commit_time) == (plan.upto_lsn, plan.upto_commit_time)
    assert last.resume.place == plan.resume.place
    assert [what_is_open(item) for item in last.resume.open_transactions] == [
        what_is_open(item) for item in plan.resume.open_transactions
    ]
    assert (last.torn is None) == (plan.torn is None)
    assert set(last.relations) == set(plan.relations)
    transactions = sum(planned.plan.transactions for _, planned in runs)
    assert transactions == plan.transactions
    truncates = {item.oid: item for _, planned in runs for item in planned.plan.truncates}
    assert truncates == {item.oid: item for item in plan.truncates}


def places(name: str, data: st.DataObject, most: int) -> list[int]:
    """Draw where to cut: anywhere, but often in the header, at equal places, and close to one another."""
    size = len(stream(name))
    near = st.tuples(st.integers(0, size), st.lists(st.integers(-3, 3), min_size=1, max_size=4)).map(
        lambda drawn: [min(max(drawn[0] + step, 0), size) for step in drawn[1]]
    )
    groups = st.one_of(st.integers(0, size).map(lambda at: [at]), st.lists(st.integers(0, 120), max_size=3), near)
    drawn = data.draw(st.lists(groups, max_size=most), label="cuts")
    return sorted(min(place, size) for group in drawn for place in group)


@pytest.mark.parametrize("name", CAPTURES)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_where_files_and_runs_end_changes_nothing(name: str, data: st.DataObject) -> None:
    files = cut(stream(name), places(name, data, 6))
    sizes = data.draw(st.lists(st.integers(0, len(stream(name))), max_size=4), label="sizes")
    stages = [grown_to(files, size) for size in sorted(sizes) if size >= RECOGNISABLE_BYTES]
    guessing = data.draw(st.booleans(), label="guessing")
    forced = data.draw(st.sampled_from([None, case(name).framing]), label="forced")
    tile_bytes = data.draw(st.sampled_from([None, 512, 20_000]), label="tile_bytes")
    check_same(name, list(plan_runs([*stages, files], guessing=guessing, framing=forced)), tile_bytes=tile_bytes)


@pytest.mark.parametrize("name", ["o01", "o02", "o05", "o06", "o11"])
@settings(max_examples=examples(5))
@given(data=st.data())
def test_files_compressed_each_by_itself_change_nothing(name: str, data: st.DataObject) -> None:
    plain = cut(stream(name), places(name, data, 4))
    packed = data.draw(st.lists(st.booleans(), min_size=len(plain), max_size=len(plain)), label="packed")
    files = {
        path: gzip.compress(content, mtime=0) if pack else content
        for (path, content), pack in zip(plain.items(), packed, strict=True)
    }
    first = data.draw(st.integers(1, len(files)), label="first")
    stages = [dict(list(files.items())[:first])] if sum(map(len, list(plain.values())[:first])) >= 64 else []
    check_same(name, list(plan_runs([*stages, files])))


TABLE = m.Relation(9, "s", "t", "d", (m.Column("id", 23, -1, True),))
ROW = m.Insert(9, m.TupleData((m.Cell("t", b"1"),)))
STREAMED: list[m.AnyMessage] = [
    m.StreamStart(7, True),
    replace(ROW, xid=7),
    m.StreamStop(),
    m.StreamCommit(7, 0, 990, 998, 1),
]


@cache
def nested(framing: Framing) -> tuple[bytes, int]:
    """Return a capture whose logical messages hold captures, and how many rows it has."""
    inner: list[m.AnyMessage] = [
        *transaction(900, TABLE, ROW, ROW),
        *STREAMED,
        *[x for lsn in (1000, 1010) for x in transaction(lsn, ROW)],
    ]
    contents = [frame(inner, framing), frame(inner[3:], framing), frame(inner[4:], framing)]
    messages = transaction(100, TABLE, ROW)
    for number, content in enumerate(contents):
        messages += [m.Message(False, 150, "held", content * 2)]
        messages += transaction(200 + number, ROW, m.Message(True, 150, "held", content), ROW)
    return frame(messages, framing), 7


@pytest.mark.parametrize("framing", Framing)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_captures_inside_of_logical_messages_are_not_taken_for_the_stream(
    framing: Framing, data: st.DataObject
) -> None:
    content, rows = nested(framing)
    files = cut(content, data.draw(st.lists(st.integers(0, len(content)), max_size=6), label="cuts"))
    ((_, planned),) = plan_runs([files], framing=data.draw(st.sampled_from([None, framing]), label="forced"))
    plan = planned.plan
    assert (plan.transactions, plan.upto_lsn, plan.torn) == (4, 202, None)
    assert sum(len(found) for found in rows_of(plan, files).values()) == rows


def test_a_stream_of_which_too_little_is_there_waits() -> None:
    files = cut(stream("o01")[:40], [1, 1, 20])
    with pytest.raises(FramingError, match="too few"):
        plan_run(files, None)


# Damage.


def cell_marks(data: bytes, at: int) -> Iterator[int]:
    """Yield the offsets of a TupleData's count, kinds and lengths; the last is behind its end."""
    count = int.from_bytes(data[at : at + 2], "big")
    yield from (at, at + 1)
    at += 2
    for _ in range(count):
        yield at
        if data[at : at + 1] == b"t":
            yield from range(at + 1, at + 5)
            at += 4 + int.from_bytes(data[at + 1 : at + 5], "big")
        at += 1
    yield at


def marks(data: bytes, at: int, message: m.AnyMessage) -> Iterator[int]:
    """Yield the offsets of a message's tags, counts and lengths."""
    yield at
    if isinstance(message, (m.Insert, m.Update, m.Delete)):
        part = at + 5
        for row in (getattr(message, "key", None) or getattr(message, "old", None), getattr(message, "new", None)):
            if row is not None:
                *inside, behind = cell_marks(data, part + 1)
                yield from (part, *inside)
                part = behind
    elif isinstance(message, m.Relation):
        count = at + 5 + len(message.namespace.encode()) + len(message.name.encode()) + 3
        yield from (count, count + 1)
    elif isinstance(message, m.Truncate):
        yield from range(at + 1, at + 5)
    elif isinstance(message, m.Message):
        length = at + 10 + len(message.prefix.encode()) + 1
        yield from range(length, length + 4)


@cache
def breakable(name: str, framing: Framing) -> tuple[bytes, tuple[int, ...]]:
    """Return a capture in a framing, and the offsets of its tags, counts, lengths and of its frames' bytes."""
    data = reframe(stream(name), case(name).framing, framing)
    found: list[int] = []
    end = 0
    for at, message in read_stream(data, framing=framing):
        found.extend(range(end, at))
        found.extend(marks(data, at, message))
        end = at + len(encode(message))
    return data, tuple(found)


def outline(rows: Rows) -> dict[str, list[tuple[int, int]]]:
    """Return only where the row changes stand."""
    return {name: [where for where, _ in changes] for name, changes in rows.items()}


@cache
def sound(name: str, framing: Framing) -> tuple[Plan, Rows]:
    data, _ = breakable(name, framing)
    ((files, planned),) = plan_runs([{"whole": data}], framing=framing)
    return planned.plan, rows_of(planned.plan, files)


def check_place(error: WalReplayError, files: Files) -> None:
    """See that an error says where."""
    assert error.path is not None
    assert error.offset is not None
    assert 0 <= error.offset <= len(files[error.path])


@pytest.mark.parametrize("framing", Framing)
@pytest.mark.parametrize("name", further(SMALL, but=("o20",)))
@settings(max_examples=examples(25))
@given(data=st.data())
def test_a_broken_tag_or_length_is_told_or_breaks_one_value(name: str, framing: Framing, data: st.DataObject) -> None:
    content, places = breakable(name, framing)
    at = data.draw(st.sampled_from(places), label="at")
    value = data.draw(st.integers(0, 255).filter(lambda value: value != content[at]), label="value")
    broken = content[:at] + bytes([value]) + content[at + 1 :]
    forced = data.draw(st.sampled_from([None, framing]), label="forced")
    files = cut(broken, data.draw(st.lists(st.integers(0, len(broken)), max_size=2), label="cuts"))
    plan, rows = sound(name, framing)
    try:
        ((_, planned),) = plan_runs([files], framing=forced)
        got = rows_of(planned.plan, files)
    except WalReplayError as error:
        check_place(error, files)
        return
    if planned.plan.torn is not None and plan.torn is None:
        # What comes before the fault is right.
        assert planned.plan.transactions <= plan.transactions
        upto = planned.plan.upto_lsn
        rows = {name: [row for row in changes if row[0][0] <= upto] for name, changes in rows.items()}
        assert got == {name: changes for name, changes in rows.items() if changes}
        return
    # A kind of value or an Insert's tag may have become another that is as good; nothing else has changed.
    assert planned.plan.transactions == plan.transactions
    assert outline(got) == outline(rows)
    differing = [pair for name in rows for pair in zip(rows[name], got[name], strict=True) if pair[0] != pair[1]]
    assert len(differing) <= 1


@pytest.mark.parametrize("name", ["o01", "o02", "o05", "o06"])
def test_an_error_tells_where_a_byte_was_flipped(name: str) -> None:
    """One capture of each framing."""
    for damage in damages(stream(name), case(name).framing):
        with pytest.raises(WalReplayError) as caught:
            joined([rows_of(planned.plan, files) for files, planned in plan_runs([{"whole": damage.data}])])
        assert caught.value.offset is not None
        assert damage.message - 64 <= caught.value.offset < damage.message + 2000, damage.name


@pytest.mark.parametrize("name", further(CAPTURES, but=("o01", "o02", "o05", "o06", "o18", "o19")))
@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_killed_recorder_may_leave_equal_files(name: str, data: st.DataObject) -> None:
    content = stream(name)
    size = len(content)
    # Each session sends all anew, and is killed somewhere; two of them at the same place.  Files have a greatest size.
    ends = data.draw(st.lists(st.integers(RECOGNISABLE_BYTES, size), min_size=1, max_size=2), label="killed at")
    order = data.draw(st.permutations([*ends, ends[0]]), label="order")
    limit = data.draw(st.one_of(st.just(size), st.integers(size // 8 + 99, size)), label="limit")
    pieces = [content[at : min(at + limit, end)] for end in (*order, size) for at in range(0, end, limit)]
    if data.draw(st.booleans(), label="compressed"):
        pieces = [gzip.compress(piece, 1, mtime=0) for piece in pieces]
    files = {f"part{number:04}": piece for number, piece in enumerate(pieces)}
    first = data.draw(st.integers(1, len(files)), label="files of the first run")
    runs = list(plan_runs([dict(list(files.items())[:first]), files]))
    plan, rows = whole(name)
    assert joined([rows_of(planned.plan, files) for files, planned in runs]) == rows
    assert sum(planned.plan.transactions for _, planned in runs) == plan.transactions

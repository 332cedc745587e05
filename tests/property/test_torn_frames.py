"""A session may be torn at every byte of its framing, several times in one file: all of its rows come out, once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.captures import case
from support.extent import examples, further
from support.harm import Row, apply
from support.resending import Unit, Wire, in_binary, sent, units, with_aborts_of_nothing
from walreplay.errors import CaptureError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

VOLUME: Final = examples(6)

STREAMS: Final = ("o18 text", "o18 binary", "o19 binary", "o09 as recorded")
"""Two-phase and streamed transactions, those that are applied in parallel, and all types in binary format."""


@cache
def parts_of(name: str) -> tuple[Unit, ...]:
    capture, _, form = name.partition(" ")
    recorded = case(capture)
    (data,) = recorded.streams()
    messages: Sequence[m.AnyMessage] = [message for _, message in read_stream(data, framing=recorded.framing)]
    if form == "binary":
        messages = list(in_binary(messages))
    found = units(messages)
    return tuple(with_aborts_of_nothing(found, parallel=capture == "o19") if capture in ("o18", "o19") else found)


@cache
def expected(name: str) -> list[Row]:
    return apply({"whole": Wire.of(list(sent(parts_of(name), -1)), Framing.RAW).data}, Framing.RAW).rows


@cache
def wire(name: str, confirmed: int, framing: Framing) -> Wire:
    return Wire.of(list(sent(parts_of(name), confirmed)), framing)


@cache
def commits(name: str) -> tuple[int, ...]:
    return tuple(unit.commits for unit in parts_of(name) if unit.commits is not None)


Pick = Callable[[Sequence[int], str], int]
"""Picks one of some numbers, which a name says what they are for."""


def drawn(pick: Pick, name: str, framing: Framing) -> tuple[bytes, list[int], bool, bool]:
    """Return a stream that breaks a few times, where, and whether a torn message is completed by what follows it.

    That is so where as many bytes as it lacks are whole messages of the next session: its value holds them then.  Last
    comes whether torn messages follow each other without a whole one between them, which may be refused.
    """
    stream, breaks, confirmed, completed, in_a_row = b"", [], -1, False, False
    for number in range(pick(range(1, 5), "breaks")):
        session = wire(name, confirmed, framing)
        if not session.ends:
            # All was confirmed.
            break
        message = pick(range(len(session.own)), f"message {number}")
        own, end = session.own[message], session.ends[min(message, len(session.ends) - 1)][0]
        # Mostly inside of what is the framing's, sometimes in the message.
        is_own = len(own) > 0 and pick(range(4), "where") > 0
        at = pick(own if is_own else range(own.stop, max(own.stop, end) + 1), "at")
        stream += session.data[:at]
        # What lacks its newline alone is torn, too.
        first_end = session.own[1].stop if framing is Framing.RECVLOGICAL else ends_of(session, 0)[0]
        in_a_row = in_a_row or (number > 0 and at < first_end)
        breaks.append(len(stream))
        received = max((lsn for end, lsn in session.ends if end <= at), default=-1)
        # What was not confirmed comes again.
        could = [lsn for lsn in commits(name) if confirmed <= lsn <= received][-4:]
        confirmed = pick([confirmed, *could], "confirmed")
        following = wire(name, confirmed, framing)
        boundaries = {*(one.start for one in following.own), len(following.data)}
        completed = completed or next(
            start for start in ends_of(session, message) if start >= at
        ) - at in boundaries - {0}
    return stream + wire(name, confirmed, framing).data, breaks, completed, in_a_row


def ends_of(session: Wire, message: int) -> list[int]:
    """Return where a message ends, and all that follow it."""
    return [*(one.start for one in session.own[message + 1 :]), len(session.data)]


@pytest.mark.parametrize("framing", Framing)
@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=VOLUME, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(data=st.data())
def test_a_stream_that_breaks_in_its_frames_comes_out_whole(name: str, framing: Framing, data: st.DataObject) -> None:
    stream, *known = drawn(lambda some, label: data.draw(st.sampled_from(some), label=label), name, framing)
    check(stream, data.draw(st.sampled_from([framing, None]), label="forced"), name, *known)


@pytest.mark.parametrize("framing", Framing)
@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_break_anywhere_come_out_whole(name: str, framing: Framing) -> None:
    """Evenly over all messages, where Hypothesis likes the first ones best."""
    for number in range(VOLUME):
        chance = Random(f"{name} {framing.value} {number}")
        stream, *known = drawn(lambda some, _, pick=chance.choice: pick(some), name, framing)
        check(stream, chance.choice([framing, None]), name, *known)


def check(
    stream: bytes, framing: Framing | None, name: str, breaks: list[int], completed: bool, in_a_row: bool
) -> None:
    """See that all rows come out, once."""
    refusal = got = None
    try:
        got = apply({"stream": stream}, framing)
    except CaptureError as error:
        refusal = error
    if refusal is not None:
        # A value in binary format may hold the beginning of a session, of which the rest fits to what was there before:
        # one stream in thousands.  Its type alone says that it cannot, as it holds a NUL, and that is looked at when it
        # is too late to read otherwise; or what the session had begun is missing then.
        assert name != "o18 text" or in_a_row, breaks
        assert completed or in_a_row or "NUL" in refusal.problem, breaks
        return
    assert got is not None
    assert got.rows == expected(name), breaks
    assert got.plan.torn is None


@pytest.mark.parametrize("framing", further(Framing, but=(Framing.LENGTH,)))
def test_every_byte_of_a_frame_may_be_the_last_one(framing: Framing) -> None:
    """The frames around the end of a streamed transaction, and those of a transaction's first row."""
    whole = wire("o18 binary", -1, framing)
    messages = list(sent(parts_of("o18 binary"), -1))
    ends = [number for number, message in enumerate(messages) if isinstance(message, (m.StreamCommit, m.Prepare))]
    for number in (ends[0] - 1, ends[0], ends[0] + 1, ends[-1]):
        for at in whole.own[number]:
            got = apply({"stream": whole.data[:at] + whole.data}, framing)
            assert got.rows == expected("o18 binary"), at


@pytest.mark.parametrize("name", further(STREAMS, but=("o09 as recorded",)))
def test_two_torn_messages_in_a_row_are_refused_and_the_error_says_what_to_cut_out(name: str) -> None:
    """A session of a Begin, or of the beginning of one, behind a message that lacks its newline alone."""
    whole = wire(name, -1, Framing.RECVLOGICAL)
    # Long messages, and such as end a transaction.
    by_size = sorted(range(1, len(whole.own)), key=lambda number: whole.own[number - 1].start - whole.own[number].start)
    for number in (*by_size[:: max(len(by_size) // examples(6), 1)], len(whole.own) - 1):
        for size in (1, 9, 15, 20, whole.own[1].start):  # the last: all but its newline
            at = whole.own[number].start
            refused_and_cut(name, whole.data[:at] + whole.data[:size], whole.data, (at, size))


def refused_and_cut(name: str, torn: bytes, session: bytes, label: object) -> None:
    """See that torn messages in a row are refused, and come out right when the error's advice was followed."""
    with pytest.raises(CaptureError) as refusal:
        apply({"stream": torn + session}, Framing.RECVLOGICAL)
    error = refusal.value
    found = re.search(r"cut out the ([\d,]+) bytes", error.remedy or "")
    assert found is not None, (label, str(error))
    assert error.path == "stream"
    assert error.offset == len(torn) - int(found[1].replace(",", "")), label
    assert apply({"stream": torn[: error.offset] + session}, Framing.RECVLOGICAL).rows == expected(name), label


@pytest.mark.parametrize("name", further(STREAMS, but=("o09 as recorded",)))
def test_a_recorder_that_writes_to_a_full_disk_again_and_again_leaves_many_torn_sessions(name: str) -> None:
    """As pg_recvlogical does every five seconds: each session has so many bytes as were free, and is torn there."""
    whole = wire(name, -1, Framing.RECVLOGICAL)
    chance = Random(name)
    for most in (4, 60):
        free = [own.start - 1 for own in whole.own[2:most]]
        sessions = [whole.data[: chance.choice(free) - chance.randrange(2)] for _ in range(80)]
        got = apply({"stream": b"".join(sessions) + whole.data}, Framing.RECVLOGICAL)
        assert got.rows == expected(name)

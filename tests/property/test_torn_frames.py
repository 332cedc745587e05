"""A session may be torn at every byte of its framing, several times in one file: all of its rows come out, once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.captures import case
from support.harm import Row, apply
from support.resending import Unit, Wire, in_binary, sent, units, with_aborts_of_nothing
from wal2delta.errors import CaptureError
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing
from wal2delta.protocol.reader import read_stream

EXAMPLES: Final = settings().max_examples

STREAMS: Final = ("o18 text", "o18 binary", "o19 binary", "o09 text")
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


def drawn(data: st.DataObject, name: str, framing: Framing) -> tuple[bytes, list[int]]:
    """Give a stream that breaks a few times, and where."""
    stream, breaks, confirmed = b"", [], -1
    for number in range(data.draw(st.integers(1, 4), label="breaks")):
        session = wire(name, confirmed, framing)
        message = data.draw(st.integers(0, len(session.own) - 1), label=f"message {number}")
        own, end = session.own[message], session.ends[min(message, len(session.ends) - 1)][0]
        # Mostly inside of what is the framing's, sometimes in the message.
        is_own = len(own) > 0 and data.draw(st.integers(0, 3), label="where") > 0
        at = data.draw(st.sampled_from(own) if is_own else st.integers(own.stop, max(own.stop, end)), label="at")
        stream += session.data[:at]
        breaks.append(len(stream))
        received = max((lsn for end, lsn in session.ends if end <= at), default=-1)
        # What was not confirmed comes again.
        could = [lsn for lsn in commits(name) if confirmed <= lsn <= received][-4:]
        confirmed = data.draw(st.sampled_from([confirmed, *could]), label="confirmed")
    return stream + wire(name, confirmed, framing).data, breaks


@pytest.mark.parametrize("framing", Framing)
@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=max(EXAMPLES // 16, 1), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(data=st.data())
def test_a_stream_that_breaks_in_its_frames_comes_out_whole_or_is_refused(
    name: str, framing: Framing, data: st.DataObject
) -> None:
    stream, breaks = drawn(data, name, framing)
    refusal = got = None
    try:
        got = apply({"stream": stream}, data.draw(st.sampled_from([framing, None]), label="forced"))
    except CaptureError as error:
        refusal = error
    if refusal is not None:
        # What cannot be told, several breaks at once, is refused with its place, and never read otherwise.
        assert refusal.offset is not None
        return
    assert got is not None
    assert got.rows == expected(name), breaks
    assert got.plan.torn is None


@pytest.mark.parametrize("framing", Framing)
def test_every_byte_of_a_frame_may_be_the_last_one(framing: Framing) -> None:
    """The frames around the end of a streamed transaction, and those of a transaction's first row."""
    whole = wire("o18 binary", -1, framing)
    messages = list(sent(parts_of("o18 binary"), -1))
    ends = [number for number, message in enumerate(messages) if isinstance(message, (m.StreamCommit, m.Prepare))]
    for number in (ends[0] - 1, ends[0], ends[0] + 1, ends[-1]):
        for at in whole.own[number]:
            got = apply({"stream": whole.data[:at] + whole.data}, framing)
            assert got.rows == expected("o18 binary"), at

"""What is written is read again, and what cannot be read is refused with an error of ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.messages import inside_stream, outside_stream, stream_starts
from support.wire import encode
from walreplay.errors import MalformedMessage, TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.reader import read_message

outside = st.one_of(outside_stream, stream_starts, st.just(m.StreamStop()))
placed = st.one_of(
    st.tuples(outside, st.just(False)),
    st.tuples(st.one_of(inside_stream, st.just(m.StreamStop())), st.just(True)),
)
"""A message and whether it stands inside a stream."""


def parallel_of(message: m.AnyMessage) -> bool:
    return isinstance(message, m.StreamAbort) and message.abort_lsn is not None


@given(placed)
def test_reading_what_was_written_gives_the_message(case: tuple[m.AnyMessage, bool]) -> None:
    message, streaming = case
    data = encode(message)
    assert read_message(data, 0, streaming=streaming) == (message, len(data))


@given(placed, st.binary(max_size=9), st.sampled_from([b"B", b"\n", b"A123", b"d"]))
def test_what_lies_around_a_message_does_not_change_it(
    case: tuple[m.AnyMessage, bool], before: bytes, behind: bytes
) -> None:
    message, streaming = case
    data = encode(message)
    view = memoryview(before + data + behind)
    assert read_message(view, len(before), streaming=streaming) == (message, len(before) + len(data))


@given(placed, st.data())
def test_every_beginning_of_a_message_is_refused_as_truncated(
    case: tuple[m.AnyMessage, bool], data: st.DataObject
) -> None:
    message, streaming = case
    whole = encode(message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(TruncatedMessage) as caught:
        read_message(whole[:cut], 0, streaming=streaming, parallel=parallel_of(message))
    assert caught.value.offset == 0


@given(placed, st.booleans(), st.data())
def test_a_changed_byte_gives_a_message_or_an_error_of_ours(
    case: tuple[m.AnyMessage, bool], streaming: bool, data: st.DataObject
) -> None:
    changed = bytearray(encode(case[0]))
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] = data.draw(st.integers(0, 255))
    try:
        message, end = read_message(bytes(changed), 0, streaming=streaming)
    except MalformedMessage:
        return
    assert encode(message) == changed[:end]


@given(st.sampled_from("BCOMRYIUDTSEcAbPKrp"), st.binary(max_size=60), st.booleans())
def test_any_bytes_behind_a_tag_give_a_message_or_an_error_of_ours(tag: str, rest: bytes, streaming: bool) -> None:
    data = tag.encode() + rest
    try:
        message, end = read_message(data, 0, streaming=streaming)
    except MalformedMessage:
        return
    assert encode(message) == data[:end]

"""Framings and compression change nothing about the messages inside."""

from __future__ import annotations

import bz2
import contextlib
import gzip
from collections.abc import Iterator

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from support.framings import Keepalive, frame, reframe
from support.messages import sessions
from support.wire import encode
from walreplay.errors import CaptureError
from walreplay.protocol import messages as m
from walreplay.protocol.compression import decompress
from walreplay.protocol.framing import Framing
from walreplay.protocol.opening import detect_framing
from walreplay.protocol.reader import read_stream

framings = st.sampled_from(list(Framing))
COMPRESSORS = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "zstd": zstandard.compress,
    "lz4": lz4.frame.compress,
}


def readable(data: bytes, framing: Framing) -> Iterator[tuple[int, m.AnyMessage]]:
    """Yield what can be read in front of an error, which has to be one of ours."""
    with contextlib.suppress(CaptureError):
        yield from read_stream(data, framing=framing)


def messages_of(data: bytes, framing: Framing) -> list[m.AnyMessage]:
    return [message for _, message in read_stream(data, framing=framing)]


@given(sessions, framings)
def test_a_session_in_any_framing_is_read_again(session: list[m.AnyMessage], framing: Framing) -> None:
    data = frame(session, framing)
    read = list(read_stream(data, framing=framing))
    assert [message for _, message in read] == session
    assert all(data.startswith(encode(message), offset) for offset, message in read)


@given(sessions, framings, framings)
def test_reframing_keeps_the_messages(session: list[m.AnyMessage], source: Framing, target: Framing) -> None:
    data = reframe(frame(session, source), source, target)
    assert messages_of(data, target) == session


@given(sessions, framings)
def test_a_whole_session_tells_its_framing(session: list[m.AnyMessage], framing: Framing) -> None:
    assert detect_framing(frame(session, framing)) is framing


@given(sessions, st.lists(st.integers(0, 20), max_size=5))
def test_keepalives_carry_no_message(session: list[m.AnyMessage], places: list[int]) -> None:
    items: list[m.AnyMessage | Keepalive] = list(session)
    for place in places:
        items.insert(place, Keepalive(wal_end=place, send_time=-place))
    assert messages_of(frame(items, Framing.COPYDATA), Framing.COPYDATA) == session
    assert frame(items, Framing.RAW) == frame(session, Framing.RAW)


@given(sessions, framings, st.data())
def test_cut_bytes_give_the_first_messages_then_nothing_or_an_error_of_ours(
    session: list[m.AnyMessage], framing: Framing, data: st.DataObject
) -> None:
    whole = frame(session, framing)
    cut = data.draw(st.integers(0, len(whole) - 1))
    read = [message for _, message in readable(whole[:cut], framing)]
    # A cut behind the xids of a Stream Abort leaves what could be a whole one.
    if read and isinstance(read[-1], m.StreamAbort):
        read.pop()
    assert read == session[: len(read)]


@given(sessions, framings, framings, st.data())
def test_changed_bytes_give_messages_or_an_error_of_ours(
    session: list[m.AnyMessage], framing: Framing, read_as: Framing, data: st.DataObject
) -> None:
    changed = bytearray(frame(session, framing))
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    detect_framing(bytes(changed))
    for offset, message in readable(bytes(changed), read_as):
        assert changed.startswith(encode(message), offset)


@given(st.binary())
def test_any_bytes_have_a_framing_or_none(head: bytes) -> None:
    assert detect_framing(head) in {*Framing, None}


@pytest.mark.parametrize("compression", COMPRESSORS)
@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_compressed_members_decompress_to_what_they_were(compression: str, parts: list[bytes]) -> None:
    data = b"".join(COMPRESSORS[compression](part) for part in parts)
    assert decompress(data) == b"".join(parts)


@pytest.mark.parametrize("compression", COMPRESSORS)
@given(content=st.binary(min_size=1, max_size=300), data=st.data())
def test_cut_compressed_data_are_refused(compression: str, content: bytes, data: st.DataObject) -> None:
    whole = COMPRESSORS[compression](content)
    cut = data.draw(st.integers(4, len(whole) - 1))
    with pytest.raises(CaptureError):
        decompress(whole[:cut])


@pytest.mark.parametrize("compression", COMPRESSORS)
@given(content=st.binary(max_size=300), data=st.data())
def test_changed_compressed_data_are_decompressed_or_refused(
    compression: str, content: bytes, data: st.DataObject
) -> None:
    changed = bytearray(COMPRESSORS[compression](content))
    changed[data.draw(st.integers(4, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        result = decompress(bytes(changed))
    except CaptureError:
        return
    assert isinstance(result, bytes)

"""Every real capture, read by the scalar reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from support.captures import Case, case, cases
from support.framings import reframe
from support.wire import encode
from walreplay.protocol import messages as m
from walreplay.protocol.compression import detect_compression
from walreplay.protocol.framing import FrameContent, Framing, parse_frame
from walreplay.protocol.opening import detect_framing
from walreplay.protocol.reader import read_stream


def tuples_of(message: m.AnyMessage) -> list[m.TupleData]:
    if not isinstance(message, (m.Insert, m.Update, m.Delete)):
        return []
    parts = [getattr(message, part, None) for part in ("new", "old", "key")]
    return [part for part in parts if isinstance(part, m.TupleData)]


def tags_of(message: m.AnyMessage) -> list[str]:
    """Return the names that case.json counts a message under."""
    names = [message.tag]
    if isinstance(message, (m.Update, m.Delete)):
        names += [message.tag + "K"] * (message.key is not None) + [message.tag + "O"] * (message.old is not None)
    elif isinstance(message, m.StreamAbort):
        names.append("A(top)" if message.xid == message.subxid else "A(sub)")
    elif isinstance(message, m.Message) and not message.transactional:
        names.append("M(non-tx)")
    return names


def frames_of(data: bytes, framing: Framing) -> Iterator[FrameContent]:
    """Yield all frames of a framing that says where they end."""
    offset = 0
    while offset < len(data):
        yield (frame := parse_frame(data, offset, framing))
        offset = frame.end


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_messages_and_cells_are_those_that_were_recorded(case: Case) -> None:
    tags: Counter[str] = Counter()
    cells: Counter[str] = Counter()
    for data in case.streams():
        for _, message in read_stream(data, framing=case.framing):
            tags.update(tags_of(message))
            cells.update(cell.kind for row in tuples_of(message) for cell in row.cells)
        if case.framing is Framing.COPYDATA:
            tags["k"] += sum(frame.is_empty for frame in frames_of(data, case.framing))
    assert tags == Counter(case.info["tags"])
    assert cells == Counter(case.info["cell_kinds"])


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_writing_what_was_read_gives_the_same_bytes(case: Case) -> None:
    for data in case.streams():
        for offset, message in read_stream(data, framing=case.framing):
            assert data.startswith(encode(message), offset)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_first_bytes_tell_the_framing(case: Case) -> None:
    for data in case.streams():
        assert detect_compression(data) is None
        assert detect_framing(data[:4096]) is case.framing


def test_raw_and_recvlogical_captures_are_the_same_bytes_when_reframed() -> None:
    (raw,) = case("o01").streams()
    (newlines,) = case("o04").streams()
    assert reframe(raw, Framing.RAW, Framing.RECVLOGICAL) == newlines
    assert reframe(newlines, Framing.RECVLOGICAL, Framing.RAW) == raw


def test_only_parallel_streaming_sends_the_lsn_of_an_abort() -> None:
    def aborts(name: str) -> list[m.StreamAbort]:
        found = case(name)
        messages = [message for data in found.streams() for _, message in read_stream(data, framing=found.framing)]
        return [message for message in messages if isinstance(message, m.StreamAbort)]

    assert [abort.abort_lsn is None for abort in aborts("o18")] == [True] * 2
    assert [abort.abort_lsn is None for abort in aborts("o19")] == [False] * 4

"""A real capture with one of its bytes flipped, where it hurts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from walreplay.protocol import messages as m
from walreplay.protocol.framing import LENGTH_SIZE, XLOGDATA, Framing
from walreplay.protocol.reader import read_stream

_FRAME_LENGTH = {
    Framing.COPYDATA: XLOGDATA.size + LENGTH_SIZE,  # behind the frame's 'd'
    Framing.PGCOPY: 4,  # the field's length
}
"""So many bytes before a message its frame's length stands."""

_LENGTH_OF_FIRST_VALUE = 1 + 4 + 1 + 2 + 1
"""Behind an Insert's tag, OID, N, number of columns, and the first cell's kind."""


@dataclass(frozen=True)
class Damage:
    """One flipped byte.

    Attributes:
        data: the whole capture with it.
        message: the offset of the message that it is in, or whose frame it is in.
    """

    name: str
    data: bytes
    message: int


def damages(data: bytes, framing: Framing) -> Iterator[Damage]:
    """Flip single bytes around a row in the capture's second half: in its tag and in lengths."""
    row = _row_in_second_half(data, framing)
    value = row + _LENGTH_OF_FIRST_VALUE
    places = {
        "a tag's highest bit": (row, 0x80),
        "a tag's lowest bit": (row, 0x01),
        "a length, now negative": (value, 0x80),
        "a length, now beyond the file's end": (value, 0x01),
        "a length, now off by one": (value + 3, 0x01),
    }
    if framing in _FRAME_LENGTH:
        frame = row - _FRAME_LENGTH[framing]
        places["a frame's length, now negative"] = (frame, 0x80)
        places["a frame's length, now off by one"] = (frame + 3, 0x01)
    for name, (offset, bits) in places.items():
        flipped = bytearray(data)
        flipped[offset] ^= bits
        yield Damage(name, bytes(flipped), row)


def _row_in_second_half(data: bytes, framing: Framing) -> int:
    for offset, message in read_stream(data, framing=framing):
        if offset > len(data) // 2 and isinstance(message, m.Insert):
            first = message.new.cells[0].value
            # A length too short by one must not find a cell's kind in the value's last byte.
            if first is not None and not first.endswith((b"n", b"t", b"u", b"b")):
                return offset
    raise AssertionError("no row in the second half")


def first_commit(data: bytes, framing: Framing) -> int:
    """Return the offset of the first Commit."""
    return next(at for at, message in read_stream(data, framing=framing) if isinstance(message, m.Commit))

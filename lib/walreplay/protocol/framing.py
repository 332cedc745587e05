"""How messages lie in a file: the framings.

- raw: messages, nothing between them.
- recvlogical: message, newline, message, newline; written by ``pg_recvlogical -f``.
- copydata: the CopyData messages of a walsender, as received: XLogData with one message each, keepalives.
- walsender: what those messages hold, without their own header: XLogData and keepalives one behind the other.
- pgcopy: binary COPY of (lsn, xid, data), the rows of ``pg_logical_slot_get_binary_changes``; of (lsn, data) and of
  data alone, too: each row says how many fields it has.
- length: 4 bytes that say how long the message is, and the message; or what a walsender has sent, instead of it.  They
  are big-endian, or little-endian (``_le``), and count the message alone, or themselves too (``_self``).

Another framing is a further line of `Framing`, and a place in `FRAMING_ORDER`: all else, here and in the kernels
(`walreplay.decode.kernels.frames`), follows from its `FrameLayout`.  LSNs and times in frames are not used: messages
have theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final, Literal, NamedTuple

from walreplay.errors import FramingError, TruncatedMessage

NEWLINE: Final = b"\n"

XLOGDATA: Final = Struct("!BQQq")  # 'w', wal_start, wal_end, send_time; the message follows
KEEPALIVE: Final = Struct("!BQqB")  # 'k', wal_end, send_time, reply_requested

PGCOPY_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"
PGCOPY_HEADER: Final = Struct("!11sII")  # signature, flags, length of the extension that follows
PGCOPY_ROWS: Final = {3: Struct("!hiQiIi"), 2: Struct("!hiQi"), 1: Struct("!hi")}
"""What stands in front of a row's message, by the number of its fields: that number, 8 and an LSN, 4 and an xid, and
the message's length."""
PGCOPY_TRAILER: Final = Struct("!h")  # -1
_PGCOPY_CRITICAL_FLAGS: Final = 0xFFFF0000  # bits 16 to 31: a reader that does not know one has to refuse

_XLOGDATA, _KEEPALIVE = b"wk"

LENGTH_SIZE: Final = 4
LONGEST_MESSAGE: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """What stands around each message.

    Attributes:
        order: the byte order of the length of 4 bytes in front of the message; empty where there is none.
        counted: how many of its own bytes the length counts as well.
        mark: one byte in front of the length, or none.
        is_row: the length is the last one of a row of binary COPY, and headers and trailers stand between rows.
        is_sent: a walsender's XLogData or keepalive may stand for the message.
        is_bare: the message may stand by itself.
        trailer: one byte behind the message, or none; kernels have it in eight bits of the framing's code.
    """

    order: Literal["", "big", "little"] = ""
    counted: int = 0
    mark: bytes = b""
    is_row: bool = False
    is_sent: bool = False
    is_bare: bool = True
    trailer: bytes = b""

    @property
    def trailer_size(self) -> int:
        """How many bytes stand behind each message."""
        return len(self.trailer)

    def header(self, size: int) -> bytes:
        """Write what stands in front of so many bytes, where it is no row of COPY."""
        return self.mark + (size + self.counted).to_bytes(LENGTH_SIZE, self.order) if self.order else b""


class Framing(str, Enum):
    """What lies between the messages of a file; ``layout`` says it in full."""

    layout: FrameLayout

    RAW = "raw"
    RECVLOGICAL = "recvlogical", FrameLayout(trailer=NEWLINE)
    COPYDATA = "copydata", FrameLayout("big", counted=LENGTH_SIZE, mark=b"d", is_sent=True, is_bare=False)
    PGCOPY = "pgcopy", FrameLayout("big", is_row=True)
    WALSENDER = "walsender", FrameLayout(is_sent=True, is_bare=False)
    LENGTH = "length", FrameLayout("big", is_sent=True)
    LENGTH_LE = "length_le", FrameLayout("little", is_sent=True)
    LENGTH_SELF = "length_self", FrameLayout("big", counted=LENGTH_SIZE, is_sent=True)
    LENGTH_SELF_LE = "length_self_le", FrameLayout("little", counted=LENGTH_SIZE, is_sent=True)

    def __new__(cls, name: str, layout: FrameLayout | None = None) -> Framing:
        """Make a framing of what is written above."""
        framing = str.__new__(cls, name)
        framing._value_, framing.layout = name, layout or FrameLayout()
        return framing

    @property
    def is_sized(self) -> bool:
        """Whether a frame says where its message ends."""
        return self.layout.order != ""

    @property
    def has_bare_length(self) -> bool:
        """Whether frames begin with a length, and so with almost any bytes."""
        return self.is_sized and not self.layout.mark and not self.layout.is_row

    @property
    def is_open_ended(self) -> bool:
        """Whether neither a length nor a trailer shows where a message ends."""
        return not self.is_sized and not self.layout.trailer


FRAMING_ORDER: Final = (
    *(Framing.PGCOPY, Framing.COPYDATA),
    *(Framing.LENGTH, Framing.LENGTH_SELF, Framing.LENGTH_LE, Framing.LENGTH_SELF_LE),
    *(Framing.WALSENDER, Framing.RECVLOGICAL, Framing.RAW),
)
"""How they are tried: what says most of itself first, as a message inside a frame looks like one without.

Among bare lengths, a cut head passes for the first one whose next length is beyond the bytes."""


class FrameContent(NamedTuple):
    """Where a frame's message begins, and where it ends, which is the data's end if the frame does not say it.

    A keepalive holds no message: it ends where that would begin.
    """

    begin: int
    end: int
    is_keepalive: bool = False


def parse_frame(data: bytes | memoryview, offset: int, framing: Framing) -> FrameContent:
    """Read the frame at an offset.

    Raises:
        TruncatedMessage: the data end inside the frame.
        FramingError: no frame begins here.
    """
    layout, begin, end = framing.layout, offset, len(data)
    if layout.order:
        begin, size = _read_row(data, offset) if layout.is_row else _read_length(data, offset, framing)
        end = begin + size
        _need(data, offset, begin + 1, framing)
    kind = data[begin]
    if layout.is_sent and (kind in (_XLOGDATA, _KEEPALIVE) or not layout.is_bare):  # no message has the tag w or k
        head = XLOGDATA.size if kind == _XLOGDATA else KEEPALIVE.size
        is_too_small = layout.order and end - begin <= head
        is_keepalive = kind == _KEEPALIVE and (not layout.order or end - begin == head)
        if not is_keepalive and (kind != _XLOGDATA or is_too_small):
            raise FramingError(f"the {framing.value} frame is neither XLogData nor a keepalive", offset=offset)
        begin += head
        end = begin if is_keepalive else max(end, begin + 1)
    _need(data, offset, end, framing)
    return FrameContent(begin, end, kind == _KEEPALIVE and layout.is_sent)


def read_trailer(data: bytes | memoryview, offset: int, framing: Framing) -> int:
    """Step over what stands behind a message; a newline is the only trailer so far.

    Raises:
        TruncatedMessage: the data end here.
        FramingError: something else stands here.
    """
    trailer = framing.layout.trailer
    if trailer and offset >= len(data):
        raise TruncatedMessage("the data end before the newline behind a message", offset=offset)
    if trailer and data[offset] != trailer[0]:
        raise FramingError("the message is not followed by a newline", offset=offset)
    return offset + framing.layout.trailer_size


def _read_length(data: bytes | memoryview, offset: int, framing: Framing) -> tuple[int, int]:
    """Return where the header at an offset ends, and how many bytes follow it."""
    layout = framing.layout
    begin = offset + len(layout.mark) + LENGTH_SIZE
    if layout.order and (not layout.mark or data[offset] == layout.mark[0]):
        _need(data, offset, begin, framing)
        size = int.from_bytes(data[begin - LENGTH_SIZE : begin], layout.order) - layout.counted
        if 0 < size <= LONGEST_MESSAGE:
            return begin, size
    raise FramingError(f"no {framing.value} frame begins here", offset=offset)


def _read_row(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return where the head of a row of binary COPY ends, and how long the message behind it is."""
    _need(data, offset, offset + PGCOPY_TRAILER.size, Framing.PGCOPY)
    layout = PGCOPY_ROWS.get(PGCOPY_TRAILER.unpack_from(data, offset)[0])
    if layout is not None:
        _need(data, offset, offset + layout.size, Framing.PGCOPY)
        _, *before, length = layout.unpack_from(data, offset)
        if before[::2] == [8, 4][: len(before) // 2] and length > 0:  # pg_lsn and xid; a length of -1 is NULL
            return offset + layout.size, length
    raise FramingError("no row of (lsn, xid, data), (lsn, data) or data begins here", offset=offset)


def read_pgcopy_mark(data: bytes | memoryview, offset: int) -> tuple[int, bool]:
    """Return where a PGCOPY's header or trailer ends, and whether it is a header.

    Raises:
        TruncatedMessage: the data end inside it.
        FramingError: neither stands there.
    """
    _need(data, offset, offset + 1, Framing.PGCOPY)
    if data[offset] == 0xFF:  # a field count of -1
        _need(data, offset, offset + PGCOPY_TRAILER.size, Framing.PGCOPY)
        return offset + PGCOPY_TRAILER.size, False
    if not PGCOPY_SIGNATURE.startswith(bytes(data[offset : offset + len(PGCOPY_SIGNATURE)])):
        raise FramingError("no pgcopy header begins here", offset=offset)
    _need(data, offset, offset + PGCOPY_HEADER.size, Framing.PGCOPY)
    _, flags, extension = PGCOPY_HEADER.unpack_from(data, offset)
    if flags & _PGCOPY_CRITICAL_FLAGS:
        raise FramingError(f"the pgcopy header has unknown critical flags 0x{flags:08x}", offset=offset)
    _need(data, offset, offset + PGCOPY_HEADER.size + extension, Framing.PGCOPY)
    return offset + PGCOPY_HEADER.size + int(extension), True


def _need(data: bytes | memoryview, offset: int, end: int, framing: Framing) -> None:
    if len(data) < end:
        count, have = end - offset, len(data) - offset
        raise TruncatedMessage(f"{framing.value} frame ends early: need {count} bytes, have {have}", offset=offset)

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

XLOGDATA: Final = Struct("!BQQq")  # 'w', wal_start, wal_end, send_time; the message follows
KEEPALIVE: Final = Struct("!BQqB")  # 'k', wal_end, send_time, reply_requested

PGCOPY_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"
PGCOPY_HEADER: Final = Struct("!11sII")  # signature, flags, length of the extension that follows
PGCOPY_ROWS: Final = {3: Struct("!hiQiIi"), 2: Struct("!hiQi"), 1: Struct("!hi")}
"""What stands in front of a row's message, by the number of its fields: that number, 8 and an LSN, 4 and an xid, and
the message's length."""
PGCOPY_TRAILER: Final = Struct("!h")  # -1
_PGCOPY_SIZES: Final = [(2, b"\0\0\0\x08"), (14, b"\0\0\0\x04")]
"""Where a row has the sizes of its LSN and its xid."""
_PGCOPY_CRITICAL_FLAGS: Final = 0xFFFF0000  # bits 16 to 31: a reader that does not know one has to refuse

_XLOGDATA, _KEEPALIVE = b"wk"

LENGTH_SIZE: Final = 4
LONGEST_MESSAGE: Final = (1 << 30) + XLOGDATA.size
"""PostgreSQL makes no message of 1 GB; a walsender puts its header in front."""


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

    def header(self, size: int) -> bytes:
        """Write what stands in front of so many bytes, where it is no row of COPY."""
        return self.mark + (size + self.counted).to_bytes(LENGTH_SIZE, self.order) if self.order else b""


class Framing(str, Enum):
    """What lies between the messages of a file; ``layout`` says it in full."""

    layout: FrameLayout

    RAW = "raw"
    RECVLOGICAL = "recvlogical", FrameLayout(trailer=b"\n")
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

Among bare lengths, a cut head passes for the first one whose next length is beyond the bytes.  Each one that is tried
in vain costs walks over the bytes (tests/unit/decode/test_guessed_boundaries.py)."""


class FrameContent(NamedTuple):
    """Where a frame's message begins, and where it ends, which is the data's end if the frame does not say it.

    A frame that is empty, as a keepalive, ends where a message would begin.
    """

    begin: int
    end: int
    is_empty: bool = False


def parse_frame(data: bytes | memoryview, offset: int, framing: Framing) -> FrameContent:
    """Read the frame at an offset.

    Raises:
        TruncatedMessage: the data end inside the frame.
        FramingError: no frame begins here.
    """
    content = parse_head(data, offset, framing)
    _need(data, offset, content.end, framing)
    return content


def parse_head(data: bytes | memoryview, offset: int, framing: Framing) -> FrameContent:
    """Read the frame at an offset, which may end, or even have its message, behind the data.

    Raises:
        TruncatedMessage: the data end before it is known where the message begins and how long it is.
        FramingError: no frame begins here, as far as the data go.
    """
    _need(data, offset, offset + 1, framing)
    layout, begin, end = framing.layout, offset, len(data)
    if layout.order:
        begin = _behind_length(data, offset, framing)
        length = bytes(data[begin - LENGTH_SIZE : begin])  # it may be cut: the message has so many bytes at least
        size = int.from_bytes(length.ljust(LENGTH_SIZE, b"\0"), layout.order) - layout.counted
        if size > LONGEST_MESSAGE or (size < 1 and len(length) == LENGTH_SIZE):
            raise _no_frame(framing, offset)
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
        if is_keepalive and begin <= len(data) and data[begin - 1] > 1:  # whether to reply
            raise _no_frame(framing, offset)
        end = begin if is_keepalive else max(end, begin + 1)
    return FrameContent(begin, end, kind == _KEEPALIVE and layout.is_sent)


def read_trailer(data: bytes | memoryview, offset: int, framing: Framing) -> int:
    """Step over what stands behind a message, given where that ends; a newline is the only trailer so far.

    What compares a trailer with the message's bytes has to be given where they begin, too: its callers know.

    Raises:
        TruncatedMessage: the data end here.
        FramingError: something else stands here.
    """
    trailer = framing.layout.trailer
    if trailer and offset >= len(data):
        raise TruncatedMessage("the data end before the newline behind a message", offset=offset)
    if trailer and data[offset] != trailer[0]:
        raise FramingError("the message is not followed by a newline", offset=offset)
    return offset + len(framing.layout.trailer)


def _behind_length(data: bytes | memoryview, offset: int, framing: Framing) -> int:
    """Return where the length ends that the frame at an offset has; what stands before it is checked."""
    layout, size, parts = framing.layout, len(framing.layout.mark) + LENGTH_SIZE, [(0, framing.layout.mark)]
    if layout.is_row:
        count = bytes(data[offset : offset + 2])
        if count == b"\0":
            _need(data, offset, offset + 2, framing)
        fields = int.from_bytes(count.ljust(2, b"\xff"), "big")
        if fields not in PGCOPY_ROWS:
            raise _no_frame(framing, offset)
        size, parts = PGCOPY_ROWS[fields].size, _PGCOPY_SIZES[: fields - 1]
    starts = ((offset + begin, part) for begin, part in parts)
    if not all(part.startswith(bytes(data[start : start + len(part)])) for start, part in starts):
        raise _no_frame(framing, offset)
    return offset + size


def _no_frame(framing: Framing, offset: int) -> FramingError:
    what = "row of (lsn, xid, data), (lsn, data) or data" if framing.layout.is_row else f"{framing.value} frame"
    return FramingError(f"no {what} begins here", offset=offset)


def size_fits(tag: int, size: int) -> bool:
    """Return whether there are messages with this tag and size; kernels compile this, too."""
    if tag == 66:  # B
        return size == 21
    if tag == 67:  # C
        return size == 26
    if tag == 83:  # S
        return size == 6
    if tag == 65:  # A, with or without an LSN and a time
        return size in (9, 25)
    if tag == 69:  # E
        return size == 1
    if tag == 99:  # c
        return size == 30
    if tag in (98, 80, 75, 114, 112):  # b P K r p, with a gid of up to 199 bytes
        return 30 <= size <= 300
    # I U D T O M R Y; a row without columns has so many bytes
    return tag in (73, 85, 68, 84, 79, 77, 82, 89) and size >= 8


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

"""How messages lie in a file: the framings.

- raw: messages, nothing between them.
- recvlogical: message, newline, message, newline; written by ``pg_recvlogical -f``.
- copydata: the CopyData messages of a walsender, as received: XLogData with one message each, keepalives.
- walsender: what those messages hold, without their own header: XLogData and keepalives one behind the other.
- pgcopy: binary COPY of (lsn, xid, data), the rows of ``pg_logical_slot_get_binary_changes``; of (lsn, data) and of
  data alone, too: each row says how many fields it has.
- length: 4 bytes that say how long the message is, and the message; or what a walsender has sent, instead of it.  They
  are big-endian, or little-endian (``_le``), and count the message alone, or themselves too (``_self``).

A framing with another header whose first four bytes are the length is a further line of `Framing`, and a place in
`FRAMING_ORDER`; all else follows from its `LengthField`.  LSNs and times in frames are not used: messages have theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import ClassVar, Final, TypeAlias

from walreplay.errors import FramingError, TruncatedMessage

NEWLINE: Final = b"\n"

COPYDATA_HEADER: Final = Struct("!Bi")  # 'd', length of what follows, these four bytes included
XLOGDATA: Final = Struct("!BQQq")  # 'w', wal_start, wal_end, send_time; the message follows
KEEPALIVE: Final = Struct("!BQqB")  # 'k', wal_end, send_time, reply_requested

PGCOPY_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"
PGCOPY_HEADER: Final = Struct("!11sIi")  # signature, flags, length of the extension that follows
PGCOPY_ROW: Final = Struct("!hiQiIi")  # 3 fields: 8 lsn, 4 xid, length of the message that follows
PGCOPY_ROW_OF_2: Final = Struct("!hiQi")  # 2 fields: 8 lsn, length
PGCOPY_ROW_OF_1: Final = Struct("!hi")  # 1 field: length
PGCOPY_ROWS: Final = {3: PGCOPY_ROW, 2: PGCOPY_ROW_OF_2, 1: PGCOPY_ROW_OF_1}
"""What stands in front of a row's message, by the number of its fields."""
PGCOPY_TRAILER: Final = Struct("!h")  # -1
_PGCOPY_CRITICAL_FLAGS: Final = 0xFFFF0000  # bits 16 to 31: a reader that does not know one has to refuse

_COPYDATA, _XLOGDATA, _KEEPALIVE = b"dwk"

LENGTH_SIZE: Final = 4
LONGEST_MESSAGE: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class LengthField:
    """The header in front of each message: 4 bytes with its length, then others that are skipped.

    Attributes:
        layout: how the length is written.
        counted: how many of the header's bytes the length counts as well.
        header: the header's size, up to 15 bytes.
    """

    layout: Struct
    counted: int = 0
    header: int = LENGTH_SIZE

    @property
    def is_little(self) -> bool:
        """Whether the length is little-endian."""
        return self.layout.format[0] == "<"

    def size_of(self, data: bytes | memoryview, offset: int) -> int:
        """Read how many bytes follow the header at an offset; negative where it cannot be one."""
        value: int = self.layout.unpack_from(data, offset)[0]
        return value - self.counted

    def pack(self, size: int) -> bytes:
        """Write the header that stands in front of so many bytes."""
        return self.layout.pack(size + self.counted).ljust(self.header, b"\0")


_BIG, _LITTLE = Struct(">I"), Struct("<I")


class Framing(str, Enum):
    """What lies between the messages of a file.

    Attributes:
        is_sized: a frame says where its message ends.
        length_field: the header with a length that stands in front of each message; None where there is none.
    """

    is_sized: bool
    length_field: LengthField | None

    RAW = "raw"
    RECVLOGICAL = "recvlogical"
    COPYDATA = "copydata", True
    PGCOPY = "pgcopy", True
    WALSENDER = "walsender"
    LENGTH = "length", True, LengthField(_BIG)
    LENGTH_LE = "length_le", True, LengthField(_LITTLE)
    LENGTH_SELF = "length_self", True, LengthField(_BIG, counted=LENGTH_SIZE)
    LENGTH_SELF_LE = "length_self_le", True, LengthField(_LITTLE, counted=LENGTH_SIZE)

    def __new__(cls, name: str, is_sized: bool = False, field: LengthField | None = None) -> Framing:
        """Make a framing of what is written above."""
        framing = str.__new__(cls, name)
        framing._value_, framing.is_sized, framing.length_field = name, is_sized, field
        return framing


FRAMING_ORDER: Final = (
    *(Framing.PGCOPY, Framing.COPYDATA),
    *(Framing.LENGTH, Framing.LENGTH_SELF, Framing.LENGTH_LE, Framing.LENGTH_SELF_LE),
    *(Framing.WALSENDER, Framing.RECVLOGICAL, Framing.RAW),
)
"""How they are tried: what says most of itself first, as a message inside a frame looks like one without."""


@dataclass(frozen=True, slots=True)
class XLogData:
    """A walsender's frame around one message, which begins and ends where ``payload`` says."""

    wal_start: int
    wal_end: int
    send_time: int
    payload: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Keepalive:
    """A walsender's sign of life; it carries no message."""

    wal_end: int
    send_time: int
    reply_requested: bool = False
    payload: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class CopyRow:
    """A row of a binary COPY around one message; ``lsn`` and ``xid`` are None where the COPY has left them out."""

    lsn: int | None
    xid: int | None
    payload: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sized:
    """A message with its length in front."""

    payload: tuple[int, int]


Frame: TypeAlias = XLogData | Keepalive | CopyRow | Sized


def read_newline(data: bytes | memoryview, offset: int) -> int:
    """Step over the newline behind a message.

    Raises:
        TruncatedMessage: the data end here.
        FramingError: something else stands here.
    """
    if offset >= len(data):
        raise TruncatedMessage("the data end before the newline behind a message", offset=offset)
    if data[offset] != NEWLINE[0]:
        raise FramingError("the message is not followed by a newline", offset=offset)
    return offset + 1


def read_copydata(data: bytes | memoryview, offset: int = 0) -> Iterator[XLogData | Keepalive]:
    """Read the CopyData frames from an offset to the data's end.

    Raises:
        TruncatedMessage: the data end inside a frame.
        FramingError: the bytes are no XLogData and no keepalive.
    """
    while offset < len(data):
        if data[offset] != _COPYDATA:
            raise FramingError("no copydata frame begins here", offset=offset)
        _need(data, offset, COPYDATA_HEADER.size + 1, Framing.COPYDATA)
        _, length = COPYDATA_HEADER.unpack_from(data, offset)
        body, size = offset + COPYDATA_HEADER.size, length - LENGTH_SIZE
        kind = data[body]
        if not ((kind == _XLOGDATA and size > XLOGDATA.size) or (kind == _KEEPALIVE and size == KEEPALIVE.size)):
            raise FramingError("the copydata frame is neither XLogData nor a keepalive", offset=offset)
        end = body + size
        _need(data, offset, end - offset, Framing.COPYDATA)
        yield _from_walsender(data, body, end)
        offset = end


def read_lengths(data: bytes | memoryview, framing: Framing, offset: int = 0) -> Iterator[Sized | XLogData | Keepalive]:
    """Read what has its length in front, from an offset to the data's end.

    Raises:
        TruncatedMessage: the data end inside a frame.
        FramingError: the bytes are no length that there can be.
    """
    field = framing.length_field
    assert field is not None
    while offset < len(data):
        _need(data, offset, field.header, framing)
        size, begin = field.size_of(data, offset), offset + field.header
        if not 0 < size <= LONGEST_MESSAGE:
            raise FramingError("no length of a message stands here", offset=offset)
        _need(data, offset, field.header + size, framing)
        offset = begin + size
        if data[begin] in (_XLOGDATA, _KEEPALIVE):  # no message has the tag w or k
            if not ((data[begin] == _XLOGDATA and size > XLOGDATA.size) or size == KEEPALIVE.size):
                raise FramingError("the frame is neither XLogData nor a keepalive", offset=begin)
            yield _from_walsender(data, begin, offset)
        else:
            yield Sized((begin, offset))


def read_walsender(data: bytes | memoryview, offset: int) -> XLogData | Keepalive:
    """Read the header of what a walsender has sent; where the message ends, the message itself has to say.

    Returns:
        where its payload ends, as far as is known, is the data's end.

    Raises:
        TruncatedMessage: the data end inside the header.
        FramingError: the bytes are no XLogData and no keepalive.
    """
    if data[offset] not in (_XLOGDATA, _KEEPALIVE):
        raise FramingError("neither XLogData nor a keepalive begins here", offset=offset)
    is_data = data[offset] == _XLOGDATA
    _need(data, offset, XLOGDATA.size + 1 if is_data else KEEPALIVE.size, Framing.WALSENDER)
    return _from_walsender(data, offset, len(data))


def _from_walsender(data: bytes | memoryview, body: int, end: int) -> XLogData | Keepalive:
    if data[body] == _XLOGDATA:
        _, wal_start, wal_end, send_time = XLOGDATA.unpack_from(data, body)
        return XLogData(wal_start, wal_end, send_time, (body + XLOGDATA.size, end))
    _, wal_end, send_time, reply = KEEPALIVE.unpack_from(data, body)
    return Keepalive(wal_end, send_time, reply != 0)


def read_pgcopy(data: bytes | memoryview, offset: int = 0, *, has_header: bool = True) -> Iterator[CopyRow]:
    """Read the rows of a binary COPY of (lsn, xid, data), (lsn, data) or data, with its header and its trailer.

    Args:
        has_header: the COPY begins at the offset, and not in bytes before.

    Raises:
        TruncatedMessage: the data end before the trailer.
        FramingError: the bytes are no COPY of these columns, or go on behind its trailer.
    """
    if has_header:
        offset = _read_pgcopy_header(data, offset)
    while True:
        _need(data, offset, PGCOPY_TRAILER.size, Framing.PGCOPY)
        (fields,) = PGCOPY_TRAILER.unpack_from(data, offset)
        if fields == -1:  # the trailer
            break
        row = _read_pgcopy_row(data, offset, fields)
        yield row
        offset = row.payload[1]
    offset += PGCOPY_TRAILER.size
    if offset < len(data):
        raise FramingError("bytes follow the trailer of the pgcopy file", offset=offset)


def _read_pgcopy_row(data: bytes | memoryview, offset: int, fields: int) -> CopyRow:
    layout = PGCOPY_ROWS.get(fields)
    if layout is None:
        raise FramingError("no row of (lsn, xid, data), (lsn, data) or data begins here", offset=offset)
    _need(data, offset, layout.size, Framing.PGCOPY)
    _, *before, length = layout.unpack_from(data, offset)
    sizes, values = before[::2], before[1::2]
    if sizes != [8, 4][: len(sizes)] or length <= 0:  # pg_lsn and xid; a length of -1 is NULL
        raise FramingError("no row of (lsn, xid, data), (lsn, data) or data begins here", offset=offset)
    begin = offset + layout.size
    _need(data, offset, begin + length - offset, Framing.PGCOPY)
    lsn, xid = (*values, None, None)[:2]
    return CopyRow(lsn, xid, (begin, begin + length))


def _read_pgcopy_header(data: bytes | memoryview, offset: int) -> int:
    _need(data, offset, PGCOPY_HEADER.size, Framing.PGCOPY)
    signature: bytes
    flags: int
    extension: int
    signature, flags, extension = PGCOPY_HEADER.unpack_from(data, offset)
    if signature != PGCOPY_SIGNATURE or extension < 0:
        raise FramingError("no pgcopy header begins here", offset=offset)
    if flags & _PGCOPY_CRITICAL_FLAGS:
        raise FramingError(f"the pgcopy header has unknown critical flags 0x{flags:08x}", offset=offset)
    _need(data, offset, PGCOPY_HEADER.size + extension, Framing.PGCOPY)
    return offset + PGCOPY_HEADER.size + extension


def _need(data: bytes | memoryview, offset: int, count: int, framing: Framing) -> None:
    have = len(data) - offset
    if have < count:
        raise TruncatedMessage(f"{framing.value} frame ends early: need {count} bytes, have {have}", offset=offset)

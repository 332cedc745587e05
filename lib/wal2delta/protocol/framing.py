"""How messages lie in a file: the framings.

- raw: messages, nothing between them.
- recvlogical: message, newline, message, newline; written by ``pg_recvlogical -f``.
- copydata: the CopyData messages of a walsender, as received: XLogData with one message each, keepalives.
- pgcopy: binary COPY of (lsn, xid, data), the rows of ``pg_logical_slot_get_binary_changes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final

from wal2delta.errors import FramingError, TruncatedMessage

NEWLINE: Final = b"\n"

COPYDATA_HEADER: Final = Struct("!Bi")  # 'd', length of what follows, these four bytes included
XLOGDATA: Final = Struct("!BQQq")  # 'w', wal_start, wal_end, send_time; the message follows
KEEPALIVE: Final = Struct("!BQqB")  # 'k', wal_end, send_time, reply_requested

PGCOPY_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"
PGCOPY_HEADER: Final = Struct("!11sIi")  # signature, flags, length of the extension that follows
PGCOPY_ROW: Final = Struct("!hiQiIi")  # 3 fields: 8 lsn, 4 xid, length of the message that follows
PGCOPY_TRAILER: Final = Struct("!h")  # -1
_PGCOPY_CRITICAL_FLAGS: Final = 0xFFFF0000

_COPYDATA, _XLOGDATA, _KEEPALIVE = b"dwk"
_LENGTH_SIZE: Final = 4


class Framing(str, Enum):
    """What lies between the messages of a file."""

    RAW = "raw"
    RECVLOGICAL = "recvlogical"
    COPYDATA = "copydata"
    PGCOPY = "pgcopy"


@dataclass(frozen=True, slots=True)
class XLogData:
    """A walsender's frame around one message.

    Attributes:
        payload: where the message begins and ends.
    """

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

    @property
    def payload(self) -> None:
        """Where the message is: nowhere."""
        return None


@dataclass(frozen=True, slots=True)
class CopyRow:
    """A row of a binary COPY around one message.

    Attributes:
        payload: where the message begins and ends.
    """

    lsn: int
    xid: int
    payload: tuple[int, int]


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
        body, size = offset + COPYDATA_HEADER.size, length - _LENGTH_SIZE
        kind = data[body]
        if not ((kind == _XLOGDATA and size > XLOGDATA.size) or (kind == _KEEPALIVE and size == KEEPALIVE.size)):
            raise FramingError("the copydata frame is neither XLogData nor a keepalive", offset=offset)
        end = body + size
        _need(data, offset, end - offset, Framing.COPYDATA)
        if kind == _XLOGDATA:
            _, wal_start, wal_end, send_time = XLOGDATA.unpack_from(data, body)
            yield XLogData(wal_start, wal_end, send_time, (body + XLOGDATA.size, end))
        else:
            _, wal_end, send_time, reply = KEEPALIVE.unpack_from(data, body)
            yield Keepalive(wal_end, send_time, reply != 0)
        offset = end


def read_pgcopy(data: bytes | memoryview, offset: int = 0) -> Iterator[CopyRow]:
    """Read the rows of a binary COPY, which has to have its header and its trailer.

    Raises:
        TruncatedMessage: the data end before the trailer.
        FramingError: the bytes are no COPY of (lsn, xid, data), or go on behind its trailer.
    """
    offset = _read_pgcopy_header(data, offset)
    while True:
        _need(data, offset, PGCOPY_TRAILER.size, Framing.PGCOPY)
        (fields,) = PGCOPY_TRAILER.unpack_from(data, offset)
        if fields == -1:
            break
        _need(data, offset, PGCOPY_ROW.size, Framing.PGCOPY)
        fields, lsn_size, lsn, xid_size, xid, length = PGCOPY_ROW.unpack_from(data, offset)
        if (fields, lsn_size, xid_size) != (3, 8, 4) or length <= 0:
            raise FramingError("no row of (lsn, xid, data) begins here", offset=offset)
        begin = offset + PGCOPY_ROW.size
        _need(data, offset, begin + length - offset, Framing.PGCOPY)
        yield CopyRow(lsn, xid, (begin, begin + length))
        offset = begin + length
    offset += PGCOPY_TRAILER.size
    if offset < len(data):
        raise FramingError("bytes follow the trailer of the pgcopy file", offset=offset)


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

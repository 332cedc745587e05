"""How messages lie in a file: the framings, how to recognise them, and compression around them.

- raw: messages, nothing between them.
- recvlogical: message, newline, message, newline; written by ``pg_recvlogical -f``.
- copydata: the CopyData messages of a walsender, as received: XLogData with one message each, keepalives.
- pgcopy: binary COPY of (lsn, xid, data), the rows of ``pg_logical_slot_get_binary_changes``.
"""

from __future__ import annotations

import bz2
import importlib
import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Any, Final, Protocol

from wal2delta.errors import CaptureError, FramingError, NotSupported, TruncatedMessage

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

_DETECT_MESSAGES: Final = 16
"""So many messages at a file's head must be sound for its framing to be believed."""


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


def detect_framing(head: bytes) -> Framing | None:
    """Recognise the framing of a file that begins where a session does.

    Args:
        head: the file's first bytes (decompressed), with the first message whole and one byte more.  A single
            message with nothing behind it counts as raw.

    Returns:
        None when no framing fits, or the head is too short to tell.
    """
    if head.startswith(PGCOPY_SIGNATURE):
        return Framing.PGCOPY
    # No message has the tag 'd' and none begins with a newline, so no head fits two of these.
    for framing in (Framing.COPYDATA, Framing.RECVLOGICAL, Framing.RAW):
        if _fits(head, framing):
            return framing
    return None


def _fits(head: bytes, framing: Framing) -> bool:
    """Say whether the first messages are sound in a framing."""
    # Imported here because the reader needs this module.
    from wal2delta.protocol.reader import read_stream

    # A frame's own header tells enough; where there are no frames, a whole message has to be seen.
    enough = framing is Framing.COPYDATA and len(head) > COPYDATA_HEADER.size
    try:
        for _ in itertools.islice(read_stream(head, framing=framing), _DETECT_MESSAGES):
            enough = True
    except TruncatedMessage:
        return enough
    except CaptureError:
        return False
    return enough


# Compression.

MAX_BYTES: Final = 2**31 - 1
"""Spark reads no file into memory that is larger, and offsets into one are 32 bits wide."""

_CHUNK_BYTES: Final = 1 << 16

_MAGIC: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bz2",
}


class _Decompressor(Protocol):
    """One member of a compressed file; all four libraries have these names for it."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: Any, /) -> bytes: ...


def detect_compression(head: bytes) -> str | None:
    """Tell a file's compression from its first bytes: gzip, zstd, lz4, bz2, or None.

    No framing begins like any of them.
    """
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def decompress(data: bytes, *, limit: int = MAX_BYTES) -> bytes:
    """Decompress a file's bytes, whose compression its first bytes tell; others come back as they are.

    A file may hold several members one behind the other, as appending to it makes them.

    Raises:
        CaptureError: the data are damaged, end early, or decompress to more than ``limit`` bytes.
        NotSupported: the compression needs a package that is not installed.
    """
    compression = detect_compression(data[:4])
    if compression is None:
        return data
    return b"".join(_inflate(data, compression, _OPENERS[compression](), limit))


def _inflate(data: bytes, compression: str, open_member: Callable[[], _Decompressor], limit: int) -> Iterator[bytes]:
    view = memoryview(data)
    at = size = 0
    while at < len(view):
        member = open_member()
        while not member.eof:
            if at >= len(view):
                raise CaptureError(
                    f"the {compression} data end early, after {at} compressed bytes",
                    remedy="The file is still being written or was copied in part; wait, or fetch it again",
                )
            chunk = view[at : at + _CHUNK_BYTES]
            try:
                part = member.decompress(chunk)
            except MemoryError:
                raise
            except Exception as error:
                # Each library has errors of its own, and some raise RuntimeError.
                raise CaptureError(
                    f"the {compression} data are damaged", remedy="Fetch the file from its source again"
                ) from error
            at += len(chunk)
            size += len(part)
            if size > limit:
                raise CaptureError(
                    f"the {compression} data decompress to more than {limit:,} bytes, too many for one file",
                    remedy="Decompress the file and split it by size (split -b 512M -d): anywhere will do, "
                    "but the parts' names have to sort in their order",
                )
            yield part
        at -= len(member.unused_data or b"")


def _gzip() -> Callable[[], _Decompressor]:
    return lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


def _bz2() -> Callable[[], _Decompressor]:
    return bz2.BZ2Decompressor


def _zstd() -> Callable[[], _Decompressor]:
    decompressor = _import("zstandard", "zstd", package="zstandard").ZstdDecompressor()
    opened: Callable[[], _Decompressor] = decompressor.decompressobj
    return opened


def _lz4() -> Callable[[], _Decompressor]:
    opened: Callable[[], _Decompressor] = _import("lz4.frame", "lz4", package="lz4").LZ4FrameDecompressor
    return opened


def _import(module: str, compression: str, *, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotSupported(
            f"the file is compressed with {compression}, which needs the Python package {package}",
            remedy=f"Install it where the job runs: pip install {package}",
        ) from error


_OPENERS: Final[dict[str, Callable[[], Callable[[], _Decompressor]]]] = {
    "gzip": _gzip,
    "bz2": _bz2,
    "zstd": _zstd,
    "lz4": _lz4,
}

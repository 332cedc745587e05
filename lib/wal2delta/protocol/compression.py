"""Compression around a file: told by its first bytes, undone as a whole."""

from __future__ import annotations

import bz2
import importlib
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from wal2delta.errors import CaptureError, NotSupported

MAX_BYTES: Final = 2**31 - 1
"""Spark reads no file into memory that is larger, and offsets into one are 32 bits wide."""

_CHUNK_BYTES: Final = 1 << 16

HEAD_BYTES: Final = 10
"""So many of a file's first bytes tell its compression."""

# A file may begin anywhere in a stream, so with any bytes: everything counts that a member has to begin with.
_HEADS: Final = (
    ("gzip", re.compile(rb"\x1f\x8b\x08[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]", re.DOTALL)),
    ("zstd", re.compile(rb"\x28\xb5\x2f\xfd")),
    ("lz4", re.compile(rb"\x04\x22\x4d\x18[\x40-\x7f]")),
    ("bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)")),
)
_MAGIC: Final = (
    ("gzip", b"\x1f\x8b\x08"),
    ("zstd", b"\x28\xb5\x2f\xfd"),
    ("lz4", b"\x04\x22\x4d\x18"),
    ("bz2", b"BZh"),
)


class _Decompressor(Protocol):
    """One member of a compressed file; all four libraries have these names for it."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: Any, /) -> bytes: ...


def detect_compression(head: bytes) -> str | None:
    """Tell a file's compression from its first `HEAD_BYTES` bytes: gzip, zstd, lz4, bz2, or None.

    No framing begins like any of them.  Where there are fewer bytes, the first of them count.
    """
    if len(head) < HEAD_BYTES:
        return next((name for name, magic in _MAGIC if head.startswith(magic)), None)
    return next((name for name, begins in _HEADS if begins.match(head)), None)


class Plain(NamedTuple):
    """A file's bytes without the compression that they were stored in, if there was one."""

    compression: str | None
    data: memoryview


def plain(content: bytes | memoryview) -> Plain:
    """Give a file's bytes as the stream has them; those that are not compressed are not copied.

    Raises:
        as `decompress`.
    """
    compression = detect_compression(bytes(content[:HEAD_BYTES]))
    return Plain(compression, memoryview(decompress(bytes(content)) if compression else content).cast("B"))


def decompress(data: bytes, *, limit: int = MAX_BYTES) -> bytes:
    """Decompress a file's bytes, whose compression its first bytes tell; others come back as they are.

    A file may hold several members one behind the other, as appending to it makes them.

    Raises:
        CaptureError: the data are damaged, end early, or decompress to more than ``limit`` bytes.
        NotSupported: the compression needs a package that is not installed.
    """
    compression = detect_compression(bytes(data[:HEAD_BYTES]))
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

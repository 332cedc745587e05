"""Compressed files: detected by their first bytes, and decompressed, as a whole or in steps."""

from __future__ import annotations

import bz2
import importlib
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from walreplay.errors import CaptureError, NotSupported

MAX_BYTES: Final = 2**31 - 1
"""Spark reads no file into memory that is larger, and offsets into one are 32 bits wide."""

_CHUNK_BYTES: Final = 1 << 16
_STEP_BYTES: Final = 1 << 20
"""So much comes out at a time at the most."""

_BELIEVED_BYTES: Final = 64 << 20
_BELIEVED_RATIO: Final = 64
"""What comes to more is counted first, and decompressed again if it is within the limit: captures seldom are so."""

_ZSTD_BLOCKS: Final = 16
_ZSTD_BLOCK_BYTES: Final = 128 << 10
_ZSTD_RLE, _ZSTD_RESERVED = 1, 3

HEAD_BYTES: Final = 10
"""So many of a file's first bytes tell its compression."""

# A file may begin anywhere in a stream, so with any bytes: everything counts that a member has to begin with.
_HEADS: Final = (
    ("gzip", re.compile(rb"\x1f\x8b\x08[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]", re.DOTALL)),
    ("zstd", re.compile(rb"\x28\xb5\x2f\xfd")),
    ("lz4", re.compile(rb"\x04\x22\x4d\x18[\x40-\x7f]")),
    ("bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)")),
)
MAGIC: Final = (
    ("gzip", b"\x1f\x8b\x08"),
    ("zstd", b"\x28\xb5\x2f\xfd"),
    ("lz4", b"\x04\x22\x4d\x18"),
    ("bz2", b"BZh"),
)


_Steps: TypeAlias = Generator[tuple[bytes, int], None, int]
_ReadMember: TypeAlias = Callable[[memoryview, int], _Steps]
"""Decompress the member that begins at an offset, in steps; return where it ends."""


class _Decompressor(Protocol):
    """One member of a compressed file, as bz2 and lz4 give it: never more than it is asked for."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: Any, max_length: int, /) -> bytes: ...


def detect_compression(head: bytes) -> str | None:
    """Return a file's compression by its first `HEAD_BYTES` bytes: gzip, zstd, lz4, bz2, or None.

    No framing begins like any of them.  Where there are fewer bytes, the first of them count.
    """
    if len(head) < HEAD_BYTES:
        return next((name for name, magic in MAGIC if head.startswith(magic)), None)
    return next((name for name, begins in _HEADS if begins.match(head)), None)


class Plain(NamedTuple):
    """A file's bytes without the compression that they were stored in, if there was one."""

    compression: str | None
    data: memoryview


def plain(content: bytes | memoryview) -> Plain:
    """Return a file's bytes as the stream has them; those that are not compressed are not copied.

    Raises:
        as `decompress`.
    """
    compression = detect_compression(bytes(content[:HEAD_BYTES]))
    return Plain(compression, memoryview(decompress(bytes(content)) if compression else content).cast("B"))


def decompress(data: bytes, *, limit: int = MAX_BYTES) -> bytes:
    """Decompress a file's bytes, whose compression its first bytes tell; others come back as they are.

    A file may hold several members one behind the other, as appending to it makes them.  What little comes to much is
    counted before any of it is kept, so that memory is bounded by the limit and by the compressed size, whichever is
    less: a file that is refused never takes more than `_BELIEVED_BYTES`, or `_BELIEVED_RATIO` times its size.

    Raises:
        CaptureError: the data are damaged, end early, or decompress to more than ``limit`` bytes.
        NotSupported: the compression needs a package that is not installed.
    """
    compression = detect_compression(bytes(data[:HEAD_BYTES]))
    if compression is None:
        return data
    parts: list[bytes] | None = []
    size = 0
    for part, at in _inflate(data, compression):
        size += len(part)
        if size > limit:
            raise CaptureError(
                f"the {compression} data decompress to more than {limit:,} bytes, too many for one file",
                remedy="Decompress the file and split it by size (split -b 512M -d): anywhere will do, "
                "but the parts' names have to sort in their order",
            )
        if parts is not None:
            parts.append(part)
            if size > max(_BELIEVED_BYTES, _BELIEVED_RATIO * at):
                parts = None
    if parts is None:
        parts = [part for part, _ in _inflate(data, compression)]
    return b"".join(parts)


def in_steps(data: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Decompress a file's bytes step by step, without a limit; others come back at once, as they are.

    Raises:
        as `decompress`.
    """
    compression = detect_compression(bytes(data[:HEAD_BYTES]))
    if compression is None:
        yield data
        return
    for part, _ in _inflate(data, compression):
        yield part


def _inflate(data: bytes | memoryview, compression: str) -> Iterator[tuple[bytes, int]]:
    """Yield the decompressed bytes in steps, each with how many compressed bytes were read by then."""
    view = memoryview(data)
    member = _MEMBERS[compression]()
    at = 0
    while at < len(view):
        at = yield from member(view, at)


def _ends_early(compression: str, at: int) -> CaptureError:
    return CaptureError(
        f"the {compression} data end early, after {at} compressed bytes",
        remedy="If the file is still being written, wait; if it was copied in part, fetch it again; if its writer was "
        "killed, put what can be read of it in its place (gzip -dc, and likewise zstd, lz4 and bzip2)",
    )


@contextmanager
def _damage_told(compression: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, CaptureError):
        raise
    except Exception as error:
        # Each library has errors of its own, and some raise RuntimeError.
        raise CaptureError(
            f"the {compression} data are damaged", remedy="Fetch the file from its source again"
        ) from error


def _read_gzip(view: memoryview, at: int) -> _Steps:
    member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    while not member.eof:
        chunk = view[at : at + _CHUNK_BYTES]
        with _damage_told("gzip"):
            part = member.decompress(chunk, _STEP_BYTES)
        # What stands behind the member's end is both unused and unconsumed.
        at += len(chunk) - len(member.unused_data if member.eof else member.unconsumed_tail)
        if not part and not chunk and not member.eof:
            raise _ends_early("gzip", at)
        yield part, at
    return at


def _members_in_steps(compression: str, open_member: Callable[[], _Decompressor]) -> _ReadMember:
    def read(view: memoryview, at: int) -> _Steps:
        member = open_member()
        while not member.eof:
            chunk = view[at : at + _CHUNK_BYTES] if member.needs_input else view[:0]
            if member.needs_input and not chunk:
                raise _ends_early(compression, at)
            with _damage_told(compression):
                part = member.decompress(chunk, _STEP_BYTES)
            at += len(chunk)
            yield part, at
        return at - len(member.unused_data or b"")

    return read


def _lz4_members() -> _ReadMember:
    return _members_in_steps("lz4", _import("lz4.frame", "lz4", package="lz4").LZ4FrameDecompressor)


def _zstd_members() -> _ReadMember:
    """Read zstd's frames some blocks at a time: the library gives at once all that its input comes to."""
    decompressor = _import("zstandard", "zstd", package="zstandard").ZstdDecompressor()

    def read(view: memoryview, at: int) -> _Steps:
        frame = decompressor.decompressobj()
        behind = _behind_zstd_header(view, at)
        while not frame.eof:
            if at >= len(view):
                raise _ends_early("zstd", at)
            stop, behind = _behind_zstd_blocks(view, max(behind, at))
            with _damage_told("zstd"):
                part = frame.decompress(view[at:stop])
            at = stop
            yield part, at
        return at - len(frame.unused_data or b"")

    return read


def _behind_zstd_header(view: memoryview, at: int) -> int:
    """Return where a frame's first block begins (RFC 8878, 3.1.1.1)."""
    descriptor = view[at + 4] if at + 4 < len(view) else 0
    single = descriptor >> 5 & 1
    content = (single, 2, 4, 8)[descriptor >> 6]
    return at + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content


def _behind_zstd_blocks(view: memoryview, at: int) -> tuple[int, int]:
    """Return how far to read so that at most `_ZSTD_BLOCKS` blocks end, and where the next block begins.

    What does not look like blocks, as behind the last one, is for the library to judge: a few bytes at a time.
    """
    for _ in range(_ZSTD_BLOCKS):
        head = bytes(view[at : at + 3])
        if len(head) < 3:
            return len(view), len(view)
        value = int.from_bytes(head, "little")
        kind, size = value >> 1 & 3, value >> 3
        if kind == _ZSTD_RESERVED or size > _ZSTD_BLOCK_BYTES:
            return min(at + _ZSTD_BLOCKS, len(view)), at
        at += 3 + (1 if kind == _ZSTD_RLE else size)
        if value & 1:
            # The check sum, if there is one.
            at += 4
            break
    return min(at, len(view)), at


def _import(module: str, compression: str, *, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotSupported(
            f"the file is compressed with {compression}, which needs the Python package {package}",
            remedy=f"Install it where the job runs: pip install {package}",
        ) from error


_MEMBERS: Final[dict[str, Callable[[], _ReadMember]]] = {
    "gzip": lambda: _read_gzip,
    "bz2": lambda: _members_in_steps("bz2", bz2.BZ2Decompressor),
    "zstd": _zstd_members,
    "lz4": _lz4_members,
}

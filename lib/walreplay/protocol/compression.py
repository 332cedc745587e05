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

MAX_BYTES: Final = 2**31 - 1  # Spark reads no file into memory that is larger, and offsets into one are 32 bits wide

_CHUNK_BYTES: Final = 1 << 16
_STEP_BYTES: Final = 1 << 20  # So much comes out at a time at the most

_BELIEVED_BYTES: Final = 64 << 20
_BELIEVED_RATIO: Final = 64
"""What comes to more is counted first, and decompressed again if it is within the limit: captures seldom are so."""

_ZSTD_BLOCKS: Final = 16
_ZSTD_BLOCK_BYTES: Final = 128 << 10
_ZSTD_RLE, _ZSTD_RESERVED = 1, 3

HEAD_BYTES: Final = 10  # So many of a file's first bytes tell its compression

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
    for part, read_bytes in _inflate(data, compression):
        size += len(part)
        if size > limit:
            raise CaptureError(
                f"the {compression} data decompress to more than {limit:,} bytes, too many for one file",
                remedy="Decompress the file and split it by size (split -b 512M -d): anywhere will do, "
                "but the parts' names have to sort in their order",
            )
        if parts is not None:
            parts.append(part)
            if size > max(_BELIEVED_BYTES, _BELIEVED_RATIO * read_bytes):  # from here on only counted
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
    member = _MEMBERS[compression]()  # imports the library only if the file needs it
    offset = 0
    while offset < len(view):
        offset = yield from member(view, offset)


def _ends_early(compression: str, offset: int) -> CaptureError:
    return CaptureError(
        f"the {compression} data end early, after {offset} compressed bytes",
        remedy="If the file is still being written, wait; if it was copied in part, fetch it again; if its writer was "
        "killed, put what can be read of it in its place (gzip -dc, and likewise zstd, lz4 and bzip2)",
    )


@contextmanager
def _damage_reported(compression: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, CaptureError):
        raise
    except Exception as error:
        # Each library has errors of its own, and some raise RuntimeError.
        raise CaptureError(
            f"the {compression} data are damaged", remedy="Fetch the file from its source again"
        ) from error


def _read_gzip(view: memoryview, offset: int) -> _Steps:
    member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # with gzip's header and check sum
    while not member.eof:
        chunk = view[offset : offset + _CHUNK_BYTES]
        with _damage_reported("gzip"):
            part = member.decompress(chunk, _STEP_BYTES)
        # What stands behind the member's end is both unused and unconsumed.
        offset += len(chunk) - len(member.unused_data if member.eof else member.unconsumed_tail)
        if not part and not chunk and not member.eof:
            raise _ends_early("gzip", offset)
        yield part, offset
    return offset


def _members_in_steps(compression: str, open_member: Callable[[], _Decompressor]) -> _ReadMember:
    def read(view: memoryview, offset: int) -> _Steps:
        member = open_member()
        while not member.eof:
            chunk = view[offset : offset + _CHUNK_BYTES] if member.needs_input else view[:0]
            if member.needs_input and not chunk:
                raise _ends_early(compression, offset)
            with _damage_reported(compression):
                part = member.decompress(chunk, _STEP_BYTES)
            offset += len(chunk)
            yield part, offset
        return offset - len(member.unused_data or b"")  # the next member begins with what is unused

    return read


def _lz4_members() -> _ReadMember:
    return _members_in_steps("lz4", _import("lz4.frame", "lz4", package="lz4").LZ4FrameDecompressor)


def _zstd_members() -> _ReadMember:
    """Read zstd's frames some blocks at a time: the library gives at once all that its input comes to."""
    decompressor = _import("zstandard", "zstd", package="zstandard").ZstdDecompressor()

    def read(view: memoryview, offset: int) -> _Steps:
        frame = decompressor.decompressobj()
        next_block = _first_zstd_block(view, offset)
        while not frame.eof:
            if offset >= len(view):
                raise _ends_early("zstd", offset)
            stop, next_block = _after_zstd_blocks(view, max(next_block, offset))
            with _damage_reported("zstd"):
                part = frame.decompress(view[offset:stop])
            offset = stop
            yield part, offset
        return offset - len(frame.unused_data or b"")  # the next frame begins with what is unused

    return read


def _first_zstd_block(view: memoryview, offset: int) -> int:
    """Return where a frame's first block begins (RFC 8878, 3.1.1.1)."""
    descriptor = view[offset + 4] if offset + 4 < len(view) else 0
    single = descriptor >> 5 & 1  # Single_Segment: there is no window descriptor
    content = (single, 2, 4, 8)[descriptor >> 6]  # the size of the field with the content's size
    # Magic and descriptor, window, dictionary id, content size.
    return offset + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content


def _after_zstd_blocks(view: memoryview, offset: int) -> tuple[int, int]:
    """Return how far to read so that at most `_ZSTD_BLOCKS` blocks end, and where the next block begins.

    What does not look like blocks, as behind the last one, is for the library to judge: a few bytes at a time.
    """
    for _ in range(_ZSTD_BLOCKS):
        head = bytes(view[offset : offset + 3])
        if len(head) < 3:
            return len(view), len(view)
        value = int.from_bytes(head, "little")
        kind, size = value >> 1 & 3, value >> 3
        if kind == _ZSTD_RESERVED or size > _ZSTD_BLOCK_BYTES:
            return min(offset + _ZSTD_BLOCKS, len(view)), offset
        offset += 3 + (1 if kind == _ZSTD_RLE else size)  # an RLE block has one byte, repeated so often
        if value & 1:
            # The check sum, if there is one.
            offset += 4
            break
    return min(offset, len(view)), offset


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

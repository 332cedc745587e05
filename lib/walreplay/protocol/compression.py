"""Compressed files: detected by their first bytes, and decompressed, as a whole or in steps."""

from __future__ import annotations

import bz2
import importlib
import re
from collections.abc import Iterator
from typing import Final

from walreplay.errors import CaptureError, NotSupported

MAX_BYTES: Final = 2**31 - 1  # Spark reads no file into memory that is larger, and offsets into one are 32 bits wide

_CHUNK_BYTES: Final = 1 << 16
_STEP_BYTES: Final = 1 << 20  # So much comes out at a time at the most

_BELIEVED_BYTES: Final = 64 << 20
_BELIEVED_RATIO: Final = 64
"""What comes to more is counted first, and decompressed again if it is within the limit: captures seldom are so."""

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


def detect_compression(data: bytes | memoryview) -> str | None:
    """Return a file's compression by its first `HEAD_BYTES` bytes: gzip, zstd, lz4, bz2, or None.

    No framing begins like any of them.  Where there are fewer bytes, the first of them count.
    """
    head = bytes(data[:HEAD_BYTES])
    if len(head) < HEAD_BYTES:
        return next((name for name, magic in MAGIC if head.startswith(magic)), None)
    return next((name for name, begins in _HEADS if begins.match(head)), None)


def decompress(data: bytes, *, limit: int = MAX_BYTES) -> bytes:
    """Decompress a file's bytes, whose compression its first bytes tell; others come back as they are.

    A file may hold several members one behind the other, as appending to it makes them.  What little comes to much is
    counted before any of it is kept, so that memory is bounded by the limit and by the compressed size, whichever is
    less: a file that is refused never takes more than `_BELIEVED_BYTES`, or `_BELIEVED_RATIO` times its size.

    Raises:
        CaptureError: the data are damaged, end early, or decompress to more than ``limit`` bytes.
        NotSupported: pyarrow was built without the compression.
    """
    compression = detect_compression(data)
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
    compression = detect_compression(data)
    if compression is None:
        yield data
        return
    for part, _ in _inflate(data, compression):
        yield part


def _inflate(data: bytes | memoryview, compression: str) -> Iterator[tuple[bytes, int]]:
    """Yield the decompressed bytes in steps, each with how many compressed bytes were read by then."""
    view = memoryview(data)
    try:
        yield from _bz2_steps(view) if compression == "bz2" else _arrow_steps(view, compression)
    except MemoryError:
        raise
    except NotImplementedError as error:
        raise NotSupported(
            f"the file is compressed with {compression}, which this build of pyarrow cannot read",
            remedy="Install pyarrow from PyPI where the job runs: pip install pyarrow",
        ) from error
    except Exception as error:
        # Each library has errors of its own, and Arrow has no class for an early end.
        if isinstance(error, EOFError) or "Truncated" in str(error):
            raise CaptureError(
                f"the {compression} data end early, after {len(view)} compressed bytes",
                remedy="If the file is still being written, wait; if it was copied in part, fetch it again; if its "
                "writer was killed, put what can be read of it in its place (gzip -dc, and likewise zstd, lz4 and "
                "bzip2)",
            ) from error
        raise CaptureError(
            f"the {compression} data are damaged", remedy="Fetch the file from its source again"
        ) from error


def _arrow_steps(view: memoryview, compression: str) -> Iterator[tuple[bytes, int]]:
    arrow = importlib.import_module("pyarrow")  # few files need it here, and importing it takes long
    source = arrow.BufferReader(view)
    stream = arrow.CompressedInputStream(source, compression)  # of all members
    while part := stream.read(_STEP_BYTES):
        yield part, source.tell()


def _bz2_steps(view: memoryview) -> Iterator[tuple[bytes, int]]:
    """Do so with Python's library: Arrow's stream fails behind a member without content."""
    offset = 0
    while offset < len(view):
        member = bz2.BZ2Decompressor()
        while not member.eof:
            chunk = view[offset : offset + _CHUNK_BYTES] if member.needs_input else view[:0]
            if member.needs_input and not chunk:
                raise EOFError
            part = member.decompress(chunk, _STEP_BYTES)
            offset += len(chunk)
            yield part, offset
        offset -= len(member.unused_data)  # the next member begins with what is unused

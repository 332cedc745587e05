"""Recognise a stream's framing by its first bytes, and check it by reading a session in them."""

from __future__ import annotations

from walreplay.decode.scan import HEAD_LIMIT
from walreplay.decode.sessions.breaks import is_framed_so
from walreplay.decode.sessions.first_session import framing_of
from walreplay.decode.sessions.foreign_files import may_become, no_capture
from walreplay.errors import FramingError, TruncatedMessage
from walreplay.protocol.detection import detect_framing
from walreplay.protocol.foreign import HEAD_BYTES, what_is
from walreplay.protocol.framing import PGCOPY_SIGNATURE, Framing
from walreplay.protocol.opening import RECOGNISABLE_BYTES
from walreplay.types.text import UTF8, names_in


def recognise(data: memoryview, codec: str = UTF8, *, prefix: bytes = b"") -> Framing | None:
    """Recognise the framing of a stream by its first bytes; None if they fit none.

    Args:
        data: the bytes of its first file; they follow the ``prefix``.
        codec: the encoding of names.

    Raises:
        TruncatedMessage: the bytes are too few.
    """
    head = prefix + bytes(data[:HEAD_BYTES])
    if what_is(head) is not None:
        return None
    found = detect_framing(head, names=names_in(codec))
    return confirmed(found, memoryview(prefix + bytes(data[:HEAD_LIMIT])), codec)


def confirmed(found: Framing | None, beginning: memoryview, codec: str = UTF8) -> Framing | None:
    """Give the framing in which a stream's first session can be read; None if there is none.

    Args:
        found: the framing that its very first bytes fit; None if they fit none.
        beginning: its first `HEAD_LIMIT` bytes; so many, because its first message may be a long logical one.

    Raises:
        TruncatedMessage: the bytes are too few.
    """
    if found is not None and is_framed_so(beginning, found, codec):
        return found
    try:
        return framing_of(beginning, codec) or found
    except TruncatedMessage:
        if found is None:
            raise
        return found


def framing_at_start(
    data: memoryview, codec: str, *, prefix: bytes = b"", before: str = "", compression: str | None = None
) -> Framing | None:
    """Recognise the framing of a stream whose first bytes end in a file; None if they are too few.

    Args:
        data: the file's bytes, decompressed.
        codec: the encoding of names.
        prefix: the bytes of the files before it, which were too few.
        before: the path of the file before it.
        compression: how the file was compressed, for the error.

    Raises:
        NotACapture: the file is no capture, or the one before it, which the error then names.
    """
    found = None
    beginning = prefix + bytes(data[:HEAD_BYTES])
    if beginning.startswith(PGCOPY_SIGNATURE):
        # A COPY without rows is too short for the check below.
        return Framing.PGCOPY
    if len(beginning) < RECOGNISABLE_BYTES:
        if not beginning or may_become(beginning, codec):
            return None
    else:
        try:
            found = recognise(data, codec, prefix=prefix)
        except TruncatedMessage:
            return None
    if prefix and before and _begins_stream(data, prefix, found, codec):
        raise no_capture(prefix).at(path=before)
    if found is not None:
        return found
    raise no_capture(data, compression)


def _begins_stream(data: memoryview, prefix: bytes, joined: Framing | None, codec: str) -> bool:
    """Say whether a stream begins with a file itself, and not with the few bytes of the files before it.

    Args:
        joined: the framing of those bytes and the file together.
    """
    try:
        alone = recognise(data, codec)
    except TruncatedMessage:
        return joined is None
    if joined is None or alone is None:
        return alone is not None
    if alone is joined or not is_framed_so(data[:HEAD_LIMIT], alone, codec):
        return False
    return not is_framed_so(memoryview(prefix + bytes(data[:HEAD_LIMIT])), joined, codec)


def refuse_text(data: memoryview, prefix: bytes, compression: str | None) -> None:
    """Refuse bytes with which no stream begins, although a framing was configured.

    Raises:
        NotACapture: they look like text or another file format.
    """
    beginning = prefix + bytes(data[:HEAD_BYTES])
    if len(beginning) >= RECOGNISABLE_BYTES and what_is(beginning) is not None:
        raise no_capture(beginning, compression)


def too_few(size: int, *, path: str | None) -> FramingError:
    """Make the error for bytes that are too few to recognise their framing, when there are no more."""
    return FramingError(
        f"the {size:,} bytes are too few to tell what they are",
        path=path,
        offset=0,
        remedy="Inspect it again when it has grown; if it will not, it was truncated, or is no capture",
    )


__all__ = ["confirmed", "framing_at_start", "recognise", "refuse_text", "too_few"]

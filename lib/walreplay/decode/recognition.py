"""Recognise what a stream is where it begins: by its first bytes, and by whether sessions can be read in them."""

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
    """Recognise the framing of a stream by its first bytes.

    Args:
        data: its first file, behind the ``prefix``.
        codec: what names are in.

    Raises:
        TruncatedMessage: more bytes will tell.
    """
    head = prefix + bytes(data[:HEAD_BYTES])
    if what_is(head) is not None:
        return None
    found = detect_framing(head, names=names_in(codec))
    return confirmed(found, memoryview(prefix + bytes(data[:HEAD_LIMIT])), codec)


def confirmed(found: Framing | None, beginning: memoryview, codec: str = UTF8) -> Framing | None:
    """Give the framing in which a stream's first session can be read; None where there is none.

    Args:
        found: the one that its very first bytes fit.
        beginning: `HEAD_LIMIT` of its bytes: one logical message may be longer than all else that it begins with.

    Raises:
        TruncatedMessage: more bytes will tell.
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
    """Recognise the framing of the stream that begins with a file; None where more bytes will tell.

    Args:
        data: the file's bytes, behind the ``prefix`` that the files in front of it have left.
        before: the file in front of it.
        compression: what it was stored in, for the error.

    Raises:
        NotACapture: naming the file in front, if that is what is wrong.
    """
    found = None
    beginning = prefix + bytes(data[:HEAD_BYTES])
    if beginning.startswith(PGCOPY_SIGNATURE):
        # That of no rows at all is shorter.
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
    """Say whether a file begins a stream by itself, rather than behind the few bytes of those in front.

    Args:
        joined: the framing that it has behind those.
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
    """Refuse what no stream begins with, though a framing was named for it."""
    beginning = prefix + bytes(data[:HEAD_BYTES])
    if len(beginning) >= RECOGNISABLE_BYTES and what_is(beginning) is not None:
        raise no_capture(beginning, compression)


def too_few(size: int, *, path: str | None) -> FramingError:
    """Say that all the bytes that there are do not show what they are."""
    return FramingError(
        f"the {size:,} bytes are too few to tell what they are",
        path=path,
        offset=0,
        remedy="Inspect it again when it has grown; if it will not, it was truncated, or is no capture",
    )


__all__ = ["confirmed", "framing_at_start", "recognise", "refuse_text", "too_few"]

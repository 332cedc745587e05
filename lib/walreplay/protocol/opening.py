"""Open a file as it is stored: the bytes that the stream has, and what their first ones say of it."""

from __future__ import annotations

from typing import Final, NamedTuple

from walreplay.protocol.compression import plain
from walreplay.protocol.detection import detect_framing
from walreplay.protocol.foreign import HEAD_BYTES, what_is
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import Names

RECOGNISABLE_BYTES: Final = 64
"""A stream cut before this many bytes may not show its framing yet; it goes on in the next file."""


class Opened(NamedTuple):
    """A file as it is opened.

    Attributes:
        compression: what it was stored in, if anything.
        data: its bytes without that.
        foreign: what it is by its first bytes, where no stream of pgoutput begins so.
        framing: the one that its first bytes fit; None where they fit none, are too few to tell, or were not asked.
    """

    compression: str | None
    data: memoryview
    foreign: str | None
    framing: Framing | None


def open_file(content: bytes | memoryview, names: Names | None = None) -> Opened:
    """Open a file.

    Args:
        content: its bytes as stored.
        names: decodes names, where a stream of unknown framing begins with the file: else that is not asked.

    Raises:
        as `decompress`.
    """
    stored = plain(content)
    head = bytes(stored.data[:HEAD_BYTES])
    foreign, framing = what_is(head), None
    if foreign is None and names is not None and len(head) >= RECOGNISABLE_BYTES:
        framing = detect_framing(head, names=names)
    return Opened(stored.compression, stored.data, foreign, framing)


__all__ = ["RECOGNISABLE_BYTES", "Opened", "open_file"]

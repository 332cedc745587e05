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
        framing: the one that its first bytes fit; None where they fit none, are too few to tell, or were not asked.
    """

    compression: str | None
    data: memoryview
    framing: Framing | None = None

    @property
    def foreign(self) -> str | None:
        """What it is by its first bytes, where no stream of pgoutput begins so."""
        return what_is(self.data[:HEAD_BYTES])


def open_file(content: bytes | memoryview, names: Names | None = None) -> Opened:
    """Open a file.

    Args:
        content: its bytes as stored.
        names: decodes names, where a stream of unknown framing begins with the file: else that is not asked.

    Raises:
        as `decompress`.
    """
    opened = Opened(*plain(content))
    if names is None or len(opened.data) < RECOGNISABLE_BYTES or opened.foreign is not None:
        return opened
    return opened._replace(framing=detect_framing(bytes(opened.data[:HEAD_BYTES]), names=names))


__all__ = ["RECOGNISABLE_BYTES", "Opened", "open_file"]

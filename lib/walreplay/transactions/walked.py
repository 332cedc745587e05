"""The part of a file that is being added to a stream."""

from __future__ import annotations

from dataclasses import dataclass

from walreplay.decode.place import Place
from walreplay.decode.summary import FileScan, Part
from walreplay.decode.unfinished import Unfinished
from walreplay.protocol.framing import Framing


@dataclass(frozen=True, slots=True)
class Walk:
    """A part that is being added.

    Attributes:
        scan: its file's.
        before: the place at its start.
        unfinished: what the files before have left, which a part with bytes of its own begins with.
    """

    scan: FileScan
    part: Part
    before: Place
    unfinished: Unfinished

    @property
    def framing(self) -> Framing:
        """The framing of the stream."""
        return self.part.summary.framing

    @property
    def origin(self) -> tuple[str, int]:
        """Where its own bytes begin, if they begin in front of the file."""
        return self.where(0) if self.part.data is not None else (self.scan.path, 0)

    @property
    def base(self) -> int:
        """Where its own bytes would begin in the file: in front of it below zero."""
        return self.part.base - self.unfinished.size

    def where(self, offset: int) -> tuple[str, int]:
        """Give the file that a place of the part lies in, and its offset there."""
        if self.part.data is None:
            return self.scan.path, offset
        offset += self.part.base
        return self.unfinished.where(offset) or (self.scan.path, offset - self.unfinished.size)


__all__ = ["Walk"]

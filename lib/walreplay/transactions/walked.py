"""The part of a file that is being added to a stitch."""

from __future__ import annotations

from dataclasses import dataclass

from walreplay.decode.place import Place
from walreplay.decode.summary import FileScan, Part
from walreplay.decode.unfinished import Unfinished
from walreplay.protocol.framing import Framing


@dataclass(frozen=True, slots=True)
class Walk:
    """A part that is being added to a stitch.

    Attributes:
        scan: the scan of its file.
        before: the place at its start.
        unfinished: the unfinished bytes of earlier files; a part with ``data`` begins in these.
    """

    scan: FileScan
    part: Part
    before: Place
    unfinished: Unfinished

    @property
    def framing(self) -> Framing:
        """The stream's framing."""
        return self.part.summary.framing

    @property
    def origin(self) -> tuple[str, int]:
        """File and offset at which the part's offset 0 lies: in an earlier file if the part has ``data``."""
        return self.where(0) if self.part.data is not None else (self.scan.path, 0)

    @property
    def base(self) -> int:
        """The offset in the file at which ``data`` begins; below 0 because it begins in front of the file."""
        return self.part.base - self.unfinished.size

    def where(self, offset: int) -> tuple[str, int]:
        """Give the file in which an offset of the part lies, and the offset there."""
        if self.part.data is None:
            return self.scan.path, offset
        offset += self.part.base
        return self.unfinished.where(offset) or (self.scan.path, offset - self.unfinished.size)


__all__ = ["Walk"]

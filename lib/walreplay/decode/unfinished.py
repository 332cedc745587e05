"""The unfinished bytes at the end of the files that were read, and the files in which they lie."""

from __future__ import annotations

from dataclasses import dataclass

from walreplay.decode.summary import FileScan


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of the unfinished bytes that lies in one file."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A message that continues in the next file, as far as it was read.

    Attributes:
        data: its bytes.
        pieces: where they lie.  The last piece, which may be empty, is in the file that was read last.
    """

    data: bytes = b""
    pieces: tuple[Piece, ...] = ()

    def behind(self, scan: FileScan) -> Unfinished:
        """Give the unfinished bytes after the next file; they may begin with the unfinished bytes before it."""
        extra = max(0, len(scan.tail) - scan.size)
        pieces: list[Piece] = []
        for piece in reversed(self.pieces):
            take = min(extra, piece.size)
            if take:
                pieces.insert(0, Piece(piece.path, piece.offset + piece.size - take, take))
            extra -= take
        own = min(len(scan.tail), scan.size)
        return Unfinished(scan.tail, (*pieces, Piece(scan.path, scan.size - own, own)))

    @property
    def edges(self) -> tuple[int, ...]:
        """The offsets in the bytes at which files begin, except the first."""
        edges, at = [], 0
        for piece in self.pieces[:-1]:
            at += piece.size
            edges.append(at)
        return tuple(edges)

    @property
    def origins(self) -> tuple[tuple[str, int], ...]:
        """For each piece, its file and the offset in the file."""
        return tuple((piece.path, piece.offset) for piece in self.pieces)

    @property
    def last_path(self) -> str:
        """The file that was read last; empty before the first."""
        return self.pieces[-1].path if self.pieces else ""

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(piece.size for piece in self.pieces)

    def where(self, offset: int) -> tuple[str, int] | None:
        """Give the file in which an offset of the bytes lies, and the offset there; None for an offset after them."""
        for piece in self.pieces:
            if offset < piece.size:
                return piece.path, piece.offset + offset
            offset -= piece.size
        return None


__all__ = ["Piece", "Unfinished"]

"""The unfinished bytes at the end of the files that were read, and which files they lie in."""

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
    """A message that goes on in the next file, as far as it is there.

    Attributes:
        data: its bytes.
        pieces: where they lie; the last one, which may be empty, is of the file that was read last.
    """

    data: bytes = b""
    pieces: tuple[Piece, ...] = ()

    def behind(self, scan: FileScan) -> Unfinished:
        """Give what is unfinished behind the next file: some of it may be what was unfinished before that."""
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
        """Where files begin in the bytes."""
        edges, at = [], 0
        for piece in self.pieces[:-1]:
            at += piece.size
            edges.append(at)
        return tuple(edges)

    @property
    def origins(self) -> tuple[tuple[str, int], ...]:
        """The files that the bytes lie in, and where in each."""
        return tuple((piece.path, piece.offset) for piece in self.pieces)

    @property
    def last_path(self) -> str:
        """The file that was read last; none before the first."""
        return self.pieces[-1].path if self.pieces else ""

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return sum(piece.size for piece in self.pieces)

    def where(self, offset: int) -> tuple[str, int] | None:
        """Give the file that a place in the bytes lies in, and its offset there; None behind them."""
        for piece in self.pieces:
            if offset < piece.size:
                return piece.path, piece.offset + offset
            offset -= piece.size
        return None


__all__ = ["Piece", "Unfinished"]

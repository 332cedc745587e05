"""Rows of an index, collected while files are joined to a stream."""

from __future__ import annotations

from walreplay.decode.summary import FileScan
from walreplay.errors import CaptureError
from walreplay.spark.captures.files import CaptureFile
from walreplay.spark.index.archive import ArchiveIndex, Indexed
from walreplay.spark.index.facts import FileFacts, Follower, standing
from walreplay.transactions.stitch import Stitch


class Recording:
    """Follows a stitch: `look` before a file is added to it, `take` behind it, and `write` (or another) at the end.

    Args:
        index: where the rows go.
        stitch: as it stands in front of the first file.
    """

    def __init__(self, index: ArchiveIndex, stitch: Stitch) -> None:
        self._index = index
        self._follower = Follower(stitch, index.name_of)
        self._rows: list[Indexed] = []
        self._at = standing(stitch)

    def look(self, stitch: Stitch, *, gap: bool = False) -> str:
        """See where the stitch stands; give that in short.

        Args:
            gap: what is in front of the next file is lost.
        """
        self._follower.look(stitch)
        self._at = standing(stitch, gap=gap)
        return self._at

    def take(self, stitch: Stitch, file: CaptureFile, scan: FileScan) -> FileFacts:
        """Take up the file that was just added, scanned from its beginning, and give what is told of it."""
        facts = self._follower.take(stitch, scan, file.modified)
        self._rows.append(Indexed(facts, scan, None if scan.guessed else self._at))
        return facts

    def write(self) -> int:
        """Write the rows of the files since the last call, where they are not there as they are; say how many.

        Raises:
            TargetError: the index cannot be written.
        """
        rows, self._rows = self._rows, []
        return self._index.add(rows)

    def add_sound(self) -> int:
        """Write the rows of the files since the last call; those of files that have other bytes now stay as they are.

        Raises:
            TargetError: the index cannot be read or written.
        """
        rows, self._rows = self._rows, []
        return self._index.add([one for one in rows if not isinstance(self._index.compare(one.facts), CaptureError)])

    def forget(self) -> int:
        """Write none of the rows since the last call."""
        self._rows = []
        return 0

    def add(self) -> int:
        """Write the rows of the files since the last call, in one commit; those that are there for a file stay.

        It is for who may know less of the archive than who wrote them: where its stream begins, and which files it has.

        Raises:
            TargetError: the index cannot be written.
        """
        rows, self._rows = self._rows, []
        return self._index.add_unknown(rows)


__all__ = ["Recording"]

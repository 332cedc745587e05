"""Where a run ends though the archive goes on: in front of the first transaction that commits behind an LSN or a time.

Transactions come in commit order, so what lies in front of the first one that is too late is a prefix of all commits.
Times need not rise (a clock may go back): the first commit that is later than the wanted time ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from walreplay.decode import walk
from walreplay.decode.scan import Scanner
from walreplay.decode.summary import FileScan, Part, Summary
from walreplay.lsn import format_lsn, to_datetime

if TYPE_CHECKING:
    from walreplay.decode.place import Place


@dataclass(frozen=True, slots=True)
class Until:
    """The last commit LSN, or the last commit time, that is wanted.

    Attributes:
        lsn: transactions with a greater commit LSN are too late; None where the LSN does not matter.
        time: likewise, in microseconds since 2000-01-01.
    """

    lsn: int | None = None
    time: int | None = None

    def is_passed(self, summary: Summary) -> bool:
        """Say whether a stretch has the Begin, or the deciding message, of a transaction that is too late."""
        last = walk.NO_LSN if summary.last_lsn is None else summary.last_lsn
        if summary.begin_at is not None and summary.place is not None and summary.place.transaction is not None:
            last = max(last, summary.place.transaction.final_lsn)
        return (self.lsn is not None and last > self.lsn) or (
            self.time is not None and summary.top_time is not None and summary.top_time > self.time
        )

    def is_behind(self, place: Place) -> bool:
        """Say whether a place lies behind a transaction that is too late."""
        if self.lsn is not None:
            return place.high_lsn > self.lsn
        return self.time is not None and place.high_lsn != walk.NO_LSN and place.high_commit_time > self.time

    def __str__(self) -> str:
        return format_lsn(self.lsn) if self.lsn is not None else to_datetime(self.time or 0).isoformat(sep=" ")

    def is_passed_in(self, parts: tuple[Part, ...]) -> bool:
        """Say so of a file."""
        return any(self.is_passed(part.summary) for part in parts)


def end_scan(scan: FileScan, data: memoryview, place: Place, prefix: bytes, until: Until) -> None:
    """End a file's scan in front of the first transaction that is too late, where there is one.

    What was found of the file's sessions stays: all its bytes have decided about it.

    Args:
        scan: of all bytes, from a known place.
        data: the file's bytes, decompressed.
        place: where the scan began.
        prefix: the unfinished bytes of the files before.
    """
    for number, part in enumerate(scan.parts):
        before = place.new_session() if part.new_session else place
        if until.is_passed(part.summary):
            own = data if part.data is None else memoryview(part.data)
            scanner = Scanner(before.framing, place=before, codec=scan.codec)
            scanner.closed = scanner.ends_session = True
            scanner.stop_behind(until.lsn, until.time)
            summary = scanner.scan(own[: part.summary.stop], part.summary.start)
            if scanner.is_behind:
                scan.parts = (*scan.parts[:number], replace(part, summary=summary))
                scan.ended = True
                at = summary.stop if part.data is None else summary.stop + part.base - len(prefix)
                # In front of the file, it is the bytes before that the next run goes on in.
                scan.tail, scan.size = (b"", at) if at >= 0 else (prefix[at:], 0)
                return
        assert part.summary.place is not None
        place = part.summary.place


__all__ = ["Until", "end_scan"]

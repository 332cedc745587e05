"""Check a file that was scanned from a guessed boundary against the place where the file before it ends."""

from __future__ import annotations

from dataclasses import replace

from walreplay.decode.place import Place
from walreplay.decode.scan import Scanner
from walreplay.decode.sessions.starts import may_begin
from walreplay.decode.summary import Block, FileScan, Part, Summary
from walreplay.errors import WalReplayError


def parts_of_guess(scan: FileScan, place: Place, tail: bytes) -> tuple[Part, ...] | None:
    """Give the parts of a file that was scanned on a guess; None if the guess is wrong or uncertain.

    Together, the unfinished bytes of earlier files and those in front of the guessed start must be whole messages.  The
    transaction that is open behind them must be the one that the file continues.

    Args:
        place: the place behind the last whole message of the file before.
        tail: the unfinished bytes of earlier files, which follow it.
    """
    if not scan.parts or scan.head is None:
        return None
    (part,) = scan.parts
    if part.summary.framing is not place.framing:
        return None
    if tail and may_begin(memoryview(scan.head), place.framing):
        # The file may continue a message, or begin a session.  Only an exact scan tests both readings.
        return None
    seam = tail + scan.head
    parts: tuple[Part, ...] = ()
    if seam:
        scanner = Scanner(place.framing, place=place, codec=scan.codec)
        scanner.closed = True
        try:
            summary = scanner.scan(seam, 0)
        except WalReplayError:
            # An exact scan of the file will report the error with its place.
            return None
        if scanner.broke or summary.stop != len(seam) or summary.place is None or part.new_session:
            return None
        parts, place = (Part(summary, data=seam),), summary.place
    if part.new_session and not place.begun:
        # All files before it are empty, so that no session ends here.
        part = replace(part, new_session=False)
    if part.new_session:
        place = place.new_session()
    if not _continues(place, part.summary):
        return None
    if place.stream is not None:
        part = replace(part, summary=_named(part.summary, place.stream))
    return (*parts, part)


def _continues(place: Place, summary: Summary) -> bool:
    """Whether a guessed summary may follow a known place."""
    open_ = place.transaction
    inside = bool(summary.items) and isinstance(summary.items[0], Block) and summary.items[0].xid == -1
    if inside != (place.stream is not None) or (open_ is not None and open_.gid is not None):
        return False
    if summary.first_message is not None and summary.first_message <= place.message_lsn:
        return False
    if summary.head_commit is not None:
        return (
            open_ is not None
            and summary.head_commit == (open_.final_lsn, open_.commit_time)
            and (open_.final_lsn > place.high_lsn)
        )
    if summary.head_changes and open_ is None:
        return False
    if summary.place is None:
        return True
    begins = summary.first_lsn
    if summary.place.transaction is not None and begins is None:
        begins = summary.place.transaction.final_lsn
    return open_ is None and (begins is None or begins > max(place.last_lsn, place.high_lsn))


def _named(summary: Summary, xid: int) -> Summary:
    """Fill in the xid of the blocks that are open at a guessed start, which is known now."""
    items = [replace(item, xid=xid) if isinstance(item, Block) and item.xid == -1 else item for item in summary.items]
    return replace(summary, items=tuple(items))


__all__ = ["parts_of_guess"]

"""Hold a file that was scanned from a guessed boundary against what is certain of the files before it."""

from __future__ import annotations

from dataclasses import replace

from walreplay.decode.place import Place
from walreplay.decode.scan import Scanner
from walreplay.decode.sessions.starts import may_begin
from walreplay.decode.summary import Block, FileScan, Part, Summary
from walreplay.errors import WalReplayError


def parts_of_guess(scan: FileScan, place: Place, tail: bytes) -> tuple[Part, ...] | None:
    """Give the parts of a file that was scanned on a guess; None where that does not hold.

    The unfinished bytes of the files before and those in front of the guessed start must be whole messages, and the
    transaction that is open behind them must be the one that the file goes on with.

    Args:
        place: where the file before ends; ``tail`` is what is unfinished there.
    """
    if not scan.parts or scan.head is None:
        return None
    (part,) = scan.parts
    if part.summary.framing is not place.framing:
        return None
    if tail and may_begin(memoryview(scan.head), place.framing):
        # A message goes on in the file, or a session begins with it: both readings have to be tested.
        return None
    seam = tail + scan.head
    parts: tuple[Part, ...] = ()
    if seam:
        scanner = Scanner(place.framing, place=place, codec=scan.codec)
        scanner.closed = True
        try:
            summary = scanner.scan(seam, 0)
        except WalReplayError:
            # The file's own scan will tell where and what.
            return None
        if scanner.broke or summary.stop != len(seam) or summary.place is None or part.new_session:
            return None
        parts, place = (Part(summary, data=seam),), summary.place
    if part.new_session and not place.begun:
        # Files without anything in them stand before it.
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
    """Give the blocks of the transaction that is streamed at a guessed start its xid, which is now known."""
    items = [replace(item, xid=xid) if isinstance(item, Block) and item.xid == -1 else item for item in summary.items]
    return replace(summary, items=tuple(items))


__all__ = ["parts_of_guess"]

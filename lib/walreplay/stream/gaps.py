"""Missing bytes: an error, or a warning if gaps are allowed and incomplete transactions left out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from walreplay.decode.summary import Block, Body, Decided, Part, XidCounts
from walreplay.errors import OrderError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.stream.deferred import Deferred
from walreplay.stream.schedule import Walk
from walreplay.stream.state import StitchState

_MISSING: Final = "A file before this one is missing; bring it back, or leave its transactions out by --allow-gaps"
_COPY: Final = "A file in front of this one is missing, or is there twice; bring it back, or remove the copy"
_DAMAGED: Final = (
    "The file is damaged, or what decided on the transaction of that gid is missing; fetch it from its source again"
)


def check_awaited(state: StitchState, walked: Walk) -> None:
    """Check that a transaction that a session's end has cut off is sent again.

    Raises:
        OrderError: it is not, and gaps are not allowed.
    """
    summary = walked.part.summary
    first = summary.first_event
    if state.awaited is None or first is None:
        return
    awaited, state.awaited = state.awaited, None
    if first <= awaited:
        return
    problem = f"transaction {format_lsn(awaited)} has begun before, but neither goes on here nor comes again"
    _refuse(state, walked, summary.start, problem, _MISSING)


def check_rows(state: StitchState, parts: tuple[Part, ...], path: str) -> None:
    """Check that an ordinary transaction, which ends in a file, has the rows that a session before has brought of it.

    Args:
        parts: of the file.

    Raises:
        OrderError: it has not.
    """
    place, total = state.place, 0
    open_ = None if place is None else place.transaction
    for part in parts:
        if part.new_session or open_ is None:
            return
        summary = part.summary
        if summary.head_commit is not None:
            if lacks_rows(state, open_.xid, open_.final_lsn, XidCounts(open_.ordinal + total + summary.head_changes)):
                error = OrderError(_fewer_rows(open_.xid), path=path, offset=0, remedy=_COPY)
                if not state.allow_gaps:
                    raise error
                state.warnings.append(f"{path}: {error.problem}; it is applied as it is (gaps are allowed)")
            return
        if summary.exact and summary.place is not None:
            open_, total = summary.place.transaction, 0
        else:
            total += summary.head_changes


def lacks_rows(state: StitchState, xid: int, lsn: int | None, rows: XidCounts, aborted: Collection[int] = ()) -> bool:
    """Return whether a transaction that is whole has fewer rows than a session before has brought of it.

    Args:
        lsn: see `Cut`.
    """
    cut = state.cut.get(xid)
    return cut is not None and cut.lsn == lsn and cut.has_more_than(rows, aborted)


def stream_lacks_rows(state: StitchState, item: Deferred) -> bool:
    """Return whether a streamed transaction that ends has fewer rows than a session before has brought of it."""
    # Most streams were never cut off, and to count their rows takes time.
    rows = item.rows if item.xid in state.cut else XidCounts()
    return lacks_rows(state, item.xid, None, rows, item.aborted)


def _fewer_rows(xid: int) -> str:
    return f"transaction {xid} ends here, but has fewer rows than a session before has brought of it"


def lacks_start(state: StitchState, item: Block | Body | Decided, walked: Walk) -> bool:
    """Return whether the beginning of an item's transaction is missing, so that the item is left out.

    Raises:
        OrderError: it is missing, and gaps are not allowed.
    """
    if isinstance(item, Block):
        if item.first or item.xid in state.open.streams:
            return False
        problem = f"a block of the streamed transaction {item.xid} goes on, but its first one is not there"
        _refuse(state, walked, item.start, problem, _MISSING)
        return True
    if isinstance(item, Body):
        return False
    message = item.message
    if isinstance(message, (m.StreamCommit, m.StreamPrepare)) and message.xid not in state.open.streams:
        problem = f"the streamed transaction {message.xid} ends, but none of its blocks is there"
        _refuse(state, walked, item.offset, problem, _MISSING)
        return True
    if isinstance(message, (m.StreamCommit, m.CommitPrepared)) and _commits_too_few(state, message, walked):
        _refuse(state, walked, item.offset, _fewer_rows(message.xid), _COPY)
        return True
    if isinstance(message, (m.CommitPrepared, m.RollbackPrepared)):
        return _decides_on_another(state, message, item.offset, walked)
    return False


def _commits_too_few(state: StitchState, message: m.StreamCommit | m.CommitPrepared, walked: Walk) -> bool:
    """Return whether a transaction commits that lacks rows; it is forgotten then."""
    open_ = state.open
    if isinstance(message, m.StreamCommit):
        lacks = stream_lacks_rows(state, open_.streams[message.xid])
        return lacks and open_.streams.pop(message.xid, None) is not None
    prepared = open_.prepared.get((message.gid, message.xid))
    if prepared is None or not prepared.lacks_rows or message.commit_lsn <= walked.before.high_lsn:
        return False
    del open_.prepared[message.gid, message.xid]
    return True


def _decides_on_another(
    state: StitchState, message: m.CommitPrepared | m.RollbackPrepared, offset: int, walked: Walk
) -> bool:
    """Return whether a decision names a transaction that was prepared with another gid or xid."""
    is_known = (message.gid, message.xid) in state.open.prepared
    is_copy = isinstance(message, m.CommitPrepared) and message.commit_lsn <= walked.before.high_lsn
    if is_known or is_copy or not state.open.contradicts(message):
        return False
    problem = (
        f"a {type(message).__name__} decides on transaction {message.xid}, but its gid, or its xid, is not the one "
        "that it was prepared with"
    )
    _refuse(state, walked, offset, problem, _DAMAGED)
    return True


def _refuse(state: StitchState, walked: Walk, at: int, problem: str, remedy: str) -> None:
    """Raise an error, or add a warning if gaps are allowed."""
    path, offset = walked.where(at)
    error = OrderError(problem, path=path, offset=offset, remedy=remedy)
    if not state.allow_gaps:
        raise error
    state.left_out.append(error)
    state.warnings.append(f"{path}, offset {offset:,}: {problem}; it is left out (gaps are allowed)")

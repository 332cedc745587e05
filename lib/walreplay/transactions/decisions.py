"""Follow the messages that prepare, commit or abort streamed and prepared transactions."""

from __future__ import annotations

from typing import NamedTuple

from walreplay.decode.summary import Decided, TruncateAt
from walreplay.errors import OrderError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.transactions.deferred import Deferred
from walreplay.transactions.plan import DecidedTransaction
from walreplay.transactions.schedule import Commit
from walreplay.transactions.state import StitchState
from walreplay.transactions.walked import Walk


class Committed(NamedTuple):
    """A transaction that a decision has committed.

    Attributes:
        lsn: the commit LSN.
        time: the commit time, in microseconds since 2000-01-01.
        commit: the entry for the schedule; None if the transaction has no rows, and only announces relations.
    """

    lsn: int
    time: int
    commit: Commit | None


def decide(state: StitchState, item: Decided, walked: Walk) -> Committed | None:
    """Apply a decision to the state; give the committed transaction if the decision is a commit.

    Raises:
        OrderError: a subtransaction of it has rolled back as one of another transaction.
    """
    message = item.message
    if isinstance(message, m.StreamAbort):
        state.open.abort(message.xid, message.subxid)
        return None
    if isinstance(message, m.Prepare):
        path, offset = walked.where(item.offset)
        empty = Deferred(
            message.xid,
            path,
            offset,
            message.gid,
            complete=True,
            streamed=False,
            lsn=message.prepare_lsn,
            since=message.prepare_time,
        )
        state.open.prepared.setdefault((message.gid, message.xid), empty)
        return None
    if isinstance(message, m.RollbackPrepared):
        state.open.roll_back(message.gid, message.xid)
        return None
    if isinstance(message, m.StreamPrepare):
        prepared = _take_stream(state, message.xid, item, walked)
        if prepared is not None:
            state.open.prepare_stream(prepared, message)
        return None
    resent = message.commit_lsn <= walked.before.high_lsn
    if isinstance(message, m.StreamCommit):
        decided = _take_stream(state, message.xid, item, walked)
    else:
        decided = state.open.prepared.pop((message.gid, message.xid), None)
        if decided is None and not resent:
            path, offset = walked.where(item.offset)
            state.warnings.append(
                f"{path}, offset {offset:,}: transaction {message.xid} (commit LSN "
                f"{format_lsn(message.commit_lsn)}) was prepared, but its rows are not there: "
                "it was empty, or the file with its Prepare is missing"
            )
    return _commit(state, decided, message, item, walked, resent=resent)


def _take_stream(state: StitchState, xid: int, item: Decided, walked: Walk) -> Deferred | None:
    found = state.open.streams.pop(xid, None)
    if found is not None and state.open.is_partly_gone(found):
        path, offset = walked.where(item.offset)
        raise OrderError(
            f"a subtransaction of the streamed transaction {xid} has rolled back as one of another transaction",
            path=path,
            offset=offset,
            remedy="The file is damaged; fetch it from its source again",
        )
    return found


def _commit(
    state: StitchState,
    decided: Deferred | None,
    message: m.StreamCommit | m.CommitPrepared,
    item: Decided,
    walked: Walk,
    *,
    resent: bool,
) -> Committed | None:
    lsn, time = message.commit_lsn, message.commit_time
    origin = decided.origin if decided is not None else None
    applied = not resent and state.wants_origin(origin)
    path, offset = walked.where(item.offset)
    state.decided.append(
        DecidedTransaction(
            commit_lsn=lsn,
            commit_time=time,
            xid=message.xid,
            gid=message.gid if isinstance(message, m.CommitPrepared) else None,
            origin=origin,
            applied=applied,
            resent=resent,
            complete=decided is not None,
            session=walked.before.session,
            path=path,
            offset=offset,
        )
    )
    state.resent += resent
    state.transactions += not resent
    if decided is None:
        return None
    state.versions.take_over(decided, holds_outside=isinstance(message, m.StreamCommit))
    state.layouts.add(decided.layouts, decided.aborted)
    if not decided.streamed:
        # What it has announced to be in force was read without what it said of the columns.
        for layout in decided.layouts:
            known = None if layout.enum is not None else state.versions.known(layout.oid)
            if known is not None:
                state.versions.announce(state.layouts.told(known.relation))
    # Labels may have been renamed since it has announced its tables, or by itself.
    renames = any(layout.enum is not None for layout in decided.layouts)
    state.tell_anew(None if renames else decided.view)
    starts, truncates = decided.ordinals()
    if applied:
        for oid, ordinal in truncates:
            state.truncates.note(TruncateAt(oid, lsn, ordinal, origin))
    if all(segment.is_empty for segment in decided.segments):
        return Committed(lsn, time, None) if decided.view else None
    commit = Commit(decided, tuple(starts), lsn, time, walked.before.session, applied=applied, resent=resent)
    return Committed(lsn, time, commit)

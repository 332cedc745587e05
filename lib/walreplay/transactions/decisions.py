"""What becomes of streamed and prepared transactions: the messages that prepare, commit or abort them."""

from __future__ import annotations

from typing import NamedTuple

from walreplay.decode.place import Place
from walreplay.decode.summary import Decided, TruncateAt
from walreplay.errors import OrderError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.transactions.deferred import Deferred
from walreplay.transactions.plan import DecidedTransaction
from walreplay.transactions.schedule import Commit
from walreplay.transactions.state import MISSING, StitchState, Walk


class Committed(NamedTuple):
    """A decision that commits.

    Attributes:
        commit: what is to be decoded of it; None where it only announces.
    """

    commit: Commit | None


def decide(state: StitchState, item: Decided, walked: Walk, before: Place) -> Committed | None:
    """Follow a decision; give what comes of it when it commits."""
    message = item.message
    if isinstance(message, m.StreamAbort):
        state.open.abort(message.xid, message.subxid)
        return None
    if isinstance(message, m.Prepare):
        path, offset = state.where(walked.scan, walked.part, item.offset)
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
        if not state.open.roll_back(message.gid, message.xid):
            _check_known(state, message, item, walked)
        return None
    if isinstance(message, m.StreamPrepare):
        prepared = _take_stream(state, message.xid, item, walked)
        if prepared is not None:
            state.open.prepare_stream(prepared, message)
        return None
    resent = message.commit_lsn <= before.high_lsn
    if isinstance(message, m.StreamCommit):
        decided = _take_stream(state, message.xid, item, walked)
    else:
        decided = state.open.prepared.pop((message.gid, message.xid), None)
        if decided is None and not resent:
            _check_known(state, message, item, walked)
            path, offset = state.where(walked.scan, walked.part, item.offset)
            state.warnings.append(
                f"{path}, offset {offset:,}: transaction {message.xid} (commit LSN "
                f"{format_lsn(message.commit_lsn)}) was prepared, but its rows are not there: "
                "it was empty, or the file with its Prepare is missing"
            )
    return _commit(state, decided, message, item, walked, resent=resent)


def _check_known(
    state: StitchState, message: m.CommitPrepared | m.RollbackPrepared, item: Decided, walked: Walk
) -> None:
    """Refuse a decision on a transaction that was prepared as another one."""
    if not state.open.contradicts(message):
        return
    path, offset = state.where(walked.scan, walked.part, item.offset)
    state.refuse_gap(
        OrderError(
            f"a {type(message).__name__} decides on transaction {message.xid}, but its gid, or its xid, is not the one "
            "that it was prepared with",
            path=path,
            offset=offset,
            remedy="The file is damaged, or what decided on the transaction of that gid is missing; fetch it from its "
            "source again",
        )
    )


def _take_stream(state: StitchState, xid: int, item: Decided, walked: Walk) -> Deferred | None:
    found = state.open.streams.pop(xid, None)
    if found is None:
        path, offset = state.where(walked.scan, walked.part, item.offset)
        state.refuse_gap(
            OrderError(
                f"the streamed transaction {xid} ends, but none of its blocks is there",
                path=path,
                offset=offset,
                remedy=MISSING,
            )
        )
    elif state.open.is_partly_gone(found):
        path, offset = state.where(walked.scan, walked.part, item.offset)
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
    origin = decided.origin if decided is not None else None
    applied = not resent and state.wants_origin(origin)
    path, offset = state.where(walked.scan, walked.part, item.offset)
    state.decided.append(
        DecidedTransaction(
            commit_lsn=message.commit_lsn,
            commit_time=message.commit_time,
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
    starts, truncates = decided.ordinals()
    if applied:
        for oid, ordinal in truncates:
            state.truncates.note(TruncateAt(oid, message.commit_lsn, ordinal, origin))
    if all(segment.is_empty for segment in decided.segments):
        return Committed(None) if decided.view else None
    return Committed(
        Commit(
            decided,
            tuple(starts),
            message.commit_lsn,
            message.commit_time,
            walked.before.session,
            applied=applied,
            resent=resent,
        )
    )


def committed_at(item: Decided) -> tuple[int, int]:
    """Give the commit LSN and time of a decision that commits."""
    assert isinstance(item.message, (m.StreamCommit, m.CommitPrepared))
    return item.message.commit_lsn, item.message.commit_time

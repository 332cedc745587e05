"""The streamed and prepared transactions that are open at a place of the stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from walreplay.decode.place import Place
from walreplay.protocol import messages as m
from walreplay.transactions.deferred import Deferred


class OpenTransactions:
    """Transactions whose rows have come, in part or completely, and of which it is not known whether they commit.

    ====================  ======================  =======================================================
    a transaction is      by the message          then it is
    ====================  ======================  =======================================================
    not known             Stream Start            in `streams`
    not known             Begin Prepare           the `body`
    not known             Prepare                 in `prepared`: it is empty
    in `streams`          Stream Abort            not known; of a subtransaction: there, without its rows
    in `streams`          Stream Commit           committed
    in `streams`          Stream Prepare          in `prepared`
    the `body`            Prepare                 in `prepared`
    in `prepared`         Commit Prepared         committed
    in either             Rollback Prepared       not known
    `streams`, the body   the session's end       not known: it comes again from its start
    ====================  ======================  =======================================================

    Attributes:
        streams: streamed transactions by xid.
        prepared: prepared transactions by gid and xid; they outlive their session.
        body: the transaction that is being prepared, between its Begin Prepare and its Prepare; None if there is none.
        gone: the session's subtransactions that have rolled back before anything of them was streamed.
    """

    def __init__(self) -> None:
        self.streams: dict[int, Deferred] = {}
        self.prepared: dict[tuple[str, int], Deferred] = {}
        self.body: Deferred | None = None
        self.gone: set[int] = set()

    def take_up(self, deferred: Iterable[Deferred]) -> None:
        """Continue with the transactions that the last run has left open."""
        for item in deferred:
            # A copy, because the run may be planned again from the same transactions.
            copied = _copied(item)
            if copied.gid is None:
                self.streams[copied.xid] = copied
            elif copied.complete:
                self.prepared[copied.gid, copied.xid] = copied
            else:
                self.body = copied

    def copied(self) -> OpenTransactions:
        """Give the same, which does not change with these."""
        other = OpenTransactions()
        other.streams = {xid: _copied(item) for xid, item in self.streams.items()}
        other.prepared = dict(self.prepared)
        other.body = None if self.body is None else _copied(self.body)
        other.gone = set(self.gone)
        return other

    @property
    def deferred(self) -> tuple[Deferred, ...]:
        """All of them, the oldest first."""
        found = [*self.prepared.values(), *self.streams.values(), *([self.body] if self.body else [])]
        return tuple(sorted(found, key=lambda item: (item.since or 0, item.xid)))

    def begin_body(self, item: Deferred) -> None:
        """Begin a transaction that is being prepared; what was streamed of it before is discarded."""
        self.streams.pop(item.xid, None)
        self.body = item

    def prepare_body(self, item: Deferred, gid: str) -> None:
        """Turn the body into a prepared transaction."""
        item.complete = True
        self.prepared[gid, item.xid] = item
        self.body = None

    def prepare_stream(self, item: Deferred, message: m.StreamPrepare) -> None:
        """Add a prepared transaction that was streamed; the caller has removed it from the streams."""
        item.gid, item.complete = message.gid, True
        item.lsn, item.since = message.prepare_lsn, message.prepare_time
        self.prepared[message.gid, message.xid] = item

    def abort(self, xid: int, subxid: int) -> None:
        """Remove a streamed transaction, or the rows of a subtransaction."""
        if xid == subxid:
            self.streams.pop(xid, None)
        elif xid in self.streams:
            self.streams[xid].aborted.add(subxid)
        else:
            self.gone.add(subxid)

    def is_partly_gone(self, item: Deferred) -> bool:
        """Say whether a transaction has rows of a subtransaction that has rolled back as part of another one."""
        return any(segment.rows.among(self.gone) for segment in item.segments)

    def roll_back(self, gid: str, xid: int) -> bool:
        """Remove a transaction by a Rollback Prepared, even if it is still streamed; say whether it was prepared."""
        self.streams.pop(xid, None)
        return self.prepared.pop((gid, xid), None) is not None

    def contradicts(self, message: m.CommitPrepared | m.RollbackPrepared) -> bool:
        """Say whether a decision's xid was prepared with another gid, or a commit's gid with another xid.

        A rollback's gid may be another transaction's: it may be used again, and the old rollback may be sent again.
        """
        is_commit = isinstance(message, m.CommitPrepared)
        return any(xid == message.xid or (is_commit and gid == message.gid) for gid, xid in self.prepared)

    def end_session(self, before: Place, *, late: bool) -> None:
        """End a session: its streamed transactions are discarded, because they are sent again from their start.

        Args:
            before: the place where the session ends.
            late: only an LSN shows that the session has ended.  So transactions that began after its last commit may
                belong to the new session, and are kept.
        """
        self.streams = {
            xid: item
            for xid, item in self.streams.items()
            if late and item.after_lsn == before.last_lsn and before.stream != xid
        }
        self.gone.clear()

    def lose(self) -> None:
        """Discard transactions that cannot continue, because bytes are missing."""
        self.streams, self.body = {}, None


def _copied(item: Deferred) -> Deferred:
    return replace(
        item,
        segments=list(item.segments),
        view=dict(item.view),
        former=list(item.former),
        types=dict(item.types),
        aborted=set(item.aborted),
        layouts=list(item.layouts),
    )


__all__ = ["OpenTransactions"]

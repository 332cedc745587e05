"""A walsender: it decodes a server's WAL and sends it as pgoutput, one session after the other.

Every session decodes the WAL from its beginning, with nothing remembered: what has committed, or was prepared, before
the place it starts from is left out, and so are streamed blocks until that place is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from struct import Struct
from typing import Final

from support.framings import Keepalive
from support.simulator_server import MOOD, Change, Event, Sub, Txn
from support.wire import encode
from walreplay.protocol import messages as m

_XID: Final = Struct("!I").pack


@cache
def _announcements(relation: m.Relation) -> list[bytes]:
    """Return the messages that announce a relation: the types that are not built in, then itself."""
    has_mood = any(column.type_oid == MOOD.oid for column in relation.columns)
    return [*([encode(MOOD)] if has_mood else []), encode(relation)]


@dataclass(frozen=True)
class Options:
    """What the client asked for.

    Attributes:
        skips_empty: transactions of which nothing is published are not sent (since version 15 of PostgreSQL).
        keepalives: one comes behind so many messages; 0 for none.
    """

    version: int = 1
    streaming: bool = False
    parallel: bool = False
    two_phase: bool = False
    skips_empty: bool = False
    keepalives: int = 0


@dataclass(slots=True, eq=False)
class Sent:
    """A message, or a keepalive, as it went out.

    Attributes:
        event: the place in the WAL that made it be sent.
        mark: what it means: begin, begin_prepare, end (Commit), commit, abort, prepare, forget (rolled back after it
            was prepared), start (of a stream's first block), block, stop, loose; empty for all others.
        streamed: it stands inside a block.
    """

    payload: bytes | Keepalive
    lsn: int
    time: int
    xid: int
    event: int
    mark: str = ""
    txn: Txn | None = None
    streamed: bool = False

    @property
    def tag(self) -> bytes:
        """The message's first byte; none for a keepalive."""
        return self.payload[:1] if isinstance(self.payload, bytes) else b""


@dataclass(slots=True, eq=False)
class _Queue:
    """What is known of a transaction that has not ended.

    Attributes:
        waiting: what has not been streamed.
        streamed: the subtransactions of which something was.
        relations: those announced inside its blocks, by their oids.
        altered: the oids of those that what was sent of it has altered.
    """

    txn: Txn
    waiting: list[Change] = field(default_factory=list)
    streamed: set[Sub] = field(default_factory=set)
    started: bool = False
    relations: dict[int, m.Relation] = field(default_factory=dict)
    altered: set[int] = field(default_factory=set)


class Walsender:
    """One session.

    Args:
        start: the confirmed place in the WAL.
        known: what was rolled back before this place of the WAL is known to be, and is not streamed.
        limit: more changes than that, of all transactions together, make the largest be streamed.
    """

    def __init__(self, options: Options, *, start: int, known: int, limit: int) -> None:
        self.sent: list[Sent] = []
        self._options = options
        self._start = start
        self._known = known
        self._limit = limit
        self._queues: dict[Txn, _Queue] = {}
        self._total = 0
        self._announced: dict[int, m.Relation] = {}
        self._at = 0
        self._event: Event
        self._in_block = False

    def decode(self, wal: Sequence[Event], end: int) -> None:
        """Decode the WAL up to a place."""
        for at in range(end):
            self._at, self._event = at, wal[at]
            getattr(self, f"_on_{self._event.what}")(self._event)

    @property
    def _sends(self) -> bool:
        return self._at >= self._start

    # Records of the WAL.

    def _on_change(self, event: Event) -> None:
        txn, change = event.txn, event.change
        assert txn is not None
        assert change is not None
        queue = self._queues.get(txn)
        if queue is None:
            queue = self._queues[txn] = _Queue(txn)
        if self._is_known_gone(txn.gone) or self._is_known_gone(change.sub.undone):
            return
        queue.waiting.append(change)
        self._total += 1
        if self._options.streaming and self._sends and self._total > self._limit:
            self._block(max(self._queues.values(), key=lambda queue: len(queue.waiting)))

    def _is_known_gone(self, where: int | None) -> bool:
        return where is not None and where < self._known

    def _on_loose(self, event: Event) -> None:
        if self._sends:
            assert event.content is not None
            prefix, content = event.content
            self._send(encode(m.Message(False, event.lsn, prefix, content)), event.lsn, 0, "loose")

    def _on_announce(self, event: Event) -> None:
        self._invalidate(event.oid)

    def _invalidate(self, oid: int) -> None:
        """Forget that a relation was announced, wherever."""
        self._announced.pop(oid, None)
        for queue in self._queues.values():
            queue.relations.pop(oid, None)

    def _on_connect(self, event: Event) -> None:
        """Abort what a crash ended, as far as it was streamed: nobody knows where and when."""
        for txn in event.dead:
            queue = self._take(txn)
            if queue is not None and queue.started:
                self._abort(txn, txn.top, nowhere=True)

    def _on_undo(self, event: Event) -> None:
        assert event.txn is not None
        queue = self._queues.get(event.txn)
        if queue is not None:
            self._undo(queue, event.subs)

    def _undo(self, queue: _Queue, subs: Sequence[Sub]) -> None:
        undone = set(subs)
        before = len(queue.waiting)
        queue.waiting = [change for change in queue.waiting if change.sub not in undone]
        self._total -= before - len(queue.waiting)
        for sub in subs:
            if sub in queue.streamed:
                queue.streamed.remove(sub)
                self._abort(queue.txn, sub)

    def _on_abort(self, event: Event) -> None:
        assert event.txn is not None
        queue = self._take(event.txn)
        if queue is not None and queue.started:
            self._undo(queue, event.subs)
            self._abort(event.txn, event.txn.top)

    def _on_commit(self, event: Event) -> None:
        txn = event.txn
        assert txn is not None
        queue = self._take(txn)
        if self._sends:
            assert queue is not None
            self._commit(txn, queue)

    def _on_prepare(self, event: Event) -> None:
        txn = event.txn
        assert txn is not None
        if not self._options.two_phase:
            return
        queue = self._take(txn) or _Queue(txn)
        if not self._sends:
            return
        fields = (txn.prepare_lsn, txn.prepare_end, txn.prepare_time, txn.xid, txn.gid or "")
        if queue.started:
            self._block(queue)
            self._send(encode(m.StreamPrepare(0, *fields)), txn.prepare_end, txn.xid, "prepare", txn)
            return
        mode = 0 if any(change.tag for change in queue.waiting) else txn.empty
        if self._is_known_gone(txn.gone):
            # It was not empty; that it is prepared is sent, for its rollback will be.
            mode = min(mode, 1)
        if mode == 0:
            self._send(encode(m.BeginPrepare(*fields)), txn.first_lsn, txn.xid, "begin_prepare", txn)
            self._changes(queue)
        if mode < 2:
            self._send(encode(m.Prepare(0, *fields)), txn.prepare_end, txn.xid, "prepare", txn)

    def _on_commit_prepared(self, event: Event) -> None:
        txn = event.txn
        assert txn is not None
        if self._options.two_phase:
            if self._sends:
                message = m.CommitPrepared(0, txn.commit_lsn, txn.commit_end, txn.commit_time, txn.xid, txn.gid or "")
                self._send(encode(message), txn.commit_end, txn.xid, "commit", txn)
            return
        queue = self._take(txn)
        if self._sends:
            # Prepared with nothing written: nothing was decoded of it.
            self._commit(txn, queue or _Queue(txn))

    def _on_rollback_prepared(self, event: Event) -> None:
        txn = event.txn
        assert txn is not None
        if self._options.two_phase:
            if self._sends:
                times = (txn.prepare_time, event.time)
                message = m.RollbackPrepared(0, txn.prepare_end, event.lsn + 16, *times, txn.xid, txn.gid or "")
                self._send(encode(message), event.lsn, txn.xid, "forget", txn)
            return
        self._on_abort(event)

    # What is sent.

    def _take(self, txn: Txn) -> _Queue | None:
        queue = self._queues.pop(txn, None)
        if queue is not None:
            self._total -= len(queue.waiting)
        return queue

    def _send(self, payload: bytes, lsn: int, xid: int, mark: str = "", txn: Txn | None = None) -> None:
        time = self._event.time
        self.sent.append(Sent(payload, lsn, time, xid, self._at, mark, txn, self._in_block))
        period = self._options.keepalives
        if period and len(self.sent) % (period + 1) == period:
            self.sent.append(Sent(Keepalive(lsn, time, len(self.sent) % 2 == 0), lsn, time, 0, self._at))

    def _commit(self, txn: Txn, queue: _Queue) -> None:
        if queue.started:
            self._block(queue)
            message = m.StreamCommit(txn.xid, 0, txn.commit_lsn, txn.commit_end, txn.commit_time)
            self._send(encode(message), txn.commit_end, txn.xid, "commit", txn)
            self._announced |= queue.relations
            self._end(queue)
            return
        if self._options.skips_empty and not any(change.tag for change in queue.waiting):
            return
        self._send(encode(m.Begin(txn.commit_lsn, txn.commit_time, txn.xid)), txn.first_lsn, txn.xid, "begin", txn)
        self._changes(queue)
        commit = m.Commit(0, txn.commit_lsn, txn.commit_end, txn.commit_time)
        self._send(encode(commit), txn.commit_end, txn.xid, "commit", txn)

    def _changes(self, queue: _Queue) -> None:
        """Send the origin and what is waiting, outside of a stream."""
        txn = queue.txn
        if txn.origin is not None:
            self._send(encode(m.Origin(*txn.origin)), txn.first_lsn, txn.xid)
        for change in queue.waiting:
            self._announce(change, txn.xid, self._announced, b"")
            if change.tag:
                self._send(change.tag + change.body, change.lsn, txn.xid)
            queue.altered |= {change.altered} - {0}
        self._end(queue)

    def _end(self, queue: _Queue) -> None:
        """Forget, behind each part of a transaction, that the relations were announced that it has altered."""
        for oid in queue.altered:
            self._invalidate(oid)
            queue.relations.pop(oid, None)

    def _block(self, queue: _Queue) -> None:
        """Stream what is waiting; without anything there is no block."""
        if not queue.waiting:
            return
        txn, first = queue.txn, not queue.started
        queue.started = True
        mark = "start" if first else "block"
        self._send(encode(m.StreamStart(txn.xid, first)), txn.first_lsn, txn.xid, mark, txn)
        self._in_block = True
        if first and txn.origin is not None:
            self._send(encode(m.Origin(*txn.origin)), txn.first_lsn, txn.xid)
        for change in queue.waiting:
            xid = _XID(change.sub.xid)
            self._announce(change, txn.xid, queue.relations, xid)
            if change.tag:
                self._send(change.tag + xid + change.body, change.lsn, txn.xid)
            queue.streamed.add(change.sub)
            queue.altered |= {change.altered} - {0}
        self._in_block = False
        self._send(encode(m.StreamStop()), queue.waiting[-1].lsn, txn.xid, "stop", txn)
        if txn in self._queues:
            self._total -= len(queue.waiting)
        queue.waiting = []
        self._end(queue)

    def _announce(self, change: Change, top: int, announced: dict[int, m.Relation], xid: bytes) -> None:
        """Send the relations of a change that were not, with the xid of its subtransaction inside a stream."""
        for relation in change.relations:
            if announced.get(relation.oid) != relation:
                announced[relation.oid] = relation
                for wire in _announcements(relation):
                    self._send(wire[:1] + xid + wire[1:], change.lsn, top)

    def _abort(self, txn: Txn, sub: Sub, *, nowhere: bool = False) -> None:
        where: tuple[int, ...] = ()
        if self._options.parallel:
            where = (0, 0) if nowhere or self._event.step[4] % 4 == 3 else (self._event.lsn, self._event.time)
        mark = "abort" if sub is txn.top else ""
        self._send(encode(m.StreamAbort(txn.xid, sub.xid, *where)), self._event.lsn, txn.xid, mark, txn)

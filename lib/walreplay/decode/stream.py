"""Walk a stretch of a stream: the kernel for the frequent messages, the scalar reader for the others.

`walk_state` keeps the state of a walk.  `StreamWalker` follows the messages, and leaves to its subclasses what they
make of them: `scan.Scanner` gathers a summary, `decoder.Decoder` gathers rows.

`Uses` has which relations the rows of a walk use under which names, in order; this decides to which table a name
belongs.  Every committed row counts, even if a truncate removes it or the configuration leaves it out.  Copies and rows
that have rolled back do not count.  A relation is announced again before rows use it under another name.  So one use
for each announcement is enough, and only the order of uses of the same name, or of the same relation, matters.  The
walk says which slot a row is the first to use (`Uses.note_use`); the slot's counts show later whether that row counts.

Invariant: ``_waiting`` has, by oid, the slots that were used but had no counted row when they were last looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeGuard

import numpy as np

from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.frames import EARLIEST, FRAMING_CODES, LATEST, Outcome, end_of_frame
from walreplay.decode.placing import Tile
from walreplay.decode.walk import truncate_digest
from walreplay.decode.walk_state import (
    BETWEEN,
    DAMAGED,
    LEGAL,
    NEW_SESSION,
    NO_TIME,
    STARTERS,
    WalkState,
    Where,
    error_of,
    is_of_no_transaction,
    not_after_last,
    time_of,
)
from walreplay.errors import (
    CaptureError,
    MalformedMessage,
    NotSupported,
    OrderError,
    TruncatedMessage,
    UnknownRelation,
)
from walreplay.protocol import messages as m
from walreplay.protocol.compression import MAX_BYTES
from walreplay.protocol.framing import read_pgcopy_mark

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from walreplay.decode.walk import RelationSlots


FIRST_OWN_OID: Final = 16_384
"""PostgreSQL's FirstNormalObjectId.  Of a type from here on a Type message tells, in front of the Relation."""

_LSNS: Final = ("lsn", "commit_lsn", "prepare_lsn", "rollback_end_lsn")  # those that are kept


class StreamWalker(WalkState):
    """Walk one buffer after the other, from a known place or a guessed one; `WalkState` says of what."""

    allows_session_end: ClassVar[bool] = False
    """Whether a new session ends the walk; it is an error else."""

    def walk(self, data: bytes | memoryview, start: int = 0, stop_at: int | None = None) -> Iterator[Tile]:
        """Walk the whole messages of a buffer from ``start``; yield the tiles, leave `position` behind the last.

        Args:
            data: the bytes; an unfinished message at their end is left alone.
            start: where a message (or frame) begins.
            stop_at: stop at the first boundary at or behind this offset.

        Raises:
            CaptureError: with the offset in ``data`` of what cannot be.
            NotSupported: offsets would need more than 31 bits.
        """
        kernel, state = self.kernel, self.kernel.state
        # Arrow gives buffers of signed bytes.
        self._view = memoryview(data).cast("B")
        buf = np.frombuffer(data, np.uint8)
        end = len(buf)
        if end > MAX_BYTES:  # kernels would read in front of the bytes
            raise NotSupported(
                f"the file has {end:,} bytes, and at most {MAX_BYTES:,} can be read as one",
                remedy="Split it anywhere, by `split -b 1G -d FILE FILE.`; and take it away, as its parts stand for it",
            )
        stop = end if stop_at is None else min(stop_at, end)
        state[words.POS] = start
        state[words.CLOSED] = self.ends_session
        self.stopped_at_session = False
        while True:
            position = int(state[words.POS])
            tile_end = min(stop, position + kernel.tile_bytes) if kernel.want else stop
            outcome = kernel.walk(buf, end, tile_end)
            if outcome in (Outcome.TILE, Outcome.NOT_PLACED, Outcome.DONE, Outcome.INCOMPLETE):
                tile = kernel.take_tile()
                if tile is not None:
                    yield tile
                self.on_records()
                # After NOT_PLACED, the caller has provided what the row needs, and the kernel repeats it.
                if outcome not in (Outcome.TILE, Outcome.NOT_PLACED) or state[words.POS] >= stop:
                    return
            elif outcome is Outcome.NEW_RELATION:
                self._need_slot(int(state[words.ARGUMENT]), int(state[words.MESSAGE]))
            elif outcome is Outcome.RUNS:
                self.on_runs()
            elif outcome in (Outcome.EVENT, Outcome.HEAD_COMMIT):
                if not self._event(buf):
                    tile = kernel.take_tile()
                    if tile is not None:
                        yield tile
                    return
            elif outcome is Outcome.BEHIND:
                self.passed_stop = True
                return
            elif outcome in NEW_SESSION and self._stop_at_session(shown_by_lsn_only=outcome is Outcome.NOT_AFTER_LAST):
                return
            else:
                raise self._problem(outcome)

    # What subclasses make of the rare messages.

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Take note of a message that the kernel does not walk by itself, once the walk's state has followed it."""

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        """Return the number of columns of a relation that was not announced (-1: any), or raise."""
        raise UnknownRelation(
            f"a row change names relation {oid}, but no Relation message announced it",
            offset=offset,
            remedy="A capture has to begin where its session began; the file before this one is missing",
        )

    def annotated(self, message: m.Relation) -> m.Relation:
        """Return a Relation message with what else is known of its columns."""
        return message

    def on_first_use(self, slot: int) -> None:
        """Take note of a slot that a row, or a truncate, is the first to name, or the first since it was watched."""

    def is_foreign(self, oid: int) -> bool:
        """Return whether nothing has announced a relation whose transaction was read from its start.

        A streamed transaction announces by itself all that it uses.
        """
        announced = self.open_streams.announced(self.stream_xid)
        return announced is not None and oid not in announced and oid not in self.relations

    def on_head_commit(self, commit: m.Commit) -> None:
        """Take note of the Commit of a transaction that began before a guessed start."""

    def on_stream_commit(self, xid: int) -> None:
        """Take any columns for what a streamed transaction has announced: outside of it, too, that holds now."""
        slots = self.kernel.slots
        announced = self.open_streams.end(xid)
        for oid in {*slots.oids, *self.relations} if announced is None else announced:
            self.relations.pop(oid, None)
            if slots.slot_of(oid) is not None:
                self.slot_relations.append(None)
                slots.add(oid, -1)  # any number of columns

    def on_records(self) -> None:
        """Take the records of transactions, for which room is needed."""

    def on_runs(self) -> None:
        """Take the counts of a streamed block's rows, for which there is no more room."""
        self.kernel.take_runs()

    # The rare messages.

    def _stop_at_session(self, *, shown_by_lsn_only: bool = False) -> bool:
        """End the walk at a new session, where that is allowed and the start was no guess.

        Args:
            shown_by_lsn_only: only a commit LSN shows it, so messages before it may belong to the new session already.
        """
        self.shown_by_lsn_only = shown_by_lsn_only
        # Behind a guess an illegal message only shows that the guess is wrong.
        self.stopped_at_session = self.allows_session_end and self.kernel.state[words.TXN] != words.UNKNOWN_HEAD
        return self.stopped_at_session

    def _need_slot(self, oid: int, offset: int) -> int:
        slots = self.kernel.slots
        slot = slots.slot_of(oid)
        if slot is None:
            relations = self.relations if self._inner is None else self._inner
            relation = relations.get(oid)
            columns = len(relation.columns) if relation is not None else self.on_unknown_relation(oid, offset)
            self.slot_relations.append(relation)
            slot = slots.add(oid, columns, relation)
        elif not slots.newest.unwatch(oid):  # a Truncate, of a version whose use is noted
            return slot
        self.on_first_use(slot)
        return slot

    def _event(self, buf: NDArray[np.uint8]) -> bool:
        """Handle the message at ``state[MESSAGE]``; False when the walk ends in front of it."""
        state = self.kernel.state
        offset, payload_end = int(state[words.MESSAGE]), int(state[words.LIMIT])
        if self.framing.layout.is_row and offset == state[words.POS]:  # no message, but a header or a trailer
            return self._step_over_mark(offset)
        if self.stream_xid is not None and is_of_no_transaction(self._view, offset, payload_end):
            return self._outside_only(offset)
        streaming = bool(state[words.STREAM])  # messages of a block have an xid
        try:
            message, end = self._announced.read_message(self._view[:payload_end], offset, streaming=streaming)
        except TruncatedMessage as error:
            if self.framing.is_sized:  # all of the frame is there
                raise self._problem(Outcome.OVERRUN) from error
            return False
        except CaptureError as error:
            error.remedy = error.remedy or DAMAGED
            raise
        # With streaming = parallel, LSN and time follow the two xids.
        is_short_abort = isinstance(message, m.StreamAbort) and message.abort_lsn is None
        if is_short_abort and self.framing.is_open_ended and end == len(buf) and not self.is_last_buffer:
            return False  # sixteen bytes more may follow in the next file
        end = end_of_frame(buf, end, payload_end, FRAMING_CODES[self.framing], self.ends_session)
        if end == -Outcome.INCOMPLETE:  # the newline may follow in the next file
            return False
        if end < 0:
            raise self._problem(Outcome(-end))
        try:
            if not self._take(message, offset):
                return False
        except OverflowError:  # the state's words are signed
            raise MalformedMessage("an LSN is beyond any that there can be", offset=offset, remedy=DAMAGED) from None
        state[words.PREVIOUS] = state[words.POS]
        state[words.POS] = end
        state[words.MESSAGES] += 1
        self.on_message(message, offset)
        if isinstance(message, m.Truncate) and not self._is_aborted(message.xid):
            state[words.ORDINAL] += 1
        return True

    def _outside_only(self, offset: int) -> bool:
        """End the walk at a logical message of no transaction where one is open: it comes between them only."""
        if self._stop_at_session():
            return False
        raise OrderError(f"a Message of no transaction stands {self._where().value}", offset=offset, remedy=DAMAGED)

    def _is_aborted(self, xid: int | None) -> bool:
        return xid is not None and xid in self.kernel.aborted

    def _step_over_mark(self, offset: int) -> bool:
        """Step over a header or a trailer of PGCOPY; either may be cut by the end of the file."""
        try:
            end, is_header = read_pgcopy_mark(self._view, offset)
        except TruncatedMessage:
            return False
        except CaptureError as error:
            error.remedy = DAMAGED
            raise
        if is_header and self._has_begun and self._stop_at_session():
            return False  # each COPY is a session of its own
        self.kernel.state[words.POS] = end
        return True

    def _take(self, message: m.AnyMessage, offset: int) -> bool:
        """Let the state follow a message; False when a new session begins with it."""
        where = self._where()
        if isinstance(message, m.Commit):
            self._take_head_commit(message)
            return True
        if not self._may_stand(message, where, offset):
            return False
        if isinstance(message, (m.StreamCommit, m.CommitPrepared)):
            return self._take_decision(message, offset)
        # Such messages come between transactions only, so none was open at the guessed start.
        if where is Where.UNKNOWN and (_is_loose(message) or isinstance(message, BETWEEN)):
            if self.kernel.state[words.ORDINAL] > 0:
                # A transaction that ends otherwise than by a Commit: the guess does not know which.
                raise OrderError(f"a {type(message).__name__} message stands {where.value}", offset=offset)
            self.kernel.state[words.TXN] = words.IDLE
        if isinstance(message, m.Type):
            self._type_oids.add(message.oid)
        elif isinstance(message, m.Relation):
            self._take_relation(self.annotated(message), offset)
        elif isinstance(message, m.Truncate) and not self._is_aborted(message.xid):
            self._take_truncate(message, offset)
        elif _is_loose(message):
            self.is_new_message = message.lsn > self._message_lsn
            self._message_lsn = max(message.lsn, self._message_lsn)
        elif isinstance(message, m.Origin):
            self._set_origin(message.name)
        elif isinstance(message, m.BeginPrepare):
            self._open(message.prepare_lsn, message.prepare_time, message.xid, 0)
            self.kernel.state[words.BEGIN_AT] = self.kernel.state[words.POS]
            self.gid = message.gid
            self._enter(self.inner_relations(message.xid))
        elif isinstance(message, m.Prepare) and where is Where.PREPARED:
            return self._take_prepare(message, offset)
        elif isinstance(message, m.StreamStart):
            if message.first_segment:
                self.open_streams.begin(message.xid, int(self.kernel.state[words.POS]))
            self._check_may_go_on(message.xid, offset)
            self._enter_stream(message.xid, self.inner_relations(message.xid))
        elif isinstance(message, m.StreamStop):
            self.kernel.state[words.STREAM] = 0
            self.stream_xid = None
            self._leave(keep=False)
        return True

    def _may_stand(self, message: m.AnyMessage, where: Where, offset: int) -> bool:
        """Check that a message is legal where it stands; False when a new session begins with it."""
        if _is_loose(message) and where in (Where.TRANSACTION, Where.PREPARED):
            return self._outside_only(offset)
        if not isinstance(message, LEGAL[where]) or (
            where is Where.OUTSIDE and isinstance(message, m.Message) and message.transactional
        ):
            if isinstance(message, STARTERS) and self._stop_at_session():  # the session before was cut off
                return False
            raise OrderError(f"a {type(message).__name__} message stands {where.value}", offset=offset, remedy=DAMAGED)
        if not EARLIEST <= time_of(message) <= LATEST:
            raise MalformedMessage(NO_TIME, offset=offset, remedy=DAMAGED)
        if any(getattr(message, name, 0) >> 63 for name in _LSNS):  # such a commit would pass for one behind the stop
            raise OverflowError
        if isinstance(message, (m.StreamCommit, m.StreamPrepare)):
            self._check_may_go_on(message.xid, offset)
        return True

    def _take_prepare(self, message: m.Prepare, offset: int) -> bool:
        """Take the end of the prepared transaction that is open."""
        state = self.kernel.state
        if (message.gid, message.xid) != (self.gid, state[words.XID]):
            # An empty transaction is prepared by a Prepare alone; a session may begin with it.  But one with this very
            # LSN is what was begun, and damage has changed its gid or its xid.
            if message.prepare_lsn != state[words.LSN] and self._stop_at_session():
                return False
            raise OrderError("the Prepare is not that of the transaction that is open", offset=offset)
        state[words.TXN] = words.IDLE
        self.gid = None
        self._leave(keep=True)  # its Relation messages are not repeated
        return True

    def _check_may_go_on(self, xid: int, offset: int) -> None:
        if self.allows_session_end and self.open_streams.must_restart(xid):
            raise OrderError(
                f"the stream of transaction {xid} goes on, but a new session has not begun it again",
                offset=offset,
                remedy=DAMAGED,
            )

    def _take_head_commit(self, message: m.Commit) -> None:
        state = self.kernel.state
        self.on_head_commit(message)
        state[words.TXN] = words.IDLE
        state[words.TRANSACTIONS] += 1
        self._note_commit(message.commit_lsn, message.commit_time)

    def _take_decision(self, message: m.StreamCommit | m.CommitPrepared, offset: int) -> bool:
        """Take a commit that stands alone."""
        state = self.kernel.state
        if message.end_lsn < message.commit_lsn:
            raise MalformedMessage(f"the {type(message).__name__} ends before it begins", offset=offset, remedy=DAMAGED)
        if message.commit_lsn <= state[words.LAST_LSN]:  # within a session they rise
            if self._stop_at_session(shown_by_lsn_only=True):
                return False
            raise not_after_last(message.commit_lsn, int(state[words.LAST_LSN]), offset)
        if state[words.TXN] == words.UNKNOWN_HEAD:
            if state[words.ORDINAL] > 0:
                raise OrderError(f"a {type(message).__name__} message stands in a transaction", offset=offset)
            state[words.TXN] = words.IDLE
        if message.commit_lsn > state[words.STOP_LSN] or message.commit_time > state[words.STOP_TIME]:
            self.passed_stop = True
            return False
        state[words.TOP_TIME] = max(message.commit_time, int(state[words.TOP_TIME]))
        self._note_commit(message.commit_lsn, message.commit_time)
        if isinstance(message, m.StreamCommit):
            self.on_stream_commit(message.xid)
        return True

    def _take_truncate(self, message: m.Truncate, offset: int) -> None:
        state = self.kernel.state
        for oid in message.relation_oids:
            self.kernel.add_truncate(self._need_slot(oid, offset))
        if state[words.RECORDING]:
            digest = truncate_digest(message, int(state[words.ORDINAL]))
            state[words.ROWS] += 1
            state[words.DIGEST] ^= digest

    def _take_relation(self, message: m.Relation, offset: int) -> None:
        if len(message.columns) > m.MAX_COLUMNS:
            # The kernel has room for no more, and PostgreSQL never has more.
            raise MalformedMessage(
                f"the relation has {len(message.columns):,} columns, more than can be",
                offset=offset,
                remedy=DAMAGED,
            )
        relation = outside(message)
        if self.unannounced_type_at is None and any(
            column.type_oid >= FIRST_OWN_OID and column.type_oid not in self._type_oids for column in relation.columns
        ):
            self.unannounced_type_at = int(self.kernel.state[words.POS])
        relations = self.relations if self._inner is None else self._inner
        slots = self.kernel.slots
        slot = slots.slot_of(relation.oid)
        if relations.get(relation.oid) != relation or slot is None:  # a repeated one keeps its slot
            relations[relation.oid] = relation
            self.slot_relations.append(relation)
            slot = slots.add(relation.oid, len(relation.columns), relation)
        if self._inner is not None:
            self._inner_slots[relation.oid] = slot
        announced = self.open_streams.announced(self.stream_xid)
        if announced is not None:
            announced.add(relation.oid)

    def _problem(self, outcome: Outcome) -> CaptureError:
        """Return what the kernel came back with."""
        state = self.kernel.state
        offset, last_lsn = int(state[words.MESSAGE]), int(state[words.LAST_LSN])
        return error_of(outcome, self._view, offset, self.framing, last_lsn=last_lsn)


def _is_loose(message: m.AnyMessage) -> TypeGuard[m.Message]:
    """Return whether a message is a logical one that belongs to no transaction."""
    return isinstance(message, m.Message) and not message.transactional


def outside(message: m.Relation) -> m.Relation:
    """Return a Relation message as it stands outside of streamed blocks, where it carries no xid."""
    return message if message.xid is None else replace(message, xid=None)


_Name: TypeAlias = tuple[str, str]


class Uses:
    """The uses of relations in a walk.

    Args:
        relations: the relation versions whose uses are wanted; None for all.
    """

    def __init__(self, relations: Collection[m.Relation] | None) -> None:
        self._relations = relations
        self._used: list[m.Relation] = []
        self._names: dict[int, _Name] = {}
        self._holders: dict[_Name, int] = {}
        self.start()

    def start(self) -> None:
        """Begin a stretch, in which slots have another meaning."""
        self._waiting: dict[int, tuple[int, int, m.Relation]] = {}
        self._outer: list[dict[int, tuple[int, int, m.Relation]]] = []
        self._waiting_for: dict[_Name, dict[int, None]] = {}

    def take(self) -> list[m.Relation]:
        """Return the relation versions that were used since the last call, in order, without repetitions."""
        taken = self._used
        self._used, self._names, self._holders = [], {}, {}
        return taken

    def note_use(self, slot: int, relation: m.Relation, slots: RelationSlots) -> None:
        """Note a slot that a row uses; the row is not counted yet."""
        if self._relations is None or relation in self._relations:
            self._waiting.pop(relation.oid, None)
            self._waiting[relation.oid] = slot, _count(slot, slots), relation
            self._waiting_for.setdefault(_name(relation), {})[relation.oid] = None

    def note_announced(self, relation: m.Relation, slots: RelationSlots) -> None:
        """Before a relation is announced, settle the waiting uses of the same relation and of the same name."""
        for oid in (*self._waiting_for.pop(_name(relation), ()), relation.oid):
            self._settle(oid, slots)
        self._waiting.pop(relation.oid, None)

    def enter(self, slots: RelationSlots) -> None:
        """Enter a transaction that has its own slots."""
        self.settle(slots)
        self._outer.append(self._waiting)
        self._waiting = {}

    def leave(self, slots: RelationSlots) -> None:
        """Leave that transaction."""
        self.settle(slots)
        self._waiting = self._outer.pop()

    def settle(self, slots: RelationSlots) -> None:
        """Settle all waiting uses."""
        for oid in list(self._waiting):
            self._settle(oid, slots)

    def _settle(self, oid: int, slots: RelationSlots) -> None:
        slot, earlier_count, relation = self._waiting.get(oid, (-1, 0, None))
        if relation is None or _count(slot, slots) == earlier_count:  # no row of it counts so far
            return
        name = _name(relation)
        del self._waiting[oid]
        self._waiting_for.get(name, {}).pop(oid, None)
        if self._holders.get(name) == oid and self._names.get(oid) == name:  # the same use as before
            return
        self._holders[name], self._names[oid] = oid, name
        self._used.append(relation)


def _name(relation: m.Relation) -> _Name:
    return relation.namespace, relation.name


def _count(slot: int, slots: RelationSlots) -> int:
    return int(slots.counts[slot].sum())

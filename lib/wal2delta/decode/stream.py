"""Walk a stretch of a stream: the kernel for the hot messages, the scalar reader for the others.

`StreamWalker` keeps what every walk needs (the relation versions, the place in the stream) and leaves to its
subclasses what they make of it: `scan.Scanner` gathers a summary, `batches.Decoder` gathers rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from wal2delta.decode import walk
from wal2delta.decode.walk import Kernel, Outcome, Tile
from wal2delta.errors import (
    CaptureError,
    FramingError,
    MalformedMessage,
    OrderError,
    TruncatedMessage,
    UnknownRelation,
)
from wal2delta.lsn import format_lsn
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import PGCOPY_HEADER, PGCOPY_SIGNATURE, PGCOPY_TRAILER, Framing
from wal2delta.protocol.reader import read_message

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DAMAGED: Final = "The file is damaged or is no pgoutput capture; fetch it from its source again"

_PROBLEMS: Final = {
    Outcome.BAD_TUPLE_TAG: (MalformedMessage, "the row change names a kind of tuple that does not exist"),
    Outcome.BAD_CELL: (MalformedMessage, "a value of the row change is neither n, u, t nor b"),
    Outcome.BAD_LENGTH: (MalformedMessage, "a value of the row change has an impossible length"),
    Outcome.BAD_COLUMN_COUNT: (
        MalformedMessage,
        "the row change has another number of columns than its Relation message",
    ),
    Outcome.BAD_FRAME: (FramingError, "no {framing} frame begins here"),
    Outcome.OVERRUN: (FramingError, "the message needs more bytes than its {framing} frame holds"),
    Outcome.UNDERRUN: (FramingError, "the {framing} frame holds more bytes than its message"),
    Outcome.NO_NEWLINE: (FramingError, "the message is not followed by a newline"),
    Outcome.OUTSIDE_TRANSACTION: (OrderError, "a {tag} message stands outside of any transaction"),
    Outcome.BEGIN_INSIDE: (OrderError, "a transaction begins before the one before it has ended"),
    Outcome.COMMIT_MISMATCH: (OrderError, "the Commit is not that of the transaction that is open"),
    Outcome.NOT_AFTER_LAST: (OrderError, "the transaction's commit LSN is not behind the one before it"),
}


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is open at a place of the stream.

    Attributes:
        final_lsn: its commit LSN, which Begin foretells.
        commit_time: microseconds since 2000-01-01.
        ordinal: the number that its next row change gets.
    """

    final_lsn: int
    commit_time: int
    xid: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Place:
    """All that has to be known to go on at a message's boundary.

    ``transaction`` is None between transactions.  ``last_lsn`` is the commit LSN of the last transaction that
    ended before this place, -1 at the start of a stream.
    """

    framing: Framing
    transaction: Transaction | None = None
    last_lsn: int = walk.NO_LSN
    last_commit_time: int = 0


class StreamWalker:
    """Walk one buffer after the other, from a known place or a guessed one.

    Args:
        framing: how the messages are wrapped.
        place: where the first buffer begins; None when it is a guess, which may lie inside a transaction.
        relations: the relation versions in force there.
        tile_bytes: the size of the tiles to make; 0 finds boundaries only.
    """

    def __init__(
        self,
        framing: Framing,
        *,
        place: Place | None,
        relations: Mapping[int, m.Relation],
        tile_bytes: int = 0,
    ) -> None:
        self.framing = framing
        self.kernel = Kernel(framing, tile_bytes=tile_bytes)
        self.relations = dict(relations)
        self.slot_relations: list[m.Relation | None] = []
        self._view = memoryview(b"")
        self.set_place(place)

    def set_place(self, place: Place | None) -> None:
        """Go on from another place."""
        state = self.kernel.state
        if place is None:
            state[walk.TXN] = walk.UNKNOWN_HEAD
            return
        state[walk.LAST_LSN] = place.last_lsn
        state[walk.LAST_COMMIT_TS] = place.last_commit_time
        open_ = place.transaction
        state[walk.TXN] = walk.IDLE if open_ is None else walk.OPEN
        if open_ is not None:
            state[walk.LSN] = open_.final_lsn
            state[walk.COMMIT_TS] = open_.commit_time
            state[walk.XID] = open_.xid
            state[walk.ORDINAL] = open_.ordinal

    @property
    def place(self) -> Place:
        """Where the walk stands; not to be asked for while the head's transaction is unknown."""
        state = self.kernel.state
        open_ = None
        if state[walk.TXN] == walk.OPEN:
            open_ = Transaction(
                int(state[walk.LSN]),
                int(state[walk.COMMIT_TS]),
                int(state[walk.XID]),
                int(state[walk.ORDINAL]),
            )
        return Place(self.framing, open_, int(state[walk.LAST_LSN]), int(state[walk.LAST_COMMIT_TS]))

    def walk(self, data: bytes | memoryview, start: int = 0, stop_at: int | None = None) -> Iterator[Tile]:
        """Walk the whole messages of a buffer from ``start``; give the tiles, leave `position` behind the last.

        Args:
            data: the bytes; an unfinished message at their end is left alone.
            start: where a message (or frame) begins.
            stop_at: stop at the first boundary at or behind this offset.

        Raises:
            CaptureError: with the offset in ``data`` of what cannot be.
        """
        kernel, state = self.kernel, self.kernel.state
        # Arrow gives buffers of signed bytes.
        self._view = memoryview(data).cast("B")
        buf = np.frombuffer(data, np.uint8)
        end = len(buf)
        stop = end if stop_at is None else stop_at
        state[walk.POS] = start
        while True:
            position = int(state[walk.POS])
            tile_end = min(stop, position + kernel.tile_bytes) if kernel.want else stop
            outcome = kernel.walk(buf, end, tile_end)
            if outcome is Outcome.TILE or (outcome in (Outcome.DONE, Outcome.INCOMPLETE)):
                tile = kernel.take_tile()
                if tile is not None:
                    yield tile
                if outcome is not Outcome.TILE or state[walk.POS] >= stop:
                    return
            elif outcome is Outcome.NEW_RELATION:
                self._need_slot(int(state[walk.ARGUMENT]), int(state[walk.MESSAGE]))
            elif outcome in (Outcome.EVENT, Outcome.HEAD_COMMIT):
                if not self._event(buf):
                    tile = kernel.take_tile()
                    if tile is not None:
                        yield tile
                    return
            else:
                raise self._problem(outcome, buf)

    @property
    def position(self) -> int:
        """The offset behind the last whole message of the buffer."""
        return int(self.kernel.state[walk.POS])

    # What subclasses make of the rare messages.

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Take note of a message that the kernel does not walk by itself."""

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        """Give the number of columns of a relation that was not announced (-1: any), or raise."""
        raise UnknownRelation(
            f"a row change names relation {oid}, but no Relation message announced it",
            offset=offset,
            remedy="A capture has to begin where its session began; the file before this one is missing",
        )

    def on_head_commit(self, commit: m.Commit) -> None:
        """Take note of the Commit of a transaction that began before a guessed start."""

    # The rare messages.

    def _need_slot(self, oid: int, offset: int) -> int:
        slot = self.kernel.slots.slot_of(oid)
        if slot is not None:
            return slot
        relation = self.relations.get(oid)
        columns = len(relation.columns) if relation is not None else self.on_unknown_relation(oid, offset)
        self.slot_relations.append(relation)
        return self.kernel.slots.add(oid, columns)

    def _event(self, buf: NDArray[np.uint8]) -> bool:
        """Handle the message at ``state[MESSAGE]``; False when the bytes end before it does."""
        state = self.kernel.state
        at, limit = int(state[walk.MESSAGE]), int(state[walk.LIMIT])
        if self.framing is Framing.PGCOPY and at == state[walk.POS]:
            return self._pgcopy_mark(at)
        framed = self.framing in (Framing.COPYDATA, Framing.PGCOPY)
        try:
            message, end = read_message(self._view[:limit], at, streaming=bool(state[walk.STREAM]))
        except TruncatedMessage as error:
            if framed:
                raise self._problem(Outcome.OVERRUN, buf) from error
            return False
        except CaptureError as error:
            error.remedy = error.remedy or _DAMAGED
            raise
        if framed and end != limit:
            raise self._problem(Outcome.UNDERRUN, buf)
        if self.framing is Framing.RECVLOGICAL:
            if end >= len(buf):
                return False
            if buf[end] != 0x0A:
                raise self._problem(Outcome.NO_NEWLINE, buf)
            end += 1
        self._take(message, at)
        state[walk.POS] = end
        state[walk.MESSAGES] += 1
        return True

    def _pgcopy_mark(self, at: int) -> bool:
        """Step over a header or a trailer of PGCOPY; either may be cut by the end of the file."""
        view, state = self._view, self.kernel.state
        if view[at] == 0xFF:
            if len(view) - at < PGCOPY_TRAILER.size:
                return False
            state[walk.POS] = at + PGCOPY_TRAILER.size
            return True
        head = bytes(view[at : at + len(PGCOPY_SIGNATURE)])
        if not PGCOPY_SIGNATURE.startswith(head):
            raise FramingError("no pgcopy frame begins here", offset=at, remedy=_DAMAGED)
        if len(view) - at < PGCOPY_HEADER.size:
            return False
        extension = int.from_bytes(view[at + PGCOPY_HEADER.size - 4 : at + PGCOPY_HEADER.size], "big")
        if len(view) - at < PGCOPY_HEADER.size + extension:
            return False
        state[walk.POS] = at + PGCOPY_HEADER.size + extension
        return True

    def _take(self, message: m.AnyMessage, offset: int) -> None:
        state, kernel = self.kernel.state, self.kernel
        if isinstance(message, m.Relation):
            if len(message.columns) > walk.MAX_COLUMNS:
                # The kernel has room for no more, and PostgreSQL never has more.
                raise MalformedMessage(
                    f"the relation has {len(message.columns):,} columns, more than can be",
                    offset=offset,
                    remedy=_DAMAGED,
                )
            if self.relations.get(message.oid) != message or kernel.slots.slot_of(message.oid) is None:
                self.relations[message.oid] = message
                self.slot_relations.append(message)
                kernel.slots.add(message.oid, len(message.columns))
        elif isinstance(message, m.Commit):
            self.on_head_commit(message)
            state[walk.TXN] = walk.IDLE
            state[walk.TRANSACTIONS] += 1
            state[walk.LAST_LSN] = message.commit_lsn
            state[walk.LAST_COMMIT_TS] = message.commit_time
            return
        elif isinstance(message, m.Truncate):
            if state[walk.TXN] == walk.IDLE and not state[walk.STREAM]:
                raise OrderError("a Truncate message stands outside of any transaction", offset=offset)
            for oid in message.relation_oids:
                kernel.add_truncate(self._need_slot(oid, offset), offset)
        elif isinstance(message, m.BeginPrepare):
            state[walk.TXN] = walk.OPEN
            state[walk.LSN], state[walk.XID], state[walk.ORDINAL] = message.prepare_lsn, message.xid, 0
        elif isinstance(message, m.Prepare):
            state[walk.TXN] = walk.IDLE
        elif isinstance(message, m.StreamStart):
            state[walk.STREAM] = 1
        elif isinstance(message, m.StreamStop):
            state[walk.STREAM] = 0
        self.on_message(message, offset)
        if isinstance(message, m.Truncate):
            state[walk.ORDINAL] += 1

    def _problem(self, outcome: Outcome, buf: NDArray[np.uint8]) -> CaptureError:
        state = self.kernel.state
        kind, text = _PROBLEMS[outcome]
        at = int(state[walk.POS] if outcome is Outcome.BAD_FRAME else state[walk.MESSAGE])
        if outcome is Outcome.NOT_AFTER_LAST:
            lsn = int.from_bytes(self._view[at + 1 : at + 9], "big")
            return OrderError(
                f"transaction {format_lsn(lsn)} is not behind {format_lsn(int(state[walk.LAST_LSN]))}, "
                "the one before it",
                offset=at,
                remedy="Files out of order, another slot's files, or a reconnect; "
                "name files so that they sort by time and keep one slot's files in one folder",
            )
        return kind(
            text.format(framing=self.framing.value, tag=chr(buf[at])),
            offset=at,
            remedy=_DAMAGED,
        )

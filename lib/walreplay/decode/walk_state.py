"""The state of a walk: the open transaction, the relation versions in force, the numbers of origins.

`RelationCache` recognises repeated Relation messages by their bytes: a streamed transaction announces every relation
that it uses, mostly with the same message as an earlier one, and equal bytes are the same message of the same length.
`OpenStreams` has the open streamed transactions, also those that an earlier session has left behind.  `LEGAL` is the
table of which message is allowed where, with the errors for those that are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.frames import Outcome
from walreplay.decode.walk import Place, Transaction, WalkKernel
from walreplay.errors import CaptureError, FramingError, MalformedMessage, OrderError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import Names, read_message
from walreplay.types.text import UTF8, names_in

_TAG: Final = ord(m.Relation.tag)


class RelationCache:
    """The last Relation message of each relation, by the bytes of its oid."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._last: dict[bytes, tuple[bytes, m.Relation]] = {}

    def read_message(self, data: memoryview, offset: int, *, streaming: bool) -> tuple[m.AnyMessage, int]:
        """Read the message at an offset as `walreplay.protocol.reader.read_message` does."""
        if data[offset] != _TAG:
            return read_message(data, offset, streaming=streaming, names=self._names)
        # In a streamed block the message begins with an xid, which differs between transactions.
        body_offset = offset + (5 if streaming else 1)
        cached = self._last.get(bytes(data[body_offset : body_offset + 4]))
        if cached is not None:
            last_bytes, relation = cached
            end = body_offset + len(last_bytes)
            if data[body_offset:end] == last_bytes:
                xid = int.from_bytes(data[offset + 1 : body_offset], "big") if streaming else None
                return replace(relation, xid=xid), end
        message, end = read_message(data, offset, streaming=streaming, names=self._names)
        assert isinstance(message, m.Relation)
        self._last[bytes(data[body_offset : body_offset + 4])] = bytes(data[body_offset:end]), message
        return message, end


@dataclass(slots=True)
class _Stream:
    """A streamed transaction: the offset at which it begins, and the oids of the relations that it has announced."""

    offset: int
    announced: set[int] = field(default_factory=set)


class OpenStreams:
    """The streamed transactions that were walked from their start, in the order in which they have begun.

    A session sends streamed transactions from their start.  So if one begins a second time, a new session has begun
    before.  Then the transactions that had begun before it also have to begin again; until then they are *lost*.

    Attributes:
        restarted_at: the first start of the transaction that was the last to begin a second time; None if none was.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Stream] = {}
        self._orphaned: dict[int, _Stream] = {}
        self.restarted_at: int | None = None

    def begin(self, xid: int, offset: int) -> None:
        """Note that a stream begins at an offset."""
        if xid in self._open:
            # Streams in front of it have begun earlier; those that have begun again stand behind it.
            while (first := next(iter(self._open))) != xid:
                self._orphaned[first] = self._open.pop(first)
            self.restarted_at = self._open.pop(xid).offset
        elif xid in self._orphaned:
            self.restarted_at = self._orphaned.pop(xid).offset
        self._open[xid] = _Stream(offset)

    def must_restart(self, xid: int) -> bool:
        """Return whether a stream has to begin again before it can continue."""
        return xid in self._orphaned

    def announced(self, xid: int | None) -> set[int] | None:
        """Return the set of the oids that an open stream has announced; None if its start was not walked.

        The caller adds to the set what the stream announces.
        """
        stream = None if xid is None else self._open.get(xid)
        return None if stream is None else stream.announced

    def end(self, xid: int) -> set[int] | None:
        """End a stream; return the oids that it has announced, or None if its start was not walked."""
        stream = self._open.pop(xid, None)
        return None if stream is None else stream.announced


DAMAGED: Final = "The file is damaged or is no pgoutput capture; fetch it from its source again"

NO_TIME: Final = "the transaction's time lies outside of the years 1 to 9999"

PROBLEMS: Final = {
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
    Outcome.NO_TRAILER: (FramingError, "the message is not followed by a newline"),
    Outcome.OUTSIDE_TRANSACTION: (OrderError, "a {tag} message stands outside of any transaction"),
    Outcome.BEGIN_INSIDE: (OrderError, "a transaction begins before the one before it has ended"),
    Outcome.COMMIT_MISMATCH: (OrderError, "the Commit is not that of the transaction that is open"),
    Outcome.NUL_IN_TEXT: (MalformedMessage, "a text value holds a NUL byte, which PostgreSQL's never do"),
    Outcome.NO_TIME: (MalformedMessage, NO_TIME),
    Outcome.NOT_AFTER_LAST: (OrderError, "the transaction's commit LSN is not behind the one before it"),
}

NEW_SESSION: Final = (Outcome.BEGIN_INSIDE, Outcome.NOT_AFTER_LAST)  # errors, unless a session begins there


class Where(Enum):
    """The part of the stream in which a message stands, as error texts name it."""

    OUTSIDE = "outside of any transaction"
    TRANSACTION = "inside a transaction"
    PREPARED = "inside a transaction that is being prepared"
    STREAM = "inside a streamed block"
    UNKNOWN = "behind a guessed start"


_ANYWHERE: Final = (m.Message, m.Relation, m.Type)

BETWEEN: Final = (
    m.StreamStart,
    m.StreamCommit,
    m.StreamAbort,
    m.StreamPrepare,
    m.BeginPrepare,
    m.Prepare,
    m.CommitPrepared,
    m.RollbackPrepared,
)

LEGAL: Final[dict[Where, tuple[type, ...]]] = {
    Where.OUTSIDE: (*_ANYWHERE, *BETWEEN),
    Where.TRANSACTION: (*_ANYWHERE, m.Origin, m.Truncate),
    Where.PREPARED: (*_ANYWHERE, m.Origin, m.Truncate, m.Prepare),
    Where.STREAM: (*_ANYWHERE, m.Origin, m.Truncate, m.StreamStop),
    Where.UNKNOWN: (*_ANYWHERE, m.Origin, m.Truncate, *BETWEEN),
}
"""Which of the rare messages are allowed where; the kernel checks the frequent ones."""

STARTERS: Final = (m.StreamStart, m.StreamAbort, m.BeginPrepare, m.Prepare, m.CommitPrepared, m.RollbackPrepared)
"""Messages with which a session may begin, besides Begin: one where it is not allowed shows that a session begins."""


def error_of(outcome: Outcome, view: memoryview, offset: int, framing: Framing, *, last_lsn: int) -> CaptureError:
    """Make the error for an outcome of the kernel.

    Args:
        offset: the offset of the wrong frame or message.
        last_lsn: the commit LSN of the session's transaction before it.
    """
    if outcome is Outcome.NOT_AFTER_LAST:
        # A Begin has its final LSN behind the tag.
        return not_after_last(int.from_bytes(view[offset + 1 : offset + 9], "big"), last_lsn, offset)
    kind, text = PROBLEMS[outcome]
    return kind(text.format(framing=framing.value, tag=chr(view[offset])), offset=offset, remedy=DAMAGED)


def not_after_last(lsn: int, last_lsn: int, offset: int) -> OrderError:
    """Make the error for a transaction whose commit LSN is not higher than that of the one before it."""
    return OrderError(
        f"transaction {format_lsn(lsn)} is not behind {format_lsn(last_lsn)}, the one before it",
        offset=offset,
        remedy="Files out of order, or another slot's files; "
        "name files so that they sort by time and keep one slot's files in one folder",
    )


def is_of_no_transaction(view: memoryview, offset: int, payload_end: int) -> bool:
    """Return whether a logical message inside a streamed block belongs to no transaction, and therefore has no xid."""
    if view[offset] != ord("M") or payload_end - offset < 6 or view[offset + 1] != 0:  # byte 5 has to be there
        return False
    # A transaction's message in a block has an xid, and the flag for a transactional message.
    return view[offset + 5] != 1 or not any(view[offset + 1 : offset + 5])


def time_of(message: m.AnyMessage) -> int:
    """Return the time in a message that ends or prepares a transaction; 0 for other messages."""
    if isinstance(message, (m.BeginPrepare, m.Prepare, m.StreamPrepare)):
        return message.prepare_time
    return message.commit_time if isinstance(message, (m.StreamCommit, m.CommitPrepared)) else 0


class WalkState:
    """The state of one walk, and its changes when it enters and leaves transactions.

    Args:
        place: the place at which the first buffer begins; None for a guess, which may lie inside a transaction.
        relations: the relation versions in force there, by oid; inside a streamed block, those of its transaction.
        tile_bytes: the size of the tiles to make; 0 to find boundaries only.
        streaming: the guess lies inside a streamed block.
        codec: the encoding of names, from `walreplay.types.text.codec_of`.

    Attributes:
        stopped_at_session: a new session begins where the walk has stopped, or before it (``shown_by_lsn_only``).
        stream_xid: the transaction of the streamed block in which the walk is; None outside, -1 if it is not known.
        gid: the gid of the transaction that is being prepared; None if there is none.
    """

    def __init__(
        self,
        framing: Framing,
        *,
        place: Place | None,
        relations: Mapping[int, m.Relation],
        tile_bytes: int = 0,
        streaming: bool = False,
        codec: str = UTF8,
    ) -> None:
        self.framing = framing
        self._announced = RelationCache(names_in(codec))
        self.kernel = WalkKernel(framing, tile_bytes=tile_bytes)
        self.origins: list[str | None] = [None]
        self._origin_numbers: dict[str | None, int] = {None: 0}
        self.start(place, relations, streaming=streaming)

    def start(self, place: Place | None, relations: Mapping[int, m.Relation], *, streaming: bool = False) -> None:
        """Go to another place, and forget everything that was walked before, except the numbers of origins."""
        self.kernel.reset()
        self.relations = dict(relations)
        self.slot_relations: list[m.Relation | None] = []
        self.stopped_at_session = self.shown_by_lsn_only = False
        self.stream_xid: int | None = None
        self.gid: str | None = None
        self._inner: dict[int, m.Relation] | None = None
        """The relations that the open streamed or prepared transaction has announced; None outside of these."""
        self._inner_slots: dict[int, int] = {}
        self.open_streams = OpenStreams()
        self._type_oids: set[int] = set()
        self.unannounced_type_at: int | None = None
        """The offset of the first Relation message with a type that no Type message has announced."""
        self._message_lsn = words.NO_LSN
        self._high_time = 0
        self._session = 0 if place is None else place.session
        self._begun = place is not None and place.begun
        self.is_last_buffer = False
        """No more bytes follow the buffer, so that its last message is complete."""
        self.ends_session = False
        """A session ends with the buffer, so that the newline after its last message may be missing."""
        self.passed_stop = False
        """The walk has stopped in front of a transaction that commits too late (`stop_after`)."""
        self.is_new_message = True
        """Whether the last logical message that belongs to no transaction is new, and not a copy."""
        self._view = memoryview(b"")
        self._set_place(place, streaming)

    def stop_after(self, lsn: int | None, time: int | None) -> None:
        """Stop in front of the first transaction that commits behind an LSN or a time; until the next `start`."""
        if lsn is not None:
            self.kernel.state[words.STOP_LSN] = lsn
        if time is not None:
            self.kernel.state[words.STOP_TIME] = time

    def _set_place(self, place: Place | None, streaming: bool) -> None:
        state = self.kernel.state
        if place is None:
            state[words.TXN] = words.IDLE if streaming else words.UNKNOWN_HEAD  # no other one is open around a block
            if streaming:
                self._enter_stream(-1, self.relations)  # of an unknown transaction
            return
        state[words.LAST_LSN] = place.last_lsn
        state[words.LAST_COMMIT_TS] = place.last_commit_time
        state[words.HIGH_LSN] = place.high_lsn
        self._high_time = place.high_commit_time
        self._message_lsn = place.message_lsn
        transaction = place.transaction
        state[words.TXN] = words.IDLE if transaction is None else words.OPEN
        if transaction is not None:
            self._open(transaction.final_lsn, transaction.commit_time, transaction.xid, transaction.ordinal)
            # A Begin Prepare has the prepare's LSN: only Commit Prepared shows whether it is a copy.
            is_known = transaction.gid is None and transaction.final_lsn <= place.high_lsn
            state[words.SKIP] = words.NOT_COUNTED if is_known else 0
            self._set_origin(transaction.origin)
            if transaction.gid is not None:
                self.gid = transaction.gid
                self._enter(self.relations)
        if place.stream is not None:
            self._enter_stream(place.stream, self.inner_relations(place.stream))

    def _open(self, lsn: int, time: int, xid: int, ordinal: int) -> None:
        state = self.kernel.state
        state[words.TXN] = words.OPEN
        state[words.LSN], state[words.COMMIT_TS], state[words.XID], state[words.ORDINAL] = lsn, time, xid, ordinal
        state[[words.ROWS, words.DIGEST, words.ORIGIN]] = 0  # origin 0 is none

    @property
    def place(self) -> Place:
        """The place of the walk; only defined if it is known whether a transaction is open."""
        state = self.kernel.state
        transaction = None
        if state[words.TXN] == words.OPEN:
            lsn, commit_time, xid, ordinal = state[[words.LSN, words.COMMIT_TS, words.XID, words.ORDINAL]].tolist()
            transaction = Transaction(lsn, commit_time, xid, ordinal, self.gid, self.origins[int(state[words.ORIGIN])])
        last, time, high = state[[words.LAST_LSN, words.LAST_COMMIT_TS, words.HIGH_LSN]].tolist()
        # The highest commit may be an earlier session's; its time came with the place.
        commits = last, time, high, time if high == last else self._high_time
        session = self._message_lsn, self._has_begun, self._session
        return Place(self.framing, transaction, self.stream_xid, *commits, *session)

    @property
    def _has_begun(self) -> bool:
        return self._begun or bool(self.kernel.state[words.PREVIOUS] != words.NO_OFFSET)

    @property
    def position(self) -> int:
        """The offset after the last whole message."""
        return int(self.kernel.state[words.POS])

    def _enter(self, relations: Mapping[int, m.Relation]) -> None:
        """Enter a transaction that has its own relation versions."""
        self._inner, self._inner_slots = dict(relations), {}
        self.kernel.slots.enter()

    def _leave(self, *, keep: bool) -> None:
        """Leave that transaction; with ``keep``, its versions are in force outside from now on."""
        if self._inner is None:
            return
        self.kernel.slots.leave(self._inner_slots if keep else {})
        if keep:
            # Only what the transaction has announced itself may be newer than what is in force outside.
            self.relations.update({oid: self._inner[oid] for oid in self._inner_slots})
        self._inner = None

    def _enter_stream(self, xid: int, relations: Mapping[int, m.Relation]) -> None:
        self._enter(relations)
        self.kernel.state[words.STREAM] = 1
        self.stream_xid = xid

    def inner_relations(self, xid: int) -> Mapping[int, m.Relation]:
        """Return the relation versions that a streamed or prepared transaction knows where a part of it begins."""
        return {}  # a plain walk has none; readers and decoders do

    def _where(self) -> Where:
        if self.stream_xid is not None:
            return Where.STREAM
        txn = self.kernel.state[words.TXN]
        if txn == words.OPEN:
            return Where.TRANSACTION if self.gid is None else Where.PREPARED
        return Where.OUTSIDE if txn == words.IDLE else Where.UNKNOWN

    def _set_origin(self, name: str | None) -> None:
        self.kernel.state[words.ORIGIN] = self.origin_number(name)

    def origin_number(self, name: str | None) -> int:
        """Return the number of an origin in the records; 0 for None."""
        number = self._origin_numbers.setdefault(name, len(self.origins))
        if number == len(self.origins):
            self.origins.append(name)
        return number

    def _note_commit(self, lsn: int, time: int) -> None:
        state = self.kernel.state
        state[words.HIGH_LSN] = max(lsn, int(state[words.HIGH_LSN]))  # that of a copy is lower
        state[words.LAST_LSN], state[words.LAST_COMMIT_TS] = lsn, time

"""The state of a walk: the open transaction, the relation versions in force, the numbers of origins."""

from __future__ import annotations

from collections.abc import Mapping

from walreplay.decode import walk
from walreplay.decode.announced import Announced
from walreplay.decode.open_streams import OpenStreams
from walreplay.decode.place import Place, Transaction
from walreplay.decode.rules import Where
from walreplay.decode.walk import Kernel
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.types.text import UTF8, names_in


class WalkState:
    """The state of one walk, and its changes when it enters and leaves transactions.

    Args:
        framing: how the messages are wrapped.
        place: the place at which the first buffer begins; None for a guess, which may lie inside a transaction.
        relations: the relation versions in force there, by oid; inside a streamed block, those of its transaction.
        tile_bytes: the size of the tiles to make; 0 to find boundaries only.
        streaming: the guess lies inside a streamed block.
        codec: the encoding of names, from `walreplay.types.text.codec_of`.

    Attributes:
        broke: the walk has stopped because a new session begins at a message, or has begun before it (``late``).
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
        self._announced = Announced(names_in(codec))
        self.kernel = Kernel(framing, tile_bytes=tile_bytes)
        self.origins: list[str | None] = [None]
        self._origin_numbers: dict[str | None, int] = {None: 0}
        self.start(place, relations, streaming=streaming)

    def start(self, place: Place | None, relations: Mapping[int, m.Relation], *, streaming: bool = False) -> None:
        """Go to another place, and forget everything that was walked before, except the numbers of origins."""
        self.kernel.reset()
        self.relations = dict(relations)
        self.slot_relations: list[m.Relation | None] = []
        self.broke = self.late = False
        self.stream_xid: int | None = None
        self.gid: str | None = None
        self._inner: dict[int, m.Relation] | None = None
        """The relations that the open streamed or prepared transaction has announced; None outside of these."""
        self._inner_slots: dict[int, int] = {}
        self.open_streams = OpenStreams()
        self._type_oids: set[int] = set()
        self.doubtful_at: int | None = None
        """The offset of the first Relation message with a type that no Type message has announced."""
        self._message_lsn = walk.NO_LSN
        self._high_time = 0
        self._session = 0 if place is None else place.session
        self._begun = place is not None and place.begun
        self.closed = False
        """No more bytes follow the buffer, so that its last message is complete."""
        self.ends_session = False
        """A session ends with the buffer, so that the newline after its last message may be missing."""
        self.is_behind = False
        """The walk has stopped in front of a transaction that commits too late (`stop_behind`)."""
        self.news = True
        """Whether the last logical message that belongs to no transaction is new, and not a copy."""
        self._view = memoryview(b"")
        self._set_place(place, streaming)

    def stop_behind(self, lsn: int | None, time: int | None) -> None:
        """Stop in front of the first transaction that commits behind an LSN or a time; until the next `start`."""
        if lsn is not None:
            self.kernel.state[walk.STOP_LSN] = lsn
        if time is not None:
            self.kernel.state[walk.STOP_TIME] = time

    def _set_place(self, place: Place | None, streaming: bool) -> None:
        state = self.kernel.state
        if place is None:
            state[walk.TXN] = walk.IDLE if streaming else walk.UNKNOWN_HEAD
            if streaming:
                self._enter_stream(-1, self.relations)
            return
        state[walk.LAST_LSN] = place.last_lsn
        state[walk.LAST_COMMIT_TS] = place.last_commit_time
        state[walk.HIGH_LSN] = place.high_lsn
        self._high_time = place.high_commit_time
        self._message_lsn = place.message_lsn
        open_ = place.transaction
        state[walk.TXN] = walk.IDLE if open_ is None else walk.OPEN
        if open_ is not None:
            self._open(open_.final_lsn, open_.commit_time, open_.xid, open_.ordinal)
            is_known = open_.gid is None and open_.final_lsn <= place.high_lsn
            state[walk.SKIP] = walk.KNOWN if is_known else 0
            self._set_origin(open_.origin)
            if open_.gid is not None:
                self.gid = open_.gid
                self._enter(self.relations)
        if place.stream is not None:
            self._enter_stream(place.stream, self.inner_relations(place.stream))

    def _open(self, lsn: int, time: int, xid: int, ordinal: int) -> None:
        state = self.kernel.state
        state[walk.TXN] = walk.OPEN
        state[walk.LSN], state[walk.COMMIT_TS], state[walk.XID], state[walk.ORDINAL] = lsn, time, xid, ordinal
        state[[walk.ROWS, walk.DIGEST, walk.ORIGIN]] = 0

    @property
    def restarted_at(self) -> int | None:
        """See `OpenStreams.restarted_at`."""
        return self.open_streams.restarted_at

    @property
    def place(self) -> Place:
        """The place of the walk; only defined if it is known whether a transaction is open."""
        state = self.kernel.state
        open_ = None
        if state[walk.TXN] == walk.OPEN:
            open_ = Transaction(
                int(state[walk.LSN]),
                int(state[walk.COMMIT_TS]),
                int(state[walk.XID]),
                int(state[walk.ORDINAL]),
                self.gid,
                self.origins[int(state[walk.ORIGIN])],
            )
        last, time = int(state[walk.LAST_LSN]), int(state[walk.LAST_COMMIT_TS])
        high = int(state[walk.HIGH_LSN])
        return Place(
            self.framing,
            open_,
            self.stream_xid,
            last,
            time,
            high,
            time if high == last else self._high_time,
            self._message_lsn,
            self._has_begun,
            self._session,
        )

    @property
    def _has_begun(self) -> bool:
        return self._begun or bool(self.kernel.state[walk.PREVIOUS] != walk.NO_OFFSET)

    @property
    def position(self) -> int:
        """The offset after the last whole message."""
        return int(self.kernel.state[walk.POS])

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
            self.relations.update({oid: self._inner[oid] for oid in self._inner_slots})
        self._inner = None

    def _enter_stream(self, xid: int, relations: Mapping[int, m.Relation]) -> None:
        self._enter(relations)
        self.kernel.state[walk.STREAM] = 1
        self.stream_xid = xid

    def inner_relations(self, xid: int) -> Mapping[int, m.Relation]:
        """Give the relation versions that a streamed or prepared transaction knows where a part of it begins."""
        return {}

    def _where(self) -> Where:
        if self.stream_xid is not None:
            return Where.STREAM
        txn = self.kernel.state[walk.TXN]
        if txn == walk.OPEN:
            return Where.TRANSACTION if self.gid is None else Where.PREPARED
        return Where.OUTSIDE if txn == walk.IDLE else Where.UNKNOWN

    def _set_origin(self, name: str | None) -> None:
        self.kernel.state[walk.ORIGIN] = self.origin_number(name)

    def origin_number(self, name: str | None) -> int:
        """Give the number of an origin in the records; 0 for None."""
        number = self._origin_numbers.setdefault(name, len(self.origins))
        if number == len(self.origins):
            self.origins.append(name)
        return number

    def _note_commit(self, lsn: int, time: int) -> None:
        state = self.kernel.state
        state[walk.HIGH_LSN] = max(lsn, int(state[walk.HIGH_LSN]))
        state[walk.LAST_LSN], state[walk.LAST_COMMIT_TS] = lsn, time

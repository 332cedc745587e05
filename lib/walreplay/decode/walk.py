"""The serial walk: where every message, row and value lies.

pgoutput messages have no length of their own, so each can only be found from the end of the one before it.  This is the
one serial pass over the bytes.  A compiled kernel walks over the frequent messages (Begin, Commit, Insert, Update,
Delete).  For all others it returns to Python, where the scalar reader reads them.  A `Place` has everything that has
to be known to continue in the middle of a stream.

Invariants
----------
- ``state[POS]`` is always the first byte of a frame (or of a message, where the framing has none).  It moves only
  over whole messages: whatever the reason for a return, nothing before it is half done.
- A tuple's cells follow each other in ``offset`` and ``length``.  ``length`` also has the cell's kind: 0 and more is
  text of that length, then there are `NULL` and `UNCHANGED`, and from `BINARY` downwards it is in binary format, of
  ``BINARY - length`` bytes.
- An update's cell that is unchanged TOAST but lies in the old tuple is filled from there (the key column under
  replica identity default, any column under replica identity full).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.frames import FRAMING_CODES, Outcome
from walreplay.decode.kernels.programs import ROW_WORDS
from walreplay.decode.kernels.rows import SHAPE
from walreplay.decode.kernels.walk import walk_messages
from walreplay.decode.placing import Placer, Tile, empty
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.types.builtin import STEADY_TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


_HASH_SIZE_MIN: Final = 64
_WATCHED: Final = -1
_RUNS: Final = 1 << 10
_NO_RUNS: Final = np.zeros((2, 0), np.int64)
_NO_XIDS: Final = np.zeros(0, np.int64)
_NO_CELLS: Final = np.zeros(0, np.int32)
_NO_ROWS: Final = np.zeros((0, ROW_WORDS), np.int64)


class _SlotTable:
    """The newest slot of each oid: an open-addressing hash table that the kernel reads.

    A watched slot stays in the table, but the kernel returns to Python for it, as if it were not there.
    """

    def __init__(self) -> None:
        self.oids = np.full(_HASH_SIZE_MIN, -1, np.int64)  # -1: an empty bucket
        self.slots = np.zeros(_HASH_SIZE_MIN, np.int32)
        self._count = 0
        self._watched: dict[int, int] = {}

    def get(self, oid: int) -> int | None:
        bucket = self._place(oid)
        return self._watched.get(oid, int(self.slots[bucket])) if self.oids[bucket] == oid else None

    def watch(self, oid: int) -> None:
        """Make the kernel return to Python when a row uses the oid next."""
        bucket = self._place(oid)
        if self.oids[bucket] == oid and self.slots[bucket] >= 0:
            self._watched[oid] = int(self.slots[bucket])
            self.slots[bucket] = _WATCHED

    def unwatch(self, oid: int) -> bool:
        """Undo `watch`; return whether the oid was watched."""
        slot = self._watched.get(oid)
        if slot is not None:
            self.put(oid, slot)
        return slot is not None

    def put(self, oid: int, slot: int) -> None:
        self._watched.pop(oid, None)
        bucket = self._place(oid)
        if self.oids[bucket] != oid:
            self._count += 1
            if 2 * self._count > len(self.oids):  # at most half full, so searches are short
                self._grow()
                bucket = self._place(oid)
        self.oids[bucket] = oid
        self.slots[bucket] = slot

    def _place(self, oid: int) -> int:
        bucket_mask = len(self.oids) - 1
        bucket = (oid * 2654435761) & bucket_mask  # as in `kernels.rows.slot_of`
        while self.oids[bucket] not in (oid, -1):
            bucket = (bucket + 1) & bucket_mask
        return bucket

    def _grow(self) -> None:
        entries = [(int(self.oids[bucket]), int(self.slots[bucket])) for bucket in np.nonzero(self.oids != -1)[0]]
        size = 2 * len(self.oids)
        self.oids, self.slots = np.full(size, -1, np.int64), np.zeros(size, np.int32)
        for oid, slot in entries:
            bucket = self._place(oid)
            self.oids[bucket] = oid
            self.slots[bucket] = slot


class RelationSlots:
    """The relation versions of a walk, each with a number: its *slot*.  An oid stands for its newest version.

    Streamed and prepared transactions have versions of their own: see `enter` and `leave`.
    """

    def __init__(self) -> None:
        self.oids: list[int] = []
        self._varying: list[NDArray[np.int64]] = []
        self.columns = np.full((16, 2), -1, np.int64)
        """The number of columns of each slot; -1 if no Relation message has announced it.  Then the address of the
        numbers of those whose texts depend on settings, with -1 behind them."""
        self.counts = np.zeros((16, 4), np.int64)
        """The numbers of inserts, updates, deletes and truncates of each slot."""
        self.newest = _SlotTable()
        self._outer: _SlotTable | None = None

    def __len__(self) -> int:
        return len(self.oids)

    def slot_of(self, oid: int) -> int | None:
        """Return the newest slot of an oid."""
        return self.newest.get(oid)

    def add(self, oid: int, columns: int, relation: m.Relation | None = None) -> int:
        """Assign a new slot to the oid, and return it; earlier rows keep theirs."""
        slot = len(self.oids)
        self.oids.append(oid)
        if slot == len(self.columns):
            self.columns = np.concatenate([self.columns, np.full((slot, 2), -1, np.int64)])
            self.counts = np.concatenate([self.counts, np.zeros((slot, 4), np.int64)])
        types = () if relation is None else (column.type_oid for column in relation.columns)
        varying = [number for number, type_oid in enumerate(types) if type_oid not in STEADY_TEXTS]
        self._varying.append(np.array([*varying, -1], np.int64))  # kept: the kernel has only the address
        self.columns[slot] = columns, self._varying[-1].ctypes.data
        self.newest.put(oid, slot)
        return slot

    def enter(self) -> None:
        """Enter a transaction that has its own versions; it begins with none."""
        assert self._outer is None
        self._outer, self.newest = self.newest, _SlotTable()

    def leave(self, keep: Mapping[int, int]) -> None:
        """Return to the versions outside; ``keep`` has oids and slots that are in force there, too, from now on."""
        assert self._outer is not None
        self.newest, self._outer = self._outer, None
        for oid, slot in keep.items():
            self.newest.put(oid, slot)


RECORD: Final = np.dtype(
    [(name, np.int64) for name in ("lsn", "commit_ts", "xid", "rows", "digest", "origin", "at")],
)
"""A transaction that has ended in a stretch: the commit LSN and time (microseconds since 2000-01-01), the xid; the
number of its row changes in these bytes, and the exclusive or of their digests; the number that the walker has given to
the origin's name (0 for none); and the offset of the Begin, or -1 if it lies before the bytes."""


def truncate_digest(truncate: m.Truncate, ordinal: int) -> int:
    """Digest a truncate's message without its xid, which depends on no settings, as `digest_of` does a row change."""
    oids = truncate.relation_oids
    data = b"T" + m.TRUNCATE.pack(len(oids), truncate.options) + b"".join(map(m.UINT32.pack, oids))
    # Not linear, as a checksum is: those of several truncates are joined by exclusive or.
    return int.from_bytes(hashlib.blake2b(b"%d " % ordinal + data, digest_size=8).digest(), "big") & SHAPE


_NO_RECORDS: Final = np.zeros(0, RECORD)
_START_STATE: NDArray[np.int64] = np.zeros(words.STATE_SIZE, np.int64)
_START_STATE[[words.LSN, words.LAST_LSN, words.FIRST_LSN, words.HIGH_LSN]] = words.NO_LSN
_START_STATE[[words.BEGIN_AT, words.PREVIOUS]] = words.NO_OFFSET
_START_STATE[words.TOP_TIME] = words.NO_COMMIT_TIME
_START_STATE[[words.STOP_LSN, words.STOP_TIME]] = words.NO_STOP


def new_state() -> NDArray[np.int64]:
    """Return the state at the start of a stream: no transaction is open, and nothing was seen."""
    return np.array(_START_STATE)


_NOTHING_PLACED: Final = Placer()


class WalkKernel:
    """The compiled walk over one buffer, with its arrays and its state.

    Attributes:
        placer: places rows while they are walked; None to write them to the tile's arrays only.
    """

    def __init__(self, framing: Framing, *, tile_bytes: int = 0) -> None:
        self.framing = framing
        self.placer: Placer | None = None
        self.state = new_state()
        self.slots = RelationSlots()
        self.want = tile_bytes > 0
        self.tile_bytes = tile_bytes
        self._is_new = True
        # Arrays that the kernel writes to; empty if only boundaries are wanted.  A row change has at least 9 bytes, a
        # cell one; Begin and Commit have 47 together.
        self._offset = self._length = _NO_CELLS
        self._rows, self._records, self._runs = _NO_ROWS, _NO_RECORDS, _NO_RUNS
        if self.want:
            self._offset, self._length = (empty(tile_bytes // 2 + 4 * m.MAX_COLUMNS, np.int32) for _ in range(2))
            self._rows = empty((tile_bytes // 16 + 1) * ROW_WORDS, np.int64).reshape(-1, ROW_WORDS)
            self._records = np.zeros(tile_bytes // 47 + 2, RECORD)
        else:
            self._runs = np.empty((2, _RUNS), np.int64)
        self.aborted = _NO_XIDS
        """The sorted xids whose rows in streamed blocks are left out."""

    def reset(self) -> None:
        """Forget the walk so far."""
        if not self._is_new:
            self.state[:] = new_state()
            self.slots = RelationSlots()
            self.aborted = _NO_XIDS
        self._is_new = False

    def walk(self, buf: NDArray[np.uint8], end: int, tile_end: int) -> Outcome:
        """Walk from ``state[POS]`` on until Python has something to do; see `Outcome`."""
        slots, want, placer = self.slots, words.ARRAYS if self.want else 0, _NOTHING_PLACED
        if self.placer is not None and not self.state[words.CHANGES]:
            # The rows in the arrays come first in the stream, so that they have to be placed before any others.
            want, placer = words.COLUMNS, self.placer
            placer.extend(len(slots))
        slot_table = slots.newest.oids, slots.newest.slots, slots.columns, slots.counts
        records = self._records.view(np.int64).reshape(-1, len(RECORD.names or ()))
        arrays = self._offset, self._length, self._rows, self.aborted, self._runs, records
        code = FRAMING_CODES[self.framing]
        return Outcome(walk_messages(buf, end, tile_end, code, want, self.state, *slot_table, *arrays, placer.marks))

    def take_runs(self) -> NDArray[np.int64]:
        """Return the runs of rows with the same xid in streamed blocks: the xids, and the number of rows of each."""
        count = int(self.state[words.RUN_COUNT])
        self.state[words.RUN_COUNT] = 0
        return np.array(self._runs[:, :count])  # copied, because the kernel overwrites them

    def take_records(self) -> NDArray[np.void]:
        """Return the transactions (`RECORD`) that were recorded since the last call."""
        count = int(self.state[words.RECORDS])
        self.state[words.RECORDS] = 0
        return np.array(self._records[:count])

    def take_tile(self) -> Tile | None:
        """Return the rows gathered since the last tile, which the next walk overwrites; None if there are none."""
        count = int(self.state[words.CHANGES])
        # Rows in columns may be pending though the arrays are empty; completing them needs the cells.
        if count == 0 and (self.placer is None or not self.placer.has_any):
            return None
        tile = Tile(self._rows[:count], self._offset, self._length, bool(self.state[words.UNCHANGED_CELLS]))
        self.state[[words.CHANGES, words.CELLS, words.UNCHANGED_CELLS]] = 0
        return tile

    def add_truncate(self, slot: int) -> None:
        """Add a truncate of one relation to the row changes, with the next ordinal."""
        state = self.state
        if not self.want or state[words.SKIP] != words.NOT_COUNTED:  # as in the kernel: a scan counts all
            self.slots.counts[slot, 3] += 1
        if not self.want or state[words.SKIP]:
            return
        row = int(state[words.CHANGES])
        if row == len(self._rows):
            # One Truncate message may name any number of relations.
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        source = state[words.ORIGIN] << 32 | state[words.MESSAGE]  # as `RowPlaces` reads it
        transaction = state[[words.LSN, words.COMMIT_TS, words.XID, words.ORDINAL]]
        self._rows[row] = (words.TRUNCATE, slot, *transaction, source, -1, -1)
        state[words.CHANGES] = row + 1


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is open at a place of the stream, between its Begin (or Begin Prepare) and its end.

    Attributes:
        final_lsn: the commit LSN, which its Begin names; for a transaction that is being prepared, the prepare LSN.
        commit_time: the commit time (or prepare time) in microseconds since 2000-01-01.
        ordinal: the ordinal of its next row change.
        gid: the gid if it is being prepared; otherwise None.
    """

    final_lsn: int
    commit_time: int
    xid: int
    ordinal: int
    gid: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Everything that has to be known to continue at a message's boundary.

    Attributes:
        transaction: the open transaction; None between transactions.
        stream: the xid of the streamed block in which the place lies; None outside of blocks.
        last_lsn: the commit LSN of the session's last transaction, -1 at the session's start.  They rise in a session.
        high_lsn: the highest commit LSN of all sessions.  A transaction up to it is a copy.
        message_lsn: the LSN of the last logical message that belongs to no transaction.
        begun: the session has had a message before this place.
        session: the number of sessions before this one.
    """

    framing: Framing
    transaction: Transaction | None = None
    stream: int | None = None
    last_lsn: int = words.NO_LSN
    last_commit_time: int = 0
    high_lsn: int = words.NO_LSN
    high_commit_time: int = 0
    message_lsn: int = words.NO_LSN
    begun: bool = False
    session: int = 0

    def new_session(self) -> Place:
        """Return the place at which the next session begins, if this session ends here."""
        return replace(
            self,
            transaction=None,
            stream=None,
            last_lsn=words.NO_LSN,
            last_commit_time=0,
            begun=False,
            session=self.session + 1,
        )

"""Decode files in one pass, while nothing in them hangs on what comes later.

A plan of all files (`walreplay.transactions`) needs a pass of its own, in front of that which decodes.  One session of
ordinary transactions (Begin to Commit) needs none: each describes itself, and is decoded where it lies.  Whatever else
is found ends the pass with `NotPlain`: streamed and prepared transactions, another session, logical messages (whose
content can be anything), and all that cannot be.  Then the plan decides, and what was given is skipped.

No transaction is held as a whole: one whose batches come to `MOST_WAITING` bytes before its Commit ends the pass, too.

Invariants
----------
- Rows are given once their transaction's Commit was read, and it cannot be read otherwise any more: either the file has
  come to its end, or the walk is further than the search for a torn message ever goes back (`readings.FAR` bytes from
  the last whole message, and from there to the beginning of the message before that).
- What was given of a relation is the beginning of what the plan gives of it; but for an error in a value, all up to one
  commit LSN can be given (`OnePass.rest`) before the plan takes over, which need not decode it again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, Final

import numpy as np

from walreplay.decode import walk
from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import TILE_BYTES, Decoder
from walreplay.decode.files import HEAD_LIMIT, RECOGNISABLE_BYTES, recognise
from walreplay.decode.place import Place
from walreplay.decode.sessions import readings
from walreplay.decode.sessions.leftover import refuse_leftover
from walreplay.decode.sessions.starts import may_begin
from walreplay.errors import WalReplayError
from walreplay.protocol import messages as m
from walreplay.protocol.compression import plain
from walreplay.protocol.foreign import HEAD_BYTES, what_is
from walreplay.protocol.framing import Framing
from walreplay.types.text import UTF8

_TILES_BACK: Final = 2
"""A tile has a message at least."""

MOST_WAITING: Final = 256 << 20
"""So many bytes of batches wait for their Commit at the most."""

_PLAIN: Final = (m.Relation, m.Type, m.Origin, m.Truncate)


class NotPlain(Exception):
    """The files hold what only a plan of all of them can tell."""


class _Walker(Decoder):
    breaks: ClassVar[bool] = True
    is_sound = True
    """The rows that are gathered are whole; not once a value was refused."""

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        if not isinstance(message, _PLAIN) or self.doubtful_at is not None:
            raise NotPlain
        super().on_message(message, offset)

    def rows_of(self, data: memoryview, start: int, stop_at: int | None = None) -> Iterator[list[ChangeBatch]]:
        """Walk whole messages; for each tile, give the batches that it has filled."""
        buf = np.frombuffer(data, np.uint8)
        for tile in self.walk(data, start, stop_at):
            self.is_sound = False
            full = list(self.convert(buf, tile))
            self.is_sound = True
            yield full
        if self.broke:
            raise NotPlain

    @property
    def last_lsn(self) -> int:
        """The commit LSN of the last transaction that has ended."""
        return int(self.kernel.state[walk.LAST_LSN])

    @property
    def last_at(self) -> int:
        """Where the last whole message begins."""
        return int(self.kernel.state[walk.PREVIOUS])


class OnePass:
    """Decode the files of a stream, one after the other.

    Args:
        framing: where it is known.
        tile_bytes, codec: see `Decoder`.

    Attributes:
        given: how many rows were given of each relation, by its oid.
        final: transactions up to this commit LSN are as they were read.
    """

    def __init__(self, framing: Framing | None, *, tile_bytes: int | None = None, codec: str = UTF8) -> None:
        self.given: Counter[int] = Counter()
        self._framing = framing
        self._tile_bytes = tile_bytes or TILE_BYTES
        self._codec = codec
        self._walker: _Walker | None = None
        self._place: Place | None = None
        self._tail = b""
        self._waiting: deque[ChangeBatch] = deque()
        self._waiting_bytes = 0
        self.final = walk.NO_LSN
        self._first_needed = 0
        self._files = 0
        self._ended: deque[tuple[int, int]] = deque()
        """Where the tiles end in the file, and the commit LSN of the last transaction before that."""

    def read(self, content: bytes | memoryview) -> Iterator[ChangeBatch]:
        """Read the next file; give the batches that are full.

        Raises:
            NotPlain: and nothing more can be read.
        """
        try:
            yield from self._read(content)
        except WalReplayError as error:
            # The plan tells what is wrong, and where.
            raise NotPlain from error

    def check_end(self) -> None:
        """See that what is unfinished may wait, when there are no more files.

        Raises:
            NotPlain: it may not.
        """
        try:
            if self._tail and self._place is not None:
                refuse_leftover(self._tail, self._place.framing, self._codec)
        except WalReplayError as error:
            raise NotPlain from error

    @property
    def _is_sound(self) -> bool:
        return self._walker is None or self._walker.is_sound

    @property
    def first_needed(self) -> int:
        """The number of the first file with rows that were not given, once `rest` was."""
        return self._first_needed if self._is_sound else 0

    def known_rows(self) -> Callable[[ChangeBatch], int]:
        """Give a count of a batch's first rows that were given, by `rest` too; for a plan's batches in their order."""
        if self._is_sound:
            return partial(_rows_up_to, lsn=self.final)
        return partial(_first_rows, left=self.given.copy())

    def rest(self) -> Iterator[ChangeBatch]:
        """Give what is left up to `final`, when there are no more files, or no more can be read.

        Nothing once a value was refused: then not all rows that are gathered are whole.
        """
        if not self._is_sound:
            return
        for batch in (*self._waiting, *(self._walker.rest() if self._walker is not None else ())):
            rows = _rows_up_to(batch, self.final)
            if rows:
                yield self._give(batch.slice(0, rows))

    def _read(self, content: bytes | memoryview) -> Iterator[ChangeBatch]:
        data = plain(content).data
        walker, place = self._begin(data)
        start = 0
        if self._tail:
            start, place = self._read_seam(walker, place, data)
        walker.start(place, walker.relations)
        for full in walker.rows_of(data, start):
            self._wait_for_commit(full)
            self._note_tile(walker)
            yield from self._ready()
            if self._waiting_bytes > MOST_WAITING:
                raise NotPlain
        self._place, position = walker.place, walker.position
        if position == start and what_is(data[start : start + HEAD_BYTES]) is not None:
            # Not the beginning of a message.
            raise NotPlain
        readings.check_tail(data, position, self._place, self._codec)
        self._tail = bytes(data[position:])
        self.final = walker.last_lsn
        self._ended.clear()
        self._files += 1
        self._note_needed(walker)
        yield from self._ready()

    def _note_needed(self, walker: _Walker) -> None:
        state = walker.kernel.state
        if state[walk.TXN] == walk.IDLE:
            self._first_needed = self._files
        elif state[walk.BEGIN_AT] != walk.NO_OFFSET:
            self._first_needed = self._files - 1

    def _begin(self, data: memoryview) -> tuple[_Walker, Place]:
        if self._walker is not None and self._place is not None:
            return self._walker, self._place
        framing = self._framing
        if framing is None:
            framing = recognise(data, self._codec) if len(data) >= RECOGNISABLE_BYTES else None
        if framing is None:
            raise NotPlain
        self._walker = _Walker(framing, tile_bytes=self._tile_bytes, codec=self._codec)
        return self._walker, Place(framing)

    def _read_seam(self, walker: _Walker, place: Place, data: memoryview) -> tuple[int, Place]:
        """Read the message that the file before has begun; give where the next one begins, and the place."""
        if may_begin(data, place.framing):
            raise NotPlain
        size = len(self._tail)
        walker.start(place, walker.relations)
        for full in walker.rows_of(memoryview(self._tail + bytes(data[:HEAD_LIMIT])), 0, size):
            self._wait_for_commit(full)
        if walker.position < size:
            raise NotPlain
        return walker.position - size, walker.place

    def _note_tile(self, walker: _Walker) -> None:
        self._ended.append((walker.position, walker.last_lsn))
        while len(self._ended) > _TILES_BACK and self._ended[_TILES_BACK][0] <= walker.last_at - readings.FAR:
            self.final = self._ended.popleft()[1]

    def _ready(self) -> Iterator[ChangeBatch]:
        while self._waiting and _last_lsn(self._waiting[0]) <= self.final:
            batch = self._waiting.popleft()
            self._waiting_bytes -= batch.data.nbytes
            yield self._give(batch)

    def _wait_for_commit(self, batches: list[ChangeBatch]) -> None:
        self._waiting += batches
        self._waiting_bytes += sum(batch.data.nbytes for batch in batches)

    def _give(self, batch: ChangeBatch) -> ChangeBatch:
        self.given[batch.relation.oid] += batch.data.num_rows
        return batch


def _first_rows(batch: ChangeBatch, left: Counter[int]) -> int:
    """Count rows among the first of a relation, of which so many are left to be counted."""
    known: int = min(batch.data.num_rows, left[batch.relation.oid])
    left[batch.relation.oid] -= known
    return known


def _rows_up_to(batch: ChangeBatch, lsn: int) -> int:
    return int(np.searchsorted(batch.commit_lsns.to_numpy(), lsn, side="right"))


def _last_lsn(batch: ChangeBatch) -> int:
    lsns = batch.commit_lsns
    return int(lsns[len(lsns) - 1].as_py())

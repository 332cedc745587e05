"""Decode files in one pass, as long as their rows do not depend on later bytes.

A plan of all files (`walreplay.stream`) needs a pass of its own before the decode.  A single session of ordinary
transactions (Begin to Commit) needs no plan: each transaction is complete by itself, and is decoded where it lies
(`PlainWalker`).  Anything else ends the pass with `NotPlain`: streamed and prepared transactions, another session,
logical messages (whose content can be anything), and errors.  Then a plan is made, and rows already returned are
skipped.  No transaction is held in memory completely: the pass also ends if its batches take `MOST_WAITING` bytes
before its Commit.

A torn message may be noticed late, and then changes how earlier bytes are read.  So batches wait (`WaitingRows`).

Invariants
----------
- Rows are returned once their transaction's Commit was read and no torn message can reach back to it: either the file
  has ended, or the walk is further than the search for a torn message ever goes back (`readings.FAR` bytes from the
  last whole message, and from there to the beginning of the message before that).
- The returned rows of a relation are the first rows that a plan would return of it.  Unless there was an error in a
  value, all rows up to one commit LSN can be returned (`WaitingRows.rest`) before a plan takes over, which skips them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar, Final

import numpy as np

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import TILE_BYTES, Decoder
from walreplay.decode.files import confirmed
from walreplay.decode.kernels import walk_words as words
from walreplay.decode.scan import HEAD_LIMIT, SOUND_MESSAGES
from walreplay.decode.sessions import readings
from walreplay.decode.sessions.readings import check_tail
from walreplay.decode.sessions.resync import refuse_leftover
from walreplay.decode.sessions.starts import may_begin
from walreplay.decode.walk import Place
from walreplay.errors import WalReplayError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.opening import RECOGNISABLE_BYTES, Opened, open_file
from walreplay.types.text import UTF8, names_in

_TILES_BACK: Final = 2  # So many tiles have to end after a row, because each has at least one message


class WaitingRows:
    """Waiting batches, in stream order.

    Attributes:
        given: the number of rows that were given, by relation oid.
        final: transactions up to this commit LSN are final.
        size: the size of the waiting batches in bytes.
    """

    def __init__(self) -> None:
        self.given: Counter[int] = Counter()
        self.final = words.NO_LSN
        self.size = 0
        self._batches: deque[ChangeBatch] = deque()
        self._ended: deque[tuple[int, int]] = deque()
        """Where tiles end in the file, and the commit LSN of the last complete transaction there."""

    def add(self, batches: list[ChangeBatch]) -> None:
        """Add batches."""
        self._batches += batches
        self.size += sum(batch.data.nbytes for batch in batches)

    def end_tile(self, position: int, last_at: int, last_lsn: int) -> None:
        """Note how far a file was read.

        Args:
            position: where the tile ends.
            last_at: where the last whole message begins.
            last_lsn: the commit LSN of the last complete transaction.
        """
        self._ended.append((position, last_lsn))
        while len(self._ended) > _TILES_BACK and self._ended[_TILES_BACK][0] <= last_at - readings.FAR:
            self.final = self._ended.popleft()[1]

    def end_file(self, last_lsn: int) -> None:
        """Note that a file was read to its end."""
        self.final = last_lsn
        self._ended.clear()

    def ready(self) -> Iterator[ChangeBatch]:
        """Yield the batches that are final."""
        while self._batches and self._batches[0].commit_lsns[-1].as_py() <= self.final:
            batch = self._batches.popleft()
            self.size -= batch.data.nbytes
            yield self._give(batch)

    def rest(self, gathered: Iterable[ChangeBatch]) -> Iterator[ChangeBatch]:
        """Yield the remaining rows up to `final`, from the waiting batches and from the gathered ones."""
        for batch in (*self._batches, *gathered):
            rows = _rows_up_to(batch, self.final)
            if rows:
                yield self._give(batch.slice(0, rows))

    def _give(self, batch: ChangeBatch) -> ChangeBatch:
        self.given[batch.relation.oid] += batch.data.num_rows
        return batch


def _first_rows(batch: ChangeBatch, uncounted: Counter[int]) -> int:
    """Count a batch's rows that were given; ``uncounted`` has how many are not counted yet, by oid."""
    given: int = min(batch.data.num_rows, uncounted[batch.relation.oid])
    uncounted[batch.relation.oid] -= given
    return given


def _rows_up_to(batch: ChangeBatch, lsn: int) -> int:
    return int(np.searchsorted(batch.commit_lsns.to_numpy(), lsn, side="right"))


_PLAIN: Final = (m.Relation, m.Type, m.Origin, m.Truncate)


class NotPlain(Exception):
    """The files have something that only a plan of all files can decode."""


class PlainWalker(Decoder):
    """Decode bytes in their order, as long as their rows do not depend on later bytes.

    Attributes:
        is_sound: all gathered rows are complete; False after an error in a value.
    """

    allows_session_end: ClassVar[bool] = True
    is_sound = True

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Refuse messages that need a plan."""
        if not isinstance(message, _PLAIN) or self.unannounced_type_at is not None:
            raise NotPlain
        super().on_message(message, offset)

    def rows_of(
        self, data: memoryview, place: Place, start: int, stop_at: int | None = None
    ) -> Iterator[list[ChangeBatch]]:
        """Walk over whole messages; for each tile, give the batches that it has filled.

        Args:
            place: the place in the stream at ``start``.
            stop_at: stop at the first boundary at or after this offset.

        Raises:
            NotPlain: a plan is needed.
        """
        self.start(place, self.relations)
        buf = np.frombuffer(data, np.uint8)
        for tile in self.walk(data, start, stop_at):
            self.is_sound = False  # an error in a value leaves half a tile in the builders
            full = list(self.convert(buf, tile))
            self.is_sound = True
            yield full
        if self.stopped_at_session:  # the next session may send copies
            raise NotPlain


MOST_WAITING: Final = 256 << 20  # So many bytes of batches may wait for their Commit


class OnePass:
    """Decode the files of a stream, one after the other.

    Args:
        framing: the stream's; None to recognise it.
        tile_bytes, codec: see `Decoder`.
    """

    def __init__(self, framing: Framing | None, *, tile_bytes: int | None = None, codec: str = UTF8) -> None:
        self._framing = framing
        self._is_confirmed = framing is not None  # or so many sound messages have confirmed it
        self._tile_bytes = tile_bytes or TILE_BYTES
        self._codec = codec
        self._walker: PlainWalker | None = None
        self._place: Place | None = None
        self._tail = b""
        self._waiting = WaitingRows()
        self._first_needed = 0
        self._files = 0

    def read(self, content: bytes | memoryview) -> Iterator[ChangeBatch]:
        """Read the next file; yield batches whose rows are final.

        Raises:
            NotPlain: a plan is needed; nothing more can be read here.
        """
        try:
            yield from self._read(content)
        except WalReplayError as error:
            # Planning will report the error, with its place.
            raise NotPlain from error

    def check_end(self) -> None:
        """After the last file, check that its unfinished bytes may be the beginning of a message.

        Raises:
            NotPlain: they are damaged.
        """
        try:
            if self._tail and self._place is not None:
                refuse_leftover(self._tail, self._place.framing, self._codec)
        except WalReplayError as error:
            raise NotPlain from error

    @property
    def _is_sound(self) -> bool:
        return self._walker is None or (self._is_confirmed and self._walker.is_sound)

    @property
    def first_needed(self) -> int:
        """The number of the first file with rows that are not given, even by `rest`."""
        return self._first_needed if self._is_sound else 0

    def known_rows(self) -> Callable[[ChangeBatch], int]:
        """Return a function that says how many of a batch's first rows were given, by `rest` or before.

        It has to be called with the batches of a plan, in their order.
        """
        if self._is_sound:
            return partial(_rows_up_to, lsn=self._waiting.final)
        return partial(_first_rows, uncounted=self._waiting.given.copy())

    def rest(self) -> Iterator[ChangeBatch]:
        """Yield the remaining final rows, after the last file or after `NotPlain`.

        There are none after an error in a value, because then some gathered rows are incomplete.
        """
        if self._is_sound:
            yield from self._waiting.rest(self._walker.rest() if self._walker is not None else ())

    def _read(self, content: bytes | memoryview) -> Iterator[ChangeBatch]:
        opened, walker, place = self._open(content)
        data, start = opened.data, 0
        if self._tail:
            # The file continues a message of the file before.
            if may_begin(data, place.framing):  # it may also begin a session
                raise NotPlain
            size = len(self._tail)
            # Only the message that goes on is walked here, so the whole file need not be copied.
            seam = memoryview(self._tail + bytes(data[:HEAD_LIMIT]))
            for full in walker.rows_of(seam, place, 0, size):
                self._waiting.add(full)
            if walker.position < size:  # the message does not end in the seam
                raise NotPlain
            start, place = walker.position - size, walker.place
        state = walker.kernel.state
        for full in walker.rows_of(data, place, start):
            self._waiting.add(full)
            self._waiting.end_tile(walker.position, int(state[words.PREVIOUS]), int(state[words.LAST_LSN]))
            self._is_confirmed = self._is_confirmed or bool(state[words.MESSAGES] >= SOUND_MESSAGES)
            if self._is_confirmed:
                yield from self._waiting.ready()
            if self._waiting.size > MOST_WAITING:
                raise NotPlain
        place, position = walker.place, walker.position
        if position == start and opened.foreign is not None:
            # The file does not begin with a message.
            raise NotPlain
        if not self._is_confirmed and confirmed(place.framing, data[:HEAD_LIMIT], self._codec) is not place.framing:
            raise NotPlain
        self._is_confirmed = True
        if position < len(data):
            check_tail(data, position, place, self._codec)
        self._place, self._tail = place, bytes(data[position:])
        self._waiting.end_file(int(state[words.LAST_LSN]))
        self._files += 1
        if state[words.TXN] == words.IDLE:
            self._first_needed = self._files
        elif state[words.BEGIN_AT] != words.NO_OFFSET:
            # The open transaction begins in this file.
            self._first_needed = self._files - 1
        yield from self._waiting.ready()

    def _open(self, content: bytes | memoryview) -> tuple[Opened, PlainWalker, Place]:
        """Open the next file; the first one shows the stream's framing."""
        opened = open_file(content, names_in(self._codec) if self._framing is None else None)
        if self._walker is not None and self._place is not None:
            return opened, self._walker, self._place
        if self._framing is None and opened.foreign is None and len(opened.data) >= RECOGNISABLE_BYTES:
            self._framing = opened.framing
        if self._framing is None:
            raise NotPlain
        self._walker = PlainWalker(self._framing, tile_bytes=self._tile_bytes, codec=self._codec)
        return opened, self._walker, Place(self._framing)

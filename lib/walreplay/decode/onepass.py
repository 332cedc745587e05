"""Decode files in one pass, while nothing in them hangs on what comes later.

A plan of all files (`walreplay.transactions`) needs a pass of its own, in front of that which decodes.  One session of
ordinary transactions (Begin to Commit) needs none: each describes itself, and is decoded where it lies.  Whatever else
is found ends the pass with `NotPlain`: streamed and prepared transactions, another session, logical messages (whose
content can be anything), and all that cannot be.  Then the plan decides, and what was given is skipped.

No transaction is held as a whole: one whose batches come to `MOST_WAITING` bytes before its Commit ends the pass, too.

What is given, and when, is told in `walreplay.decode.waiting`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import TILE_BYTES
from walreplay.decode.place import Place
from walreplay.decode.plain_walker import NotPlain, PlainWalker
from walreplay.decode.recognition import confirmed
from walreplay.decode.scan import HEAD_LIMIT
from walreplay.decode.sessions.leftover import refuse_leftover
from walreplay.decode.sessions.readings import check_tail
from walreplay.decode.sessions.starts import may_begin
from walreplay.decode.waiting import WaitingRows
from walreplay.errors import WalReplayError
from walreplay.protocol.framing import Framing
from walreplay.protocol.opening import RECOGNISABLE_BYTES, Opened, open_file
from walreplay.types.text import UTF8, names_in

MOST_WAITING: Final = 256 << 20
"""So many bytes of batches wait for their Commit at the most."""


class OnePass:
    """Decode the files of a stream, one after the other.

    Args:
        framing: where it is known.
        tile_bytes, codec: see `Decoder`.
    """

    def __init__(self, framing: Framing | None, *, tile_bytes: int | None = None, codec: str = UTF8) -> None:
        self._framing = framing
        self._tile_bytes = tile_bytes or TILE_BYTES
        self._codec = codec
        self._walker: PlainWalker | None = None
        self._place: Place | None = None
        self._tail = b""
        self._waiting = WaitingRows()
        self._first_needed = 0
        self._files = 0

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
    def given(self) -> Counter[int]:
        """How many rows were given of each relation, by its oid."""
        return self._waiting.given

    @property
    def first_needed(self) -> int:
        """The number of the first file with rows that were not given, once `rest` was."""
        return self._first_needed if self._is_sound else 0

    def known_rows(self) -> Callable[[ChangeBatch], int]:
        """Give a count of a batch's first rows that were given, by `rest` too; for a plan's batches in their order."""
        return self._waiting.known_rows(all_given=self._is_sound)

    def rest(self) -> Iterator[ChangeBatch]:
        """Give what is left and final, when there are no more files, or no more can be read.

        Nothing once a value was refused: then not all rows that are gathered are whole.
        """
        if self._is_sound:
            yield from self._waiting.rest(self._walker.rest() if self._walker is not None else ())

    def _read(self, content: bytes | memoryview) -> Iterator[ChangeBatch]:
        opened, walker, place = self._open(content)
        data, start = opened.data, 0
        if self._tail:
            # The message that the file before has begun.
            if may_begin(data, place.framing):
                raise NotPlain
            size = len(self._tail)
            seam = memoryview(self._tail + bytes(data[:HEAD_LIMIT]))
            for full in walker.rows_of(seam, place, 0, size):
                self._waiting.add(full)
            if walker.position < size:
                raise NotPlain
            start, place = walker.position - size, walker.place
        for full in walker.rows_of(data, place, start):
            self._waiting.add(full)
            self._waiting.end_tile(walker.position, walker.last_at, walker.last_lsn)
            yield from self._waiting.ready()
            if self._waiting.size > MOST_WAITING:
                raise NotPlain
        place, position = walker.place, walker.position
        if position == start and opened.foreign is not None:
            # Not the beginning of a message.
            raise NotPlain
        check_tail(data, position, place, self._codec)
        self._place, self._tail = place, bytes(data[position:])
        self._waiting.end_file(walker.last_lsn)
        self._files += 1
        if walker.is_between:
            self._first_needed = self._files
        elif walker.has_begun:
            self._first_needed = self._files - 1
        yield from self._waiting.ready()

    def _open(self, content: bytes | memoryview) -> tuple[Opened, PlainWalker, Place]:
        """Open the next file; the stream's framing is told by the first."""
        opened = open_file(content, names_in(self._codec) if self._framing is None else None)
        if self._walker is not None and self._place is not None:
            return opened, self._walker, self._place
        if self._framing is None and opened.foreign is None and len(opened.data) >= RECOGNISABLE_BYTES:
            self._framing = confirmed(opened.framing, opened.data[:HEAD_LIMIT], self._codec)
        if self._framing is None:
            raise NotPlain
        self._walker = PlainWalker(self._framing, tile_bytes=self._tile_bytes, codec=self._codec)
        return opened, self._walker, Place(self._framing)


__all__ = ["MOST_WAITING", "OnePass"]

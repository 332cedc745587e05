"""Decode files in one pass, as long as their rows do not depend on later bytes.

A plan of all files (`walreplay.transactions`) needs a pass of its own before the decode.  A single session of ordinary
transactions (Begin to Commit) needs no plan: each transaction is complete by itself, and is decoded where it lies.
Anything else ends the pass with `NotPlain`: streamed and prepared transactions, another session, logical messages
(whose content can be anything), and errors.  Then a plan is made, and the rows that were already given are skipped.

A transaction is not held in memory completely: the pass also ends if its batches take `MOST_WAITING` bytes before its
Commit.

`walreplay.decode.waiting` says which rows are given, and when.
"""

from __future__ import annotations

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
"""So many bytes of batches may wait for their Commit."""


class OnePass:
    """Decode the files of a stream, one after the other.

    Args:
        framing: the stream's; None to recognise it.
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
        """Read the next file; give batches whose rows are final.

        Args:
            content: the file's bytes as stored.

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
        return self._walker is None or self._walker.is_sound

    @property
    def first_needed(self) -> int:
        """The number of the first file with rows that are not given, even by `rest`."""
        return self._first_needed if self._is_sound else 0

    def known_rows(self) -> Callable[[ChangeBatch], int]:
        """Give a function that says how many of a batch's first rows were given, by `rest` or before.

        It has to be called with the batches of a plan, in their order.
        """
        return self._waiting.known_rows(all_given=self._is_sound)

    def rest(self) -> Iterator[ChangeBatch]:
        """Give the remaining final rows, after the last file or after `NotPlain`.

        There are none after an error in a value, because then some gathered rows are incomplete.
        """
        if self._is_sound:
            yield from self._waiting.rest(self._walker.rest() if self._walker is not None else ())

    def _read(self, content: bytes | memoryview) -> Iterator[ChangeBatch]:
        opened, walker, place = self._open(content)
        data, start = opened.data, 0
        if self._tail:
            # The file continues a message of the file before.
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
            # The file does not begin with a message.
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
        """Open the next file; the first one shows the stream's framing."""
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

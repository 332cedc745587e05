"""Summarise one file: what the stitch needs to know of it, and no more.

The summary's size grows with the relations, truncates and rare messages of a file, never with its rows.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from wal2delta.decode import walk
from wal2delta.decode.resync import find_boundary, guess_framing
from wal2delta.decode.stream import Place, StreamWalker
from wal2delta.errors import CaptureError, FramingError, MalformedMessage, NotSupported, Wal2DeltaError
from wal2delta.protocol import messages as m
from wal2delta.protocol.compression import decompress, detect_compression
from wal2delta.protocol.detection import detect_framing
from wal2delta.protocol.framing import Framing

FINGERPRINT_BYTES: Final = 1 << 16
HEAD_LIMIT: Final = 4 << 20
"""A head longer than this is not carried to the driver; the file is walked again from its true start instead."""

RECOGNISABLE_BYTES: Final = 64
"""A stream cut before this many bytes may not show its framing yet; it goes on in the next file."""

_STREAMED: Final = (m.StreamStart, m.StreamCommit, m.StreamAbort, m.StreamPrepare)
_TWO_PHASE: Final = (m.BeginPrepare, m.Prepare, m.CommitPrepared, m.RollbackPrepared)


@dataclass(frozen=True, slots=True)
class TruncateAt:
    """A truncate of one relation; ``lsn`` is None in a transaction whose Begin lies before the stretch.

    ``ordinal`` counts from the transaction's start, or from the stretch's where that is unknown.
    """

    oid: int
    lsn: int | None
    ordinal: int


def with_last(known: tuple[TruncateAt, ...], at: TruncateAt) -> tuple[TruncateAt, ...]:
    """Give a relation's last truncate, and the last one of the transactions before it.

    The last transaction may be open at the captures' end; then the one before it is what counts.
    """
    return (*[earlier for earlier in known if earlier.lsn != at.lsn][-1:], at)


@dataclass(frozen=True, slots=True)
class Counts:
    """Row changes of one relation."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0

    @property
    def changes(self) -> int:
        """All of them."""
        return self.inserts + self.updates + self.deletes + self.truncates

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.inserts + other.inserts,
            self.updates + other.updates,
            self.deletes + other.deletes,
            self.truncates + other.truncates,
        )


@dataclass(slots=True)
class Summary:
    """What a stretch of a stream holds: whole messages, from one boundary to another.

    Attributes:
        exact: walked from a known place; else from a guess, and the head's transaction is unknown.
        head_changes: row changes before the first Begin or Commit, where the start was guessed.
        head_commit: commit LSN and time of the transaction that was open at a guessed start, once it ended.
        place: where the stretch ends; None while the head's transaction is unknown to its end.
        begin_at: offset of the Begin of the transaction that is open at the end, where it lies in the stretch.
        used: relations that rows name before (or without) a Relation message of the stretch, and where.
        relations: the Relation messages with their offsets.
    """

    framing: Framing
    exact: bool
    start: int
    stop: int
    place: Place | None
    begin_at: int | None
    head_changes: int = 0
    head_commit: tuple[int, int] | None = None
    transactions: int = 0
    first_lsn: int | None = None
    first_commit_time: int | None = None
    last_lsn: int | None = None
    last_commit_time: int | None = None
    used: tuple[tuple[int, int], ...] = ()
    relations: tuple[tuple[int, m.Relation], ...] = ()
    types: tuple[m.Type, ...] = ()
    truncates: tuple[TruncateAt, ...] = ()
    counts: dict[int, Counts] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class FileScan:
    """One file's summary, as it comes from an executor.

    Attributes:
        length: bytes of the file as stored; ``size`` of what they decompress to.
        head: the bytes before the summary's start, which continue the file before; None when too many.
        tail: the unfinished bytes behind the summary's stop.
        seam: the message that the file's start cuts, where the bytes before were given.
        summary: None when no boundary was found: the file lies inside one message as far as can be told.
        fingerprint: checksums of the beginning and of the end, to notice that a file has changed;
            ``known_fingerprint`` is that of the part which an earlier run has read.
        framing: the stream's, where it was recognised at its beginning.
    """

    path: str
    length: int
    size: int
    compression: str | None
    fingerprint: int
    head: bytes | None = None
    summary: Summary | None = None
    tail: bytes = b""
    seam: Summary | None = None
    known_fingerprint: int = 0
    framing: Framing | None = None


class Scanner(StreamWalker):
    """Gather a `Summary` of one stretch.

    Args:
        inspecting: count streamed and two-phase transactions instead of refusing them.
    """

    def __init__(self, framing: Framing, *, place: Place | None, inspecting: bool = False) -> None:
        super().__init__(framing, place=place, relations={})
        self._inspecting = inspecting
        self._starts_open = place is not None and place.transaction is not None
        self._committed: list[tuple[int, int]] = []
        self._exact = place is not None
        self._used: dict[int, int] = {}
        self._relations: list[tuple[int, m.Relation]] = []
        self._types: list[m.Type] = []
        self._truncates: dict[int, tuple[TruncateAt, ...]] = {}
        self._rare: Counter[str] = Counter()
        self._head: tuple[int, tuple[int, int]] | None = None

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        """Leave it to the stitch, which knows what the files before announced."""
        self._used[oid] = offset
        return -1

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Keep what the stitch needs of the rare messages."""
        self._rare[type(message).__name__] += 1
        state = self.kernel.state
        if isinstance(message, m.Relation):
            self._relations.append((offset, message))
        elif isinstance(message, m.Type):
            self._types.append(message)
        elif isinstance(message, m.Truncate):
            lsn = int(state[walk.LSN])
            for oid in message.relation_oids:
                at = TruncateAt(oid, None if lsn == walk.NO_LSN else lsn, int(state[walk.ORDINAL]))
                self._truncates[oid] = with_last(self._truncates.get(oid, ()), at)
        elif isinstance(message, _STREAMED + _TWO_PHASE) and self._inspecting:
            if isinstance(message, (m.StreamCommit, m.CommitPrepared)):
                self._committed.append((message.commit_lsn, message.commit_time))
        elif isinstance(message, _STREAMED + _TWO_PHASE):
            what = "streamed" if isinstance(message, _STREAMED) else "two-phase"
            raise NotSupported(
                f"a {type(message).__name__} message: {what} transactions can be inspected, not yet applied",
                offset=offset,
                remedy="Record with proto_version 1 (or without streaming and two_phase) until they can",
            )

    def on_head_commit(self, commit: m.Commit) -> None:
        """End the head's transaction."""
        self._head = (int(self.kernel.state[walk.ORDINAL]), (commit.commit_lsn, commit.commit_time))

    def scan(self, data: bytes | memoryview, start: int, stop_at: int | None = None) -> Summary:
        """Walk the whole messages from ``start`` and summarise them."""
        for _ in self.walk(data, start, stop_at):
            pass
        state, slots = self.kernel.state, self.kernel.slots
        still_head = state[walk.TXN] == walk.UNKNOWN_HEAD
        head_changes, head_commit = self._head or (int(state[walk.ORDINAL]) if still_head else 0, None)
        counts: dict[int, Counts] = {}
        for slot, oid in enumerate(slots.oids):
            row = slots.counts[slot]
            if row.any():
                counts[oid] = counts.get(oid, Counts()) + Counts(*(int(value) for value in row))
        ordinary = int(state[walk.TRANSACTIONS])
        commits = list(self._committed)
        if head_commit is not None:
            commits.append(head_commit)
        if state[walk.FIRST_LSN] != walk.NO_LSN:
            commits.append((int(state[walk.FIRST_LSN]), int(state[walk.FIRST_COMMIT_TS])))
        if ordinary:
            commits.append((int(state[walk.LAST_LSN]), int(state[walk.LAST_COMMIT_TS])))
        first, last = (min(commits), max(commits)) if commits else ((None, None), (None, None))
        in_body = state[walk.TXN] == walk.OPEN and state[walk.BEGIN_AT] != walk.NO_OFFSET
        hot = {
            "Begin": ordinary + bool(state[walk.TXN] == walk.OPEN) - self._begun_before(head_commit is not None),
            "Commit": ordinary,
            "Insert": sum(c.inserts for c in counts.values()),
            "Update": sum(c.updates for c in counts.values()),
            "Delete": sum(c.deletes for c in counts.values()),
        }
        return Summary(
            framing=self.framing,
            exact=self._exact,
            start=start,
            stop=self.position,
            place=None if still_head else self.place,
            begin_at=int(state[walk.BEGIN_AT]) if in_body else None,
            head_changes=head_changes,
            head_commit=head_commit,
            transactions=ordinary + len(self._committed),
            first_lsn=first[0],
            first_commit_time=first[1],
            last_lsn=last[0],
            last_commit_time=last[1],
            used=tuple(self._used.items()),
            relations=tuple(self._relations),
            types=tuple(self._types),
            truncates=tuple(at for known in self._truncates.values() for at in known),
            counts=counts,
            messages={name: count for name, count in {**hot, **self._rare}.items() if count},
        )

    def _begun_before(self, head_committed: bool) -> int:
        """Give how many of the stretch's transactions began before it."""
        return int(self._starts_open or head_committed)


def fingerprint(data: bytes | memoryview, size: int) -> int:
    """Check sums of the first 64 KiB and of the last 64 KiB of a file's first ``size`` bytes."""
    view = memoryview(data)[:size]
    return zlib.crc32(view[-FINGERPRINT_BYTES:], zlib.crc32(view[:FINGERPRINT_BYTES]))


def scan_file(
    path: str,
    content: bytes | memoryview,
    *,
    framing: Framing | None = None,
    place: Place | None = None,
    start: int = 0,
    first: bool = False,
    prefix: bytes = b"",
    known_length: int = 0,
    inspecting: bool = False,
) -> FileScan:
    """Summarise a file from the place where it is known to begin, or from a guessed one.

    Args:
        path: for the errors.
        content: the file's bytes as stored.
        framing: where it is known.
        place: the place in the stream at ``start``; None guesses one.
        start: the offset to begin at, in the decompressed bytes.
        first: the file begins a stream, so that its first byte is a boundary and its errors are errors.
        prefix: the unfinished bytes of the file before.  The summary then begins behind the message that they
            belong to.
        known_length: how many bytes of the file an earlier run has seen.
        inspecting: see `Scanner`.

    Raises:
        CaptureError: naming file and offset, where the start was known.
    """
    compression = detect_compression(bytes(content[:8]))
    try:
        data = memoryview(decompress(bytes(content)) if compression else content)
        scan = FileScan(path, len(content), len(data), compression, fingerprint(content, len(content)))
        if known_length:
            scan.known_fingerprint = fingerprint(content, known_length)
        if first and place is None:
            head = prefix + bytes(data[:4096])
            if framing is None and len(head) < RECOGNISABLE_BYTES:
                scan.head = bytes(data)
                return scan
            # One logical message may be longer than all else that a stream begins with.
            framing = framing or detect_framing(head) or detect_framing(prefix + bytes(data[:HEAD_LIMIT]))
            if framing is None:
                raise FramingError(
                    "no pgoutput capture: the bytes fit none of the framings raw, recvlogical, copydata and pgcopy",
                    offset=0,
                    remedy="Leave the file out by `captures: pattern`, or name its framing by `captures: framing`",
                )
            scan.framing, place = framing, Place(framing)
        if place is not None:
            _scan_exact(scan, data, place, start, prefix, inspecting)
        else:
            _scan_guessed(scan, data, framing, inspecting)
    except Wal2DeltaError as error:
        error.at(path=path)
        raise
    return scan


def _scan_exact(scan: FileScan, data: memoryview, place: Place, start: int, prefix: bytes, inspecting: bool) -> None:
    scan.head = b""
    if prefix:
        # Only the seam needs the prefix; the file's own bytes are not copied for it.
        summary = _scan_seam(data[:HEAD_LIMIT], place, prefix, inspecting)
        if summary.stop < len(prefix) and len(data) > HEAD_LIMIT:
            summary = _scan_seam(data, place, prefix, inspecting)
        if summary.stop < len(prefix):
            scan.head, scan.summary = bytes(data), None
            return
        start = summary.stop - len(prefix)
        scan.head = bytes(data[:start])
        assert summary.place is not None
        place, scan.seam = summary.place, summary
    scan.summary = Scanner(place.framing, place=place, inspecting=inspecting).scan(data, start)
    _check_tail(data, scan.summary)
    scan.tail = bytes(data[scan.summary.stop :])


def _scan_seam(data: memoryview, place: Place, prefix: bytes, inspecting: bool) -> Summary:
    """Walk the messages that begin in the bytes before the file."""
    scanner = Scanner(place.framing, place=place, inspecting=inspecting)
    try:
        return scanner.scan(prefix + bytes(data), 0, stop_at=len(prefix))
    except Wal2DeltaError as error:
        # What begins before the file is told at the file's start.
        error.offset = max((error.offset or 0) - len(prefix), 0)
        raise


def _scan_guessed(scan: FileScan, data: memoryview, framing: Framing | None, inspecting: bool) -> None:
    if framing is None:
        guess = guess_framing(data)
    else:
        at = find_boundary(data, framing)
        guess = None if at is None else (framing, at)
    if guess is None:
        scan.head = bytes(data) if len(data) <= HEAD_LIMIT else None
        return
    framing, start = guess
    scan.head = bytes(data[:start]) if start <= HEAD_LIMIT else None
    try:
        summary = Scanner(framing, place=None, inspecting=inspecting).scan(data, start)
        _check_tail(data, summary)
        scan.summary, scan.tail = summary, bytes(data[summary.stop :])
    except (CaptureError, NotSupported):
        # The guess may be at fault, not the file; a walk from the true start will tell.
        scan.summary = None


def _check_tail(data: memoryview, summary: Summary) -> None:
    """Refuse an unfinished message that swallows the Commit of its own transaction.

    A damaged length makes a message look longer than the file.  Taken for a torn tail, it would hide all that
    follows; but the Commit's LSN and time are known from the Begin.
    """
    place = summary.place
    if place is None or place.transaction is None or summary.stop == len(data):
        return
    open_ = place.transaction
    commit = b"C\0" + open_.final_lsn.to_bytes(8, "big")
    tail = bytes(data[summary.stop :])
    found = tail.find(commit, 1)
    time = open_.commit_time.to_bytes(8, "big", signed=True)
    if found >= 0 and tail[found + 18 : found + 26] == time:
        found += summary.stop
        raise MalformedMessage(
            f"the message of {len(data) - summary.stop:,} bytes or more runs over its own transaction's Commit "
            f"at offset {found:,}; a length in it is damaged",
            offset=summary.stop,
            remedy="Fetch the file from its source again",
        )


__all__ = [
    "Counts",
    "FileScan",
    "Scanner",
    "Summary",
    "TruncateAt",
    "fingerprint",
    "scan_file",
    "with_last",
]

"""Summarise one file, from the place where it is known to begin or from a guessed one; and end a run early (`Until`).

A run may end though the archive goes on: before the first transaction that commits behind an LSN or a time.
Transactions come in commit order, so what lies before the first one that is too late is a prefix of all commits.
Times need not rise (a clock may go back): the first commit that is later than the wanted time ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from walreplay.decode.announcements import is_announcement
from walreplay.decode.kernels import walk_words as words
from walreplay.decode.partitions import PartitionFinder
from walreplay.decode.stream import StreamWalker, outside
from walreplay.decode.summary import (
    Block,
    Body,
    Counts,
    Decided,
    FileScan,
    Part,
    Stretch,
    Summary,
    TruncateAt,
    XidCounts,
    with_last,
)
from walreplay.decode.walk import Place
from walreplay.errors import CaptureError
from walreplay.lsn import format_lsn, to_datetime
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.types.text import UTF8

if TYPE_CHECKING:
    from numpy.typing import NDArray


FINGERPRINT_BYTES: Final = 1 << 16

SOUND_MESSAGES: Final = 8  # So many sound messages prove a session, even if an error follows that nothing explains

_PROOF_BYTES: Final = 1 << 20  # They are looked for in so many bytes

HEAD_LIMIT: Final = 4 << 20
"""A head longer than this is not carried to the driver; the file is walked again from its true start instead."""


@dataclass(slots=True)
class _OpenPart:
    """The part of a streamed or prepared transaction that the scan is in."""

    start: int
    continues: bool
    first: bool = False
    after_lsn: int = -1
    after_time: int = 0
    ordinal: int = 0
    origin: str | None = None
    truncate: tuple[int, tuple[int, ...]] | None = None
    messages: int = 0
    truncates: list[tuple[int, int]] = field(default_factory=list)
    used: dict[int, int] = field(default_factory=dict)
    relations: list[tuple[int, m.Relation]] = field(default_factory=list)
    types: list[tuple[int, m.Type]] = field(default_factory=list)
    announced: list[tuple[int, m.Message]] = field(default_factory=list)
    runs: list[NDArray[np.int64]] = field(default_factory=list)

    def rows(self) -> XidCounts:
        return XidCounts.of(*np.concatenate(self.runs, axis=1)) if self.runs else XidCounts()


class Scanner(StreamWalker):
    """Gather a `Summary` of one stretch.  A new session ends it, unless its start is a guess."""

    allows_session_end: ClassVar[bool] = True

    def __init__(self, framing: Framing, *, place: Place | None, streaming: bool = False, codec: str = UTF8) -> None:
        self._last: tuple[_OpenPart, int, int, Mapping[int, m.Relation]] | None = None
        super().__init__(framing, place=place, relations={}, streaming=streaming, codec=codec)
        self._result = Summary(framing, place is not None, 0, 0, None, None)
        self._starts_open = place is not None and place.transaction is not None and place.transaction.gid is None
        self._committed: list[tuple[int, int]] = []
        self._events: list[int] = []
        self._used: dict[int, int] = {}
        self._truncates: dict[int, tuple[TruncateAt, ...]] = {}
        self._part: _OpenPart | None = None
        self._partitions = PartitionFinder(lambda slot: int(self.kernel.slots.counts[slot].sum()))

    # The rare messages.

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        """Leave it to the stitch, which knows what the files before announced."""
        if self.is_foreign(oid):
            return super().on_unknown_relation(oid, offset)
        (self._used if self._part is None else self._part.used).setdefault(oid, offset)
        return -1

    def on_runs(self) -> None:
        """Keep the counts of a block's rows."""
        assert self._part is not None
        self._part.runs.append(self.kernel.take_runs())

    def inner_relations(self, xid: int) -> Mapping[int, m.Relation]:
        """Go on with what the block before this one has announced, if nothing stands between them."""
        last = self._last
        if last is None or last[1:3] != (xid, int(self.kernel.state[words.MESSAGES])):
            return {}
        return last[3]

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Keep what the stitch needs of the rare messages."""
        state, summary = self.kernel.state, self._result
        name = type(message).__name__
        summary.messages[name] = summary.messages.get(name, 0) + 1
        frame_offset, number = int(state[words.PREVIOUS]), int(state[words.MESSAGES])
        # What a prepared transaction announces holds outside of it, too.
        target = summary if self._part is None or self.stream_xid is None else self._part
        if isinstance(message, m.Relation):
            target.relations.append((offset, outside(message)))
            slot = self.kernel.slots.slot_of(message.oid)
            assert slot is not None
            self._partitions.on_relation(outside(message), slot, number)
        elif isinstance(message, m.Type):
            target.types.append((offset, message))
            self._partitions.on_type(number)
        elif isinstance(message, m.Truncate):
            self._partitions.on_truncate(message.relation_oids, number)
            self._note_truncate(message, frame_offset)
        elif isinstance(message, m.Origin) and self._part is not None:
            self._part.origin = message.name
        elif isinstance(message, m.Message):
            if not message.transactional and summary.first_message is None:
                summary.first_message = message.lsn
            if self._part is not None:
                self._part.messages += 1
            if is_announcement(message):
                target.announced.append((offset, message))
        elif isinstance(message, m.StreamStart):
            self._begin_block(message, frame_offset)
        elif isinstance(message, m.StreamStop):
            self._end_block(int(state[words.POS]), open_=False)
        elif isinstance(message, m.BeginPrepare):
            self._events.append(message.prepare_lsn)
            self._part = _OpenPart(frame_offset, continues=False)
        elif isinstance(message, m.Prepare) and self._part is not None:  # alone, it is of an empty one
            self._end_body(message.gid, int(state[words.POS]), complete=True)
        elif isinstance(message, m.Decision):
            self._note_decision(message, frame_offset)

    def on_head_commit(self, commit: m.Commit) -> None:
        """End the head's transaction."""
        self._result.head_changes = int(self.kernel.state[words.ORDINAL])
        self._result.head_commit = commit.commit_lsn, commit.commit_time

    def _note_truncate(self, message: m.Truncate, offset: int) -> None:
        state, part = self.kernel.state, self._part
        if self.stream_xid is not None and part is not None:
            # What remains of the rows before it may be known much later: it begins a part of its own.
            self._end_block(offset, open_=True)
            xid = message.xid if message.xid is not None else self.stream_xid
            self._part = _OpenPart(
                offset,
                continues=True,
                after_lsn=part.after_lsn,
                after_time=part.after_time,
                truncate=(xid, message.relation_oids),
                used=dict.fromkeys(message.relation_oids, offset),
            )
            # Who walks this part alone has to be given what its rows name.
            self._leave(keep=False)
            self._enter({})
            return
        ordinal = int(state[words.ORDINAL])
        if part is not None:
            part.truncates.extend((oid, ordinal) for oid in message.relation_oids)
            return
        # Behind a guess, the Begin is not known.
        lsn = None if state[words.LSN] == words.NO_LSN else int(state[words.LSN])
        origin = self.origins[int(state[words.ORIGIN])]
        for oid in message.relation_oids:
            self._truncates[oid] = with_last(self._truncates.get(oid, ()), TruncateAt(oid, lsn, ordinal, origin))

    def _note_decision(self, message: m.Decision, offset: int) -> None:
        self._result.items.append(Decided(message, offset, self._message_lsn))
        if isinstance(message, (m.StreamCommit, m.CommitPrepared)):
            self._committed.append((message.commit_lsn, message.commit_time))
            self._events.append(message.commit_lsn)
        elif isinstance(message, (m.Prepare, m.StreamPrepare)):
            self._events.append(message.prepare_lsn)
        elif isinstance(message, m.RollbackPrepared):
            self._events.append(message.rollback_end_lsn)

    # Parts of streamed and prepared transactions.

    def _begin_block(self, message: m.StreamStart, offset: int) -> None:
        state, last = self.kernel.state, self._last
        preceding = message.xid, int(state[words.MESSAGES]) - 1
        if last is not None and last[1:3] == preceding and not message.first_segment:
            # Nothing stands between the two blocks: they are one part.
            self._part = last[0]
            self._result.items.pop()  # the first of the two
        else:
            self._part = _OpenPart(
                offset,
                continues=False,
                first=message.first_segment,
                after_lsn=int(state[words.LAST_LSN]),
                after_time=int(state[words.LAST_COMMIT_TS]),
            )
        self._last = None

    def _end_block(self, stop: int, *, open_: bool) -> None:
        part = self._part
        if part is None:
            return
        if self.kernel.state[words.RUN_COUNT]:
            self.on_runs()
        xid = self._block_xid if self.stream_xid is None else self.stream_xid  # a Stream Stop has ended the block
        self._result.items.append(
            Block(
                xid=xid,
                first=part.first,
                continues=part.continues,
                open=open_,
                start=part.start,
                stop=stop,
                rows=part.rows(),
                truncate=part.truncate,
                used=tuple(part.used.items()),
                relations=tuple(part.relations),
                types=tuple(part.types),
                origin=part.origin,
                messages=part.messages,
                announced=tuple(part.announced),
                after_lsn=part.after_lsn,
                after_time=part.after_time,
            )
        )
        self._part = None
        self._last = None if open_ else (part, xid, int(self.kernel.state[words.MESSAGES]), self._left)

    def _enter_stream(self, xid: int, relations: Mapping[int, m.Relation]) -> None:
        super()._enter_stream(xid, relations)
        self._block_xid = xid

    def _leave(self, *, keep: bool) -> None:
        self._left: Mapping[int, m.Relation] = self._inner or {}
        super()._leave(keep=keep)

    def _end_body(self, gid: str, stop: int, *, complete: bool) -> None:
        part, state = self._part, self.kernel.state
        assert part is not None
        self._result.items.append(
            Body(
                gid=gid,
                xid=int(state[words.XID]),
                prepare_lsn=int(state[words.LSN]),
                prepare_time=int(state[words.COMMIT_TS]),
                begins=not part.continues,
                complete=complete,
                start=part.start,
                stop=stop,
                ordinal=part.ordinal,
                rows=int(state[words.ORDINAL]) - part.ordinal,
                truncates=tuple(part.truncates),
                used=tuple(part.used.items()),
                origin=part.origin,
                messages=part.messages,
            )
        )
        self._part = None

    # The whole.

    def scan(self, data: bytes | memoryview, start: int, stop_at: int | None = None) -> Summary:
        """Walk the whole messages from ``start`` and summarise them."""
        state = self.kernel.state
        if self.stream_xid is not None:
            self._part = _OpenPart(start, continues=True)
        elif self.gid is not None:
            self._part = _OpenPart(start, continues=True, ordinal=int(state[words.ORDINAL]))
        for _ in self.walk(data, start, stop_at):
            pass
        if self._part is not None:
            if self.stream_xid is not None:
                self._end_block(self.position, open_=True)
            else:
                assert self.gid is not None
                self._end_body(self.gid, self.position, complete=False)
        return self._summary(start)

    def _summary(self, start: int) -> Summary:
        state, summary, partitions = self.kernel.state, self._result, self._partitions
        number = int(state[words.MESSAGES])
        summary.start, summary.stop = start, self.position
        if state[words.TXN] == words.UNKNOWN_HEAD:  # all rows are the head's
            summary.head_changes = int(state[words.ORDINAL])
            summary.head_origin = self.origins[int(state[words.ORIGIN])]
        else:
            summary.place = self.place
        summary.counts = self._counts()
        summary.ordinary, summary.resent = int(state[words.TRANSACTIONS]), int(state[words.RESENT])
        summary.transactions = summary.ordinary + len(self._committed)
        commits = self._commits(summary.head_commit)
        if commits:
            summary.first_lsn, summary.first_commit_time = min(commits)
            summary.last_lsn, summary.last_commit_time = max(commits)
        is_open = state[words.TXN] == words.OPEN and self.gid is None
        events = [*self._events, *(lsn for lsn, _ in commits)]
        if is_open and state[words.BEGIN_AT] != words.NO_OFFSET:
            summary.begin_at = int(state[words.BEGIN_AT])
            events.append(int(state[words.LSN]))  # its Commit may follow in the next file
        summary.first_event = min(events, default=None)
        frequent = {
            # A transaction that was open at the start has begun elsewhere.
            "Begin": summary.ordinary + bool(is_open) - int(self._starts_open or summary.head_commit is not None),
            "Commit": summary.ordinary,
            "Insert": sum(c.inserts for c in summary.counts.values()),
            "Update": sum(c.updates for c in summary.counts.values()),
            "Delete": sum(c.deletes for c in summary.counts.values()),
        }
        summary.messages = {name: count for name, count in {**frequent, **summary.messages}.items() if count}
        summary.top_time = None if state[words.TOP_TIME] == words.NO_COMMIT_TIME else int(state[words.TOP_TIME])
        summary.used = tuple(self._used.items())
        summary.truncates = tuple(truncate for truncates in self._truncates.values() for truncate in truncates)
        summary.partitions, summary.alone = partitions.partitions(number), partitions.alone()
        summary.leading = partitions.leading()
        summary.trailing, summary.trailing_partitions = partitions.trailing(number)
        return summary

    def _commits(self, head: tuple[int, int] | None) -> list[tuple[int, int]]:
        """Return commit LSN and time of the head, of the first and the last ordinary transaction, and of all others."""
        state, commits = self.kernel.state, list(self._committed)
        if head is not None:
            commits.append(head)
        if state[words.FIRST_LSN] != words.NO_LSN:
            commits.append((int(state[words.FIRST_LSN]), int(state[words.FIRST_COMMIT_TS])))
        if state[words.TRANSACTIONS]:
            commits.append((int(state[words.LAST_LSN]), int(state[words.LAST_COMMIT_TS])))
        return commits

    def _counts(self) -> dict[int, Counts]:
        counts: dict[int, Counts] = {}
        slots = self.kernel.slots
        for slot, oid in enumerate(slots.oids):
            row = slots.counts[slot]  # an oid has a slot for each version
            if row.any():
                counts[oid] = counts.get(oid, Counts()) + Counts(*(int(value) for value in row))
        return counts


def is_framed_so(data: memoryview, framing: Framing, codec: str = UTF8) -> bool:
    """Return whether a stream begins with so many sound messages that its framing is beyond doubt."""
    scanner = Scanner(framing, place=Place(framing), codec=codec)
    with suppress(CaptureError):
        scanner.scan(data, 0, _PROOF_BYTES)
    return bool(scanner.kernel.state[words.MESSAGES] >= SOUND_MESSAGES)


def scan_through(
    data: memoryview, place: Place, start: int, prefix: bytes = b"", codec: str = UTF8
) -> tuple[Part, ...] | None:
    """Summarise a file in which no session ends; None where one does, or may.

    Args:
        place: at ``start``, or where the ``prefix`` begins.
        prefix: the unfinished bytes of the files before.

    Returns:
        the messages that begin in the prefix, if any do, and those of the file's own bytes behind them.
    """
    parts: list[Part] = []
    if prefix:
        # Only the seam needs the prefix; the file's own bytes are not copied for it.
        seam = prefix + bytes(data[:HEAD_LIMIT])
        scanner = Scanner(place.framing, place=place, codec=codec)
        summary = scanner.scan(seam, 0, stop_at=len(prefix))
        if scanner.stopped_at_session or summary.stop < len(prefix):
            return None
        seam_parts = parts_of(memoryview(seam), Stretch(0, summary.stop, place), len(prefix), codec)
        parts = [part for part in seam_parts if part.data is not None]
        start, place = summary.stop - len(prefix), scanner.place
    scanner = Scanner(place.framing, place=place, codec=codec)
    summary = scanner.scan(data, start)
    if scanner.stopped_at_session or scanner.unannounced_type_at is not None:  # torn bytes may look so
        return None
    return (*parts, Part(summary))


def parts_of(data: memoryview, stretch: Stretch, size_in_front: int, codec: str = UTF8) -> list[Part]:
    """Summarise a stretch: the messages that begin in the ``size_in_front`` bytes before the file, then its own."""
    place, start = stretch.place, stretch.start
    parts: list[Part] = []
    if start < size_in_front:
        scanner = Scanner(place.framing, place=place, codec=codec)
        scanner.is_last_buffer = scanner.ends_session = stretch.stop < len(data)
        scanner.scan(data[: stretch.stop], start, stop_at=min(size_in_front, stretch.stop))
        end = scanner.position
        if end > start:
            seam = bytes(data[start:end])
            scanner = Scanner(place.framing, place=place, codec=codec)
            scanner.is_last_buffer = scanner.ends_session = True
            parts.append(_part(scanner.scan(seam, 0), stretch, data=seam, base=start))
        place, start = scanner.place, end  # the last message may end in the file
    if start >= size_in_front:
        scanner = Scanner(place.framing, place=place, codec=codec)
        scanner.is_last_buffer = scanner.ends_session = stretch.stop < len(data)
        summary = scanner.scan(data[size_in_front : stretch.stop], start - size_in_front)
        parts.append(Part(summary) if parts else _part(summary, stretch))
    return parts


def _part(summary: Summary, stretch: Stretch, *, data: bytes | None = None, base: int = 0) -> Part:
    return Part(summary, data, base, stretch.new_session, stretch.shown_by_lsn_only, stretch.torn)


def fingerprint(data: bytes | memoryview, size: int) -> int:
    """Return 64 bits of the SHA-256 of the first 64 KiB and of the last 64 KiB of a file's first ``size`` bytes."""
    view = memoryview(data)[:size]
    digest = sha256(view[:FINGERPRINT_BYTES])
    digest.update(view[FINGERPRINT_BYTES:][-FINGERPRINT_BYTES:])
    return int.from_bytes(digest.digest()[:8], "big", signed=True)


@dataclass(frozen=True, slots=True)
class Until:
    """The last commit LSN, or the last commit time, that is wanted.

    Attributes:
        lsn: transactions with a greater commit LSN are too late; None where the LSN does not matter.
        time: likewise, in microseconds since 2000-01-01.
    """

    lsn: int | None = None
    time: int | None = None

    def is_passed(self, summary: Summary) -> bool:
        """Return whether a stretch has the Begin, or the deciding message, of a transaction that is too late."""
        last = words.NO_LSN if summary.last_lsn is None else summary.last_lsn
        if summary.begin_at is not None and summary.place is not None and summary.place.transaction is not None:
            last = max(last, summary.place.transaction.final_lsn)
        return (self.lsn is not None and last > self.lsn) or (
            self.time is not None and summary.top_time is not None and summary.top_time > self.time
        )

    def is_before(self, lsn: int, commit_time: int) -> bool:
        """Return whether a transaction is too late that commits there and then."""
        if self.lsn is not None:
            return lsn > self.lsn
        return self.time is not None and commit_time > self.time

    def is_behind(self, place: Place) -> bool:
        """Return whether a place lies behind a transaction that is too late."""
        return place.high_lsn != words.NO_LSN and self.is_before(place.high_lsn, place.high_commit_time)

    def __str__(self) -> str:
        return format_lsn(self.lsn) if self.lsn is not None else to_datetime(self.time or 0).isoformat(sep=" ")


def end_scan(scan: FileScan, data: memoryview, place: Place, prefix: bytes, until: Until) -> None:
    """End a file's scan in front of the first transaction that is too late, where there is one.

    What was found of the file's sessions stays: all its bytes have decided about it.

    Args:
        scan: of all bytes, from a known place.
        data: the file's bytes, decompressed.
        place: where the scan began.
        prefix: the unfinished bytes of the files before.
    """
    for number, part in enumerate(scan.parts):
        part_start = place.new_session() if part.new_session else place
        if until.is_passed(part.summary):
            part_data = data if part.data is None else memoryview(part.data)  # the seam's, or the file's
            scanner = Scanner(part_start.framing, place=part_start, codec=scan.codec)
            scanner.is_last_buffer = scanner.ends_session = True
            scanner.stop_after(until.lsn, until.time)
            summary = scanner.scan(part_data[: part.summary.stop], part.summary.start)
            if scanner.passed_stop:
                scan.parts = (*scan.parts[:number], replace(part, summary=summary))
                scan.ended = True
                end_offset = summary.stop if part.data is None else summary.stop + part.base - len(prefix)
                # In front of the file, it is the bytes before that the next run goes on in.
                scan.tail, scan.size = (b"", end_offset) if end_offset >= 0 else (prefix[end_offset:], 0)
                return
        assert part.summary.place is not None
        place = part.summary.place

"""Join the files' summaries into one stream, and plan what of it is applied.

Files are scanned in parallel, each on a guess of where its first message begins.  Here the guesses are held
against what is certain: the unfinished bytes at the end of one file and the bytes before the guessed start of the
next must be whole messages, and the transaction open at the end of one must be the one that the next goes on
with.  A file whose guess proves wrong is asked for again (`Rescan`), this time from its true place.

Invariants: ``place``, ``relations``, ``types`` and ``tail`` always describe the end of the last file that was
added, exactly; nothing in them rests on a guess.  ``_timeline`` is in commit order: stretches of ordinary
transactions, and streamed or prepared transactions where they commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from wal2delta.decode.place import Place
from wal2delta.decode.scan import Scanner
from wal2delta.decode.sessions.breaks import may_begin
from wal2delta.decode.sessions.frames import is_short_abort
from wal2delta.decode.sessions.leftover import refuse_leftover
from wal2delta.decode.summary import Block, Body, Decided, FileScan, Part, Summary, TruncateAt, XidCounts
from wal2delta.decode.unfinished import Unfinished
from wal2delta.errors import FramingError, OrderError, UnknownRelation, Wal2DeltaError
from wal2delta.lsn import format_lsn
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing
from wal2delta.transactions.deferred import Announced, Deferred, OpenTransaction, Segment
from wal2delta.transactions.open_transactions import OpenTransactions
from wal2delta.transactions.partitions import PartitionsInForce
from wal2delta.transactions.places import continues, end_place, place_at, position_of
from wal2delta.transactions.plan import DecidedTransaction, Plan, Resume
from wal2delta.transactions.schedule import Commit, Schedule, Stretch
from wal2delta.transactions.truncates import Truncates
from wal2delta.transactions.versions import Versions
from wal2delta.types.text import UTF8

_MISSING = "A file before this one is missing; bring it back, or leave its transactions out by --allow-gaps"


@dataclass(frozen=True, slots=True)
class Rescan:
    """The wish to have a file scanned again from a known place, behind some unfinished bytes.

    No place means the start of the stream, of which so few bytes were seen that its framing is unknown.
    ``edges`` are the places in the prefix at which files begin, ``origins`` the files of its parts, and where in them;
    ``before`` is the file in front.
    """

    path: str
    place: Place | None
    prefix: bytes
    edges: tuple[int, ...] = ()
    origins: tuple[tuple[str, int], ...] = ()
    before: str = ""


@dataclass(slots=True)
class _Begun:
    """Where the open ordinary transaction began, and what was in force there."""

    path: str
    offset: int
    entry: int
    at: int
    place: Place
    relations: dict[int, Announced]
    types: dict[int, m.Type]


@dataclass(frozen=True, slots=True)
class _Seen:
    length: int
    fingerprint: int
    size: int


def _wants_all(origin: str | None) -> bool:
    return True


class Stitch:
    """Take the files' scans in their order; then give the plan.

    Args:
        resume: where the last run ended; None at the start of a stream.
        wants_origin: says whether transactions of an origin (None: of the source itself) are to be applied.
        allow_gaps: leave out what is not whole, with a warning, instead of refusing it.
    """

    def __init__(
        self,
        resume: Resume | None,
        *,
        wants_origin: Callable[[str | None], bool] = _wants_all,
        allow_gaps: bool = False,
    ) -> None:
        self.place = resume.place if resume else None
        self.after_lsn = resume.place.high_lsn if resume else -1
        self.tail = b""
        self.warnings: list[str] = []
        self._versions = Versions()
        self._codec = UTF8
        self._resume = resume
        self._wants_origin = wants_origin
        self._allow_gaps = allow_gaps
        self._tail_at: tuple[str, int] = (resume.path, resume.offset) if resume else ("", 0)
        self._unfinished = Unfinished()
        self._begun: _Begun | None = None
        self._schedule = Schedule()
        self._seen: dict[str, _Seen] = {}
        self._scanned: dict[str, tuple[int, int]] = {}
        self._truncates = Truncates()
        self._decided: list[DecidedTransaction] = []
        self._transactions = self._resent = 0
        self._committing: Commit | None = None
        self._open = OpenTransactions()
        self._awaited = resume.awaited if resume else None
        self._partitions = PartitionsInForce()
        if resume:
            self._take_up(resume)

    def _take_up(self, resume: Resume) -> None:
        self._seen[resume.path] = _Seen(resume.length, resume.fingerprint, -1)
        self._partitions.take_up(resume)
        self._versions.take_up(resume)
        self._open.take_up(resume.deferred)

    @property
    def is_open(self) -> bool:
        """Whether a message, an ordinary transaction or a block goes on in the next file."""
        place = self.place
        return bool(self.tail) or (place is not None and (place.transaction is not None or place.stream is not None))

    @property
    def relations(self) -> tuple[m.Relation, ...]:
        """The relation versions in force."""
        return self._versions.relations

    @property
    def types(self) -> Mapping[int, m.Type]:
        """The types that Type messages have announced, by oid."""
        return self._versions.types

    @property
    def edges(self) -> tuple[int, ...]:
        """Where files begin in the unfinished bytes."""
        return self._unfinished.edges

    @property
    def origins(self) -> tuple[tuple[str, int], ...]:
        """The files that the unfinished bytes lie in, and where in each."""
        return self._unfinished.origins

    @property
    def last_path(self) -> str:
        """The file that was added last, in this run or the one before; none at the start of a stream."""
        if self._unfinished.pieces:
            return self._unfinished.last_path
        return self._resume.last_path if self._resume is not None else ""

    def add(self, scan: FileScan, *, exact: bool = False) -> Rescan | None:
        """Add the next file; give a `Rescan` instead when its guess does not hold.

        Args:
            scan: the file's summary.
            exact: the scan was made from the place and the tail that this stitch stands at.
        """
        if exact:
            self._add_exact(scan)
            return None
        again = Rescan(scan.path, self.place, self.tail, self.edges, self.origins, self.last_path)
        if not scan.parts or scan.head is None or self.place is None:
            return again
        (part,) = scan.parts
        if part.summary.framing is not self.place.framing:
            return again
        if self.tail and may_begin(memoryview(scan.head), self.place.framing):
            # A message goes on in the file, or a session begins with it: both readings have to be tested.
            return again
        try:
            seam = self._seam(scan.head, scan.codec)
        except Wal2DeltaError:
            # The file's own scan will tell where and what.
            return again
        place = self.place
        if seam is not None:
            data = seam.data or b""
            if seam.summary.stop != len(data) or seam.summary.place is None or part.new_session:
                return again
            place = seam.summary.place
        if part.new_session and not place.begun:
            # Files without anything in them stand before it.
            part = replace(part, new_session=False)
        if part.new_session:
            place = place.new_session()
        if not continues(place, part.summary):
            return again
        self._join(scan, [*([seam] if seam is not None else []), part])
        return None

    def _add_exact(self, scan: FileScan) -> None:
        if self.place is None and scan.framing is not None:
            self.place = Place(scan.framing)
        # Without a part the file lies inside one message.
        self._join(scan, scan.parts)

    def _seam(self, head: bytes, codec: str) -> Part | None:
        """Walk the bytes that the boundary between two files cuts; None when it cuts no message."""
        data = self.tail + head
        if not data:
            return None
        assert self.place is not None
        scanner = Scanner(self.place.framing, place=self.place, codec=codec)
        scanner.closed = True
        summary = scanner.scan(data, 0)
        if scanner.broke:
            raise OrderError("a session begins here")
        return Part(summary, data=data)

    # One file.

    def _join(self, scan: FileScan, parts: Iterable[Part]) -> None:
        start: int | None = None
        stop = 0
        for part in parts:
            self._add_part(scan, part)
            if part.data is None:
                start = part.summary.start if start is None else start
                stop = part.summary.stop
        self._scanned[scan.path] = (start or 0, stop)
        self._take_tail(scan)
        self._see(scan)
        self._codec = scan.codec

    def _take_tail(self, scan: FileScan) -> None:
        """Keep the unfinished bytes, and where they lie."""
        self._unfinished = self._unfinished.behind(scan)
        self.tail, self._tail_at = scan.tail, self._unfinished.origins[0]

    def _see(self, scan: FileScan) -> None:
        self._seen[scan.path] = _Seen(scan.length, scan.fingerprint, scan.size)
        self._scanned.setdefault(scan.path, (0, 0))

    def _add_part(self, scan: FileScan, part: Part) -> None:
        summary = part.summary
        before = self.place or Place(summary.framing)
        if part.new_session:
            before = self._begin_session(scan, part, before)
        self._check_awaited(scan, part)
        walked = _Walk(scan, part, before, self._where(scan, part, 0) if part.data is not None else (scan.path, 0))
        following = _Following(self, self._versions, walked)
        cursor, place, view = summary.start, before, following.view()
        for item in summary.items:
            following.up_to(item.offset)
            if isinstance(item, Block):
                self._add_block(item, walked)
            elif isinstance(item, Body):
                self._add_body(item, walked)
            elif self._decide(item, walked, before):
                # What stands behind a commit follows it in the schedule, and knows what it has announced.
                self._stretch(walked, cursor, item.offset, place, view)
                if self._committing is not None:
                    self._schedule.commit(self._committing)
                lsn, time = _committed(item)
                cursor, place, view = item.offset, place_at(before, item, lsn, time), following.view()
        begin = self._note_begin(walked, following)
        following.up_to(None)
        self._partitions.note(summary)
        entry = self._stretch(walked, cursor, summary.stop, place, view)
        if begin is not None:
            begin.entry = entry
        end = end_place(before, summary)
        if end.transaction is None or end.transaction.gid is not None:
            self._begun = None
        elif begin is not None:
            self._begun = begin
        self._count(summary, before)
        self.place = end

    def _stretch(
        self,
        walked: _Walk,
        start: int,
        stop: int,
        place: Place,
        view: tuple[tuple[m.Relation, ...], tuple[m.Type, ...]],
    ) -> int:
        """Schedule ordinary transactions, where there are any; give the entry's number."""
        summary = walked.part.summary
        worth = (
            summary.ordinary
            or place.transaction is not None
            or summary.begin_at is not None
            or summary.head_changes
            or summary.messages.get("Message")
        )
        if start == stop or not worth:
            return self._schedule.mark()
        return self._schedule.stretch(
            Stretch(
                path=walked.scan.path,
                start=start,
                stop=stop,
                place=place,
                relations=view[0],
                types=view[1],
                seam=walked.part.data,
                seam_path=walked.origin[0],
                seam_offset=walked.origin[1],
                seam_base=walked.part.base - self._unfinished.size,
            )
        )

    def _note_begin(self, walked: _Walk, following: _Following) -> _Begun | None:
        """Remember where an ordinary transaction begins that the part does not end."""
        summary = walked.part.summary
        if summary.begin_at is None:
            return None
        following.up_to(summary.begin_at)
        path, offset = self._where(walked.scan, walked.part, summary.begin_at)
        before = end_place(walked.before, summary)
        return _Begun(
            path,
            offset,
            0,
            summary.begin_at,
            replace(before, transaction=None),
            *self._versions.snapshot(),
        )

    def _where(self, scan: FileScan, part: Part, offset: int) -> tuple[str, int]:
        """Give the file that a place of a part lies in, and its offset there."""
        if part.data is None:
            return scan.path, offset
        offset += part.base
        return self._unfinished.where(offset) or (scan.path, offset - self._unfinished.size)

    def _used(self, used: Iterable[tuple[int, int]], walked: _Walk, view: dict[int, Announced]) -> list[m.Relation]:
        """Give the versions of the relations that a deferred transaction's rows name: by its own view, or all's."""
        return [(view.get(oid) or self.known(oid, at, walked)).relation for oid, at in used]

    def known(self, oid: int, at: int, walked: _Walk) -> Announced:
        """Give the version of a relation that is in force.

        Raises:
            UnknownRelation: there is none.
        """
        known = self._versions.known(oid)
        if known is None:
            path, offset = self._where(walked.scan, walked.part, at)
            raise UnknownRelation(
                f"a row change names relation {oid}, but no Relation message announced it",
                path=path,
                offset=offset,
                remedy="A capture has to begin where its session began; a file before this one is missing",
            )
        return known

    def announce(self, relation: m.Relation) -> None:
        """Let a relation version hold from here on, outside of streamed blocks."""
        self._versions.announce(relation)
        self._partitions.forget(relation.oid)

    def _count(self, summary: Summary, place: Place) -> None:
        self._transactions += summary.ordinary - summary.resent
        self._resent += summary.resent
        for truncate in summary.truncates:
            at = position_of(truncate, place)
            if self._wants_origin(at.origin):
                self._truncates.note(at)

    # Sessions.

    def _begin_session(self, scan: FileScan, part: Part, before: Place) -> Place:
        """End the session before: what it left open comes again from its start, or never."""
        open_ = before.transaction
        path, offset = self._where(scan, part, part.summary.start)
        if part.torn:
            self.warnings.append(
                f"{path}, offset {offset:,}: a new session begins; the one before it ended inside a message, "
                f"of which {part.torn:,} bytes are there"
            )
        if open_ is not None:
            self._awaited = open_.final_lsn if self._awaited is None else min(self._awaited, open_.final_lsn)
            if open_.gid is None:
                self._cut_begun()
                self._truncates.forget(open_.final_lsn)
            self._open.body = None
        # Each session announces again what it uses; a prepared transaction alone outlives its own.
        self._partitions.end_session(forget=not self._open.prepared)
        self._open.end_session(before, late=part.late)
        return before.new_session()

    def _cut_begun(self) -> None:
        """Take the open ordinary transaction out of the schedule."""
        begun = self._begun
        if begun is not None:
            self._schedule.cut(begun.entry, begun.at)
        self._begun = None

    def _check_awaited(self, scan: FileScan, part: Part) -> None:
        """See that the transaction that a session's end cut off comes again."""
        first = part.summary.first_event
        if self._awaited is None or first is None:
            return
        awaited, self._awaited = self._awaited, None
        if first <= awaited:
            return
        path, offset = self._where(scan, part, part.summary.start)
        self._gap(
            OrderError(
                f"transaction {format_lsn(awaited)} has begun before, but neither goes on here nor comes again",
                path=path,
                offset=offset,
                remedy=_MISSING,
            )
        )

    def _gap(self, error: OrderError) -> None:
        """Refuse what proves that something is missing, unless that is allowed."""
        if not self._allow_gaps:
            raise error
        place = f"{error.path}, offset {error.offset:,}: " if error.offset is not None else f"{error.path}: "
        self.warnings.append(f"{place}{error.problem}; it is left out (gaps are allowed)")

    def gap(self, path: str, problem: str) -> Place:
        """Go on behind a gap: nothing that is open goes on, and nothing of it is awaited.

        Returns:
            the place at which the next file is scanned.
        """
        assert self.place is not None
        self.warnings.append(f"{path}: {problem}; what was open before is left out (gaps are allowed)")
        if self.place.transaction is not None and self.place.transaction.gid is None:
            self._cut_begun()
            self._truncates.forget(self.place.transaction.final_lsn)
        self._open.lose()
        self._awaited = None
        self.tail, self._unfinished = b"", Unfinished()
        self._partitions.end_session(forget=False)
        self.place = self.place.new_session()
        return self.place

    # Streamed and prepared transactions.

    def _add_block(self, block: Block, walked: _Walk) -> None:
        xid = block.xid
        if xid == -1:
            assert walked.before.stream is not None
            xid = walked.before.stream
        item = None if block.first else self._open.streams.get(xid)
        path, offset = self._where(walked.scan, walked.part, block.start)
        if item is None:
            if not block.first:
                self._gap(
                    OrderError(
                        f"a block of the streamed transaction {xid} goes on, but its first one is not there",
                        path=path,
                        offset=offset,
                        remedy=_MISSING,
                    )
                )
                return
            after_lsn, since = block.after_lsn, block.after_time
            if after_lsn < 0:
                after_lsn, since = walked.before.last_lsn, walked.before.last_commit_time
            item = Deferred(xid, path, offset, since=since if after_lsn >= 0 else None, after_lsn=after_lsn)
            self._open.streams[xid] = item
        if block.origin is not None:
            item.origin = block.origin
        relations = self._used(block.used, walked, item.view)
        types = _types_of(relations, self.types | item.types, all_=block.continues)
        for _, relation in block.relations:
            known = item.view.get(relation.oid)
            if known is not None and known.relation != relation:
                item.former.append(known.relation)
            item.view[relation.oid] = Announced(relation, self._versions.next_number())
        for _, type_ in block.types:
            item.types[type_.oid] = replace(type_, xid=None)
        place = Place(block_framing(walked), stream=xid if block.continues else None)
        self._add_segment(item, walked, block, place, relations, types, block.rows)

    def _add_body(self, body: Body, walked: _Walk) -> None:
        path, offset = self._where(walked.scan, walked.part, body.start)
        if body.begins:
            self._open.begin_body(
                Deferred(
                    body.xid, path, offset, body.gid, streamed=False, lsn=body.prepare_lsn, since=body.prepare_time
                )
            )
        item = self._open.body
        if item is None:
            raise OrderError("a prepared transaction goes on whose start is not there", path=path, offset=offset)
        item.origin = body.origin or item.origin
        relations = self._used(body.used, walked, {})
        place = Place(block_framing(walked))
        if not body.begins:
            opened = walked.before.transaction
            place = replace(place, transaction=opened)
        types = _types_of(relations, self.types, all_=not body.begins)
        self._add_segment(item, walked, body, place, relations, types, XidCounts(body.rows))
        if body.complete:
            self._open.prepare_body(item, body.gid)

    def _add_segment(
        self,
        item: Deferred,
        walked: _Walk,
        part: Block | Body,
        place: Place,
        relations: Iterable[m.Relation],
        types: tuple[m.Type, ...],
        rows: XidCounts,
    ) -> None:
        scan = walked.scan
        item.segments.append(
            Segment(
                path=scan.path,
                length=scan.length,
                fingerprint=scan.fingerprint,
                start=part.start,
                stop=part.stop,
                place=place,
                relations=tuple(dict.fromkeys(relations)),
                types=types,
                rows=rows,
                truncate=part.truncate if isinstance(part, Block) else None,
                truncates=part.truncates if isinstance(part, Body) else (),
                messages=part.messages,
                seam=None if walked.part.data is None else walked.part.data[part.start : part.stop],
                seam_path=walked.origin[0],
                seam_offset=walked.origin[1] + part.start,
            )
        )

    def _decide(self, item: Decided, walked: _Walk, before: Place) -> bool:
        """Follow a decision; True when it commits (`_committing`, if there is something to decode)."""
        message = item.message
        if isinstance(message, m.StreamAbort):
            self._open.abort(message.xid, message.subxid)
            return False
        if isinstance(message, m.Prepare):
            path, offset = self._where(walked.scan, walked.part, item.offset)
            empty = Deferred(
                message.xid,
                path,
                offset,
                message.gid,
                complete=True,
                streamed=False,
                lsn=message.prepare_lsn,
                since=message.prepare_time,
            )
            self._open.prepared.setdefault((message.gid, message.xid), empty)
            return False
        if isinstance(message, m.RollbackPrepared):
            self._open.roll_back(message.gid, message.xid)
            return False
        if isinstance(message, m.StreamPrepare):
            prepared = self._take_stream(message.xid, item, walked)
            if prepared is not None:
                self._open.prepare_stream(prepared, message)
            return False
        resent = message.commit_lsn <= before.high_lsn
        if isinstance(message, m.StreamCommit):
            decided = self._take_stream(message.xid, item, walked)
        else:
            decided = self._open.prepared.pop((message.gid, message.xid), None)
            if decided is None and not resent:
                path, offset = self._where(walked.scan, walked.part, item.offset)
                self.warnings.append(
                    f"{path}, offset {offset:,}: transaction {message.xid} (commit LSN "
                    f"{format_lsn(message.commit_lsn)}) was prepared, but its rows are not there: "
                    "it was empty, or the file with its Prepare is missing"
                )
        return self._commit(decided, message, item, walked, resent=resent)

    def _take_stream(self, xid: int, item: Decided, walked: _Walk) -> Deferred | None:
        found = self._open.streams.pop(xid, None)
        if found is None:
            path, offset = self._where(walked.scan, walked.part, item.offset)
            self._gap(
                OrderError(
                    f"the streamed transaction {xid} ends, but none of its blocks is there",
                    path=path,
                    offset=offset,
                    remedy=_MISSING,
                )
            )
        return found

    def _commit(
        self,
        decided: Deferred | None,
        message: m.StreamCommit | m.CommitPrepared,
        item: Decided,
        walked: _Walk,
        *,
        resent: bool,
    ) -> bool:
        origin = decided.origin if decided is not None else None
        applied = not resent and self._wants_origin(origin)
        path, offset = self._where(walked.scan, walked.part, item.offset)
        self._decided.append(
            DecidedTransaction(
                commit_lsn=message.commit_lsn,
                commit_time=message.commit_time,
                xid=message.xid,
                gid=message.gid if isinstance(message, m.CommitPrepared) else None,
                origin=origin,
                applied=applied,
                resent=resent,
                complete=decided is not None,
                session=walked.before.session,
                path=path,
                offset=offset,
            )
        )
        self._resent += resent
        self._transactions += not resent
        self._committing = None
        if decided is None:
            return False
        self._versions.take_over(decided, holds_outside=isinstance(message, m.StreamCommit))
        starts, truncates = decided.ordinals()
        if applied:
            for oid, ordinal in truncates:
                self._truncates.note(TruncateAt(oid, message.commit_lsn, ordinal, origin))
        if all(segment.is_empty for segment in decided.segments):
            return bool(decided.view)
        self._committing = Commit(
            decided,
            tuple(starts),
            message.commit_lsn,
            message.commit_time,
            walked.before.session,
            applied=applied,
            resent=resent,
        )
        return True

    # The plan.

    def plan(self) -> Plan:
        """Give what the added files come to.

        Raises:
            CaptureError: they are too few, or what seems to be unfinished at their end is damaged.
        """
        place = self.place
        if place is None:
            raise FramingError(
                f"the capture's {len(self.tail):,} bytes are too few to tell what they are",
                path=next(iter(self._seen), None),
                offset=0,
                remedy="Run again when the capture has grown; if it will not, it was truncated",
            )
        if self.tail:
            path, offset = self._tail_at
            refuse_leftover(self.tail, place.framing, self._codec, path=path, offset=offset)
        resume = self._make_resume(place)
        if place.transaction is not None and place.transaction.gid is None:
            self._cut_begun()
        files = {
            path: (seen.length, seen.fingerprint, *self._scanned[path])
            for path, seen in self._seen.items()
            if path in self._scanned
        }
        planned, versions, type_versions = self._schedule.plan(files)
        torn = (*self._tail_at, len(self.tail)) if self.tail and not is_short_abort(place.framing, self.tail) else None
        return Plan(
            files=planned,
            versions=versions,
            type_versions=type_versions,
            after_lsn=self.after_lsn,
            upto_lsn=place.high_lsn,
            upto_commit_time=place.high_commit_time,
            truncates=tuple(self._truncates.committed(self.after_lsn, place.high_lsn)),
            resume=resume,
            transactions=self._transactions,
            resent=self._resent,
            announced=tuple(self._versions.announced),
            before=self._resume.relations if self._resume else (),
            types=tuple(self.types.values()),
            decided=tuple(self._decided),
            torn=torn,
            warnings=(*self.warnings, *self._open_warnings(place, resume, torn)),
            partitions=tuple(self._partitions.of_run),
        )

    def _open_warnings(self, place: Place, resume: Resume, torn: tuple[str, int, int] | None) -> Iterator[str]:
        if torn is not None:
            path, offset, size = torn
            yield (
                f"{path}, offset {offset:,}: the last {size:,} bytes are an unfinished message; "
                "the next run goes on there when more has come. If nothing more will, the file was truncated"
            )
        if place.transaction is not None and place.transaction.gid is None:
            yield (
                f"transaction {place.transaction.xid} (commit LSN {format_lsn(place.transaction.final_lsn)}) "
                f"is open at the end, since {resume.path}, offset {resume.offset:,}; the next run goes on there"
            )

    def _make_resume(self, place: Place) -> Resume:
        last_path = next(reversed(self._seen))
        last = self._seen[last_path]
        begun = self._begun
        open_ = place.transaction if place.transaction is not None and place.transaction.gid is None else None
        if open_ is not None and begun is not None:
            path, offset, at = begun.path, begun.offset, begun.place
            relations, types = begun.relations, begun.types
        else:
            path, offset = self._tail_at
            at = place
            relations, types = self._versions.snapshot()
        seen = self._seen[path]
        later = list(self._seen)[list(self._seen).index(path) + 1 :]
        rest = seen.size - offset + sum(self._seen[name].size for name in later)
        transaction = None
        if open_ is not None:
            transaction = OpenTransaction(
                "ordinary", open_.xid, None, open_.final_lsn, open_.commit_time, path, offset, rest, 1
            )
        return Resume(
            path=path,
            offset=offset,
            length=seen.length,
            fingerprint=seen.fingerprint,
            done=open_ is None and not self.tail,
            last_path=last_path,
            last_length=last.length,
            place=at,
            relations=tuple(known.relation for known in relations.values()),
            numbers=tuple(known.number for known in relations.values()),
            types=tuple(types.values()),
            begun=transaction,
            deferred=self._open.deferred,
            awaited=self._awaited,
            partitions=self._partitions.in_force,
            trailing=self._partitions.trailing if open_ is None else None,
            seeming=self._partitions.seeming if open_ is None else (),
        )


@dataclass(frozen=True, slots=True)
class _Walk:
    """The part that is being added, and where its own bytes begin, if they begin in front of the file."""

    scan: FileScan
    part: Part
    before: Place
    origin: tuple[str, int]


def block_framing(walked: _Walk) -> Framing:
    """Give the framing of the stream."""
    return walked.part.summary.framing


class _Following:
    """What a part announces and uses outside of streamed blocks, taken up as it comes."""

    def __init__(self, stitch: Stitch, versions: Versions, walked: _Walk) -> None:
        summary = walked.part.summary
        self._stitch = stitch
        self._versions = versions
        self._walked = walked
        self._relations = deque(summary.relations)
        self._types = deque(summary.types)
        self._used = deque(sorted(summary.used, key=lambda use: use[1]))
        self._oids = [*dict(summary.used), *dict.fromkeys(relation.oid for _, relation in summary.relations)]

    def view(self) -> tuple[tuple[m.Relation, ...], tuple[m.Type, ...]]:
        """Give the versions in force of the relations that the part names, and the types."""
        return self._versions.view_of(self._oids), tuple(self._versions.types.values())

    def up_to(self, offset: int | None) -> None:
        """Take up what stands in front of an offset; all, if None."""

        def is_next(waiting: deque[tuple[int, Any]]) -> bool:
            return bool(waiting) and (offset is None or waiting[0][0] < offset)

        while is_next(self._relations):
            at, relation = self._relations.popleft()
            self._check(at)
            self._stitch.announce(relation)
        while is_next(self._types):
            _, type_ = self._types.popleft()
            self._versions.types[type_.oid] = type_
        self._check(offset)

    def _check(self, offset: int | None) -> None:
        while self._used and (offset is None or self._used[0][1] < offset):
            oid, at = self._used.popleft()
            self._stitch.known(oid, at, self._walked)


def _types_of(relations: Iterable[m.Relation], known: dict[int, m.Type], *, all_: bool) -> tuple[m.Type, ...]:
    """Give the types of some relations' columns; all, where a cut may lie between a type and its relation."""
    if all_:
        return tuple(known.values())
    oids = {column.type_oid for relation in relations for column in relation.columns}
    return tuple(type_ for oid, type_ in known.items() if oid in oids)


def _committed(item: Decided) -> tuple[int, int]:
    assert isinstance(item.message, (m.StreamCommit, m.CommitPrepared))
    return item.message.commit_lsn, item.message.commit_time


__all__ = ["Rescan", "Stitch"]

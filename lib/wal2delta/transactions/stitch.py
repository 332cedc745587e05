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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from wal2delta.decode.partitions import Partition
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
from wal2delta.transactions.plan import DecidedTransaction, Plan, Resume, TruncatePosition
from wal2delta.transactions.schedule import Commit, Schedule, Stretch
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
        self.types = {type_.oid: type_ for type_ in resume.types} if resume else {}
        self.warnings: list[str] = []
        self._relations: dict[int, Announced] = {}
        self._number = 0
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
        self._truncates: dict[int, tuple[TruncateAt, ...]] = {}
        self._announced: dict[m.Relation, None] = {}
        self._decided: list[DecidedTransaction] = []
        self._transactions = self._resent = 0
        self._committing: Commit | None = None
        self._streams: dict[int, Deferred] = {}
        self._gone: set[int] = set()
        """The session's subtransactions that have rolled back and of which nothing was streamed."""
        self._prepared: dict[tuple[str, int], Deferred] = {}
        self._body: Deferred | None = None
        self._awaited = resume.awaited if resume else None
        self._partitions: dict[int, Partition] = {}
        """By the oids of the partitions: those in force."""
        self._partitions_of_run: dict[Partition, None] = {}
        self._trailing = resume.trailing if resume else None
        self._seeming = resume.seeming if resume else ()
        if resume:
            self._take_up(resume)

    def _take_up(self, resume: Resume) -> None:
        self._seen[resume.path] = _Seen(resume.length, resume.fingerprint, -1)
        for partition in resume.partitions:
            self._note_partition(partition)
        numbers = resume.numbers or tuple(range(len(resume.relations)))
        for relation, number in zip(resume.relations, numbers, strict=True):
            self._relations[relation.oid] = Announced(relation, number)
        for item in resume.deferred:
            # Kept as it was: the run may be planned again.
            item = replace(
                item,
                segments=list(item.segments),
                view=dict(item.view),
                former=list(item.former),
                aborted=set(item.aborted),
            )
            self._number = max([self._number, *(known.number for known in item.view.values())])
            if item.gid is None:
                self._streams[item.xid] = item
            elif item.complete:
                self._prepared[item.gid, item.xid] = item
            else:
                self._body = item
        self._number = max([self._number, *numbers]) + 1

    @property
    def tail(self) -> bytes:
        """The unfinished bytes at the last file's end."""
        return self._unfinished.data

    @property
    def is_open(self) -> bool:
        """Whether a message, an ordinary transaction or a block goes on in the next file."""
        place = self.place
        return bool(self.tail) or (place is not None and (place.transaction is not None or place.stream is not None))

    @property
    def relations(self) -> tuple[m.Relation, ...]:
        """The relation versions in force."""
        return tuple(known.relation for known in self._relations.values())

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
        if not _continues(place, part.summary):
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
        self._tail_at = self._unfinished.origins[0]

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
        following = _Following(self, walked)
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
                cursor, place, view = item.offset, _place_at(before, item, lsn, time), following.view()
        begin = self._note_begin(walked, following)
        following.up_to(None)
        self._note_partitions(summary)
        entry = self._stretch(walked, cursor, summary.stop, place, view)
        if begin is not None:
            begin.entry = entry
        end = _end_place(before, summary)
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
        before = _end_place(walked.before, summary)
        return _Begun(
            path,
            offset,
            0,
            summary.begin_at,
            replace(before, transaction=None),
            dict(self._relations),
            dict(self.types),
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
        known = self._relations.get(oid)
        if known is None:
            path, offset = self._where(walked.scan, walked.part, at)
            raise UnknownRelation(
                f"a row change names relation {oid}, but no Relation message announced it",
                path=path,
                offset=offset,
                remedy="A capture has to begin where its session began; a file before this one is missing",
            )
        return known

    def view_of(self, oids: Iterable[int]) -> tuple[m.Relation, ...]:
        """Give the versions in force of those relations that have any."""
        return tuple(self._relations[oid].relation for oid in oids if oid in self._relations)

    def announce(self, relation: m.Relation) -> None:
        """Let a relation version hold from here on, outside of streamed blocks."""
        self._relations[relation.oid] = Announced(relation, self._next_number())
        self._announced[relation] = None
        # A partition is announced as such each time.
        self._partitions.pop(relation.oid, None)

    def _note_partitions(self, summary: Summary) -> None:
        if summary.messages.keys() <= {"Type"}:
            return
        found = list(summary.partitions)
        leading = summary.leading
        if leading is not None and self._trailing is not None and self._trailing != leading.oid:
            found.insert(0, Partition(self._trailing, leading))
        if summary.messages.keys() <= {"Type", "Relation"}:
            # What uses them, if anything does, is still to come.
            self._seeming = (*self._seeming, *found, *summary.trailing_partitions)
        else:
            used = {oid for oid, _ in summary.used}
            seeming = (partition for partition in self._seeming if partition.relation.oid not in used)
            for partition in (*seeming, *found):
                self._note_partition(partition)
            for oid in summary.alone:
                self._partitions.pop(oid, None)
            self._seeming = summary.trailing_partitions
        self._trailing = summary.trailing

    def _note_partition(self, partition: Partition) -> None:
        self._partitions[partition.relation.oid] = partition
        self._partitions_of_run[partition] = None

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _count(self, summary: Summary, place: Place) -> None:
        self._transactions += summary.ordinary - summary.resent
        self._resent += summary.resent
        for truncate in summary.truncates:
            at = _position(truncate, place)
            if self._wants_origin(at.origin):
                self._note_truncate(at)

    def _note_truncate(self, at: TruncateAt) -> None:
        """Keep a relation's last truncates of two transactions: the last one may be open at the captures' end."""
        last: dict[int, TruncateAt] = {}
        for known in (*self._truncates.get(at.oid, ()), at):
            lsn = -1 if known.lsn is None else known.lsn
            if lsn not in last or last[lsn].ordinal < known.ordinal:
                last[lsn] = known
        self._truncates[at.oid] = tuple(last[lsn] for lsn in sorted(last)[-2:])

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
                self._forget_truncates(open_.final_lsn)
            self._body = None
        self._trailing, self._seeming = None, ()
        self._gone.clear()
        if not self._prepared:
            # Each session announces again what it uses; a prepared transaction alone outlives its own.
            self._partitions.clear()
        self._streams = {
            xid: item
            for xid, item in self._streams.items()
            # Only the LSN tells: what began since the last commit may be the new session's.
            if part.late and item.after_lsn == before.last_lsn and before.stream != xid
        }
        return before.new_session()

    def _cut_begun(self) -> None:
        """Take the open ordinary transaction out of the schedule."""
        begun = self._begun
        if begun is not None:
            self._schedule.cut(begun.entry, begun.at)
        self._begun = None

    def _forget_truncates(self, lsn: int) -> None:
        for oid, known in self._truncates.items():
            self._truncates[oid] = tuple(at for at in known if at.lsn != lsn)

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
            self._forget_truncates(self.place.transaction.final_lsn)
        self._streams, self._body, self._awaited = {}, None, None
        self._unfinished = Unfinished()
        self._trailing, self._seeming = None, ()
        self.place = self.place.new_session()
        return self.place

    # Streamed and prepared transactions.

    def _add_block(self, block: Block, walked: _Walk) -> None:
        xid = block.xid
        if xid == -1:
            assert walked.before.stream is not None
            xid = walked.before.stream
        item = None if block.first else self._streams.get(xid)
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
            self._streams[xid] = item
        if block.origin is not None:
            item.origin = block.origin
        relations = self._used(block.used, walked, item.view)
        types = _types_of(relations, self.types | item.types, all_=block.continues)
        for _, relation in block.relations:
            known = item.view.get(relation.oid)
            if known is not None and known.relation != relation:
                item.former.append(known.relation)
            item.view[relation.oid] = Announced(relation, self._next_number())
        for _, type_ in block.types:
            item.types[type_.oid] = replace(type_, xid=None)
        place = Place(block_framing(walked), stream=xid if block.continues else None)
        self._add_segment(item, walked, block, place, relations, types, block.rows)

    def _add_body(self, body: Body, walked: _Walk) -> None:
        path, offset = self._where(walked.scan, walked.part, body.start)
        if body.begins:
            self._streams.pop(body.xid, None)
            self._body = Deferred(
                body.xid, path, offset, body.gid, streamed=False, lsn=body.prepare_lsn, since=body.prepare_time
            )
        item = self._body
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
            item.complete = True
            self._prepared[body.gid, body.xid] = item
            self._body = None

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
            if message.xid == message.subxid:
                self._streams.pop(message.xid, None)
            elif message.xid in self._streams:
                self._streams[message.xid].aborted.add(message.subxid)
            else:
                self._gone.add(message.subxid)
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
            self._prepared.setdefault((message.gid, message.xid), empty)
            return False
        if isinstance(message, m.RollbackPrepared):
            if self._prepared.pop((message.gid, message.xid), None) is None:
                self._check_known(message, item, walked)
            # It may roll back while it is still being streamed, before its Prepare.
            self._streams.pop(message.xid, None)
            return False
        if isinstance(message, m.StreamPrepare):
            prepared = self._take_stream(message.xid, item, walked)
            if prepared is not None:
                prepared.gid, prepared.complete = message.gid, True
                prepared.lsn, prepared.since = message.prepare_lsn, message.prepare_time
                self._prepared[message.gid, message.xid] = prepared
            return False
        resent = message.commit_lsn <= before.high_lsn
        if isinstance(message, m.StreamCommit):
            decided = self._take_stream(message.xid, item, walked)
        else:
            decided = self._prepared.pop((message.gid, message.xid), None)
            if decided is None and not resent:
                self._check_known(message, item, walked)
                path, offset = self._where(walked.scan, walked.part, item.offset)
                self.warnings.append(
                    f"{path}, offset {offset:,}: transaction {message.xid} (commit LSN "
                    f"{format_lsn(message.commit_lsn)}) was prepared, but its rows are not there: "
                    "it was empty, or the file with its Prepare is missing"
                )
        return self._commit(decided, message, item, walked, resent=resent)

    def _check_known(self, message: m.CommitPrepared | m.RollbackPrepared, item: Decided, walked: _Walk) -> None:
        """Refuse a decision whose transaction is prepared under another gid, or a commit whose gid is another one's.

        A gid may be used again once it was decided on; a rollback of the one before may come again then.
        """
        for gid, xid in self._prepared:
            is_same = xid == message.xid or (gid == message.gid and isinstance(message, m.CommitPrepared))
            if is_same:
                path, offset = self._where(walked.scan, walked.part, item.offset)
                self._gap(
                    OrderError(
                        f"a {type(message).__name__} decides on transaction {message.xid}, but its gid, or its xid, is "
                        f"not the one that it was prepared with",
                        path=path,
                        offset=offset,
                        remedy="The file is damaged, or what decided on the transaction of that gid is missing; fetch "
                        "it from its source again",
                    )
                )

    def _take_stream(self, xid: int, item: Decided, walked: _Walk) -> Deferred | None:
        found = self._streams.pop(xid, None)
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
        elif any(segment.rows.among(self._gone) for segment in found.segments):
            path, offset = self._where(walked.scan, walked.part, item.offset)
            raise OrderError(
                f"a subtransaction of the streamed transaction {xid} has rolled back as one of another transaction",
                path=path,
                offset=offset,
                remedy="The file is damaged; fetch it from its source again",
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
        self._announced.update(dict.fromkeys(decided.former))
        for known in decided.view.values():
            # What a streamed transaction announced holds outside of it once it has committed.
            now = self._relations.get(known.relation.oid)
            if isinstance(message, m.StreamCommit) and (now is None or now.number < known.number):
                self._relations[known.relation.oid] = known
            self._announced[known.relation] = None
        self.types.update(decided.types)
        starts, truncates = decided.ordinals()
        if applied:
            for oid, ordinal in truncates:
                self._note_truncate(TruncateAt(oid, message.commit_lsn, ordinal, origin))
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
            truncates=tuple(self._committed_truncates(place.high_lsn)),
            resume=resume,
            transactions=self._transactions,
            resent=self._resent,
            announced=tuple(self._announced),
            before=self._resume.relations if self._resume else (),
            types=tuple(self.types.values()),
            decided=tuple(self._decided),
            torn=torn,
            warnings=(*self.warnings, *self._open_warnings(place, resume, torn)),
            partitions=tuple(self._partitions_of_run),
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

    def _committed_truncates(self, upto_lsn: int) -> Iterator[TruncatePosition]:
        """Give the last truncate of each relation that has any."""
        for known in self._truncates.values():
            at = max(
                (at for at in known if at.lsn is not None and self.after_lsn < at.lsn <= upto_lsn),
                key=lambda at: (at.lsn, at.ordinal),
                default=None,
            )
            if at is not None and at.lsn is not None:
                yield TruncatePosition(at.oid, at.lsn, at.ordinal)

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
            at, relations, types = place, self._relations, self.types
        seen = self._seen[path]
        later = list(self._seen)[list(self._seen).index(path) + 1 :]
        rest = seen.size - offset + sum(self._seen[name].size for name in later)
        transaction = None
        if open_ is not None:
            transaction = OpenTransaction(
                "ordinary", open_.xid, None, open_.final_lsn, open_.commit_time, path, offset, rest, 1
            )
        deferred = [*self._prepared.values(), *self._streams.values(), *([self._body] if self._body else [])]
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
            deferred=tuple(sorted(deferred, key=lambda item: (item.since or 0, item.xid))),
            awaited=self._awaited,
            partitions=tuple(self._partitions.values()),
            trailing=self._trailing if open_ is None else None,
            seeming=self._seeming if open_ is None else (),
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

    def __init__(self, stitch: Stitch, walked: _Walk) -> None:
        summary = walked.part.summary
        self._stitch = stitch
        self._walked = walked
        self._relations = deque(summary.relations)
        self._types = deque(summary.types)
        self._used = deque(sorted(summary.used, key=lambda use: use[1]))
        self._oids = [*dict(summary.used), *dict.fromkeys(relation.oid for _, relation in summary.relations)]

    def view(self) -> tuple[tuple[m.Relation, ...], tuple[m.Type, ...]]:
        """Give the versions in force of the relations that the part names, and the types."""
        return self._stitch.view_of(self._oids), tuple(self._stitch.types.values())

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
            self._stitch.types[type_.oid] = type_
        self._check(offset)

    def _check(self, offset: int | None) -> None:
        while self._used and (offset is None or self._used[0][1] < offset):
            oid, at = self._used.popleft()
            self._stitch.known(oid, at, self._walked)


def _continues(place: Place, summary: Summary) -> bool:
    """Whether a guessed summary may follow a known place."""
    open_ = place.transaction
    inside = bool(summary.items) and isinstance(summary.items[0], Block) and summary.items[0].xid == -1
    if inside != (place.stream is not None) or (open_ is not None and open_.gid is not None):
        return False
    if summary.first_message is not None and summary.first_message <= place.message_lsn:
        return False
    if summary.head_commit is not None:
        return (
            open_ is not None
            and summary.head_commit == (open_.final_lsn, open_.commit_time)
            and (open_.final_lsn > place.high_lsn)
        )
    if summary.head_changes and open_ is None:
        return False
    if summary.place is None:
        return True
    begins = summary.first_lsn
    if summary.place.transaction is not None and begins is None:
        begins = summary.place.transaction.final_lsn
    return open_ is None and (begins is None or begins > max(place.last_lsn, place.high_lsn))


def _end_place(place: Place, summary: Summary) -> Place:
    """Give the place at a summary's end, given the one at its start."""
    end = summary.place
    if summary.exact and end is not None:
        return end
    if end is None:
        open_ = place.transaction
        if open_ is None:
            return place
        return replace(place, transaction=replace(open_, ordinal=open_.ordinal + summary.head_changes), begun=True)
    stream = place.stream if end.stream == -1 else end.stream
    end = replace(
        end,
        stream=stream,
        message_lsn=max(end.message_lsn, place.message_lsn),
        begun=place.begun or end.begun,
        session=place.session,
    )
    if summary.last_lsn is None:
        return replace(
            end,
            last_lsn=place.last_lsn,
            last_commit_time=place.last_commit_time,
            high_lsn=place.high_lsn,
            high_commit_time=place.high_commit_time,
        )
    # A guess is taken only where it lies behind all that is known.
    return replace(end, high_lsn=end.last_lsn, high_commit_time=end.last_commit_time)


def _types_of(relations: Iterable[m.Relation], known: dict[int, m.Type], *, all_: bool) -> tuple[m.Type, ...]:
    """Give the types of some relations' columns; all, where a cut may lie between a type and its relation."""
    if all_:
        return tuple(known.values())
    oids = {column.type_oid for relation in relations for column in relation.columns}
    return tuple(type_ for oid, type_ in known.items() if oid in oids)


def _committed(item: Decided) -> tuple[int, int]:
    assert isinstance(item.message, (m.StreamCommit, m.CommitPrepared))
    return item.message.commit_lsn, item.message.commit_time


def _place_at(before: Place, item: Decided, lsn: int, time: int) -> Place:
    """Give the place at a decision that commits; the decision itself is walked again."""
    return replace(
        before,
        transaction=None,
        stream=None,
        last_lsn=lsn - 1,
        last_commit_time=time,
        high_lsn=max(before.high_lsn, lsn),
        message_lsn=max(before.message_lsn, item.message_lsn),
        begun=True,
    )


def _position(truncate: TruncateAt, place: Place) -> TruncateAt:
    """Give a truncate's place in its transaction, where that began before the stretch."""
    open_ = place.transaction
    if truncate.lsn is not None or open_ is None:
        return truncate
    return TruncateAt(truncate.oid, open_.final_lsn, open_.ordinal + truncate.ordinal, open_.origin)


__all__ = ["Rescan", "Stitch"]

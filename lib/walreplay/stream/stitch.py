"""Join the files' summaries into one stream, and plan what of it is applied.

Files are scanned in parallel, each on a guess of where its first message begins.  Here the guesses are compared with
what is certain (`walreplay.decode.files`).  A file whose guess proves wrong is scanned again, from its true place
(`Stitch.next_scan`).  What is known is in one record (`walreplay.stream.state.StitchState`), which always describes the
end of the last file that was added, exactly; nothing in it rests on a guess.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from walreplay.decode.announcements import Layouts, Moved
from walreplay.decode.decoder import every_origin
from walreplay.decode.files import ScanTask, parts_of_guess
from walreplay.decode.scan import Until
from walreplay.decode.sessions.resync import refuse_leftover
from walreplay.decode.sessions.starts import is_short_abort
from walreplay.decode.summary import Body, Decided, FileScan, Part, Piece, Unfinished
from walreplay.decode.walk import Place, Transaction
from walreplay.errors import FramingError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.recorded_names import refuse_outside
from walreplay.stream.in_force import Versions
from walreplay.stream.plan import OpenTransaction, Plan, Resume
from walreplay.stream.schedule import AddedPart, View
from walreplay.stream.state import Begun, StitchState, check_awaited, check_rows
from walreplay.stream.transitions import follow
from walreplay.types.text import UTF8


def resume_at(state: StitchState, place: Place) -> Resume:
    """Return where the next run goes on, if the files end at a place: where what is open there begins."""
    last_path = next(reversed(state.seen))  # a dict keeps the order in which files were added
    last_file = state.seen[last_path]
    begun = state.begun
    # Only an ordinary transaction makes the next run go back; a prepared one is kept as references.
    open_ = place.transaction if place.transaction is not None and place.transaction.gid is None else None
    if open_ is not None and begun is not None:  # both or neither
        path, offset, resume_place = begun.path, begun.offset, begun.place
        relations, types, layouts = begun.relations, begun.types, begun.layouts
    else:
        path, offset = state.tail_at
        resume_place = place
        relations, types = state.versions.snapshot()
        layouts = state.layouts.all()
    seen = state.seen[path]
    later_paths = list(state.seen)[list(state.seen).index(path) + 1 :]
    open_bytes = seen.size - offset + sum(state.seen[name].size for name in later_paths)
    transaction = None
    if open_ is not None:
        transaction = OpenTransaction(
            "ordinary", open_.xid, None, open_.final_lsn, open_.commit_time, path, offset, open_bytes, 1
        )
    return Resume(
        path=path,
        offset=offset,
        length=seen.length,
        fingerprint=seen.fingerprint,
        done=open_ is None and not state.tail and not state.ended,  # nothing of the file has to be read again
        has_more=state.ended,
        last_path=last_path,
        last_length=last_file.length,
        place=resume_place,
        relations=tuple(version.relation for version in relations.values()),
        numbers=tuple(version.number for version in relations.values()),
        types=tuple(types.values()),
        begun=transaction,
        deferred=state.open.deferred,
        awaited=state.awaited,
        cut=tuple(state.cut.values()),
        gone=tuple(sorted(state.open.gone)),
        partitions=state.partitions.in_force,
        trailing=state.partitions.trailing if open_ is None else None,  # read again with the transaction
        seeming=state.partitions.seeming if open_ is None else (),
        layouts=layouts,
        top_time=state.resume.top_time if state.resume else None,  # the decode raises it (`job.execution`)
        gap=state.gap if state.allow_gaps else None,
    )


def warnings_of(state: StitchState, place: Place, resume: Resume, torn: tuple[str, int, int] | None) -> Iterator[str]:
    """Return what is open at the end."""
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


# Relations and types outside of streamed blocks


class AnnouncementCursor:
    """Bring a state up to date with what a part announces outside of streamed blocks, offset by offset."""

    def __init__(self, state: StitchState, added: AddedPart) -> None:
        summary = added.part.summary
        self.state = state
        self._added = added
        bodies = [(item.start, item.stop) for item in summary.items if isinstance(item, Body)]
        # What a transaction announces that is being prepared holds when it commits.
        offsets = [offset for offset, _ in summary.announced]
        prepared_offsets = {offset for offset in offsets for start, stop in bodies if start <= offset < stop}
        announced = (entry for entry in summary.announced if entry[0] not in prepared_offsets)
        used = ((offset, oid) for oid, offset in summary.used)
        events: tuple[tuple[int, m.Relation | m.Type | m.Message | int], ...]
        events = (*summary.relations, *summary.types, *announced, *used)
        self._events = deque(sorted(events, key=lambda event: event[0]))
        self._coming = [relation for _, relation in summary.relations]
        self._oids = [*dict(summary.used), *dict.fromkeys(relation.oid for relation in self._coming)]

    def view(self) -> View:
        """Return what is in force for the relations that the part uses or announces, and all types."""
        versions, layouts = self.state.versions, self.state.layouts
        relations = versions.view_of(self._oids)
        return relations, tuple(versions.types.values()), layouts.of(self._oids, (*relations, *self._coming))

    def advance(self, offset: int | None) -> None:
        """Apply everything that stands before an offset; None applies the rest.

        Raises:
            UnknownRelation: a row uses a relation that nothing has announced.
        """
        while self._events and (offset is None or self._events[0][0] < offset):
            event_offset, event = self._events.popleft()
            if isinstance(event, m.Relation):
                self.state.announce(event)
            elif isinstance(event, m.Type):
                self.state.versions.types[event.oid] = event
            elif isinstance(event, m.Message):
                if any(layout.enum is not None for layout in self.state.layouts.take(event)):
                    self.state.relabel()
            else:  # the oid of a relation that a row uses
                self.state.used_version(event, event_offset, self._added)  # raises if there is none


_MAX_NAMES: Final = 4
_WARNINGS: Final = {
    "attached": "a partition was attached, {}: the rows that it had before are not in the mirror",
    "detached": "a partition was detached, {}: the rows that it had stay in the mirror",
    "dropped": "a partition was dropped, {}: the rows that it had stay in the mirror",
    "relabelled": "an enum was changed before it was announced, {}: older rows may have labels that were renamed. "
    "Announce all enums for each new slot, once it is there (SELECT walreplay.announce_all())",
    "unlogged": "the table was set unlogged, {}: its changes are not sent from there on",
    "logged": "the table was unlogged until {}: the rows that it had then are not in the mirror",
}


def warnings_of_moved(moved: Sequence[Moved], layouts: Layouts, versions: Versions) -> Iterator[str]:
    """Yield for each table, or root that changes are published under, what has become of its rows.

    Args:
        moved: what was announced and has committed.
        layouts: what is announced by now.
    """
    moves_by_root: dict[tuple[str, str], list[Moved]] = {}
    for move in moved:
        ancestors = layouts.ancestors(move.parent)
        # Where partitions are published as themselves, nothing names a root, and their rows stay where they are.
        versions_above = [version for oid in ancestors if (version := versions.version_of(oid)) is not None]
        if any(map(layouts.is_dropped, ancestors)):
            continue
        if versions_above:
            moves_by_root.setdefault((versions_above[-1].relation.qualified_name, move.what), []).append(move)
        elif move.what == "logged":  # it may be no partition at all
            moves_by_root.setdefault((move.name, move.what), []).append(move)
    for (root, what), moves in moves_by_root.items():
        names = ", ".join(f"{move.name} (LSN {format_lsn(move.lsn)})" for move in moves[:_MAX_NAMES])
        others = f" and {len(moves) - _MAX_NAMES:,} more" if len(moves) > _MAX_NAMES else ""
        remedy = "Load the table's rows anew (docs/starting.md: walreplay load --replace --from COPY)"
        yield f"{root}: {_WARNINGS[what].format(names + others)}. {remedy}"


class Stitch:
    """Take the files' scans in their order; then give the plan.

    Args:
        resume: where the last run ended; None at the start of a stream.
        wants_origin: says whether transactions of an origin (None: of the source itself) are to be applied.
        allow_gaps: leave out what is not whole, with a warning, instead of refusing it.
        until: where the run ends; None at the files' end.
        announcements: the prefix of messages that announce tables; None for none.
    """

    def __init__(
        self,
        resume: Resume | None,
        *,
        wants_origin: Callable[[str | None], bool] = every_origin,
        allow_gaps: bool = False,
        until: Until | None = None,
        announcements: str | None = None,
    ) -> None:
        self.state = StitchState(resume, wants_origin, allow_gaps, layouts=Layouts(announcements))
        self._until = until

    def copied(self) -> Stitch:
        """Return the same, to go back to: an error in `add` or `add_exact` leaves this one halfway."""
        other = copy.copy(self)
        other.state = self.state.copied()
        return other

    @property
    def place(self) -> Place | None:
        """Where the last file ends; None until the stream's framing is known."""
        return self.state.place

    @property
    def is_open(self) -> bool:
        """Whether a message, an ordinary transaction or a block goes on in the next file."""
        place = self.state.place
        return bool(self.state.tail) or (
            place is not None and (place.transaction is not None or place.stream is not None)
        )

    @property
    def last_path(self) -> str:
        """The file that was added last, in this run or the one before; none at the start of a stream."""
        state = self.state
        if state.unfinished.pieces:
            return state.unfinished.last_path
        return state.resume.last_path if state.resume is not None else ""

    def next_scan(self, framing: Framing | None = None, codec: str = UTF8) -> ScanTask:
        """Return how the next file is scanned from where the last one ends, to where the run ends.

        Args:
            framing: the stream's; None to recognise it, where so few bytes were seen that it is unknown.
        """
        place = self.place
        return ScanTask(
            framing,
            place,
            first=place is None,
            prefix=self.state.tail,
            edges=self.state.unfinished.edges,
            origins=self.state.unfinished.origins,
            codec=codec,
            earlier_path=self.last_path,
            until=self._until,
        )

    def add_exact(self, scan: FileScan) -> None:
        """Add the next file, which was scanned from the place and the tail that this stitch stands at."""
        if self.state.place is None and scan.framing is not None:  # all before was too short for a framing
            self.state.place = Place(scan.framing)
        # Without a part the file lies inside one message.
        self._join(scan, scan.parts)

    def add(self, scan: FileScan) -> bool:
        """Add the next file, which was scanned on a guess.

        Returns:
            False if the guess is wrong, or if the run ends in the file: it has to be scanned by `next_scan`.
        """
        state = self.state
        parts = None if state.place is None else parts_of_guess(scan, state.place, state.tail)
        if parts is None or (self._until is not None and any(self._until.is_passed(part.summary) for part in parts)):
            return False
        self._join(scan, parts)
        return True

    # One file.

    def _join(self, scan: FileScan, parts: Iterable[Part]) -> None:
        start: int | None = None
        stop = 0
        state = self.state
        state.parts = parts = tuple(parts)
        state.duplicate_files.check(scan, parts, state.place, len(state.tail), state.open.streams)
        lsns = (lsn for part in parts for lsn in (part.summary.first_lsn, part.summary.last_lsn))
        refuse_outside(scan.path, (lsn for lsn in lsns if lsn is not None))
        check_rows(state, parts, scan.path)
        for part in parts:
            self._add_part(scan, part)
            if part.data is None:  # parts of the seam have offsets of their own, not of the file
                start = part.summary.start if start is None else start
                stop = part.summary.stop
        state.end_file(scan, start or 0, stop)
        state.duplicate_files.add(scan, state.place)

    def _add_part(self, scan: FileScan, part: Part) -> None:
        state = self.state
        summary = part.summary
        assert state.place is not None
        added = AddedPart(scan, part, state.place, state.unfinished)
        if part.new_session:
            added = replace(added, start_place=self._begin_session(added))  # no transaction is open, no LSN sent
        check_awaited(state, added)
        cursor = AnnouncementCursor(state, added)
        start, place, view = summary.start, added.start_place, cursor.view()
        for item in summary.items:
            cursor.advance(item.start)
            committed = follow(state, item, added)
            if committed is not None and isinstance(item, Decided):  # only decisions commit
                # What stands behind a commit follows it in the schedule, and knows what it has announced.
                # Commits are applied in their order, so ordinary transactions in front of this one come first.
                state.schedule.add_ordinary(added, start, item.start, place, view)
                transaction, commit = committed
                if commit is not None:  # else it has only announced relations
                    state.schedule.commit(commit)
                start, view = item.start, cursor.view()
                place = added.place_of(item, transaction)
        open_begin = self._note_begin(added, cursor)
        cursor.advance(None)
        state.partitions.note(summary)
        end = added.end
        entry = state.schedule.add_ordinary(added, start, summary.stop, place, view)
        if open_begin is not None:
            open_begin.entry = entry  # a session that cuts the transaction off removes its bytes from there
        if end.transaction is None or end.transaction.gid is not None:
            state.begun = None
        elif open_begin is not None:  # else the transaction began in an earlier part, and is still open
            state.begun = open_begin
        state.transactions += summary.ordinary - summary.resent
        state.resent += summary.resent
        state.truncates.add_part(summary, added.start_place, state.wants_origin)
        state.place = end

    def _note_begin(self, added: AddedPart, cursor: AnnouncementCursor) -> Begun | None:
        """Return where an ordinary transaction begins that the part does not end; moves the cursor there."""
        summary = added.part.summary
        if summary.begin_at is None:
            return None
        cursor.advance(summary.begin_at)
        path, offset = added.where(summary.begin_at)
        # An open ordinary transaction changes nothing else of the place; its Begin may be the session's first message.
        begun = added.start_place.begun or summary.begin_at > summary.start
        return Begun(
            path,
            offset,
            0,  # of its entry: it is set once that is scheduled
            summary.begin_at,
            replace(added.end, transaction=None, begun=begun),
            *self.state.versions.snapshot(),
            self.state.layouts.all(),
            len(self.state.layouts.moved),
        )

    # Sessions.

    def _begin_session(self, added: AddedPart) -> Place:
        """End the session before: what it left open comes again from its start, or never."""
        state, part, place = self.state, added.part, added.start_place
        open_ = place.transaction
        if part.torn:
            path, offset = added.where(part.summary.start)
            state.warnings.append(
                f"{path}, offset {offset:,}: a new session begins; the one before it ended inside a message, "
                f"of which {part.torn:,} bytes are there"
            )
        state.note_cut(open_, state.open.streams, place)
        if open_ is not None:
            state.awaited = min(open_.final_lsn, open_.final_lsn if state.awaited is None else state.awaited)
            if open_.gid is None:
                self._take_back_open(open_, place)  # a prepared one has scheduled nothing yet
            state.open.body = None
        # Each session announces again what it uses; a prepared transaction alone outlives its own.
        state.partitions.end_session(forget=not state.open.prepared)
        state.open.end_session(place, late=part.shown_by_lsn_only)
        return place.new_session()

    def _take_back_open(self, open_: Transaction, place: Place) -> None:
        """Go back to before the ordinary transaction that is cut off at a place."""
        state = self.state
        if open_.final_lsn > place.high_lsn:
            # Of a copy of a transaction that was whole before, the first copy's truncates hold.
            state.truncates.forget(open_.final_lsn)
        if state.begun is not None:
            moved = state.layouts.moved[: state.begun.moved]  # what the cut-off transaction announced did not commit
            relations = (version.relation for version in state.begun.relations.values())
            state.layouts = Layouts(state.layouts.prefix, state.begun.layouts, relations)
            state.layouts.moved = moved
        state.cut_begun()

    def gap(self, path: str, problem: str) -> Place:
        """Go on behind a gap: nothing that is open goes on, and nothing of it is awaited.

        Returns:
            the place at which the next file is scanned.
        """
        state = self.state
        assert state.place is not None
        state.warn_of_gap(f"{path}: {problem}; what was open before is left out")
        if state.place.transaction is not None and state.place.transaction.gid is None:
            self._take_back_open(state.place.transaction, state.place)
        state.open.end_session(state.place, late=False)  # what is missing may have the end of a session in it
        state.open.body = None
        state.awaited = None
        # The message goes on in the files that are missing.
        last_pieces = (Piece(piece.path, piece.offset + piece.size, 0) for piece in state.unfinished.pieces[-1:])
        state.unfinished = Unfinished(pieces=tuple(last_pieces))
        state.partitions.end_session(forget=False)
        state.place = state.place.new_session()
        return state.place

    # The plan.

    def plan(self, *, is_last: bool = True) -> Plan:
        """Return what the added files come to; nothing is added behind it, as it cuts off what is open.

        Args:
            is_last: they are all that there is; else what is open at their end is worth no warning.

        Raises:
            CaptureError: they are too few, or what seems to be unfinished at their end is damaged.
        """
        state = self.state
        place = end_of(state)
        moved = state.layouts.moved if state.begun is None else state.layouts.moved[: state.begun.moved]
        resume = resume_at(state, place)  # before `cut_begun` forgets where the open one began
        if place.transaction is not None and place.transaction.gid is None:
            state.cut_begun()
        _warn_of_announcements(state)
        files = {
            path: (seen.length, seen.fingerprint, *state.scanned[path])
            for path, seen in state.seen.items()
            if path in state.scanned
        }
        planned, (versions, type_versions, layouts) = state.schedule.plan(files)
        torn = (
            (*state.tail_at, len(state.tail))
            if state.tail and not state.ended and not is_short_abort(place.framing, state.tail)
            else None
        )
        return Plan(
            files=planned,
            versions=versions,
            type_versions=type_versions,
            layouts=layouts,
            announcements=state.layouts.prefix,
            after_lsn=state.after_lsn,
            upto_lsn=place.high_lsn,
            upto_commit_time=place.high_commit_time,
            truncates=tuple(state.truncates.committed(state.after_lsn, place.high_lsn)),
            resume=resume,
            transactions=state.transactions,
            resent=state.resent,
            announced=tuple(state.versions.announced),
            before=state.resume.relations if state.resume else (),
            types=tuple(self.state.versions.types.values()),
            decided=tuple(state.decided),
            torn=torn,
            warnings=(
                *state.warnings,
                *warnings_of_moved(moved, state.layouts, state.versions),
                *(warnings_of(state, place, resume, torn) if is_last else ()),
            ),
            partitions=tuple(state.partitions.of_run),
            top_time=state.resume.top_time if state.resume else None,
        )


def end_of(state: StitchState) -> Place:
    """Return the place behind the last file; refuse too few bytes, and an unfinished message that is damaged."""
    if state.place is None:
        raise FramingError(
            f"the capture's {len(state.tail):,} bytes are too few to tell what they are",
            path=next(iter(state.seen), None),
            offset=0,
            remedy="Run again when the capture has grown; if it will not, it was truncated",
        )
    if state.tail and not state.ended:
        path, offset = state.tail_at
        refuse_leftover(state.tail, state.place.framing, state.codec, path=path, offset=offset)
    return state.place


def _warn_of_announcements(state: StitchState) -> None:
    """Add warnings of announcements that were not read, once."""
    if state.layouts.unread:
        state.warnings.append(
            f"{state.layouts.unread:,} messages with the prefix of announcements cannot be read: they are not of "
            "announce.sql, or of a newer one"
        )
        state.layouts.unread = 0
    for prefix in sorted(state.layouts.unasked):
        state.warnings.append(
            f"messages with the prefix {prefix!r} announce tables, and are not read, as the configuration has "
            "another `announcements`, or none: see docs/announcements.md"
        )
    state.layouts.unasked.clear()

"""Join the files' summaries into one stream, and plan what of it is applied.

Files are scanned in parallel, each on a guess of where its first message begins.  Here the guesses are held against
what is certain (`walreplay.decode.guesses`).  A file whose guess proves wrong is scanned again, from its
true place (`Stitch.next_scan`).

What is known stands in one record (`walreplay.transactions.state.StitchState`), which always describes the end of the
last file that was added, exactly; nothing in it rests on a guess.  The moves that streamed and prepared transactions
make are those of `walreplay.transactions.open_transactions`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace

from walreplay.decode.announcements import Layouts
from walreplay.decode.files import ScanTask
from walreplay.decode.guesses import parts_of_guess
from walreplay.decode.place import Place
from walreplay.decode.sessions.frames import is_short_abort
from walreplay.decode.sessions.leftover import refuse_leftover
from walreplay.decode.summary import Block, Body, FileScan, Part
from walreplay.decode.unfinished import Unfinished
from walreplay.decode.until import Until
from walreplay.errors import FramingError
from walreplay.protocol.framing import Framing
from walreplay.transactions.decisions import decide
from walreplay.transactions.deferral import add_block, add_body
from walreplay.transactions.ending import resume_at, warnings_of
from walreplay.transactions.following import Following
from walreplay.transactions.gaps import check_awaited, check_rows, lacks_start
from walreplay.transactions.moved import warnings_of_moved
from walreplay.transactions.places import end_place, place_at
from walreplay.transactions.plan import Plan, Resume
from walreplay.transactions.state import Begun, StitchState
from walreplay.transactions.walked import Walk
from walreplay.types.text import UTF8


def _wants_all(origin: str | None) -> bool:
    return True


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
        wants_origin: Callable[[str | None], bool] = _wants_all,
        allow_gaps: bool = False,
        until: Until | None = None,
        announcements: str | None = None,
    ) -> None:
        self._state = StitchState(resume, wants_origin, allow_gaps, layouts=Layouts(announcements))
        self._until = until

    @property
    def state(self) -> StitchState:
        """What is known, to be looked at."""
        return self._state

    def copied(self) -> Stitch:
        """Give the same, which does not change with what is added to this one."""
        other = copy.copy(self)
        other._state = self._state.copied()
        return other

    @property
    def place(self) -> Place | None:
        """Where the last file ends; None until the stream's framing is known."""
        return self._state.place

    @property
    def tail(self) -> bytes:
        """The unfinished bytes at the last file's end."""
        return self._state.tail

    @property
    def is_open(self) -> bool:
        """Whether a message, an ordinary transaction or a block goes on in the next file."""
        place = self._state.place
        return bool(self._state.tail) or (
            place is not None and (place.transaction is not None or place.stream is not None)
        )

    @property
    def is_ended(self) -> bool:
        """Whether the next transaction is one that is too late for the run."""
        return self._state.ended

    @property
    def edges(self) -> tuple[int, ...]:
        """Where files begin in the unfinished bytes."""
        return self._state.unfinished.edges

    @property
    def last_path(self) -> str:
        """The file that was added last, in this run or the one before; none at the start of a stream."""
        state = self._state
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
            prefix=self.tail,
            edges=self.edges,
            origins=self._state.unfinished.origins,
            codec=codec,
            before=self.last_path,
            until=self._until,
        )

    def add_exact(self, scan: FileScan) -> None:
        """Add the next file, which was scanned from the place and the tail that this stitch stands at."""
        if self._state.place is None and scan.framing is not None:
            self._state.place = Place(scan.framing)
        # Without a part the file lies inside one message.
        self._join(scan, scan.parts)

    def add(self, scan: FileScan) -> bool:
        """Add the next file, which was scanned on a guess.

        Returns:
            False if the guess is wrong, or if the run ends in the file: it has to be scanned by `next_scan`.
        """
        state = self._state
        parts = None if state.place is None else parts_of_guess(scan, state.place, state.tail)
        if parts is None or (self._until is not None and self._until.is_passed_in(parts)):
            return False
        self._join(scan, parts)
        return True

    # One file.

    def _join(self, scan: FileScan, parts: Iterable[Part]) -> None:
        start: int | None = None
        stop = 0
        state = self._state
        state.parts = parts = tuple(parts)
        state.twins.check(scan, parts, state.place, len(state.tail), state.open.streams)
        check_rows(state, parts, scan.path)
        for part in parts:
            self._add_part(scan, part)
            if part.data is None:
                start = part.summary.start if start is None else start
                stop = part.summary.stop
        state.end_file(scan, start or 0, stop)
        state.twins.add(scan, state.place)

    def _add_part(self, scan: FileScan, part: Part) -> None:
        state = self._state
        summary = part.summary
        assert state.place is not None
        walked = Walk(scan, part, state.place, state.unfinished)
        if part.new_session:
            walked = replace(walked, before=self._begin_session(walked))
        check_awaited(state, walked)
        following = Following(state, walked)
        start, place, view = summary.start, walked.before, following.view()
        for item in summary.items:
            following.up_to(item.offset)
            is_cut = lacks_start(state, item, walked)
            if isinstance(item, Block):
                if not is_cut:
                    add_block(state, item, walked)
            elif isinstance(item, Body):
                add_body(state, item, walked)
            elif (committed := decide(state, item, walked)) is not None:
                # What stands behind a commit follows it in the schedule, and knows what it has announced.
                state.schedule.add_ordinary(walked, start, item.offset, place, view)
                if committed.commit is not None:
                    state.schedule.commit(committed.commit)
                start, view = item.offset, following.view()
                place = place_at(walked.before, item, committed.lsn, committed.time)
        begin = self._note_begin(walked, following)
        following.up_to(None)
        state.partitions.note(summary)
        end = end_place(walked.before, summary)
        entry = state.schedule.add_ordinary(walked, start, summary.stop, place, view)
        if begin is not None:
            begin.entry = entry
        if end.transaction is None or end.transaction.gid is not None:
            state.begun = None
        elif begin is not None:
            state.begun = begin
        state.transactions += summary.ordinary - summary.resent
        state.resent += summary.resent
        state.truncates.take(summary, walked.before, state.wants_origin)
        state.place = end

    def _note_begin(self, walked: Walk, following: Following) -> Begun | None:
        """Remember where an ordinary transaction begins that the part does not end."""
        summary = walked.part.summary
        if summary.begin_at is None:
            return None
        following.up_to(summary.begin_at)
        path, offset = walked.where(summary.begin_at)
        before = end_place(walked.before, summary)
        return Begun(
            path,
            offset,
            0,
            summary.begin_at,
            replace(before, transaction=None),
            *self._state.versions.snapshot(),
            self._state.layouts.all(),
            len(self._state.layouts.moved),
        )

    # Sessions.

    def _begin_session(self, walked: Walk) -> Place:
        """End the session before: what it left open comes again from its start, or never."""
        state, part, before = self._state, walked.part, walked.before
        open_ = before.transaction
        if part.torn:
            path, offset = walked.where(part.summary.start)
            state.warnings.append(
                f"{path}, offset {offset:,}: a new session begins; the one before it ended inside a message, "
                f"of which {part.torn:,} bytes are there"
            )
        state.note_cut(open_, state.open.streams)
        if open_ is not None:
            state.await_transaction(open_.final_lsn)
            if open_.gid is None:
                self._forget_announced()
                state.cut_begun()
                state.truncates.forget(open_.final_lsn)
            state.open.body = None
        # Each session announces again what it uses; a prepared transaction alone outlives its own.
        state.partitions.end_session(forget=not state.open.prepared)
        state.open.end_session(before, late=part.late)
        return before.new_session()

    def _forget_announced(self) -> None:
        """Go back to what was announced before the ordinary transaction that is cut off."""
        state = self._state
        if state.begun is not None:
            moved = state.layouts.moved[: state.begun.moved]
            shown = (known.relation for known in state.begun.relations.values())
            state.layouts = Layouts(state.layouts.prefix, state.begun.layouts, shown)
            state.layouts.moved = moved

    def gap(self, path: str, problem: str) -> Place:
        """Go on behind a gap: nothing that is open goes on, and nothing of it is awaited.

        Returns:
            the place at which the next file is scanned.
        """
        state = self._state
        assert state.place is not None
        state.warnings.append(f"{path}: {problem}; what was open before is left out (gaps are allowed)")
        if state.place.transaction is not None and state.place.transaction.gid is None:
            self._forget_announced()
            state.cut_begun()
            state.truncates.forget(state.place.transaction.final_lsn)
        state.open.lose()
        state.awaited = None
        state.unfinished = Unfinished()
        state.partitions.end_session(forget=False)
        state.place = state.place.new_session()
        return state.place

    # The plan.

    def plan(self, *, is_last: bool = True) -> Plan:
        """Give what the added files come to.

        Args:
            is_last: they are all that there is; else what is open at their end is worth no warning.

        Raises:
            CaptureError: they are too few, or what seems to be unfinished at their end is damaged.
        """
        state = self._state
        place = _end_of(state)
        moved = state.layouts.moved if state.begun is None else state.layouts.moved[: state.begun.moved]
        resume = resume_at(state, place)
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
            types=tuple(self._state.versions.types.values()),
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


def _end_of(state: StitchState) -> Place:
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


__all__ = ["Stitch"]

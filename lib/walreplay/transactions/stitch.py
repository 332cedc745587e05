"""Join the files' summaries into one stream, and plan what of it is applied.

Files are scanned in parallel, each on a guess of where its first message begins.  Here the guesses are held
against what is certain: the unfinished bytes at the end of one file and the bytes before the guessed start of the
next must be whole messages, and the transaction open at the end of one must be the one that the next goes on
with.  A file whose guess proves wrong is asked for again (`Rescan`), this time from its true place.

What is known stands in one record (`walreplay.transactions.state.StitchState`), which always describes the end of the
last file that was added, exactly; nothing in it rests on a guess.  The moves that streamed and prepared transactions
make are those of `walreplay.transactions.open_transactions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from walreplay.decode.place import Place
from walreplay.decode.scan import Scanner
from walreplay.decode.sessions.frames import is_short_abort
from walreplay.decode.sessions.leftover import refuse_leftover
from walreplay.decode.sessions.starts import may_begin
from walreplay.decode.summary import Block, Body, FileScan, Part, Summary
from walreplay.decode.unfinished import Unfinished
from walreplay.errors import FramingError, OrderError, WalReplayError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.transactions.decisions import committed_at, decide
from walreplay.transactions.deferral import add_block, add_body
from walreplay.transactions.ending import resume_at, warnings_of
from walreplay.transactions.places import continues, end_place, place_at, position_of
from walreplay.transactions.plan import Plan, Resume
from walreplay.transactions.schedule import Stretch
from walreplay.transactions.state import MISSING, Begun, Following, Seen, StitchState, Walk


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
        self._state = StitchState(resume, wants_origin, allow_gaps)

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
    def relations(self) -> tuple[m.Relation, ...]:
        """The relation versions in force."""
        return self._state.versions.relations

    @property
    def types(self) -> Mapping[int, m.Type]:
        """The types that Type messages have announced, by oid."""
        return self._state.versions.types

    @property
    def edges(self) -> tuple[int, ...]:
        """Where files begin in the unfinished bytes."""
        return self._state.unfinished.edges

    @property
    def origins(self) -> tuple[tuple[str, int], ...]:
        """The files that the unfinished bytes lie in, and where in each."""
        return self._state.unfinished.origins

    @property
    def last_path(self) -> str:
        """The file that was added last, in this run or the one before; none at the start of a stream."""
        state = self._state
        if state.unfinished.pieces:
            return state.unfinished.last_path
        return state.resume.last_path if state.resume is not None else ""

    def add(self, scan: FileScan, *, exact: bool = False) -> Rescan | None:
        """Add the next file; give a `Rescan` instead when its guess does not hold.

        Args:
            scan: the file's summary.
            exact: the scan was made from the place and the tail that this stitch stands at.
        """
        state = self._state
        if exact:
            self._add_exact(scan)
            return None
        again = Rescan(scan.path, state.place, state.tail, self.edges, self.origins, self.last_path)
        if not scan.parts or scan.head is None or state.place is None:
            return again
        (part,) = scan.parts
        if part.summary.framing is not state.place.framing:
            return again
        if state.tail and may_begin(memoryview(scan.head), state.place.framing):
            # A message goes on in the file, or a session begins with it: both readings have to be tested.
            return again
        try:
            seam = self._seam(scan.head, scan.codec)
        except WalReplayError:
            # The file's own scan will tell where and what.
            return again
        place = state.place
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
        if self._state.place is None and scan.framing is not None:
            self._state.place = Place(scan.framing)
        # Without a part the file lies inside one message.
        self._join(scan, scan.parts)

    def _seam(self, head: bytes, codec: str) -> Part | None:
        """Walk the bytes that the boundary between two files cuts; None when it cuts no message."""
        state = self._state
        data = state.tail + head
        if not data:
            return None
        assert state.place is not None
        scanner = Scanner(state.place.framing, place=state.place, codec=codec)
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
        self._state.scanned[scan.path] = (start or 0, stop)
        self._take_tail(scan)
        self._see(scan)
        self._state.codec = scan.codec

    def _take_tail(self, scan: FileScan) -> None:
        """Keep the unfinished bytes, and where they lie."""
        state = self._state
        state.unfinished = state.unfinished.behind(scan)
        state.tail_at = state.unfinished.origins[0]

    def _see(self, scan: FileScan) -> None:
        self._state.seen[scan.path] = Seen(scan.length, scan.fingerprint, scan.size)
        self._state.scanned.setdefault(scan.path, (0, 0))

    def _add_part(self, scan: FileScan, part: Part) -> None:
        state = self._state
        summary = part.summary
        before = state.place or Place(summary.framing)
        if part.new_session:
            before = self._begin_session(scan, part, before)
        self._check_awaited(scan, part)
        walked = Walk(scan, part, before, state.where(scan, part, 0) if part.data is not None else (scan.path, 0))
        following = Following(state, walked)
        cursor, place, view = summary.start, before, following.view()
        for item in summary.items:
            following.up_to(item.offset)
            if isinstance(item, Block):
                add_block(state, item, walked)
            elif isinstance(item, Body):
                add_body(state, item, walked)
            elif (committed := decide(state, item, walked, before)) is not None:
                # What stands behind a commit follows it in the schedule, and knows what it has announced.
                self._stretch(walked, cursor, item.offset, place, view)
                if committed.commit is not None:
                    state.schedule.commit(committed.commit)
                lsn, time = committed_at(item)
                cursor, place, view = item.offset, place_at(before, item, lsn, time), following.view()
        begin = self._note_begin(walked, following)
        following.up_to(None)
        state.partitions.note(summary)
        entry = self._stretch(walked, cursor, summary.stop, place, view)
        if begin is not None:
            begin.entry = entry
        end = end_place(before, summary)
        if end.transaction is None or end.transaction.gid is not None:
            state.begun = None
        elif begin is not None:
            state.begun = begin
        self._count(summary, before)
        state.place = end

    def _stretch(
        self,
        walked: Walk,
        start: int,
        stop: int,
        place: Place,
        view: tuple[tuple[m.Relation, ...], tuple[m.Type, ...]],
    ) -> int:
        """Schedule ordinary transactions, where there are any; give the entry's number."""
        state = self._state
        summary = walked.part.summary
        worth = (
            summary.ordinary
            or place.transaction is not None
            or summary.begin_at is not None
            or summary.head_changes
            or summary.messages.get("Message")
        )
        if start == stop or not worth:
            return state.schedule.mark()
        return state.schedule.stretch(
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
                seam_base=walked.part.base - state.unfinished.size,
            )
        )

    def _note_begin(self, walked: Walk, following: Following) -> Begun | None:
        """Remember where an ordinary transaction begins that the part does not end."""
        summary = walked.part.summary
        if summary.begin_at is None:
            return None
        following.up_to(summary.begin_at)
        path, offset = self._state.where(walked.scan, walked.part, summary.begin_at)
        before = end_place(walked.before, summary)
        return Begun(
            path,
            offset,
            0,
            summary.begin_at,
            replace(before, transaction=None),
            *self._state.versions.snapshot(),
        )

    def _count(self, summary: Summary, place: Place) -> None:
        state = self._state
        state.transactions += summary.ordinary - summary.resent
        state.resent += summary.resent
        for truncate in summary.truncates:
            at = position_of(truncate, place)
            if state.wants_origin(at.origin):
                state.truncates.note(at)

    # Sessions.

    def _begin_session(self, scan: FileScan, part: Part, before: Place) -> Place:
        """End the session before: what it left open comes again from its start, or never."""
        state = self._state
        open_ = before.transaction
        path, offset = state.where(scan, part, part.summary.start)
        if part.torn:
            state.warnings.append(
                f"{path}, offset {offset:,}: a new session begins; the one before it ended inside a message, "
                f"of which {part.torn:,} bytes are there"
            )
        if open_ is not None:
            state.await_transaction(open_.final_lsn)
            if open_.gid is None:
                state.cut_begun()
                state.truncates.forget(open_.final_lsn)
            state.open.body = None
        # Each session announces again what it uses; a prepared transaction alone outlives its own.
        state.partitions.end_session(forget=not state.open.prepared)
        state.open.end_session(before, late=part.late)
        return before.new_session()

    def _check_awaited(self, scan: FileScan, part: Part) -> None:
        """See that the transaction that a session's end cut off comes again."""
        state = self._state
        first = part.summary.first_event
        if state.awaited is None or first is None:
            return
        awaited, state.awaited = state.awaited, None
        if first <= awaited:
            return
        path, offset = state.where(scan, part, part.summary.start)
        state.refuse_gap(
            OrderError(
                f"transaction {format_lsn(awaited)} has begun before, but neither goes on here nor comes again",
                path=path,
                offset=offset,
                remedy=MISSING,
            )
        )

    def gap(self, path: str, problem: str) -> Place:
        """Go on behind a gap: nothing that is open goes on, and nothing of it is awaited.

        Returns:
            the place at which the next file is scanned.
        """
        state = self._state
        assert state.place is not None
        state.warnings.append(f"{path}: {problem}; what was open before is left out (gaps are allowed)")
        if state.place.transaction is not None and state.place.transaction.gid is None:
            state.cut_begun()
            state.truncates.forget(state.place.transaction.final_lsn)
        state.open.lose()
        state.awaited = None
        state.unfinished = Unfinished()
        state.partitions.end_session(forget=False)
        state.place = state.place.new_session()
        return state.place

    # Streamed and prepared transactions.

    # The plan.

    def plan(self) -> Plan:
        """Give what the added files come to.

        Raises:
            CaptureError: they are too few, or what seems to be unfinished at their end is damaged.
        """
        state = self._state
        place = state.place
        if place is None:
            raise FramingError(
                f"the capture's {len(state.tail):,} bytes are too few to tell what they are",
                path=next(iter(state.seen), None),
                offset=0,
                remedy="Run again when the capture has grown; if it will not, it was truncated",
            )
        if state.tail:
            path, offset = state.tail_at
            refuse_leftover(state.tail, place.framing, state.codec, path=path, offset=offset)
        resume = resume_at(state, place)
        if place.transaction is not None and place.transaction.gid is None:
            state.cut_begun()
        files = {
            path: (seen.length, seen.fingerprint, *state.scanned[path])
            for path, seen in state.seen.items()
            if path in state.scanned
        }
        planned, versions, type_versions = state.schedule.plan(files)
        torn = (
            (*state.tail_at, len(state.tail)) if state.tail and not is_short_abort(place.framing, state.tail) else None
        )
        return Plan(
            files=planned,
            versions=versions,
            type_versions=type_versions,
            after_lsn=state.after_lsn,
            upto_lsn=place.high_lsn,
            upto_commit_time=place.high_commit_time,
            truncates=tuple(state.truncates.committed(state.after_lsn, place.high_lsn)),
            resume=resume,
            transactions=state.transactions,
            resent=state.resent,
            announced=tuple(state.versions.announced),
            before=state.resume.relations if state.resume else (),
            types=tuple(self.types.values()),
            decided=tuple(state.decided),
            torn=torn,
            warnings=(*state.warnings, *warnings_of(state, place, resume, torn)),
            partitions=tuple(state.partitions.of_run),
        )


__all__ = ["Rescan", "Stitch"]

"""The state of a stitch (`StitchState`), and the checks that nothing is missing between files and sessions.

The state is everything that is known at the end of the last file that was added.  `OpenTransactions` are the streamed
and prepared ones as of that place of the stream; `walreplay.stream.transitions` changes them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

from walreplay.decode.announcements import Layout, Layouts
from walreplay.decode.summary import Block, Body, FileScan, Part, Unfinished, XidCounts
from walreplay.decode.walk import Place, Transaction
from walreplay.errors import OrderError, UnknownRelation
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.stream.duplicates import DuplicateFiles
from walreplay.stream.in_force import PartitionsInForce, Truncates, Versions
from walreplay.stream.plan import AnnouncedVersion, CutOff, DecidedTransaction, Deferred, Resume
from walreplay.stream.schedule import AddedPart, Schedule
from walreplay.types.text import UTF8

Named: TypeAlias = Block | Body | m.Decision
"""What names a streamed or prepared transaction."""


class OpenTransactions:
    """Transactions whose rows have come, in part or completely, and of which it is not known whether they commit.

    Attributes:
        streams: streamed transactions by xid.
        prepared: prepared transactions by gid and xid; they outlive their session.
        body: the transaction that is being prepared, between its Begin Prepare and its Prepare; None if there is none.
        gone: the session's subtransactions that have rolled back before anything of them was streamed.
    """

    def __init__(self) -> None:
        self.streams: dict[int, Deferred] = {}
        self.prepared: dict[tuple[str, int], Deferred] = {}
        self.body: Deferred | None = None
        self.gone: set[int] = set()

    def resume_from(self, resume: Resume) -> None:
        """Continue with the transactions that the last run has left open, and with its last session."""
        self.gone = set(resume.gone)
        for transaction in resume.deferred:
            # A copy, because the run may be planned again from the same transactions.
            self.put(_copied_deferred(transaction))

    def copied(self) -> OpenTransactions:
        """Return the same, which does not change with these."""
        other = OpenTransactions()
        other.streams = {xid: _copied_deferred(transaction) for xid, transaction in self.streams.items()}
        other.prepared = dict(self.prepared)  # a complete transaction does not change any more
        other.body = None if self.body is None else _copied_deferred(self.body)
        other.gone = set(self.gone)
        return other

    @property
    def deferred(self) -> tuple[Deferred, ...]:
        """All of them, the oldest first."""
        transactions = [*self.prepared.values(), *self.streams.values(), *([self.body] if self.body else [])]
        # A stream in front of the first commit has no time: it is the oldest.
        return tuple(sorted(transactions, key=lambda transaction: (transaction.since or 0, transaction.xid)))

    def take(self, item: Named) -> Deferred | None:
        """Remove the transaction that an item of the stream names, and return it; None if it is not there."""
        if isinstance(item, Body):
            body, self.body = self.body, None
            return body
        if isinstance(item, (m.Prepare, m.CommitPrepared, m.RollbackPrepared)):
            return self.prepared.pop((item.gid, item.xid), None)
        return self.streams.pop(item.xid, None)

    def put(self, transaction: Deferred) -> None:
        """Add a transaction, or put it back, where it belongs by now."""
        if transaction.gid is None:
            self.streams[transaction.xid] = transaction
        elif transaction.complete:
            self.prepared[transaction.gid, transaction.xid] = transaction
        else:
            self.body = transaction

    def contradicts(self, message: m.CommitPrepared | m.RollbackPrepared) -> bool:
        """Return whether a decision's xid was prepared with another gid, or a commit's gid with another xid.

        A rollback's gid may be another transaction's: it may be used again, and the old rollback may be sent again.
        """
        is_commit = isinstance(message, m.CommitPrepared)
        return any(xid == message.xid or (is_commit and gid == message.gid) for gid, xid in self.prepared)

    def end_session(self, place: Place, *, late: bool) -> None:
        """End a session: its streamed transactions are discarded, because they are sent again from their start.

        Args:
            place: where the session ends.
            late: only an LSN shows that the session has ended.  So transactions that began after its last commit may
                belong to the new session, and are kept.
        """
        self.streams = {
            xid: transaction
            for xid, transaction in self.streams.items()
            if late and transaction.after_lsn == place.last_lsn and place.stream != xid
        }
        self.gone.clear()  # the next session sends again from the transactions' start


def _copied_deferred(deferred: Deferred) -> Deferred:
    return replace(deferred, **_copied_collections((name, getattr(deferred, name)) for name in Deferred.__slots__))


_T = TypeVar("_T")


@dataclass(slots=True)
class Begun:
    """Where the open ordinary transaction began, and what was in force there.

    Attributes:
        path, offset: its Begin.
        entry: the schedule's entry that has its bytes, from the offset ``entry_offset`` on.
        moved: so much was announced of partitions by then.
    """

    path: str
    offset: int
    entry: int
    entry_offset: int
    place: Place
    relations: dict[int, AnnouncedVersion]
    types: dict[int, m.Type]
    layouts: tuple[Layout, ...] = ()
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A file when it was scanned: length and fingerprint as stored, and size in bytes when decompressed."""

    length: int
    fingerprint: int
    size: int


@dataclass(slots=True)
class StitchState:
    """Everything that the stitch knows; nothing in it rests on a guess.

    Attributes:
        resume: where the last run ended; None at the start of a stream.
        wants_origin: says whether transactions of an origin (None: of the source itself) are applied.
        allow_gaps: leave out incomplete transactions with a warning, instead of refusing them.
        place: the place at the end of the last file; None until the framing is known.
        after_lsn: transactions up to this commit LSN have been applied by earlier runs.
        tail_at: file and offset at which ``unfinished`` begins.
        unfinished: the message that continues in the next file, as far as it was read.
        codec: the encoding of names.
        begun: where the open ordinary transaction began; a run reads it from there on again.
        cut: what the sessions before have brought of transactions that were cut off, by xid.
        duplicate_files: the files that were added.
        awaited: the commit LSN of a transaction that a session's end has cut off, and that has to be sent again; of
            several, the lowest.
        transactions: how many transactions have committed, without copies.
        resent: how many copies of known transactions there were.
        seen: the files that were scanned, by path.
        scanned: from which to which offset each file was read, by path.
        ended: the files continue with a transaction that is too late for the run.
        decided: the streamed and prepared transactions that have committed.
        parts: of the file that was added last, as they were joined.
        gap_errors: what proved that something is missing, where gaps are allowed.
        gap: the last gap that was gone over, and where it is; empty for none.
        layouts: what is announced of tables outside of streamed transactions.
    """

    resume: Resume | None
    wants_origin: Callable[[str | None], bool]
    allow_gaps: bool
    place: Place | None = None
    after_lsn: int = -1
    tail_at: tuple[str, int] = ("", 0)
    unfinished: Unfinished = field(default_factory=Unfinished)
    codec: str = UTF8
    begun: Begun | None = None
    cut: dict[int, CutOff] = field(default_factory=dict)
    duplicate_files: DuplicateFiles = field(default_factory=DuplicateFiles)
    awaited: int | None = None
    ended: bool = False
    transactions: int = 0
    resent: int = 0
    versions: Versions = field(default_factory=Versions)
    partitions: PartitionsInForce = field(default_factory=PartitionsInForce)
    truncates: Truncates = field(default_factory=Truncates)
    open: OpenTransactions = field(default_factory=OpenTransactions)
    schedule: Schedule = field(default_factory=Schedule)
    seen: dict[str, Seen] = field(default_factory=dict)
    scanned: dict[str, tuple[int, int]] = field(default_factory=dict)
    decided: list[DecidedTransaction] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    parts: tuple[Part, ...] = ()
    gap_errors: list[OrderError] = field(default_factory=list)
    layouts: Layouts = field(default_factory=Layouts)
    gap: str = ""

    def __post_init__(self) -> None:
        resume = self.resume
        if resume is None:
            return
        self.place, self.after_lsn = resume.place, resume.place.high_lsn
        self.cut = {cut_off.xid: cut_off for cut_off in resume.cut}
        self.tail_at, self.awaited = (resume.path, resume.offset), resume.awaited
        self.seen[resume.path] = Seen(resume.length, resume.fingerprint, -1)  # -1: known after its next scan
        self.partitions.resume_from(resume)
        self.versions.resume_from(resume)
        if self.layouts.prefix is not None:
            self.layouts = Layouts(self.layouts.prefix, resume.layouts, resume.relations)
        self.open.resume_from(resume)

    @property
    def tail(self) -> bytes:
        """The unfinished bytes at the end of the last file."""
        return self.unfinished.data

    def warn_of_gap(self, gap: str) -> None:
        """Go on over a gap, with a warning."""
        self.warnings.append(f"{gap} (gaps are allowed)")
        self.gap = f"{gap}, near LSN {format_lsn(max(0, -1 if self.place is None else self.place.high_lsn))}"

    def refuse(self, error: OrderError) -> None:
        """Raise an error, or add a warning if gaps are allowed."""
        if not self.allow_gaps:
            raise error
        self.gap_errors.append(error)
        self.warn_of_gap(f"{error.path}, offset {error.offset:,}: {error.problem}; it is left out")

    def copied(self) -> StitchState:
        """Return the same state, which does not change with this one: a file that cannot be added leaves it halfway."""
        other = copy.copy(self)
        for name in ("versions", "partitions", "truncates", "schedule", "layouts", "duplicate_files"):
            setattr(other, name, _copied(getattr(self, name)))
        for name in ("seen", "scanned", "decided", "warnings", "gap_errors"):
            setattr(other, name, getattr(self, name).copy())
        other.open = self.open.copied()
        return other

    def note_cut(self, open_: Transaction | None, streams: Mapping[int, Deferred], place: Place) -> None:
        """Note how much has come of the transactions that a session's end cuts off."""
        # A session that ends before it has caught up with an earlier one says nothing of what that one has brought.
        cut_offs = {xid: earlier for xid, earlier in self.cut.items() if place.last_lsn <= earlier.high_lsn}
        cut_offs |= {xid: CutOff(xid, None, transaction.rows, place.high_lsn) for xid, transaction in streams.items()}
        if open_ is not None:
            cut_offs[open_.xid] = CutOff(open_.xid, open_.final_lsn, XidCounts(open_.ordinal), place.high_lsn)
        for xid, cut_off in cut_offs.items():
            earlier = self.cut.get(xid)
            # The session may have ended before it had sent again all rows of the one before.
            if earlier is not None and earlier.lsn == cut_off.lsn and earlier.has_more_than(cut_off.rows):
                cut_offs[xid] = earlier
        self.cut = cut_offs

    def used_version(self, oid: int, row_offset: int, added: AddedPart) -> AnnouncedVersion:
        """Return the version of a relation that a row at an offset uses, outside of streamed transactions.

        Raises:
            UnknownRelation: no Relation message has announced it.
        """
        version = self.versions.version_of(oid)
        if version is None:
            path, offset = added.where(row_offset)
            raise UnknownRelation(
                f"a row change names relation {oid}, but no Relation message announced it",
                path=path,
                offset=offset,
                remedy="A capture has to begin where its session began; a file before this one is missing",
            )
        return version

    def announce(self, relation: m.Relation) -> None:
        """Put a relation version in force from here on, outside of streamed transactions."""
        self.versions.announce(self.layouts.annotated(relation))
        self.partitions.forget(relation.oid)

    def relabel(self, oids: Iterable[int] | None = None) -> None:
        """Put some relations (None: all) in force with the labels that enums have from here on."""
        for relation in self.versions.relations if oids is None else self.versions.view_of(oids):
            labelled = self.layouts.labelled(relation)
            if labelled is not relation:
                self.versions.announce(labelled)

    def cut_begun(self) -> None:
        """Remove the open ordinary transaction from the schedule."""
        if self.begun is not None:
            self.schedule.cut(self.begun.entry, self.begun.entry_offset)
        self.begun = None

    def end_file(self, scan: FileScan, start: int, stop: int) -> None:
        """Update the state at the end of a file, after its parts were added."""
        self.scanned[scan.path] = (start, stop)
        self.ended = scan.ended
        # The unfinished bytes may begin in an earlier file.
        self.unfinished = self.unfinished.behind(scan)
        self.tail_at = self.unfinished.origins[0]
        self.seen[scan.path] = Seen(scan.length, scan.fingerprint, scan.size)
        self.codec = scan.codec


def _copied(part: _T) -> _T:
    """Copy a part of the state with its lists and dicts; what is in these does not change."""
    other = copy.copy(part)
    vars(other).update(_copied_collections(vars(part).items()))
    return other


def _copied_collections(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.copy() for name, value in fields if isinstance(value, (list, dict, set))}


MISSING: Final = "A file before this one is missing; bring it back, or leave its transactions out by --allow-gaps"
COPY: Final = "A file in front of this one is missing, or is there twice; bring it back, or remove the copy"
FEWER_ROWS: Final = "transaction {xid} ends here, but has fewer rows than a session before has brought of it"


def check_awaited(state: StitchState, added: AddedPart) -> None:
    """Check that a transaction that a session's end has cut off is sent again.

    Raises:
        OrderError: it is not, and gaps are not allowed.
    """
    summary = added.part.summary
    first = summary.first_event
    if state.awaited is None or first is None:
        return
    awaited, state.awaited = state.awaited, None
    if first <= awaited:  # the awaited one comes, or one before it, from which the server starts over
        return
    problem = f"transaction {format_lsn(awaited)} has begun before, but neither goes on here nor comes again"
    state.refuse(added.error(summary.start, problem, MISSING))


def check_rows(state: StitchState, parts: tuple[Part, ...], path: str) -> None:
    """Check that an ordinary transaction, which ends in a file, has the rows that a session before has brought of it.

    Raises:
        OrderError: it has not.
    """
    place, head_rows = state.place, 0
    open_ = None if place is None else place.transaction
    for part in parts:
        if part.new_session or open_ is None:
            return
        summary = part.summary
        if summary.head_commit is not None:
            rows = XidCounts(open_.ordinal + head_rows + summary.head_changes)
            if lacks_rows(state, open_.xid, open_.final_lsn, rows):
                error = OrderError(FEWER_ROWS.format(xid=open_.xid), path=path, offset=0, remedy=COPY)
                if not state.allow_gaps:
                    raise error
                state.warn_of_gap(f"{path}: {error.problem}; it is applied as it is")
            return
        if summary.exact and summary.place is not None:
            open_, head_rows = summary.place.transaction, 0  # an exact part counts from the Begin by itself
        else:
            head_rows += summary.head_changes


def lacks_rows(state: StitchState, xid: int, lsn: int | None, rows: XidCounts, aborted: Collection[int] = ()) -> bool:
    """Return whether a transaction that is whole has fewer rows than a session before has brought of it."""
    cut = state.cut.get(xid)
    return cut is not None and cut.lsn == lsn and cut.has_more_than(rows, aborted)

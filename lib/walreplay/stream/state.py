"""The state of a stitch (`StitchState`): everything that is known at the end of the last file that was added.

Its parts, as of that place of the stream: `OpenTransactions`, streamed and prepared; `PartitionsInForce`, which
relations are partitions of others by the summaries of the stream's parts; `Truncates`, the last committed one of each
relation; `Versions`, the relation versions and types in force.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from walreplay.decode.announcements import Layout, Layouts
from walreplay.decode.partitions import Partition
from walreplay.decode.summary import FileScan, Part, Summary, TruncateAt, Unfinished, XidCounts
from walreplay.decode.walk import Place, Transaction
from walreplay.errors import OrderError, UnknownRelation
from walreplay.protocol import messages as m
from walreplay.stream.deferred import AnnouncedVersion, CutOff, Deferred
from walreplay.stream.duplicates import Twins
from walreplay.stream.plan import DecidedTransaction, Resume, TruncatePosition
from walreplay.stream.schedule import Schedule, Walk
from walreplay.types.text import UTF8


class OpenTransactions:
    """Transactions whose rows have come, in part or completely, and of which it is not known whether they commit.

    ====================  ======================  =======================================================
    a transaction is      by the message          then it is
    ====================  ======================  =======================================================
    not known             Stream Start            in `streams`
    not known             Begin Prepare           the `body`
    not known             Prepare                 in `prepared`: it is empty
    in `streams`          Stream Abort            not known; of a subtransaction: there, without its rows
    in `streams`          Stream Commit           committed
    in `streams`          Stream Prepare          in `prepared`
    the `body`            Prepare                 in `prepared`
    in `prepared`         Commit Prepared         committed
    in either             Rollback Prepared       not known
    `streams`, the body   the session's end       not known: it comes again from its start
    ====================  ======================  =======================================================

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

    def take_up(self, deferred: Iterable[Deferred]) -> None:
        """Continue with the transactions that the last run has left open."""
        for item in deferred:
            # A copy, because the run may be planned again from the same transactions.
            copied = _copied_item(item)
            if copied.gid is None:
                self.streams[copied.xid] = copied
            elif copied.complete:
                self.prepared[copied.gid, copied.xid] = copied
            else:
                self.body = copied

    def copied(self) -> OpenTransactions:
        """Return the same, which does not change with these."""
        other = OpenTransactions()
        other.streams = {xid: _copied_item(item) for xid, item in self.streams.items()}
        other.prepared = dict(self.prepared)
        other.body = None if self.body is None else _copied_item(self.body)
        other.gone = set(self.gone)
        return other

    @property
    def deferred(self) -> tuple[Deferred, ...]:
        """All of them, the oldest first."""
        found = [*self.prepared.values(), *self.streams.values(), *([self.body] if self.body else [])]
        return tuple(sorted(found, key=lambda item: (item.since or 0, item.xid)))

    def begin_body(self, item: Deferred) -> None:
        """Begin a transaction that is being prepared; what was streamed of it before is discarded."""
        self.streams.pop(item.xid, None)
        self.body = item

    def prepare_body(self, item: Deferred, gid: str) -> None:
        """Turn the body into a prepared transaction."""
        item.complete = True
        self.prepared[gid, item.xid] = item
        self.body = None

    def prepare_stream(self, item: Deferred, message: m.StreamPrepare) -> None:
        """Add a prepared transaction that was streamed; the caller has removed it from the streams."""
        item.gid, item.complete = message.gid, True
        item.lsn, item.since = message.prepare_lsn, message.prepare_time
        self.prepared[message.gid, message.xid] = item

    def abort(self, xid: int, subxid: int) -> None:
        """Remove a streamed transaction, or the rows of a subtransaction."""
        if xid == subxid:
            self.streams.pop(xid, None)
        elif xid in self.streams:
            self.streams[xid].aborted.add(subxid)
        else:
            self.gone.add(subxid)

    def is_partly_gone(self, item: Deferred) -> bool:
        """Return whether a transaction has rows of a subtransaction that has rolled back as part of another one."""
        return any(segment.rows.among(self.gone) for segment in item.segments)

    def roll_back(self, gid: str, xid: int) -> bool:
        """Remove a transaction by a Rollback Prepared, even if it is still streamed; return whether it was prepared."""
        self.streams.pop(xid, None)
        return self.prepared.pop((gid, xid), None) is not None

    def contradicts(self, message: m.CommitPrepared | m.RollbackPrepared) -> bool:
        """Return whether a decision's xid was prepared with another gid, or a commit's gid with another xid.

        A rollback's gid may be another transaction's: it may be used again, and the old rollback may be sent again.
        """
        is_commit = isinstance(message, m.CommitPrepared)
        return any(xid == message.xid or (is_commit and gid == message.gid) for gid, xid in self.prepared)

    def end_session(self, before: Place, *, late: bool) -> None:
        """End a session: its streamed transactions are discarded, because they are sent again from their start.

        Args:
            before: the place where the session ends.
            late: only an LSN shows that the session has ended.  So transactions that began after its last commit may
                belong to the new session, and are kept.
        """
        self.streams = {
            xid: item
            for xid, item in self.streams.items()
            if late and item.after_lsn == before.last_lsn and before.stream != xid
        }
        self.gone.clear()

    def lose(self) -> None:
        """Discard transactions that cannot continue, because bytes are missing."""
        self.streams, self.body = {}, None


def _copied_item(item: Deferred) -> Deferred:
    return replace(
        item,
        segments=list(item.segments),
        view=dict(item.view),
        former=list(item.former),
        types=dict(item.types),
        aborted=set(item.aborted),
        layouts=list(item.layouts),
    )


class PartitionsInForce:
    """The partitions that are in force at a place of the stream, and all that a run has seen.

    A root and its partition are announced directly one after the other (`walreplay.decode.partitions`), but a file's
    end may lie between them.

    Attributes:
        of_run: all partitions that this run knows, in stream order.
        trailing: the oid of a relation that was announced last, with nothing after it; it may be a root.
        seeming: relations that are partitions unless the bytes that follow have rows of them.
    """

    def __init__(self) -> None:
        self.of_run: dict[Partition, None] = {}
        self.trailing: int | None = None
        self.seeming: tuple[Partition, ...] = ()
        self._in_force: dict[int, Partition] = {}

    def take_up(self, resume: Resume) -> None:
        """Continue where the last run ended."""
        self.trailing, self.seeming = resume.trailing, resume.seeming
        for partition in resume.partitions:
            self._add(partition)

    @property
    def in_force(self) -> tuple[Partition, ...]:
        """The partitions in force."""
        return tuple(self._in_force.values())

    def forget(self, oid: int) -> None:
        """Forget that a relation is a partition, because it is announced; a partition is recognised each time."""
        self._in_force.pop(oid, None)

    def note(self, summary: Summary) -> None:
        """Add what a part of the stream says."""
        if summary.messages.keys() <= {"Type"}:
            return
        found = list(summary.partitions)
        leading = summary.leading
        if leading is not None and self.trailing is not None and self.trailing != leading.oid:
            found.insert(0, Partition(self.trailing, leading))
        if summary.messages.keys() <= {"Type", "Relation"}:
            # The part has no rows, so it is not known yet whether these are used.
            self.seeming = (*self.seeming, *found, *summary.trailing_partitions)
        else:
            used = {oid for oid, _ in summary.used}
            for partition in (*(one for one in self.seeming if one.relation.oid not in used), *found):
                self._add(partition)
            for oid in summary.alone:
                self._in_force.pop(oid, None)
            self.seeming = summary.trailing_partitions
        self.trailing = summary.trailing

    def end_session(self, *, forget: bool) -> None:
        """End a session: relations announced on both sides of its end are not root and partition.

        Args:
            forget: forget all partitions in force, because the next session announces all that it uses again.
        """
        self.trailing, self.seeming = None, ()
        if forget:
            self._in_force.clear()

    def _add(self, partition: Partition) -> None:
        self._in_force[partition.relation.oid] = partition
        self.of_run[partition] = None


class Truncates:
    """The last truncate of each relation in its last two transactions that truncate it.

    Two are needed because the last transaction may be open where the captures end.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[TruncateAt, ...]] = {}

    def note(self, at: TruncateAt) -> None:
        """Add a truncate."""
        last: dict[int, TruncateAt] = {}
        for known in (*self._last.get(at.oid, ()), at):
            lsn = -1 if known.lsn is None else known.lsn
            if lsn not in last or last[lsn].ordinal < known.ordinal:
                last[lsn] = known
        self._last[at.oid] = tuple(last[lsn] for lsn in sorted(last)[-2:])

    def take(self, summary: Summary, before: Place, wants_origin: Callable[[str | None], bool]) -> None:
        """Add the truncates of a part's ordinary transactions.

        Args:
            before: the place at the part's start.
            wants_origin: says whether transactions of an origin count.
        """
        for truncate in summary.truncates:
            at = _position_of(truncate, before)
            if wants_origin(at.origin):
                self.note(at)

    def forget(self, lsn: int) -> None:
        """Remove the truncates of a transaction that has not ended and will be read again from its start."""
        for oid, known in self._last.items():
            self._last[oid] = tuple(at for at in known if at.lsn != lsn)

    def committed(self, after_lsn: int, upto_lsn: int) -> Iterator[TruncatePosition]:
        """Yield each relation's last truncate in transactions above one commit LSN and up to another."""
        for known in self._last.values():
            at = max(
                (at for at in known if at.lsn is not None and after_lsn < at.lsn <= upto_lsn),
                key=lambda at: (at.lsn, at.ordinal),
                default=None,
            )
            if at is not None and at.lsn is not None:
                yield TruncatePosition(at.oid, at.lsn, at.ordinal)


def _position_of(truncate: TruncateAt, place: Place) -> TruncateAt:
    """Return a truncate with its LSN and its ordinal in the transaction, even if that began before the stretch."""
    open_ = place.transaction
    if truncate.lsn is not None or open_ is None:
        return truncate
    return TruncateAt(truncate.oid, open_.final_lsn, open_.ordinal + truncate.ordinal, open_.origin)


class Versions:
    """The relation versions and types in force outside of streamed transactions, and all versions that a run has seen.

    Versions are numbered in stream order.  A streamed transaction's versions come into force when it commits, but not
    if a version with a higher number is in force then.

    Attributes:
        types: by oid.
        announced: all relation versions that this run has seen, in order.
    """

    def __init__(self) -> None:
        self.types: dict[int, m.Type] = {}
        self.announced: dict[m.Relation, None] = {}
        self._in_force: dict[int, AnnouncedVersion] = {}
        self._number = 0

    def take_up(self, resume: Resume) -> None:
        """Continue where the last run ended."""
        self.types = {type_.oid: type_ for type_ in resume.types}
        numbers = resume.numbers or tuple(range(len(resume.relations)))
        for relation, number in zip(resume.relations, numbers, strict=True):
            self._in_force[relation.oid] = AnnouncedVersion(relation, number)
        inner = (known.number for item in resume.deferred for known in item.view.values())
        self._number = max([0, *numbers, *inner]) + 1

    @property
    def relations(self) -> tuple[m.Relation, ...]:
        """The relation versions in force."""
        return tuple(known.relation for known in self._in_force.values())

    def snapshot(self) -> tuple[dict[int, AnnouncedVersion], dict[int, m.Type]]:
        """Copy what is in force now: relation versions and types, each by oid."""
        return dict(self._in_force), dict(self.types)

    def known(self, oid: int) -> AnnouncedVersion | None:
        """Return the version of a relation that is in force; None if nothing has announced it."""
        return self._in_force.get(oid)

    def view_of(self, oids: Iterable[int]) -> tuple[m.Relation, ...]:
        """Return the versions in force of some relations; relations that nothing has announced are left out."""
        return tuple(self._in_force[oid].relation for oid in oids if oid in self._in_force)

    def next_number(self) -> int:
        """Take the number for the next version."""
        self._number += 1
        return self._number

    def announce(self, relation: m.Relation) -> None:
        """Put a relation version in force from here on."""
        self._in_force[relation.oid] = AnnouncedVersion(relation, self.next_number())
        self.announced[relation] = None

    def take_over(self, decided: Deferred, *, holds_outside: bool) -> None:
        """Take over the versions and types that a committing transaction has announced.

        Args:
            holds_outside: the transaction was streamed, so its versions come into force outside of it now.
        """
        self.announced.update(dict.fromkeys(decided.former))
        for known in decided.view.values():
            now = self._in_force.get(known.relation.oid)
            if holds_outside and (now is None or now.number < known.number):
                self._in_force[known.relation.oid] = known
            self.announced[known.relation] = None
        self.types.update(decided.types)


_T = TypeVar("_T")


@dataclass(slots=True)
class Begun:
    """Where the open ordinary transaction began, and what was in force there.

    Attributes:
        path, offset: its Begin.
        entry: the schedule's entry that has its bytes, from the offset ``at`` on.
        moved: so much was announced of partitions by then.
    """

    path: str
    offset: int
    entry: int
    at: int
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
        begun: where the open ordinary transaction began, if that was in this run.
        cut: what the sessions before have brought of transactions that were cut off, by xid.
        twins: the files that were added.
        awaited: the commit LSN of a transaction that a session's end has cut off, and that has to be sent again.
        transactions: how many transactions have committed, without copies.
        resent: how many copies of known transactions there were.
        seen: the files that were scanned, by path.
        scanned: from which to which offset each file was read, by path.
        ended: the files continue with a transaction that is too late for the run.
        decided: the streamed and prepared transactions that have committed.
        parts: of the file that was added last, as they were joined.
        left_out: what proved that something is missing, where gaps are allowed.
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
    twins: Twins = field(default_factory=Twins)
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
    left_out: list[OrderError] = field(default_factory=list)
    layouts: Layouts = field(default_factory=Layouts)

    def __post_init__(self) -> None:
        resume = self.resume
        if resume is None:
            return
        self.place, self.after_lsn = resume.place, resume.place.high_lsn
        self.cut = {one.xid: one for one in resume.cut}
        self.tail_at, self.awaited = (resume.path, resume.offset), resume.awaited
        self.seen[resume.path] = Seen(resume.length, resume.fingerprint, -1)
        self.partitions.take_up(resume)
        self.versions.take_up(resume)
        if self.layouts.prefix is not None:
            self.layouts = Layouts(self.layouts.prefix, resume.layouts, resume.relations)
        self.open.take_up(resume.deferred)

    @property
    def tail(self) -> bytes:
        """The unfinished bytes at the end of the last file."""
        return self.unfinished.data

    def copied(self) -> StitchState:
        """Return the same state, which does not change with this one: a file that cannot be added leaves it halfway."""
        other = copy.copy(self)
        for name in ("versions", "partitions", "truncates", "schedule", "layouts", "twins"):
            setattr(other, name, _copied(getattr(self, name)))
        for name in ("seen", "scanned", "decided", "warnings", "left_out"):
            setattr(other, name, getattr(self, name).copy())
        other.open = self.open.copied()
        return other

    def note_cut(self, open_: Transaction | None, streams: Mapping[int, Deferred]) -> None:
        """Note how much has come of the transactions that a session's end cuts off."""
        cut = {xid: CutOff(xid, None, item.rows) for xid, item in streams.items()}
        if open_ is not None:
            cut[open_.xid] = CutOff(open_.xid, open_.final_lsn, XidCounts(open_.ordinal))
        for xid, one in cut.items():
            before = self.cut.get(xid)
            if before is not None and before.lsn == one.lsn and before.has_more_than(one.rows):
                cut[xid] = before
        self.cut = cut

    def await_transaction(self, lsn: int) -> None:
        """Note that a transaction has to be sent again; of several, the lowest commit LSN is awaited."""
        self.awaited = lsn if self.awaited is None else min(self.awaited, lsn)

    def known(self, oid: int, at: int, walked: Walk) -> AnnouncedVersion:
        """Return the version of a relation that is in force outside of streamed transactions.

        Args:
            oid: the relation's.
            at: the offset, in the part, of the row that uses it, for the error.

        Raises:
            UnknownRelation: no Relation message has announced it.
        """
        known = self.versions.known(oid)
        if known is None:
            path, offset = walked.where(at)
            raise UnknownRelation(
                f"a row change names relation {oid}, but no Relation message announced it",
                path=path,
                offset=offset,
                remedy="A capture has to begin where its session began; a file before this one is missing",
            )
        return known

    def announce(self, relation: m.Relation) -> None:
        """Put a relation version in force from here on, outside of streamed transactions."""
        self.versions.announce(self.layouts.told(relation))
        self.partitions.forget(relation.oid)

    def tell_anew(self, oids: Iterable[int] | None = None) -> None:
        """Put relations in force with the labels that enums have from here on.

        Args:
            oids: of which relations; None for all.
        """
        for relation in self.versions.relations if oids is None else self.versions.view_of(oids):
            labelled = self.layouts.labelled(relation)
            if labelled is not relation:
                self.versions.announce(labelled)

    def cut_begun(self) -> None:
        """Remove the open ordinary transaction from the schedule."""
        begun = self.begun
        if begun is not None:
            self.schedule.cut(begun.entry, begun.at)
        self.begun = None

    def end_file(self, scan: FileScan, start: int, stop: int) -> None:
        """Update the state at the end of a file, after its parts were added.

        Args:
            start, stop: the range of its own bytes that was read.
        """
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
    for name, value in vars(part).items():
        if isinstance(value, (list, dict, set)):
            setattr(other, name, value.copy())
    return other

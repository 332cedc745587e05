"""The state of a stitch: everything that is known at the end of the last file that was added."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from walreplay.decode.announcements import Layout, Layouts
from walreplay.decode.place import Place, Transaction
from walreplay.decode.summary import FileScan, Part, XidCounts
from walreplay.decode.unfinished import Unfinished
from walreplay.errors import OrderError, UnknownRelation
from walreplay.protocol import messages as m
from walreplay.transactions.deferred import Announced, Cut, Deferred
from walreplay.transactions.open_transactions import OpenTransactions
from walreplay.transactions.partitions import PartitionsInForce
from walreplay.transactions.plan import DecidedTransaction, Resume
from walreplay.transactions.schedule import Schedule
from walreplay.transactions.truncates import Truncates
from walreplay.transactions.twins import Twins
from walreplay.transactions.versions import Versions
from walreplay.transactions.walked import Walk
from walreplay.types.text import UTF8

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
    relations: dict[int, Announced]
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
    cut: dict[int, Cut] = field(default_factory=dict)
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
        """Give the same state, which does not change with this one: a file that cannot be added leaves it halfway."""
        other = copy.copy(self)
        for name in ("versions", "partitions", "truncates", "schedule", "layouts", "twins"):
            setattr(other, name, _copied(getattr(self, name)))
        for name in ("seen", "scanned", "decided", "warnings", "left_out"):
            setattr(other, name, getattr(self, name).copy())
        other.open = self.open.copied()
        return other

    def note_cut(self, open_: Transaction | None, streams: Mapping[int, Deferred]) -> None:
        """Note how much has come of the transactions that a session's end cuts off."""
        cut = {xid: Cut(xid, None, item.rows) for xid, item in streams.items()}
        if open_ is not None:
            cut[open_.xid] = Cut(open_.xid, open_.final_lsn, XidCounts(open_.ordinal))
        for xid, one in cut.items():
            before = self.cut.get(xid)
            if before is not None and before.lsn == one.lsn and before.has_more_than(one.rows):
                cut[xid] = before
        self.cut = cut

    def await_transaction(self, lsn: int) -> None:
        """Note that a transaction has to be sent again; of several, the lowest commit LSN is awaited."""
        self.awaited = lsn if self.awaited is None else min(self.awaited, lsn)

    def known(self, oid: int, at: int, walked: Walk) -> Announced:
        """Give the version of a relation that is in force outside of streamed transactions.

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

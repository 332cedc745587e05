"""What is known at the end of the last file that was added: the record that the stitch's moves change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from walreplay.decode.place import Place
from walreplay.decode.summary import FileScan, Part
from walreplay.decode.unfinished import Unfinished
from walreplay.errors import OrderError, UnknownRelation
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.transactions.deferred import Announced
from walreplay.transactions.open_transactions import OpenTransactions
from walreplay.transactions.partitions import PartitionsInForce
from walreplay.transactions.plan import DecidedTransaction, Resume
from walreplay.transactions.schedule import Schedule
from walreplay.transactions.truncates import Truncates
from walreplay.transactions.versions import Versions
from walreplay.types.text import UTF8

MISSING: Final = "A file before this one is missing; bring it back, or leave its transactions out by --allow-gaps"


@dataclass(slots=True)
class Begun:
    """Where the open ordinary transaction began, and what was in force there."""

    path: str
    offset: int
    entry: int
    at: int
    place: Place
    relations: dict[int, Announced]
    types: dict[int, m.Type]


@dataclass(frozen=True, slots=True)
class Seen:
    """A file, as it was when it was scanned: its length and fingerprint as stored, and its bytes."""

    length: int
    fingerprint: int
    size: int


@dataclass(frozen=True, slots=True)
class Walk:
    """The part that is being added, and where its own bytes begin, if they begin in front of the file."""

    scan: FileScan
    part: Part
    before: Place
    origin: tuple[str, int]

    @property
    def framing(self) -> Framing:
        """The framing of the stream."""
        return self.part.summary.framing


@dataclass(slots=True)
class StitchState:
    """Everything that the stitch knows; nothing in it rests on a guess.

    Attributes:
        resume: where the last run ended; None at the start of a stream.
        wants_origin: says whether transactions of an origin (None: of the source itself) are to be applied.
        allow_gaps: leave out what is not whole, with a warning, instead of refusing it.
        place: at the end of the last file; None until the framing is known.
        after_lsn: transactions up to this commit LSN are applied already.
        unfinished: the message that goes on in the next file, as far as it is there; it begins at ``tail_at``.
        begun: where the open ordinary transaction began, if it did in this run.
        awaited: the commit LSN of a transaction that a session's end has cut off, and that has to come again.
        seen, scanned: the files by path; of those that were scanned, from where to where they were read.
        decided: the streamed and prepared transactions that have committed.
        transactions, resent: how many have ended, and how many of them had come before.
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
    awaited: int | None = None
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

    def __post_init__(self) -> None:
        resume = self.resume
        if resume is None:
            return
        self.place, self.after_lsn = resume.place, resume.place.high_lsn
        self.tail_at, self.awaited = (resume.path, resume.offset), resume.awaited
        self.seen[resume.path] = Seen(resume.length, resume.fingerprint, -1)
        self.partitions.take_up(resume)
        self.versions.take_up(resume)
        self.open.take_up(resume.deferred)

    @property
    def tail(self) -> bytes:
        """The unfinished bytes at the last file's end."""
        return self.unfinished.data

    def await_transaction(self, lsn: int) -> None:
        """Note that a transaction has to come again from its start; the first of those that have is looked for."""
        self.awaited = lsn if self.awaited is None else min(self.awaited, lsn)

    def where(self, scan: FileScan, part: Part, offset: int) -> tuple[str, int]:
        """Give the file that a place of a part lies in, and its offset there."""
        if part.data is None:
            return scan.path, offset
        offset += part.base
        return self.unfinished.where(offset) or (scan.path, offset - self.unfinished.size)

    def known(self, oid: int, at: int, walked: Walk) -> Announced:
        """Give the version of a relation that is in force.

        Raises:
            UnknownRelation: there is none.
        """
        known = self.versions.known(oid)
        if known is None:
            path, offset = self.where(walked.scan, walked.part, at)
            raise UnknownRelation(
                f"a row change names relation {oid}, but no Relation message announced it",
                path=path,
                offset=offset,
                remedy="A capture has to begin where its session began; a file before this one is missing",
            )
        return known

    def announce(self, relation: m.Relation) -> None:
        """Let a relation version hold from here on, outside of streamed blocks."""
        self.versions.announce(relation)
        self.partitions.forget(relation.oid)

    def refuse_gap(self, error: OrderError) -> None:
        """Refuse what proves that something is missing, unless that is allowed."""
        if not self.allow_gaps:
            raise error
        place = f"{error.path}, offset {error.offset:,}: " if error.offset is not None else f"{error.path}: "
        self.warnings.append(f"{place}{error.problem}; it is left out (gaps are allowed)")

    def cut_begun(self) -> None:
        """Take the open ordinary transaction out of the schedule."""
        begun = self.begun
        if begun is not None:
            self.schedule.cut(begun.entry, begun.at)
        self.begun = None


class Following:
    """What a part announces and uses outside of streamed blocks, taken up as it comes."""

    def __init__(self, state: StitchState, walked: Walk) -> None:
        summary = walked.part.summary
        self._state = state
        self._walked = walked
        self._relations = deque(summary.relations)
        self._types = deque(summary.types)
        self._used = deque(sorted(summary.used, key=lambda use: use[1]))
        self._oids = [*dict(summary.used), *dict.fromkeys(relation.oid for _, relation in summary.relations)]

    def view(self) -> tuple[tuple[m.Relation, ...], tuple[m.Type, ...]]:
        """Give the versions in force of the relations that the part names, and the types."""
        return self._state.versions.view_of(self._oids), tuple(self._state.versions.types.values())

    def up_to(self, offset: int | None) -> None:
        """Take up what stands in front of an offset; all, if None."""

        def is_next(waiting: deque[tuple[int, Any]]) -> bool:
            return bool(waiting) and (offset is None or waiting[0][0] < offset)

        while is_next(self._relations):
            at, relation = self._relations.popleft()
            self._check(at)
            self._state.announce(relation)
        while is_next(self._types):
            _, type_ = self._types.popleft()
            self._state.versions.types[type_.oid] = type_
        self._check(offset)

    def _check(self, offset: int | None) -> None:
        while self._used and (offset is None or self._used[0][1] < offset):
            oid, at = self._used.popleft()
            self._state.known(oid, at, self._walked)

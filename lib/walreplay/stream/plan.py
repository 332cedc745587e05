"""The plan of a run: small, and written down before anything is applied; and what it leaves open.

Streamed and prepared transactions, whose rows come before it is known whether they commit, are kept as references to
their bytes (`Segment`), across files and runs; never as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from walreplay.decode.announcements import Layout
from walreplay.decode.decoder import SegmentCommit
from walreplay.decode.partitions import Partition
from walreplay.decode.proof import Proof
from walreplay.decode.summary import XidCounts
from walreplay.decode.walk import Place
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

Kind: TypeAlias = Literal["ordinary", "streamed", "prepared"]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that began in the captures and has not ended there yet, as reports show it.

    Attributes:
        lsn: the commit LSN of an ordinary transaction, the prepare LSN of a prepared one; None for a streamed one.
        since: its commit or prepare time; for a streamed one the last commit time before it.  Microseconds since
            2000-01-01.
        path: the file in which it began, at ``offset``.
        bytes: how many bytes of it were read, in so many ``segments``.
    """

    kind: Kind
    xid: int
    gid: str | None
    lsn: int | None
    since: int | None
    path: str
    offset: int
    bytes: int
    segments: int


@dataclass(frozen=True, slots=True)
class Seam:
    """Bytes that begin in front of the file that they end in.

    Attributes:
        path, offset: where they begin.
        base: where they would begin in the file itself: in front of it below zero; None where that is not told.
    """

    data: bytes
    path: str
    offset: int
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a streamed or prepared transaction in one file.

    Attributes:
        length, fingerprint: the file's when it was read.
        start, stop: offsets in the decompressed file.
        place: the place in the stream at ``start``.
        relations, types: the versions in force there that its rows need.
        rows: the number of its row changes, by subtransaction.
        truncate: (subtransaction, relations' oids) of the Truncate that it begins with; None if there is none.
        truncates: (oid, ordinal) of each truncate, if the ordinals are known (prepared, not streamed).
        messages: how many logical messages it has.
        layouts: what was announced before it of the tables that it names.
        seam: the segment's bytes, if they begin in an earlier file; then ``start`` and ``stop`` do not count.
    """

    path: str
    length: int
    fingerprint: int
    start: int
    stop: int
    place: Place
    relations: tuple[m.Relation, ...]
    types: tuple[m.Type, ...]
    rows: XidCounts
    truncate: tuple[int, tuple[int, ...]] | None = None
    truncates: tuple[tuple[int, int], ...] = ()
    messages: int = 0
    layouts: tuple[Layout, ...] = ()
    seam: Seam | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing to decode: no rows, truncates or logical messages."""
        return self.rows.total == 0 and self.truncate is None and not self.truncates and self.messages == 0


@dataclass(frozen=True, slots=True)
class CutOff:
    """What a session has brought of a transaction that its end has cut off.

    Attributes:
        lsn: the commit LSN, or the prepare LSN; None if the transaction was streamed.
        rows: the number of its row changes; of a streamed one by subtransaction.
        high_lsn: the highest commit LSN of all sessions when it was cut off.
    """

    xid: int
    lsn: int | None
    rows: XidCounts
    high_lsn: int

    def has_more_than(self, rows: XidCounts, aborted: Collection[int] = ()) -> bool:
        """Whether the transaction, as a later session has brought it, lacks rows.

        What is not there of a subtransaction proves nothing if it has rolled back, or if nothing of it is there: it may
        have rolled back before it was streamed again.

        Args:
            rows: what the later session has brought.
            aborted: the subtransactions that have rolled back.
        """
        if self.lsn is not None:  # an ordinary or prepared transaction has no subtransactions in the stream
            return rows.total < self.rows.total
        (xids, counts), (later_xids, later_counts) = self.rows.unpack(), rows.unpack()
        shared_xids, indices, later_indices = np.intersect1d(xids, later_xids, return_indices=True)
        return bool((later_counts[later_indices] < counts[indices])[~np.isin(shared_xids, list(aborted))].any())


@dataclass(frozen=True, slots=True)
class AnnouncedVersion:
    """A relation version, with a number that is higher for versions announced later in the stream."""

    relation: m.Relation
    number: int


@dataclass(slots=True)
class Deferred:
    """A streamed or prepared transaction that has neither committed nor rolled back.

    Attributes:
        path, offset: where it began.
        gid: set when it is being prepared.
        complete: its Prepare was read.
        lsn: its prepare LSN.
        since: see `OpenTransaction`.
        after_lsn: the session's last commit LSN when it began; -1 if there was none.
        own_versions: the relation versions that it has announced itself, by oid; likewise ``types``.
        former: versions that it has announced and later replaced by others; its first rows use them.
        aborted: the subtransactions that have rolled back.
        layouts: what it has announced of tables, in order.
        lacks_rows: it was prepared with fewer rows than a session before has brought of it.  That is right if it rolls
            back: a server stops to send what has rolled back by then.
    """

    xid: int
    path: str
    offset: int
    gid: str | None = None
    complete: bool = False
    streamed: bool = True
    lsn: int | None = None
    since: int | None = None
    after_lsn: int = -1
    origin: str | None = None
    segments: list[Segment] = field(default_factory=list)
    own_versions: dict[int, AnnouncedVersion] = field(default_factory=dict)
    former: list[m.Relation] = field(default_factory=list)
    types: dict[int, m.Type] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    layouts: list[Layout] = field(default_factory=list)
    lacks_rows: bool = False

    @property
    def rows(self) -> XidCounts:
        """The number of its row changes that have come, by subtransaction."""
        return XidCounts.sum(segment.rows for segment in self.segments)

    def describe(self) -> OpenTransaction:
        """Describe it for a report."""
        return OpenTransaction(
            kind="prepared" if self.gid is not None else "streamed",
            xid=self.xid,
            gid=self.gid,
            lsn=self.lsn,
            since=self.since,
            path=self.path,
            offset=self.offset,
            bytes=sum(segment.stop - segment.start for segment in self.segments),
            segments=len(self.segments),
        )

    def ordinals(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ordinal of the first remaining change of each segment, and (oid, ordinal) of each truncate."""
        starts: list[int] = []
        truncates: list[tuple[int, int]] = []
        ordinal = 0
        for segment in self.segments:
            starts.append(ordinal)  # changes are numbered without those of subtransactions that rolled back
            truncates.extend(segment.truncates)
            if segment.truncate is not None and segment.truncate[0] not in self.aborted:
                truncates.extend((oid, ordinal) for oid in segment.truncate[1])  # one message is one change
                ordinal += 1
            ordinal += segment.rows.without(self.aborted)
        return starts, truncates

    def moved(self, path_of: Callable[[str], str]) -> Deferred:
        """Return the same transaction with other paths for its files."""
        segments = []
        for segment in self.segments:
            seam = segment.seam and replace(segment.seam, path=path_of(segment.seam.path))
            segments.append(replace(segment, path=path_of(segment.path), seam=seam))
        return replace(self, path=path_of(self.path), segments=segments)


@dataclass(frozen=True, slots=True)
class Step:
    """A stretch of bytes to decode: of ordinary transactions, or a part of one streamed or prepared transaction.

    Attributes:
        sequence: the steps' order, which is that of the commits.
        start, stop: offsets of its first message and behind its last, in the decompressed file or in ``seam``.
        place: the place in the stream at ``start``.
        relations, types: the versions in force there that the stretch needs, as places in the plan's lists; likewise
            ``layouts``, what was announced before of tables that it names.
        seam: its bytes, where they begin in front of the file.
        commit: None for ordinary transactions.
    """

    sequence: int
    start: int
    stop: int
    place: Place
    relations: tuple[int, ...] = ()
    types: tuple[int, ...] = ()
    layouts: tuple[int, ...] = ()
    seam: Seam | None = None
    commit: SegmentCommit | None = None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What is decoded of one file.

    Attributes:
        length: bytes as stored; the file is refused when it has fewer or another fingerprint by then.
        scanned: the file was read by this run; else it holds parts of transactions that were open before it.
        steps: in the order of their sequence.
        proof: what an index knows of the file, if no scan of this run has proved it.
    """

    path: str
    length: int
    fingerprint: int
    scanned: bool = True
    start: int = 0
    stop: int = 0
    steps: tuple[Step, ...] = ()
    proof: Proof | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Where the next run goes on: at a message's boundary outside of any ordinary transaction.

    Attributes:
        path: the file that the boundary lies in, ``offset`` bytes (decompressed) from its start.
        done: nothing behind the boundary is left to read in that file.
        last_path: the last file that was read; ``last_length`` tells whether it has grown since.
        fingerprint: of ``path`` at ``length`` bytes.
        numbers: when each of the relations was announced, see `Announced`.
        begun: the ordinary transaction that has begun at the boundary and was not ended.
        deferred: the streamed and prepared transactions that are not decided.
        awaited: the commit LSN of a transaction that a session's end has cut off and that has to come again.
        cut: what the sessions before have brought of transactions that were cut off.
        gone: the last session's subtransactions that have rolled back before anything of them was streamed.
        applied: how many transactions have been applied from the target's beginning on.
        has_more: what follows the boundary is there, but was too late for the run.
        top_time: the greatest commit time of all transactions that were applied, or left out, in microseconds since
            2000-01-01; None if there are none.
        gap: the last gap that the run has gone on over; empty if it noticed none, None if it was not allowed to.
        partitions: those that have been announced beside their roots; ``trailing`` is
            a `Summary`'s, ``seeming`` are those that what follows may use.
        layouts: what is announced of tables (`walreplay.decode.announcements`).
    """

    path: str
    offset: int
    length: int
    fingerprint: int
    done: bool
    last_path: str
    last_length: int
    place: Place
    relations: tuple[m.Relation, ...]
    types: tuple[m.Type, ...]
    numbers: tuple[int, ...] = ()
    begun: OpenTransaction | None = None
    deferred: tuple[Deferred, ...] = ()
    awaited: int | None = None
    cut: tuple[CutOff, ...] = ()
    gone: tuple[int, ...] = ()
    applied: int = 0
    partitions: tuple[Partition, ...] = ()
    trailing: int | None = None
    seeming: tuple[Partition, ...] = ()
    has_more: bool = False
    layouts: tuple[Layout, ...] = ()
    top_time: int | None = None
    gap: str | None = None

    def in_session_of(self, framing: Framing) -> Resume:
        """Return where a session begins in files of another framing: what was open comes again, or never."""
        # The next session has to send again what this one has cut off.
        waits = [lsn for lsn in (self.awaited, None if self.begun is None else self.begun.lsn) if lsn is not None]
        return replace(
            self,
            done=True,
            place=replace(self.place.new_session(), framing=framing),
            begun=None,
            gone=(),
            # Only a complete Prepare outlives its session.
            deferred=tuple(deferred for deferred in self.deferred if deferred.gid is not None and deferred.complete),
            awaited=min(waits, default=None),
        )

    def moved(self, moved: Callable[[str], str]) -> Resume:
        """Return the same with other paths for the files."""
        deferred = tuple(item.moved(moved) for item in self.deferred)
        return replace(self, path=moved(self.path), last_path=moved(self.last_path), deferred=deferred)

    @property
    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """List what is open, the oldest first; one that is on its way again once."""
        begun = () if self.begun is None else (self.begun,)
        # The newest copy last: a prepared one may come again as a streamed one, and either as an ordinary one.
        ranked = sorted(self.deferred, key=lambda deferred: (deferred.gid is None, deferred.complete))
        last = {copy.xid: copy for copy in ranked if self.begun is None or copy.xid != self.begun.xid}
        return (*(deferred.describe() for deferred in self.deferred if last.get(deferred.xid) is deferred), *begun)


@dataclass(frozen=True, slots=True)
class TruncatePosition:
    """The last truncate of a relation in the run: what lies before it, in commit order, is gone."""

    oid: int
    lsn: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class DecidedTransaction:
    """A streamed or prepared transaction that has committed in the run.

    Attributes:
        resent: it is a copy of one that is known.
        complete: its rows are there; a Commit Prepared may come again alone.
    """

    commit_lsn: int
    commit_time: int
    xid: int
    gid: str | None
    origin: str | None
    applied: bool
    resent: bool
    complete: bool
    session: int
    path: str
    offset: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run applies: the transactions whose commit LSN is above ``after_lsn`` and up to ``upto_lsn``.

    Attributes:
        versions, type_versions, layouts: what the steps' numbers of relations, types and announcements mean.
        announcements: the prefix of those that were read; None if none were.
        transactions: how many; ``resent`` counts those that have come again and are left out.
        announced: every relation version of the run that holds, in stream order, repeats left out.
        before: the relation versions in force when the run began.
        types: the types that are known at its end.
        partitions: every version of a partition of which rows may have come as its root's.
        torn: the unfinished message at the captures' end: its file, its offset there, and how many bytes there are.
        id: given when it is written down, and to no other plan, by which the commits that it leads to are told.
        top_time: the `Resume`'s of the run before.
    """

    files: tuple[FilePlan, ...]
    versions: tuple[m.Relation, ...]
    type_versions: tuple[m.Type, ...]
    after_lsn: int
    upto_lsn: int
    upto_commit_time: int
    truncates: tuple[TruncatePosition, ...]
    resume: Resume
    transactions: int
    resent: int
    announced: tuple[m.Relation, ...]
    before: tuple[m.Relation, ...]
    types: tuple[m.Type, ...]
    decided: tuple[DecidedTransaction, ...] = ()
    torn: tuple[str, int, int] | None = None
    warnings: tuple[str, ...] = ()
    id: str = ""
    partitions: tuple[Partition, ...] = ()
    layouts: tuple[Layout, ...] = ()
    announcements: str | None = None
    top_time: int | None = None

    @property
    def relations(self) -> tuple[m.Relation, ...]:
        """Every relation version that a row of the run may have, in stream order.

        A transaction that was open when the run began may have rows of versions that were no longer in force then.
        """
        announced = {*self.before, *self.announced}
        older = (version for version in self.versions if version not in announced)
        return tuple(dict.fromkeys((*older, *self.before, *self.announced)))

    @property
    def is_idle(self) -> bool:
        """Whether no transaction ends in the files, so that the run would apply nothing."""
        return self.upto_lsn <= self.after_lsn and not any(file.steps for file in self.files)

"""What a scan tells of one file: what the stitch needs to know, and no more.

A summary's size grows with the relations, truncates and rare messages of a file and with its streamed and prepared
transactions, never with its ordinary ones or their rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from walreplay.decode.partitions import Partition
from walreplay.decode.place import Place
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.types.text import UTF8

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TruncateAt:
    """A truncate of one relation; ``lsn`` is None in a transaction whose Begin lies before the stretch.

    ``ordinal`` counts from the transaction's start, or from the stretch's where that is unknown.
    """

    oid: int
    lsn: int | None
    ordinal: int
    origin: str | None = None


def with_last(known: tuple[TruncateAt, ...], at: TruncateAt) -> tuple[TruncateAt, ...]:
    """Give a relation's last truncate, and the last one of the transactions before it.

    The last transaction may be open at the captures' end; then the one before it is what counts.
    """
    return (*[earlier for earlier in known if earlier.lsn != at.lsn][-1:], at)


@dataclass(frozen=True, slots=True)
class Counts:
    """Row changes of one relation."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0

    @property
    def changes(self) -> int:
        """All of them."""
        return self.inserts + self.updates + self.deletes + self.truncates

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.inserts + other.inserts,
            self.updates + other.updates,
            self.deletes + other.deletes,
            self.truncates + other.truncates,
        )


@dataclass(frozen=True, slots=True)
class XidCounts:
    """How many row changes each subtransaction has in a part of a streamed transaction.

    A subtransaction may have a single row, so they are kept packed: the sorted xids' differences and the counts, as
    32-bit numbers, deflated.
    """

    total: int = 0
    packed: bytes = b""

    @classmethod
    def of(cls, xids: NDArray[np.int64], counts: NDArray[np.int64]) -> XidCounts:
        """Pack counts; an xid may come more than once."""
        if not len(xids):
            return cls()
        known, where = np.unique(xids, return_inverse=True)
        sums = np.bincount(where, weights=counts).astype(np.uint32)
        both = np.concatenate([np.diff(known, prepend=0).astype(np.uint32), sums])
        return cls(int(counts.sum()), zlib.compress(both.tobytes(), 1))

    def unpack(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give the xids, sorted, and their counts."""
        both = np.frombuffer(zlib.decompress(self.packed), np.uint32) if self.packed else np.zeros(0, np.uint32)
        xids, counts = np.split(both.astype(np.int64), 2)
        return np.cumsum(xids), counts

    def among(self, xids: Collection[int]) -> set[int]:
        """Give which of some subtransactions have rows."""
        if not xids or not self.packed:
            return set()
        return set(np.intersect1d(self.unpack()[0], np.fromiter(xids, np.int64)).tolist())

    def without(self, aborted: Collection[int]) -> int:
        """Give how many rows remain when some subtransactions have rolled back."""
        if not aborted or not self.packed:
            return self.total
        xids, counts = self.unpack()
        return self.total - int(counts[np.isin(xids, list(aborted))].sum())


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a streamed transaction, in which nothing else stands.

    It ends where another message comes between two blocks, at a Truncate (the next part begins with it), and where
    the stretch ends.

    Attributes:
        first: it begins with the transaction's first block of this session.
        continues: it begins inside a block: at the stretch's own start, or with a truncate.  ``xid`` is -1 where the
            start is a guess.
        open: it ends inside a block.
        truncate: the subtransaction and the relations of the Truncate that it begins with.
        used: relations that its rows name before it announces them, and where.
        messages: how many logical messages it has.
        after_lsn: the last commit LSN before it in the stretch, and ``after_time`` its time; -1 if there is none.
    """

    xid: int
    first: bool
    continues: bool
    open: bool
    start: int
    stop: int
    rows: XidCounts
    truncate: tuple[int, tuple[int, ...]] | None = None
    used: tuple[tuple[int, int], ...] = ()
    relations: tuple[tuple[int, m.Relation], ...] = ()
    types: tuple[tuple[int, m.Type], ...] = ()
    origin: str | None = None
    messages: int = 0
    after_lsn: int = -1
    after_time: int = 0

    @property
    def offset(self) -> int:
        """Where it begins."""
        return self.start


@dataclass(frozen=True, slots=True)
class Body:
    """A transaction between Begin Prepare and Prepare, or the part of it that lies in the stretch.

    Attributes:
        begins: its Begin Prepare is in it; ``complete``: so is its Prepare.
        ordinal: of its first row change; ``rows`` is how many there are.
        truncates: oid and ordinal of each.
    """

    gid: str
    xid: int
    prepare_lsn: int
    prepare_time: int
    begins: bool
    complete: bool
    start: int
    stop: int
    ordinal: int
    rows: int
    truncates: tuple[tuple[int, int], ...] = ()
    used: tuple[tuple[int, int], ...] = ()
    origin: str | None = None
    messages: int = 0

    @property
    def offset(self) -> int:
        """Where it begins."""
        return self.start


Decision: TypeAlias = (
    m.StreamCommit | m.StreamAbort | m.StreamPrepare | m.Prepare | m.CommitPrepared | m.RollbackPrepared
)
"""What decides on a streamed or prepared transaction; a Prepare only where no Begin Prepare precedes it."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision and where it stands."""

    message: Decision
    offset: int
    message_lsn: int = -1
    """See `Place`; -1 where it is not known."""


Item: TypeAlias = Block | Body | Decided


@dataclass(slots=True)
class Summary:
    """What a stretch of a stream holds: whole messages of one session, from one boundary to another.

    Attributes:
        exact: walked from a known place; else from a guess, and the head's transaction is unknown.
        head_changes: row changes before the first Begin or Commit, where the start was guessed.
        head_commit: commit LSN and time of the transaction that was open at a guessed start, once it ended.
        head_origin: its origin, where that is told here and the transaction does not end.
        place: where the stretch ends; None while the head's transaction is unknown to its end.
        begin_at: offset of the Begin of the ordinary transaction that is open at the end, where it lies in the stretch.
        transactions: how many have committed; ``ordinary`` of them between Begin and Commit, ``resent`` of those with
            a commit LSN that was known.
        first_event: the first LSN of a commit or prepare, ended or not; None where there is none.
        items: the parts of streamed and prepared transactions, and the decisions on them, in stream order.
        used: relations that rows name before (or without) a Relation message of the stretch, and where.
        relations: the Relation messages outside of streamed blocks with their offsets; so for the types.
        first_message: LSN of the first logical message of no transaction.
        whole_from: where the ordinary transactions begin that lie in the stretch from their Begin on, or whose place is
            known: behind the head's Commit, where the start was guessed; None while the head is unknown to the end.
        partitions: that are announced beside their roots; ``leading`` is what is announced in front of all else, and
            ``trailing`` the oid of what is announced behind all else: a root and its partition may be parted here.
            ``trailing_partitions`` are such if what follows does not use them.
        alone: the oids of what was announced last without a root in front: partitions of before, perhaps.
    """

    framing: Framing
    exact: bool
    start: int
    stop: int
    place: Place | None
    begin_at: int | None
    head_changes: int = 0
    head_commit: tuple[int, int] | None = None
    transactions: int = 0
    ordinary: int = 0
    resent: int = 0
    first_lsn: int | None = None
    first_commit_time: int | None = None
    last_lsn: int | None = None
    last_commit_time: int | None = None
    first_event: int | None = None
    items: tuple[Item, ...] = ()
    used: tuple[tuple[int, int], ...] = ()
    relations: tuple[tuple[int, m.Relation], ...] = ()
    types: tuple[tuple[int, m.Type], ...] = ()
    truncates: tuple[TruncateAt, ...] = ()
    counts: dict[int, Counts] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    first_message: int | None = None
    whole_from: int | None = None
    partitions: tuple[Partition, ...] = ()
    alone: frozenset[int] = frozenset()
    leading: m.Relation | None = None
    trailing: int | None = None
    trailing_partitions: tuple[Partition, ...] = ()
    head_origin: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of one session.

    Attributes:
        data: its bytes, where they begin in front of the file; offsets in ``summary`` are then those in ``data``.
        base: where ``data`` begins in the unfinished bytes before the file.
        new_session: a session begins with it.
        late: only a commit LSN tells so; streamed blocks before it may belong to the new session already.
        torn: bytes of an unfinished message that the session before has left in front of it.
    """

    summary: Summary
    data: bytes | None = None
    base: int = 0
    new_session: bool = False
    late: bool = False
    torn: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A session's messages in a buffer, from ``start`` (at ``place``) to ``stop``; see `Part` for the rest."""

    start: int
    stop: int
    place: Place
    new_session: bool = False
    late: bool = False
    torn: int = 0


@dataclass(frozen=True, slots=True)
class Ahead:
    """What of a file was decoded with its scan, on a guess of what stands before it (`transactions.ahead`).

    Attributes:
        start, stop: offsets of whole ordinary transactions.
        head, tail: the stretch's bytes before and behind them.
    """

    start: int
    stop: int
    head: bytes
    tail: bytes


@dataclass(slots=True)
class FileScan:
    """One file's summary, as it comes from an executor.

    Attributes:
        length: bytes of the file as stored; ``size`` of what they decompress to.
        head: the bytes before a guessed start, which continue the file before; None when too many.
        tail: the unfinished bytes behind the last part, or all, where there is none.
        parts: one for each session; none when no boundary was found: the file lies inside one message.
        guessed: the only part begins at a guessed place.
        fingerprint: checksums of the beginning and of the end, to notice that a file has changed;
            ``known_fingerprint`` is that of the part which an earlier run has read.
        framing: the stream's, where it was recognised at its beginning.
        codec: what its names are in.
        ahead: what was decoded with the scan.
    """

    path: str
    length: int
    size: int
    compression: str | None
    fingerprint: int
    head: bytes | None = None
    parts: tuple[Part, ...] = ()
    tail: bytes = b""
    guessed: bool = False
    known_fingerprint: int = 0
    framing: Framing | None = None
    codec: str = UTF8
    ahead: Ahead | None = None

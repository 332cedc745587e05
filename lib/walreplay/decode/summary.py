"""The result of scanning one file: what the stitch needs to know, and no more.

A summary's size grows with the relations, truncates and rare messages of a file and with its streamed and prepared
transactions.  It does not grow with ordinary transactions or their rows.  `Unfinished` has the unfinished bytes at the
end of the files that were read, and the files in which they lie.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from walreplay.decode.partitions import Partition
from walreplay.decode.walk import Place
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.messages import Decision
from walreplay.types.text import UTF8

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TruncateAt:
    """A truncate of one relation.

    Attributes:
        lsn: the commit LSN; None if the transaction's Begin lies before the stretch.
        ordinal: its number among the transaction's changes, or among the stretch's if the Begin lies before it.
    """

    oid: int
    lsn: int | None
    ordinal: int
    origin: str | None = None


def with_last(truncates: tuple[TruncateAt, ...], truncate: TruncateAt) -> tuple[TruncateAt, ...]:
    """Add a truncate; keep the relation's last one, and the last one of the transactions before.

    The last transaction may be open at the captures' end; then the truncate before it counts.
    """
    return (*[earlier for earlier in truncates if earlier.lsn != truncate.lsn][-1:], truncate)


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of row changes of one relation."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0

    @property
    def changes(self) -> int:
        """The sum of all of them."""
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
    """The number of row changes of each subtransaction in a part of a streamed transaction.

    There may be as many subtransactions as rows, so they are packed: the differences of the sorted xids and the counts,
    as 32-bit numbers, deflated.
    """

    total: int = 0
    packed: bytes = b""

    @classmethod
    def of(cls, xids: NDArray[np.int64], counts: NDArray[np.int64]) -> XidCounts:
        """Pack counts; an xid may come more than once."""
        if not len(xids):
            return cls()
        distinct, index = np.unique(xids, return_inverse=True)
        sums = np.bincount(index, weights=counts).astype(np.uint32)
        numbers = np.concatenate([np.diff(distinct, prepend=0).astype(np.uint32), sums])  # small numbers deflate well
        return cls(int(counts.sum()), zlib.compress(numbers.tobytes(), 1))

    @classmethod
    def sum(cls, parts: Iterable[XidCounts]) -> XidCounts:
        """Add up counts."""
        unpacked = [part.unpack() for part in parts]
        if not unpacked:
            return cls()
        xids, counts = zip(*unpacked, strict=True)
        return cls.of(np.concatenate(xids), np.concatenate(counts))

    def unpack(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the xids, sorted, and their counts."""
        numbers = np.frombuffer(zlib.decompress(self.packed), np.uint32) if self.packed else np.zeros(0, np.uint32)
        xids, counts = np.split(numbers.astype(np.int64), 2)
        return np.cumsum(xids), counts

    def among(self, xids: Collection[int]) -> set[int]:
        """Return those of some subtransactions that have rows."""
        if not xids or not self.packed:
            return set()
        return set(np.intersect1d(self.unpack()[0], np.fromiter(xids, np.int64)).tolist())

    def without(self, aborted: Collection[int]) -> int:
        """Return how many rows remain when some subtransactions have rolled back."""
        if not aborted or not self.packed:
            return self.total
        xids, counts = self.unpack()
        return self.total - int(counts[np.isin(xids, list(aborted))].sum())


@dataclass(frozen=True, slots=True)
class Block:
    """One or more consecutive blocks of a streamed transaction.

    It ends where another message stands between two blocks, before a Truncate (with which the next part begins), and at
    the end of the stretch.

    Attributes:
        xid: the transaction's; -1 if the stretch's start is a guess and lies in the block.
        first: it begins with the transaction's first block in this session.
        continues: it begins inside a block: at the stretch's start, or with a Truncate.
        open: it ends inside a block.
        start, stop: its offsets.
        rows: the number of its row changes, by subtransaction.
        truncate: (subtransaction, relations' oids) of the Truncate with which it begins; None if there is none.
        used: (oid, offset) of relations that its rows use before it announces them.
        relations: the Relation messages in it, with their offsets; likewise ``types``.
        messages: how many logical messages it has.
        announced: those that may be announcements of tables, with their offsets (`walreplay.decode.announcements`).
        after_lsn: the last commit LSN before it in the stretch, -1 if there is none; ``after_time`` is its time.
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
    announced: tuple[tuple[int, m.Message], ...] = ()
    after_lsn: int = -1
    after_time: int = 0


@dataclass(frozen=True, slots=True)
class Body:
    """A transaction between Begin Prepare and Prepare, or the part of it that lies in the stretch.

    Attributes:
        begins: its Begin Prepare is in the stretch.
        complete: its Prepare is in the stretch.
        ordinal: the ordinal of its first row change.
        rows: how many row changes there are.
        truncates: (oid, ordinal) of each truncate.
        used: (oid, offset) of relations that its rows use before the stretch announces them.
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


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision and where it stands."""

    message: Decision
    start: int
    message_lsn: int = -1
    """The walk's `Place.message_lsn` there; -1 if it is not known."""


Item: TypeAlias = Block | Body | Decided


@dataclass(slots=True)
class Summary:
    """The content of a stretch of a stream: whole messages of one session, from one boundary to another.

    If the start is a guess, it may lie inside a transaction whose Begin is not in the stretch: the *head*.

    Attributes:
        exact: the start is a known place; otherwise it is a guess, and the head is unknown.
        head_changes: the number of the head's row changes (before the first Begin or Commit).
        head_commit: commit LSN and time of the head, if its Commit is in the stretch.
        head_origin: the head's origin, if it is told here and the head does not end.
        place: the place at the end; None if the stretch ends before it is known whether there is a head.
        begin_at: the offset of the Begin of the ordinary transaction that is open at the end, if it is in the stretch.
        transactions: how many have committed.
        ordinary: how many of these were ordinary transactions (Begin to Commit).
        resent: how many of these were copies of known ones.
        top_time: the greatest commit time of the transactions that begin in it, or are decided; None without any.
        first_event: the first LSN of a commit or prepare, complete or not; None if there is none.
        items: the parts of streamed and prepared transactions, and the decisions on them, in stream order.
        used: (oid, offset) of relations that rows use before the stretch announces them, or without that.
        relations: the Relation messages outside of streamed blocks, with their offsets; likewise ``types``.
        announced: the logical messages outside of streamed blocks that may be announcements of tables.
        truncates: each relation's last truncates in ordinary transactions (`with_last`).
        counts: the numbers of row changes, by relation oid.
        messages: the numbers of the rare messages, by name.
        first_message: the LSN of the first logical message that belongs to no transaction.
        partitions: partitions that are announced after their roots.
        alone: the oids of relations whose last announcement had no root in front; they are no partitions any more.
        leading: the relation that is announced before anything else; it may be a partition whose root comes before.
        trailing: the oid of the relation that is announced last, with nothing after it; it may be a root.
        trailing_partitions: relations that are partitions unless the bytes that follow have rows of them.
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
    top_time: int | None = None
    first_event: int | None = None
    items: list[Item] = field(default_factory=list)
    used: tuple[tuple[int, int], ...] = ()
    relations: list[tuple[int, m.Relation]] = field(default_factory=list)
    types: list[tuple[int, m.Type]] = field(default_factory=list)
    truncates: tuple[TruncateAt, ...] = ()
    counts: dict[int, Counts] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    first_message: int | None = None
    partitions: tuple[Partition, ...] = ()
    alone: frozenset[int] = frozenset()
    leading: m.Relation | None = None
    trailing: int | None = None
    trailing_partitions: tuple[Partition, ...] = ()
    announced: list[tuple[int, m.Message]] = field(default_factory=list)
    head_origin: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of one session.

    Attributes:
        summary: its content.
        data: its bytes, if they begin in an earlier file; the summary's offsets are then offsets in ``data``.
        base: where ``data`` begins in the unfinished bytes of earlier files.
        new_session: a session begins with it.
        shown_by_lsn_only: only a commit LSN shows that, so streamed blocks before it may belong to the new session.
        torn: the number of bytes in front of it that are a torn message of the session before.
    """

    summary: Summary
    data: bytes | None = None
    base: int = 0
    new_session: bool = False
    shown_by_lsn_only: bool = False
    torn: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A session's messages in a buffer, from ``start`` (at ``place``) to ``stop``; see `Part` for the rest."""

    start: int
    stop: int
    place: Place
    new_session: bool = False
    shown_by_lsn_only: bool = False
    torn: int = 0


@dataclass(slots=True)
class FileScan:
    """The result of scanning one file, as it comes from an executor.

    Attributes:
        length: the file's size in bytes, as stored.
        size: its size in bytes, decompressed.
        compression: how it is compressed; None if it is not.
        fingerprint: a checksum of its beginning and end, to notice that it has changed.
        checksum: of the whole file (`walreplay.decode.proof`), if it was scanned from its first byte beside an index.
        differs: its bytes are not those that the index knows.
        head: the bytes before a guessed start, which continue the file before; None if they are too many.
        parts: one or more for each session.  None if no boundary was found: the file lies inside one message.
        tail: the unfinished bytes after the last part; all bytes if there is no part.
        guessed: the only part begins at a guessed boundary.
        known_fingerprint: the fingerprint of the part of the file that an earlier run has read.
        framing: the stream's, if it was recognised at its beginning.
        codec: the encoding of names.
        ended: the scan ends in front of a transaction that is too late (`walreplay.decode.scan`), at ``size``.
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
    ended: bool = False
    checksum: str = ""
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of the unfinished bytes that lies in one file."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A message that continues in the next file, as far as it was read.

    Attributes:
        data: its bytes.
        pieces: where they lie.  The last piece, which may be empty, is in the file that was read last.
    """

    data: bytes = b""
    pieces: tuple[Piece, ...] = ()

    def behind(self, scan: FileScan) -> Unfinished:
        """Return the unfinished bytes after the next file; they may begin with the unfinished bytes before it."""
        earlier_size = max(0, len(scan.tail) - scan.size)  # lies at the ends of earlier files
        pieces: list[Piece] = []
        for piece in reversed(self.pieces):
            kept_size = min(earlier_size, piece.size)
            if kept_size:
                pieces.insert(0, Piece(piece.path, piece.offset + piece.size - kept_size, kept_size))
            earlier_size -= kept_size
        own_size = min(len(scan.tail), scan.size)
        return Unfinished(scan.tail, (*pieces, Piece(scan.path, scan.size - own_size, own_size)))

    @property
    def edges(self) -> tuple[int, ...]:
        """The offsets in the bytes at which files begin, except the first."""
        return tuple(accumulate(piece.size for piece in self.pieces[:-1]))

    @property
    def origins(self) -> tuple[tuple[str, int], ...]:
        """For each piece, its file and the offset in the file."""
        return tuple((piece.path, piece.offset) for piece in self.pieces)

    @property
    def last_path(self) -> str:
        """The file that was read last; empty before the first."""
        return self.pieces[-1].path if self.pieces else ""

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(piece.size for piece in self.pieces)

    def where(self, offset: int) -> tuple[str, int] | None:
        """Return the file in which an offset of the bytes lies, and the offset there; None for an offset after them."""
        for piece in self.pieces:
            if offset < piece.size:
                return piece.path, piece.offset + offset
            offset -= piece.size
        return None

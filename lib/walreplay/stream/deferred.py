"""Streamed and prepared transactions, whose rows come before it is known whether they commit.

They are kept as references to their bytes (`Segment`), across files and runs; never as rows.

These rules make sure that only parts of one transaction are joined:

- A Stream Start with the first-segment flag begins a transaction anew, and discards what was gathered for its xid.
- A new session discards all open streamed transactions.  A complete Prepare outlives its session.
- A Stream Abort of a subtransaction removes that one's rows; a Stream Abort of the top-level xid removes everything.
- A prepared transaction is identified by gid and xid together, because a gid may be used again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from walreplay.decode.announcements import Layout
from walreplay.decode.summary import XidCounts
from walreplay.decode.walk import Place
from walreplay.protocol import messages as m

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
        seam: the segment's bytes, if they begin in an earlier file, at ``seam_offset`` of ``seam_path``; then ``start``
            and ``stop`` do not count.
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
    seam: bytes | None = None
    seam_path: str = ""
    seam_offset: int = 0

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
    """

    xid: int
    lsn: int | None
    rows: XidCounts

    def has_more_than(self, rows: XidCounts, aborted: Collection[int] = ()) -> bool:
        """Whether the transaction, as a later session has brought it, lacks rows.

        What is not there of a subtransaction proves nothing if it has rolled back, or if nothing of it is there: it may
        have rolled back before it was streamed again.

        Args:
            rows: what the later session has brought.
            aborted: the subtransactions that have rolled back.
        """
        if self.lsn is not None:
            return rows.total < self.rows.total
        (xids, before), (later, counts) = self.rows.unpack(), rows.unpack()
        both, at, there = np.intersect1d(xids, later, return_indices=True)
        return bool((counts[there] < before[at])[~np.isin(both, list(aborted))].any())


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
        view: the relation versions that it has announced itself, by oid; likewise ``types``.
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
    view: dict[int, AnnouncedVersion] = field(default_factory=dict)
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
            starts.append(ordinal)
            truncates.extend(segment.truncates)
            if segment.truncate is not None and segment.truncate[0] not in self.aborted:
                truncates.extend((oid, ordinal) for oid in segment.truncate[1])
                ordinal += 1
            ordinal += segment.rows.without(self.aborted)
        return starts, truncates

    def moved(self, paths: dict[str, str]) -> Deferred:
        """Return the same transaction with other paths for its files.

        Args:
            paths: new paths by old ones.
        """
        segments = [
            replace(
                segment,
                path=paths.get(segment.path, segment.path),
                seam_path=paths.get(segment.seam_path, segment.seam_path),
            )
            for segment in self.segments
        ]
        return replace(self, path=paths.get(self.path, self.path), segments=segments)

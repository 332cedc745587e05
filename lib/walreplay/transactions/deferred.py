"""Transactions whose rows come before their fate is known: streamed and prepared ones.

They are kept as references to their bytes (`Segment`), across files and runs; never as rows.

The rules, by which nothing is joined that does not belong together:

- A Stream Start with the first-segment flag begins a transaction anew, whatever was gathered for its xid.
- A new session voids every streamed transaction that is open; a Prepare that is complete outlives it.
- A Stream Abort of a subtransaction takes out that one's rows, of the top-level xid everything.
- A prepared transaction goes by gid and xid together: a gid may be used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from walreplay.decode.place import Place
from walreplay.decode.summary import XidCounts
from walreplay.protocol import messages as m

Kind: TypeAlias = Literal["ordinary", "streamed", "prepared"]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that began in the captures and has not ended there yet, for people.

    Attributes:
        lsn: the commit LSN of an ordinary one, the prepare LSN of a prepared one; a streamed one has none yet.
        since: when it committed or was prepared; of a streamed one the commit time before it. Microseconds since
            2000-01-01.
        path, offset: where it began.
        bytes: how much of it is there, in so many ``segments``.
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
        length, fingerprint: of the file, so far as it was there.
        start, stop: offsets in the decompressed file, or in ``seam``: the bytes themselves, where they begin in the
            file before, at ``seam_offset`` of ``seam_path``.
        place: the place in the stream at ``start``.
        relations, types: the versions in force there that its rows need.
        rows: its row changes, by subtransaction.
        truncate: subtransaction and relations of the Truncate that it begins with.
        truncates: oid and ordinal of each truncate, where the ordinals are known (prepared, not streamed).
        messages: how many logical messages it has.
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
    seam: bytes | None = None
    seam_path: str = ""
    seam_offset: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing in it can matter."""
        return self.rows.total == 0 and self.truncate is None and not self.truncates and self.messages == 0


@dataclass(frozen=True, slots=True)
class Announced:
    """A relation version and where in the stream it was announced: later ones have a higher number."""

    relation: m.Relation
    number: int


@dataclass(slots=True)
class Deferred:
    """A streamed or prepared transaction that is not decided.

    Attributes:
        gid: once it is being prepared; ``complete`` once it is.
        lsn: its prepare LSN.
        since: see `OpenTransaction`.
        after_lsn: the session's last commit LSN when it began.
        view: the relation versions that it has announced for itself; so for types.
        former: versions that it has announced and then others in their place: its first rows are theirs.
        aborted: the subtransactions that have rolled back.
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
    view: dict[int, Announced] = field(default_factory=dict)
    former: list[m.Relation] = field(default_factory=list)
    types: dict[int, m.Type] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    def describe(self) -> OpenTransaction:
        """Say for people what it is."""
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
        """Give the ordinal of each segment's first change that remains, and oid and ordinal of each truncate."""
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
        """Give the same with its files elsewhere."""
        segments = [
            replace(
                segment,
                path=paths.get(segment.path, segment.path),
                seam_path=paths.get(segment.seam_path, segment.seam_path),
            )
            for segment in self.segments
        ]
        return replace(self, path=paths.get(self.path, self.path), segments=segments)

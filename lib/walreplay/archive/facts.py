"""Exact facts about a file that is joined to the stream; none of them rests on a guess."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from walreplay.decode.summary import Block, Counts, FileScan, Part
from walreplay.errors import ValueFormatError
from walreplay.ledger.state import to_json
from walreplay.lsn import to_datetime
from walreplay.protocol.messages import Relation
from walreplay.spark.captures import CaptureFile
from walreplay.stream.plan import Kind
from walreplay.stream.state import StitchState
from walreplay.stream.stitch import Stitch, resume_at


@dataclass(frozen=True, slots=True)
class RelationChangeCounts:
    """A relation's row changes in one file, whatever became of their transactions.

    Attributes:
        namespace, name: the last that the file knows it by; None where no file has announced it.
    """

    oid: int
    namespace: str | None
    name: str | None
    inserts: int
    updates: int
    deletes: int
    truncates: int


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction that has begun and has not ended.

    Attributes:
        lsn: of an ordinary one that of its commit, of a prepared one that of its prepare; a streamed one has none yet.
        since: when that was; of a streamed one when the transaction before it committed.
        file, offset: where it began.
    """

    kind: Kind
    xid: int
    gid: str | None
    lsn: int | None
    since: datetime | None
    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class Overlap:
    """Transactions in a file that have come before; this is no fault."""

    file: str
    transactions: int
    first_lsn: int
    last_lsn: int


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes in a file of a message whose rest never came, as its session ended there; this is no fault."""

    file: str
    bytes: int


@dataclass(frozen=True, slots=True)
class FileSpan:
    """A file's place in the archive's WAL: the commit LSNs in it, and how many sessions begin in it."""

    file: str
    first_lsn: int
    last_lsn: int
    sessions: int


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file of an archive, as it stands in its stream.

    Attributes:
        name: its path below the archive's folder.
        length, checksum: of the bytes as stored (`walreplay.decode.proof`); ``size`` is that of those decompressed.
        modified: µs since 1970.
        first_lsn, last_lsn: the least and the greatest commit LSN of those that commit in it, and when these did.
        transactions: how many commit in it; ``resent`` of them have come before.
        changes: row changes that are in it.
        sessions: how many begin in it.
        torn_bytes: what sessions in it have left of messages whose rest never came.
        unfinished_bytes: what stands at its end of a message that goes on in the next file.
        warnings: what the stream's reader had to say of it.
    """

    name: str
    length: int
    modified: int
    size: int
    checksum: str
    framing: str | None
    compression: str | None
    first_lsn: int | None
    last_lsn: int | None
    first_commit_ts: datetime | None
    last_commit_ts: datetime | None
    transactions: int
    resent: int
    changes: int
    sessions: int
    relations: tuple[RelationChangeCounts, ...]
    open_at_start: tuple[Open, ...]
    open_at_end: tuple[Open, ...]
    torn_bytes: int
    unfinished_bytes: int
    warnings: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return a hash of all facts: it changes if any of them does."""
        return hashlib.sha256(repr(self).encode("utf-8", "surrogatepass")).hexdigest()  # hash() differs by process


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that was joined to the stream.

    Attributes:
        behind: the name of the file that it follows, empty for the archive's first; None where that cannot be read, or
            where this one is to be read again.
        resume: where the stream goes on behind it, as JSON; None of most.
        gap: something is missing in front of it, or is wrong with it, which the facts' warnings name.
        differs: its bytes are not those that the index knew.
    """

    facts: FileFacts
    behind: str | None
    resume: str | None = None
    gap: bool = False
    differs: bool = False


class Recording:
    """Follows a stitch: `look` before a file is added to it, and `take` behind it; `taken` are for the index."""

    def __init__(self, stitch: Stitch, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        self._files: list[FoundFile] = []
        self.look(stitch)

    def look(self, stitch: Stitch, *, lost: bool = False) -> None:
        """See where the stitch stands, in front of the next file; ``lost``: the one in front of that cannot be read."""
        state = stitch.state
        self._behind = None if lost else stitch.last_path and self._name_of(stitch.last_path)
        self._told, self._resent = len(state.warnings), state.resent
        self._begun = state.place is not None and state.place.begun
        self.look_behind_gap(stitch)

    def look_behind_gap(self, stitch: Stitch) -> None:
        """See what is still open, once it is known that the next file begins behind a gap."""
        self._open = tuple(self._open_in(stitch.state))

    def taken(self) -> list[FoundFile]:
        """Return the files since the last call."""
        files, self._files = self._files, []
        return files

    def take(
        self,
        stitch: Stitch,
        file: CaptureFile,
        scan: FileScan,
        *,
        resumes: bool,
        gaps: Sequence[str] = (),
        again: bool = False,
    ) -> FileFacts:
        """Take the file that was just added, scanned from its beginning, and return its facts.

        Args:
            resumes: who reads what follows can go on behind it.
            gaps: what is wrong with it, or missing in front of it.
            again: it is to be read again, whenever the index is brought up to date.
        """
        behind = None if again else self._behind
        facts = self._facts(stitch, scan, file.modified, gaps)
        text = None
        if resumes and behind is not None and stitch.place is not None:
            resume = resume_at(stitch.state, stitch.place).moved(self._name_of)
            for deferred in resume.deferred:  # its rows' bytes are for who applies them
                deferred.segments = [
                    replace(segment, seam=segment.seam and replace(segment.seam, data=b""))
                    for segment in deferred.segments
                ]
            text = to_json(resume)
        self._files.append(FoundFile(facts, behind, text, bool(gaps), scan.differs))
        return facts

    def _facts(self, stitch: Stitch, scan: FileScan, modified: int, gaps: Sequence[str]) -> FileFacts:
        state = stitch.state
        warnings = [*gaps, *state.warnings[self._told :]]  # those that this file has added
        open_before, resent = self._open, state.resent - self._resent
        had_begun = self._begun
        self.look(stitch)
        summaries = [part.summary for part in state.parts]
        firsts = [(part.first_lsn, part.first_commit_time) for part in summaries if part.first_lsn is not None]
        lasts = [(part.last_lsn, part.last_commit_time) for part in summaries if part.last_lsn is not None]
        first, last = min(firsts, default=(None, None)), max(lasts, default=(None, None))
        times = []
        for _, micros in (first, last):
            try:
                times.append(None if micros is None else to_datetime(micros))
            except ValueFormatError as error:  # a damaged or wrong clock; the file is sound otherwise
                times.append(None)
                warnings.append(f"{scan.path}: {error.problem}")
        relations = tuple(relation_rows(state))
        return FileFacts(
            name=self._name_of(scan.path),
            length=scan.length,
            modified=modified,
            size=scan.size,
            checksum=scan.checksum,
            framing=None if state.place is None else state.place.framing.value,
            compression=scan.compression,
            first_lsn=first[0],
            last_lsn=last[0],
            first_commit_ts=times[0],
            last_commit_ts=times[1],
            transactions=sum(summary.transactions for summary in summaries),
            resent=resent,
            changes=sum(rows.inserts + rows.updates + rows.deletes + rows.truncates for rows in relations),
            sessions=sum(part.new_session for part in state.parts) + (self._begun and not had_begun),
            relations=relations,
            open_at_start=open_before,
            open_at_end=self._open,
            torn_bytes=sum(part.torn for part in state.parts),
            unfinished_bytes=len(stitch.state.tail),
            warnings=tuple(dict.fromkeys(warnings)),
        )

    def _open_in(self, state: StitchState) -> Iterator[Open]:
        for item in (deferred.describe() for deferred in state.open.deferred):
            since, name = _time(item.since), self._name_of(item.path)
            yield Open(item.kind, item.xid, item.gid, item.lsn, since, name, item.offset)
        place, begun = state.place, state.begun
        transaction = None if place is None else place.transaction
        if transaction is None or transaction.gid is not None:  # a prepared one is among the deferred
            return
        path, offset = (begun.path, begun.offset) if begun is not None else state.tail_at
        xid, lsn, time = transaction.xid, transaction.final_lsn, _time(transaction.commit_time)
        yield Open("ordinary", xid, None, lsn, time, self._name_of(path), offset)


def _time(micros: int | None) -> datetime | None:
    try:
        return None if micros is None else to_datetime(micros)
    except ValueFormatError:  # who applies it is told; here it is one of those that no calendar has
        return None


def relation_rows(state: StitchState) -> Iterator[RelationChangeCounts]:
    """Yield what the file that was joined last has of each relation."""
    counts: dict[int, Counts] = {}
    named: dict[int, Relation] = {}
    for part in state.parts:
        for oid, count in part.summary.counts.items():
            counts[oid] = counts.get(oid, Counts()) + count
        named.update({relation.oid: relation for relation in _announced(part)})
    for oid, count in sorted(counts.items()):
        if not count.changes:  # announced, but without changes
            continue
        relation = named.get(oid)
        if relation is None:
            version = state.versions.version_of(oid)
            # A streamed transaction announces for itself.
            views = (deferred.own_versions[oid] for deferred in state.open.deferred if oid in deferred.own_versions)
            version = version if version is not None else next(views, None)
            relation = None if version is None else version.relation
        space, name = (None, None) if relation is None else (relation.namespace, relation.name)
        yield RelationChangeCounts(oid, space, name, count.inserts, count.updates, count.deletes, count.truncates)


def _announced(part: Part) -> Iterator[Relation]:
    announced = list(part.summary.relations)
    for item in part.summary.items:
        if isinstance(item, Block):  # messages in streamed blocks are not among the summary's
            announced += item.relations
    yield from (relation for _, relation in sorted(announced, key=lambda entry: entry[0]))

"""What each file of an archive holds, by the scalar reader: one message after the other, from the first file on.

And an index in memory, with which archives are joined without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from support.reference import Transactions
from walreplay.archive.facts import FileFacts, FoundFile
from walreplay.archive.index import ArchiveIndex, IndexedFile
from walreplay.archive.joining import Archive, Joined, Joining
from walreplay.config import Settings
from walreplay.decode.files import ScanTask
from walreplay.decode.proof import NOTHING, Proof
from walreplay.decode.summary import FileScan
from walreplay.errors import TruncatedMessage, WalReplayError
from walreplay.ledger.state import from_json
from walreplay.lsn import to_datetime
from walreplay.progress import Progress
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_messages
from walreplay.recorded_names import broken_chains
from walreplay.spark.captures import CaptureFile
from walreplay.spark.workers.scan import scan_of
from walreplay.stream.plan import Plan, Resume

_CHANGES = {m.Insert: 0, m.Update: 1, m.Delete: 2}


@dataclass
class Walked:
    """What a file holds; a message belongs to the file that it ends in.

    Attributes:
        commits: LSN and time of each.
        counts: inserts, updates, deletes and truncates by oid.
        names: the last that a relation was announced by, so far.
        open: kind, xid, gid and LSN of what has not ended where the file does.
    """

    commits: list[tuple[int, int]] = field(default_factory=list)
    counts: dict[int, list[int]] = field(default_factory=dict)
    names: dict[int, tuple[str, str]] = field(default_factory=dict)
    open: set[tuple[str, int, str | None, int | None]] = field(default_factory=set)
    sessions: int = 0


def messages_of(data: bytes, framing: Framing) -> Iterator[tuple[int, m.AnyMessage]]:
    """Yield one session's whole messages, each with the offset behind its frame."""
    try:
        for _, behind, message in read_messages(data, 0, framing=framing):
            yield behind, message
    except TruncatedMessage:
        return


def walk(files: Mapping[str, bytes], streams: Sequence[bytes], framing: Framing) -> dict[str, Walked]:
    """Walk an archive.

    Args:
        streams: the same bytes, session by session.
    """
    ends = dict(zip(files, accumulate(map(len, files.values())), strict=True))
    found = {name: Walked() for name in files}
    walker, base = _Walker(), 0
    at = iter(files)
    name = next(at)
    for stream in streams:
        is_first = True
        for end, message in messages_of(stream, framing):
            while base + end > ends[name]:
                found[name].open = walker.open
                name = next(at)
            if is_first:
                # Until its first message is there, nothing tells that a session has begun.
                walker.begin_session()
            found[name].sessions += is_first
            is_first = False
            walker.take(message, found[name])
        base += len(stream)
    found[name].open = walker.open
    for rest in at:
        found[rest].open = walker.open
    return found


class _Walker(Transactions):
    def __init__(self) -> None:
        super().__init__()
        self._names: dict[int, tuple[str, str]] = {}

    @property
    def open(self) -> set[tuple[str, int, str | None, int | None]]:
        found: set[tuple[str, int, str | None, int | None]] = {
            ("streamed", xid, None, None) for xid in self.session.streams
        }
        found |= {("prepared", xid, gid, one.prepare_lsn) for (xid, gid), one in self.prepared.items()}
        begin = None if self.session.current is None else self.session.current.begin
        if isinstance(begin, m.Begin):
            found.add(("ordinary", begin.xid, None, begin.final_lsn))
        elif isinstance(begin, m.BeginPrepare):
            found.add(("prepared", begin.xid, begin.gid, begin.prepare_lsn))
        return found

    def take(self, message: m.AnyMessage, walked: Walked) -> None:
        if isinstance(message, m.Relation):
            self._names[message.oid] = (message.namespace, message.name)
        elif isinstance(message, (m.Insert, m.Update, m.Delete)):
            walked.counts.setdefault(message.relation_oid, [0, 0, 0, 0])[_CHANGES[type(message)]] += 1
        elif isinstance(message, m.Truncate):
            for oid in message.relation_oids:
                walked.counts.setdefault(oid, [0, 0, 0, 0])[3] += 1
        self.session.read(message)
        if isinstance(message, (m.Commit, m.StreamCommit, m.CommitPrepared)):
            walked.commits.append((message.commit_lsn, message.commit_time))
        walked.names = {oid: self._names[oid] for oid in walked.counts if oid in self._names}


def difference(facts: FileFacts, walked: Walked) -> str | None:
    """Compare what is told of a file with what a walk has found; None if it is the same."""
    first, last = min(walked.commits, default=(None, None)), max(walked.commits, default=(None, None))
    expected = {
        "transactions": len(walked.commits),
        "lsns": (first[0], last[0]),
        "times": tuple(None if time is None else to_datetime(time) for time in (first[1], last[1])),
        "relations": {oid: (*walked.names.get(oid, (None, None)), *counts) for oid, counts in walked.counts.items()},
        "open": walked.open,
        "sessions": walked.sessions,
    }
    told = {
        "transactions": facts.transactions,
        "lsns": (facts.first_lsn, facts.last_lsn),
        "times": (facts.first_commit_ts, facts.last_commit_ts),
        "relations": {
            one.oid: (one.namespace, one.name, one.inserts, one.updates, one.deletes, one.truncates)
            for one in facts.relations
        },
        "open": {(one.kind, one.xid, one.gid, one.lsn) for one in facts.open_at_end},
        "sessions": facts.sessions,
    }
    wrong = [f"{name}: {told[name]} is not {expected[name]}" for name in told if told[name] != expected[name]]
    return "; ".join(wrong) or None


class MemoryIndex:
    """An index that is no table; `facts` are what its rows have."""

    def __init__(self) -> None:
        self.exists = True
        self.rows = self._proved = dict[str, IndexedFile]()
        self.facts: dict[str, FileFacts] = {}
        self.resumes: dict[str, str] = {}

    def name_of(self, path: str) -> str:
        return path

    def proof_of(self, path: str) -> Proof:
        return self.rows[path].proof if path in self.rows else NOTHING

    def proved(self, tasks: Mapping[str, ScanTask]) -> dict[str, ScanTask]:
        return ArchiveIndex.proved(self, tasks)  # type: ignore[arg-type]

    def proving(self, plan: Plan) -> Plan:
        return ArchiveIndex.proving(self, plan)  # type: ignore[arg-type]

    def follow_others(self, files: Sequence[CaptureFile]) -> bool:
        return ArchiveIndex.follow_others(self, files)  # type: ignore[arg-type]

    def rows_of(self, files: Sequence[CaptureFile]) -> list[IndexedFile | None]:
        rows = (self.rows.get(file.path) for file in files)
        return [row if row is not None and row.is_of(file) else None for row, file in zip(rows, files, strict=True)]

    def add(self, files: Sequence[FoundFile], *, renews: bool = True) -> None:
        for file in files:
            row = self.rows.get(file.facts.name)
            if renews or row is None or not row.is_of(file.facts):
                self.rows[file.facts.name] = IndexedFile.of(file, "", self.rows)
                self.facts[file.facts.name] = file.facts
                if file.resume is not None:
                    self.resumes[file.facts.name] = file.resume

    def resume_of(self, row: IndexedFile) -> Resume | None:
        return from_json(Resume, next(self.resumes[name] for name, other in self.rows.items() if other == row))


def listed_of(files: Mapping[str, bytes]) -> list[CaptureFile]:
    return [CaptureFile(name, len(content), len(content)) for name, content in files.items() if content]


def scans_of(files: Mapping[str, bytes], tasks: Mapping[str, ScanTask]) -> dict[str, FileScan | WalReplayError]:
    """Scan files in memory as `walreplay.spark.captures.scan_each` does others."""
    found: dict[str, FileScan | WalReplayError] = {}
    for path, task in tasks.items():
        try:
            found[path] = scan_of(path, memoryview(files[path]), task)
        except WalReplayError as error:
            found[path] = error
    return found


class MemoryArchive:
    """Files in memory, which are joined as those of an archive are.

    Attributes:
        scanned: the files that the last join has read.
    """

    def __init__(
        self, index: MemoryIndex | None = None, settings: Settings | None = None, *, writes: bool = True
    ) -> None:
        self.index = index or MemoryIndex()
        self.settings = settings or Settings()
        self.scanned: list[str] = []
        self.writes = writes

    def is_known(self, files: Mapping[str, bytes]) -> bool:
        """Return whether the index has the files as they are now, so that none need be read."""
        place = self._place(files)
        return bool(place.files) and len(place.certain()[0]) == len(place.files)

    def _place(self, files: Mapping[str, bytes]) -> Archive:
        broken = {chain.after: chain.error for chain in broken_chains(files)}
        listed, index, settings = listed_of(files), self.index, self.settings
        return Archive(None, settings, Progress(), listed, index, {}, broken=broken)  # type: ignore[arg-type]

    def join(self, files: Mapping[str, bytes], *, lenient: bool = False) -> list[Joined]:
        """Join the files that are there now, or those of them that the index does not make certain."""
        place = self._place(files)
        self.scanned = []
        joining = _Joining(place, files, lenient, self)
        found = list(joining.run())
        self.stitch = joining.stitch
        return found


class _Joining(Joining):
    def __init__(self, place: Archive, files: Mapping[str, bytes], lenient: bool, archive: MemoryArchive) -> None:
        rows, resume = place.certain()
        write = archive.index.add if archive.writes else None
        super().__init__(place, lenient=lenient, write=write, rows=rows, resume=resume)
        self._contents, self._scanned = files, archive.scanned

    def _scan_each(self, tasks: Mapping[str, ScanTask]) -> dict[str, FileScan | WalReplayError]:
        self._scanned += tasks
        return scans_of(self._contents, self._archive.index.proved(tasks))

"""The order in which bytes are decoded: ordinary transactions where they lie, deferred ones where they commit."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar

from walreplay.decode.announcements import Layout
from walreplay.decode.decoder import SegmentCommit
from walreplay.decode.summary import Decided, FileScan, Part, Unfinished
from walreplay.decode.walk import Place
from walreplay.errors import OrderError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.stream.plan import DecidedTransaction, Deferred, FilePlan, Seam, Segment, Step


@dataclass(frozen=True, slots=True)
class AddedPart:
    """A part that is being added to a stitch.

    Attributes:
        scan: the scan of its file.
        start_place: the place at its start.
        unfinished: the unfinished bytes of earlier files; a part with ``data`` begins in these.
    """

    scan: FileScan
    part: Part
    start_place: Place
    unfinished: Unfinished

    @property
    def framing(self) -> Framing:
        """The stream's framing."""
        return self.part.summary.framing

    @property
    def origin(self) -> tuple[str, int]:
        """File and offset at which the part's offset 0 lies: in an earlier file if the part has ``data``."""
        return self.where(0) if self.part.data is not None else (self.scan.path, 0)

    @property
    def base(self) -> int:
        """The offset in the file at which ``data`` begins; below 0 because it begins in front of the file."""
        return self.part.base - self.unfinished.size

    def seam(self, start: int, stop: int) -> Seam | None:
        """Return what lies between two offsets of the part, if the part begins in front of the file."""
        if self.part.data is None:
            return None
        path, offset = self.origin
        return Seam(self.part.data[start:stop], path, offset + start)

    def where(self, offset: int) -> tuple[str, int]:
        """Return the file in which an offset of the part lies, and the offset there."""
        if self.part.data is None:
            return self.scan.path, offset
        offset += self.part.base
        return self.unfinished.where(offset) or (self.scan.path, offset - self.unfinished.size)

    def error(self, part_offset: int, problem: str, remedy: str | None) -> OrderError:
        """Make the error for what lies at an offset of the part."""
        path, offset = self.where(part_offset)
        return OrderError(problem, path=path, offset=offset, remedy=remedy)

    def place_of(self, decision: Decided, transaction: DecidedTransaction) -> Place:
        """Return the place at a decision that commits; a walk from there reads the decision again."""
        start = self.start_place
        return replace(
            start,
            transaction=None,
            stream=None,
            last_lsn=transaction.commit_lsn - 1,  # the commit itself is read again, and LSNs have to rise
            last_commit_time=transaction.commit_time,
            high_lsn=max(start.high_lsn, transaction.commit_lsn),
            message_lsn=max(start.message_lsn, decision.message_lsn),
            begun=True,
        )

    @property
    def end(self) -> Place:
        """The place at the part's end."""
        place, summary = self.start_place, self.part.summary
        end = summary.place
        if summary.exact and end is not None:
            return end
        if end is None:  # a guess whose stretch ends before its first Begin or Commit
            open_ = place.transaction
            if open_ is None:
                return place
            origin = summary.head_origin if summary.head_origin is not None else open_.origin
            after = replace(open_, ordinal=open_.ordinal + summary.head_changes, origin=origin)
            return replace(place, transaction=after, begun=True)
        stream = place.stream if end.stream == -1 else end.stream  # -1: a guess does not know the xid
        end = replace(
            end,
            stream=stream,
            message_lsn=max(end.message_lsn, place.message_lsn),
            begun=place.begun or end.begun,
            session=place.session,
        )
        if summary.last_lsn is None:  # no commit in the part, so the LSNs at its start still hold
            return replace(
                end,
                last_lsn=place.last_lsn,
                last_commit_time=place.last_commit_time,
                high_lsn=place.high_lsn,
                high_commit_time=place.high_commit_time,
            )
        # A guess is accepted only if its commits are later than all known ones, so its last commit is the highest.
        return replace(end, high_lsn=end.last_lsn, high_commit_time=end.last_commit_time)


View: TypeAlias = tuple[tuple[m.Relation, ...], tuple[m.Type, ...], tuple[Layout, ...]]
_StepNumbers: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

_STEPS_A_FILE: Final = 1 << 22


def sequence_of(file: int) -> int:
    """Return the sequence number of the first stretch in a file's own bytes.

    The number before it belongs to the stretch that begins in front of the file.
    """
    return file * _STEPS_A_FILE + 1


def file_of(sequence: int) -> int:
    """Return the number of the file in which a step lies, or, for a deferred transaction, in which it commits."""
    return sequence // _STEPS_A_FILE


@dataclass(frozen=True, slots=True)
class TransactionStretch:
    """Ordinary transactions of a file, from ``start`` to ``stop`` in the file, or in its ``seam`` (see `Step`)."""

    path: str
    start: int
    stop: int
    place: Place
    relations: tuple[m.Relation, ...]
    types: tuple[m.Type, ...]
    layouts: tuple[Layout, ...]
    seam: Seam | None


@dataclass(frozen=True, slots=True)
class DeferredCommit:
    """A streamed or prepared transaction that has committed.

    Attributes:
        starts: for each segment, the ordinal of its first remaining change.
        transaction: its commit.  If it is not applied, its rows are only decoded to compare copies, or left out.
    """

    deferred: Deferred
    starts: tuple[int, ...]
    transaction: DecidedTransaction


_T = TypeVar("_T", bound=Hashable)


def _numbered(numbers: dict[_T, int], items: Iterable[_T]) -> tuple[int, ...]:
    """Return the numbers of some things; those that have none yet get the next ones."""
    return tuple(numbers.setdefault(item, len(numbers)) for item in items)


@dataclass
class Schedule:
    """The stretches and commits of a run, in commit order."""

    _entries: list[TransactionStretch | DeferredCommit] = field(default_factory=list)

    def add_ordinary(self, added: AddedPart, start: int, stop: int, place: Place, view: View) -> int:
        """Add the ordinary transactions between two offsets of a part, if there are any; return the entry's number.

        Args:
            place: the place at ``start``.
            view: the relation versions and types that are in force there, and what is announced of tables.
        """
        summary = added.part.summary
        worth = (
            summary.ordinary
            or place.transaction is not None
            or summary.begin_at is not None
            or summary.head_changes
            or summary.messages.get("Message")
        )
        entry = len(self._entries)
        if start != stop and worth:
            seam = added.seam(start, stop)
            seam = seam and replace(seam, base=added.base + start)
            self._entries.append(TransactionStretch(added.scan.path, start, stop, place, *view, seam))
        return entry

    def commit(self, commit: DeferredCommit) -> None:
        """Add a streamed or prepared transaction."""
        self._entries.append(commit)

    def cut(self, entry: int, offset: int) -> None:
        """Remove everything from an offset in an entry on: a transaction begins there that does not end."""
        kept = self._entries[: entry + 1]
        if entry < len(kept):
            last = kept[entry]
            assert isinstance(last, TransactionStretch)
            kept[entry] = replace(last, stop=offset)  # what comes before the Begin has committed
            if last.start == offset:  # nothing is left of the entry
                kept.pop()
        self._entries = kept

    def plan(self, scanned: Mapping[str, tuple[int, int, int, int]]) -> tuple[tuple[FilePlan, ...], View]:
        """Return each file's steps, and what these refer to by number: relation versions, types and announcements.

        Args:
            scanned: length, fingerprint, start and stop of each file that the run has read, by path.
        """
        versions, types, layouts = dict[m.Relation, int](), dict[m.Type, int](), dict[Layout, int]()

        def numbers_of(view: TransactionStretch | Segment) -> _StepNumbers:
            numbers = _numbered(versions, view.relations), _numbered(types, view.types)
            return (*numbers, _numbered(layouts, view.layouts))

        steps: dict[str, list[Step]] = {}
        files: dict[str, FilePlan] = {}
        first_sequence = {path: sequence_of(number) for number, path in enumerate(scanned)}
        sequence = 0
        for entry in self._entries:
            if isinstance(entry, TransactionStretch):
                sequence = max(sequence, first_sequence[entry.path] - (entry.seam is not None))
                steps.setdefault(entry.path, []).append(_ordinary(sequence, entry, numbers_of(entry)))
                sequence += 1
                continue
            for segment, ordinal in zip(entry.deferred.segments, entry.starts, strict=True):
                if segment.is_empty:  # nothing to decode, such as a block with only Relation messages
                    continue
                step = _deferred(sequence, segment, entry, ordinal, numbers_of(segment))
                steps.setdefault(segment.path, []).append(step)
                sequence += 1
                planned_before = files.get(segment.path)
                # The file may have grown after the first of its segments was read.
                if segment.path not in scanned and (planned_before is None or planned_before.length < segment.length):
                    files[segment.path] = FilePlan(segment.path, segment.length, segment.fingerprint, scanned=False)
        for path, (length, fingerprint, start, stop) in scanned.items():
            files[path] = FilePlan(path, length, fingerprint, True, start, stop)
        planned = tuple(replace(file, steps=tuple(steps.get(path, ()))) for path, file in files.items())
        return planned, (tuple(versions), tuple(types), tuple(layouts))  # in the order of their numbers


def _ordinary(sequence: int, entry: TransactionStretch, numbers: _StepNumbers) -> Step:
    if entry.seam is None:
        return Step(sequence, entry.start, entry.stop, entry.place, *numbers)
    size = entry.stop - entry.start
    return Step(sequence, 0, size, entry.place, *numbers, replace(entry.seam, data=entry.seam.data[:size]))


def _aborted_in(segment: Segment, aborted: Collection[int]) -> tuple[int, ...]:
    """Return the rolled back subtransactions that have something in a segment, sorted."""
    if segment.messages:
        # It is not known to which subtransactions the logical messages belong.
        return tuple(sorted(aborted))
    subxids = segment.rows.among(aborted)
    if segment.truncate is not None and segment.truncate[0] in aborted:
        subxids.add(segment.truncate[0])
    return tuple(sorted(subxids))


def _deferred(sequence: int, segment: Segment, commit: DeferredCommit, ordinal: int, numbers: _StepNumbers) -> Step:
    deferred, transaction = commit.deferred, commit.transaction
    segment_commit = SegmentCommit(
        xid=deferred.xid,
        gid=deferred.gid,
        commit_lsn=transaction.commit_lsn,
        commit_time=transaction.commit_time,
        ordinal=ordinal,
        aborted=_aborted_in(segment, deferred.aborted),
        applied=transaction.applied,
        session=transaction.session,
        origin=deferred.origin,
        resent=transaction.resent,
    )
    # Bytes of a seam are in the plan itself.
    start, stop = (segment.start, segment.stop) if segment.seam is None else (0, len(segment.seam.data))
    return Step(sequence, start, stop, segment.place, *numbers, segment.seam, segment_commit)

"""Decode files together with their scan, before there is a plan; and find out afterwards which of the rows are right.

A plan of all files says what is in force where each file begins: the relation versions, the types, the place in the
stream.  If reading a file's bytes is expensive, its scan also decodes it, on a *guess* of these (`Guess`).  Only whole
ordinary transactions are decoded, from the first that begins in the file to the last that ends in it.  What the file's
ends cut off comes to the driver as bytes, one transaction's part at each end.

Then the plan is compared with the guess (`Confirmation`).  If they agree, only these bytes are left to decode
(`Confirmation.rest`).  Otherwise the file is decoded again.

Invariants:

- The rows of a file count only if every relation version and type by which they were read is the plan's.
- A file is decoded ahead only if it has nothing but ordinary transactions of one session, without truncates and logical
  messages.
- The stored plan does not mention any of this.  Whoever finishes it can decode by the plan alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from walreplay.decode.place import Place
from walreplay.decode.stream import FIRST_OWN_OID
from walreplay.decode.summary import Ahead, FileScan, Part, Summary
from walreplay.protocol import messages as m
from walreplay.transactions.plan import FilePlan, Plan, Step
from walreplay.transactions.schedule import Numbers, sequence_of
from walreplay.transactions.stitch import Stitch

MOST_CARRIED: Final = 1 << 16
"""So many bytes that a file's ends cut off come to the driver; if there are more, the file is read again."""

MOST_CARRIED_IN_ALL: Final = 16 << 20
"""The same for all files together, because these bytes go to every task that decodes some of them."""

_HARMLESS: Final = frozenset({"Begin", "Commit", "Insert", "Update", "Delete", "Relation", "Type", "Origin"})


@dataclass(frozen=True)
class Guess:
    """What is assumed to be in force at the start of each file.

    Attributes:
        relations: one version of each relation.
        types: the types that Type messages have announced.
    """

    relations: tuple[m.Relation, ...]
    types: tuple[m.Type, ...]

    @classmethod
    def at(cls, stitch: Stitch) -> Guess:
        """Guess that everything that is in force at the end of a stitch's last file still is."""
        return cls(stitch.relations, tuple(stitch.types.values()))

    @cached_property
    def by_oid(self) -> dict[int, m.Relation]:
        """The relation versions by their relations' oids."""
        return {relation.oid: relation for relation in self.relations}


def stretch_ahead(scan: FileScan, data: memoryview, guess: Guess) -> Ahead | None:
    """Say which of a file's bytes can be decoded on a guess; None if the file can only be decoded after planning.

    Args:
        data: the file's bytes, decompressed.
    """
    summary = _only_part(scan)
    if summary is None or summary.whole_from is None or not summary.ordinary:
        return None
    known = guess.by_oid
    is_plain = not summary.items and not summary.truncates and summary.messages.keys() <= _HARMLESS
    is_known = all(oid in known for oid, _ in summary.used)
    if not (is_plain and is_known) or any(known.get(relation.oid) != relation for _, relation in summary.relations):
        return None
    stop = summary.stop if summary.begin_at is None else summary.begin_at
    start = summary.whole_from
    carried = start - summary.start + summary.stop - stop
    if start >= stop or carried > MOST_CARRIED:
        return None
    return Ahead(start, stop, bytes(data[summary.start : start]), bytes(data[stop : summary.stop]))


def place_ahead(scan: FileScan, place: Place | None) -> Place:
    """Give the place in the stream at which a file is decoded ahead.

    Args:
        place: where the scan began, if that was known.  Otherwise the result has only what the walk needs: the framing.
    """
    if place is not None:
        return place
    if scan.framing is not None:
        # The file begins the stream.
        return Place(scan.framing)
    part = scan.parts[0]
    # Only the beginning of a session may have a COPY's header.
    return Place(part.summary.framing, begun=not part.new_session)


def _only_part(scan: FileScan) -> Summary | None:
    """Give the summary of a file that has one session only, which lies completely in the file; otherwise None."""
    if len(scan.parts) != 1:
        return None
    part: Part = scan.parts[0]
    return part.summary if part.data is None and not part.torn and not part.late else None


@dataclass(frozen=True, slots=True)
class DecodedAhead:
    """A file that was decoded ahead.

    Attributes:
        number: its position among the files that the run reads.
        doubtful: oids of relations whose rows were decoded for another table, or other columns, than the run plans.
    """

    number: int
    scan: FileScan
    guess: Guess
    doubtful: Collection[int] = ()


class Confirmation:
    """The comparison of a plan with the files that were decoded ahead.

    Attributes:
        held: the paths of the files whose rows are right.
        void: the numbers of the files whose rows are not, and which have to be decoded again.
        rest: what is left to decode of files whose rows are right; the steps contain the bytes.
    """

    def __init__(self, plan: Plan, files: Iterable[DecodedAhead]) -> None:
        self.held: set[str] = set()
        self.void: list[int] = []
        self.rest: list[FilePlan] = []
        self._plan = plan
        self._versions = Numbers(plan.versions)
        self._types = Numbers(plan.type_versions)
        self._taken = {step.sequence for file in plan.files for step in file.steps}
        # A truncate removes rows of earlier files, and rows of copies must not be applied: both need the plan.
        in_order = not plan.truncates and not plan.resent
        carried = 0
        planned = {file.path: file for file in plan.files}
        for file in files:
            path = file.scan.path
            steps = self._rest_of(planned[path], file) if in_order and path in planned else None
            more = sum(len(step.seam or b"") for step in steps or ())
            if steps is None or carried + more > MOST_CARRIED_IN_ALL:
                self.void.append(file.number)
                continue
            carried += more
            self.held.add(path)
            if steps:
                self.rest.append(replace(planned[path], steps=tuple(steps)))

    @property
    def versions(self) -> tuple[m.Relation, ...]:
        """The relation versions to which the steps of `rest`, and those of the plan, refer by number."""
        return self._versions.items()

    @property
    def types(self) -> tuple[m.Type, ...]:
        """The types to which these steps refer by number."""
        return self._types.items()

    def _rest_of(self, planned: FilePlan, file: DecodedAhead) -> list[Step] | None:
        """Give the steps that are left to decode of a file; None if its rows are not as planned."""
        ahead, summary = file.scan.ahead, _only_part(file.scan)
        assert ahead is not None
        assert summary is not None
        seams = [step for step in planned.steps if step.seam is not None]
        own = [step for step in planned.steps if step.seam is None]
        if len(own) != 1 or len(seams) > 1 or any(step.fate is not None for step in planned.steps):
            return None
        (step,) = own
        is_same = step.start == summary.start and step.stop in (summary.stop, ahead.stop)
        if not is_same or step.sequence != sequence_of(file.number) or not self._is_known(step, summary, file):
            return None
        rest: list[Step] = []
        if seams:
            (seam,) = seams
            if seam.sequence != step.sequence - 1:
                return None
            rest.append(self._behind_seam(seam, step, ahead.head))
        elif ahead.head:
            rest.append(self._carried(step, file, summary, step.sequence - 1, ahead.head, step.start, step.place))
        if step.stop > ahead.stop:
            at = replace(
                step.place,
                transaction=None,
                last_lsn=_last(summary, step.place.last_lsn),
                high_lsn=_last(summary, step.place.high_lsn),
                begun=True,
            )
            rest.append(self._carried(step, file, summary, step.sequence + 1, ahead.tail, ahead.stop, at))
        new = {other.sequence for other in rest} - {other.sequence for other in seams}
        return rest if self._taken.isdisjoint(new) else None

    def _is_known(self, step: Step, summary: Summary, file: DecodedAhead) -> bool:
        """Say whether the relation versions and types by which a file was decoded are those of the plan."""
        known = file.guess.by_oid
        relations = [self._plan.versions[number] for number in step.relations]
        if any(known.get(relation.oid) != relation for relation in relations):
            return False
        used = {relation.oid for relation in relations} | {relation.oid for _, relation in summary.relations}
        if not used.isdisjoint(file.doubtful) or not used >= dict(summary.used).keys():
            return False
        if all(column.type_oid < FIRST_OWN_OID for oid in used for column in known[oid].columns):
            return True
        types = {type_.oid: type_ for type_ in (self._plan.type_versions[number] for number in step.types)}
        guessed = {type_.oid: type_ for type_ in file.guess.types}
        # A Type message comes before anything that uses it, so it makes no difference if the type was known before.
        return types.items() <= guessed.items() and guessed == types | {type_.oid: type_ for _, type_ in summary.types}

    def _behind_seam(self, seam: Step, step: Step, head: bytes) -> Step:
        """Join the planned step that begins in front of a file with the bytes that are left at the file's start."""
        assert seam.seam is not None
        versions = self._plan.versions
        # If both have a version of a relation, the seam's is the one that is in force at the seam's start.
        known = {versions[number].oid: number for number in (*step.relations, *seam.relations)}
        data = seam.seam[: seam.stop] + head
        types = tuple(dict.fromkeys((*step.types, *seam.types)))
        return replace(seam, stop=len(data), seam=data, relations=tuple(known.values()), types=types)

    def _carried(
        self, step: Step, file: DecodedAhead, summary: Summary, sequence: int, data: bytes, at: int, place: Place
    ) -> Step:
        """Make a step that contains its bytes from a part of a stretch."""
        named = dict.fromkeys((*dict(summary.used), *(relation.oid for _, relation in summary.relations)))
        return Step(
            sequence,
            0,
            len(data),
            place,
            self._versions.of(file.guess.by_oid[oid] for oid in named),
            tuple(dict.fromkeys((*step.types, *self._types.of(file.guess.types)))),
            seam=data,
            seam_path=file.scan.path,
            seam_offset=at,
            seam_base=at,
        )


def _last(summary: Summary, before: int) -> int:
    return before if summary.last_lsn is None else max(before, summary.last_lsn)


__all__ = ["MOST_CARRIED", "Confirmation", "DecodedAhead", "Guess", "place_ahead", "stretch_ahead"]

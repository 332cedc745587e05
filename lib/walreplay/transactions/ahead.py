"""Files that were decoded with their scan, before anything was planned: what of them holds, and what is left to decode.

A plan of all files says what each is to be decoded with: the relation versions in force at its start, the place in the
stream.  Where a file's bytes are dear, it is decoded with its scan on a *guess* of these (`Guess`): whole ordinary
transactions, from the first that begins in the file to the last that ends in it.  What is cut by the file's ends comes
to the driver as bytes, a transaction's part at most.  Here the plan is held against the guess: where it is just what
the plan asks for, those bytes are all that is left (`Confirmation.rest`); else the file is decoded anew.

Invariants: nothing of a file counts unless every relation version and type that its rows were read by is the plan's; a
file with anything but one session's ordinary transactions, without truncates and logical messages, is never decoded
ahead; and the plan that is written down knows nothing of all this, so that whoever finishes it decodes by it alone.
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
"""So many bytes of what the ends of a file cut come to the driver; where there are more, the file is read again."""

MOST_CARRIED_IN_ALL: Final = 16 << 20
"""Likewise of all files together: what is left goes to each task that decodes some of it."""

_HARMLESS: Final = frozenset({"Begin", "Commit", "Insert", "Update", "Delete", "Relation", "Type", "Origin"})


@dataclass(frozen=True)
class Guess:
    """What is taken to be in force at the start of each file.

    Attributes:
        relations: the relation versions, one of each relation.
        types: that Type messages have told of.
    """

    relations: tuple[m.Relation, ...]
    types: tuple[m.Type, ...]

    @classmethod
    def at(cls, stitch: Stitch) -> Guess:
        """Guess what is in force where a stitch stands."""
        return cls(stitch.relations, tuple(stitch.types.values()))

    @cached_property
    def by_oid(self) -> dict[int, m.Relation]:
        """The relation versions by their relations' oids."""
        return {relation.oid: relation for relation in self.relations}


def stretch_ahead(scan: FileScan, data: memoryview, guess: Guess) -> Ahead | None:
    """Say which of a file's bytes can be decoded on a guess; None where the plan has to come first.

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
        place: where the scan began, if that was known; else only what the walk cannot do without is: the framing.
    """
    if place is not None:
        return place
    if scan.framing is not None:
        # The stream begins here.
        return Place(scan.framing)
    part = scan.parts[0]
    # A COPY's header stands at its start alone.
    return Place(part.summary.framing, begun=not part.new_session)


def _only_part(scan: FileScan) -> Summary | None:
    """Give the summary of the file's only session, where it lies in the file and nowhere else."""
    if len(scan.parts) != 1:
        return None
    part: Part = scan.parts[0]
    return part.summary if part.data is None and not part.torn and not part.late else None


@dataclass(frozen=True, slots=True)
class DecodedAhead:
    """A file that was decoded ahead.

    Attributes:
        number: its place among those that the run reads.
        doubtful: relations (by oid) whose rows were not taken as the run wants them.
    """

    number: int
    scan: FileScan
    guess: Guess
    doubtful: Collection[int] = ()


class Confirmation:
    """Which files' rows hold, given the plan.

    Attributes:
        held: the paths of the files whose rows hold.
        void: the numbers of those whose rows do not.
        rest: what is left to decode of files that hold; their steps bring their bytes.
    """

    def __init__(self, plan: Plan, files: Iterable[DecodedAhead]) -> None:
        self.held: set[str] = set()
        self.void: list[int] = []
        self.rest: list[FilePlan] = []
        self._plan = plan
        self._versions = Numbers(plan.versions)
        self._types = Numbers(plan.type_versions)
        self._taken = {step.sequence for file in plan.files for step in file.steps}
        # A truncate makes rows void that come before it, in whatever file; a copy of a transaction its rows.
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
        """What the steps of `rest`, and the plan's, mean by their numbers of relation versions."""
        return self._versions.items()

    @property
    def types(self) -> tuple[m.Type, ...]:
        """Likewise for types."""
        return self._types.items()

    def _rest_of(self, planned: FilePlan, file: DecodedAhead) -> list[Step] | None:
        """Give what is left to decode of a file; None where what was decoded is not what is planned."""
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
        """Say whether the relation versions and types that a file was decoded by are those that it should be."""
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
        # A Type message comes before what uses it, so that to know of it earlier makes no difference.
        return types.items() <= guessed.items() and guessed == types | {type_.oid: type_ for _, type_ in summary.types}

    def _behind_seam(self, seam: Step, step: Step, head: bytes) -> Step:
        """Join what begins in front of a file with what is left at its start."""
        assert seam.seam is not None
        versions = self._plan.versions
        # Where both name a relation, it is what the seam begins with that is in force there.
        known = {versions[number].oid: number for number in (*step.relations, *seam.relations)}
        data = seam.seam[: seam.stop] + head
        types = tuple(dict.fromkeys((*step.types, *seam.types)))
        return replace(seam, stop=len(data), seam=data, relations=tuple(known.values()), types=types)

    def _carried(
        self, step: Step, file: DecodedAhead, summary: Summary, sequence: int, data: bytes, at: int, place: Place
    ) -> Step:
        """Give a step of its own to a part of a stretch, whose bytes it brings."""
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

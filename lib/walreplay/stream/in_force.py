"""What is in force at a place of the stream: partitions, truncates, relation versions and types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from walreplay.decode.partitions import Partition
from walreplay.decode.summary import Summary, TruncateAt
from walreplay.decode.walk import Place
from walreplay.protocol import messages as m
from walreplay.stream.plan import AnnouncedVersion, Deferred, Resume, TruncatePosition


class PartitionsInForce:
    """The partitions that are in force at a place of the stream, and all that a run has seen.

    A root and its partition are announced directly one after the other (`walreplay.decode.partitions`), but a file's
    end may lie between them.

    Attributes:
        of_run: all partitions that this run knows, in stream order.
        trailing: the oid of a relation that was announced last, with nothing after it; it may be a root.
        seeming: relations that are partitions unless the bytes that follow have rows of them.
    """

    def __init__(self) -> None:
        self.of_run: dict[Partition, None] = {}
        self.trailing: int | None = None
        self.seeming: tuple[Partition, ...] = ()
        self._in_force: dict[int, Partition] = {}

    def resume_from(self, resume: Resume) -> None:
        """Continue where the last run ended."""
        self.trailing, self.seeming = resume.trailing, resume.seeming
        for partition in resume.partitions:
            self._add(partition)

    @property
    def in_force(self) -> tuple[Partition, ...]:
        """The partitions in force."""
        return tuple(self._in_force.values())

    def forget(self, oid: int) -> None:
        """Forget that a relation is a partition, because it is announced; a partition is recognised each time."""
        self._in_force.pop(oid, None)

    def note(self, summary: Summary) -> None:
        """Add what a part of the stream says."""
        # PostgreSQL sends Type messages in front of a relation, so the root before may still wait for its partition.
        if summary.messages.keys() <= {"Type"}:
            return
        partitions = list(summary.partitions)
        leading = summary.leading
        if leading is not None and self.trailing is not None and self.trailing != leading.oid:
            partitions.insert(0, Partition(self.trailing, leading))  # a file ended between the two messages
        if summary.messages.keys() <= {"Type", "Relation"}:
            # The part has no rows, so it is not known yet whether these are used.
            self.seeming = (*self.seeming, *partitions, *summary.trailing_partitions)
        else:
            # A relation that has rows is published under its own name, not its root's.
            used = {oid for oid, _ in summary.used}
            for partition in (*(seeming for seeming in self.seeming if seeming.relation.oid not in used), *partitions):
                self._add(partition)
            for oid in summary.alone:
                self._in_force.pop(oid, None)
            self.seeming = summary.trailing_partitions  # their rows, if any, are in the next part
        self.trailing = summary.trailing

    def end_session(self, *, forget: bool) -> None:
        """End a session: relations announced on both sides of its end are not root and partition.

        Args:
            forget: forget all partitions in force, because the next session announces all that it uses again.
        """
        self.trailing, self.seeming = None, ()
        if forget:
            self._in_force.clear()

    def _add(self, partition: Partition) -> None:
        self._in_force[partition.relation.oid] = partition
        self.of_run[partition] = None


class Truncates:
    """The last truncate of each relation in its last two transactions that truncate it.

    Two are needed because the last transaction may be open where the captures end.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[TruncateAt, ...]] = {}

    def note(self, truncate: TruncateAt) -> None:
        """Add a truncate."""
        last: dict[int, TruncateAt] = {}
        for noted in (*self._last.get(truncate.oid, ()), truncate):
            lsn = -1 if noted.lsn is None else noted.lsn
            if lsn not in last or last[lsn].ordinal < noted.ordinal:  # what comes before the last truncate is gone
                last[lsn] = noted
        self._last[truncate.oid] = tuple(last[lsn] for lsn in sorted(last)[-2:])

    def add_part(self, summary: Summary, start_place: Place, wants_origin: Callable[[str | None], bool]) -> None:
        """Add the truncates of a part's ordinary transactions.

        Args:
            start_place: the place at the part's start.
            wants_origin: says whether transactions of an origin count.
        """
        open_ = start_place.transaction
        for truncate in summary.truncates:
            if truncate.lsn is None and open_ is not None:  # its transaction began before the part
                ordinal = open_.ordinal + truncate.ordinal
                truncate = TruncateAt(truncate.oid, open_.final_lsn, ordinal, open_.origin)
            if wants_origin(truncate.origin):
                self.note(truncate)

    def forget(self, lsn: int) -> None:
        """Remove the truncates of a transaction that has not ended and will be read again from its start."""
        for oid, truncates in self._last.items():
            self._last[oid] = tuple(truncate for truncate in truncates if truncate.lsn != lsn)

    def committed(self, after_lsn: int, upto_lsn: int) -> Iterator[TruncatePosition]:
        """Yield each relation's last truncate in transactions above one commit LSN and up to another."""
        for truncates in self._last.values():
            truncate = max(
                (each for each in truncates if each.lsn is not None and after_lsn < each.lsn <= upto_lsn),
                key=lambda each: (each.lsn, each.ordinal),
                default=None,
            )
            if truncate is not None and truncate.lsn is not None:
                yield TruncatePosition(truncate.oid, truncate.lsn, truncate.ordinal)


class Versions:
    """The relation versions and types in force outside of streamed transactions, and all versions that a run has seen.

    Versions are numbered in stream order.  A streamed transaction's versions come into force when it commits, but not
    if a version with a higher number is in force then.

    Attributes:
        types: by oid.
        announced: all relation versions that this run has seen, in order.
    """

    def __init__(self) -> None:
        self.types: dict[int, m.Type] = {}
        self.announced: dict[m.Relation, None] = {}
        self._in_force: dict[int, AnnouncedVersion] = {}
        self._number = 0

    def resume_from(self, resume: Resume) -> None:
        """Continue where the last run ended."""
        self.types = {type_.oid: type_ for type_ in resume.types}
        for relation, number in zip(resume.relations, resume.numbers, strict=True):
            self._in_force[relation.oid] = AnnouncedVersion(relation, number)
        inner = (version.number for transaction in resume.deferred for version in transaction.own_versions.values())
        self._number = max([0, *resume.numbers, *inner]) + 1  # open transactions may have announced the newest versions

    @property
    def relations(self) -> tuple[m.Relation, ...]:
        """The relation versions in force."""
        return tuple(version.relation for version in self._in_force.values())

    def snapshot(self) -> tuple[dict[int, AnnouncedVersion], dict[int, m.Type]]:
        """Copy what is in force now: relation versions and types, each by oid."""
        return dict(self._in_force), dict(self.types)

    def version_of(self, oid: int) -> AnnouncedVersion | None:
        """Return the version of a relation that is in force; None if nothing has announced it."""
        return self._in_force.get(oid)

    def view_of(self, oids: Iterable[int]) -> tuple[m.Relation, ...]:
        """Return the versions in force of some relations; relations that nothing has announced are left out."""
        return tuple(self._in_force[oid].relation for oid in oids if oid in self._in_force)

    def next_number(self) -> int:
        """Take the number for the next version."""
        self._number += 1
        return self._number

    def announce(self, relation: m.Relation) -> None:
        """Put a relation version in force from here on."""
        self._in_force[relation.oid] = AnnouncedVersion(relation, self.next_number())
        self.announced[relation] = None

    def adopt(self, decided: Deferred, *, holds_outside: bool) -> None:
        """Take over the versions and types that a committing transaction has announced.

        Args:
            holds_outside: the transaction was streamed, so its versions come into force outside of it now.
        """
        self.announced.update(dict.fromkeys(decided.former))  # rows of earlier segments have these versions
        for version in decided.own_versions.values():
            current = self._in_force.get(version.relation.oid)
            # Another transaction may have announced a newer version after this one did, and committed first.
            if holds_outside and (current is None or current.number < version.number):
                self._in_force[version.relation.oid] = version
            self.announced[version.relation] = None
        self.types.update(decided.types)

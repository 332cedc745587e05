"""Which relations are partitions of others, from what summaries of the stream's parts say."""

from __future__ import annotations

from walreplay.decode.partitions import Partition
from walreplay.decode.summary import Summary
from walreplay.transactions.plan import Resume


class PartitionsInForce:
    """The partitions that are in force at a place, and those that a run has seen.

    A root and its partition are announced one behind the other; a cut may part them.

    Attributes:
        of_run: every one that this run knows of, in order.
        trailing: the oid of what was announced last, behind all else: a root, perhaps.
        seeming: what are partitions if what follows does not use them.
    """

    def __init__(self) -> None:
        self.of_run: dict[Partition, None] = {}
        self.trailing: int | None = None
        self.seeming: tuple[Partition, ...] = ()
        self._in_force: dict[int, Partition] = {}

    def take_up(self, resume: Resume) -> None:
        """Go on where the last run ended."""
        self.trailing, self.seeming = resume.trailing, resume.seeming
        for partition in resume.partitions:
            self._add(partition)

    @property
    def in_force(self) -> tuple[Partition, ...]:
        """Those in force."""
        return tuple(self._in_force.values())

    def forget(self, oid: int) -> None:
        """Learn that a relation is announced: a partition is announced as such each time."""
        self._in_force.pop(oid, None)

    def note(self, summary: Summary) -> None:
        """Take up what a part of the stream says."""
        if summary.messages.keys() <= {"Type"}:
            return
        found = list(summary.partitions)
        leading = summary.leading
        if leading is not None and self.trailing is not None and self.trailing != leading.oid:
            found.insert(0, Partition(self.trailing, leading))
        if summary.messages.keys() <= {"Type", "Relation"}:
            # What uses them, if anything does, is still to come.
            self.seeming = (*self.seeming, *found, *summary.trailing_partitions)
        else:
            used = {oid for oid, _ in summary.used}
            for partition in (*(one for one in self.seeming if one.relation.oid not in used), *found):
                self._add(partition)
            for oid in summary.alone:
                self._in_force.pop(oid, None)
            self.seeming = summary.trailing_partitions
        self.trailing = summary.trailing

    def end_session(self, *, forget: bool) -> None:
        """End a session, which parts what stands on both sides.

        Args:
            forget: the next session announces again all that it uses.
        """
        self.trailing, self.seeming = None, ()
        if forget:
            self._in_force.clear()

    def _add(self, partition: Partition) -> None:
        self._in_force[partition.relation.oid] = partition
        self.of_run[partition] = None


__all__ = ["PartitionsInForce"]

"""Find out which relations are partitions of others, from the summaries of the stream's parts."""

from __future__ import annotations

from walreplay.decode.partitions import Partition
from walreplay.decode.summary import Summary
from walreplay.transactions.plan import Resume


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

    def take_up(self, resume: Resume) -> None:
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
        if summary.messages.keys() <= {"Type"}:
            return
        found = list(summary.partitions)
        leading = summary.leading
        if leading is not None and self.trailing is not None and self.trailing != leading.oid:
            found.insert(0, Partition(self.trailing, leading))
        if summary.messages.keys() <= {"Type", "Relation"}:
            # The part has no rows, so it is not known yet whether these are used.
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


__all__ = ["PartitionsInForce"]

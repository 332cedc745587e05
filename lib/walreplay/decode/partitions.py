"""Partitions that are published as their root, and the columns that identify the root's rows then.

With ``publish_via_partition_root`` every change names the root, but the partition's own replica identity decides which
values of an old row are sent: ALTER TABLE … REPLICA IDENTITY of a root does not change its partitions.  The root's
Relation message has the root's setting.  The tag of an old tuple ('O' or 'K') follows that setting, its values do not.

Before the first change of a partition the server announces the root and directly after it the partition, which has no
rows of its own.  So two consecutive Relation messages, of which the second is never used, are a root and its partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from walreplay.protocol import messages as m


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as it was announced, and the oid of the root under which its changes are published."""

    root: int
    relation: m.Relation


@dataclass(slots=True)
class _Claim:
    """A relation that may be a partition; it is none if its slot gets more rows.

    Attributes:
        slot: the relation's slot in the walk.
        rows: how many rows the slot had when the relation was announced.
        proven: it was announced again and had had no rows in between.  So it was a partition, whatever follows.
    """

    relation: m.Relation
    slot: int
    rows: int
    proven: bool = False


class PartitionFinder:
    """Find the partitions that a stretch announces.

    The methods ``on_…`` have to be called for the stretch's messages in their order.  ``number`` is always the number
    of rare messages that the stretch has had, including the current one.
    """

    def __init__(self, rows_of: Callable[[int], int]) -> None:
        self._rows_of = rows_of
        self._last: tuple[int, int] | None = None
        self._claims: dict[tuple[int, m.Relation], _Claim] = {}
        self._unproven: dict[int, list[_Claim]] = {}
        self._alone: set[int] = set()
        self._newest: list[tuple[int, m.Relation]] = []
        self._leading: _Claim | None = None
        self._only_types = 0

    def on_type(self, number: int) -> None:
        """Note a Type message; it precedes the Relation that uses it, so it may stand between root and partition."""
        self._only_types += self._only_types == number - 1  # Types with which the stretch begins
        if self._last is not None and self._last[1] == number - 1:
            self._last = self._last[0], number

    def on_relation(self, relation: m.Relation, slot: int, number: int) -> None:
        """Note a Relation message."""
        earlier, self._last = self._last, (relation.oid, number)
        for claim in self._unproven.pop(relation.oid, ()):
            claim.proven = self._holds(claim)  # later rows are of the new announcement
        if number == self._only_types + 1:  # nothing but Types in front
            self._leading = self._claim(relation, slot)
        elif earlier is not None and earlier[1] == number - 1 and earlier[0] != relation.oid:
            key = earlier[0], relation
            claim = self._claim(relation, slot)
            if key not in self._claims or not self._claims[key].proven:
                self._claims[key] = claim
            self._newest.append(key)
            self._alone.discard(relation.oid)
            return
        else:
            self._alone.add(relation.oid)  # published under its own name
        self._newest.clear()

    def _claim(self, relation: m.Relation, slot: int) -> _Claim:
        claim = _Claim(relation, slot, self._rows_of(slot))
        self._unproven.setdefault(relation.oid, []).append(claim)
        return claim

    def on_truncate(self, oids: Iterable[int], number: int) -> None:
        """Note a Truncate message: its relations, announced one after the other before it, are not partitions."""
        if self._last is None or self._last[1] != number - 1:
            return
        truncated = set(oids)
        for key in self._newest:
            if key[1].oid in truncated and key in self._claims and not self._claims[key].proven:
                del self._claims[key]
        self._newest.clear()
        if self._leading is not None and self._leading.relation.oid in truncated:
            self._leading = None

    def partitions(self, number: int) -> tuple[Partition, ...]:
        """Return the partitions, without those at the end of the stretch (`trailing`)."""
        open_ = set(self._trails(number))
        return tuple(Partition(*key) for key in self._claims if key not in open_ and self._holds(self._claims[key]))

    def alone(self) -> frozenset[int]:
        """Return the oids of relations last announced without a root in front; they are no partitions any more."""
        return frozenset(self._alone)

    def leading(self) -> m.Relation | None:
        """Return the relation that is announced before anything else, a possible partition; None if it has rows."""
        claim = self._leading
        return claim.relation if claim is not None and self._holds(claim) else None

    def trailing(self, number: int) -> tuple[int | None, tuple[Partition, ...]]:
        """Return the oid of the relation announced last in the stretch, nothing after it, and possible partitions.

        The relation may be a root, and the partitions are such unless the bytes that follow have rows of them.
        """
        if self._last is None or self._last[1] != number:
            return None, ()
        return self._last[0], tuple(Partition(*key) for key in self._trails(number))

    def _trails(self, number: int) -> list[tuple[int, m.Relation]]:
        """Return the claims after which only Relation messages follow."""
        return self._newest if self._last is not None and self._last[1] == number else []

    def _holds(self, claim: _Claim) -> bool:
        return claim.proven or self._rows_of(claim.slot) == claim.rows


@dataclass(frozen=True, slots=True)
class Sent:
    """How a relation's old rows are really sent.

    Attributes:
        relation: the relation with the replica identity and the key flags that old tuples really have.
        claims: the flagged columns have a unique index only in each partition, not in the whole table.
        differing: a text that lists partitions whose identifying columns have none in common; None if there are none.
    """

    relation: m.Relation
    claims: bool = False
    differing: str | None = None


_MOST_LISTED: Final = 4
_WORDS: Final = {"d": "primary key", "i": "index", "f": "full"}


def as_sent(root: m.Relation, partitions: Sequence[m.Relation]) -> Sent:
    """Return how a relation's old rows are sent, given the partitions whose changes are published under it.

    If all partitions send the root's own key, that identifies rows.  Otherwise it is the smallest key of a partition
    that all others send as well.
    """
    all_columns = frozenset(column.name for column in root.columns)
    keys = {partition: _sent_of(partition, all_columns) for partition in partitions}
    # A partition that sends no old tuples contradicts no key.
    keys = {partition: names for partition, names in keys.items() if names}
    root_key = _sent_of(root, all_columns)
    if not keys or (root.replica_identity != "f" and root_key and all(root_key <= names for names in keys.values())):
        return Sent(root)
    if all(names == all_columns for names in keys.values()):
        return Sent(_flagged(root, "f", all_columns))  # whatever the root's own setting is
    smallest_key = min(keys.values(), key=len)  # which the others may send, too
    if all(smallest_key <= names for names in keys.values()):
        return Sent(_flagged(root, "d", smallest_key), claims=True)
    return Sent(_flagged(root, "d", frozenset.intersection(*keys.values())), claims=True, differing=_listed(keys))


def _sent_of(relation: m.Relation, all_columns: frozenset[str]) -> frozenset[str]:
    """Return the names of the columns that old tuples of a relation have; none if there are no old tuples."""
    if relation.replica_identity == "n":
        return frozenset()
    if relation.replica_identity == "f":
        return all_columns
    return all_columns.intersection(column.name for column in relation.columns if column.key)


def _flagged(relation: m.Relation, identity: str, names: frozenset[str]) -> m.Relation:
    columns = tuple(replace(column, key=column.name in names) for column in relation.columns)
    return replace(relation, replica_identity=identity, columns=columns)


def _listed(keys: dict[m.Relation, frozenset[str]]) -> str:
    """Write a list with one partition for each different key."""
    examples: dict[frozenset[str], str] = {}
    for partition, names in keys.items():
        columns = ", ".join(column.name for column in partition.columns if column.name in names)
        examples.setdefault(names, f"{partition.qualified_name}: {_WORDS[partition.replica_identity]} ({columns})")
    unlisted = len(examples) - _MOST_LISTED
    return "; ".join(
        [*list(examples.values())[:_MOST_LISTED], *([f"and {unlisted} other ways"] if unlisted > 0 else [])]
    )

"""Where each relation's rows belong, and which tables have to move for that.

A renamed relation takes its rows along.  A relation that takes the name of another one begins anew; the other one's
rows are set aside, in the ledger, until it is heard of under a name of its own, or for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from wal2delta.errors import OrderError
from wal2delta.spark.registry import MirrorEntry
from wal2delta.spark.target import TableName, Target

RecreatePolicy = Literal["replace", "keep", "stop"]

_MANY: Final = 3
"""So many tables that were made anew at once, and more than half of all, are a restored or another server's."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A relation that the run writes to, by the name that it had last."""

    oid: int
    name: str
    table: TableName
    on_recreate: RecreatePolicy = "replace"


@dataclass(frozen=True, slots=True)
class Move:
    """A table that goes to another place."""

    oid: int
    name: str
    source: TableName
    destination: TableName
    set_aside: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """What becomes of the tables' places.

    Attributes:
        before: the entry whose rows each relation goes on with, by oid; relations that begin anew have none.
        moves: in the order in which they have to be made.
        aside: the entries, changed, of relations that are not written to but had to give way.
        replaced: the oids whose entries end, as another relation goes on with their rows.
        notes: what happened to each relation's table, by oid.
    """

    before: Mapping[int, MirrorEntry]
    moves: tuple[Move, ...]
    aside: tuple[MirrorEntry, ...]
    replaced: frozenset[int]
    notes: Mapping[int, tuple[str, ...]]


def place(entries: Sequence[MirrorEntry], wanted: Sequence[Wanted], target: Target) -> Placement:
    """Find out which tables move.

    Args:
        entries: what the ledger knows.
        wanted: the relations that the run writes to, in the order in which their names were used last.

    Raises:
        OrderError: a table was dropped and created again, and the configuration, or their number, forbids it.
    """
    known = {entry.oid: entry for entry in entries}
    at = {entry.table: entry for entry in entries if not entry.set_aside}
    # Of two relations that had one name in the run, the later one has it.
    holders = {one.table: one for one in wanted}
    before: dict[int, MirrorEntry] = {}
    notes: dict[int, list[str]] = {}
    replaced: set[int] = set()
    recreated = []
    for one in wanted:
        if one.oid in known:
            before[one.oid] = known[one.oid]
            continue
        other = at.get(one.table)
        if other is None or holders[one.table] is not one:
            continue
        if any(same.oid == other.oid and same.table != one.table for same in wanted):
            # The table that had the name has another one now.
            continue
        recreated.append(one)
        if one.on_recreate == "stop":
            raise OrderError(
                "the table was dropped and created again, or another one took its name",
                table=one.name,
                remedy="Nothing was applied; set on_recreate to replace (its old rows are set aside) or to keep",
            )
        if one.on_recreate == "keep":
            before[one.oid] = other
            replaced.add(other.oid)
            notes.setdefault(one.oid, []).append("dropped and created again; its old rows are kept")
        else:
            notes.setdefault(one.oid, []).append("dropped and created again; its old rows are set aside")
    if len(recreated) >= _MANY and 2 * len(recreated) > len(at):
        names = ", ".join(one.name for one in recreated[:_MANY])
        raise OrderError(
            f"{len(recreated)} of {len(at)} tables have new oids ({names}, …), as after a restore or on another server",
            remedy="Apply the captures of another server to another target; if the tables were really made anew, "
            "apply to a new target",
        )
    return _moves(known, before, wanted, holders, replaced, notes, target)


def _moves(
    known: Mapping[int, MirrorEntry],
    before: Mapping[int, MirrorEntry],
    wanted: Sequence[Wanted],
    holders: Mapping[TableName, Wanted],
    replaced: set[int],
    notes: dict[int, list[str]],
    target: Target,
) -> Placement:
    """Let everything that leaves its place go first, then everything that takes one."""
    aside: list[MirrorEntry] = []
    leaving: list[Move] = []
    arriving: list[Move] = []
    by_oid = {one.oid: one for one in wanted}
    for entry in known.values():
        if entry.oid in replaced:
            continue
        one = by_oid.get(entry.oid)
        refuge = target.set_aside(entry.oid)
        if one is None:
            if not entry.set_aside and entry.table in holders:
                leaving.append(Move(entry.oid, entry.name, entry.table, refuge, set_aside=True))
                aside.append(MirrorEntry(entry.oid, entry.name, refuge, entry.shape, set_aside=True))
            continue
        has_place = holders[one.table] is one
        destination = one.table if has_place else refuge
        if entry.table == destination:
            continue
        if entry.name != one.name:
            notes.setdefault(entry.oid, []).insert(0, f"renamed from {entry.name}")
        is_free = all(other.table != destination or other.oid in replaced for other in known.values())
        if entry.table == refuge:
            arriving.append(Move(entry.oid, one.name, refuge, destination, set_aside=False))
        elif is_free:
            leaving.append(Move(entry.oid, one.name, entry.table, destination, set_aside=not has_place))
        else:
            leaving.append(Move(entry.oid, entry.name, entry.table, refuge, set_aside=True))
            arriving.append(Move(entry.oid, one.name, refuge, destination, set_aside=False))
    for one in wanted:
        if holders[one.table] is not one:
            notes.setdefault(one.oid, []).append("another table has its name now; its rows are set aside")
    return Placement(
        before,
        (*leaving, *arriving),
        tuple(aside),
        frozenset(replaced),
        {oid: tuple(texts) for oid, texts in notes.items()},
    )

"""Where each relation's rows belong, and which tables have to move for that.

A renamed relation takes its rows along.  A relation that takes the name of another one begins anew; the other one's
rows are set aside, in the ledger, until it is heard of under a name of its own, or for good.

A run that is killed makes its moves again from the first.  That a table is no longer where a move takes it from says
that the move is done only as long as no other table has come there.  So everything that leaves its place goes first
(`Placement.leaving`), and what takes a place goes then (`Placement.arriving`): each of the two lists may be begun
again as often as need be, but the first no more once the second was begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from wal2delta.errors import OrderError
from wal2delta.spark.registry import MirrorEntry
from wal2delta.spark.target import TableName, Target

RecreatePolicy = Literal["replace", "keep", "stop"]

_MANY: Final = 3
"""So many tables that were made anew at once, and more than half of all, are a restored or another server's."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A relation that the run writes to, by the name that it had last.

    Attributes:
        renamed: it had another name before in the run, so that it is not its name's table made anew.
    """

    oid: int
    name: str
    table: TableName
    on_recreate: RecreatePolicy = "replace"
    renamed: bool = False


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
        leaving: the moves to be made first, to places that are free; and ``arriving`` those behind them.
        aside: the entries, changed, of relations that are not written to but had to give way.
        replaced: the oids whose entries end, as another relation goes on with their rows.
        notes: what happened to each relation's table, by oid.
    """

    before: Mapping[int, MirrorEntry]
    leaving: tuple[Move, ...]
    arriving: tuple[Move, ...]
    aside: tuple[MirrorEntry, ...]
    replaced: frozenset[int]
    notes: Mapping[int, tuple[str, ...]]

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves, in the order in which they have to be made."""
        return (*self.leaving, *self.arriving)


def place(entries: Sequence[MirrorEntry], wanted: Sequence[Wanted], target: Target) -> Placement:
    """Find out which tables move.

    Args:
        entries: what the ledger knows.
        wanted: the relations that the run writes to, in the order in which their names were used last.

    Raises:
        OrderError: a table was dropped and created again, and the configuration, or their number, forbids it.
    """
    known = {entry.oid: entry for entry in entries}
    at = {entry.table.place: entry for entry in entries if not entry.set_aside}
    by_oid = {one.oid: one for one in wanted}
    # Of two relations that had one name in the run, the later one has it.
    holders = {one.table.place: one for one in wanted}
    before = {one.oid: known[one.oid] for one in wanted if one.oid in known}
    notes: dict[int, list[str]] = {one.oid: [] for one in wanted}
    replaced: set[int] = set()
    recreated = []
    for one in wanted:
        if holders[one.table.place] is not one:
            notes[one.oid].append("another table has its name now; its rows are set aside")
            continue
        other = at.get(one.table.place)
        if other is not None and other.oid == one.oid:
            other = None
        elsewhere = other is not None and other.oid in by_oid and by_oid[other.oid].table.place != one.table.place
        if one.oid in known or one.renamed:
            if other is not None and not elsewhere:
                notes[one.oid].append("another table had its name; that one's rows are set aside")
            continue
        twice = any(same.oid != one.oid and same.table.place == one.table.place for same in wanted)
        if elsewhere or (other is None and not twice):
            # What had the name, if anything had, has another one now.
            continue
        if one.on_recreate == "stop":
            raise OrderError(
                "the table was dropped and created again, or another one took its name",
                table=one.name,
                remedy="Nothing was applied; set on_recreate to replace (its old rows are set aside) or to keep",
            )
        if other is not None:
            recreated.append(one)
        if one.on_recreate == "keep" and other is not None and not twice:
            before[one.oid] = other
            replaced.add(other.oid)
            notes[one.oid].append("dropped and created again; its old rows are kept")
        elif one.on_recreate == "keep":
            notes[one.oid].append(
                "dropped and created again; its old rows are set aside, not kept, as they too have changed in this run"
            )
        else:
            notes[one.oid].append("dropped and created again; its old rows are set aside")
    if len(recreated) >= _MANY and 2 * len(recreated) > len(at):
        names = ", ".join(one.name for one in recreated[:_MANY])
        raise OrderError(
            f"{len(recreated)} of {len(at)} tables have new oids ({names}, …), as after a restore or on another server",
            remedy="Apply the captures of another server to another target; if the tables were really made anew, "
            "apply to a new target",
        )
    aside: list[MirrorEntry] = []
    leaving: list[Move] = []
    arriving: list[Move] = []
    places = {entry.table.place for entry in entries}
    for entry in entries:
        if entry.oid in replaced:
            continue
        refuge = target.set_aside(entry.oid)
        found = by_oid.get(entry.oid)
        if found is None:
            if not entry.set_aside and entry.table.place in holders:
                leaving.append(Move(entry.oid, entry.name, entry.table, refuge, set_aside=True))
                aside.append(replace(entry, table=refuge, set_aside=True))
            continue
        has_place = holders[found.table.place] is found
        destination = found.table if has_place else refuge
        if entry.name != found.name:
            notes[entry.oid].insert(0, f"renamed from {entry.name}")
        if entry.table.place == destination.place:
            continue
        if entry.name == found.name and has_place:
            notes[entry.oid].insert(0, f"moved from {entry.table.text}")
        if entry.table.place == refuge.place:
            arriving.append(Move(entry.oid, found.name, entry.table, destination, set_aside=False))
        elif destination.place not in places:
            leaving.append(Move(entry.oid, found.name, entry.table, destination, set_aside=not has_place))
        else:
            leaving.append(Move(entry.oid, entry.name, entry.table, refuge, set_aside=True))
            arriving.append(Move(entry.oid, found.name, refuge, destination, set_aside=False))
    return Placement(
        before,
        tuple(leaving),
        tuple(arriving),
        tuple(aside),
        frozenset(replaced),
        {oid: tuple(texts) for oid, texts in notes.items() if texts},
    )

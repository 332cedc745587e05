"""Where each relation's rows belong, and which tables have to move for that.

A renamed relation takes its rows along.  A relation that takes the name of another one begins anew; the other one's
rows are set aside, in the ledger, until it is heard of under a name of its own, or for good.

A run that is killed makes its moves again from the first.  That a table is no longer where a move takes it from says
that the move is done only as long as no other table has come there.  So everything that leaves its place goes first
(`Placement.leaving`), and what takes a place goes then (`Placement.arriving`): each of the two lists may be begun
again as often as need be, but the first no more once the second was begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from walreplay.errors import OrderError
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.planning.registry import MirrorEntry

RecreatePolicy = Literal["replace", "keep", "stop"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A relation that is used in the run, by the name that it had last.

    Attributes:
        written: the run writes to its table; else all that it was used for is left out.
        said: the configuration says what ``on_recreate`` is.
    """

    oid: int
    name: str
    table: TableName
    on_recreate: RecreatePolicy = "replace"
    written: bool = True
    said: bool = False


class Use(NamedTuple):
    """A relation was used under the name that belongs to a place."""

    oid: int
    place: str


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
        holders: the relations that have the places of their names; the others' rows are set aside.
        leaving: the moves to be made first, to places that are free; and ``arriving`` those behind them.
        aside: the entries, changed, of relations that are not written to but had to give way.
        renamed: likewise of those that are not written to but have gone to the place of another name.
        replaced: the oids whose entries end, as another relation goes on with their rows.
        remade: the relations that were heard of first under the names of tables that the ledger has.
        recognised: some relation is used just as the ledger knows it.
        notes: what happened to each relation's table, by oid.
    """

    before: Mapping[int, MirrorEntry]
    holders: frozenset[int]
    leaving: tuple[Move, ...]
    arriving: tuple[Move, ...]
    aside: tuple[MirrorEntry, ...]
    renamed: tuple[MirrorEntry, ...]
    replaced: frozenset[int]
    remade: tuple[Wanted, ...]
    recognised: bool
    notes: Mapping[int, tuple[str, ...]]

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves, in the order in which they have to be made."""
        return (*self.leaving, *self.arriving)


@dataclass(slots=True)
class _Succession:
    """Who has which place as names pass from relation to relation.

    A relation without a table, of which nothing is written, has no place; but whoever was where its name says has to
    give way: it is not that one's name any more.

    Attributes:
        holders: the oid that has each place.
        displaced: the oids whose places others have taken, with the oid that did.
        anew: the relations that were heard of first in a place that another one had, with that one's oid.
        heirs: the relations that go on with another one's rows, with the entry of these.
    """

    holders: dict[str, int]
    displaced: dict[int, int] = field(default_factory=dict)
    anew: dict[int, int] = field(default_factory=dict)
    heirs: dict[int, MirrorEntry] = field(default_factory=dict)

    @staticmethod
    def of(entries: Sequence[MirrorEntry], wanted: Sequence[Wanted], uses: Iterable[Use]) -> _Succession:
        """Follow the uses, from what the ledger knows on."""
        known = {entry.oid: entry for entry in entries}
        keep = {one.oid for one in wanted if one.on_recreate == "keep"}
        busy = {one.oid for one in wanted}
        bare = {one.oid for one in wanted if not one.written and one.oid not in known}
        found = _Succession({entry.table.place: entry.oid for entry in entries if not entry.set_aside})
        places = {oid: place for place, oid in found.holders.items()}
        heard = set(known)
        for oid, place in uses:
            # Where rows are kept, they wait for those that go on with them.
            if oid in bare & keep:
                continue
            first = oid not in heard
            heard.add(oid)
            other = found.holders.get(place)
            if other == oid:
                continue
            if oid in places:
                del found.holders[places.pop(oid)]
            found.displaced.pop(oid, None)
            if other is not None:
                del places[other]
                if first:
                    found.anew[oid] = other
                if first and oid in keep and other not in busy:
                    found.heirs[oid] = known[other]
                else:
                    found.displaced[other] = oid
                del found.holders[place]
            if oid not in bare:
                found.holders[place] = oid
                places[oid] = place
        return found


def place(entries: Sequence[MirrorEntry], wanted: Sequence[Wanted], uses: Iterable[Use], target: Target) -> Placement:
    """Find out which tables move.

    Args:
        entries: what the ledger knows.
        wanted: the relations that are used in the run.
        uses: in commit order; of each of ``wanted`` at least the last one.

    Raises:
        OrderError: a table was dropped and created again, and the configuration forbids it.
    """
    uses = list(uses)
    found = _Succession.of(entries, wanted, uses)
    holders = frozenset(one.oid for one in wanted if found.holders.get(one.table.place) == one.oid)
    heirs = {entry.oid: oid for oid, entry in found.heirs.items()}
    known = {entry.oid: entry for entry in entries}
    notes = {one.oid: list(_notes(one, found, known, holders)) for one in wanted}
    aside, renamed = list[MirrorEntry](), list[MirrorEntry]()
    leaving, arriving = list[Move](), list[Move]()
    by_oid = {one.oid: one for one in wanted}
    places = {entry.table.place for entry in entries}
    for entry in entries:
        one = by_oid.get(heirs.get(entry.oid, entry.oid))
        if one is None:
            if not entry.set_aside and entry.oid in found.displaced:
                aside.append(replace(entry, table=target.set_aside(entry.oid), set_aside=True))
                leaving.append(Move(entry.oid, entry.name, entry.table, aside[-1].table, set_aside=True))
            continue
        refuge = target.set_aside(one.oid)
        has_place = one.oid in holders
        destination = one.table if has_place else refuge
        after = replace(entry, name=one.name, table=destination, set_aside=not has_place)
        if not one.written and after != entry:
            (renamed if has_place else aside).append(after)
        if entry.name != one.name:
            notes[one.oid].insert(0, f"renamed from {entry.name}")
        if entry.table.place == destination.place:
            continue
        if entry.name == one.name and has_place:
            notes[one.oid].insert(0, f"moved from {entry.table.text}")
        if entry.table.place == refuge.place:
            arriving.append(Move(one.oid, one.name, entry.table, destination, set_aside=False))
        elif destination.place not in places:
            leaving.append(Move(one.oid, one.name, entry.table, destination, set_aside=not has_place))
        else:
            leaving.append(Move(one.oid, entry.name, entry.table, refuge, set_aside=True))
            arriving.append(Move(one.oid, one.name, refuge, destination, set_aside=False))
    there = {entry.oid: entry.table.place for entry in entries if not entry.set_aside}
    return Placement(
        before={one.oid: known[one.oid] for one in wanted if one.oid in known} | found.heirs,
        holders=holders,
        leaving=tuple(leaving),
        arriving=tuple(arriving),
        aside=tuple(aside),
        renamed=tuple(renamed),
        replaced=frozenset(heirs),
        remade=tuple(one for one in _recreated(wanted, found) if found.anew[one.oid] in there),
        recognised=any(there.get(use.oid) == use.place for use in uses),
        notes={oid: tuple(texts) for oid, texts in notes.items() if texts},
    )


def _notes(one: Wanted, found: _Succession, known: Mapping[int, MirrorEntry], holders: frozenset[int]) -> Iterator[str]:
    """Say what has become of a relation's place, and of those whose place it took."""
    if one.oid not in holders:
        yield "another table has its name now; its rows are set aside"
    if one.oid in found.heirs:
        yield "dropped and created again; its old rows are kept"
    for other in (other for other, by in found.displaced.items() if by == one.oid):
        if found.anew.get(one.oid) != other:
            yield "another table had its name; that one's rows are set aside"
        elif one.on_recreate == "keep":
            yield "dropped and created again; its old rows, which too have changed in this run, are set aside, not kept"
        else:
            yield "dropped and created again; its old rows are set aside"


def _recreated(wanted: Sequence[Wanted], found: _Succession) -> list[Wanted]:
    """Give the relations that were heard of first where another one was, and have taken its place."""
    recreated = [
        one
        for one in wanted
        if one.oid in found.anew and (one.oid in found.heirs or found.displaced.get(found.anew[one.oid]) == one.oid)
    ]
    for one in recreated:
        if one.on_recreate == "stop":
            raise OrderError(
                "the table was dropped and created again, or another one took its name",
                table=one.name,
                remedy="Nothing was applied; set on_recreate to replace (its old rows are set aside) or to keep",
            )
    return recreated

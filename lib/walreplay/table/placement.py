"""Which table has which place, and which tables have to move.

A renamed relation keeps its table, which moves to the new name.  A relation that takes the name of another one begins
with an empty table.  The other one's rows are set aside in the ledger, until its relation is used under another name.

A killed run repeats its moves from the first.  A move counts as done if the table is no longer at its old place.  That
is only right while no other table has come there.  So all tables that leave a place go first (`Placement.leaving`),
then those that take one (`Placement.arriving`).  Each list may be started again as often as needed, but the first no
more once the second was started.

`Switched` has outputs that the configuration has switched on or off for a relation that has others in the target.  One
that is switched on begins with the first run that writes to it.  One that is switched off stays as it is, as all do
of a relation that is left out.  If its relation is used meanwhile, the ledger notes that changes are missing from it.
Switched on again, it is refused if it has to be whole; any other goes on, with a note.

`check_followed`: do tables that were all created again since the last run still belong to the same server?  After
`pgbench -i`, or when a dump is restored, every table has a new oid.  The same is true on another server, and the stream
does not name its server.  Another server shows only by what one server cannot have done:

- LSNs rise.  Captures whose LSNs fall are refused long before.
- Transaction ids rise, by a counter that wraps around.  A transaction with an id older than one that has committed was
  already running when that one began to write.  One or a few may have been; but not all of a run, if they are many or
  much older.
- The clock does not go back by hours.

This is checked only if it is in doubt: a table's name has passed to a new oid, and no table is used as the ledger knows
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from walreplay.config.keys import RecreatePolicy
from walreplay.config.selection import Share
from walreplay.delta.target import TableName, Target
from walreplay.errors import ConfigError, OrderError, listed
from walreplay.names import output_of, relation_of
from walreplay.stream.duplicates import Followed
from walreplay.table.registry import OFF, MirrorEntry, made_again
from walreplay.table.versions import Catalogue, Version, check_distinct


@dataclass(frozen=True, slots=True)
class UsedRelation:
    """A relation that is used in the run, under its last name.

    Attributes:
        written: the run writes to its table; otherwise all its rows are left out.
        policy_is_explicit: the configuration sets ``on_recreate``.
        share: see `MirrorEntry`.
    """

    oid: int
    name: str
    table: TableName
    on_recreate: RecreatePolicy = "replace"
    written: bool = True
    policy_is_explicit: bool = False
    share: Share | None = None


class Use(NamedTuple):
    """One use of a relation under the name of a place; ``lsn``: the commit LSN of the last rows, None if not known."""

    oid: int
    place: str
    lsn: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A table that moves to another place.

    Attributes:
        leaves: of a place that other sources have too: only these rows move; ``joins``: to such a place.
    """

    oid: int
    name: str
    source: TableName
    destination: TableName
    set_aside: bool
    leaves: Share | None = None
    joins: Share | None = None

    @property
    def is_shared(self) -> bool:
        """Rows move, and no table."""
        return self.leaves is not None or self.joins is not None


@dataclass(frozen=True, slots=True)
class Placement:
    """The result: which tables move, and which rows each relation continues with.

    Attributes:
        before: the entry whose rows each relation continues with, by oid; a relation that begins anew has none.
        holders: the relations that have the places of their names; the rows of others are set aside.
        leaving: the moves to make first, to free places; ``arriving`` are those after them.
        aside: the changed entries of relations that are not written to, but had to give way.
        renamed: the changed entries of relations that are not written to, but moved to another name.
        replaced: the oids whose entries end, because another relation continues with their rows.
        remade: the relations that first appeared under the names of tables that the ledger has.
        recognised: some relation is used exactly as the ledger knows it.
        notes: what happened to each relation's table, by oid.
    """

    before: Mapping[int, MirrorEntry]
    holders: frozenset[int]
    leaving: tuple[Move, ...]
    arriving: tuple[Move, ...]
    aside: tuple[MirrorEntry, ...]
    renamed: tuple[MirrorEntry, ...]
    replaced: frozenset[int]
    remade: tuple[UsedRelation, ...]
    recognised: bool
    notes: Mapping[int, tuple[str, ...]]

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves, in the order in which they have to be made."""
        return (*self.leaving, *self.arriving)


@dataclass(slots=True)
class _Succession:
    """Who has which place, as names pass from relation to relation.

    A relation without a table, of which nothing is written, has no place.  But the relation that was at the place of
    its name has to give way, because it no longer has that name.

    Attributes:
        holders: the oid that has each place.
        displaced: the oids whose places others have taken, with the oid of the other.
        predecessors: the relations that first appeared at another one's place, with that one's oid.
        heirs: the relations that continue with another one's rows, with the entry of these rows.
    """

    holders: dict[str, int]
    displaced: dict[int, int] = field(default_factory=dict)
    predecessors: dict[int, int] = field(default_factory=dict)
    heirs: dict[int, MirrorEntry] = field(default_factory=dict)

    @staticmethod
    def of(entries: Sequence[MirrorEntry], relations: Sequence[UsedRelation], uses: Sequence[Use]) -> _Succession:
        """Follow the uses, starting from what the ledger knows."""
        entries_by_oid = {entry.oid: entry for entry in entries}
        keep_oids = {relation.oid for relation in relations if relation.on_recreate == "keep"}
        used_oids = {relation.oid for relation in relations}
        unwritten_oids = {relation.oid for relation in relations if not relation.written}
        tableless_oids = unwritten_oids - entries_by_oid.keys()
        load_uses = _loads_as_uses(entries, uses)  # by use n: the loads whose last older use is n
        loaded_later = {use.oid for of_use in load_uses.values() for use in of_use}
        # Tables with younger loads get their places by these loads, below.
        placed_entries = (entry for entry in entries if not entry.set_aside and entry.oid not in loaded_later)
        succession = _Succession({entry.table.place: entry.oid for entry in placed_entries})
        places = {oid: place for place, oid in succession.holders.items()}
        seen = set(entries_by_oid)
        for oid, place, _ in (followed for n, use in enumerate(uses) for followed in (use, *load_uses.get(n, ()))):
            # Where rows are kept, they wait for those that go on with them.
            if oid in tableless_oids & keep_oids:
                continue
            is_first = oid not in seen
            seen.add(oid)
            other = succession.holders.get(place)
            if other == oid:
                continue
            if oid in places:
                del succession.holders[places.pop(oid)]  # it has another name now
            succession.displaced.pop(oid, None)  # with a new name it has a place again
            if other is not None:
                del places[other]
                if is_first:
                    succession.predecessors[oid] = other
                # A relation that is used in the run itself still needs its own rows.
                if is_first and oid in keep_oids and other not in used_oids:
                    succession.heirs[oid] = entries_by_oid[other]
                else:
                    succession.displaced[other] = oid
                del succession.holders[place]
            if oid not in tableless_oids:
                succession.holders[place] = oid
                places[oid] = place
        return succession


def is_before_load(lsn: int | None, entry: MirrorEntry | None) -> bool:
    """Return whether a use is older than a table's loaded rows, which are of a time at which it had its name."""
    return lsn is not None and entry is not None and lsn <= entry.rows_at


def _loads_as_uses(entries: Iterable[MirrorEntry], uses: Iterable[Use]) -> dict[int, list[Use]]:
    """Return the names of tables as of their loads, as uses, by the number of the last older use that touches them."""
    entries_by_oid = {entry.oid: entry for entry in entries}
    at_place = {entry.table.place: entry for entry in entries_by_oid.values()}
    last: dict[int, int] = {}
    for number, (oid, place, lsn) in enumerate(uses):
        for entry in (entries_by_oid.get(oid), at_place.get(place)):
            if entry is not None and is_before_load(lsn, entry):  # use and load touch one relation, or one place
                last[entry.oid] = number
    uses_behind: dict[int, list[Use]] = {}
    for oid, number in last.items():
        entry = entries_by_oid[oid]
        uses_behind.setdefault(number, []).append(Use(oid, entry.table.place, entry.rows_at))
    return uses_behind


def place_tables(
    catalogue: Catalogue,
    used: Sequence[tuple[Version, int | None]],
    entries: Sequence[MirrorEntry],
    written: Collection[int],
    target: Target,
) -> tuple[list[UsedRelation], Placement]:
    """Find out which relations are used, under which names, and which tables move.

    Args:
        used: each use of a relation version, in commit order, with its LSN.
        entries: what the ledger knows.
        written: the oids of relations that have rows in the run.

    Raises:
        OrderError: see `plan_moves`.
        ConfigError: two tables would be written to one place.
    """
    relations, last_used = _used_relations(used, {entry.oid: entry for entry in entries}, written, target)
    placed = {(entry.oid, entry.table.place) for entry in entries if not entry.set_aside}
    last_used += _idle(catalogue, entries, relations, target)
    # Who has the place comes first: the error is the other one's.
    check_distinct(sorted(last_used, key=lambda use: (use[2].oid, use[1]) not in placed))
    named = [Use(version.oid, _destination(version, target).place, lsn) for version, lsn in used]
    return relations, plan_moves(entries, relations, named, target)


def _destination(version: Version, target: Target) -> TableName:
    return target.table(version.selection.namespace, version.selection.name)


def _used_relations(
    used: Iterable[tuple[Version, int | None]],
    entries_by_oid: Mapping[int, MirrorEntry],
    written: Collection[int],
    target: Target,
) -> tuple[list[UsedRelation], list[tuple[str, str, Version]]]:
    """Return the relations that are used, each by its last version, in the order of these uses.

    A table that was loaded since then keeps the name that it was loaded by.

    Returns:
        the relations, and for `check_distinct` those that have the names of their versions.
    """
    last: dict[int, tuple[Version, int | None]] = {}
    for version, lsn in used:
        last.pop(version.oid, None)  # to the end: the order is that of the last uses
        last[version.oid] = version, lsn
    relations, last_used = list[UsedRelation](), list[tuple[str, str, Version]]()
    for oid, (version, lsn) in last.items():
        name, table, selection = version.name, _destination(version, target), version.selection
        if is_before_load(lsn, entries_by_oid.get(oid)):
            name, table = entries_by_oid[oid].name, entries_by_oid[oid].table
        else:
            last_used.append((name, table.place, version))
        has_rows, share = oid in written, selection.metadata.share
        relations.append(
            UsedRelation(oid, name, table, selection.on_recreate, has_rows, selection.recreate_is_explicit, share)
        )
    return relations, last_used


def _idle(
    catalogue: Catalogue, entries: Sequence[MirrorEntry], relations: Sequence[UsedRelation], target: Target
) -> list[tuple[str, str, Version]]:
    """Return, for `check_distinct`, tables that are not written to though others want their places."""
    oids, places = {relation.oid for relation in relations}, {relation.table.place for relation in relations}
    waiting = {
        entry.oid for entry in entries if not entry.set_aside and entry.table.place in places and entry.oid not in oids
    }
    newest = {version.oid: version for versions in catalogue.versions.values() for version in versions}
    idle = (newest[oid] for oid in sorted(waiting & newest.keys()))
    return [(version.name, _destination(version, target).place, version) for version in idle]


def plan_moves(
    entries: Sequence[MirrorEntry], relations: Sequence[UsedRelation], uses: Iterable[Use], target: Target
) -> Placement:
    """Find out which tables move.

    Args:
        entries: what the ledger knows.
        relations: those that are used in the run.
        uses: in commit order; at least the last use of each of ``relations``.

    Raises:
        OrderError: a table was dropped and created again, and the configuration forbids it.
    """
    uses = list(uses)
    succession = _Succession.of(entries, relations, uses)
    by_oid = {relation.oid: relation for relation in relations}
    holders = frozenset(oid for oid in by_oid if succession.holders.get(by_oid[oid].table.place) == oid)
    heirs = {entry.oid: oid for oid, entry in succession.heirs.items()}
    entries_by_oid = {entry.oid: entry for entry in entries}
    notes = {relation.oid: list(_notes(relation, succession, holders)) for relation in relations}
    aside, renamed = list[MirrorEntry](), list[MirrorEntry]()
    leaving, arriving = list[Move](), list[Move]()
    places = {entry.table.place for entry in entries}
    for entry in entries:
        relation = by_oid.get(heirs.get(entry.oid, entry.oid))  # the heir of these rows, or their own relation
        if relation is None:
            if not entry.set_aside and entry.oid in succession.displaced:  # not used, but its name is
                aside.append(replace(entry, table=target.set_aside(entry.oid), set_aside=True))
                leaving.append(Move(entry.oid, entry.name, entry.table, aside[-1].table, True, entry.share))
            continue
        set_aside_table = target.set_aside(relation.oid)
        has_place = relation.oid in holders
        destination = relation.table if has_place else set_aside_table
        after = replace(entry, name=relation.name, table=destination, set_aside=not has_place)
        if not relation.written and after != entry:  # written ones get their entry from TablePlan.after
            (renamed if has_place else aside).append(after)
        if entry.name != relation.name:
            notes[relation.oid].insert(0, f"renamed from {entry.name}")
        if entry.table.place == destination.place:
            continue
        if entry.name == relation.name and has_place:
            notes[relation.oid].insert(0, f"moved from {entry.table.text}")
        if has_place:
            _check_share(entry, relation)
        is_free = destination.place not in places  # set-aside places are among them
        leaves, arrives = _moves_of(entry, relation, destination, set_aside_table, is_free=is_free)
        leaving += leaves
        arriving += arrives
    place_of_oid = {entry.oid: entry.table.place for entry in entries if not entry.set_aside}
    return Placement(
        before={oid: entries_by_oid[oid] for oid in by_oid if oid in entries_by_oid} | succession.heirs,
        holders=holders,
        leaving=tuple(leaving),
        arriving=tuple(arriving),
        aside=tuple(aside),
        renamed=tuple(renamed),
        replaced=frozenset(heirs),
        remade=_remade(entries, relations, uses, succession),
        recognised=any(place_of_oid.get(use.oid) == use.place for use in uses),
        notes={oid: tuple(texts) for oid, texts in notes.items() if texts},
    )


def _moves_of(
    entry: MirrorEntry, relation: UsedRelation, destination: TableName, set_aside_table: TableName, *, is_free: bool
) -> tuple[list[Move], list[Move]]:
    """Return the moves of one table to its destination: those that leave a place, and those that arrive at theirs.

    Args:
        set_aside_table: where the table is set aside, for good or until its destination is free.
        is_free: nothing is at the destination before the run.
    """
    has_place = destination.place != set_aside_table.place
    # Set aside, a shared table's rows lie in a table of their own.
    from_share, to_share = None if entry.set_aside else entry.share, relation.share if has_place else None
    if entry.table.place == set_aside_table.place:
        return [], [Move(relation.oid, relation.name, entry.table, destination, False, None, to_share)]
    if is_free:
        return [Move(relation.oid, relation.name, entry.table, destination, not has_place, from_share, to_share)], []
    return (
        # Its destination is another table's until that one has left, so it waits at its set-aside place.
        [Move(relation.oid, entry.name, entry.table, set_aside_table, True, from_share)],
        [Move(relation.oid, relation.name, set_aside_table, destination, False, None, to_share)],
    )


def _check_share(entry: MirrorEntry, relation: UsedRelation) -> None:
    """Refuse, by a ConfigError, a table that is one of several sources under its new name alone, or no longer."""
    if entry.share != relation.share:
        raise ConfigError(
            f"the table was {'not ' if entry.share is None else ''}shared with other sources as {entry.name}, and "
            f"{'not ' if relation.share is None else ''}as {relation.name}",
            table=relation.name,
            path=relation.table.text,
            remedy="Nothing was applied; let shared_tables hold for both names, or for none; or keep its place by a "
            "destination_table under objects",
        )


def _notes(relation: UsedRelation, succession: _Succession, holders: frozenset[int]) -> Iterator[str]:
    """Describe what happened to a relation's place, and to the relations whose place it took."""
    if relation.oid not in holders:
        yield "another table has its name now; its rows are set aside"
    if relation.oid in succession.heirs:
        yield "dropped and created again; its old rows are kept"
    for other in (other for other, by in succession.displaced.items() if by == relation.oid):
        if succession.predecessors.get(relation.oid) != other:
            yield "another table had its name; that one's rows are set aside"
        elif relation.on_recreate == "keep":
            yield "dropped and created again; its old rows, which too have changed in this run, are set aside, not kept"
        else:
            yield "dropped and created again; its old rows are set aside"


def _remade(
    entries: Sequence[MirrorEntry], relations: Sequence[UsedRelation], uses: Iterable[Use], succession: _Succession
) -> tuple[UsedRelation, ...]:
    """Return the relations that first appeared under the names of tables that the ledger has.

    One that is older than a load, behind which only the loaded table could have had the name, counts too.
    """
    known_oids, used_oids = {entry.oid for entry in entries}, {relation.oid for relation in relations}
    unused = {entry.table.place: entry for entry in entries if entry.oid not in used_oids}
    placed_oids = {entry.oid for entry in entries if not entry.set_aside}
    recreated = {relation.oid for relation in _recreated(relations, succession)}
    remade = {oid for oid in recreated if succession.predecessors[oid] in placed_oids}
    remade |= {use.oid for use in uses if use.oid not in known_oids and is_before_load(use.lsn, unused.get(use.place))}
    return tuple(relation for relation in relations if relation.oid in remade)


def _recreated(relations: Sequence[UsedRelation], succession: _Succession) -> list[UsedRelation]:
    """Return the relations that first appeared at another one's place, and have taken it."""
    has_taken = {
        oid
        for oid, other in succession.predecessors.items()
        if oid in succession.heirs or succession.displaced.get(other) == oid
    }
    recreated = [relation for relation in relations if relation.oid in has_taken]
    for relation in recreated:
        if relation.on_recreate == "stop":
            raise OrderError(
                "the table was dropped and created again, or another one took its name",
                table=relation.name,
                remedy="Nothing was applied; set on_recreate to replace (its old rows are set aside) or to keep",
            )
    return recreated


BEGINS: Final = "it begins with this run: what the run did not read is not in it"
GOES_ON: Final = "it goes on with this run, after it was switched off: the changes of the runs between are not in it"
ENDS: Final = "its {} is switched off: {} stays as it is, and is no longer written"


@dataclass(frozen=True, slots=True)
class Switched:
    """What is switched.

    Attributes:
        on: the oids of outputs that begin, or go on (True), though other outputs of their relations were there.
        ended: the entries of outputs that are not wanted of relations that are used, by the oid of one that is.
        left_out: what stands for the known relations that have changes of which nothing is wanted.
    """

    on: Mapping[int, bool]
    ended: Mapping[int, tuple[MirrorEntry, ...]]
    left_out: frozenset[int]

    @classmethod
    def of(
        cls,
        entries: Sequence[MirrorEntry],
        used: Sequence[UsedRelation],
        before: Mapping[int, MirrorEntry],
        left_out: frozenset[int],
    ) -> Switched:
        """Find what is switched.

        Args:
            entries: what the ledger knows; ``before`` is what these go on with.
            used: the outputs that are wanted of the relations that are used.

        Raises:
            ConfigError: a mirror or a history that lacks changes is switched on again.
        """
        oids = {relation.oid for relation in used}
        sources = {relation_of(entry.oid) for entry in entries}
        on: dict[int, bool] = {}
        for relation in used:
            entry = before.get(relation.oid)
            if entry is None and relation_of(relation.oid) in sources:
                on[relation.oid] = False  # another output of the relation is there
            elif entry is not None and entry.paused:
                if output_of(relation.oid).is_whole:  # a change log may have gaps, and notes them
                    raise _not_whole(relation, entry)
                on[relation.oid] = True
        # In whose report it is noted: the last to come stays, which is the lowest of a relation's outputs.
        first_oids = {relation_of(oid): oid for oid in sorted(oids, reverse=True)}
        ended: dict[int, list[MirrorEntry]] = {}
        for entry in entries:
            source = relation_of(entry.oid)
            if source in first_oids and entry.oid not in oids:
                ended.setdefault(first_oids[source], []).append(entry)
        return cls(on, {oid: tuple(entries) for oid, entries in ended.items()}, left_out & sources)

    def notes(self, oid: int) -> Iterator[str]:
        """Return what is switched, for the report of a table."""
        if oid in self.on:
            yield GOES_ON if self.on[oid] else BEGINS
        for entry in self.ended.get(oid, ()):
            yield ENDS.format(output_of(entry.oid).value, entry.table.text)

    def off(self, entries: Mapping[int, MirrorEntry]) -> dict[int, MirrorEntry]:
        """Note in the ledger's entries, by oid, what changes are missing from."""
        paused = {entry.oid for ended in self.ended.values() for entry in ended}
        paused |= {oid for oid in entries if relation_of(oid) in self.left_out}
        return {oid: replace(entry, paused=entry.paused or OFF * (oid in paused)) for oid, entry in entries.items()}


def _not_whole(relation: UsedRelation, entry: MirrorEntry) -> ConfigError:
    """Return the error for a table that would go on with rows that lack changes."""
    output = output_of(relation.oid).value
    instead = f"leave {output} out of the table's outputs, or"
    if entry.name_now != replace(entry, name=relation.name).source_name:  # a rebuild makes it by what is applied
        instead = "leave it out by table_exclude_list, apply, take it in again, and"
    problem = f"the {output} is switched on again, but lacks what has changed while it was switched off"
    remedy = f"Nothing was applied; {instead} {made_again(replace(entry, name=relation.name))}"
    return ConfigError(problem, table=relation.name, path=relation.table.text, remedy=remedy)


_MANY: Final = 3
_NAMED: Final = 3


def check_followed(placement: Placement, compared: Callable[[], Followed | None], tables: int) -> None:
    """Refuse a run that must come from another server.

    Args:
        compared: compares the run's transactions with the ledger's last one; None if the ledger has none.
        tables: how many the target has.

    Raises:
        OrderError: saying why.
    """
    # Who sets on_recreate knows that the tables are new.
    if placement.recognised or all(relation.policy_is_explicit for relation in placement.remade):
        return
    followed = compared()
    if followed is not None and followed.contradiction is not None:
        raise OrderError(
            f"{_summary(placement, tables)} have new oids, no table is heard of as it was, and "
            f"{followed.contradiction}: the captures are of another server, or of a restored one",
            remedy="Nothing was applied. Apply the captures of another server to another target; if the tables were "
            "really made anew, say so by on_recreate: replace (their old rows are set aside) or keep",
        )


def warnings_of(placement: Placement, tables: int) -> Iterator[str]:
    """Warn that most of a target's tables were created again."""
    remade = _sources(placement)
    if len(remade) < _MANY or 2 * len(remade) <= tables:
        return
    kept = sum(relation.on_recreate == "keep" for relation in remade)
    rows = (
        "are kept" if kept == len(remade) else "are set aside, in the ledger" if not kept else "are set aside or kept"
    )
    yield (
        f"{_summary(placement, tables)} were dropped and created again, or other ones took their names; the old rows "
        f"{rows}. If these are captures of another server, they belong to another target"
    )


def _sources(placement: Placement) -> list[UsedRelation]:
    """Return one table of each relation whose tables were made again."""
    remade = sorted(placement.remade, key=lambda relation: -relation.oid)  # the lowest of each stays
    return list({relation_of(relation.oid): relation for relation in remade}.values())


def _summary(placement: Placement, tables: int) -> str:
    names = sorted(relation.name for relation in _sources(placement))
    return f"{len(names)} of {tables} tables ({listed(names, _NAMED)})"

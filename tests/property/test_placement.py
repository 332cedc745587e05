"""Tables end where their relations' names say, whatever is renamed or made anew, and wherever runs end or die."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walreplay.delta.target import TableName, Target
from walreplay.evolution.shapes import TableShape
from walreplay.table.placement import Move, Placement, RecreatePolicy, Use, UsedRelation, plan_moves
from walreplay.table.registry import MirrorEntry

NAMES = ("a", "b", "c", "B")
TARGETS = [Target.parse("/mirror"), Target.parse("main")]


@dataclass
class Mirror:
    """Tables in their places, each with the oids whose rows it has; and the ledger's entries."""

    target: Target
    policy: RecreatePolicy = "replace"
    tables: dict[str, list[int]] = field(default_factory=dict)
    entries: dict[int, MirrorEntry] = field(default_factory=dict)

    def move(self, step: Move) -> None:
        """Move a table, as a run does that may have moved it already."""
        if step.source.place in self.tables:
            assert step.destination.place not in self.tables, "another table would be overwritten"
            self.tables[step.destination.place] = self.tables.pop(step.source.place)

    def run(self, uses: Sequence[tuple[int, str]], dies: list[int]) -> Placement:
        """Apply a run.

        Args:
            uses: the relations that have changes, each with the name that it had, in commit order.
            dies: how many moves are made before the run dies, each time.
        """
        last = last_names(uses)
        wanted = [UsedRelation(oid, name, self.target.table("s", name), self.policy) for oid, name in last.items()]
        used = [Use(oid, self.target.table("s", name).place) for oid, name in uses]
        placement = plan_moves(tuple(self.entries.values()), wanted, used, self.target)
        assert placement.moves == (*placement.leaving, *placement.arriving)
        for moves in (placement.leaving, placement.arriving):
            for made in [*dies, len(moves)]:
                for step in moves[:made]:
                    self.move(step)
        for entry in placement.aside:
            self.entries[entry.oid] = entry
        for oid in placement.replaced:
            del self.entries[oid]
        for one in wanted:
            has_place = one.oid in placement.holders
            table = one.table if has_place else self.target.set_aside(one.oid)
            if one.oid not in placement.before:
                assert table.place not in self.tables, "a new table would be written into another one"
                self.tables[table.place] = []
            self.tables[table.place].append(one.oid)
            self.entries[one.oid] = MirrorEntry(one.oid, one.name, table, TableShape(), set_aside=not has_place)
        return placement

    def check(self) -> None:
        places = [entry.table.place for entry in self.entries.values()]
        assert len(set(places)) == len(places), "two tables in one place"
        assert set(places) == set(self.tables), "each table is known, and each that is known is there"
        for entry in self.entries.values():
            assert entry.oid in self.tables[entry.table.place]
            assert entry.set_aside == (entry.table == self.target.set_aside(entry.oid))
            if not entry.set_aside:
                assert entry.table.place == self.target.table("s", entry.name).place
            if self.policy == "replace":
                assert set(self.tables[entry.table.place]) == {entry.oid}


def last_names(uses: Sequence[tuple[int, str]]) -> dict[int, str]:
    """Return each relation's last name, in the order in which these were used last."""
    last: dict[int, str] = {}
    for oid, name in uses:
        last.pop(oid, None)
        last[oid] = name
    return last


@dataclass
class Server:
    """Relations and their names."""

    names: dict[int, str] = field(default_factory=dict)
    next: int = 1

    def create(self, name: str) -> None:
        if name not in self.names.values():
            self.names[self.next] = name
            self.next += 1

    def drop(self, name: str) -> None:
        self.names = {oid: own for oid, own in self.names.items() if own != name}

    def rename(self, name: str, to: str) -> None:
        if to not in self.names.values():
            self.names = {oid: to if own == name else own for oid, own in self.names.items()}

    def swap(self, name: str, to: str) -> None:
        swapped = {name: to, to: name}
        self.names = {oid: swapped.get(own, own) for oid, own in self.names.items()}


names = st.sampled_from(NAMES)
operations = st.one_of(
    st.tuples(st.just("create"), names),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("swap"), names, names),
    st.tuples(st.just("write"), names),
    st.tuples(st.just("write"), names),
    st.tuples(st.just("write"), names),
)
runs = st.lists(st.tuples(st.lists(operations, max_size=9), st.lists(st.integers(0, 5), max_size=3)), max_size=6)


def played(server: Server, operations: list[tuple[str, ...]]) -> list[tuple[int, str]]:
    """Return which relation each write was for, and by which name."""
    uses = []
    for operation, *arguments in operations:
        if operation == "write":
            uses += [(oid, name) for oid, name in server.names.items() if name == arguments[0]]
        else:
            getattr(server, operation)(*arguments)
    return uses


@given(runs, st.sampled_from(TARGETS), st.sampled_from(["replace", "keep"]))
def test_each_relations_rows_end_where_its_last_used_name_says(
    history: list[tuple[list[tuple[str, ...]], list[int]]], target: Target, policy: RecreatePolicy
) -> None:
    server, mirror = Server(), Mirror(target, policy)
    last_used: dict[int, str] = {}
    for run, dies in history:
        uses = played(server, run)
        used = last_names(uses)
        placement = mirror.run(uses, dies)
        last_used |= used
        mirror.check()
        last_of_place = {target.table("s", name).place: oid for oid, name in uses}
        for oid, name in used.items():
            entry = mirror.entries[oid]
            assert entry.name == name
            assert entry.set_aside == (last_of_place[target.table("s", name).place] != oid)
        # Nothing else moves but what has to give way.
        for entry in placement.aside:
            assert entry.oid not in used
        assert {entry.name for entry in mirror.entries.values()} <= set(last_used.values())
        if policy == "replace":
            # No rows are ever lost.
            assert {oid for oids in mirror.tables.values() for oid in oids} == set(last_used)


@given(runs, st.sampled_from(TARGETS))
def test_tables_end_in_the_same_places_wherever_runs_end(
    history: list[tuple[list[tuple[str, ...]], list[int]]], target: Target
) -> None:
    uses = played(Server(), [operation for run, _ in history for operation in run])
    at_once, each = Mirror(target), Mirror(target)
    at_once.run(uses, [])
    for use in uses:
        each.run([use], [])
    assert at_once.entries == each.entries
    assert at_once.tables.keys() == each.tables.keys()


def test_a_swap_that_is_begun_again_behind_its_arrivals_would_swap_back() -> None:
    # Why a run has to remember that all tables have left.
    mirror = Mirror(TARGETS[0])
    mirror.run([(1, "a"), (2, "b")], [])
    placement = mirror.run([(1, "b"), (2, "a")], [])
    assert len(placement.leaving) == len(placement.arriving) == 2
    for step in placement.moves:
        mirror.move(step)
    with pytest.raises(AssertionError):
        mirror.check()


def test_names_of_one_place_in_a_catalog_are_one_place() -> None:
    assert TableName(parts=("main", "s", "T")).place == TableName(parts=("main", "s", "t")).place
    assert TableName(path="/m/T").place != TableName(path="/m/t").place

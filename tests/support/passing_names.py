"""Runs that place and move tables, and who has each name in the end.

Runs do all that `walreplay.job.apply` does but to write rows: files are scanned, stitched and decoded, tables are
placed and moved.  What is right says `expected`: the relation that was used last under a name has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.runs import plan_run, staged_rows
from support.simulator_model import Transaction
from walreplay.config import Settings
from walreplay.delta.target import Target
from walreplay.evolution.shapes import TableShape
from walreplay.ledger.state import to_json
from walreplay.session.folders import MountedFolder
from walreplay.spark.staging import Staged, Staging
from walreplay.spark.workers.rows import Total
from walreplay.table.placement import Move
from walreplay.table.plan import TablesPlan, plan_tables
from walreplay.table.registry import MirrorEntry
from walreplay.table.versions import Catalogue

TARGET = Target.parse("/mirror")


class InMemory(Staging):
    """Staged events that nobody folds."""

    def of(self, rows: Sequence[Mapping[str, Any]]) -> dict[int, Staged]:
        """Sum up what decoding has staged."""
        self._staged = rows
        return self._summarise(self._totals())

    def _totals(self) -> list[Total]:
        found: dict[tuple[int, int, str], Total] = {}
        for row in self._staged:
            key, at = (row["table"], row["relation"], row["info"]), row["sequence"]
            was = found.get(key, Total(*key, 0, 0, at, at))
            rows, first, last = was.rows + row["rows"], min(was.first, at), max(was.last, at)
            found[key] = was._replace(rows=rows, first=first, last=last)
        # In whatever order tasks end.
        return list(found.values())[::-1]

    def _places(self, table: int) -> list[tuple[int, int]]:
        return sorted({(row["sequence"], row["relation"]) for row in self._staged if row["table"] == table})


@dataclass(frozen=True)
class Load:
    """Tables that are loaded: their names (by oid) as of an LSN."""

    lsn: int = -1
    names: Mapping[int, str] = field(default_factory=dict)


@dataclass
class Mirror:
    """A target: its tables' places, each with the oid whose rows it has, and the ledger's entries."""

    settings: Settings
    load: Load = Load()
    target: Target = TARGET
    stored: str | None = None

    def __post_init__(self) -> None:
        self.entries: tuple[MirrorEntry, ...] = tuple(
            MirrorEntry(oid, name, self.target.table(*name.split(".")), TableShape(), base_lsn=self.load.lsn + 1)
            for oid, name in self.load.names.items()
        )
        self.tables = {entry.table.place: entry.oid for entry in self.entries}

    def run(self, files: Mapping[str, bytes], *, guessing: bool) -> None:
        """Apply what is new."""
        planned = plan_run(files, self.stored, guessing=guessing, wants_origin=self.settings.origins.wants)
        if planned is None:
            return
        plan = planned.plan
        catalogue = Catalogue.of(plan, self.settings, self.entries)
        skips = self.settings.skips("t")
        truncates = {} if skips else {item.oid: (item.lsn, item.ordinal) for item in plan.truncates}
        rows = staged_rows(
            plan,
            files,
            catalogue.assignments,
            settings=self.settings.of_tasks,
            truncates=truncates,
            buckets=2,
        )
        staging = InMemory(MountedFolder(""))
        staged = staging.of(rows)
        truncated = tuple(truncates)
        self._take(plan_tables(catalogue, staged, staging.uses, truncated, self.entries, self.settings, self.target))
        self.stored = to_json(planned.plan.resume)

    def _take(self, run: TablesPlan) -> None:
        for step in run.placement.moves:
            self._move(step)
        for table in run.tables:
            if table.before is None:
                assert table.table.place not in self.tables, "a new table would be written into another one"
                self.tables[table.table.place] = table.oid
            assert self.tables[table.table.place] == table.oid
        self.entries = run.entries
        assert {entry.table.place: entry.oid for entry in self.entries} == self.tables

    def _move(self, step: Move) -> None:
        assert step.destination.place not in self.tables, "another table would be overwritten"
        self.tables[step.destination.place] = self.tables.pop(step.source.place)

    @property
    def places(self) -> Places:
        """Who is where."""
        for entry in self.entries:
            assert entry.set_aside == (entry.table == self.target.set_aside(entry.oid))
            assert entry.set_aside or entry.table == self.target.table(*entry.name.split("."))
        return Places(
            {entry.name: entry.oid for entry in self.entries if not entry.set_aside},
            {entry.oid for entry in self.entries if entry.set_aside},
        )


@dataclass
class Places:
    """The relations (by oid) that have the places of their names, and those that are set aside."""

    shown: dict[str, int]
    aside: set[int]


def expected(transactions: Sequence[Transaction], settings: Settings, load: Load = Load()) -> Places:
    """Say who has each name: whoever was used last under it, if it has a table and has gone by no other since.

    A load counts as a use of its tables behind what is among their rows.
    """
    holders: dict[str, int] = {}
    last: dict[int, str] = {}
    written: set[int] = set(load.names)
    older = [one for one in transactions if one.commit_lsn <= load.lsn]
    for one in (*older, None, *transactions[len(older) :]):
        if one is None:
            last |= load.names
            holders |= {name: oid for oid, name in load.names.items()}
            continue
        for _, op, relation, _, _ in one.changes:
            oid, name = relation.oid, relation.qualified_name
            if not settings.wants_table(relation.namespace, relation.name):
                continue
            holders[name], last[oid] = oid, name
            if settings.origins.wants(one.origin) and not settings.skips(op):
                written.add(oid)
    shown = {name: oid for name, oid in holders.items() if oid in written and last[oid] == name}
    return Places(shown, written - set(shown.values()))

"""A rebuild of a target that nobody has damaged leaves it as it is, however its tables have come to be.

``WALREPLAY_REBUILDS=n`` tries so many random targets, and not 40; ``WALREPLAY_SEED=n`` the one of that seed alone.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.extent import further
from support.fault_cases import FAULTS
from support.moments import outputs_at
from support.readers import read
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, relation, rows_of
from walreplay.errors import TargetError
from walreplay.loading.description import Description, write_description
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

HISTORY: Final = {"outputs": ["mirror", "history"]}


def assert_rebuild_changes_nothing(
    spark: SparkSession, captures: Path, target: Path | str, config: dict[str, Any]
) -> None:
    """Assert that all tables are told to be right, and have the versions and rows that they had."""
    assert_versions_in_order(Path(target))
    before, versions = rows_of(target), _versions(Path(target))
    report = walreplay.rebuild(spark, captures, target, ".*", config=config)
    assert {table.name: table.action for table in report.tables if table.action != "unchanged"} == {}
    assert (rows_of(target), _versions(Path(target))) == (before, versions)


def assert_versions_in_order(target: Path) -> None:
    """Assert that no version of a history ends before it begins."""
    for location in outputs_at(target)["history"].values():
        for row in read(location).to_pylist():
            assert row["__end_lsn"] is None or row["__start_lsn"] <= row["__end_lsn"]
            assert row["__END_AT"] is None or row["__START_AT"] <= row["__END_AT"]


def _versions(target: Path) -> dict[str, int]:
    logs = target.glob("*/*/_delta_log")
    return {str(log.parent): len(list(log.glob("*.json"))) for log in logs if log.parts[-3] != "_walreplay"}


def test_loads_with_nothing_applied_between_them_are_repeated_in_their_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, target = FAULTS / "rebuild_after_two_loads", tmp_path / "mirror"
    at: dict[str, Any] = {"captures": folder / "captures", "target": target, "config": HISTORY}

    def load(name: str, *, replace: bool = True) -> None:
        described, point = folder / f"{name}.jsonl", (folder / f"{name}.lsn").read_text().strip()
        walreplay.load(spark, folder / name, describe=described, consistent_point=point, replace=replace, **at)

    load("base", replace=False)
    walreplay.backfill(spark, until_lsn="0/12637F50", **at)
    load("base2")
    load("base3")
    walreplay.apply(spark, **at)
    (found,) = outputs_at(target)["mirror"].values()
    assert sorted(read(found).select(["id", "a"]).to_pylist(), key=str) == [
        {"id": 1, "a": 1101},
        {"id": 2, "a": 1102},
        {"id": 3, "a": 1103},
        {"id": 4, "a": 4},
    ]
    assert_rebuild_changes_nothing(spark, at["captures"], target, HISTORY)


@dataclass
class Table:
    """A table of a source that there is not: its rows are texts by column."""

    oid: int
    name: str
    identity: str
    columns: dict[str, int] = field(default_factory=lambda: {"id": INT4, "note": TEXT})
    rows: list[dict[str, str]] = field(default_factory=list)

    @property
    def relation(self) -> m.Relation:
        """Return what announces it."""
        return relation(self.oid, self.name, self.columns, self.identity)

    def tuple(self, row: dict[str, str]) -> m.TupleData:
        """Return a row as it is sent; what it lacks is NULL."""
        texts = (row.get(name) for name in self.columns)
        return m.TupleData(tuple(m.NULL_CELL if text is None else m.Cell("t", text.encode()) for text in texts))

    def key(self, row: dict[str, str]) -> m.TupleData:
        """Return what names an old row."""
        return self.tuple(row if self.identity == "f" else {"id": row["id"]})


class Source:
    """A source at work by chance, and its mirror: loads, runs, renames, columns and tables that come and go."""

    def __init__(self, mirror: SmallMirror, folder: Path, chance: random.Random) -> None:
        self.mirror, self.folder, self.chance = mirror, folder, chance
        outputs = [*(["history"] if chance.random() < 0.7 else []), *(["changelog"] if chance.random() < 0.3 else [])]
        self.config: dict[str, Any] = {"outputs": ["mirror", *outputs]}
        self.tables = [Table(9, "one", "d"), Table(10, "two", "d"), Table(11, "bag", "f")]
        self.then: dict[int, list[Table]] = {}
        self.applied = self.loads = 0
        self.done: list[str] = []

    def transaction(self) -> None:
        """Write a transaction of some tables' changes, each behind its announcement."""
        chance, messages = self.chance, list[m.AnyMessage]()
        for table in chance.sample(self.tables, chance.randrange(1, 3)):
            messages.append(table.relation)
            if chance.random() < 0.07:
                messages.append(m.Truncate((table.oid,), 0))
                table.rows.clear()
            for _ in range(chance.randrange(1, 4)):
                messages.append(self._change(table))
        self.mirror.write(*messages)
        self.then[100 * self.mirror.files] = deepcopy(self.tables)

    def _change(self, table: Table) -> m.AnyMessage:
        chance, kind = self.chance, self.chance.choice("iiud")
        if not table.rows or kind == "i":
            taken = {row["id"] for row in table.rows} if table.identity == "d" else set()
            number = next(n for n in iter(lambda: chance.randrange(30), None) if str(n) not in taken)
            row = {"id": str(number), **self._values(table)}
            table.rows.append(row)
            return m.Insert(table.oid, table.tuple(row))
        row = chance.choice(table.rows)
        key = table.key(row)
        if kind == "d":
            table.rows.remove(row)
            is_full = table.identity == "f"
            return m.Delete(table.oid, None if is_full else key, key if is_full else None)
        row |= self._values(table)
        return m.Update(table.oid, table.tuple(row), old=key if table.identity == "f" else None)

    def _values(self, table: Table) -> dict[str, str]:
        return {name: str(self.chance.randrange(100)) for name in table.columns if name != "id"}

    def unsent(self) -> None:
        """Change rows as a rewriting ALTER TABLE does, of which nothing is sent."""
        for row in self.chance.choice(self.tables).rows:
            row["note"] = f"unsent {row['note']}"

    def load(self) -> None:
        """Load some tables as they are now."""
        self._load(100 * self.mirror.files + self.chance.randrange(1, 99), self.tables)

    def load_late(self) -> None:
        """Load some tables as they were before what is applied."""
        if lsns := [lsn for lsn in self.then if lsn < self.applied]:
            lsn = self.chance.choice(lsns)
            self._load(lsn, self.then[lsn])

    def _load(self, lsn: int, tables: Sequence[Table]) -> None:
        self.loads += 1
        base = self.folder / f"base{self.loads}"
        base.mkdir()
        chosen = self.chance.sample(tables, self.chance.randrange(1, len(tables) + 1))
        for table in chosen:
            lines = ("\t".join(row.get(name, "\\N") for name in table.columns) for row in table.rows)
            (base / f"s.{table.name}.copy").write_text("".join(f"{line}\n" for line in lines))
        described = base.with_suffix(".jsonl")
        described.write_text(write_description([table.relation for table in chosen], Description.of((), ())))
        to: dict[str, Any] = {"captures": self.mirror.captures, "config": self.config, "replace": True}
        walreplay.load(self.mirror.spark, base, self.mirror.target, lsn, describe=described, **to)

    def apply(self) -> None:
        """Apply what there is."""
        if self.mirror.files:
            self.mirror.apply(**self.config)
            self.applied = 100 * self.mirror.files

    def rename(self) -> None:
        """Give a table another name, or swap two; both write a row, by which it is known."""
        one, two = self.chance.sample(self.tables, 2)
        one.name, two.name = (two.name, one.name) if self.chance.random() < 0.4 else (f"{one.name}x", two.name)
        changes = [(table.relation, self._change(table)) for table in (one, two)]
        self.mirror.write(*(message for pair in changes for message in pair))
        self.then[100 * self.mirror.files] = deepcopy(self.tables)

    def recreate(self) -> None:
        """Drop a table, and create one of its name."""
        number = self.chance.randrange(len(self.tables))
        before = self.tables[number]
        self.tables[number] = Table(before.oid + 100, before.name, before.identity)
        self.transaction()

    def alter(self) -> None:
        """Add a column, drop the last one, or widen the key's type."""
        table = self.chance.choice(self.tables)
        last = list(table.columns)[-1]
        if self.chance.random() < 0.3:
            table.columns["id"] = INT8
        elif last != "note" and self.chance.random() < 0.5:
            del table.columns[last]
            for row in table.rows:
                row.pop(last, None)
        else:
            table.columns[f"more{len(self.done)}"] = INT4

    def go(self) -> None:
        """Do something."""
        kinds = [self.transaction, self.load, self.unsent, self.apply, self.load_late, self.rename, self.alter]
        weights = [30, 22, 10, 22, 8, 6, 6]
        (act,) = self.chance.choices([*kinds, self.recreate], [*weights, 2])
        self.done.append(act.__name__)
        try:
            act()
        except TargetError as error:
            if not any(reason in error.problem for reason in _REFUSED):
                raise
            self.done.append(error.problem)


_REFUSED: Final = (
    "a table of the target has to move first",
    "there is no place for the rows",
    "rows of a load as of a later LSN",
)
"""Why a load may have to wait, or be another one."""

_SEEDS: Final = (
    [int(os.environ["WALREPLAY_SEED"])]
    if "WALREPLAY_SEED" in os.environ
    else range(int(os.environ.get("WALREPLAY_REBUILDS") or 40))
)


@pytest.mark.parametrize("seed", further(_SEEDS[:6], but=_SEEDS[:1], long=_SEEDS[6:]))
def test_a_rebuild_of_an_undamaged_target_changes_nothing(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark" if chance.random() < 0.2 else "")
    source = Source(SmallMirror(spark, tmp_path / "small"), tmp_path, chance)
    for _ in range(chance.randrange(6, 16)):
        source.go()
    source.transaction()
    source.apply()
    try:
        assert_rebuild_changes_nothing(spark, source.mirror.captures, source.mirror.target, source.config)
    except AssertionError:
        print(source.config, source.done)
        raise
    finally:
        shutil.rmtree(tmp_path / "small")

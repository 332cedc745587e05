"""A rebuild of a target that nobody has damaged leaves it as it is, however its tables have come to be.

``WALREPLAY_REBUILDS=n`` tries so many random targets, and not 40; ``WALREPLAY_SEED=n`` the one of that seed alone.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.extent import further
from support.fault_cases import FAULTS
from support.moments import outputs_at
from support.random_source import Held, Source
from support.readers import read
from support.small_mirror import SmallMirror, rows_of
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


@pytest.mark.full
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


class Course:
    """A source at work by chance, and its mirror: loads, runs, renames, columns and tables that come and go."""

    def __init__(self, mirror: SmallMirror, folder: Path, chance: random.Random) -> None:
        self.mirror, self.folder, self.chance = mirror, folder, chance
        outputs = [*(["history"] if chance.random() < 0.7 else []), *(["changelog"] if chance.random() < 0.3 else [])]
        self.config: dict[str, Any] = {"outputs": ["mirror", *outputs]}
        self.source = Source(chance, mirror)
        for name, identity in (("one", "d"), ("two", "d"), ("bag", "f")):
            self.source.created(name, identity)
        self.applied = self.loads = 0
        self.done: list[str] = []

    def oid(self) -> int:
        return self.chance.choice(list(self.source.tables))

    def transaction(self) -> None:
        """Write a transaction of some tables' changes, each behind its announcement."""
        oids = self.chance.sample(list(self.source.tables), self.chance.randrange(1, 3))
        parts = (
            self.source.changed(oid, *([m.Truncate((oid,), 0)] if self.chance.random() < 0.07 else [])) for oid in oids
        )
        self.source.commit(chain.from_iterable(parts))

    def unsent(self) -> None:
        """Change rows as a rewriting ALTER TABLE does, of which nothing is sent."""
        self.source.tables[self.oid()].rewrite(lambda values: [values[0], f"unsent {values[1]}", *values[2:]])

    def load(self) -> None:
        """Load some tables as they are now."""
        self._load(self.source.lsn + self.chance.randrange(1, 99), self.source.now())

    def load_late(self) -> None:
        """Load some tables as they were before what is applied."""
        if lsns := [lsn for lsn in self.source.held if 0 < lsn < self.applied]:
            lsn = self.chance.choice(lsns)
            self._load(lsn, self.source.held[lsn])

    def _load(self, lsn: int, tables: Mapping[str, Held]) -> None:
        self.loads += 1
        base = self.folder / f"base{self.loads}"
        base.mkdir()
        chosen = self.chance.sample(list(tables), self.chance.randrange(1, len(tables) + 1))
        for name in chosen:
            lines = ("\t".join("\\N" if one is None else str(one) for one in row) for row in tables[name].rows)
            (base / f"{name}.copy").write_text("".join(f"{line}\n" for line in lines))
        described = base.with_suffix(".jsonl")
        described.write_text(write_description([tables[name].relation for name in chosen], Description.of((), ())))
        to: dict[str, Any] = {"captures": self.mirror.captures, "config": self.config, "replace": True}
        walreplay.load(self.mirror.spark, base, self.mirror.target, lsn, describe=described, **to)

    def apply(self) -> None:
        """Apply what there is."""
        if self.mirror.files:
            self.mirror.apply(**self.config)
            self.applied = self.source.lsn

    def rename(self) -> None:
        """Give a table another name, or swap two; they write rows, by which it is known."""
        self.source.commit(chain.from_iterable(map(self.source.changed, self.source.rename(self.oid()))))

    def recreate(self) -> None:
        """Drop a table, and create one of its name."""
        before = self.source.tables[self.oid()].relation
        self.source.commit(self.source.created(before.name, before.replica_identity))

    def alter(self) -> None:
        """Add a column, drop the last one, or widen the key's type."""
        oid = self.oid()
        columns = self.source.tables[oid].names
        if self.chance.random() < 0.3:
            self.source.alter(oid, wide=True)
        elif len(columns) > 2 and self.chance.random() < 0.5:
            self.source.alter(oid, columns=columns[:-1])
        else:
            self.source.alter(oid, columns=[*columns, f"more{len(self.done)}"])

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


@pytest.mark.parametrize("seed", further(_SEEDS[:6], long=_SEEDS[6:]))
def test_a_rebuild_of_an_undamaged_target_changes_nothing(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark" if chance.random() < 0.2 else "")
    course = Course(SmallMirror(spark, tmp_path / "small"), tmp_path, chance)
    for _ in range(chance.randrange(6, 16)):
        course.go()
    course.transaction()
    course.apply()
    try:
        assert_rebuild_changes_nothing(spark, course.mirror.captures, course.mirror.target, course.config)
    except AssertionError:
        print(course.config, course.done)
        raise
    finally:
        shutil.rmtree(tmp_path / "small")

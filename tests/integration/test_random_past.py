"""What is called exact of the past is what the source held then, whatever has become of the tables since.

``WALREPLAY_PASTS=n`` tries so many seeds, and not 20; ``WALREPLAY_SEED=n`` the one of that seed alone.  Each says how
many LSNs it has asked about, how many answers there were, and how many of them were called exact.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.extent import further
from support.fault_cases import FAULTS
from support.random_source import Source
from support.small_mirror import SmallMirror, forget
from walreplay.errors import WalReplayError
from walreplay.lsn import format_lsn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

OUTPUTS: Final = ["mirror", "history", "changelog"]
SEEDS: Final = (
    [int(os.environ["WALREPLAY_SEED"])]
    if "WALREPLAY_SEED" in os.environ
    else range(int(os.environ.get("WALREPLAY_PASTS") or 20))
)


class Past:
    """A target that is made by random runs, and spoilt and mended between them."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.spark, self.chance = spark, random.Random(seed)
        self.catalog = "spark_catalog" if seed % 5 == 4 else None
        self.mirror = SmallMirror(spark, folder, self.catalog)
        self.source = Source(self.chance, self.mirror)
        self.config: dict[str, Any] = {"outputs": list(OUTPUTS)}
        if seed % 4 == 1:
            self.config["track_history_except_column_list"] = ["v"]
        if seed % 4 == 2:
            self.config["soft_deletes"] = True
        if seed % 4 == 3:
            self.config["outputs"] = self.chance.choice([["mirror"], ["mirror", "changelog"], ["history"]])
        self.seen: Counter[str] = Counter()
        self.is_over = False

    def make(self, steps: int) -> None:
        self.source.commit(self.source.created("a"))
        self.source.commit(self.source.created("b"))
        self.apply()
        ways: list[Callable[[], None]] = [self.spoil, self.remove, self.restore, self.load, self.small, self.switch]
        for _ in range(steps):
            if self.is_over:
                return
            for _ in range(self.chance.randrange(1, 4)):
                self.source.work()
            if self.chance.random() < 0.7:
                way = self.chance.choice(ways)
                self.seen[way.__name__] += 1
                try:
                    way()
                except WalReplayError as error:
                    self.seen[f"refused {way.__name__}: {str(error)[-90:]}"] += 1
                forget(self.spark)
            self.apply()

    def apply(self) -> None:
        try:
            self.mirror.apply(**self.config)
        except WalReplayError:
            self.seen["refused apply"] += 1
            try:
                self.mirror.apply(accept_changed_tables=True, **self.config)
            except WalReplayError:
                # A table is gone for good, as its loaded rows cannot be read again: the past is what there is.
                self.is_over = True

    def tables(self, name: str = "") -> list[str]:
        """Return in SQL the tables whose names begin so."""
        if self.catalog is None:
            logs = Path(self.mirror.target).glob(f"s/{name}*/_delta_log")
            return sorted(f"delta.`{log.parent}`" for log in logs)
        found = self.spark.sql(f"SHOW TABLES IN s LIKE '{name}*'").collect()
        return sorted(f"s.{one.tableName}" for one in found)

    def table(self) -> str:
        return self.chance.choice(self.tables())

    def spoil(self) -> None:
        """Somebody deletes rows, which a run then takes as they are."""
        self.spark.sql(f"DELETE FROM {self.table()} WHERE id < 5")

    def restore(self) -> None:
        """Somebody deletes rows, and takes that back."""
        place = self.table()
        (last,) = self.spark.sql(f"DESCRIBE HISTORY {place} LIMIT 1").collect()
        self.spark.sql(f"DELETE FROM {place} WHERE id < 5")
        self.spark.sql(f"RESTORE TABLE {place} TO VERSION AS OF {last.version}")

    def remove(self) -> None:
        """A table's folders are gone, and are made again; or it is made again as it is."""
        name = self.chance.choice(list(self.source.tables.values())).relation.name
        if self.chance.random() < 0.7:
            for table in self.tables(name):
                if self.catalog is None:
                    shutil.rmtree(table.split("`")[1])
                else:
                    self.spark.sql(f"DROP TABLE {table}")
            forget(self.spark)
        walreplay.rebuild(self.spark, self.mirror.captures, self.mirror.target, rf"s\.{name}", config=self.config)

    def load(self) -> None:
        """A table's rows are loaded, as of a later LSN than what is applied."""
        name, held = self.chance.choice(list(self.source.now().items()))
        columns = ", ".join(f"{one} {'int' if one == 'id' else 'string'}" for one in held.columns)
        rows = self.spark.createDataFrame(held.rows, columns)
        where = self.mirror.target, self.source.lsn
        walreplay.load(
            self.spark, rows, *where, table=name, replace=True, config=self.config, captures=self.mirror.captures
        )

    def small(self) -> None:
        """Files are written together, and old ones removed."""
        place = self.table()
        self.spark.sql(f"OPTIMIZE {place}")
        if self.chance.random() < 0.6:
            self.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
            self.spark.sql(f"VACUUM {place} RETAIN 0 HOURS")

    def switch(self) -> None:
        """Outputs are switched on and off."""
        self.config["outputs"] = self.chance.sample(OUTPUTS, self.chance.randrange(1, 4))

    def ask(self, lsn: int) -> None:
        """Compare all answers that are called exact with the source."""
        self.seen["LSNs"] += 1
        held = self.source.held[lsn // 100 * 100]
        moment = walreplay.as_of(self.spark, self.mirror.target, format_lsn(lsn), config=self.config)
        names = [(one.name, one.output) for one in moment.tables]
        assert len(names) == len(set(names)), names
        for one in moment.tables:
            self.seen["answers"] += 1
            assert one.exact or one.note
            if not one.exact:
                self.seen[f"not exact: {one.output}: {one.note[:60]}"] += 1
                continue
            assert one.sql is not None
            self.seen["exact"] += 1
            table = held.get(one.name)
            frame = self.spark.sql(one.sql)
            own = [name for name in frame.columns if not name.startswith("_")]
            assert table is None or own == table.columns, (lsn, one)
            found = sorted((tuple(values) for values in frame.select(*own).collect()), key=repr)
            assert found == (table.rows if table else []), (lsn, one, found, table)


_QUICK: Final = (0, 2)
_LONG: Final = [(seed, 8) for seed in SEEDS]


@pytest.mark.parametrize(
    ("seed", "steps"),
    further([_QUICK, (0, 4)], long=_LONG[1:]) if "WALREPLAY_SEED" not in os.environ else _LONG,
)
def test_what_is_exact_is_what_the_source_held(
    spark: SparkSession, tmp_path: Path, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark" if seed % 3 == 2 else "")
    past = Past(spark, tmp_path, seed)
    try:
        past.make(steps)
        applied = walreplay.status(spark, past.mirror.target).applied_lsn or 0
        ends = [lsn for lsn in sorted(past.source.held)[1:] if lsn <= applied]
        for lsn in past.chance.sample(ends, min(20 if steps == 8 else steps // 2, len(ends))):
            past.ask(lsn + past.chance.choice([0, 0, 50]) if lsn != ends[-1] else lsn)
    finally:
        print(f"seed {seed}: {past.seen['LSNs']} LSNs, {past.seen['answers']} answers, {past.seen['exact']} exact")
        print(*(f"{count:6} {what}" for what, count in past.seen.most_common()), sep="\n")
        if past.catalog is not None:
            for schema in ("s", "_walreplay"):
                spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    # Others may have been spoilt all through.
    assert past.seen["exact"] or seed != 0


CASES: Final = {
    "cut_behind_a_rebuild": ({"outputs": ["mirror", "history"]}, [(1, 1)]),
    "cut_before_a_new_table": ({"outputs": OUTPUTS}, [(1, 1)]),
    "cut_untracked_columns": (
        {"outputs": ["mirror", "history"], "track_history_except_column_list": ["seen"]},
        [(1, 1, 1)],
    ),
}


@pytest.mark.parametrize("name", further(CASES, but=("cut_untracked_columns",)))
def test_cuts_that_were_wrong_once(spark: SparkSession, tmp_path: Path, name: str) -> None:
    config, right = CASES[name]
    target, captures = tmp_path / "mirror", FAULTS / name / "captures"
    for lsn in LSNS[name]:
        walreplay.backfill(spark, captures, target, until_lsn=lsn, config=config)
    if name == "cut_behind_a_rebuild":
        shutil.rmtree(target / "shop")
        walreplay.rebuild(spark, captures, target, r"shop\.g", config=config)
        forget(spark)
    moment = walreplay.as_of(spark, target, LSNS[name][0], config=config)
    exact = {}
    for one in moment.tables:
        if one.exact:
            frame = spark.sql(one.sql)
            columns = [column for column in frame.columns if not column.startswith("_")]
            exact[one.output] = [tuple(values) for values in frame.select(*columns).collect()]
    cut = walreplay.versions_at(spark, target, 1)
    if name == "cut_behind_a_rebuild":
        assert exact == {"history": right}
        assert [(table.sql, table.exact) for table in cut.tables] == [(None, False)] * 2
        assert all("made anew" in table.note for table in cut.tables)
    elif name == "cut_before_a_new_table":
        assert exact == dict.fromkeys(OUTPUTS, right)
        assert all(one.name == "shop.g" and one.name_now is None for one in moment.tables)
        now = walreplay.as_of(spark, target, LSNS[name][1], config=config).tables
        assert all(one.exact and one.name_now == "shop.g" for one in now)
        assert {tuple(spark.sql(one.sql).select("id", "a").collect()[0]) for one in now} == {(7, 7)}
    else:
        assert exact == {"mirror": right}
        (history,) = (one for one in moment.tables if one.output == "history")
        assert "columns seen are not tracked" in history.note


LSNS: Final = {
    "cut_behind_a_rebuild": ["0/4FE50D0", "0/4FE51B8", "0/4FE52A0"],
    "cut_before_a_new_table": ["0/6A991D0", "0/6DE0060"],
    "cut_untracked_columns": ["0/85852B0", "0/8585398", "0/8585480"],
}

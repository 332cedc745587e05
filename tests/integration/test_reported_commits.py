"""What a run reports of its commits is what the tables' own histories say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_TABLES = 6


def _relation(number: int) -> m.Relation:
    # The last table has no key.
    return relation(100 + number, f"t{number}", {"id": INT4, "text": TEXT}, "d" if number < _TABLES - 1 else "f")


@pytest.mark.full
def test_versions_and_counts_of_tables_that_are_written_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    # Of each table as many runs as its number, so that no two are at the same version.
    for run in range(_TABLES):
        messages: list[m.AnyMessage] = []
        for number in range(run, _TABLES):
            oid = 100 + number
            messages.append(_relation(number))
            if run == 0:
                messages += [m.Insert(oid, row(id_, "first")) for id_ in range(number + 2)]
            elif number < _TABLES - 1:
                messages += [m.Update(oid, row(0, "later")), m.Insert(oid, row(100 + run, "new"))]
                messages.append(m.Delete(oid, key=row(1, "") if run == 1 else row(99 + run, "")))
            else:
                old, new = ("first", f"run {run}") if run == 1 else (f"run {run - 1}", f"run {run}")
                messages.append(m.Update(oid, row(0, new), old=row(0, old)))
        report = mirror.apply(*messages)
        assert len(report.tables) == _TABLES - run
        for table in report.tables:
            (newest,) = spark.sql(f"DESCRIBE HISTORY delta.`{table.location}` LIMIT 1").collect()
            metrics = newest.operationMetrics
            inserted = metrics.get("numTargetRowsInserted", metrics.get("numOutputRows"))
            told = (table.version, table.inserted, table.updated, table.deleted)
            assert told == (
                newest.version,
                int(inserted),
                int(metrics.get("numTargetRowsUpdated", 0)),
                int(metrics.get("numTargetRowsDeleted", 0)),
            )
            if run and table.name != f"s.t{_TABLES - 1}":
                assert told[1:] == (1, 1, 1)


def test_a_new_table_is_created_whatever_becomes_of_it_in_its_first_run(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    keyed, whole = (relation(1, "t", {"id": INT4, "v": TEXT}, identity) for identity in "df")
    report = mirror.apply(keyed, m.Insert(1, row(1, "a")), whole, m.Insert(1, row(2, "b")))
    (table,) = report.tables
    assert (table.action, table.version, table.inserted) == ("created", 1, 2), "in two commits"
    assert mirror.apply(m.Update(1, row(1, "c"), old=row(1, "a"))).tables[0].action == "merged"

"""What a run reports of its commits is what the tables' own histories say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.writer import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_TABLES = 6


def _relation(number: int) -> m.Relation:
    # The last table has no key.
    key = number < _TABLES - 1
    columns = (m.Column("id", 23, -1, key), m.Column("text", 25, -1, False))
    return m.Relation(100 + number, "s", f"t{number}", "d" if key else "f", columns)


def _row(id_: int, text: str) -> m.TupleData:
    return m.TupleData((m.Cell("t", b"%d" % id_), m.Cell("t", text.encode())))


@pytest.mark.full
def test_versions_and_counts_of_tables_that_are_written_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    # Of each table as many runs as its number, so that no two are at the same version.
    for run in range(_TABLES):
        lsn = 100 * (run + 1)
        messages: list[m.AnyMessage] = [m.Begin(lsn, lsn, run + 1)]
        for number in range(run, _TABLES):
            oid = 100 + number
            messages.append(_relation(number))
            if run == 0:
                messages += [m.Insert(oid, _row(id_, "first")) for id_ in range(number + 2)]
            elif number < _TABLES - 1:
                messages += [m.Update(oid, _row(0, "later")), m.Insert(oid, _row(100 + run, "new"))]
                messages.append(m.Delete(oid, key=_row(1, "") if run == 1 else _row(99 + run, "")))
            else:
                old, new = ("first", f"run {run}") if run == 1 else (f"run {run - 1}", f"run {run}")
                messages.append(m.Update(oid, _row(0, new), old=_row(0, old)))
        messages.append(m.Commit(0, lsn, lsn + 8, lsn))
        (captures / f"{run}.bin").write_bytes(frame(messages, Framing.RAW))
        report = walreplay.apply(spark, captures=captures, target=target)
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

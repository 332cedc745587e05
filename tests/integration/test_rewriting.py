"""Small tables that are written anew, where a MERGE could have done it: the same rows, counts and history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.readers import collect
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.truth import assert_mirror_equals
from support.writing import begin_append, only_merge, opened
from walreplay.delta import statements as delta
from walreplay.delta.commits import DELETION_VECTORS
from walreplay.delta.target import TableName
from walreplay.protocol import messages as m
from walreplay.writing.rewrite import RewriteFold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


_T = relation(9, "t", {"id": INT4, "v": TEXT})


def _rows(mirror: SmallMirror) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, collect(mirror.location("t"), "id", "v")))


def _newest(mirror: SmallMirror) -> tuple[str, bool, Mapping[str, str]]:
    """Return the last commit's operation, whether it says on what it has matched rows, and its counts."""
    (newest,) = mirror.spark.sql(f"DESCRIBE HISTORY delta.`{mirror.location('t')}` LIMIT 1").collect()
    return newest.operation, newest.operationParameters.get("predicate", "[]") != "[]", newest.operationMetrics


_FIRST = (_T, *(m.Insert(9, row(number, "first")) for number in range(10)))
_LATER = (
    m.Update(9, row(1, "later")),
    m.Update(9, row(2, "later")),
    m.Delete(9, key=row(3, None)),
    m.Insert(9, row(20, "new")),
    # Of rows that are not there.
    m.Update(9, row(30, "lost")),
    m.Delete(9, key=row(31, None)),
)
_ROWS = [(0, "first"), (1, "later"), (2, "later"), *((n, "first") for n in range(4, 10)), (20, "new"), (30, "lost")]
_COUNTED = ("Inserted", "Updated", "Deleted", "MatchedUpdated", "MatchedDeleted", "Copied")


def test_rows_counts_and_history_are_those_of_a_merge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("anew", "merged"):
        if name == "merged":
            only_merge(monkeypatch)
        mirror = SmallMirror(spark, tmp_path / name)
        mirror.apply(*_FIRST)
        (table,) = mirror.apply(_T, *_LATER).tables
        assert _rows(mirror) == _ROWS
        operation, has_predicate, metrics = _newest(mirror)
        assert has_predicate == (name == "merged")
        counts = [metrics[f"numTargetRows{kind}"] for kind in _COUNTED]
        told = (table.action, table.inserted, table.updated, table.deleted, table.without_base)
        assert operation == ("MERGE" if name == "merged" else "WRITE")
        found.append((counts, told, table.deletes_without_row, table.version, metrics["numSourceRows"]))
        assert metrics.keys() >= {"numTargetFilesAdded", "numTargetFilesRemoved", "numOutputRows"}
    assert found[0][:4] == found[1][:4]
    assert found[0][0] == ["2", "2", "1", "2", "1", "7"]


def test_a_table_that_loses_all_its_rows_and_one_that_loses_none(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(*_FIRST)
    mirror.apply(_T, *(m.Delete(9, key=row(number, None)) for number in range(10)))
    assert _rows(mirror) == []
    (table,) = mirror.apply(_T, m.Delete(9, key=row(5, None))).tables
    assert (table.deleted, table.deletes_without_row) == (0, 1)
    assert table.version == 2
    mirror.apply(_T, m.Insert(9, row(1, "again")))
    assert _rows(mirror) == [(1, "again")]
    assert _newest(mirror)[:2] == ("WRITE", False)


@pytest.mark.parametrize("name", further(["o03", "o04", "o26"], but=("o04",)))
def test_a_merge_makes_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    only_merge(monkeypatch)
    recorded = case(name)
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    middle = len(recorded.files) // 2
    for files in (recorded.files[:middle], recorded.files[middle:]):
        for file in files:
            (captures / file.name).write_bytes(file.read_bytes())
        walreplay.apply(spark, captures=captures, target=target)
    assert_mirror_equals(spark, target, recorded)


def _altered(change: str) -> Callable[[SmallMirror, pytest.MonkeyPatch], None]:
    return lambda mirror, _: mirror.spark.sql(f"ALTER TABLE delta.`{mirror.location('t')}` {change}")


def _with_marked_rows(mirror: SmallMirror, _: pytest.MonkeyPatch) -> None:
    _altered("SET TBLPROPERTIES (delta.enableDeletionVectors = true)")(mirror, _)
    mirror.spark.sql(f"DELETE FROM delta.`{mirror.location('t')}` WHERE id = 9")


def _with_marked_rows_of_before(mirror: SmallMirror, _: pytest.MonkeyPatch) -> None:
    _with_marked_rows(mirror, _)
    _altered("SET TBLPROPERTIES (delta.enableDeletionVectors = false)")(mirror, _)


def _large(_: SmallMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walreplay.writing.rewrite._MAX_BYTES", 1000)


_LEFT = {
    "a change data feed": _altered("SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"),
    "a change data feed, in capitals": _altered("SET TBLPROPERTIES (delta.enableChangeDataFeed = 'TRUE')"),
    "row tracking": _altered("SET TBLPROPERTIES (delta.enableRowTracking = true)"),
    "a constraint": _altered("ADD CONSTRAINT positive CHECK (id >= 0)"),
    "clustering": _altered("CLUSTER BY (id)"),
    "rows that are marked as deleted": _with_marked_rows,
    "rows that were marked as deleted, when that was allowed": _with_marked_rows_of_before,
    "many bytes": _large,
}


@pytest.mark.parametrize(
    "why", further(_LEFT, but=("many bytes", "rows that were marked as deleted, when that was allowed"))
)
def test_what_is_left_to_a_merge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    mirror, prepare = SmallMirror(spark, tmp_path), _LEFT[why]
    mirror.apply(_T, *_FIRST[1:])
    prepare(mirror, monkeypatch)
    has_lost = prepare in (_with_marked_rows, _with_marked_rows_of_before)  # a row
    mirror.apply(_T, *_LATER, **({"accept_changed_tables": True} if has_lost else {}))
    assert _rows(mirror) == [row for row in _ROWS if row[0] != 9 or not has_lost]
    assert _newest(mirror)[:2] == ("MERGE", True)


@pytest.mark.full
def test_what_somebody_does_to_the_table_meanwhile_is_not_undone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(*_FIRST)
    commit = RewriteFold.commit

    def late(self: RewriteFold, *args: Any) -> Any:
        spark.sql(f"OPTIMIZE delta.`{mirror.location('t')}`")
        spark.sql(f"INSERT INTO delta.`{mirror.location('t')}` (id, v) VALUES (99, 'of somebody')")
        return commit(self, *args)

    monkeypatch.setattr(RewriteFold, "commit", late)
    mirror.apply(_T, *_LATER)
    assert _rows(mirror) == [*_ROWS, (99, "of somebody")]
    assert _newest(mirror)[:2] == ("MERGE", True)


@pytest.mark.full
def test_a_log_tells_python_what_it_tells_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Through commits of many kinds and their checkpoints."""
    table = TableName(path=str(tmp_path / "a table"))
    schema = pa.schema([("n", pa.int64()), ("v", pa.string())])
    properties = {**DELETION_VECTORS, "delta.checkpointInterval": "4"}
    # Spark alone creates a table with a feature.
    empty = spark.createDataFrame([], "n BIGINT, v STRING")
    delta.write(empty, table, "append", create=delta.NewTable(properties))
    append = begin_append(spark, table, schema, create=False)
    assert append is not None
    append.write_rows([(number, "v") for number in range(50)])
    append.commit(delta.CommitId("test", 1))
    told = list(_told(spark, table))
    assert told == [1]
    kinds = (
        "INSERT INTO {} VALUES (1, 'more'), (60, 'most')",
        "DELETE FROM {} WHERE n = 3",
        "UPDATE {} SET v = 'other' WHERE n IN (5, 60)",
        "OPTIMIZE {}",
        "DELETE FROM {} WHERE n < 10",
        "DELETE FROM {}",
    )
    for number in range(2):
        for statement in kinds:
            spark.sql(statement.format(table.sql))
            told += _told(spark, table)
        append = begin_append(spark, table, schema, create=False)
        assert append is not None
        append.write_rows([(number, "again")])
        append.commit(delta.CommitId("test", 2 + number))
        told += _told(spark, table)
    assert len(list((tmp_path / "a table" / "_delta_log").glob("*.checkpoint.parquet"))) >= 3
    assert max(told) > 1
    table_now = opened(spark, table)
    assert table_now is not None
    assert [field["name"] for field in table_now.fields] == schema.names


def _told(spark: SparkSession, table: TableName) -> Iterator[int]:
    """Compare the two; give how many files there are."""
    found = opened(spark, table)
    assert found is not None
    wanted = spark.read.format("delta").load(table.path).inputFiles()
    assert sorted(file.path for file in found.files) == sorted(path.rpartition("/")[2] for path in wanted)
    marked = spark.sql(f"SELECT count(*) AS n FROM {table.sql}").collect()[0].n
    held = sum(pq.ParquetFile(f"{table.path}/{file.path}").metadata.num_rows for file in found.files)
    assert any(file.has_deletion_vector for file in found.files) == (held > marked)
    assert found.last_number("test") >= 1
    yield len(found.files)

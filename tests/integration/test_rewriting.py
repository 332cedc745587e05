"""Small tables that are written anew, where a MERGE could have done it: the same rows, counts and history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.truth import assert_mirror_equals
from support.writing import begin_append, opened
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.writer import frame
from walreplay.sink.features import DELETION_VECTORS
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.target import TableName
from walreplay.spark.writing import files as writing_files
from walreplay.spark.writing.rewrite import Rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_INT4, _TEXT, _FLOAT8 = 23, 25, 701


def _relation(key: int = _INT4) -> m.Relation:
    return m.Relation(9, "s", "t", "d", (m.Column("id", key, -1, True), m.Column("v", _TEXT, -1, False)))


def _row(id_: int, text: str) -> m.TupleData:
    return m.TupleData((m.Cell("t", b"%d" % id_), m.Cell("t", text.encode())))


def _key(id_: int) -> m.TupleData:
    return m.TupleData((m.Cell("t", b"%d" % id_), m.NULL_CELL))


class _Mirror:
    """A mirror of one table, to which changes are applied run by run."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.captures, self.target = folder / "captures", folder / "mirror"
        self.captures.mkdir(parents=True)
        self.runs = 0

    def apply(self, *changes: m.AnyMessage, **config: Any) -> walreplay.TableReport:
        self.runs += 1
        lsn = 100 * self.runs
        messages = [m.Begin(lsn, lsn, self.runs), *changes, m.Commit(0, lsn, lsn + 8, lsn)]
        (self.captures / f"{self.runs:03}.bin").write_bytes(frame(messages, Framing.RAW))
        report = walreplay.apply(self.spark, captures=self.captures, target=self.target, config=config)
        (table,) = report.tables
        return table

    @property
    def location(self) -> Path:
        return self.target / "s" / "t"

    def rows(self) -> list[tuple[Any, ...]]:
        found = self.spark.read.format("delta").load(str(self.location)).select("id", "v")
        return sorted((row.id, row.v) for row in found.collect())

    def newest(self) -> tuple[str, bool, Mapping[str, str]]:
        """Give the last commit's operation, whether it says on what it has matched rows, and its counts."""
        (newest,) = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.location}` LIMIT 1").collect()
        return newest.operation, newest.operationParameters.get("predicate", "[]") != "[]", newest.operationMetrics


_FIRST = (_relation(), *(m.Insert(9, _row(number, "first")) for number in range(10)))
_LATER = (
    m.Update(9, _row(1, "later")),
    m.Update(9, _row(2, "later")),
    m.Delete(9, key=_key(3)),
    m.Insert(9, _row(20, "new")),
    # Of rows that are not there.
    m.Update(9, _row(30, "lost")),
    m.Delete(9, key=_key(31)),
)
_ROWS = [(0, "first"), (1, "later"), (2, "later"), *((n, "first") for n in range(4, 10)), (20, "new"), (30, "lost")]
_COUNTED = ("Inserted", "Updated", "Deleted", "MatchedUpdated", "MatchedDeleted", "Copied")


def _only_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing_files, "begin_rewrite", lambda *_: "it is to be merged")


def test_rows_counts_and_history_are_those_of_a_merge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("anew", "merged"):
        if name == "merged":
            _only_merges(monkeypatch)
        mirror = _Mirror(spark, tmp_path / name)
        mirror.apply(*_FIRST)
        table = mirror.apply(_relation(), *_LATER)
        assert mirror.rows() == _ROWS
        operation, has_predicate, metrics = mirror.newest()
        assert has_predicate == (name == "merged")
        counts = [metrics[f"numTargetRows{kind}"] for kind in _COUNTED]
        told = (table.action, table.inserted, table.updated, table.deleted, table.without_base)
        assert operation == ("MERGE" if name == "merged" else "WRITE")
        found.append((counts, told, table.deletes_without_row, table.version, metrics["numSourceRows"]))
        assert metrics.keys() >= {"numTargetFilesAdded", "numTargetFilesRemoved", "numOutputRows"}
    assert found[0][:4] == found[1][:4]
    assert found[0][0] == ["2", "2", "1", "2", "1", "7"]


def test_a_table_that_loses_all_its_rows_and_one_that_loses_none(spark: SparkSession, tmp_path: Path) -> None:
    mirror = _Mirror(spark, tmp_path)
    mirror.apply(*_FIRST)
    mirror.apply(_relation(), *(m.Delete(9, key=_key(number)) for number in range(10)))
    assert mirror.rows() == []
    table = mirror.apply(_relation(), m.Delete(9, key=_key(5)))
    assert (table.deleted, table.deletes_without_row) == (0, 1)
    assert table.version == 2
    mirror.apply(_relation(), m.Insert(9, _row(1, "again")))
    assert mirror.rows() == [(1, "again")]
    assert mirror.newest()[:2] == ("WRITE", False)


def _kinds() -> dict[str, tuple[m.Relation, m.Relation, list[m.AnyMessage], list[m.AnyMessage], list[Any]]]:
    """Give tables by what is not plain in them: before and in the second run, the changes of both, and its rows."""

    def table(number: int, name: str, identity: str = "d", *more: m.Column) -> m.Relation:
        key = identity == "d"
        return m.Relation(
            number, "s", name, identity, (m.Column("id", _INT4, -1, key), m.Column("v", _TEXT, -1, False), *more)
        )

    def row(id_: int | None, *texts: str) -> m.TupleData:
        number = m.NULL_CELL if id_ is None else m.Cell("t", b"%d" % id_)
        return m.TupleData((number, *(m.Cell("t", text.encode()) for text in texts)))

    moved, copies, wider, by_hand = (
        table(11, "moved"),
        table(12, "copies", "f"),
        table(13, "wider"),
        table(14, "by_hand", "f"),
    )
    added = table(13, "wider", "d", m.Column("w", _TEXT, -1, False))

    def inserts(relation: m.Relation, *rows: m.TupleData) -> list[m.AnyMessage]:
        return [m.Insert(relation.oid, one) for one in rows]

    three = [row(number, "first") for number in (1, 2, 3)]
    return {
        # Two rows swap their keys, one is deleted where another comes.
        "moved": (
            moved,
            moved,
            inserts(moved, *three),
            [
                m.Update(11, row(9, "one"), key=_key(1)),
                m.Update(11, row(1, "two"), key=_key(2)),
                m.Update(11, row(2, "one"), key=_key(9)),
                m.Delete(11, key=_key(3)),
                m.Insert(11, row(3, "again")),
                m.Update(11, row(8, "lost"), key=_key(7)),
            ],
            [(1, "two"), (2, "one"), (3, "again"), (8, "lost")],
        ),
        "copies": (
            copies,
            copies,
            inserts(copies, *three, row(None, "first"), row(2, "first"), row(2, "first")),
            [
                m.Delete(12, old=row(2, "first")),
                m.Delete(12, old=row(2, "first")),
                m.Delete(12, old=row(1, "first")),
                m.Update(12, row(None, "later"), old=row(None, "first")),
                m.Insert(12, row(3, "first")),
                m.Delete(12, old=row(5, "lost")),
            ],
            [(None, "later"), (2, "first"), (3, "first"), (3, "first")],
        ),
        "wider": (
            wider,
            added,
            inserts(wider, *three),
            [
                m.Update(13, row(1, "later", "new")),
                m.Insert(13, row(4, "first", "new")),
                m.Delete(13, key=m.TupleData((*_key(3).cells, m.NULL_CELL))),
            ],
            [(1, "later"), (2, "first"), (4, "first")],
        ),
        "by_hand": (
            by_hand,
            by_hand,
            inserts(by_hand, row(1, "first"), row(2, "first"), row(None, "first")),
            [
                m.Update(14, row(1, "later"), old=row(1, "first")),
                m.Delete(14, old=row(2, "first")),
                m.Update(14, row(None, "later"), old=row(None, "first")),
                m.Insert(14, row(5, "first")),
            ],
            [(None, "later"), (1, "later"), (5, "first")],
        ),
    }


def test_what_is_not_plain_comes_out_as_by_a_merge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that change, rows without a key, a column that is added, a configured key with NULL."""
    kinds, found = _kinds(), []
    for way in ("anew", "merged"):
        if way == "merged":
            _only_merges(monkeypatch)
        captures, target = tmp_path / way / "captures", tmp_path / way / "mirror"
        captures.mkdir(parents=True)
        for lsn in (100, 200):
            said = [
                message
                for before, after, first, later, _ in kinds.values()
                for message in ((before, *first) if lsn == 100 else (after, *later))
            ]
            messages = [m.Begin(lsn, lsn, lsn), *said, m.Commit(0, lsn, lsn + 8, lsn)]
            (captures / f"{lsn}.bin").write_bytes(frame(messages, Framing.RAW))
            config = {"objects": [{"table": {"source_schema": "s", "source_table": "by_hand", "keys": ["id"]}}]}
            report = walreplay.apply(spark, captures=captures, target=target, config=config)
        lost = {table.name: (table.without_base, table.deletes_without_row) for table in report.tables}
        assert lost == {"s.moved": (0, 1), "s.copies": (0, 1), "s.wider": (0, 0), "s.by_hand": (0, 0)}
        writers = {table.name: (table.writer, table.writer_reason) for table in report.tables}
        assert {writer for writer, _ in writers.values()} == {"files" if way == "anew" else "statements"}, writers
        rows = {}
        for name, (*_, wanted) in kinds.items():
            frame_ = spark.read.format("delta").load(str(target / "s" / name)).drop("__commit_ts")
            rows[name] = sorted(map(tuple, frame_.collect()), key=repr)
            assert sorted((row[:2] for row in rows[name]), key=repr) == sorted(wanted, key=repr)
        found.append(rows)
    assert found[0] == found[1]


@pytest.mark.parametrize("name", further(["o03", "o04", "o26"], but=("o04",)))
def test_a_merge_makes_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _only_merges(monkeypatch)
    recorded = case(name)
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    middle = len(recorded.files) // 2
    for files in (recorded.files[:middle], recorded.files[middle:]):
        for file in files:
            (captures / file.name).write_bytes(file.read_bytes())
        walreplay.apply(spark, captures=captures, target=target)
    assert_mirror_equals(spark, target, recorded)


@pytest.mark.full
@pytest.mark.parametrize(
    "statement",
    [
        "SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        "SET TBLPROPERTIES (delta.enableChangeDataFeed = 'TRUE')",
        "SET TBLPROPERTIES (delta.enableRowTracking = true)",
        "ADD CONSTRAINT positive CHECK (id >= 0)",
        "CLUSTER BY (id)",
    ],
)
def test_what_a_table_asks_for_is_left_to_a_merge(spark: SparkSession, tmp_path: Path, statement: str) -> None:
    mirror = _Mirror(spark, tmp_path)
    mirror.apply(*_FIRST)
    spark.sql(f"ALTER TABLE delta.`{mirror.location}` {statement}")
    mirror.apply(_relation(), *_LATER)
    assert mirror.rows() == _ROWS
    assert mirror.newest()[:2] == ("MERGE", True)


def test_rows_that_are_marked_as_deleted_are_left_to_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    mirror = _Mirror(spark, tmp_path)
    mirror.apply(*_FIRST)
    marking = "'delta.enableDeletionVectors' = 'true'"
    spark.sql(f"ALTER TABLE delta.`{mirror.location}` SET TBLPROPERTIES ({marking})")
    spark.sql(f"DELETE FROM delta.`{mirror.location}` WHERE id = 9")
    mirror.apply(_relation(), *_LATER, accept_changed_tables=True)
    assert mirror.rows() == [row for row in _ROWS if row[0] != 9]
    assert mirror.newest()[:2] == ("MERGE", True)


def test_keys_whose_bytes_say_too_little_are_left_to_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    mirror = _Mirror(spark, tmp_path)
    mirror.apply(_relation(_FLOAT8), *_FIRST[1:])
    mirror.apply(_relation(_FLOAT8), *_LATER)
    assert mirror.rows() == _ROWS
    assert mirror.newest()[:2] == ("MERGE", True)


def test_a_large_table_is_left_to_a_merge(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walreplay.spark.writing.rewrite._MOST_BYTES", 1000)
    mirror = _Mirror(spark, tmp_path)
    mirror.apply(*_FIRST)
    mirror.apply(_relation(), *_LATER)
    assert mirror.rows() == _ROWS
    assert mirror.newest()[:2] == ("MERGE", True)


def test_what_somebody_does_to_the_table_meanwhile_is_not_undone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = _Mirror(spark, tmp_path)
    mirror.apply(*_FIRST)
    commit = Rewrite.commit

    def late(self: Rewrite, *args: Any) -> Any:
        spark.sql(f"OPTIMIZE delta.`{mirror.location}`")
        spark.sql(f"INSERT INTO delta.`{mirror.location}` (id, v) VALUES (99, 'of somebody')")
        return commit(self, *args)

    monkeypatch.setattr(Rewrite, "commit", late)
    mirror.apply(_relation(), *_LATER)
    assert mirror.rows() == [*_ROWS, (99, "of somebody")]
    assert mirror.newest()[:2] == ("MERGE", True)


@pytest.mark.full
def test_a_log_tells_python_what_it_tells_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Through commits of many kinds and their checkpoints."""
    table = TableName(path=str(tmp_path / "a table"))
    schema = pa.schema([("n", pa.int64()), ("v", pa.string())])
    properties = {**DELETION_VECTORS, "delta.checkpointInterval": "4"}
    # Spark alone creates a table with a feature.
    empty = spark.createDataFrame([], "n BIGINT, v STRING")
    delta.write(empty, table, "append", create=True, properties=properties)
    append = begin_append(spark, table, schema, create=False)
    assert append is not None
    append.write_rows([(number, "v") for number in range(50)], schema)
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
        append.write_rows([(number, "again")], schema)
        append.commit(delta.CommitId("test", 2 + number))
        told += _told(spark, table)
    assert len(list((tmp_path / "a table" / "_delta_log").glob("*.checkpoint.parquet"))) >= 3
    assert max(told) > 1
    table_now = opened(spark, table)
    assert table_now is not None
    assert table_now.has_only(schema)
    assert not table_now.has_only(pa.schema([schema.field(0)]))


def _told(spark: SparkSession, table: TableName) -> Iterator[int]:
    """Compare the two; give how many files there are."""
    found = opened(spark, table)
    assert found is not None
    wanted = spark.read.format("delta").load(table.path).inputFiles()
    assert sorted(file.path for file in found.files) == sorted(path.rpartition("/")[2] for path in wanted)
    marked = spark.sql(f"SELECT count(*) AS n FROM {table.sql}").collect()[0].n
    held = sum(pq.ParquetFile(f"{table.path}/{file.path}").metadata.num_rows for file in found.files)
    assert any(file.marked for file in found.files) == (held > marked)
    assert found.last_number("test") >= 1
    yield len(found.files)

"""Files that Python writes are what Spark would have written, and become a table's by Delta's own rules."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as f

import walreplay
from support.captures import case
from support.extent import further
from support.truth import assert_mirror_equals
from support.writing import N, begin_append, file_writer, opened
from walreplay.delta import statements as delta
from walreplay.delta.commits import DELETION_VECTORS
from walreplay.delta.local import ConflictError
from walreplay.delta.statements import sql_schema, sql_type
from walreplay.delta.target import TableName
from walreplay.session.folders import MountedFolder
from walreplay.session.isolation import own_session
from walreplay.writing.one_row import FileRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_UTC = timezone.utc
_FIRST, _LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)

_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, None, False]),
    "i2": (pa.int16(), [-(2**15), None, 2**15 - 1]),
    "i4": (pa.int32(), [-(2**31), None, 2**31 - 1]),
    "i8": (pa.int64(), [-(2**63), None, 2**63 - 1]),
    "f4": (pa.float32(), [-0.0, None, math.inf]),
    "f8": (pa.float64(), [math.nan, None, 1e308]),
    "short": (pa.string(), ["", None, "\N{SNOWMAN}"]),
    "long": (pa.string(), ["a" * 31 + "é" + "x", None, "z" * 40 + "\U0010ffff"]),
    "highest": (pa.string(), ["y" * 32 + "\U0010ffff", None, "b"]),
    "quoted": (pa.string(), ['"\\\n\x01', None, "'"]),
    "bytes": (pa.binary(), [b"\x00\xff", None, b""]),
    "day": (pa.date32(), [date(1, 1, 1), None, date(9999, 12, 31)]),
    "old": (pa.date32(), [date(1582, 10, 4), None, date(1582, 10, 15)]),
    "at": (pa.timestamp("us", "UTC"), [_FIRST.replace(tzinfo=_UTC), None, _LAST.replace(tzinfo=_UTC)]),
    "local": (pa.timestamp("us"), [_FIRST, None, _LAST]),
    "before": (pa.timestamp("us", "UTC"), [datetime(1969, 12, 31, 23, 59, 59, 1, _UTC), None, None]),
    "d4": (pa.decimal128(4, 0), [Decimal(-9999), None, Decimal(9999)]),
    "d18": (pa.decimal128(18, 6), [Decimal("-999999999999.999999"), None, Decimal("0.000001")]),
    "d38": (pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), None, Decimal(0)]),
    "none": (pa.int32(), [None, None, None]),
    "list": (pa.list_(pa.int32()), [[1, None, 3], None, []]),
    "texts": (pa.list_(pa.string()), [["", None], None, ["x"]]),
    "a name, with `all`": (pa.string(), ["x", None, "y"]),
}
_SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _VALUES.items()])
_ROWS = list(zip(*(values for _, values in _VALUES.values()), strict=True))


def _table(path: Path) -> TableName:
    return TableName(path=str(path))


def _log(path: Path) -> list[dict[str, Any]]:
    files = sorted((path / "_delta_log").glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def _statistics(path: Path) -> dict[str, Any]:
    """Return the statistics of a table's only file, by the columns' names."""
    (schema,) = (json.loads(entry["metaData"]["schemaString"]) for entry in _log(path) if "metaData" in entry)
    names = {
        field["metadata"].get("delta.columnMapping.physicalName", field["name"]): field["name"]
        for field in schema["fields"]
    }
    (text,) = (entry["add"]["stats"] for entry in _log(path) if "add" in entry)
    stats = json.loads(text, parse_float=Decimal)
    return {
        kind: {names[column]: value for column, value in found.items()} if isinstance(found, dict) else found
        for kind, found in stats.items()
    }


def _appended(spark: SparkSession, path: Path, rows: Sequence[Sequence[Any]] = _ROWS, *, number: int = 1) -> int | None:
    if not delta.exists(spark, _table(path)):
        # Names of the columns need column mapping, with which Spark alone creates tables.
        delta.write(spark.createDataFrame([], sql_schema(_SCHEMA)), _table(path), "append", create=delta.NewTable())
    append = begin_append(spark, _table(path), _SCHEMA, create=False)
    assert append is not None
    append.write_rows(rows)
    return append.commit(delta.CommitId("test", number))


def test_spark_reads_what_it_would_have_written(spark: SparkSession, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    frame = spark.createDataFrame(_ROWS, sql_schema(_SCHEMA)).coalesce(1)
    delta.write(frame, _table(theirs), "append", create=delta.NewTable())
    assert _appended(spark, ours) == 1
    own = spark.read.format("delta").load(str(ours))
    assert own.schema == frame.schema
    # As text: chispa takes NaN for another than itself.
    assert_df_equality(own.selectExpr("to_json(struct(*))"), frame.selectExpr("to_json(struct(*))"))


def test_a_files_statistics_are_those_that_delta_gathers(spark: SparkSession, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    frame = spark.createDataFrame(_ROWS, sql_schema(_SCHEMA)).coalesce(1)
    # Delta says of the bounds that they are tight only where they might not be.
    delta.write(frame, _table(theirs), "append", create=delta.NewTable(DELETION_VECTORS))
    _appended(spark, ours)
    found, wanted = _statistics(ours), _statistics(theirs)
    assert found["numRecords"] == wanted["numRecords"] == len(_ROWS)
    assert found["tightBounds"] is wanted["tightBounds"] is True
    told = {"i2", "i4", "i8", "short", "long", "quoted", "day", "old", "at", "local", "before", "d4", "d18"}
    assert told < found["minValues"].keys()
    for name in told:
        assert found["minValues"][name] == wanted["minValues"][name], name
        # What stands for the rest of a long text is another than Delta's; it is above all the same.
        if name != "long":
            assert found["maxValues"][name] == wanted["maxValues"][name], name
    assert found["maxValues"]["long"] == "z" * 32 + "\U0010ffff"
    assert "highest" not in found["maxValues"].keys() | found["minValues"].keys()
    assert found["nullCount"].items() <= wanted["nullCount"].items()
    assert set(_VALUES) - {"list", "texts", "f4", "f8"} == found["nullCount"].keys()


@pytest.mark.parametrize(
    "name",
    further(["i8", "long", "highest", "at", "local", "day", "d18", "d38", "before", "f8"], but=("i8", "long", "at")),
)
def test_no_row_is_skipped_by_a_files_statistics(spark: SparkSession, tmp_path: Path, name: str) -> None:
    _appended(spark, tmp_path / "t")
    table = spark.read.format("delta").load(str(tmp_path / "t"))
    kind, values = _VALUES[name]
    for value in (value for value in values if value is not None):
        literal = f.lit(str(value)).cast(sql_type(kind))
        for comparison in ("__eq__", "__ge__", "__le__"):
            assert table.where(getattr(table[name], comparison)(literal)).count() >= 1


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE {} (i4 INT, short STRING) USING delta PARTITIONED BY (i4)",
        "CREATE TABLE {} (i4 INT NOT NULL, short STRING) USING delta",
        "CREATE TABLE {} (i4 INT, short STRING GENERATED ALWAYS AS (CAST(i4 AS STRING))) USING delta",
        "CREATE TABLE {} (i4 INT, short STRING) USING delta; ALTER TABLE {} ADD CONSTRAINT few CHECK (i4 < 10)",
        "CREATE TABLE {} (i4 INT, short STRING) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "CREATE TABLE {} (i4 BIGINT, short STRING) USING delta",
        "CREATE TABLE {} (i4 INT) USING delta",
    ],
)
def test_a_table_that_asks_for_more_is_written_to_by_spark(spark: SparkSession, tmp_path: Path, statement: str) -> None:
    table = _table(tmp_path / "t")
    for part in statement.split(";"):
        spark.sql(part.format(table.sql))
    wanted = pa.schema([_SCHEMA.field("i4"), _SCHEMA.field("short")])
    assert begin_append(spark, table, wanted, create=False) is None


def test_a_row_that_spark_has_written_is_read(spark: SparkSession, tmp_path: Path) -> None:
    table, schema = _table(tmp_path / "t"), pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    moment = datetime(1850, 1, 2, 3, 4, 5, 678, _UTC)
    delta.write(
        spark.createDataFrame([(1, moment)], sql_schema(schema)).coalesce(1), table, "append", create=delta.NewTable()
    )
    folder = MountedFolder(str(tmp_path / "t"))
    row = FileRow(spark, delta.TableDefinition(table, pa.schema([*schema, ("more", pa.string())])), lambda: folder)
    assert row._read_newest() is None
    spark.sql(f"ALTER TABLE {table.sql} ADD COLUMNS (more STRING)")
    assert row.read() == {"n": 1, "at": moment, "more": None}


def test_two_who_replace_a_row_at_the_same_time_do_not_both(spark: SparkSession, tmp_path: Path) -> None:
    table, schema = _table(tmp_path / "t"), pa.schema([("n", pa.int64())])
    row = file_writer(spark, tmp_path).one_row(spark, delta.TableDefinition(table, schema))
    assert row.create({"n": 1}, exists=False)
    late = opened(own_session(spark), table)
    assert late is not None
    files = late.files
    assert row.change({"n": 2}, N(1))
    with pytest.raises(ConflictError):
        late.commit([], instead_of=files)
    assert row.read() == {"n": 2}


@pytest.mark.full
def test_a_table_begun_anew_by_somebody_else_is_not_taken_for_the_one_in_memory(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Their versions have the same numbers, and Delta in this process still has the first one's."""
    schema = pa.schema([("n", pa.int64())])
    writer = file_writer(spark, tmp_path)
    for name in ("t", "other"):
        row = writer.one_row(spark, delta.TableDefinition(_table(tmp_path / name), schema))
        assert row.create({"n": 1}, exists=False)
        assert row.change({"n": 2}, N(1))
    (tmp_path / "t").rename(tmp_path / "gone")
    (tmp_path / "other").rename(tmp_path / "t")
    row = writer.one_row(spark, delta.TableDefinition(_table(tmp_path / "t"), schema))
    assert row.read() == {"n": 2}
    assert row.change({"n": 3}, N(2))
    assert row.change({"n": 4}, N(3))
    assert [one.n for one in spark.read.format("delta").load(str(tmp_path / "t")).collect()] == [4]


@pytest.mark.full
def test_a_run_goes_on_where_spark_alone_has_worked_and_the_other_way_round(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = case("o04")
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    for number, file in enumerate(recorded.files):
        monkeypatch.setenv("WALREPLAY_COMMITS", "spark" if number % 2 else "")
        (captures / file.name).write_bytes(file.read_bytes())
        walreplay.apply(spark, captures=captures, target=target)
    assert_mirror_equals(spark, target, recorded)


def test_a_day_is_counted_as_spark_counts_it(spark: SparkSession, tmp_path: Path) -> None:
    """Of old dates and times calendars have different ideas; each day of the change from one to the other is tried."""
    days = [date(1582, 9, 30) + timedelta(days=number) for number in range(25)]
    schema = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
    rows = [(day, datetime(day.year, day.month, day.day, 1, 2, 3, 4, _UTC)) for day in days]
    append = begin_append(spark, _table(tmp_path / "t"), schema, create=True)
    assert append is not None
    append.write_rows(rows)
    append.commit(delta.CommitId("test", 1))
    found = spark.read.format("delta").load(str(tmp_path / "t"))
    wanted = spark.createDataFrame(rows, sql_schema(schema))
    assert_df_equality(found, wanted, ignore_row_order=True)


@pytest.mark.full
def test_a_checksum_that_another_program_has_left_does_not_outlive_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hadoop keeps checksums beside the log's files, and Delta's note of the last checkpoint is written over again."""
    table, schema = _table(tmp_path / "t"), pa.schema([("n", pa.int64())])

    def add(number: int, *, create: bool = False) -> None:
        properties = {"delta.checkpointInterval": "1"}
        append = begin_append(spark, table, schema, create=create, properties=properties)
        assert append is not None
        append.write_rows([(number,)])
        append.commit(delta.CommitId("test", number))

    def last_checkpoint() -> int:
        hadoop = spark._jvm.org.apache.hadoop  # type: ignore[union-attr]
        local = hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
        stream = local.open(hadoop.fs.Path(f"{tmp_path}/t/_delta_log/_last_checkpoint"))
        text = spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")  # type: ignore[union-attr]
        return int(json.loads(text)["version"])

    add(0, create=True)
    spark.sql(f"INSERT INTO {table.sql} VALUES (1)")
    assert (tmp_path / "t" / "_delta_log" / "._last_checkpoint.crc").exists()
    assert last_checkpoint() == 1
    add(2)
    assert last_checkpoint() == 2
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 3

"""Real captures become tables that equal the source's: every table, column, type, row and value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import Case, case
from support.extent import further
from support.postgres import cut
from support.reference import replay_of
from support.truth import (
    COMMIT_LSN,
    COMMIT_TS,
    RESCUED,
    Actual,
    Row,
    SourceColumn,
    SourceTable,
    arrow_table,
    assert_equal,
    assert_mirror_equals,
    images,
    mirror_tables,
    read_array,
    read_csv,
    read_tables,
    read_tables_by_spark,
    replay_difference,
    row_difference,
    row_images,
    source_tables,
    table_features,
    value_type,
)
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURES = [
    *("o01", "o02", "o03", "o04", "o05", "o06", "o07"),
    *("o08", "o10", "o11", "o12", "o13", "o17", "o18", "o19", "o20", "o21", "o22", "o23", "o24", "o25", "o26"),
]
"""The captures that can be replayed row by row as well."""

SPECIAL = ["o09", "o14", "o15"]
"""Those with binary values or changes of a schema; see `support.truth.BEYOND`."""


_OF_EACH_KIND = ("o02", "o06", "o08", "o09", "o11", "o12", "o13", "o14", "o18", "o19", "o22", "o26")
"""Framings, forms of values, identities, unchanged values, truncates, schemas, streams, partitions, sessions."""

_READ_BY_SPARK = "o08"
"""The capture of all types; `test_spark_reads_the_same_rows` has the others read by Spark, which takes long."""


@dataclass(frozen=True)
class Mirror:
    case: Case
    target: Path
    report: walreplay.RunReport
    tables: dict[str, Actual]


@pytest.fixture(scope="module", params=further(CAPTURES, but=_OF_EACH_KIND))
def mirror(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mirror:
    """A capture applied to an empty target, once for all tests."""
    recorded = case(request.param)
    target = tmp_path_factory.mktemp(request.param) / "mirror"
    report = walreplay.apply(spark, captures=str(recorded.folder), target=str(target))
    reading = read_tables_by_spark if request.param == _READ_BY_SPARK else read_tables
    return Mirror(recorded, target, report, reading(spark, mirror_tables(target)))


@pytest.mark.integration
def test_a_capture_becomes_the_tables_of_its_source(mirror: Mirror) -> None:
    assert_equal(mirror.tables, source_tables(mirror.case))


@pytest.mark.full
@pytest.mark.integration
def test_spark_reads_the_same_rows(spark: SparkSession, mirror: Mirror) -> None:
    assert_equal(read_tables_by_spark(spark, mirror_tables(mirror.target)), source_tables(mirror.case))


@pytest.mark.full
@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "parts"),
    further([(name, parts) for name in SPECIAL for parts in (1, 4) if (name, parts) != ("o15", 4)], long=[("o15", 4)]),
)
def test_what_the_stream_tells_is_in_the_tables(spark: SparkSession, tmp_path: Path, name: str, parts: int) -> None:
    recorded, captures, later = case(name), tmp_path / "captures", tmp_path / "later"
    captures.mkdir()
    later.mkdir()
    size = sum(path.stat().st_size for path in recorded.files)
    missed = 0
    for part in cut(recorded.files, later, [size // parts + 1]):
        part.rename(captures / part.name)
        report = walreplay.apply(spark, captures=str(captures), target=str(tmp_path / "mirror"))
        missed += sum(table.deletes_without_row for table in report.tables)
    assert_mirror_equals(spark, tmp_path / "mirror", recorded)
    assert missed == 0


@pytest.mark.integration
def test_every_row_names_the_commit_that_wrote_it_last(mirror: Mirror) -> None:
    replayed = replay_of(mirror.case).by_name()
    for source in source_tables(mirror.case):
        table = replayed[source.qualified_name]
        actual = mirror.tables[source.qualified_name].rows
        written = images(actual, [COMMIT_LSN, COMMIT_TS])
        commits = [(row.lsn, POSTGRES_EPOCH_UNIX_MICROS + row.time) for row in table.rows]
        if table.relation.replica_identity == "f":
            # Which of several equal rows was deleted is nobody's knowledge.
            assert max(written, default=None) == max(commits, default=None)
            continue
        expected = row_images(source, arrow_table(source, [row.values for row in table.rows]))
        assert Counter(zip(row_images(source, actual), written, strict=True)) == Counter(
            zip(expected, commits, strict=True)
        )


@pytest.mark.integration
def test_the_report_tells_what_was_applied(mirror: Mirror) -> None:
    assert mirror.report.status == "applied"
    assert mirror.report.files == len(mirror.case.files)
    assert mirror.report.capture_bytes == sum(file.stat().st_size for file in mirror.case.files)
    assert sorted(table.name for table in mirror.report.tables) == sorted(mirror.case.truth)
    assert mirror.report.transactions == mirror.case.info["transactions_committed"]


@pytest.mark.integration
def test_tables_ask_no_more_of_their_readers_than_their_columns_do(mirror: Mirror) -> None:
    for name, location in mirror_tables(mirror.target).items():
        fields = mirror.tables[name].fields
        needed = {"timestampNtz" for _, kind in fields if "timestamp_ntz" in kind}
        if any(set(column) & set(" ,;{}()\n\t=") for column, _ in fields):
            # Names that Parquet does not hold; readers take column mapping only beside another feature of theirs.
            needed |= {"columnMapping", "timestampNtz"}
        assert table_features(location) == needed, name


@pytest.mark.integration
def test_the_ledgers_tables_ask_nothing_of_their_readers(mirror: Mirror) -> None:
    tables = [path.parent for path in (mirror.target / "_walreplay").glob("*/_delta_log")]
    assert {"state", "runs", "files", "transactions"} <= {path.name for path in tables}
    assert [table_features(path) for path in tables] == [set()] * len(tables)


# The measure itself.


@pytest.mark.parametrize("name", CAPTURES)
def test_replaying_row_by_row_gives_the_truth(name: str) -> None:
    recorded = case(name)
    replayed = replay_of(recorded)
    assert {table.qualified_name for table in source_tables(recorded)} <= replayed.by_name().keys()
    assert replay_difference(source_tables(recorded), replayed) is None


_CHANGES = {
    "a row is missing": lambda rows: rows[1:],
    "a row is there twice": lambda rows: [*rows, rows[0]],
    "a duplicate is lost": lambda rows: rows[:-1],
    "zero lost its sign": lambda rows: [[v.replace("-0", "0") if v else v for v in row] for row in rows],
    "a float is off by one bit": lambda rows: [
        ["0.30000000000000004" if v == "0.3" else v for v in row] for row in rows
    ],
    "empty text became NULL": lambda rows: [[v or None for v in row] for row in rows],
    "NaN became NULL without a rescue": lambda rows: [[None if v == "NaN" else v for v in row] for row in rows],
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES.keys())
def test_the_comparison_sees_that(change: Callable[[list[Row]], list[Row]]) -> None:
    source = SourceTable(
        "s",
        "t",
        (SourceColumn("x", "double precision"), SourceColumn("n", "numeric(5,2)"), SourceColumn("v", "text")),
        [["-0", "NaN", ""], ["0.3", "1.10", "a"], ["NaN", None, "b"], ["1", "1.00", "c"], ["1", "1.00", "c"]],
    )
    truth = row_images(source, arrow_table(source))
    assert row_difference(source, truth, truth) is None
    changed = row_images(source, arrow_table(source, change(source.rows)))
    assert row_difference(source, changed, truth) is not None


def test_csv_keeps_null_from_text_that_looks_like_it() -> None:
    text = 'a,"b ""c"""\n\\N,"\\N"\n"","x\ny"\n'
    assert list(read_csv(text)) == [["a", 'b "c"'], [None, "\\N"], ["", "x\ny"]]


def test_array_text_splits_into_its_elements() -> None:
    assert read_array("{}") == []
    assert read_array('{a,NULL,"NULL","b,\\"c\\\\"}') == ["a", None, "NULL", 'b,"c\\']


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("real", "16777217.000000001", 16777218.0),  # by way of a double it would be 16777216
        ("real", "3.4028235e+38", 3.4028234663852886e38),
        ("timestamp with time zone", "1969-12-31 23:59:59.5-00:30", 1_799_500_000),
        ("timestamp without time zone", "0001-01-01 00:00:00", -62_135_596_800_000_000),
        ("date", "9999-12-31", 2_932_896),
        ("bytea", "\\x00ff", b"\0\xff"),
    ],
)
def test_values_are_read_exactly(kind: str, text: str, value: object) -> None:
    assert value_type(SourceColumn("c", kind)).parse(text) == value


def test_what_a_type_cannot_hold_is_rescued() -> None:
    columns = (SourceColumn("at", "date"), SourceColumn("n", "numeric(3,1)"), SourceColumn("l", "text[]"))
    rows: list[Row] = [["0044-03-15 BC", "NaN", "{{a},{b}}"], ["2024-02-29", "1.5", "{a}"]]
    table = arrow_table(SourceTable("s", "t", columns, rows))
    assert table.column("at").null_count == table.column("n").null_count == table.column("l").null_count == 1
    rescued, nothing = table.column(RESCUED).to_pylist()
    assert json.loads(rescued) == {"at": "0044-03-15 BC", "n": "NaN", "l": "{{a},{b}}"}
    assert nothing is None

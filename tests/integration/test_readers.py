"""Others read what is written here, by whichever way, and what others have written is read here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from support.readers import COMPARED, IDS, KNOWN, READERS, duckdb_session, rows_of
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, relation, row
from support.truth import table_features
from support.writing import opened
from walreplay.delta.data_files import FileColumn
from walreplay.delta.small_table import Before, Keys, read_rows
from walreplay.delta.target import TableName
from walreplay.protocol import messages as m
from walreplay.session.folders import MountedFolder
from walreplay.writing import by_statements, rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]

_NUMERIC: Final = 1700

_VALUES: Final[dict[str, tuple[int, int, Sequence[str | None]]]] = {
    # A type's oid, its modifier, and a value for each of the rows.
    "id": (INT4, -1, ["1", "2", "3", "4", "5", "6"]),
    "flag": (16, -1, ["t", "f", None, "t", "f", None]),
    "i2": (21, -1, ["-32768", None, "0", "5", "6", "32767"]),
    "i8": (INT8, -1, ["-9223372036854775808", None, "0", "1", "2", "9223372036854775807"]),
    "f4": (700, -1, ["-0", "NaN", "Infinity", "1.5", None, "0.1"]),
    "f8": (701, -1, ["NaN", "1e308", None, "-Infinity", "5e-324", "0.1"]),
    "n10": (_NUMERIC, (10 << 16 | 2) + 4, ["-99999999.99", None, "0.00", "0.01", "NaN", "99999999.99"]),
    "n38": (_NUMERIC, (38 << 16 | 10) + 4, ["-1234567890123456789012345678.0123456789", None, "0", "1", "2", "3"]),
    "n": (_NUMERIC, -1, ["1.10", "NaN", None, "1e5", "0", "-1"]),
    "text": (TEXT, -1, ["", None, "z" * 40, "é" * 33, "\N{GRINNING FACE}" * 33, "\U0010ffff" * 33]),
    "Upper": (TEXT, -1, ["a", "B", "c", "D", "e", None]),
    "A.b's_\\\"": (TEXT, -1, ["\\", "'", '"', "\t", "\x01", None]),
    "größe": (INT4, -1, ["1", "2", "3", None, "5", "6"]),
    "bytes": (17, -1, [r"\x00ff", r"\x", None, r"\xff", r"\x61", r"\x62"]),
    "day": (1082, -1, ["0001-01-01", "1582-10-04", None, "1970-01-01", "infinity", "9999-12-31"]),
    "at": (1184, -1, ["0001-01-02 00:00:00+00", "1582-10-04 12:00:00.000001+00", None, "1969-12-31 23:59:59.999999+00",
                      "infinity", "9999-12-30 23:59:59.999999+00"]),
    "local": (1114, -1, ["0001-01-02 00:00:00", "1582-10-15 12:00:00.000001", None, "1969-12-31 23:59:59.9999",
                         "2024-02-29 12:00:00.0005", "9999-12-30 23:59:59.999999"]),
    "uuid": (2950, -1, [f"{n}0000000-0000-0000-0000-000000000000" for n in range(6)]),
    "ints": (1007, -1, ["{1,NULL,3}", "{}", None, "{4}", "{5}", "{6}"]),
    "texts": (1009, -1, ['{"",NULL}', "{}", None, "{d}", "{e}", "{f}"]),
}  # fmt: skip
_ROWS: Final = [row(*(values[number] for _, _, values in _VALUES.values())) for number in range(6)]
_CHANGED: Final = row("2", *(values[4] for _, _, values in list(_VALUES.values())[1:]))


def _valued(oid: int, name: str, identity: str) -> m.Relation:
    columns = (m.Column(c, t, modifier, c == "id" and identity == "d") for c, (t, modifier, _) in _VALUES.items())
    return m.Relation(oid, "s", name, identity, tuple(columns))


@dataclass(frozen=True)
class Tables:
    """A mirror's tables, and what Spark reads of them."""

    folders: dict[str, Path]
    spark: dict[str, pa.Table]


_NAMES: Final = ("appended", "merged", "rewritten", "plain", "local", "renamed", "widened", "marked")


@pytest.fixture(scope="module", params=["files of our own", pytest.param("Spark's statements", marks=pytest.mark.long)])
def tables(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tables]:
    """Tables that have been through all that a run does, in a handful of runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WALREPLAY_COMMITS", "spark" if request.param != "files of our own" else "")
        mirror = SmallMirror(spark, tmp_path_factory.mktemp("readers"))
        _run(mirror, patch)
        yield Tables(
            {name: mirror.location(name) for name in _NAMES},
            {name: spark.read.format("delta").load(str(mirror.location(name))).toArrow() for name in _NAMES},
        )


def _run(mirror: SmallMirror, patch: pytest.MonkeyPatch) -> None:
    small = {"id": INT4, "a": INT4, "z": TEXT}
    names = dict(enumerate(_NAMES[2:], 3))
    with_time = relation(5, "local", {**small, "at": 1114})
    mirror.apply(
        _valued(1, "appended", "n"), *(m.Insert(1, one) for one in _ROWS[:2]),
        _valued(2, "merged", "d"), *(m.Insert(2, one) for one in _ROWS[:3]),
        *(one for oid, name in names.items() for one in (
            relation(oid, name, small), *(m.Insert(oid, row(number, number, f"z{number}")) for number in range(9))
        )),
    )  # fmt: skip
    for name in _NAMES:
        # So that some files stand in a checkpoint and others behind it.
        mirror.spark.sql(
            f"ALTER TABLE delta.`{mirror.location(name)}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')"
        )
    gone = m.Delete(2, key=row("1", *[None] * (len(_VALUES) - 1)))
    mirror.apply(
        *(m.Insert(1, one) for one in _ROWS[2:5]),
        gone, *(m.Insert(2, one) for one in _ROWS[3:]), m.Update(2, _CHANGED),
        relation(3, "rewritten", {**small, "a": TEXT}), m.Insert(3, row(10, "ten", "z")),
        relation(4, "plain", {**small, "more": TEXT}), m.Update(4, row(1, 1, "new", "more")),
        m.Delete(4, key=row(2, None, None, None)),
        with_time, m.Update(5, row(1, 1, "new", "2024-02-29 12:00:00.000001")),
        relation(6, "renamed", {"id": INT4, "b": INT4, "z": TEXT}), m.Insert(6, row(10, 10, "z")),
        relation(7, "widened", {**small, "a": INT8}), m.Insert(7, row(10, 5_000_000_000, "z")),
    )  # fmt: skip
    patch.setattr(by_statements, "_SMALL_TABLE", 0)
    patch.setattr(rewrite, "_MAX_BYTES", -1)
    mirror.apply(m.Insert(1, _ROWS[5]), m.Delete(8, key=row(3, None, None)), m.Update(8, row(4, 44, "new")))
    patch.undo()


def _known(tables: Tables, reader: str) -> list[str]:
    return [name for name, folder in tables.folders.items() if table_features(folder) <= KNOWN[reader]]


def test_tables_have_the_features_that_they_are_here_for(tables: Tables) -> None:
    found = {name: table_features(folder) for name, folder in tables.folders.items()}
    local = {"timestampNtz"}
    assert found == {
        "appended": local,
        "merged": local,
        "rewritten": set(),
        "plain": set(),
        "local": local,
        "renamed": {"columnMapping", "timestampNtz"},
        "widened": {"typeWidening"},
        "marked": {"deletionVectors"},
    }
    assert all(
        list((folder / "_delta_log").glob("*.checkpoint.parquet"))
        for name, folder in tables.folders.items()
        if name in ("merged", "renamed")
    )


@pytest.mark.parametrize("reader", READERS)
def test_others_read_the_rows_that_spark_reads(tables: Tables, reader: str) -> None:
    for name in _known(tables, reader):
        found = READERS[reader](tables.folders[name])
        assert found.column_names == tables.spark[name].column_names, name
        assert rows_of(found) == rows_of(tables.spark[name]), name


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_refuses_a_table_with_a_feature_that_it_does_not_know(tables: Tables, reader: str) -> None:
    """So that the page on readers says no less than is true; else `KNOWN` has become too short."""
    for name in tables.folders.keys() - _known(tables, reader):
        with pytest.raises(Exception, match=r"features|reader version"):
            READERS[reader](tables.folders[name])


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_skips_a_file_that_has_what_it_looks_for(tables: Tables, reader: str) -> None:
    for name in _known(tables, reader):
        rows = tables.spark[name].to_pylist()
        for column, kind in zip(rows[0], tables.spark[name].schema.types, strict=True):
            if pa.types.is_nested(kind) or (reader == "DuckDB" and "." in column):
                # DuckDB looks for a column within another one then.
                continue
            # Programs do not agree on where NaN stands, nor on what bytes come first.
            compared = (
                ["="]
                if pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_binary(kind)
                else COMPARED
            )
            values = {value for one in rows if (value := one[column]) is not None and value == value}
            for value in values:
                for comparison in compared:
                    wanted = [
                        one["id"]
                        for one in rows
                        if one[column] is not None and COMPARED[comparison](one[column], value)
                    ]
                    found = IDS[reader](tables.folders[name], column, comparison, value)
                    assert sorted(found) == sorted(wanted), (name, column, comparison, value)


# The other way round.


_THEIRS: Final = pa.table(
    {
        "n": pa.array([1, 2, 3, None], pa.int64()),
        "t": ["a", "é", None, "z" * 50],
        "at": pa.array([datetime(2024, 2, 29, 12, tzinfo=timezone.utc), None, None, None], pa.timestamp("us", "UTC")),
        "l": pa.array([[1, None], [], None, [3]], pa.list_(pa.int32())),
    }
)


def _read_here(spark: SparkSession, folder: Path) -> pa.Table | None:
    """Read a table as one is that is written anew; None where that is left to Spark."""
    table = opened(spark, TableName(path=str(folder)))
    assert table is not None
    columns = table.columns(_THEIRS.schema)
    assert columns is not None
    paths = tuple(folder / name for file in table.files if (name := file.name) is not None)
    if len(paths) < len(table.files):
        return None
    found = read_rows(_before(columns, paths))
    return None if found is None else pa.Table.from_arrays(found[0], names=_THEIRS.column_names)


def _before(columns: tuple[FileColumn, ...], paths: tuple[Path, ...]) -> Before:
    return Before(MountedFolder("/"), tuple(map(str, paths)), columns, tuple(_THEIRS.column_names), Keys((0,)))


def test_what_others_have_written_is_read_as_they_read_it(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"

    def assert_read(*, plainly: bool = True) -> None:
        found = _read_here(spark, folder)
        assert (found is not None) == plainly
        if found is not None:
            assert rows_of(found) == rows_of(READERS["delta-rs"](folder))

    write_deltalake(folder, _THEIRS)
    assert_read()
    write_deltalake(folder, _THEIRS.slice(1, 2), mode="append")
    DeltaTable(folder).delete("n = 2")
    assert_read()
    DeltaTable(folder).create_checkpoint()
    assert_read()
    DeltaTable(folder).optimize.compact()
    write_deltalake(folder, _THEIRS, mode="append")
    assert_read()
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE n = 1")
    spark.sql(f"OPTIMIZE delta.`{folder}`")
    found = _read_here(spark, folder)
    assert found is not None
    assert rows_of(found) == rows_of(READERS["delta-rs"](folder))
    session = duckdb_session()
    session.execute(f"ATTACH '{folder}' AS theirs (TYPE delta)")
    session.execute("INSERT INTO theirs VALUES (9, 'of DuckDB', NULL, [1])")
    session.execute("DETACH theirs")
    # DuckDB's path begins with a slash: its files are Spark's to read.
    assert_read(plainly=False)


def test_a_mirror_that_others_have_compacted_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    columns = {"id": INT4, "v": TEXT}
    for number in range(3):
        mirror.apply(relation(1, "t", columns, "n"), m.Insert(1, row(number, f"v{number}")))
    table = DeltaTable(mirror.location("t"))
    assert table.optimize.compact()["numFilesRemoved"] == 3
    table.create_checkpoint()
    mirror.apply(relation(1, "t", columns, "d"), m.Update(1, row(1, "new")), m.Insert(1, row(7, "v7")))
    mirror.apply(relation(1, "t", {"id": INT4, "w": TEXT, "x": INT4}, "d"), m.Update(1, row(1, "newer", 1)))
    assert mirror.rows() == mirror.expected(tmp_path / "expected")

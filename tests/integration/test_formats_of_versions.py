"""Targets and indexes as earlier versions have left them are read, or refused with what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import walreplay
from support.format_sample import CONFIG, FOLDER, captures, current, unpack, write
from support.format_schemas import PLACES, schema_at
from support.readers import collect, read
from support.truth import mirror_tables
from walreplay.archive.index import FORMAT as INDEX_FORMAT
from walreplay.errors import CaptureError, TargetError
from walreplay.ledger.state import FORMAT as LEDGER_FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

SAMPLES = sorted(FOLDER.glob("*.zip"))


def set_column(table: Path, name: str, change: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> None:
    """Change a column of a table, as another version might have written it."""
    rows = DeltaTable(table).to_pyarrow_table()
    rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), change(rows[name]))
    write_deltalake(table, rows, mode="overwrite")


def rows_but_for_files(target: Path) -> dict[str, Counter[str]]:
    """Return the rows of a target's tables, without the paths of the archive, which has moved."""
    tables = mirror_tables(target)
    columns = {
        name: [column for column in read(place).column_names if column != "__file"] for name, place in tables.items()
    }
    return {name: Counter(map(repr, collect(place, *columns[name]))) for name, place in tables.items()}


def ledger_of(folder: Path) -> dict[str, int]:
    """Return the version of each table of a target."""
    return {
        str(log.parent.relative_to(folder)): DeltaTable(log.parent).version()
        for log in (folder / "mirror").rglob("_delta_log")
    }


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.stem)
def test_what_a_version_has_left_is_read_and_goes_on_or_is_refused(
    spark: SparkSession, tmp_path: Path, file: Path
) -> None:
    ledger_format, _ = unpack(file, tmp_path)
    if ledger_format != LEDGER_FORMAT:
        assert_refused(spark, tmp_path)
        return
    archive, target = tmp_path / "captures", tmp_path / "mirror"

    status = walreplay.status(spark, target)
    assert [(run.run, run.state) for run in status.runs] == [(1, "applied"), (2, "applied")]
    assert {(one.kind, one.xid) for one in status.open_transactions} == {("streamed", 3), ("prepared", 5)}
    past = walreplay.as_of(spark, target, "0/C8", r"s\.orders", CONFIG).tables
    assert {(table.output, table.exact) for table in past} == {("mirror", True), ("history", True), ("changelog", True)}
    (sql,) = (table.sql for table in past if table.output == "history" and table.sql is not None)
    assert sorted(row.id for row in spark.sql(sql).collect()) == [1, 2, 3]

    write(archive, captures()[2:], 3)
    report = walreplay.apply(spark, archive, target, CONFIG)
    assert (report.run, report.warnings) == (3, ())
    fresh = tmp_path / "fresh" / "mirror"
    walreplay.apply(spark, archive, fresh, CONFIG)
    assert rows_but_for_files(target) == rows_but_for_files(fresh)
    for name in ("mirror", "history", "changelog"):
        assert schema_at(tmp_path, name) == schema_at(fresh.parent, name)

    indexed = DeltaTable(tmp_path / PLACES["index"]).to_pyarrow_table(columns=["name", "scanned_as"]).to_pylist()
    assert {row["name"] for row in indexed} == {"001.bin", "002.bin", "003.bin"}
    verified = walreplay.verify(spark, target, archive, config=CONFIG)
    assert (verified.result, len(verified.tables)) == ("equal", 6)


@pytest.mark.parametrize("other", [LEDGER_FORMAT - 1, LEDGER_FORMAT + 1])
def test_a_ledger_of_another_format_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path, other: int) -> None:
    unpack(current(), tmp_path)
    set_column(tmp_path / PLACES["state"], "format", lambda values: pa.chunked_array([pa.array([other], pa.int32())]))
    assert_refused(spark, tmp_path)


def assert_refused(spark: SparkSession, folder: Path) -> None:
    before = ledger_of(folder)
    for command in (
        lambda: walreplay.status(spark, folder / "mirror"),
        lambda: walreplay.apply(spark, folder / "captures", folder / "mirror", CONFIG),
    ):
        with pytest.raises(TargetError, match="the ledger has the format") as caught:
            command()
        assert "Use the walreplay that wrote it" in (caught.value.remedy or "")
        assert "a new target" in (caught.value.remedy or "")
    assert ledger_of(folder) == before


def test_an_index_of_a_later_format_proves_its_files_and_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    unpack(current(), tmp_path)
    index, archive = tmp_path / PLACES["index"], tmp_path / "captures"
    set_column(index, "scanned_as", lambda ways: pc.replace_substring_regex(ways, r"^\d+", str(INDEX_FORMAT + 1)))
    first = archive / "001.bin"
    sound = first.read_bytes()
    first.write_bytes(sound.replace(b"note 1", b"note 2"))
    with pytest.raises(CaptureError, match="indexed"):
        walreplay.apply(spark, archive, tmp_path / "new", CONFIG)
    first.write_bytes(sound)
    # Rows of another format go once there are new ones.
    assert [walreplay.index(spark, archive).files_read for _ in range(2)] == [2, 0]
    ways = DeltaTable(index).to_pyarrow_table()["scanned_as"].to_pylist()
    assert [way.split()[0] for way in ways] == [str(INDEX_FORMAT)] * 2

"""Files of a table: what Parquet holds, and what the table's log is told of it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from walreplay.delta import data_files
from walreplay.delta.data_files import DataFile, DataFileWriter, FileColumn
from walreplay.session.folders import MountedFolder


def _write(folder: Path, columns: list[FileColumn], *batches: list[pa.Array]) -> DataFile:
    writer = DataFileWriter(MountedFolder(str(folder)), columns)
    for arrays in batches:
        writer.write(pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns]))
    file = writer.close()
    assert file is not None
    return file


def _abandoned(folder: Path, columns: list[FileColumn], *batches: list[pa.Array]) -> None:
    with DataFileWriter(MountedFolder(str(folder)), columns) as writer:
        for arrays in batches:
            writer.write(pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns]))


def test_columns_stand_under_their_physical_names_and_ids(tmp_path: Path) -> None:
    file = _write(tmp_path, [FileColumn("n", "col-1", pa.int64(), 7)], [pa.array([1, 2])])
    parquet = pq.ParquetFile(tmp_path / file.name)
    assert parquet.read().to_pydict() == {"col-1": [1, 2]}
    assert parquet.schema_arrow.field(0).metadata == {b"PARQUET:field_id": b"7"}
    assert parquet.metadata.metadata == {b"org.apache.spark.version": pyspark.__version__.encode()}
    assert (file.rows, file.size) == (2, (tmp_path / file.name).stat().st_size)


def test_what_a_struct_holds_has_physical_names_too(tmp_path: Path) -> None:
    logical = pa.list_(pa.struct([("name", pa.string()), ("notes", pa.list_(pa.string()))]))
    physical = pa.list_(pa.struct([("col-2", pa.string()), ("col-3", pa.list_(pa.string()))]))
    values = [[{"name": "a", "notes": ["x", None]}, None], None, [], [{"name": None, "notes": None}]]
    columns = [FileColumn("t", "col-1", physical), FileColumn("n", "col-4", pa.int64())]
    file = _write(tmp_path, columns, [pa.array(values, logical), pa.array([4, 3, 2, 1])])
    (found,) = pq.read_table(tmp_path / file.name, columns=["col-1"]).to_pydict().values()
    assert found == [[{"col-2": "a", "col-3": ["x", None]}, None], None, [], [{"col-2": None, "col-3": None}]]
    # Three of Parquet's columns stand before it.
    assert json.loads(file.stats)["minValues"] == {"col-4": 1}


def test_a_slice_is_written_as_any_other(tmp_path: Path) -> None:
    logical = pa.list_(pa.struct([("name", pa.string())]))
    whole = pa.array([None, [{"name": "a"}], None, [{"name": "b"}, None]], logical)
    physical = pa.list_(pa.struct([("col-2", pa.string())]))
    columns = [FileColumn("t", "col-1", physical), FileColumn("s", "s", pa.string())]
    file = _write(tmp_path, columns, [whole[1:], pa.array(["x", None, "y"], pa.large_string())])
    found = pq.read_table(tmp_path / file.name).to_pydict()
    assert found == {"col-1": [[{"col-2": "a"}], None, [{"col-2": "b"}, None]], "s": ["x", None, "y"]}


def test_what_the_log_cannot_say_is_left_out(tmp_path: Path) -> None:
    columns = [FileColumn("d", "d", pa.date32()), FileColumn("n", "n", pa.int32())]
    file = _write(tmp_path, columns, [pa.array([4_000_000], pa.int32()).cast(pa.date32()), pa.array([1], pa.int32())])
    assert json.loads(file.stats)["maxValues"] == {"n": 1}


def test_an_error_of_writing_is_the_one_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_GROUP_ROWS", 1)
    columns = [FileColumn("n", "n", pa.int32())]
    with pytest.raises(pa.ArrowInvalid):
        _abandoned(tmp_path, columns, [pa.array([1], pa.int32())], [pa.array([1 << 40])])
    assert list(tmp_path.iterdir()) == []


def test_statistics_are_over_all_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_GROUP_ROWS", 2)
    columns = [FileColumn("n", "n", pa.int32()), FileColumn("s", "s", pa.string())]
    batches = [
        [pa.array([5, -3], pa.int32()), pa.array(["b", "é"])],
        [pa.array([None, None], pa.int32()), pa.array([None, None], pa.string())],
        [pa.array([9], pa.int32()), pa.array(["a"])],
    ]
    file = _write(tmp_path, columns, *batches)
    assert pq.ParquetFile(tmp_path / file.name).num_row_groups == 3
    assert json.loads(file.stats) == {
        "numRecords": 5,
        "minValues": {"n": -3, "s": "a"},
        "maxValues": {"n": 9, "s": "é"},
        "nullCount": {"n": 2, "s": 2},
        "tightBounds": True,
    }


def test_a_column_of_nulls_has_no_least_value(tmp_path: Path) -> None:
    file = _write(tmp_path, [FileColumn("n", "n", pa.int32())], [pa.nulls(3, pa.int32())])
    assert json.loads(file.stats) == {"numRecords": 3, "nullCount": {"n": 3}, "tightBounds": True}


def test_nobody_is_told_of_the_order_of_floats(tmp_path: Path) -> None:
    columns = [FileColumn("f", "f", pa.float64()), FileColumn("l", "l", pa.list_(pa.float32()))]
    values = [pa.array([math.nan, 1.0]), pa.array([[math.nan], [1.0]], pa.list_(pa.float32()))]
    file = _write(tmp_path, columns, values)
    assert json.loads(file.stats) == {"numRecords": 2, "tightBounds": True}
    group = pq.ParquetFile(tmp_path / file.name).metadata.row_group(0)
    assert [group.column(number).statistics for number in range(2)] == [None, None]


def test_columns_that_are_not_indexed_are_left_out(tmp_path: Path) -> None:
    columns = [FileColumn("a", "a", pa.int32(), indexed=False), FileColumn("b", "b", pa.int32())]
    file = _write(tmp_path, columns, [pa.array([1], pa.int32()), pa.array([2], pa.int32())])
    assert json.loads(file.stats)["minValues"] == {"b": 2}


def test_a_text_that_is_too_long_for_parquets_statistics_has_none(tmp_path: Path) -> None:
    file = _write(tmp_path, [FileColumn("s", "s", pa.string())], [pa.array(["x" * 100_000, "y"])])
    assert json.loads(file.stats).get("maxValues", {}).get("s", "y") == "y"


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    writer = DataFileWriter(MountedFolder(str(tmp_path / "t")), [FileColumn("n", "n", pa.int32())])
    writer.write(pa.RecordBatch.from_arrays([pa.array([], pa.int32())], names=["n"]))
    assert writer.close() is None
    assert not (tmp_path / "t").exists()

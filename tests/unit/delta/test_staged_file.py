"""What is staged in files is read back row by row, each in one share."""

from __future__ import annotations

from contextlib import closing
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from walreplay.delta import staged_file
from walreplay.delta.staged_file import RowSelection, Sharing, StagedFileWriter, read_columns, read_rows
from walreplay.session.folders import MountedFolder, StoreFolder

_COLUMNS = ("table", "bucket", "sequence", "size")
Row = tuple[int, int, int, bytes]


def _batch(rows: list[Row]) -> pa.RecordBatch:
    """Return rows as they are staged: table, bucket, sequence and data."""
    table, bucket, sequence, data = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "table": pa.array(table, pa.int32()),
            "bucket": pa.array(bucket, pa.int32()),
            "sequence": pa.array(sequence, pa.int64()),
            "info": pa.array(["{}"] * len(rows)),
            "size": pa.array([len(value) for value in data], pa.int64()),
            "data": pa.array(data, pa.binary()),
        }
    )


def _write(folder: Path, rows: list[Row], *, at_once: int = 3, kind: type[MountedFolder] = MountedFolder) -> str:
    with StagedFileWriter(kind(str(folder))) as file:
        for start in range(0, len(rows), at_once):
            file.add(_batch(rows[start : start + at_once]))
        closed = file.close()
    assert closed is not None
    assert closed[1].num_rows == len(rows)
    return closed[0]


@pytest.fixture
def rows() -> list[list[Row]]:
    """Rows of three files: of three tables, in five buckets and without any."""
    random = np.random.default_rng(7)
    return [
        [
            (
                int(random.integers(-2, 2)),
                int(random.integers(-1, 5)),
                int(random.integers(0, 40)),
                random.bytes(int(random.integers(0, 50))),
            )
            for _ in range(60)
        ]
        for _ in range(3)
    ]


def _expected(rows: list[list[Row]], wanted: RowSelection) -> list[tuple[int, int, bytes]]:
    return [
        (bucket, sequence, data)
        for file in rows
        for table, bucket, sequence, data in file
        if table == wanted.table
        and bucket >= wanted.least_bucket
        and sequence >= wanted.start
        and (wanted.stop is None or sequence < wanted.stop)
    ]


@pytest.mark.parametrize("far", [False, True])
def test_more_files_than_a_process_may_have_open_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    monkeypatch.setattr(staged_file, "_MOST_OPEN", 3)
    names = [_write(tmp_path, [(0, bucket, number, b"%d" % number) for bucket in (0, 1)]) for number in range(10)]
    folder = FarFolder(str(tmp_path)) if far else MountedFolder(str(tmp_path))
    found = list(read_rows(folder, names, RowSelection(0), (0, 1), Sharing.BY_BUCKET))
    assert found == [(bucket, number, b"%d" % number) for bucket in (0, 1) for number in range(10)]


@pytest.mark.parametrize("sharing", [Sharing.BY_BUCKET, Sharing.TOGETHER])
def test_what_is_read_ahead_in_a_store_is_kept_up_to_its_last_row(tmp_path: Path, sharing: Sharing) -> None:
    folder = StoreFolder("file", "", str(tmp_path), "LocalFileSystem", ())
    names: list[str] = []
    rows = [[(0, number % 2, 10 * file + number, b"%d" % number) for number in range(10)] for file in (0, 1)]
    for file in rows:
        with StagedFileWriter(folder) as writer:
            writer.add(_batch(file))
            closed = writer.close()
        assert closed is not None
        names.append(closed[0])
    with closing(staged_file._Files(folder, names)) as files:
        places = staged_file._places(files, RowSelection(0), (0, 1), sharing)
        assert places is not None
        windows, of_row = staged_file._windows(places, 1000)
        assert len(windows) < len(of_row)
        most, found = 0, []
        with closing(staged_file._Reader(files, windows, of_row, 2)) as reader:
            for row, (offset, size) in enumerate(zip(*places[3:], strict=True)):
                found.append(reader.read(row, int(offset), int(size)))
                most = max(most, len(reader._read))
            assert (most, reader._read, reader._coming) == (1, {}, {})
    expected = [row for file in rows for row in file]
    if sharing is Sharing.BY_BUCKET:
        expected.sort(key=lambda row: row[1:3])
    assert found == [row[-1] for row in expected]


def test_small_files_of_a_store_are_not_all_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, names = StoreFolder("file", "", str(tmp_path), "LocalFileSystem", ()), []
    for number in range(10):
        with StagedFileWriter(folder) as writer:
            writer.add(_batch([(0, 0, number, bytes(1000))]))
            closed = writer.close()
        assert closed is not None
        names.append(closed[0])
    size = max(Path(tmp_path, name).stat().st_size for name in names)
    monkeypatch.setattr(staged_file, "_MOST_HELD", 3 * size)
    with closing(staged_file._Files(folder, names)) as files:
        most = 0
        for number in range(10):
            assert files.opened(number).size() <= size
            most = max(most, len(files._files))
    assert most == 3
    assert len(list(read_rows(folder, names, RowSelection(0), (0, 1), Sharing.BY_BUCKET))) == 10


def test_an_index_of_many_rows_takes_little_memory(tmp_path: Path) -> None:
    # A batch of one row takes 7 kB.
    row = _batch([(0, 0, 0, b"")])
    with StagedFileWriter(MountedFolder(str(tmp_path))) as file:
        for _ in range(staged_file._BATCHES_AT_ONCE * 3 + 1):
            file.add(row)
        assert (len(file._places._joined), len(file._places._last)) == (3, 1)
        closed = file.close()
    assert closed is not None
    assert closed[1].num_rows == staged_file._BATCHES_AT_ONCE * 3 + 1


class FarFolder(MountedFolder):
    """A folder from which neighbouring rows are read together, ahead of their turn, as from an object store."""

    is_far = True


@pytest.mark.parametrize("kind", [MountedFolder, FarFolder])
@pytest.mark.parametrize("between", [0, 20, 1 << 20])
@pytest.mark.parametrize("at_once", [1, 100, 8 << 20])
@pytest.mark.parametrize("shares", [1, 3, 7])
@pytest.mark.parametrize(
    "wanted",
    [RowSelection(1), RowSelection(0, 10, 30), RowSelection(-2, least_bucket=-1), RowSelection(5)],
    ids=["all", "between", "without buckets", "none"],
)
def test_each_wanted_row_is_in_one_share(
    tmp_path: Path,
    rows: list[list[Row]],
    wanted: RowSelection,
    shares: int,
    kind: type[MountedFolder],
    between: int,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staged_file, "_BETWEEN", between)
    monkeypatch.setattr(staged_file, "_AT_ONCE", at_once)
    monkeypatch.setattr(staged_file, "_MOST_WAITING", 1000)
    names = [_write(tmp_path, file, kind=kind) for file in rows]
    for sharing in Sharing:
        folder = kind(str(tmp_path))
        parts = [list(read_rows(folder, names, wanted, (n, shares), sharing)) for n in range(shares)]
        expected = _expected(rows, wanted)
        found = [row for part in parts for row in part]
        if sharing is Sharing.TOGETHER:
            assert not any(parts[1:])
            expected = [(0, sequence, data) for _, sequence, data in expected]
        assert sorted(found) == sorted(expected)
        for part in parts:
            assert [row[:2] for row in part] == sorted(row[:2] for row in part)
        if sharing is Sharing.BY_BUCKET:
            buckets = [bucket for part in parts for bucket, _ in groupby(row[0] for row in part)]
            assert len(buckets) == len(set(buckets))
        if sharing is Sharing.IN_TURN:
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(("waiting", "windows"), [(1 << 20, 5), (3000, 10), (0, 40)])
def test_what_is_read_together_lies_together_in_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int, windows: int
) -> None:
    monkeypatch.setattr(staged_file, "_MOST_WAITING", waiting)
    monkeypatch.setattr(staged_file, "_BETWEEN", 0)
    rows = [(0, number % 5, number, bytes([number]) * 100) for number in range(40)]
    name = _write(tmp_path, rows, kind=FarFolder)
    assert sorted(row[2][0] for row in _read_all(tmp_path, name)) == list(range(40))
    with closing(staged_file._Files(FarFolder(str(tmp_path)), [name])) as files:
        places = staged_file._places(files, RowSelection(0), (0, 1), Sharing.BY_BUCKET)
        assert places is not None
        assert len(staged_file._windows(places, 0)[0]) == windows


def _read_all(folder: Path, name: str) -> list[tuple[int, int, bytes]]:
    return list(read_rows(FarFolder(str(folder)), [name], RowSelection(0), (0, 1), Sharing.BY_BUCKET))


def test_the_index_has_the_columns_of_each_table_but_the_data(tmp_path: Path, rows: list[list[Row]]) -> None:
    name = _write(tmp_path, rows[0])
    for table in range(-2, 3):
        wanted = RowSelection(table, least_bucket=-1)
        found = read_columns(MountedFolder(str(tmp_path)), name, wanted, ("bucket", "sequence", "size"))
        of_table = [(*row[1:3], len(row[3])) for row in rows[0] if row[0] == table]
        assert sorted(found) == sorted(of_table)
        assert [row[:2] for row in found] == sorted(row[:2] for row in of_table)


def test_a_file_of_no_rows_is_not_made(tmp_path: Path) -> None:
    with StagedFileWriter(MountedFolder(str(tmp_path / "none"))) as file:
        assert file.close() is None
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_not_finished_is_thrown_away(tmp_path: Path) -> None:
    def write() -> None:
        with StagedFileWriter(MountedFolder(str(tmp_path))) as file:
            file.add(_batch([(0, 0, 0, b"x")]))
            assert len(list(tmp_path.iterdir())) == 1
            file.add(pa.RecordBatch.from_pydict({"table": [0]}))

    with pytest.raises(KeyError, match="data"):
        write()
    assert list(tmp_path.iterdir()) == []

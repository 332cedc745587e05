"""Workers read capture files of a store several at a time, and give them in their order, each with its bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from walreplay.session.folders import StoreFolder
from walreplay.spark.workers import scan as contents
from walreplay.spark.workers.scan import StoredFile, with_contents

_FILES = 100


def _store(path: Path) -> StoreFolder:
    return StoreFolder("s3a", "lake", str(path), "LocalFileSystem", ())


def _uri(store: StoreFolder, name: str) -> str:
    return f"{store.uri}/{name}"


def _numbers(*parts: Iterable[int]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield pa.RecordBatch.from_pydict({"file": pa.array(part, pa.int64())})


def _as_it_is(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def test_files_come_in_their_order_each_with_its_bytes_or_its_error(tmp_path: Path) -> None:
    store = _store(tmp_path)
    paths = [_uri(store, f"{number}.bin") for number in range(_FILES)]
    for number in range(_FILES):
        if number != 7:
            (tmp_path / f"{number}.bin").write_bytes(b"%d" % number)
    asked = [*range(_FILES - 1, 49, -1)], [*range(50)]
    rows = list(with_contents(_numbers(*asked), work=_as_it_is, bucket=store, paths=paths))
    assert [row.num_rows for row in rows] == [1] * _FILES
    found = [row.to_pylist()[0] for row in rows]
    assert [row["path"] for row in found] == [paths[number] for part in asked for number in part]
    for row in found:
        if row["path"] == paths[7]:
            assert row["content"] is None
            assert "it is not there" in row["error"]
        else:
            assert (row["content"], row["error"]) == (Path(row["path"]).stem.encode(), None)


@pytest.mark.parametrize("size", [0, 1, 10, 11, 49, 50, 51, 120])
def test_a_file_of_any_size_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(contents, "_SMALL", 10)
    monkeypatch.setattr(contents, "_PART", 50)
    (tmp_path / "1.bin").write_bytes(bytes(range(size)))
    assert StoredFile(_store(tmp_path), "1.bin").read().to_pybytes() == bytes(range(size))


class _Meeting(StoredFile):
    """A file that is opened only together with as many others as are read at once."""

    all_of_them = threading.Barrier(contents._FILES_AT_ONCE, timeout=20)

    def __init__(self, bucket: StoreFolder, name: str) -> None:
        self.all_of_them.wait()
        super().__init__(bucket, name)


def test_small_files_are_asked_for_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, count = _store(tmp_path), 2 * contents._FILES_AT_ONCE
    paths = [_uri(store, f"{number}.bin") for number in range(count)]
    for number in range(count):
        (tmp_path / f"{number}.bin").write_bytes(b"x")
    monkeypatch.setattr(contents, "StoredFile", _Meeting)
    rows = list(with_contents(_numbers(range(count)), work=_as_it_is, bucket=store, paths=paths))
    assert len(rows) == count


def test_of_large_files_none_is_read_before_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_SMALL", 1)
    store, reading = _store(tmp_path), list[str]()
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(b"xx")
    read = StoredFile.read

    def noted(file: StoredFile) -> pa.Buffer:
        assert file._whole is None
        reading.append("read")
        return read(file)

    monkeypatch.setattr(StoredFile, "read", noted)

    def first_alone(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(iter(batches))

    paths = [_uri(store, f"{number}.bin") for number in range(3)]
    assert len(list(with_contents(_numbers(range(3)), work=first_alone, bucket=store, paths=paths))) == 1
    assert reading == ["read"]

"""What a scanning task hands to its worker."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from support.framings import frame
from walreplay.decode.files import ScanTask
from walreplay.errors import EncodingMismatch, from_dict
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.spark.captures import tasks_for
from walreplay.spark.workers import scan as workers
from walreplay.spark.workers.scan import scan_batches
from walreplay.types.text import codec_of

MEGABYTE = 1 << 20


def scanned(**given):
    relation = m.Relation(9, "s", "stra@e", "d", (m.Column("id", 23, -1, True),))
    data = frame([m.Begin(100, 5, 7), relation, m.Commit(0, 100, 108, 5)], Framing.RAW).replace(b"@", b"\xdf")
    files = pa.RecordBatch.from_pylist([{"path": "a", "content": data}])
    (found,) = scan_batches([files], tasks={"a": ScanTask(None, first=True, **given)})
    (row,) = found.to_pylist()
    return row


def test_names_are_read_in_the_configured_encoding():
    scan = pickle.loads(scanned(codec=codec_of("LATIN1"))["scan"])
    ((_, relation),) = scan.parts[0].summary.relations
    assert relation.name == "straße"


def test_an_encoding_that_is_not_configured_is_told_by_the_driver():
    error = from_dict(json.loads(scanned()["error"]))
    assert isinstance(error, EncodingMismatch)
    assert "source_encoding" in str(error)


def test_mounted_files_come_by_number_and_are_read_where_they_are_scanned(tmp_path):
    data = frame([m.Begin(100, 5, 7), m.Commit(0, 100, 108, 5)], Framing.RAW)
    paths = [f"file:{tmp_path}/{name}" for name in ("a", "gone", "b")]
    for path in paths[::2]:
        Path(path.removeprefix("file:")).write_bytes(data)
    numbers = [pa.RecordBatch.from_pydict({"file": part}) for part in ([2], [0, 1])]
    tasks = {path: ScanTask(None, first=True) for path in paths}
    (rows,) = scan_batches(numbers, tasks=tasks)
    second, first, gone = rows.to_pylist()
    assert [pickle.loads(row["scan"]).path for row in (second, first)] == [paths[2], paths[0]]
    assert from_dict(json.loads(gone["error"])).path == paths[1]


def test_scans_are_told_some_at_a_time(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(frame([m.Begin(100, 5, 7), m.Commit(0, 100, 108, 5)], Framing.RAW))
    path, numbers = f"file:{tmp_path}/a", [pa.RecordBatch.from_pydict({"file": [0] * 5})]
    monkeypatch.setattr(workers, "_SCANS_A_BATCH", 2)
    assert [batch.num_rows for batch in scan_batches(numbers, tasks={path: ScanTask(None, first=True)})] == [2, 2, 1]
    monkeypatch.setattr(workers, "_BYTES_A_BATCH", 1)
    assert [batch.num_rows for batch in scan_batches(numbers, tasks={path: ScanTask(None, first=True)})] == [1] * 5


@pytest.mark.parametrize(("files", "tasks"), [(1, None), (32, None), (33, 33), (64, 64), (200, 64), (10_000, 2_500)])
def test_many_files_are_shared_out_to_tasks_of_a_few(files, tasks):
    assert tasks_for(files, files * 32 * MEGABYTE, None) == tasks


@pytest.mark.parametrize(("size", "tasks"), [(0, 64), (1_000, 64), (MEGABYTE, 312), (8 * MEGABYTE, 2_500)])
def test_of_small_files_many_go_into_one_task(size, tasks):
    assert tasks_for(10_000, 10_000 * size, None) == tasks


@pytest.mark.parametrize(("files", "tasks"), [(32, None), (33, 8), (10_000, 8)])
def test_in_local_mode_tasks_go_by_the_cores(files, tasks):
    assert tasks_for(files, files * 32 * MEGABYTE, 2) == tasks

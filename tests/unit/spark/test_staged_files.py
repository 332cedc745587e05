"""What tasks stage in files, and what they tell the driver of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from walreplay.delta.staged_file import RowSelection, Sharing
from walreplay.fold.events import batch_from_ipc
from walreplay.session.folders import MountedFolder
from walreplay.spark.staging import Staging
from walreplay.spark.workers.rows import Total, refusal_in, stage_batch, staged_row
from walreplay.spark.workers.write import Shares, over_shares, stage_into_file
from walreplay.writing.update import bins_of, parts_of

_ROWS = (
    staged_row(0, 0, 5, "a", bucket=0, rows=3, data=b"one"),
    staged_row(0, 0, 6, "a", bucket=1, rows=0, data=b"three"),
    staged_row(0, 1, 7, "b", bucket=0, rows=2, data=b""),
    staged_row(1, 2, 5, "a", rows=1),
)
"""What a file's decoding gives: of two tables, one of them in two versions."""


def _work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("file").to_pylist():
            if number < 0:
                raise RuntimeError("the file cannot be decoded")
            for row in _ROWS:
                yield stage_batch(row)


def _files(*numbers: int) -> Iterator[pa.RecordBatch]:
    yield from (pa.RecordBatch.from_pydict({"file": [number]}) for number in numbers)


def _staged(folder: Path, *tasks: tuple[int, ...]) -> tuple[Staging, list[Total]]:
    """Stage files by some tasks."""
    staging, files = Staging(MountedFolder(str(folder))), []
    for numbers in tasks:
        for batch in stage_into_file(_files(*numbers), work=_work, folder=MountedFolder(str(folder))):
            files += [(row["name"], batch_from_ipc(row["totals"])) for row in batch.to_pylist()]
    return staging, [Total(**row) for row in staging._add_files(files).to_pylist()]


def _shares(staging: Staging, wanted: RowSelection, tasks: int) -> Shares:
    return staging._rows(None, wanted, tasks, Sharing.BY_BUCKET).shares  # type: ignore[arg-type]


def test_a_task_writes_one_file_and_tells_what_its_rows_come_to(tmp_path: Path) -> None:
    _, told = _staged(tmp_path, (0, 1), (2,))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".staged", ".staged"]
    totals = [
        Total(0, 0, "a", 3, 8, 5, 6),
        Total(0, 1, "b", 2, 0, 7, 7),
        Total(1, 2, "a", 1, 0, 5, 5),
    ]
    totals = [total._replace(rows=3 * total.rows, size=3 * total.size) for total in totals]
    assert sorted(told) == totals


def test_what_tasks_have_staged_is_found(tmp_path: Path) -> None:
    staging, _ = _staged(tmp_path, (0, 1), (2,))
    assert staging._places(0) == [(5, 0), (6, 0), (7, 1)]
    shares = _shares(staging, RowSelection(0, start=6), 1)
    assert [batch.to_pylist()[0]["data"] for batch in shares.of(0)] == [b""] * 3 + [b"three"] * 3


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cannot be decoded"):
        list(stage_into_file(_files(0, -1), work=_work, folder=MountedFolder(str(tmp_path))))
    assert list(tmp_path.iterdir()) == []


def test_clearing_leaves_nothing_behind_whoever_has_written_it(tmp_path: Path) -> None:
    folder = tmp_path / "staging"
    (folder / "table=0").mkdir(parents=True)
    (folder / "table=0" / "part-0.parquet").touch()
    staging, _ = _staged(folder, (0,))
    staging.clear()
    assert not folder.exists()


def test_where_nothing_can_be_written_the_error_names_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "file" / "staging"
    folder.parent.touch()
    with pytest.raises(RuntimeError) as caught:
        list(stage_into_file(_files(0), work=_work, folder=MountedFolder(str(folder))))
    error = refusal_in(str(caught.value))
    assert error is not None
    assert str(error).startswith(f"{folder}: staged rows cannot be written: Not a directory.")


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def test_a_task_works_on_its_shares_alone(tmp_path: Path) -> None:
    staging, _ = _staged(tmp_path, (0, 1), (2,))
    shares = _shares(staging, RowSelection(0), 2)
    numbers = pa.RecordBatch.from_pydict({"id": [0, 1]})
    found = [batch.to_pylist() for batch in over_shares([numbers], work=_counted, shares=shares)]
    assert found == [[{"rows": 6}], [{"rows": 3}]]


@pytest.mark.parametrize("count", [1, 3, 40, 200])
def test_work_that_is_done_together_is_shared_out_evenly(count: int) -> None:
    sizes, weighted = [(50 << 20) if number % 17 == 0 else 100 for number in range(count)], []
    for table, size in enumerate(sizes):
        shares = Shares(MountedFolder(""), (), RowSelection(0), 1 + size // (4 << 20), Sharing.BY_BUCKET)
        weighted += parts_of(table, size, shares, _counted)
    bins = bins_of(weighted)
    weights = {(part.table, part.number): weight for weight, part in weighted}
    assert sorted((part.table, part.number) for bin_ in bins for part in bin_) == sorted(weights)
    loads = [sum(weights[part.table, part.number] for part in bin_) for bin_ in bins]
    assert max(loads) - min(loads) <= max(weights.values())
    assert max(loads) <= (8 << 20) + max(weights.values())

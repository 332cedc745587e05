"""A folder that the user names for staged events is used where workers and driver mean the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.tasks_here import TasksHere
from walreplay.delta.target import Target
from walreplay.session.folders import MountedFolder
from walreplay.spark.staged_rows import FileStaging, ReachedStaging
from walreplay.writing.by_statements import TableWriter


class _Client(TasksHere):
    """A client of Spark Connect; ``workers_root`` stands for the root of its workers' disks."""

    def __init__(self, workers_root: str = "", *, fails: bool = False) -> None:
        super().__init__(fails=fails)
        self._root = workers_root

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> TasksHere:  # noqa: N802
        assert isinstance(task, partial)
        there = MountedFolder(self._root + task.keywords["folder"].path)
        return super().mapInArrow(partial(task, folder=there), schema)


Make = Callable[[Path], _Client]


@pytest.mark.parametrize(
    ("make", "is_used"),
    [
        (lambda _: _Client(), True),
        # The same path is another disk there.
        (lambda path: _Client(str(path / "elsewhere")), False),
        (lambda _: _Client("/proc"), False),
        (lambda _: _Client(fails=True), False),
    ],
    ids=["the same", "another disk", "not writable", "no executors"],
)
def test_it_is_tried_once_and_used_where_all_reach_it(tmp_path: Path, make: Make, is_used: bool) -> None:
    spark: Any = make(tmp_path)
    place = MountedFolder(str(tmp_path / "mine"))
    staged = ReachedStaging(spark, place)
    for _ in range(2):
        assert staged.folder("run") == (place.inside("_walreplay_staging") if is_used else None)
    assert spark.tried == 1
    writer = TableWriter(staged=staged)
    staging = writer.staging(Target.parse("main"), "run", None, 0)
    assert isinstance(staging, FileStaging) is is_used


def test_what_is_in_the_users_folder_stays_there(tmp_path: Path) -> None:
    spark: Any = _Client()
    (tmp_path / "mine.txt").write_text("x", encoding="utf-8")
    writer = TableWriter(staged=ReachedStaging(spark, MountedFolder(str(tmp_path))))
    staging = writer.staging(Target.parse("main"), "run", None, 0)
    staging.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

"""A folder that the user names for staged events is used where workers and driver mean the same one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from support.tasks_here import TasksHere
from walreplay.delta.target import Target
from walreplay.errors import ConfigError
from walreplay.session.folders import MountedFolder
from walreplay.spark.reached import Reached
from walreplay.writing.by_statements import TableWriter


class _Client(TasksHere):
    """A client of Spark Connect; ``workers_root`` stands for the root of its workers' disks, ``text`` for Spark's."""

    def __init__(self, workers_root: str = "", text: str = "1") -> None:
        super().__init__()
        self._root = workers_root
        self.read = SimpleNamespace(text=lambda _: SimpleNamespace(collect=lambda: [SimpleNamespace(value=text)]))

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> TasksHere:  # noqa: N802
        assert isinstance(task, partial)
        there = MountedFolder(self._root + task.keywords["folder"].path)
        return super().mapInArrow(partial(task, folder=there), schema)


Make = Callable[[Path], _Client]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda _: _Client(), None),
        # The same path is another disk there.
        (lambda path: _Client(str(path / "elsewhere")), "the driver, or Spark itself, does not find there"),
        (lambda _: _Client("/proc"), "an executor cannot write and read there (No such file or directory)"),
        (lambda _: _Client(text="2"), "Spark reads something else there"),
    ],
    ids=["the same", "another disk", "not writable", "another place to Spark"],
)
def test_it_is_tried_once_and_used_where_all_reach_it(tmp_path: Path, make: Make, problem: str | None) -> None:
    spark: Any = make(tmp_path)
    place = MountedFolder(str(tmp_path / "mine"))
    reached, folder = Reached(spark, place), place.inside("_walreplay_staging")
    for _ in range(2):
        if problem is None:
            assert reached.staging(Target.parse("main"), "run") == folder
        else:
            with pytest.raises(ConfigError, match=re.escape(f"staging ({folder.uri}): {problem}")):
                reached.staging(Target.parse("main"), "run")
    assert spark.tried == 1


def test_what_is_in_the_users_folder_stays_there(tmp_path: Path) -> None:
    spark: Any = _Client()
    (tmp_path / "mine.txt").write_text("x", encoding="utf-8")
    writer = TableWriter(Reached(spark, MountedFolder(str(tmp_path))))
    staging = writer.staging(Target.parse("main"), "run", None)
    staging.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

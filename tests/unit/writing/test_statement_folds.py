"""A statement reads the files that the folding tasks have named, and no others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from walreplay.delta.data_files import DataFile
from walreplay.session.folders import MountedFolder
from walreplay.spark.workers.write import FilesWritten, FileTask
from walreplay.writing.by_statements import MergeFold

_SCHEMA = pa.schema([("c0", pa.int64()), ("deleted", pa.bool_())])


class _Spark:
    """Notes what a session is to read."""

    def __init__(self) -> None:
        self.paths: tuple[str, ...] | None = None
        self.schemas: list[str] = []
        self.read = SimpleNamespace(schema=self._with_schema)

    def _with_schema(self, schema: str) -> Any:
        self.schemas.append(schema)
        return SimpleNamespace(parquet=self._parquet)

    def _parquet(self, *paths: str) -> str:
        self.paths = paths
        return "rows"

    def createDataFrame(self, rows: list[object], schema: str) -> str:  # noqa: N802
        assert rows == []
        self.schemas.append(schema)
        return "no rows"


def _fold(folder: Path) -> MergeFold:
    nothing: Any = None
    return MergeFold(None, nothing, nothing, FileTask.keeping(MountedFolder(str(folder)), _SCHEMA))


def _written(*names: str) -> FilesWritten:
    return FilesWritten(tuple(DataFile(name, 1, 2, "") for name in names), {})


def test_what_a_task_that_ran_twice_has_left_is_not_read(tmp_path: Path) -> None:
    folder, spark = tmp_path / "staging of [us] {1}* 50%25", _Spark()
    folder.mkdir()
    for name in ("part-1.parquet", "part-2.parquet", "part-1-again.parquet", "events.staged"):
        (folder / name).touch()
    session: Any = spark
    with _fold(folder).read(session, _written("part-1.parquet", "part-2.parquet")) as rows:
        assert rows == "rows"  # type: ignore[comparison-overlap]
        # A name is no pattern.
        escaped = str(folder).replace("[", "\\[").replace("]", "\\]").replace("{", "\\{").replace("}", "\\}")
        escaped = escaped.replace("*", "\\*")
        assert spark.paths == (f"file:{escaped}/part-1.parquet", f"file:{escaped}/part-2.parquet")
        assert len(list(folder.iterdir())) == 4
    assert spark.schemas == ["`c0` BIGINT, `deleted` BOOLEAN"]
    # The others go with the folder, at the end of the run.
    assert sorted(path.name for path in folder.iterdir()) == ["events.staged", "part-1-again.parquet"]


def test_files_of_a_statement_that_failed_are_left_to_the_end_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "part-1.parquet").touch()
    session: Any = _Spark()
    with pytest.raises(RuntimeError), _fold(tmp_path).read(session, _written("part-1.parquet")):
        raise RuntimeError("a conflict")
    assert (tmp_path / "part-1.parquet").exists()


def test_an_epoch_without_rows_reads_no_file(tmp_path: Path) -> None:
    spark = _Spark()
    session: Any = spark
    fold = _fold(tmp_path)
    with fold.read(session, fold.run(session)) as rows:
        assert rows == "no rows"  # type: ignore[comparison-overlap]
    assert spark.paths is None

"""Files that are listed and then not read: named, with what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walreplay.decode.files import ScanTask
from walreplay.errors import CaptureError
from walreplay.spark.captures import scan_each

PATHS = ("file:/captures/1.bin", "file:/captures/2.bin")

TASKS = {path: ScanTask(framing=None, first=path == PATHS[0]) for path in PATHS}


class NoRows:
    """A session whose jobs bring nothing of any file."""

    def range(self, *_: int | None) -> NoRows:
        return self

    def withColumnRenamed(self, *_: str) -> NoRows:  # noqa: N802
        return self

    def mapInArrow(self, *_: Any) -> NoRows:  # noqa: N802
        return self

    def collect(self) -> Sequence[Any]:
        return []


def assert_told(error: object, path: str) -> None:
    assert isinstance(error, CaptureError)
    assert error.path == path
    assert "has vanished since" in str(error)
    assert error.remedy is not None
    assert "run again" in error.remedy


def test_each_file_that_a_scan_did_not_bring_is_named() -> None:
    found = scan_each(NoRows(), TASKS)  # type: ignore[arg-type]
    assert list(found) == list(PATHS)
    for path, error in found.items():
        assert_told(error, path)

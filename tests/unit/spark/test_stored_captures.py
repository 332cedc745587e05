"""Captures in an object store are read by the workers themselves where these reach it, and by Spark elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.tasks_here import TasksHere
from walreplay.session.folders import StoreFolder
from walreplay.spark import captures as stored


class _Cluster(TasksHere):
    """A session of a cluster."""

    def __init__(self, name: str, *, fails: bool = False) -> None:
        super().__init__(fails=fails)
        self._jsparkSession = None
        self.sparkContext = SimpleNamespace(applicationId=name)


@pytest.fixture(autouse=True)
def _on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "local_cores", lambda _: None)


def _bucket(monkeypatch: pytest.MonkeyPatch, path: Path, kind: str = "LocalFileSystem") -> None:
    folder = StoreFolder("s3a", "lake", str(path), kind, ())
    # Named as if the folder were the bucket.
    monkeypatch.setattr(StoreFolder, "uri", property(lambda _: "s3a://lake"))
    monkeypatch.setattr(stored, "folder_of", lambda *_: folder)


@pytest.mark.parametrize("name", ["1.bin", "of a moment ago.bin"])
def test_a_bucket_that_workers_reach_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "1.bin").write_bytes(b"x")
    _bucket(monkeypatch, tmp_path)
    spark: Any = _Cluster(f"reached {name}")
    for _ in range(2):
        assert stored.bucket_of(spark, [f"s3a://lake/{name}"]) is not None
    assert spark.tried == 1


@pytest.mark.parametrize(("kind", "fails"), [("NoFileSystem", False), ("LocalFileSystem", True)])
def test_a_bucket_that_workers_do_not_reach_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, fails: bool
) -> None:
    (tmp_path / "1.bin").write_bytes(b"x")
    _bucket(monkeypatch, tmp_path, kind)
    spark: Any = _Cluster(f"not reached {kind}", fails=fails)
    for _ in range(2):
        assert stored.bucket_of(spark, ["s3a://lake/1.bin"]) is None
    assert spark.tried == 1

"""The tables of a catalog: how often the workers are tried, and where events are staged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from walreplay.delta.target import TableName, Target
from walreplay.errors import ConfigError
from walreplay.session.folders import Folder, MountedFolder, StoreFolder
from walreplay.spark import reached
from walreplay.spark.reached import ReachedCatalog


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Folder]:
    """Have the workers reach all places but those of the schema ``closed``; give those that they tried."""
    found: list[Folder] = []

    def reach_problem(_: Any, folder: Folder) -> str | None:
        found.append(folder)
        folder.make()
        return "closed" if "closed" in folder.uri else None

    monkeypatch.setattr(reached, "reach_problem", reach_problem)
    return found


def _catalog() -> ReachedCatalog:
    spark: Any = None
    return ReachedCatalog(spark)


def test_the_workers_are_tried_once_for_a_folder_of_tables(tmp_path: Path, tried: list[Folder]) -> None:
    catalog, root = _catalog(), MountedFolder(str(tmp_path))
    for _ in range(2):
        for name, expected in (("s.db/a", True), ("s.db/b", True), ("closed.db/a", False), ("closed.db/b", False)):
            assert catalog.by_workers(root.inside(name)) is expected
    assert len(tried) == 2
    # What was tried leaves nothing behind.
    assert [path for path in tmp_path.rglob("*") if "reached" in path.name] == []


def test_the_workers_are_tried_once_for_a_bucket(tried: list[Folder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreFolder, "delete_all", lambda _: None)
    catalog = _catalog()
    for bucket in ("one", "other"):
        for name in ("s.db/a", "t.db/b"):
            path = f"{bucket}/{name}"
            assert catalog.by_workers(StoreFolder("s3a", bucket, path, "S3FileSystem", (("region", "x"),)))
    assert [folder.uri.split("/")[2] for folder in tried] == ["one", "other"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target.parse("spark_catalog"), ".staging"),
        (Target.parse("spark_catalog.shop"), "._walreplay_staging"),
        (Target.parse("spark_catalog.shop").of_source("US"), "._walreplay_us_staging"),
        (Target.parse("spark_catalog").side("x1"), ".rebuild_x1_staging"),
    ],
)
def test_events_are_staged_where_no_table_can_be(
    tmp_path: Path, tried: list[Folder], monkeypatch: pytest.MonkeyPatch, target: Target, expected: str
) -> None:
    monkeypatch.setattr(reached, "schema_folder", lambda *_: MountedFolder(str(tmp_path)))
    staging = _catalog().staging(target, "run")
    assert staging == MountedFolder(str(tmp_path / expected))
    # What is tried there goes with the run's own folder.
    assert tried == [staging.inside("run")]


@pytest.mark.parametrize("folder", [None, "closed"])
def test_where_workers_do_not_reach_the_schema_the_error_says_what_to_name(
    tmp_path: Path, tried: list[Folder], monkeypatch: pytest.MonkeyPatch, folder: str | None
) -> None:
    place = None if folder is None else MountedFolder(str(tmp_path / folder))
    monkeypatch.setattr(reached, "schema_folder", lambda *_: place)
    with pytest.raises(ConfigError, match=r"share no folder for the run's events.*staging: /Volumes/") as caught:
        _catalog().staging(Target.parse("spark_catalog"), "run")
    assert (f"the target's own place (file:{tmp_path}/closed/.staging): closed" in str(caught.value)) == (
        folder is not None
    )
    assert len(tried) == (folder is not None)


def test_a_table_whose_folder_delta_rs_takes_for_another_is_left_to_statements() -> None:
    spark: Any = None
    root = reached.ReachedRoot(spark, "/data", MountedFolder("/data"))
    assert root.located(spark, TableName(path="/data/s/a b")) == MountedFolder("/data/s/a b")
    assert root.located(spark, TableName(path="/data/%5Fs/a")) is None

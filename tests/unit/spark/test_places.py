"""Places have one name of several, and captures and target have to be apart: told by where they really are."""

from __future__ import annotations

from pathlib import Path

import pytest

from walreplay.delta.target import TableName, Target
from walreplay.errors import ConfigError
from walreplay.evolution.shapes import TableShape
from walreplay.job.source_check import check_places
from walreplay.ledger.state import State, now
from walreplay.session.isolation import mounted_path, one_name
from walreplay.spark.captures import name_in, root_of
from walreplay.table.registry import MirrorEntry

VOLUME = ("/Volumes/main/cdc/a", "dbfs:/Volumes/main/cdc/a", "file:/Volumes/main/cdc/a", "dbfs:///Volumes/main/cdc/a")
"""One place."""

APART = [
    ("/data/captures", "/data/mirror"),
    ("/data/captures", "/data/captures_mirror"),
    ("/data/captures2", "/data/captures"),
    ("/data/captures/", "/data/captures.d/"),
    ("/data/*/captures", "/data/mirror"),
    ("/data/cap*", "/data/mirror"),
    ("/data/m*/*.bin", "/data/mirror"),
    ("s3a://bucket/captures", "s3a://bucket/mirror"),
    ("dbfs:/captures", "/captures/mirror"),
    ("dbfs:/VolumesX/captures", "/VolumesX/captures/mirror"),
    ("s3a://bucket/captures", "s3a://bucket2/captures/mirror"),
    ("s3a://bucket/captures", "abfss://bucket/captures/mirror"),
    ("/data/captures", "s3a://bucket/data/captures"),
    ("/data/captures", "main"),
    ("/data/captures", "main.captures"),
    ("/data/captures/../captures", "/data/mirror"),
]

ONE_IN_THE_OTHER = [
    ("/data", "/data"),
    ("/data/", "/data"),
    ("/data", "/data/mirror"),
    ("/data", "/data/_mirror"),
    ("/data", "/data/a/b/mirror"),
    ("/data/mirror/captures", "/data/mirror"),
    ("/data/mirror/a/b", "/data/mirror"),
    ("/data/x/..", "/data/mirror"),
    ("/data//captures", "/data/captures/./mirror"),
    ("file:/data", "/data/mirror"),
    ("/data", "file:///data/mirror"),
    ("file:///data%20x", "/data x/mirror"),
    ("/data/*", "/data/mirror"),
    ("/", "/data/mirror"),
    ("s3a://bucket", "s3a://bucket/mirror"),
    ("/Volumes/main/cdc", "dbfs:/Volumes/main/cdc"),
    ("dbfs:/Volumes/main/cdc", "file:/Volumes/main/cdc/mirror"),
    ("file:///Volumes/main/cdc/mirror/captures", "/Volumes/main/cdc/mirror"),
    ("dbfs:/a", "dbfs:///a/mirror"),
    ("s3://bucket/a", "s3a://bucket/a/mirror"),
    ("s3a://bucket/mirror/captures", "s3a://bucket/mirror/"),
    ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x/y"),
]


@pytest.mark.parametrize(("captures", "target"), APART)
def test_places_that_are_apart_are_fine(captures: str, target: str) -> None:
    check_places(captures, Target.parse(target))


@pytest.mark.parametrize(("captures", "target"), ONE_IN_THE_OTHER)
def test_one_in_the_other_is_refused(captures: str, target: str) -> None:
    with pytest.raises(ConfigError, match="beside the other"):
        check_places(captures, Target.parse(target))


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "captures")
    with pytest.raises(ConfigError, match="the target lies in the captures' folder"):
        check_places(str(tmp_path / "captures"), Target.parse(str(tmp_path / "link" / "mirror")))
    check_places(str(tmp_path / "captures"), Target.parse(str(tmp_path / "mirror")))


def test_relative_paths_are_those_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for captures, target in (
        ("captures", "./captures/mirror"),
        (".", "./mirror"),
        ("./mirror/x", str(tmp_path / "mirror")),
    ):
        with pytest.raises(ConfigError):
            check_places(captures, Target.parse(target))
    check_places("captures", Target.parse("./mirror"))


@pytest.mark.parametrize(
    "place", ["mirror/../captures", "./captures/", "../here/captures", "//{}/captures", "{}/./captures"]
)
def test_a_folder_is_one_source_and_one_target_however_its_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    here = tmp_path / "here"
    (here / "captures").mkdir(parents=True)
    monkeypatch.chdir(here)
    path = place.format(str(here).lstrip("/") if place.startswith("//") else here)
    plain = str(here / "captures")
    assert root_of(path).replace("//", "/") == Target.parse(path).text.replace("//", "/") == plain
    assert root_of(f"file://{here}/x/../captures/") == f"file:{plain}"
    assert Target.parse(f"file:{here}/x/../captures").text == f"file:{plain}"
    state = State("", plain, 1, now(), plain, tables=(MirrorEntry(1, "s.t", TableName("/s/t"), TableShape()),))
    assert state.is_of(f"file:{plain}")
    assert not state.is_of(f"{plain}2")


def test_in_an_object_store_dots_are_a_name() -> None:
    for place in ("s3a://bucket/a/../b", "abfss://c@a/./b"):
        assert root_of(f"{place}/") == Target.parse(place).text == place


def test_dots_behind_a_link_lead_where_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "far" / "x").mkdir(parents=True)
    (tmp_path / "far" / "captures").mkdir()
    (tmp_path / "captures").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "x")
    assert root_of(f"{tmp_path}/link/../captures") == str(tmp_path / "far" / "captures")
    # A link that is not left again keeps its name.
    assert root_of(f"{tmp_path}/link") == str(tmp_path / "link")


@pytest.mark.parametrize("place", VOLUME)
def test_a_volume_has_one_name(place: str) -> None:
    assert one_name(place) == root_of(f"{place}/") == VOLUME[0]
    assert mounted_path(place) == Path(VOLUME[0])
    # What the ledger knows of a file does not depend on how the captures were named.
    assert {name_in(root_of(place), f"{other}/x/1.bin") for other in VOLUME} == {"/x/1.bin"}


@pytest.mark.parametrize(
    ("place", "name", "mounted"),
    [
        ("/data/x", "/data/x", "/data/x"),
        ("data/x", "data/x", "data/x"),
        ("file:/data/x", "file:/data/x", "/data/x"),
        ("file:///data/x", "file:/data/x", "/data/x"),
        ("file:/VolumesX/y", "file:/VolumesX/y", "/VolumesX/y"),
        ("file:/Volumes", "/Volumes", "/Volumes"),
        ("file:/Volumes/two\nlines", "/Volumes/two\nlines", "/Volumes/two\nlines"),
        ("file://host/data", "file://host/data", None),
        ("file://Volumes/x", "file://Volumes/x", None),
        ("dbfs:/data/x", "dbfs:/data/x", None),
        ("dbfs://Volumes/x", "dbfs://Volumes/x", None),
        ("s3a://Volumes/x", "s3a://Volumes/x", None),
        ("abfss://c@a.dfs.core.windows.net/Volumes/x", "abfss://c@a.dfs.core.windows.net/Volumes/x", None),
    ],
)
def test_other_places_keep_theirs(place: str, name: str, mounted: str | None) -> None:
    assert one_name(place) == one_name(name) == name
    assert mounted_path(place) == (None if mounted is None else Path(mounted))

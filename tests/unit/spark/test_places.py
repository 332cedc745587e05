"""Captures and target have to be apart: told by where they really are."""

from __future__ import annotations

from pathlib import Path

import pytest

from walreplay.errors import ConfigError
from walreplay.spark.checks.places import check_places
from walreplay.spark.delta.target import Target

APART = [
    ("/data/captures", "/data/mirror"),
    ("/data/captures", "/data/captures_mirror"),
    ("/data/captures2", "/data/captures"),
    ("/data/captures/", "/data/captures.d/"),
    ("/data/*/captures", "/data/mirror"),
    ("/data/cap*", "/data/mirror"),
    ("/data/m*/*.bin", "/data/mirror"),
    ("s3a://bucket/captures", "s3a://bucket/mirror"),
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

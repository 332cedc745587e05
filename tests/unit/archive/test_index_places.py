"""Where an index lies, and what files are called in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from walreplay.archive.index import home_of, index_errors, name_below, table_of
from walreplay.errors import ConfigError, TargetError
from walreplay.ledger.state import from_json
from walreplay.spark.captures import CaptureFile
from walreplay.stream.plan import Resume


def files(*paths: str) -> list[CaptureFile]:
    return [CaptureFile(path, 1, 1) for path in paths]


@pytest.mark.parametrize(
    ("captures", "paths", "home"),
    [
        ("/data/captures", ["file:/data/captures/a", "file:/data/captures/b"], "/data/captures"),
        ("/data/captures/", ["file:/data/captures/a"], "/data/captures"),
        ("/data/captures/a", ["file:/data/captures/a"], "/data/captures"),
        ("file:///data/captures/a", ["file:/data/captures/a"], "file:/data/captures"),
        ("file:/Volumes/c/a", ["file:/Volumes/c/a/1"], "/Volumes/c/a"),
        ("/Volumes/c/a", ["dbfs:/Volumes/c/a/1"], "/Volumes/c/a"),
        ("/data/cap*/2026", ["file:/data/captures/2026/a"], "/data"),
        ("/data/captures/*.bin", ["file:/data/captures/a.bin"], "/data/captures"),
        ("/data/odd[1]", ["file:/data/odd[1]/a"], "/data/odd[1]"),
        ("s3a://bucket/captures/", ["s3a://bucket/captures/x/a"], "s3a://bucket/captures"),
        ("s3a://bucket/captures/{a,b}", ["s3a://bucket/captures/a/1"], "s3a://bucket/captures"),
    ],
)
def test_an_archives_folder(captures: str, paths: list[str], home: str) -> None:
    assert home_of(captures, files(*paths)) == home
    names = [name_below(home, path) for path in paths]
    assert all(not name.startswith(("/", "file:", "dbfs:", "s3a:")) for name in names)
    assert table_of(None, home).path == f"{home}/_walreplay_index"


def test_a_file_that_lies_elsewhere_keeps_its_whole_path() -> None:
    assert name_below("/data/captures", "s3a://bucket/a") == "s3a://bucket/a"
    assert name_below("/data/cap", "file:/data/captures/a") == "/data/captures/a"


@pytest.mark.parametrize(
    "index", ["/elsewhere", "/data/captures/_walreplay_index", "/data/captures/x/_walreplay_index/y"]
)
def test_a_folder_for_the_index(index: str) -> None:
    assert table_of(index, "/data/captures").path == index


@pytest.mark.parametrize(
    "index",
    ["/data/captures", "/data/captures/", "file:///data/captures", "/data/captures/index", "shop", "a.b", "a..b"],
)
def test_no_index_lies_among_the_captures_or_nowhere(index: str) -> None:
    with pytest.raises(ConfigError):
        table_of(index, "/data/captures")


def test_an_index_may_be_a_catalogs_table(tmp_path: Path) -> None:
    assert table_of("main.ops.captures", str(tmp_path)).sql == "`main`.`ops`.`captures`"


def test_a_row_that_is_no_longer_what_was_written_is_an_error_of_the_index() -> None:
    with (
        pytest.raises(TargetError, match=r"^s3://b/index: the index cannot be read or written") as caught,
        index_errors("s3://b/index"),
    ):
        from_json(Resume, '{"path": "secret"}')
    assert "secret" not in str(caught.value)

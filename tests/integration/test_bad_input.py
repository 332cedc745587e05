"""Bad input gives one clear error, and no table."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import case
from support.command import run_walreplay
from support.damage import damages, first_commit
from support.truth import assert_mirror_equals, mirror_tables
from walreplay.cli import main
from walreplay.errors import CaptureError
from walreplay.spark import captures as capture_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_FILE = "0001.bin"


def _assert_one_error(code: int, stderr: str, target: Path) -> str:
    assert code in (1, 2)
    assert "Traceback" not in stderr
    (error,) = [line for line in stderr.splitlines() if line.startswith("error:")]
    assert mirror_tables(target) == {}
    return error


def _write_text(captures: Path) -> None:
    captures.mkdir()
    captures.joinpath(_FILE).write_text("Dear reader,\nthis is not a capture.\n" * 50)


def _write_nothing(captures: Path) -> None:
    captures.mkdir()


def _leave_missing(captures: Path) -> None:
    """Leave the folder out."""


def _write_torn(captures: Path) -> None:
    recorded = case("o01")
    data = recorded.files[0].read_bytes()
    captures.mkdir()
    captures.joinpath(_FILE).write_bytes(data[: first_commit(data, recorded.framing) - 40])


def _write_flipped(captures: Path) -> None:
    recorded = case("o01")
    captures.mkdir()
    captures.joinpath(_FILE).write_bytes(next(damages(recorded.files[0].read_bytes(), recorded.framing)).data)


_BAD = {
    "a text file": (_write_text, _FILE),
    "an empty folder": (_write_nothing, "captures"),
    "a missing folder": (_leave_missing, "captures"),
    "a file that ends before its first commit": (_write_torn, _FILE),
    "a flipped byte": (_write_flipped, _FILE),
}


@pytest.mark.parametrize(("write", "named"), _BAD.values(), ids=_BAD.keys())
def test_one_error_names_what_is_wrong(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    write: Callable[[Path], None],
    named: str,
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    write(captures)
    code = main(["apply", "--captures", str(captures), "--target", str(target)])
    error = _assert_one_error(code, capsys.readouterr().err, target)
    assert named in error
    assert ". " in error.rstrip(".")  # what to do follows what is wrong


def test_tables_that_are_there_stay_as_they_were(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = case("o04")
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    first, *others = recorded.files
    captures.joinpath(first.name).write_bytes(first.read_bytes())
    arguments = ["apply", "--captures", str(captures), "--target", str(target), "--quiet"]
    assert main(arguments) == 0
    before = _files_below(target)
    for file in others:
        captures.joinpath(file.name).write_bytes(file.read_bytes())
    captures.joinpath(others[1].name).write_text("not a capture\n" * 100)
    capsys.readouterr()

    assert main(arguments) == 1

    (error,) = capsys.readouterr().err.splitlines()
    assert others[1].name in error
    assert _files_below(target) == before


def _files_below(target: Path) -> set[Path]:
    """List the files of all mirror tables; a commit would add some."""
    return {file for location in mirror_tables(target).values() for file in location.rglob("*") if file.is_file()}


@pytest.mark.full
@pytest.mark.parametrize("bad", ["a text file", "a missing folder"])
def test_the_process_says_it_in_one_line_and_in_its_exit_code(tmp_path: Path, bad: str) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    write, named = _BAD[bad]
    write(captures)
    outcome = run_walreplay("apply", "--captures", captures, "--target", target, scratch=tmp_path)
    error = _assert_one_error(outcome.exit_code, outcome.stderr, target)
    assert named in error
    assert "Traceback" not in outcome.stdout


@pytest.mark.full
def test_a_file_that_is_too_large_for_spark_is_applied_once_that_is_done_which_the_error_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    shutil.copytree(case("o01").folder, captures)
    monkeypatch.setattr(capture_files, "MAX_FILE_BYTES", 20_000)
    with pytest.raises(CaptureError, match="Spark reads at most 20,000 as one") as caught:
        walreplay.apply(spark, captures=captures, target=target)
    told = re.findall("`([^`]+)`", caught.value.remedy or "")
    (file,) = captures.iterdir()
    for command in told:
        given = command.replace("1G", "19000").replace("FILE", str(file)).split()
        subprocess.run(given, check=True)
    file.unlink()
    assert len(list(captures.iterdir())) == 3
    walreplay.apply(spark, captures=captures, target=target)
    assert_mirror_equals(spark, target, case("o01"))

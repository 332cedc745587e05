"""What is wrong with captures or a target as a whole is one clear error of a run, and its remedy works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import case
from support.framings import NEW, OLD, Form, transaction
from support.readers import read
from support.small_mirror import INT4, relation, row
from support.truth import mirror_tables
from walreplay.cli import main
from walreplay.errors import ConfigError, FramingChange, NotACapture, WalReplayError
from walreplay.ledger.status import status
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

FAULTS = Path(__file__).parent.parent / "faults"


def refused(spark: SparkSession, captures: Path, target: str | Path, config: Any = None) -> WalReplayError:
    with pytest.raises(WalReplayError) as caught:
        walreplay.apply(spark, captures=captures, target=target, config=config)
    return caught.value


def total_rows(spark: SparkSession, target: Path) -> dict[str, int]:
    tables = mirror_tables(target)
    return {name: read(path).num_rows for name, path in tables.items()}


def test_pipes_and_devices_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    (captures / "0001.bin").write_bytes(case("o01").files[0].read_bytes())
    os.mkfifo(captures / "pipe")
    (captures / "zero").symlink_to("/dev/zero")
    for place, kind in ((captures / "pipe", "a pipe"), (captures / "zero", "a device"), (captures, "a ")):
        error = refused(spark, place, tmp_path / "mirror")
        assert isinstance(error, ConfigError)
        assert f"{kind}" in str(error)
        assert "is no capture file" in str(error)
    # What the configuration leaves out does not matter.
    assert walreplay.apply(spark, captures, tmp_path / "mirror", {"file_pattern": "*.bin"}).tables


def test_captures_and_target_in_one_another_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    (captures / "0001.bin").write_bytes(case("o01").files[0].read_bytes())
    for target in (captures, captures / "mirror", tmp_path):
        assert isinstance(refused(spark, captures, target), ConfigError)
    assert [path.name for path in tmp_path.rglob("*")] == ["captures", "0001.bin"]


def test_a_file_that_stands_in_the_way_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Where the target, its ledger, a schema's or a table's folder should be."""
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    messages = transaction(100, relation(1, "t", {"id": INT4}), m.Insert(1, row(1)))
    (captures / "1.bin").write_bytes(Form(Framing.RAW).write(messages))
    for place in ("", "_walreplay", "s", "s/t"):
        way = target / place
        way.parent.mkdir(parents=True, exist_ok=True)
        way.write_bytes(b"in the way")
        assert str(way) in str(refused(spark, captures, target))
        way.unlink()
    assert walreplay.apply(spark, captures, target).tables


def test_a_bare_name_is_told_to_be_taken_for_a_catalog(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["apply", "--captures", str(case("o01").folder), "--target", "mirror", "--quiet"])
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert "there is no catalog 'mirror'" in line
    assert "write ./mirror" in line
    with pytest.raises(ConfigError, match=r"write \./mirror\.deep"):
        status(spark, "mirror.deep")


@pytest.mark.parametrize("name", ["README.md", "zz.md"])
def test_a_foreign_file_is_named_and_leaving_it_out_works(spark: SparkSession, tmp_path: Path, name: str) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    for file in (FAULTS / "short_foreign_file" / "capture").glob("*.bin"):
        (captures / file.name).write_bytes(file.read_bytes())
    text = (FAULTS / "short_foreign_file" / "capture" / "README.md").read_bytes()
    (captures / name).write_bytes(text if name == "README.md" else text * 20)
    error = refused(spark, captures, target)
    assert (Path(error.path or "").name, type(error)) == (name, NotACapture)
    assert "file_pattern" in str(error)
    assert mirror_tables(target) == {}
    assert walreplay.apply(spark, captures, target, {"file_pattern": "*.bin"}).tables


@pytest.mark.full
def test_a_framing_that_changes_is_told_and_going_on_works(spark: SparkSession, tmp_path: Path) -> None:
    recorded = case("o26")
    streams = recorded.streams()
    captures, target, whole = tmp_path / "captures", tmp_path / "mirror", tmp_path / "whole"
    captures.mkdir()
    forms = [Form(Framing.RECVLOGICAL), Form(Framing.RAW)]
    for number, stream in enumerate(streams):
        form = forms[number > 0]
        (captures / f"{number}.{form.framing.value}").write_bytes(form.rewrite(stream, recorded.framing))
    error = refused(spark, captures, target)
    assert isinstance(error, FramingChange)
    assert Path(error.path or "").name == "1.raw"
    assert "0.recvlogical before it is recvlogical" in str(error)
    assert mirror_tables(target) == {}
    walreplay.apply(spark, captures, target, {"file_pattern": "*.recvlogical"})
    # The first session was cut off inside of a transaction, which comes again in the second.
    assert status(spark, target).open_transactions
    walreplay.apply(spark, captures, target, {"file_pattern": "*.raw", "framing": "raw"})
    walreplay.apply(spark, recorded.folder, whole)
    assert total_rows(spark, target) == total_rows(spark, whole)


@pytest.mark.full
def test_captures_in_other_forms_make_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    recorded = case("o20")
    (stream,) = recorded.streams()
    found = []
    for form in [OLD[0], *NEW[::3]]:
        captures = tmp_path / form.name / "captures"
        captures.mkdir(parents=True)
        data = form.rewrite(stream, recorded.framing)
        (captures / "1").write_bytes(data[: len(data) // 2])
        (captures / "2").write_bytes(data[len(data) // 2 :])
        report = walreplay.apply(spark, captures, tmp_path / form.name / "mirror")
        found.append((report.applied_lsn, total_rows(spark, tmp_path / form.name / "mirror")))
    assert all(item == found[0] for item in found)

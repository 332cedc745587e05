"""Files whose bytes come from Spark, as from an object store: they are read once, and the tables are the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import Case, case
from support.extent import further
from support.moments import assert_holds, moments
from support.postgres import cut
from support.truth import assert_mirror_equals
from walreplay.spark.captures import files as source
from walreplay.spark.job import scanning
from walreplay.spark.session import steps
from walreplay.spark.staging.base import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@dataclass
class Decoded:
    """What the decoding behind the plan has had to do, run by run.

    Attributes:
        read: files that were read again; ``left``: those of which the ends were left.
    """

    read: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Decoded:
    """Have no file count as mounted, and watch what is decoded behind the plan."""
    monkeypatch.setattr(source, "LOCAL_SCHEME", "none:")
    seen = Decoded()
    decode = Staging.decode

    def watched(self: Staging, spark: SparkSession, task: Any, confirmed: Any = None) -> Any:
        seen.read.append(len(task.files))
        seen.left.append(0 if confirmed is None else len(confirmed.rest))
        return decode(self, spark, task, confirmed)

    monkeypatch.setattr(Staging, "decode", watched)
    return seen


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    folder = tmp_path / "captures"
    folder.mkdir()
    return folder


def parts_of(recorded: Case, captures: Path, count: int) -> Iterator[Path]:
    """Cut a capture into files of about the same size; give each once it is among the captures."""
    later = captures.with_name("later")
    later.mkdir()
    size = sum(path.stat().st_size for path in recorded.files)
    for part in cut(recorded.files, later, [size // count + 1]):
        yield part.rename(captures / part.name)


@pytest.mark.parametrize("name", further(["o01", "o05", "o06", "o11"], but=("o11",)))
def test_files_of_ordinary_transactions_are_read_once(
    spark: SparkSession, tmp_path: Path, captures: Path, decoded: Decoded, name: str
) -> None:
    recorded = case(name)
    parts = list(parts_of(recorded, captures, 5))
    config = {"captures": {"index": True}}
    report = walreplay.apply(spark, captures=str(captures), target=str(tmp_path / "mirror"), config=config)

    assert_mirror_equals(spark, tmp_path / "mirror", recorded)
    indexed = spark.read.format("delta").load(str(captures / "_walreplay_index")).select("name", "scan_bytes").collect()
    assert {one.name for one in indexed if one.scan_bytes} == {part.name for part in parts}
    assert (decoded.read, decoded.left) == ([0], [len(parts)])
    assert report.transactions == recorded.info["transactions_committed"]
    transactions = spark.read.format("delta").load(str(tmp_path / "mirror" / "_walreplay" / "transactions")).collect()
    assert len({row.commit_lsn for row in transactions}) == len(transactions) == report.transactions


@pytest.mark.full
def test_a_run_that_ends_somewhere_reads_in_parts_and_decodes_each_with_its_scan(
    spark: SparkSession, tmp_path: Path, captures: Path, decoded: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_FILES_A_CORE", 2)
    monkeypatch.setattr(scanning, "_LEAST_BYTES", 0)
    monkeypatch.setattr(scanning, "local_cores", lambda _: 1)
    recorded = case("o01")
    parts = list(parts_of(recorded, captures, 8))
    end, last = moments(recorded, 9)[5], parts[-1].read_bytes()
    # It is behind the end, and is not even looked at.
    parts[-1].write_bytes(b"\xff" * len(last))
    walreplay.backfill(spark, str(captures), str(tmp_path / "mirror"), {"captures": {"index": True}}, **end)
    assert_holds(spark, tmp_path / "mirror", recorded, end)
    # What was decoded with the scans of later parts holds as well as that of the first.
    assert decoded.left[0] > 2
    parts[-1].write_bytes(last)
    walreplay.apply(spark, captures=str(captures), target=str(tmp_path / "mirror"))
    assert_mirror_equals(spark, tmp_path / "mirror", recorded)


@pytest.mark.parametrize("name", further(["o14", "o18"], long=["o08", "o12", "o13", "o26"]))
def test_what_has_to_be_planned_first_comes_out_the_same(
    spark: SparkSession, tmp_path: Path, captures: Path, decoded: Decoded, name: str
) -> None:
    recorded = case(name)
    for number, _ in enumerate(parts_of(recorded, captures, 4)):
        # The first two files in one run, each of the others in one of its own.
        if number > 0:
            walreplay.apply(spark, captures=str(captures), target=str(tmp_path / "mirror"))
    assert_mirror_equals(spark, tmp_path / "mirror", recorded)
    assert len(decoded.read) >= 2


@pytest.mark.full
def test_tables_of_a_catalog_have_what_was_decoded_ahead(spark: SparkSession, captures: Path, decoded: Decoded) -> None:
    recorded = case("o01")
    parts = list(parts_of(recorded, captures, 3))
    try:
        report = walreplay.apply(spark, captures=str(captures), target="spark_catalog.ahead_test")
        assert (decoded.read, decoded.left) == ([0], [len(parts)])
        assert len(report.tables) == len(recorded.info["tables"])
        for table in report.tables:
            assert spark.table(table.location).count() == table.inserted > 0
    finally:
        spark.sql("DROP SCHEMA IF EXISTS spark_catalog.ahead_test CASCADE")
        spark.sql("DROP SCHEMA IF EXISTS spark_catalog._walreplay CASCADE")


class Killed(BaseException):
    """As if the process had ended here."""


def test_an_interrupted_run_is_finished_by_its_plan_alone(
    spark: SparkSession, tmp_path: Path, captures: Path, decoded: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = case("o01")
    parts = list(parts_of(recorded, captures, 3))

    def on_step(name: str) -> None:
        if name == "plan written":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(steps, "on_step", on_step)
        with pytest.raises(Killed):
            walreplay.apply(spark, captures=str(captures), target=str(tmp_path / "mirror"))
    report = walreplay.apply(spark, captures=str(captures), target=str(tmp_path / "mirror"))

    assert_mirror_equals(spark, tmp_path / "mirror", recorded)
    assert any("was interrupted" in warning for warning in report.warnings)
    assert (decoded.read, decoded.left) == ([0, len(parts)], [len(parts), 0])


def test_captures_that_are_refused_leave_nothing_staged(
    spark: SparkSession, tmp_path: Path, captures: Path, decoded: Decoded
) -> None:
    _, second, third = parts_of(case("o01"), captures, 3)
    shutil.copy(second, third)
    with pytest.raises(walreplay.WalReplayError):
        walreplay.apply(spark, captures=str(captures), target=str(tmp_path / "mirror"))
    assert decoded.read == []
    assert not (tmp_path / "mirror" / "_walreplay" / "staging").exists()

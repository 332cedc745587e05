"""A backfill of a part: some tables, some outputs, from an LSN on; and what it would do, told without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, relation, row, rows_of, runs_of
from walreplay.decode.files import ScanTask
from walreplay.decode.summary import FileScan
from walreplay.errors import ConfigError, TargetError, WalReplayError
from walreplay.job import scanning
from walreplay.protocol import messages as m
from walreplay.spark.captures import scan_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

T = relation(9, "t", {"id": INT4, "name": TEXT})
U = relation(10, "u", {"id": INT4, "name": TEXT})
WIDER = relation(9, "t", {"id": INT8, "name": TEXT, "more": TEXT})


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> SmallMirror:
    """Return three files: commit LSNs 0/64, 0/C8 and 0/12C."""
    small = SmallMirror(spark, tmp_path)
    small.write(T, m.Insert(9, row(1, "a")), U, m.Insert(10, row(1, "x")))
    small.write(T, m.Update(9, row(1, "b")), m.Insert(9, row(2, "c")), U, m.Insert(10, row(2, "y")))
    small.write(WIDER, m.Insert(9, row(3, "d", "e")), m.Delete(9, None, row(1, None, None)))
    return small


def logged(small: SmallMirror, target: Path) -> list[tuple[str, int, int]]:
    rows = small.spark.read.format("delta").load(str(target / "s" / "t__changes"))
    return sorted((one["__op"], one["__commit_lsn"], one.id) for one in rows.collect())


def tables(target: str | Path) -> set[str]:
    return {path.name for path in Path(target, "s").iterdir()}


def test_tables_outputs_and_a_first_lsn_are_chosen(small: SmallMirror, tmp_path: Path) -> None:
    spark, captures = small.spark, small.captures
    log: dict[str, Any] = {"outputs": ["changelog"]}
    for whole in (["mirror"], ["history"], ["changelog", "history"]):
        with pytest.raises(ConfigError, match="cannot begin in the middle"):
            walreplay.backfill(spark, captures, small.target, from_lsn="0/C8", outputs=whole)
    with pytest.raises(ConfigError, match="is behind --until-lsn"):
        walreplay.backfill(spark, captures, small.target, from_lsn="0/C9", until_lsn="0/C8", **log)
    with pytest.raises(ConfigError, match="there is no output log"):
        walreplay.backfill(spark, captures, small.target, outputs=["log"])
    # In three runs; the first leaves everything out.
    with runs_of(1):
        walreplay.backfill(spark, captures, tmp_path / "log", table=r"s\.t", from_lsn="0/C8", **log)
    assert tables(tmp_path / "log") == {"t__changes"}
    changes = [("c", 200, 2), ("c", 300, 3), ("d", 300, 1), ("u", 200, 1)]
    assert logged(small, tmp_path / "log") == changes
    # What was left out is not missing, and a rebuild does not bring it.
    report = walreplay.verify(spark, tmp_path / "log", captures, table=r"s\.t", config=log)
    assert [(one.name, one.result, one.rows) for one in report.tables] == [("s.t (changelog)", "equal", 4)]
    (log_table,) = Path(tmp_path / "log" / "s").iterdir()
    spark.sql(f"DELETE FROM delta.`{log_table}` WHERE __op = 'd'")
    (table,) = walreplay.verify(spark, tmp_path / "log", captures, table=r"s\.t", config=log).tables
    assert (table.missing, table.extra, table.changed) == (1, 0, 0)
    walreplay.rebuild(spark, captures, tmp_path / "log", r"s\.t", config=log)
    assert logged(small, tmp_path / "log") == changes


@pytest.mark.full
def test_a_part_of_a_target_is_made_at_its_lsn(small: SmallMirror, tmp_path: Path) -> None:
    spark, captures, target = small.spark, small.captures, small.target
    walreplay.backfill(spark, captures, target, table=r"s\.T", until_lsn="0/C8")
    assert tables(target) == {"t"}
    # It is a target of this table alone, and goes on.
    assert walreplay.backfill(spark, captures, target, table=r"s\.t").transactions == 1
    # The other table, and a change log, come as by a rebuild: what is there stays.
    with pytest.raises(TargetError, match=r"has other tables, too, such as s\.t"):
        walreplay.backfill(spark, captures, target, table=r"s\.u", until_lsn="0/C8")
    report = walreplay.backfill(spark, captures, target, table=r"s\.u")
    assert [(one.name, one.action, one.inserted) for one in report.tables] == [("s.u", "created", 2)]
    with pytest.raises(TargetError, match="has other tables"):
        walreplay.backfill(spark, captures, target, outputs=["changelog"], from_lsn="0/1")
    assert small.apply(T, m.Insert(9, row(7, "z")), U, m.Insert(10, row(7, "z"))).warnings == ()
    assert {name: sum(rows.values()) for name, rows in small.rows().items()} == {"s.t": 3, "s.u": 3}


@pytest.mark.full
def test_what_would_be_done_is_told_and_nothing_is_written(
    small: SmallMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    with runs_of(1):
        told = walreplay.forecast(small.spark, small.captures, small.target, until_lsn="0/C8")
    assert not Path(small.target).exists()
    assert (told.runs, told.files, told.transactions, told.applied_lsn) == (2, 2, 2, 200)
    assert [(one.name, one.inserts, one.updates, one.action) for one in told.tables] == [
        ("s.t", 2, 1, "created"),
        ("s.u", 2, 0, "created"),
    ]
    walreplay.backfill(small.spark, small.captures, small.target, until_lsn="0/64")
    before = {path: path.stat().st_mtime_ns for path in Path(small.target).rglob("*") if path.is_file()}
    told = walreplay.forecast(small.spark, small.captures, small.target, {"table_exclude_list": r"s\.u"})
    (one,) = told.tables
    assert (told.runs, told.files, told.capture_bytes) == (1, 2, sum(_sizes(small)[1:]))
    assert (one.name, one.inserts, one.updates, one.deletes, one.action) == ("s.t", 2, 1, 1, "merged")
    assert any("more" in note for note in one.notes)
    assert any("id" in note and "bigint" in note for note in one.notes)
    assert (told.left_out, told.estimated_by) == (1, "the target's runs before")
    # Of a part of a target that has others, it is what makes it at the target's LSN.
    again = walreplay.forecast(small.spark, small.captures, small.target, table=r"s\.u")
    assert (again.transactions, again.applied_lsn, [one.name for one in again.tables]) == (1, 100, ["s.u"])
    assert {path: path.stat().st_mtime_ns for path in Path(small.target).rglob("*") if path.is_file()} == before
    assert walreplay.backfill(small.spark, small.captures, small.target).transactions == told.transactions
    nothing = walreplay.forecast(small.spark, small.captures, small.target)
    assert (nothing.runs, nothing.tables, nothing.estimated_seconds) == (0, (), None)


def _sizes(small: SmallMirror) -> list[int]:
    return [path.stat().st_size for path in sorted(small.captures.iterdir())]


@pytest.mark.full
def test_a_backfill_reads_no_further_than_the_index_says_and_runs_fill_it(
    small: SmallMirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, captures = small.spark, small.captures
    opened: list[str] = []

    def scanned(session: SparkSession, tasks: Mapping[str, ScanTask]) -> dict[str, FileScan | WalReplayError]:
        opened.extend(Path(path).name for path in tasks)
        return scan_each(session, tasks)

    monkeypatch.setattr(scanning, "scan_each", scanned)
    # Without an index none is made; a run leaves in the one that is there, in one commit, what it has read anyway.
    walreplay.apply(spark, captures, tmp_path / "without")
    assert not (captures / "_walreplay_index").exists()
    later = [path.rename(tmp_path / path.name) for path in sorted(captures.glob("00[23].bin"))]
    walreplay.index(spark, captures)
    for path in later:
        path.rename(captures / path.name)
    commits = len(list(captures.glob("_walreplay_index/_delta_log/*.json")))
    walreplay.apply(spark, captures, tmp_path / "first")
    assert len(list(captures.glob("_walreplay_index/_delta_log/*.json"))) == commits + 1
    assert walreplay.index(spark, captures).files_read == 0
    assert walreplay.forecast(spark, captures, small.target).transactions == 3
    # Of the files behind an end none is opened; the one that it lies in is cut off there.
    opened.clear()
    report = walreplay.backfill(spark, captures, tmp_path / "part", until_lsn="0/64")
    assert (report.transactions, report.applied_lsn, {*opened}) == (1, 100, {"001.bin", "002.bin"})
    report = walreplay.backfill(spark, captures, small.target, until_lsn="0/C8")
    assert (report.transactions, report.applied_lsn, {*opened}) == (2, 200, {"001.bin", "002.bin", "003.bin"})
    opened.clear()
    # The next run goes on inside of that file, and reads another that the index does not have; so small a run adds it.
    small.write(WIDER, m.Insert(9, row(4, "n", "n")))
    small.apply()
    assert opened == ["003.bin", "004.bin"]
    found = walreplay.index(spark, captures)
    assert (found.files_read, found.transactions) == (0, 4)
    assert len(list(captures.glob("_walreplay_index/_delta_log/*.json"))) == commits + 2
    walreplay.apply(spark, captures, tmp_path / "whole")
    assert small.rows() == rows_of(tmp_path / "whole")
    # What the index says of files that have changed since leaves nothing out.
    small.write(T, m.Insert(9, row(5, "n")))
    (captures / "004.bin").touch()
    report = walreplay.backfill(spark, captures, tmp_path / "changed", until_lsn="0/1F4")
    assert (report.transactions, report.applied_lsn) == (5, 500)

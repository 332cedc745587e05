"""The index of an archive as a Delta table, and audits on Spark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

import walreplay
from support.archive_model import MemoryArchive, difference, walk
from support.captures import case
from support.extent import further
from support.framings import frame
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import StoppedError
from walreplay.archive import index as index_rows
from walreplay.archive import joining
from walreplay.cli import main
from walreplay.config import Settings
from walreplay.delta import statements as delta
from walreplay.delta.target import TableName
from walreplay.errors import CaptureError, ConfigError, OrderError, TargetError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.spark import captures as capture_files
from walreplay.spark.captures import list_captures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_T = relation(1, "orders", {"id": INT4, "v": TEXT}, schema="shop")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return an archive of its own, of a few files."""
    shutil.copytree(case("o03").folder, tmp_path / "captures")
    return tmp_path / "captures"


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files that are scanned, in the end."""
    told: list[str] = []
    scan_each = capture_files.scan_each

    def listening(spark: SparkSession, tasks: Any) -> Any:
        told.extend(Path(path).name for path in tasks)
        return scan_each(spark, tasks)

    monkeypatch.setattr(joining, "scan_each", listening)
    return told


def rows_of(spark: SparkSession, table: Path) -> dict[str, dict[str, Any]]:
    found = (
        spark.read.format("delta")
        .load(str(table))
        .drop("scanned_as", "archive", "indexed_at", "resumes", "resume")
        .collect()
    )
    assert len({one.name for one in found}) == len(found)
    return {one.name: one.asDict(recursive=True) for one in found}


def test_the_table_has_what_a_plain_walk_finds_and_is_read_where_nothing_is_new(
    spark: SparkSession, archive: Path, scans: list[str]
) -> None:
    recorded = case("o03")
    report = walreplay.index(spark, archive)
    assert report.files == report.files_read == len(recorded.files)
    assert (report.transactions, report.changes) == (105, 616)
    assert set(scans) == {path.name for path in recorded.files}

    rows = rows_of(spark, archive / "_walreplay_index")

    contents = {path.name: path.read_bytes() for path in recorded.files}
    memory = {one.file.path: one.facts for one in MemoryArchive().join(contents)}
    walked = walk(contents, recorded.streams(), recorded.framing)
    assert rows.keys() == memory.keys()
    for name, facts in memory.items():
        assert facts is not None
        assert difference(facts, walked[name]) is None
        expected = json.loads(json.dumps(asdict(facts), default=str))
        told = {key: rows[name][key] for key in expected}
        for key in ("modified", "first_commit_ts", "last_commit_ts", "open_at_start", "open_at_end"):
            told.pop(key), expected.pop(key)
        assert told == expected | {"warnings": told["warnings"]}
        assert len(rows[name]["open_at_end"]) == len(facts.open_at_end)

    # It is no capture itself, and a second run reads no file and writes no row.
    log = archive / "_walreplay_index" / "_delta_log"
    commits, read = sorted(log.glob("*.json")), list(scans)
    again = walreplay.index(spark, f"{archive}/*")
    assert scans == read
    assert sorted(log.glob("*.json")) == commits
    assert (again.files_read, again.transactions, again.changes) == (0, report.transactions, report.changes)
    assert (again.first_lsn, again.last_lsn) == (report.first_lsn, report.last_lsn)
    with pytest.raises(ConfigError, match="among the captures"):
        walreplay.index(spark, archive, index=archive / "other")


def test_only_new_and_grown_files_are_read(spark: SparkSession, tmp_path: Path, scans: list[str]) -> None:
    captures, names = tmp_path / "captures", [path.name for path in case("o03").files]
    captures.mkdir()
    contents = {path.name: path.read_bytes() for path in case("o03").files}
    for name in names[:4]:
        (captures / name).write_bytes(contents[name])
    (captures / names[3]).write_bytes(contents[names[3]][:500])
    walreplay.index(spark, captures)
    for name in names[3:6]:
        (captures / name).write_bytes(contents[name])
    scans.clear()

    report = walreplay.index(spark, captures)

    # The file in front of them, too, in which a transaction begins.
    assert (set(scans), report.files_read) == (set(names[2:6]), 4)
    assert report.bytes_read == sum(len(contents[name]) for name in names[2:6])
    # In a folder of another name.
    captures = captures.rename(tmp_path / "moved")
    (captures / names[6]).write_bytes(contents[names[6]])
    scans.clear()
    report = walreplay.index(spark, captures)
    assert set(scans) == set(names[5:])
    assert (report.transactions, report.files_read) == (105, 2)
    whole = tmp_path / "whole"
    walreplay.index(spark, captures, index=whole)
    stepwise, at_once = rows_of(spark, captures / "_walreplay_index"), rows_of(spark, whole)
    assert stepwise == at_once
    # Rows of files that are gone from in front of others say nothing of these.
    (captures / names[0]).unlink()
    with pytest.raises(CaptureError):
        walreplay.index(spark, captures)


@pytest.mark.full
def test_a_stopped_run_goes_on(
    spark: SparkSession,
    archive: Path,
    scans: list[str],
    stop: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "_MOST_FILES", 3)
    stop("part indexed")
    with pytest.raises(StoppedError):
        walreplay.index(spark, archive)
    assert len(rows_of(spark, archive / "_walreplay_index")) == 3
    scans.clear()
    assert walreplay.index(spark, archive).transactions == 105
    assert "part001.bin" not in scans
    assert len(rows_of(spark, archive / "_walreplay_index")) == 7


def at_once(count: int, run: Callable[[int], object]) -> None:
    """Do something in so many threads, each with its number; none may fail."""
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(run, number) for number in range(count)]:
            done.result()


@pytest.mark.full
def test_two_at_once_make_one_index(spark: SparkSession, archive: Path) -> None:
    at_once(3, lambda _: walreplay.index(spark, archive))
    assert len(rows_of(spark, archive / "_walreplay_index")) == 7


def index_first(spark: SparkSession, archive: Path) -> None:
    """Make an index that has the first file alone: runs fill it."""
    later = [path.rename(archive.with_name(path.name)) for path in sorted(archive.iterdir())[1:]]
    walreplay.index(spark, archive)
    for path in later:
        path.rename(archive / path.name)


@pytest.mark.parametrize("step", further(["files recorded"], long=["scanned", "plan written"]))
def test_a_run_that_is_stopped_leaves_an_index_that_is_right(
    spark: SparkSession, archive: Path, tmp_path: Path, stop: Callable[[str], None], step: str
) -> None:
    index_first(spark, archive)
    stop(step)
    with pytest.raises(StoppedError):
        walreplay.apply(spark, archive, tmp_path / "mirror")
    assert len(rows_of(spark, archive / "_walreplay_index")) == (1 if step == "scanned" else 7)
    assert walreplay.apply(spark, archive, tmp_path / "mirror").transactions == 105
    assert walreplay.index(spark, archive).files_read == 0
    walreplay.index(spark, archive, index=tmp_path / "whole")
    assert rows_of(spark, archive / "_walreplay_index") == rows_of(spark, tmp_path / "whole")


@pytest.mark.parametrize("way", further(["files of our own"], long=["Spark's statements"]))
def test_runs_and_an_index_at_once_make_one_index(
    spark: SparkSession, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way != "files of our own":
        monkeypatch.setenv("WALREPLAY_COMMITS", "spark")

    def run(number: int) -> None:
        report = walreplay.apply(spark, archive, tmp_path / f"mirror{number}")
        assert report.warnings == ()

    index_first(spark, archive)
    at_once(2, run)
    assert len(rows_of(spark, archive / "_walreplay_index")) == 7
    assert walreplay.index(spark, archive).files_read == 0


@pytest.mark.full
def test_a_file_that_is_there_twice_counts_once_and_is_mended(
    spark: SparkSession, archive: Path, scans: list[str]
) -> None:
    index = archive / "_walreplay_index"
    walreplay.index(spark, archive)
    rows = spark.read.format("delta").load(str(index))
    twice = rows.where("name IN ('part002.bin', 'part005.bin')").withColumn(
        "indexed_at", f.expr("indexed_at - INTERVAL 1 SECOND")
    )
    # An older row may be of a file that was another one.
    twice.withColumn("facts", rows.facts.substr(1, 5)).write.format("delta").mode("append").save(str(index))
    scans.clear()
    assert walreplay.index(spark, archive).transactions == 105
    assert scans == []
    assert len(rows_of(spark, index)) == 7


@pytest.mark.full
def test_an_index_is_no_capture(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    walreplay.index(spark, f"{archive}/*")
    listed = list_captures(spark, f"{archive}/*", Settings())
    assert {Path(file.path).name for file in listed} == {path.name for path in case("o03").files}
    assert walreplay.index(spark, archive).files_read == 0
    assert walreplay.apply(spark, archive, tmp_path / "mirror").transactions == 105
    assert sum(1 for _ in walreplay.read_changes(archive)) > 0


@pytest.mark.full
def test_an_index_that_is_damaged_says_what_to_do(spark: SparkSession, archive: Path) -> None:
    index = archive / "_walreplay_index"
    walreplay.index(spark, archive)
    for path in index.glob("*.parquet"):
        path.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    with pytest.raises(TargetError, match="Delete it, and walreplay index makes it again"):
        walreplay.index(spark, archive)
    shutil.rmtree(index)
    assert walreplay.index(spark, archive).files_read == 7


# Audits.


def audited(captures: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    code = main(["audit", "--captures", str(captures), "--json", "--quiet", *options])
    captured = capsys.readouterr()
    assert captured.err == ""
    return code, json.loads(captured.out)


@pytest.mark.parametrize("name", further(["o03", "o11", "o18", "o26"], but=("o26",)))
def test_a_whole_archive_is_told_as_whole(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    recorded = case(name)
    shutil.copytree(recorded.folder, tmp_path / "captures")
    code, found = audited(tmp_path / "captures", capsys, "--values")
    assert (code, found["whole"], found["problems"], found["holes"]) == (0, True, [], [])
    assert found["transactions"] == recorded.info["transactions_committed"]
    assert found["copies_compared"] == (found["resent"] > 0)
    told = {table["name"]: table["decoded_rows"] for table in found["tables"]}
    report = walreplay.apply(spark, recorded.folder, tmp_path / "mirror")
    assert {name: rows for name, rows in told.items() if rows} == {
        table.name: table.changes for table in report.tables if table.changes
    }


def test_harm_is_named_with_an_index_and_without(
    spark: SparkSession, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sorted(archive.iterdir())[3].unlink()
    code, found = audited(archive, capsys)
    assert (code, found["whole"]) == (3, False)
    assert "gap" in {problem["kind"] for problem in found["problems"]}
    assert all(problem["file"] and problem["remedy"] for problem in found["problems"])
    assert found["transactions"] > 60
    # An audit that an index is named to reads the same, and all of it.
    for _ in range(2):
        code, again = audited(archive, capsys, "--index", str(archive.with_name("index")))
        assert code == 3
        for told in ("problems", "coverage", "files_read"):
            assert again[told] == found[told]


def session(first: int, last: int, **values: str) -> bytes:
    """Return what a session sends, one row in each transaction; some rows have other values."""
    messages: list[m.AnyMessage] = []
    for number in range(first, last + 1):
        messages.append(m.Begin(100 * number, number, number))
        messages += [_T] if number == first else []
        messages.append(m.Insert(1, row(number, values.get(f"v{number}", "v"))))
        messages.append(m.Commit(0, 100 * number, 100 * number + 8, number))
    return frame(messages, Framing.RAW)


@pytest.mark.full
def test_copies_that_differ_and_late_transactions_are_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    (captures / "a").write_bytes(session(1, 9))
    (captures / "b").write_bytes(session(20, 25))
    (captures / "c").write_bytes(session(21, 30))
    code, found = audited(captures, capsys)
    assert (code, found["copies_compared"], found["resent"]) == (0, True, 5)
    assert [(one["file"], one["transactions"]) for one in found["overlaps"]] == [("c", 5)]

    (captures / "d").write_bytes(session(26, 33, v28="w", v30="w"))
    (captures / "e").write_bytes(session(12, 13))
    code, found = audited(captures, capsys)
    assert code == 3
    assert [(one["kind"], one["file"]) for one in found["problems"]] == [
        ("copy", "d"),
        ("copy", "d"),
        ("copy", "e"),
        ("copy", "e"),
    ]
    assert "differs from its first copy" in found["problems"][0]["problem"]
    assert "was not among it" in found["problems"][2]["problem"]


@pytest.mark.full
def test_holes_in_the_numbering_are_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    for number in range(1, 9):
        mirror.write(*([_T] if number == 1 else []), m.Insert(1, row(number, "v")))
    for name in ("004.bin", "006.bin"):
        (mirror.captures / name).unlink()
    code, found = audited(mirror.captures, capsys)
    assert code == 3
    assert found["problems"] == []
    assert [(one["before"], one["after"], one["missing"]) for one in found["holes"]] == [
        ("003.bin", "005.bin", 1),
        ("005.bin", "007.bin", 1),
    ]
    assert [(one["first_file"], one["last_file"]) for one in found["coverage"]] == [
        ("001.bin", "003.bin"),
        ("005.bin", "005.bin"),
        ("007.bin", "008.bin"),
    ]
    # An index is not made of a part without being told so; what the error says helps.
    command = ["index", "--captures", str(mirror.captures), "--index", str(tmp_path / "index"), "--quiet"]
    assert main(command) == 1
    assert "or go on without them by --allow-gaps" in capsys.readouterr().err
    assert main([*command, "--allow-gaps"]) == 0
    assert capsys.readouterr().out.count("(gaps are allowed)") == 2
    with pytest.raises(OrderError, match="missing"):
        walreplay.index(spark, mirror.captures)


@pytest.mark.full
def test_values_and_bases_are_told(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirror = SmallMirror(spark, tmp_path)
    dated = relation(2, "contracts", {"id": INT4, "until": 1082}, schema="shop")
    emptied = relation(3, "emptied", {"id": INT4}, schema="shop")
    mirror.write(_T, m.Delete(1, key=row(5, None)))
    mirror.write(dated, *(m.Insert(2, row(number, "infinity")) for number in range(3)))
    mirror.write(emptied, m.Truncate((3,), 0), m.Insert(3, row(1)))
    code, found = audited(mirror.captures, capsys, "--values")
    assert code == 0
    tables = {table["name"]: table for table in found["tables"]}
    assert {name: table["base"] for name, table in tables.items()} == {
        "shop.orders": "missing",
        "shop.contracts": "unknown",
        "shop.emptied": "not needed",
    }
    assert tables["shop.contracts"]["rescued"] == {"until": 3}
    assert tables["shop.contracts"]["decoded_rows"] == 3
    assert tables["shop.emptied"]["truncated_lsn"] == "0/12C"


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Return all that is in a folder, itself included, with its size and when it was changed."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in (folder, *folder.rglob("*"))}


def test_no_command_writes_to_the_archive_unless_it_is_told_to(
    spark: SparkSession, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in(archive)
    for _ in range(2):
        code, found = audited(archive, capsys)
        assert (code, found["index"], found["files_read"]) == (0, None, 7)
    walreplay.apply(spark, archive, tmp_path / "mirror")
    walreplay.backfill(spark, archive, tmp_path / "part", until_lsn="0/1940000")
    walreplay.rebuild(spark, archive, tmp_path / "mirror", r"shop\.orders")
    walreplay.status(spark, tmp_path / "mirror")
    assert main(["inspect", str(archive)]) == 0
    assert walreplay.index(spark, archive, index=tmp_path / "index").files_read == 7
    assert files_in(archive) == before
    # Nor do runs write to an index that is there.
    walreplay.index(spark, archive)
    before = files_in(archive)
    walreplay.apply(spark, archive, tmp_path / "again")
    assert files_in(archive) == before


@contextmanager
def closing(folder: Path) -> Iterator[None]:
    """Have nobody write to a folder, root included."""
    if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", folder], capture_output=True).returncode:
        pytest.skip("no folder can be closed to this account")
    yield
    subprocess.run(["chattr", "-i", folder], check=True)


@pytest.fixture
def closed(archive: Path) -> Iterator[Path]:
    """Return an archive that nobody can write to."""
    with closing(archive):
        yield archive


@pytest.mark.parametrize("way", further(["files of our own"], long=["Spark's statements"]))
def test_an_index_that_may_not_be_written_is_refused_with_another_place_to_name(
    spark: SparkSession, closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way != "files of our own":
        monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    with pytest.raises(
        TargetError, match=r"(?i)(not permitted|permission denied).*`index` in the configuration"
    ) as caught:
        walreplay.index(spark, closed)
    assert str(closed / "_walreplay_index") in str(caught.value)
    assert walreplay.index(spark, closed, index=tmp_path / "index").files_read == 7
    report = walreplay.apply(spark, closed, tmp_path / "mirror")
    assert (report.transactions, report.warnings) == (105, ())


@pytest.mark.parametrize("way", further(["files of our own"], long=["Spark's statements"]))
def test_an_index_that_may_no_longer_be_written_is_a_warning_of_runs(
    spark: SparkSession, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way != "files of our own":
        monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    index_first(spark, archive)
    with closing(archive / "_walreplay_index" / "_delta_log"):
        report = walreplay.apply(spark, archive, tmp_path / "mirror")
    assert report.transactions == 105
    assert "was not written to the index" in report.warnings[0]


def test_rows_that_could_not_be_read_once_are_not_taken_for_none(
    spark: SparkSession, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walreplay.index(spark, archive)
    read, fails = delta.read, ["storage was away"]

    def failing(own: SparkSession, table: TableName, *more: Any) -> Any:
        if fails and "_walreplay_index" in table.text:
            raise OSError(5, fails.pop())
        return read(own, table, *more)

    monkeypatch.setattr(delta, "read", failing)
    with pytest.raises(TargetError, match="storage was away"):
        walreplay.backfill(spark, archive, tmp_path / "mirror", until_lsn="0/1959EA0")
    assert walreplay.backfill(spark, archive, tmp_path / "mirror", until_lsn="0/1959EA0").transactions == 105
    assert len(rows_of(spark, archive / "_walreplay_index")) == 7


def test_a_file_in_the_way_of_an_index_is_named(spark: SparkSession, archive: Path) -> None:
    (archive / "_walreplay_index").write_text("x")
    with pytest.raises(TargetError, match=r"_walreplay_index: .*Not a directory.*`index` in the configuration"):
        walreplay.index(spark, archive)


@pytest.mark.full
def test_an_archive_that_cannot_be_written_to_is_audited_all_the_same(
    spark: SparkSession, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    code, found = audited(archive, capsys, "--index", str(tmp_path / "file" / "index"))
    assert code == 0
    assert found["transactions"] == 105
    assert any("the index was not written" in text for text in found["warnings"])


@pytest.mark.full
def test_targets_that_read_an_archive_in_several_ways_share_its_index(
    spark: SparkSession, archive: Path, scans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = [{}, {"framing": case("o03").framing.value}]
    with monkeypatch.context() as earlier:
        earlier.setattr(index_rows, "FORMAT", index_rows.FORMAT - 1)
        walreplay.index(spark, archive)
    assert [walreplay.index(spark, archive, config=way).files_read for way in ways] == [7, 7]
    scans.clear()
    assert [walreplay.index(spark, archive, config=way).files_read for way in ways] == [0, 0]
    assert scans == []
    # Those that an earlier version has left are removed.
    assert spark.read.format("delta").load(str(archive / "_walreplay_index")).count() == 14


@pytest.mark.full
def test_an_index_of_another_archive_is_not_taken_for_this_ones(
    spark: SparkSession, archive: Path, tmp_path: Path, scans: list[str]
) -> None:
    other, index = tmp_path / "other", tmp_path / "index"
    shutil.copytree(archive, other)
    for path in archive.iterdir():
        os.utime(path, (1, 1))
        os.utime(other / path.name, (1, 1))
    walreplay.index(spark, archive, index=index)
    assert walreplay.index(spark, archive, index=index).files_read == 0
    assert walreplay.index(spark, other, index=index).files_read == 7
    # One that lies in its archive's folder may be moved with it.
    walreplay.index(spark, archive)
    shutil.move(archive, tmp_path / "moved")
    assert walreplay.index(spark, tmp_path / "moved").files_read == 0

"""Tables whose folds share a job come out as by jobs of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.framings import frame
from support.readers import collect
from support.truth import mirror_tables
from walreplay.job import execution as applying
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.writing import update as folding
from walreplay.writing.update import fold_together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]


def _column(name: str, *, key: bool = False) -> m.Column:
    return m.Column(name, 23, -1, key)


def _insert(oid: int, *values: int) -> m.Insert:
    return m.Insert(oid, m.TupleData(tuple(m.Cell("t", str(value).encode()) for value in values)))


def _write(folder: Path, name: str, lsn: int, *messages: m.AnyMessage) -> None:
    folder.mkdir(exist_ok=True)
    session = [m.Begin(lsn, lsn, 7), *messages, m.Commit(0, lsn, lsn + 8, lsn)]
    (folder / name).write_bytes(frame(session, Framing.RECVLOGICAL))


def _rows(spark: SparkSession, target: Path, table: str, *columns: str) -> list[tuple[int, ...]]:
    return sorted(map(tuple, collect(mirror_tables(target)[table], *columns)))


def _runs_of_two_rows(
    spark: SparkSession, folder: Path, *, with_key: int, without_key: int
) -> Iterator[walreplay.RunReport]:
    """Yield the report of each of two runs, which bring two rows to each table; then compare the tables.

    Args:
        without_key: so many tables can only be added to.
    """
    captures, target = folder / "captures", folder / "mirror"
    numbers = range(1, with_key + without_key + 1)
    columns = {number: (_column("n", key=number <= with_key),) for number in numbers}
    tables = {number: m.Relation(number, "s", f"t{number}", "d", columns[number]) for number in numbers}
    for run in (1, 2):
        inserts = [_insert(oid, value) for oid in tables for value in (run, 10 + run)]
        _write(captures, f"{run}.bin", 100 * run, *tables.values(), *inserts)
        yield walreplay.apply(spark, captures=captures, target=target)
    for number in tables:
        assert _rows(spark, target, f"s.t{number}", "n") == [(1,), (2,), (11,), (12,)]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Watch which tables' folds share a job."""
    seen: list[list[str]] = []

    def watched(spark, writer, staging, runs, at_once):  # type: ignore[no-untyped-def]
        folded = fold_together(spark, writer, staging, runs, at_once)
        seen.append(sorted(run.plan.name for run in runs if run.plan.number in folded))
        return folded

    monkeypatch.setattr(applying, "fold_together", watched)
    return seen


def test_tables_share_a_job_some_at_a_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: list[list[str]]
) -> None:
    monkeypatch.setattr(folding, "_MAX_SHARED_TABLES", 2)
    names = [f"s.t{number}" for number in range(1, 6)]
    for report in _runs_of_two_rows(spark, tmp_path, with_key=3, without_key=2):
        assert [len(group) for group in shared] == [2, 2, 1]
        assert sorted(name for group in shared for name in group) == names
        assert {table.name: table.changes for table in report.tables} == dict.fromkeys(names, 2)
        shared.clear()


def test_a_table_that_is_written_anew_before_rows_are_added_has_a_job_of_its_own(
    spark: SparkSession, tmp_path: Path, shared: list[list[str]]
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    config = {"on_recreate": "keep"}
    before = m.Relation(1, "s", "t", "d", (_column("a"), _column("b")))
    _write(captures, "1.bin", 100, before, _insert(1, 1, 2))
    walreplay.apply(spark, captures=captures, target=target, config=config)
    assert shared == [["s.t"]]
    # Dropped and made again, with its columns in another order.
    after = m.Relation(2, "s", "t", "d", (_column("b"), _column("a")))
    _write(captures, "2.bin", 200, after, _insert(2, 4, 3))
    walreplay.apply(spark, captures=captures, target=target, config=config)
    assert shared == [["s.t"]]
    assert _rows(spark, target, "s.t", "a", "b") == [(1, 2), (3, 4)]


def test_where_spark_writes_jobs_are_shared_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: list[list[str]]
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    for report in _runs_of_two_rows(spark, tmp_path, with_key=2, without_key=1):
        assert {(table.writer, table.changes) for table in report.tables} == {("statements", 2)}
        assert shared.pop() == ["s.t1", "s.t2", "s.t3"]

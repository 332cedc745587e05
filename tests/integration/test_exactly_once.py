"""Every transaction counts once, however often a run is repeated and wherever one is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

import walreplay
from support.captures import Case, case
from support.extent import further
from support.killed_run import run_until_killed, run_with_workers_killed
from support.postgres import cut
from support.readers import collect
from support.reference import replay
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import StoppedError
from support.truth import (
    assert_mirror_equals,
    assert_tables_equal,
    mirror_tables,
    read_mirror,
    source_tables,
    table_versions,
)
from walreplay.errors import TargetError
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

# Inserts alone, multisets, keys of every kind: applying anything twice would show in a table without a key.
_IDENTITIES = "o11"


@pytest.mark.parametrize("name", further(["o01", _IDENTITIES, "o13"], but=(_IDENTITIES,)))
def test_applying_again_changes_nothing(spark: SparkSession, tmp_path: Path, name: str) -> None:
    recorded, target = case(name), tmp_path / "mirror"
    walreplay.apply(spark, captures=str(recorded.folder), target=str(target))
    versions = table_versions(target)

    report = walreplay.apply(spark, captures=str(recorded.folder), target=str(target))

    assert report.status == "nothing new"
    assert report.changes == 0
    assert table_versions(target) == versions
    assert_mirror_equals(spark, target, recorded)


@pytest.mark.full
def test_applying_file_by_file_equals_applying_all_at_once(spark: SparkSession, tmp_path: Path) -> None:
    recorded = case(_IDENTITIES)
    captures, whole, stepwise = tmp_path / "captures", tmp_path / "whole", tmp_path / "stepwise"
    captures.mkdir()
    walreplay.apply(spark, captures=str(recorded.folder), target=str(whole))

    data = b"".join(recorded.streams())
    size = len(data) // 3 + 1
    for number in range(3):
        (captures / f"{number}.bin").write_bytes(data[number * size : (number + 1) * size])
        walreplay.apply(spark, captures=str(captures), target=str(stepwise))

    assert_mirror_equals(spark, stepwise, recorded)
    for name, location in mirror_tables(whole).items():
        assert_df_equality(
            read_mirror(spark, mirror_tables(stepwise)[name]),
            read_mirror(spark, location),
            ignore_row_order=True,
            allow_nan_equality=True,
        )


@pytest.mark.full
def test_a_transaction_cut_by_the_last_file_waits_for_its_rest(spark: SparkSession, tmp_path: Path) -> None:
    recorded = case(_IDENTITIES)
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    data = b"".join(recorded.streams())
    for number, end in enumerate((len(data) // 2, len(data))):
        (captures / f"{number}.bin").write_bytes(data[number * (len(data) // 2) : end])
        walreplay.apply(spark, captures=str(captures), target=str(target))
        replayed = replay([data[:end]], recorded.framing)
        assert_tables_equal(spark, target, replayed.sources(source_tables(recorded)))


_STREAMS = "o18"
"""Streamed and prepared transactions, some of them open when the first half ends."""


_SCHEMAS = "o14"
"""Columns that come, go and change, tables that are renamed, dropped and made again."""


# A killed run costs a JVM of its own.  Runs that end at these steps by an exception are in many tests.
_KILLS = [
    (_IDENTITIES, "plan written", 1),
    (_IDENTITIES, "table applied", 4),
    (_STREAMS, "runs written", 1),
    (_SCHEMAS, "columns changed", 2),
]
_MORE_KILLS = [
    (_STREAMS, "decoded", 1),
    (_IDENTITIES, "run recorded", 1),
    (_SCHEMAS, "table moved", 1),
    (_STREAMS, "scanned", 1),
    (_STREAMS, "plan written", 1),
    (_IDENTITIES, "table applied", 1),
    (_STREAMS, "transactions written", 1),
    (_SCHEMAS, "places left", 1),
    (_SCHEMAS, "table applied", 3),
]


@pytest.mark.parametrize(
    ("name", "step", "count"),
    further(_KILLS, but=_KILLS[:1], long=_MORE_KILLS),
    ids=lambda value: str(value),
)
def test_a_killed_run_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, name: str, step: str, count: int
) -> None:
    recorded = case(name)
    captures, target = _half_applied(spark, tmp_path, recorded)

    done = run_until_killed(captures, target, step, count, scratch=tmp_path)
    versions = table_versions(target)
    walreplay.apply(spark, captures=str(captures), target=str(target))

    assert_mirror_equals(spark, target, recorded)
    after = table_versions(target)
    applied = [name.removeprefix("table applied: ") for name in done if name.startswith("table applied: ")]
    assert len(applied) >= (count if step == "table applied" else 0)
    assert {name: after[name] for name in applied} == {name: versions[name] for name in applied}
    _assert_the_ledger_is_whole(spark, target, recorded)


@pytest.mark.parametrize("step", further(["plan written"], long=["scanned"]))
def test_a_run_whose_workers_are_killed_is_finished_by_the_next(spark: SparkSession, tmp_path: Path, step: str) -> None:
    recorded = case(_STREAMS)
    captures, target = _half_applied(spark, tmp_path, recorded)

    exit_code, stderr = run_with_workers_killed(captures, target, step, scratch=tmp_path)
    assert exit_code == 1
    assert "Traceback" not in stderr
    assert [line for line in stderr.splitlines() if line.startswith("error:")] != []
    walreplay.apply(spark, captures=str(captures), target=str(target))

    assert_mirror_equals(spark, target, recorded)
    _assert_the_ledger_is_whole(spark, target, recorded)


def _half_applied(spark: SparkSession, tmp_path: Path, recorded: Case) -> tuple[Path, Path]:
    """Apply the first half of a capture in peace, so that the tables exist and have rows, and bring the second."""
    captures, target, later = tmp_path / "captures", tmp_path / "mirror", tmp_path / "later"
    captures.mkdir()
    later.mkdir()
    data = b"".join(recorded.streams())
    first, second = cut(recorded.files, later, [len(data) // 2 + 1])
    first.rename(captures / first.name)
    walreplay.apply(spark, captures=str(captures), target=str(target))
    second.rename(captures / second.name)
    return captures, target


def _assert_the_ledger_is_whole(spark: SparkSession, target: Path, recorded: Case) -> None:
    """See that every run and every transaction stands there once."""
    runs, transactions = (collect(target / "_walreplay" / name) for name in ("runs", "transactions"))
    # A relation that was dropped and made again is there under both oids.
    assert all(len({table.oid for table in run.tables}) == len(run.tables) for run in runs)
    assert sorted(run.run for run in runs) == list(range(1, len(runs) + 1))
    assert sum(run.transactions for run in runs) == recorded.info["transactions_committed"]
    lsns = [transaction.commit_lsn for transaction in transactions]
    assert len(lsns) == len(set(lsns)) == recorded.info["transactions_committed"]


@pytest.mark.full
def test_a_first_run_that_is_killed_is_finished_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    recorded, target = case(_IDENTITIES), tmp_path / "mirror"
    run_until_killed(recorded.folder, target, "table applied", 2, scratch=tmp_path)
    walreplay.apply(spark, captures=str(recorded.folder), target=str(target))
    assert_mirror_equals(spark, target, recorded)
    assert walreplay.apply(spark, captures=str(recorded.folder), target=str(target)).status == "nothing new"


@pytest.mark.both_ways
def test_a_run_that_is_stopped_behind_a_dropped_column_is_finished(
    mirror: SmallMirror, stop: Callable[[str], None]
) -> None:
    dropping = {"on_drop_column": "drop"}
    mirror.apply(relation(1, "t", {"id": INT4, "gone": TEXT, "note": TEXT}), m.Insert(1, row(1, "x", "a")), **dropping)
    mirror.write(relation(1, "t", {"id": INT4, "note": TEXT, "more": TEXT}), m.Insert(1, row(2, "b", "c")))
    stop("columns changed")
    with pytest.raises(StoppedError):
        mirror.apply(**dropping)
    mirror.apply(**dropping)
    assert mirror.apply(m.Delete(1, key=row(1, None, None)), **dropping).warnings == ()
    columns = ("id", "note", "more", "_rescued_data")
    assert mirror.rows() == {"s.t": Counter([(columns, 2, "b", "c", None)])}


KEYED: dict[str, Any] = {"objects": [{"table": {"source_schema": "s", "source_table": "t", "keys": ["id"]}}]}


@pytest.mark.parametrize(
    ("first", "then", "step"),
    # By a key all rows are written in one commit, without one in a commit for each list of columns.
    further([(KEYED, {}, "table applied"), ({}, KEYED, "columns changed")], but=((KEYED, {}, "table applied"),)),
)
def test_a_run_goes_on_by_the_configuration_that_it_was_begun_with(
    mirror: SmallMirror, stop: Callable[[str], None], first: dict[str, Any], then: dict[str, Any], step: str
) -> None:
    mirror.apply(relation(1, "t", {"id": INT4, "note": TEXT}, "f"), m.Insert(1, row(1, "a")), **first)
    mirror.write(m.Insert(1, row(2, "b")))
    mirror.write(relation(1, "t", {"id": INT4, "note": TEXT, "more": TEXT}, "f"), m.Insert(1, row(3, "c", "d")))
    stop(step)
    with pytest.raises(StoppedError):
        mirror.apply(**first)
    for _ in range(2):
        with pytest.raises(TargetError, match="configuration has changed since"):
            mirror.apply(**then)
    mirror.apply(**first)
    mirror.apply(m.Insert(1, row(4, "e", "f")), **then)
    assert Counter(map(tuple, collect(mirror.location("t"), "id", "note", "more"))) == Counter(
        [(1, "a", None), (2, "b", None), (3, "c", "d"), (4, "e", "f")]
    )

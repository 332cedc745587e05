"""Exactly once where the platform refuses settings, so that none says which commit a statement makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.refusing_platform import refusing
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import StoppedError
from support.truth import assert_mirror_equals
from walreplay.delta.commits import CommitId, in_statement
from walreplay.protocol import messages as m
from walreplay.session import steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.both_ways]

_COLUMNS: Final = {"id": INT4, "v": TEXT}
_KEYED: Final = relation(1, "keyed", _COLUMNS)
_COPIES: Final = relation(2, "copies", _COLUMNS, "f")
_CONFIG: Final[dict[str, Any]] = {"outputs": ["mirror", "history"]}

_FIRST: Final = (
    _KEYED,
    _COPIES,
    *(m.Insert(oid, row(number, "a")) for oid in (1, 2) for number in (1, 2, 2 if oid == 2 else 3)),
)
_SECOND: Final = (
    m.Update(1, row(1, "b")),
    m.Delete(1, key=row(2, None)),
    m.Insert(1, row(4, "c")),
    # Twice, one of the two copies would be none.
    m.Delete(2, old=row(2, "a")),
    m.Delete(2, old=row(9, "nobody's")),
    m.Insert(2, row(1, "a")),
)
_THIRD: Final = (m.Truncate((1,), 0), m.Insert(1, row(1, "d")), m.Delete(2, old=row(1, "a")))


@pytest.fixture(autouse=True)
def refused() -> Iterator[list[str]]:
    """Have the platform refuse."""
    with refusing() as keys:
        yield keys


def test_a_stopped_run_is_finished_and_no_commit_made_twice(
    mirror: SmallMirror, tmp_path: Path, stop: Callable[[str], None], refused: list[str]
) -> None:
    reports = []
    for changes, step in ((_FIRST, "plan written"), (_SECOND, "table applied: s.copies"), (_THIRD, "runs written")):
        stop(step)
        with pytest.raises(StoppedError):
            mirror.apply(*changes, **_CONFIG)
        reports.append(mirror.apply(**_CONFIG))
        assert mirror.apply(**_CONFIG).status == "nothing new"

    # What was committed before the stop is counted by the run that has finished it.
    copies = next(table for table in reports[1].tables if table.name == "s.copies")
    written = {report.writer for report in reports}
    # A MERGE takes all equal rows out, and puts those back that stay; Delta counts both, in a run without a stop, too.
    counted = (1, 1, 1) if written == {"files"} else (2, 2, 1)
    assert (copies.inserted, copies.deleted, copies.deletes_without_row) == counted
    assert written == {"files"} or "spark.databricks.delta.commitInfo.userMetadata" in refused
    assert mirror.history("copies").count("WRITE" if written == {"files"} else "MERGE") == 2
    rows = mirror.rows()
    assert {name: _values(rows[name]) for name in ("s.keyed", "s.copies")} == {
        "s.keyed": [("1", "d")],
        "s.copies": [("1", "a"), ("2", "a")],
    }
    # One version of each row that an insert, an update or a delete has begun.
    assert sorted(name for name in rows) == ["s.copies", "s.copies__history", "s.keyed", "s.keyed__history"]
    assert {name: sum(rows[f"{name}__history"].values()) for name in ("s.keyed", "s.copies")} == {
        "s.keyed": 6,
        "s.copies": 4,
    }


def _values(rows: Counter[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Return the rows' ids and texts."""
    return sorted(tuple(map(str, found[1:3])) for found in rows.elements())


@pytest.mark.full
def test_a_catalogs_tables_are_written_once(
    spark: SparkSession, tmp_path: Path, stop: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    mirror = SmallMirror(spark, tmp_path, "spark_catalog")
    request.addfinalizer(lambda: [spark.sql(f"DROP SCHEMA {name} CASCADE") for name in ("s", "_walreplay")])
    # Nor does such a platform tell where its tables lie.
    volume = {"staging": str(tmp_path / "volume")}
    for changes, step in ((_FIRST, "table applied: s.copies"), (_SECOND, "table applied: s.copies")):
        stop(step)
        with pytest.raises(StoppedError):
            mirror.apply(*changes, **volume)
        mirror.apply(**volume)

    assert sorted(tuple(r) for r in spark.table("s.copies").select("id", "v").collect()) == [
        (1, "a"),
        (1, "a"),
        (2, "a"),
    ]
    assert sorted(tuple(r) for r in spark.table("s.keyed").select("id", "v").collect()) == [
        (1, "b"),
        (3, "a"),
        (4, "c"),
    ]
    assert walreplay.apply(spark, captures=mirror.captures, target="spark_catalog").status == "nothing new"


@pytest.mark.full
def test_a_run_that_is_stopped_behind_a_dropped_column_is_finished(
    mirror: SmallMirror, stop: Callable[[str], None]
) -> None:
    dropping = {"on_drop_column": "drop"}
    mirror.apply(relation(1, "t", {**_COLUMNS, "gone": TEXT}), m.Insert(1, row(1, "a", "x")), **dropping)
    mirror.write(relation(1, "t", {**_COLUMNS, "more": TEXT}), m.Insert(1, row(2, "b", "c")))
    stop("columns changed")
    with pytest.raises(StoppedError):
        mirror.apply(**dropping)
    mirror.apply(**dropping)
    assert mirror.apply(m.Delete(1, key=row(1, None, None)), **dropping).warnings == ()
    columns = ("id", "v", "more", "_rescued_data")
    assert mirror.rows() == {"s.t": Counter([(columns, 2, "b", "c", None)])}


@pytest.mark.parametrize("name", further([], long=["o11", "o14", "o18"]))
def test_a_run_that_is_stopped_at_every_step_makes_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    recorded, target = case(name), tmp_path / "mirror"
    # Each run goes one step further than the one before.
    for allowed in range(1, 10_000):
        remaining = allowed

        def on_step(_: str) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining <= 0:
                raise StoppedError

        steps.on_step = on_step
        try:
            walreplay.apply(spark, captures=str(recorded.folder), target=str(target))
            break
        except StoppedError:
            continue
        finally:
            steps.on_step = None
    assert allowed > 5
    assert_mirror_equals(spark, target, recorded)


def test_a_mark_is_read_from_what_a_statement_says() -> None:
    commit = CommitId("a ledger's 'id'", 7, oid=3)
    told = f'["((id#1L = id#2L) AND NOT (cast(deleted#3 as string) <=> {in_statement(commit.mark)}))"]'

    assert CommitId.logged(None, {"predicate": told}) == commit
    assert CommitId.logged("a person's own", {"predicate": told}) == commit
    assert CommitId.logged("a person's own", {"predicate": "id > 1"}) is None

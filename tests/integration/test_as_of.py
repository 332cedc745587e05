"""`walreplay.as_of` writes queries that give what the tables held at an LSN or at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.extent import further
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.errors import ConfigError, TargetError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ALL = {"outputs": ["mirror", "history", "changelog"]}

HELD: dict[int, dict[str, list[tuple[Any, ...]]]] = {
    50: {"t": [], "f": [], "n": []},
    100: {"t": [(1, "a"), (2, "b")], "f": [(1, "x"), (1, "x")], "n": [(7,)]},
    199: {"t": [(1, "a"), (2, "b")], "f": [(1, "x"), (1, "x")], "n": [(7,)]},
    200: {"t": [(1, "a"), (3, "c")], "f": [(1, "x"), (2, None)], "n": [(7,), (7,)]},
    300: {"t": [(4, "d")], "f": [(2, None)], "n": [(8,)]},
}


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SmallMirror:
    mirror = SmallMirror(spark, tmp_path_factory.mktemp("moments"))
    t, f = relation(1, "t", {"id": INT4, "odd `name": TEXT}), relation(2, "f", {"id": INT4, "v": TEXT}, "f")
    n = relation(3, "n", {"id": INT4}, "n")
    first = [m.Insert(1, row(1, "a")), m.Insert(1, row(2, "b")), m.Insert(2, row(1, "x")), m.Insert(2, row(1, "x"))]
    mirror.write(t, f, n, *first, m.Insert(3, row(7)))
    kept = m.TupleData((m.Cell("t", b"1"), m.UNCHANGED_CELL))
    moved = m.Update(1, row(3, "c"), key=row(2, None))
    mirror.apply(m.Update(1, kept), moved, m.Update(2, row(2, None), old=row(1, "x")), m.Insert(3, row(7)), **ALL)
    gone = [m.Truncate((1, 3), 0), m.Delete(2, old=row(1, "x"))]
    mirror.apply(*gone, m.Insert(1, row(4, "d")), m.Insert(3, row(8)), **ALL)
    return mirror


def _assert_held(spark: SparkSession, table: Any, lsn: int) -> None:
    """See that a table's query gives what the source held."""
    held = HELD[lsn][table.name[2:]]
    rows = [tuple(one)[: len(HELD[100][table.name[2:]][0])] for one in spark.sql(table.sql).collect()]
    assert sorted(map(repr, rows)) == sorted(map(repr, held)), (lsn, table.output)


_BETWEEN_RUNS = (199,)


@pytest.mark.parametrize(
    ("way", "lsns"),
    further(
        [("lsn", _BETWEEN_RUNS), ("lsn", tuple(HELD))], but=(("lsn", _BETWEEN_RUNS),), long=[("time", tuple(HELD))]
    ),
)
def test_all_queries_give_what_was_held(
    spark: SparkSession, shop: SmallMirror, way: str, lsns: tuple[int, ...]
) -> None:
    exact = {}
    for lsn in lsns:
        moment = format_lsn(lsn) if way == "lsn" else f"2000-01-01T00:00:00.{lsn:06}Z"
        found = walreplay.as_of(spark, shop.target, moment, config=ALL)
        assert len(found.tables) == 9
        for table in found.tables:
            exact[lsn, table.output] = table.exact
            assert table.sql is not None or table.output == "mirror"
            if table.exact and table.sql is not None:
                _assert_held(spark, table, lsn)
    assert [lsn for lsn in lsns if exact[lsn, "mirror"]] == [lsn for lsn in lsns if lsn in (200, 300)]
    assert all(is_exact for (_, output), is_exact in exact.items() if output != "mirror")


def test_tables_are_chosen_and_moments_checked(spark: SparkSession, shop: SmallMirror, tmp_path: Path) -> None:
    found = walreplay.as_of(spark, shop.target, "0/C8", table=r"s\.[tf]", config=ALL)
    assert {one.name for one in found.tables} == {"s.t", "s.f"}
    # At a run's end.
    assert all(one.exact for one in found.tables)
    for one in found.tables:
        if one.name == "s.t":
            _assert_held(spark, one, 200)
    with pytest.raises(TargetError, match="holds what was committed up to 0/12C"):
        walreplay.as_of(spark, shop.target, "1/0")
    with pytest.raises(ConfigError, match="neither an LSN nor a time"):
        walreplay.as_of(spark, shop.target, "yesterday")
    with pytest.raises(TargetError):
        walreplay.as_of(spark, str(tmp_path / "none"), "0/1")


def test_a_mirror_is_exact_until_the_next_run_that_changes_it(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    one, other = relation(1, "one", {"id": INT4, "v": TEXT}), relation(2, "other", {"id": INT4, "v": TEXT})
    mirror.apply(one, m.Insert(1, row(1, "a")), other, m.Insert(2, row(1, "a")))
    mirror.write(m.Update(2, row(1, "b")))
    mirror.apply(m.Update(2, row(1, "c")))
    found = walreplay.as_of(spark, mirror.target, format_lsn(200))
    assert {table.name: table.exact for table in found.tables} == {"s.one": True, "s.other": False}
    mirror.write(m.Update(2, row(1, "d")))
    mirror.apply(m.Insert(1, row(2, "b")), m.Delete(1, key=row(2, None)))
    found = walreplay.as_of(spark, mirror.target, format_lsn(400))
    assert not any(table.exact for table in found.tables)


@pytest.mark.parametrize("asks_early", further([False, True]))
def test_a_change_log_alone_shows_whether_rows_are_missing(
    spark: SparkSession, tmp_path: Path, asks_early: bool
) -> None:
    mirror, config = SmallMirror(spark, tmp_path), {"outputs": ["changelog"]}
    kinds = {"id": INT4, "v": TEXT}
    keyed, full, added = relation(1, "k", kinds), relation(2, "f", kinds, "f"), relation(3, "n", kinds, "n")

    def exact(lsn: int) -> dict[str, list[tuple[Any, ...]]]:
        tables = walreplay.as_of(spark, mirror.target, format_lsn(lsn), config=config).tables
        return {
            one.name[2:]: [tuple(held) for held in spark.sql(one.sql or "").collect()] for one in tables if one.exact
        }

    first = [m.Insert(oid, row(1, "a")) for oid in (1, 2, 3)]
    mirror.apply(keyed, full, added, *first, **config)
    moved = m.Update(1, row(2, "b"), key=row(1, None))
    mirror.apply(moved, m.Update(2, row(1, "b"), old=row(1, "a")), **config)
    if asks_early:
        assert exact(200) == {"k": [(2, "b")], "f": [(1, "b")], "n": [(1, "a")]}
    # A row from before the captures shows only now.
    mirror.apply(m.Update(1, row(9, "z")), m.Delete(2, old=row(9, "z")), **config)
    if asks_early:
        assert exact(200) == {"n": [(1, "a")]}
    mirror.apply(m.Truncate((1, 2), 0), m.Insert(1, row(2, "c")), m.Insert(2, row(1, "c")), **config)
    assert exact(300) == {"n": [(1, "a")]}
    assert exact(400) == {"k": [(2, "c")], "f": [(1, "c")], "n": [(1, "a")]}


def test_what_a_history_lacks_is_no_doubt_about_the_mirror(spark: SparkSession, tmp_path: Path) -> None:
    mirror, both = SmallMirror(spark, tmp_path), {"outputs": ["mirror", "history"]}
    mirror.apply(relation(1, "t", {"id": INT4, "v": TEXT}), m.Insert(1, row(1, "a")), m.Insert(1, row(2, "a")))
    mirror.apply(m.Update(1, row(1, "b")), **both)
    found = walreplay.as_of(spark, mirror.target, format_lsn(200), config=both)
    assert {table.output: table.exact for table in found.tables} == {"mirror": True, "history": False}

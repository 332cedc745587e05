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


@pytest.mark.parametrize("way", further(["lsn"], but=("lsn",), long=["time"]))
def test_all_queries_give_what_was_held(spark: SparkSession, shop: SmallMirror, way: str) -> None:
    exact = {}
    for lsn, held in HELD.items():
        moment = format_lsn(lsn) if way == "lsn" else f"2000-01-01T00:00:00.{lsn:06}Z"
        found = walreplay.as_of(spark, shop.target, moment, config=ALL)
        assert len(found.tables) == 9
        for table in found.tables:
            exact[lsn, table.output] = table.exact
            assert table.sql is not None or table.output == "mirror"
            if table.exact and table.sql is not None:
                rows = [tuple(one)[: len(HELD[100][table.name[2:]][0])] for one in spark.sql(table.sql).collect()]
                assert sorted(map(repr, rows)) == sorted(map(repr, held[table.name[2:]])), (lsn, table.output)
    assert [lsn for lsn in HELD if exact[lsn, "mirror"]] == [200, 300]
    assert all(is_exact for (_, output), is_exact in exact.items() if output != "mirror")


def test_tables_are_chosen_and_moments_checked(spark: SparkSession, shop: SmallMirror, tmp_path: Path) -> None:
    found = walreplay.as_of(spark, shop.target, "0/C8", table=r"s\.[tf]", config=ALL)
    assert {one.name for one in found.tables} == {"s.t", "s.f"}
    with pytest.raises(TargetError, match="holds what was committed up to 0/12C"):
        walreplay.as_of(spark, shop.target, "1/0")
    with pytest.raises(ConfigError, match="neither an LSN nor a time"):
        walreplay.as_of(spark, shop.target, "yesterday")
    with pytest.raises(TargetError):
        walreplay.as_of(spark, str(tmp_path / "none"), "0/1")

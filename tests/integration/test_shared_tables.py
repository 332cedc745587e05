"""Several sources in one table: each has its own rows, whatever becomes of those of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, relation, row, rows_of
from walreplay.errors import ConfigError, TargetError
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ITEMS = relation(9, "items", {"id": INT4, "note": TEXT})
PAIRS = relation(8, "pairs", {"a": INT4, "b": TEXT}, "f")


class Shards:
    """Sources whose tables are shared, and what each would have in a target of its own."""

    def __init__(self, spark: SparkSession, folder: Path, *names: str, **common: Any) -> None:
        self.spark, self.folder = spark, folder
        self.lake = folder / "lake"
        self.of = {name: SmallMirror(spark, folder / name) for name in names}
        sources = {name: {"captures": str(one.captures)} for name, one in self.of.items()}
        self.config: dict[str, Any] = {**common, "sources": sources, "shared_tables": ["s\\..*"]}

    def apply(self, **options: Any) -> dict[str, walreplay.RunReport]:
        report = walreplay.apply_sources(self.spark, self.lake, self.config, **options)
        report.raise_first()
        return dict(report.results)

    def rows(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Give each source's rows of each table, without the columns in which all of them are NULL."""
        found: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in self.of}
        for table in sorted(path.name for path in (self.lake / "s").iterdir()):
            frame = self.spark.read.format("delta").load(str(self.lake / "s" / table))
            for one in frame.drop("__commit_lsn", "__commit_ts", "_rescued_data").collect():
                values = one.asDict()
                found[values.pop("__source")].setdefault(table, []).append(values)
        return {name: {table: _plain(rows) for table, rows in tables.items()} for name, tables in found.items()}

    def expected(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Give the same of targets of their own, one for each source."""
        found = {}
        for name, one in self.of.items():
            own = self.folder / f"own {name} {one.files}"
            walreplay.apply(self.spark, one.captures, own, {key: v for key, v in self.config.items() if key not in ("sources", "shared_tables")})
            tables = {}
            for table, counted in rows_of(self.spark, own).items():
                rows = [dict(zip(names, values, strict=True)) for (names, *values), n in counted.items() for _ in range(n)]
                rows = [{key: v for key, v in one.items() if key != "_rescued_data"} for one in rows]
                if rows:
                    tables[table.removeprefix("s.")] = _plain(rows)
            found[name] = tables
        return found


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = {name for one in rows for name, value in one.items() if value is not None}
    return sorted(({name: one.get(name) for name in sorted(kept)} for one in rows), key=repr)


def test_sources_that_share_a_table_have_their_own_rows(spark: SparkSession, tmp_path: Path) -> None:
    shards = Shards(spark, tmp_path, "eu", "us")
    for name, one in shards.of.items():
        one.write(ITEMS, PAIRS, *(m.Insert(9, row(n, name)) for n in range(3)), *(m.Insert(8, row(1, "x")),) * 2)
    shards.apply(at_once=2)
    assert shards.rows() == shards.expected()
    eu, us = shards.of.values()
    old = m.Delete(8, row(1, "x"))
    eu.write(m.Update(9, row(1, "changed")), m.Delete(9, key=row(0, None)), old)
    us.write(m.Insert(9, row(7, "new")), m.Insert(8, row(2, "y")))
    shards.apply(at_once=2)
    assert shards.rows() == shards.expected()
    us.write(m.Truncate((9, 8), 0), m.Insert(9, row(1, "after")))
    eu.write(m.Insert(9, row(8, "late")))
    shards.apply()
    assert shards.rows() == shards.expected()
    assert shards.apply()["eu"].status == "nothing new"

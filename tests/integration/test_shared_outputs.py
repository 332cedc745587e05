"""Several sources in one history and one change log: each has its own versions and changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.killed_run import run_until_killed
from support.plain_source import Changing, PlainTable, text_of
from support.shards import Shard, Shards
from support.small_mirror import INT4, INT8, TEXT, forget, relation, row
from support.stopped_run import StoppedError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]

FLOAT4, FLOAT8 = 700, 701
ITEMS = relation(9, "items", {"id": INT4, "note": TEXT})
PAIRS = relation(8, "pairs", {"a": INT4, "b": TEXT}, "f")
NOTES = relation(7, "notes", {"a": INT4}, "n")

ALL = {
    "outputs": ["mirror", "history", "changelog"],
    "objects": [
        {"table": {"source_schema": "s", "source_table": "pairs", "outputs": ["history", "changelog"]}},
        {"table": {"source_schema": "s", "source_table": "notes", "outputs": ["history"]}},
    ],
}


def begin(shards: Shards) -> dict[str, list[Changing]]:
    """Have plain tables follow the sources; give what changes two of them."""
    found = {}
    for number, (name, one) in enumerate(shards.of.items()):
        one.plain = [PlainTable(relation_) for relation_ in (ITEMS, PAIRS, NOTES)]
        found[name] = [Changing(random.Random(10 * number + table.oid), table) for table in one.plain[:2]]
    return found


def go_on(one: Shard, changing: list[Changing], files: int = 2) -> None:
    """Bring some transactions of both tables."""
    for _ in range(files):
        one.write(*(change for table in changing for change in table.some(3)))


def assert_all_is_right(shards: Shards) -> None:
    assert shards.rows() == shards.plain(9, "held")
    for name, oid in (("items", 9), ("pairs", 8)):
        assert shards.versions(f"{name}__history") == shards.plain(oid, "versions"), name
        assert shards.log(f"{name}__changes") == shards.plain(oid, "log"), name
    if shards.plain(7, "versions"):
        assert shards.versions("notes__history") == shards.plain(7, "versions")


@pytest.mark.parametrize("way", ["files", pytest.param("spark", marks=pytest.mark.long)])
def test_runs_that_are_stopped_leave_each_source_its_own_versions_and_changes(
    spark: SparkSession, tmp_path: Path, stop: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark" if way == "spark" else "")
    shards = Shards(spark, tmp_path, **ALL)
    eu, us = shards.of.values()
    changing = begin(shards)

    def stopped(step: str) -> None:
        """Stop a run of the one source at a step; then come the other one, and the rest."""
        stop(step)
        (failed,) = walreplay.apply_sources(spark, shards.lake, shards.config, sources=["eu"]).failed
        assert isinstance(failed.error, StoppedError), step
        shards.apply("us")
        shards.apply("eu")
        assert_all_is_right(shards)

    for one in (eu, us):
        one.write(ITEMS, PAIRS, *(m.Insert(9, row(n, "first")) for n in range(5)), *(m.Insert(8, row(1, "x")),) * 3)
        one.write(NOTES, *(m.Insert(7, row(5)),) * 2)
    stopped("table is to be made")
    for name, one in shards.of.items():
        go_on(one, changing[name])
    stopped("table applied")
    # One truncates, and goes on in the same transaction; one has a column more, and wider ones.
    more = relation(9, "items", {"id": INT8, "note": TEXT, "price": FLOAT4})
    eu.write(more, m.Truncate((9,), 0), *(m.Insert(9, row(n, "new", 1.5)) for n in range(4)), m.Delete(8, row(1, "x")))
    eu.write(m.Update(9, row(7, "moved", 2.5), key=row(1, None, None)), m.Truncate((7,), 0), m.Insert(7, row(6)))
    for name, one in shards.of.items():
        go_on(one, changing[name])
    stopped("columns are to change")
    for name, one in shards.of.items():
        go_on(one, changing[name])
    shards.apply(at_once=2)
    assert_all_is_right(shards)
    assert_moments(spark, shards)


def assert_moments(spark: SparkSession, shards: Shards) -> None:
    """See what `walreplay.as_of` gives of each source, by LSN and by time."""
    for name, one in shards.of.items():
        settings = walreplay.source_settings(shards.config, name)
        lsn = 100 * (one.files - 1)
        for moment in (format_lsn(lsn), f"2000-01-01T00:00:00.{lsn + 50:06}Z"):
            found = walreplay.as_of(spark, shards.lake, moment, config=settings)
            seen = [(table.name, table.output) for table in found.tables]
            assert len(seen) == len(set(seen)) == 6
            for table in found.tables:
                if table.output != "mirror":
                    assert table.sql is not None
                    plain = one.plain[["s.items", "s.pairs", "s.notes"].index(table.name)]
                    rows = sorted(text_of(row.asDict()) for row in spark.sql(table.sql).collect())
                    assert rows == plain.texts(plain.held_at(lsn)), (name, moment, table)


def test_columns_that_are_renamed_or_watched_are_the_source_s_own(spark: SparkSession, tmp_path: Path) -> None:
    table = {"source_schema": "s", "source_table": "items", "track_history_except_column_list": ["size"]}
    shards = Shards(spark, tmp_path, outputs=["history", "changelog"], objects=[{"table": table}])
    eu, us = shards.of.values()
    kinds = {"eu": FLOAT4, "us": FLOAT8}
    kept = m.TupleData((m.Cell("t", b"1"), m.UNCHANGED_CELL, m.Cell("t", b"0.1"), m.Cell("t", b"7")))
    for name, one in shards.of.items():
        columns = {"id": INT4, "note": TEXT, "rate": kinds[name], "size": INT4}
        one.write(relation(9, "items", columns), *(m.Insert(9, row(n, name, 0.1, 1)) for n in range(3)))
        one.write(m.Update(9, kept), m.Delete(9, key=row(0, None, None, None)))
    shards.apply()
    # What is not watched changes in the open version; that one's rate is narrower than the table's.
    for name, one in shards.of.items():
        one.write(m.Update(9, row(1, name, 0.1, 8)), m.Update(9, row(2, name, 0.2, 8)))
    shards.apply()
    rates = {"eu": ("0.10000000149011612", "0.20000000298023224"), "us": ("0.1", "0.2")}
    held = {
        name: [
            f"100-200 c: id=0 note={name} rate={rate} size=1",
            f"100-300 c: id=2 note={name} rate={rate} size=1",
            f"100-None c: id=1 note={name} rate={rate} size=8",
            f"300-None u: id=2 note={name} rate={other} size=8",
        ]
        for name, (rate, other) in rates.items()
    }
    assert shards.versions() == held
    # One renames a column: its values, also of old rows, and what is unchanged, go by the new name.
    renamed = relation(9, "items", {"id": INT4, "remark": TEXT, "rate": FLOAT4, "size": INT4})
    us_log = shards.log()["us"]
    eu.write(renamed, m.Update(9, row(5, "moved", 0.1, 8), key=row(1, None, None, None)))
    shards.config["objects"][0]["table"]["rename_columns"] = {"note": "remark"}
    shards.apply("eu")
    del shards.config["objects"][0]["table"]["rename_columns"]
    us.write(m.Delete(9, key=row(2, None, None, None)))
    shards.apply("us")
    log = shards.log()
    assert log["us"] == [*us_log, "400 d: id=2 | id=2 | "]
    assert log["eu"][0] == f"100 c: id=0 rate={rates['eu'][0]} remark=eu size=1 |  | "
    assert log["eu"][3] == f"200 u: id=1 rate={rates['eu'][0]} size=7 |  | remark"
    assert log["eu"][-1] == f"400 u: id=5 rate={rates['eu'][0]} remark=moved size=8 | id=1 | "
    versions = shards.versions()
    assert not any("note=" in text for text in versions["eu"])
    assert f"100-400 c: id=1 rate={rates['eu'][0]} remark=eu size=8" in versions["eu"]
    assert [text for text in versions["us"] if "id=2" in text][-1].startswith("300-400 u: id=2 note=us")


@pytest.mark.long
def test_a_run_that_is_killed_is_finished_behind_the_others(spark: SparkSession, tmp_path: Path) -> None:
    shards = Shards(spark, tmp_path, **ALL)
    changing = begin(shards)
    for name, one in shards.of.items():
        one.write(ITEMS, PAIRS, *(m.Insert(9, row(n, name)) for n in range(5)), *(m.Insert(8, row(1, "x")),) * 3)
        go_on(one, changing[name], files=1)
    shards.apply()
    config = tmp_path / "lake.json"
    config.write_text(json.dumps(shards.config), encoding="utf-8")
    for name, one in shards.of.items():
        go_on(one, changing[name])
    command = ("apply", "--source", "eu")
    done = run_until_killed(None, shards.lake, "table applied", 2, scratch=tmp_path, config=config, command=command)
    assert sum(step.startswith("table applied") for step in done) == 2
    forget(spark)
    shards.apply("us")
    shards.apply("eu")
    assert_all_is_right(shards)

"""Tables are made again from the archive: whatever has become of them, what was left out before, what lacks changes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.extent import further
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import StoppedError
from support.truth import mirror_tables
from walreplay.errors import ConfigError, OrderError, TargetError
from walreplay.protocol import messages as m
from walreplay.report import RunReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ORDERS = relation(9, "orders", {"id": INT4, "note": TEXT})
ITEMS = relation(10, "items", {"id": INT4, "note": TEXT}, "f")
NOTES = relation(11, "no tes", {"id": INT4, "a b": TEXT})
OTHERS = relation(12, "others", {"id": INT4, "note": TEXT})

ALL = {"outputs": ["mirror", "changelog"]}
BEFORE: dict[str, Any] = {
    "outputs": ["mirror"],
    "table_exclude_list": [r"s\.no tes"],
    "objects": [{"table": {"source_schema": "s", "source_table": "others", "exclude_columns": ["note"]}}],
}


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> SmallMirror:
    return SmallMirror(spark, tmp_path)


def rebuilt(small: SmallMirror, table: str, config: dict[str, Any] | None = None, **options: Any) -> RunReport:
    return walreplay.rebuild(small.spark, small.captures, small.target, table, config=config, **options)


def fill(small: SmallMirror, **config: Any) -> None:
    """Apply two files: rows of a keyed table, of a multiset, and of two further tables."""
    small.write(
        *(ORDERS, *(m.Insert(9, row(number, "a")) for number in range(5))),
        *(ITEMS, *(m.Insert(10, row(1, "same")) for _ in range(3))),
        *(NOTES, m.Insert(11, row(1, "x")), OTHERS, m.Insert(12, row(1, "kept"))),
    )
    small.apply(**config)
    small.apply(
        *(ORDERS, m.Update(9, row(1, "b")), m.Delete(9, None, row(2, None))),
        *(ITEMS, m.Delete(10, row(1, "same"), None), NOTES, m.Insert(11, row(2, "y")), OTHERS, m.Insert(12, row(2, "z"))),
        **config,
    )


def held(spark: SparkSession, target: str | Path) -> dict[str, Counter[str]]:
    """Give the rows of a target's tables, those of change logs with all their columns."""
    found = {}
    for name, location in mirror_tables(target).items():
        rows = spark.read.format("delta").load(str(location))
        rows = rows if name.endswith("__changes") else rows.drop("__commit_lsn", "__commit_ts")
        found[name] = Counter(str(one) for one in rows.collect())
    return found


def goes_on(small: SmallMirror, folder: Path, **config: Any) -> None:
    """Bring a further file, and compare all tables with what one run makes of everything."""
    small.apply(
        *(ORDERS, m.Update(9, row(3, "c")), m.Insert(9, row(7, "d")), ITEMS, m.Delete(10, row(1, "same"), None)),
        *(NOTES, m.Update(11, row(1, "w")), OTHERS, m.Update(12, row(1, "v"))),
        **config,
    )
    walreplay.apply(small.spark, small.captures, folder, config)
    assert held(small.spark, small.target) == held(small.spark, folder)


def versions(small: SmallMirror) -> dict[str, int]:
    return {path.name: len(list((path / "_delta_log").glob("*.json"))) for path in Path(small.target, "s").iterdir()}


def test_damaged_tables_are_made_again_and_right_ones_are_not_touched(small: SmallMirror, tmp_path: Path) -> None:
    fill(small)
    spark, right, before = small.spark, small.rows(), versions(small)
    place = {name: f"delta.`{small.location(name)}`" for name in before}
    spark.sql(f"DELETE FROM {place['orders']} WHERE id = 3")
    spark.sql(f"INSERT INTO {place['items']} SELECT * FROM {place['items']}")
    shutil.rmtree(small.location("others"))
    with pytest.raises(TargetError, match=r"walreplay rebuild .*--table 's\\.orders'"):
        small.apply(ORDERS, m.Insert(9, row(6, "f")))
    (small.captures / "003.bin").rename(tmp_path / "later")

    report = rebuilt(small, r"s\..*")

    assert report.status == "rebuilt"
    done = {table.name: (table.action, table.inserted) for table in report.tables}
    assert done == {
        "s.orders": ("overwritten", 4),
        "s.items": ("overwritten", 2),
        "s.others": ("overwritten", 2),
        "s.no tes": ("unchanged", 0),
    }
    assert small.rows() == right
    assert versions(small)["no tes"] == before["no tes"]
    # What was there before is still in the history.
    assert spark.sql(f"SELECT * FROM {place['orders']} VERSION AS OF 0").count() == 5
    assert not (small.ledger / "rebuild").exists() or not list((small.ledger / "rebuild").iterdir())
    assert [run.state for run in walreplay.status(spark, small.target).runs] == ["applied"] * 3
    # What is right is left as it is.
    before = versions(small)
    assert {table.action for table in rebuilt(small, r"s\..*").tables} == {"unchanged"}
    assert versions(small) == before
    (tmp_path / "later").rename(small.captures / "003.bin")
    goes_on(small, tmp_path / "whole")


def test_what_is_wanted_now_comes_as_if_it_had_always_been_there(small: SmallMirror, tmp_path: Path) -> None:
    fill(small, **BEFORE)
    report = rebuilt(small, "s.(no tes|OTHERS|orders)", ALL, run_bytes=1)
    done = {table.name: table.action for table in report.tables}
    assert done == {
        "s.no tes": "created",
        "s.no tes (changelog)": "created",
        "s.orders": "unchanged",
        "s.orders (changelog)": "created",
        "s.others": "overwritten",
        "s.others (changelog)": "created",
    }
    rebuilt(small, "s.items", ALL, outputs=["changelog"])
    goes_on(small, tmp_path / "whole", **ALL)


def test_outputs_that_lack_changes_are_whole_again(small: SmallMirror, tmp_path: Path) -> None:
    small.apply(ORDERS, m.Insert(9, row(1, "a")), **ALL)
    small.apply(ORDERS, m.Insert(9, row(2, "a")), outputs=["changelog"])
    small.apply(ORDERS, m.Insert(9, row(3, "a")), outputs=["changelog"])
    with pytest.raises(ConfigError, match=r"walreplay rebuild"):
        small.apply(ORDERS, m.Insert(9, row(4, "a")), **ALL)
    rebuilt(small, r"s\.orders", ALL)
    walreplay.apply(small.spark, small.captures, small.target, ALL)
    walreplay.apply(small.spark, small.captures, tmp_path / "whole", ALL)
    assert held(small.spark, small.target) == held(small.spark, tmp_path / "whole")

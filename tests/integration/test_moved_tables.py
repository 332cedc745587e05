"""Tables that trade places, whose logs look alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.extent import further
from support.readers import collect, read
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.truth import mirror_tables
from walreplay.delta import statements as delta
from walreplay.delta.target import TableName
from walreplay.errors import TargetError
from walreplay.protocol import messages as m
from walreplay.table.placement import Move
from walreplay.writing.move import move

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]

_LENGTH = 8192
_SAME_MOMENT = 1_700_000_000_000_000_000


def _look_alike(target: Path) -> None:
    """Give the commits of all tables one length and one time, as they have who are made in one millisecond."""
    logs = [Path(folder, "_delta_log") for folder in mirror_tables(target).values()]
    # By Spark's statements a table gets its comment in a second one.
    assert len({len(list(log.glob("*.json"))) for log in logs}) == 1
    for commit in (commit for log in logs for commit in log.glob("*.json")):
        text = commit.read_text().rstrip("\n")
        commit.write_text(text + " " * (_LENGTH - len(text) - 1) + "\n")
        assert commit.stat().st_size == _LENGTH
        # Hadoop's checksum of what it was.
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
        os.utime(commit, ns=(_SAME_MOMENT, _SAME_MOMENT))


@pytest.mark.parametrize("writes", further([""], but=("",), long=["spark"]), ids=["by files", "by Spark"])
def test_tables_that_trade_places_are_not_taken_for_each_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: str
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", writes)
    mirror = SmallMirror(spark, tmp_path)
    target = Path(mirror.target)
    kinds = {"d": (1, 2), "f": (3, 4)}
    names = {oid: f"{kind}_{place}" for kind, oids in kinds.items() for oid, place in zip(oids, "ab", strict=True)}
    relations = [
        relation(oid, names[oid], {"id": INT4, "v": TEXT}, kind) for kind, oids in kinds.items() for oid in oids
    ]
    rows = [m.Insert(oid, row(number, f"{oid}.{number}")) for oid in names for number in range(3)]
    mirror.apply(*relations, *rows)
    _look_alike(target)
    # Of some Delta has the state in mind, of the others what their commits have told alone.
    for name, folder in mirror_tables(target).items():
        if name.startswith("s.d"):
            assert read(folder).num_rows == 3

    swapped = {1: names[2], 2: names[1], 3: names[4], 4: names[3]}
    changes = [
        m.Update(oid, row(1, "changed"), old=row(1, f"{oid}.1") if oid in kinds["f"] else None) for oid in swapped
    ]
    renamed = [
        relation(oid, swapped[oid], {"id": INT4, "v": TEXT}, kind) for kind, oids in kinds.items() for oid in oids
    ]
    assert not mirror.apply(*renamed, *changes).warnings

    tables = mirror_tables(target)
    for oid, name in swapped.items():
        found = collect(tables[f"s.{name}"], "id", "v")
        assert sorted(map(tuple, found)) == [(0, f"{oid}.0"), (1, "changed"), (2, f"{oid}.2")]


def test_a_table_that_is_copied_to_its_place_does_not_take_anothers(spark: SparkSession) -> None:
    """A catalog renames nothing; what lies at the new place may be of a ledger that this one knows nothing of."""
    here, there = (TableName(parts=("spark_catalog", "moved_by_copy", name)) for name in ("here", "there"))
    commit, checked = delta.CommitId("ledger", 7), list[object]()

    def to(destination: TableName) -> None:
        step = Move(1, "s.t", here, destination, set_aside=False)
        move(spark.newSession(), step, commit, lambda **_: checked.append(None), None)

    spark.sql("CREATE SCHEMA spark_catalog.moved_by_copy")
    try:
        for name, rows in ((here, 3), (there, 2)):
            spark.range(rows).write.format("delta").saveAsTable(name.sql)
        with pytest.raises(TargetError, match="a table cannot be moved here, for something is there"):
            to(there)
        assert (spark.table(here.sql).count(), spark.table(there.sql).count()) == (3, 2)
        # What a run before has left without rows is nobody's; and a copy that was made is not made again.
        spark.sql(f"DELETE FROM {there.sql}")
        to(there)
        to(there)
        assert not spark.catalog.tableExists(here.sql)
        assert spark.table(there.sql).count() == 3
    finally:
        spark.sql("DROP SCHEMA spark_catalog.moved_by_copy CASCADE")

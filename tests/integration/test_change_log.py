"""A change log has each change once, as it was sent, and folds to the mirror."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import case
from support.change_model import assert_logs_changes, logged, logs_of
from support.extent import further
from support.killed_run import run_until_killed
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, relation, row
from walreplay.errors import ConfigError
from walreplay.ledger.status import versions_at
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

BOTH: Mapping[str, Any] = {"outputs": ["mirror", "changelog"]}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.full
def test_a_run_that_is_killed_writes_no_change_twice(spark: SparkSession, tmp_path: Path) -> None:
    recorded, target, config = case("o11"), tmp_path / "mirror", tmp_path / "both.yaml"
    config.write_text("outputs: [mirror, changelog]\n")
    run_until_killed(recorded.folder, target, "table applied", 3, scratch=tmp_path, config=config)
    report = walreplay.apply(spark, captures=recorded.folder, target=target, config=BOTH)
    assert_logs_changes(spark, logs_of(report), recorded.files)


# What becomes of its columns.


@pytest.mark.full
def test_columns_follow_the_source_and_so_do_the_fields_of_old_rows(mirror: SmallMirror) -> None:
    first = relation(1, "t", {"id": INT4, "a": INT4, "b": TEXT})
    # Its own columns give way to none of the source's.
    odd = relation(2, "odd", {"id": INT4, "__op": TEXT, "__before": TEXT, "x.y`z": TEXT})
    changes = [first, m.Insert(1, row(1, 10, "x")), m.Update(1, row(2, 10, "x"), key=row(1, None, None))]
    report = mirror.apply(*changes, odd, m.Insert(2, row(1, "mine", "too", "odd")), **BOTH)
    # A change log is a table of its own to the report and in the cut.
    assert sorted((one.name, one.action, one.changes, one.inserted) for one in report.tables) == [
        ("s.odd", "created", 1, 1),
        ("s.odd (changelog)", "created", 1, 1),
        ("s.t", "created", 2, 1),
        ("s.t (changelog)", "created", 2, 2),
    ]
    assert report.changes == 3
    assert report.run is not None
    cut = versions_at(mirror.spark, mirror.target, report.run)
    assert {one.name: one.version for one in cut.tables} == {one.name: 0 for one in report.tables}
    wider = relation(1, "t", {"id": INT8, "a": INT8, "b": TEXT, "c": TEXT})
    # Without mirrors from here on.
    alone = {"outputs": ["changelog"]}
    mirror.apply(wider, m.Update(1, row(1 << 40, 11, "y", "z"), key=row(2, None, None, None)), **alone)
    renamed = relation(1, "t", {"id": INT8, "n": INT8, "b": TEXT, "c": TEXT})
    gone = m.Delete(2, key=row(1, None, None, None))
    mirror.apply(renamed, m.Delete(1, key=row(1 << 40, None, None, None)), gone, **alone)
    dropped = relation(1, "t", {"id": INT8, "n": INT8, "c": TEXT})
    mirror.apply(dropped, m.Insert(1, row(5, 12, "w")), **alone)
    found = logged(mirror.spark, mirror.location("t__changes"))
    assert list(found[0])[8:-3] == ["id", "n", "b", "c"]
    assert [[one[name] for name in ("__op", "id", "n", "b", "c")] for one in found] == [
        ["c", 1, 10, "x", None],
        ["u", 2, 10, "x", None],
        ["u", 1 << 40, 11, "y", "z"],
        ["d", 1 << 40, None, None, None],
        ["c", 5, 12, None, "w"],
    ]
    nothing = {"n": None, "b": None, "c": None}
    olds = [None, {"id": 1, **nothing}, {"id": 2, **nothing}, {"id": 1 << 40, **nothing}, None]
    assert [one["__before"] for one in found] == olds
    assert "OVERWRITE" not in mirror.history("t__changes")
    new, old = logged(mirror.spark, mirror.location("odd__changes"))
    assert (new["__op"], new["__op__2"], new["__before__2"], new["x.y`z"]) == ("c", "mine", "too", "odd")
    assert old["__before"] == {"id": 1, "__op__2": None, "__before__2": None, "x.y`z": None}


@pytest.mark.parametrize("runs", further(["in one run", "in two"], but=()))
def test_a_type_that_is_converted_is_converted_in_old_rows_too(mirror: SmallMirror, runs: str) -> None:
    before = [
        relation(1, "t", {"id": INT4, "v": TEXT}, "f"),
        m.Insert(1, row(1, "7")),
        m.Update(1, row(1, "x"), old=row(1, "7")),
        m.Update(1, row(1, "8"), old=row(1, "x")),
    ]
    after = [relation(1, "t", {"id": INT4, "v": INT4}, "f"), m.Update(1, row(1, 9), old=row(1, 8))]
    if runs == "in two":
        mirror.apply(*before, **BOTH)
    else:
        mirror.write(*before)
    mirror.apply(*after, **BOTH)
    found = logged(mirror.spark, mirror.location("t__changes"))
    assert [(one["v"], one["__before"] and one["__before"]["v"]) for one in found] == [
        (7, None),
        (None, 7),
        (8, None),
        (9, 8),
    ]
    assert [one["_rescued_data"] for one in found] == [{}, {"v": "x"}, {"__before": {"v": "x"}}, {}]


@pytest.mark.full
def test_unchanged_columns_go_by_the_name_that_they_have_now(mirror: SmallMirror) -> None:
    first = relation(1, "t", {"id": INT4, "long": TEXT, "v": INT4})
    unchanged = m.TupleData((m.Cell("t", b"1"), m.UNCHANGED_CELL, m.Cell("t", b"5")))
    mirror.apply(first, m.Insert(1, row(1, "a", 4)), m.Update(1, unchanged), **BOTH)
    second = relation(1, "t", {"id": INT4, "text": TEXT, "v": INT4})
    mirror.apply(second, m.Insert(1, row(2, "b", 6)), **BOTH)
    found = logged(mirror.spark, mirror.location("t__changes"))
    assert [one["__unchanged"] for one in found] == [[], ["text"], []]
    assert [one["text"] for one in found] == ["a", None, "b"]


# What it is called, and when it is there.


def test_a_table_that_has_its_name_is_refused_and_without_a_mirror_there_is_a_change_log_alone(
    mirror: SmallMirror,
) -> None:
    orders = relation(1, "orders", {"id": INT4, "note": TEXT}, "n")
    other = relation(2, "orders__changes", {"id": INT4})
    mirror.write(orders, other, m.Insert(1, row(1, "a")), m.Insert(2, row(2)))
    with pytest.raises(ConfigError, match="have the same destination"):
        mirror.apply(**BOTH)
    assert not mirror.location("orders").exists()
    # A mirror would need a key for the update.
    own = {"table": {"source_schema": "s", "source_table": "orders__changes", "destination_table": "others"}}
    report = mirror.apply(m.Update(1, row(1, "b")), outputs=["changelog"], objects=[own])
    assert sorted(one.name for one in report.tables) == ["s.orders (changelog)", "s.orders__changes (changelog)"]
    assert report.changes == 3
    found = logged(mirror.spark, mirror.location("orders__changes"))
    assert [(one["__op"], one["note"], one["__before"]) for one in found] == [("c", "a", None), ("u", "b", None)]
    assert [one["id"] for one in logged(mirror.spark, mirror.location("others__changes"))] == [2]


def test_what_is_left_out_and_masked_in_the_mirror_is_so_in_the_change_log(mirror: SmallMirror) -> None:
    table = {"source_schema": "s", "source_table": "t", "exclude_columns": ["secret"], "column_mask_hash": ["mail"]}
    config = {**BOTH, "column_mask_salt": "salt", "objects": [{"table": table}]}
    people = relation(1, "t", {"id": INT4, "mail": TEXT, "secret": TEXT}, "f")
    table["keys"] = ["id"]
    mirror.apply(people, m.Insert(1, row(1, "a@b", "x")), m.Delete(1, old=row(1, "a@b", "x")), **config)
    new, gone = logged(mirror.spark, mirror.location("t__changes"))
    assert "secret" not in new
    assert len(new["mail"]) == 64
    assert gone["__before"] == {"id": 1, "mail": new["mail"]}

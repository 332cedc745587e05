"""A run that stands still, is taken over, and wakes up: what it changes no more, and what is told if it does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.paused_run import OtherProcess
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, relation, row
from support.truth import table_versions
from walreplay.delta import statements as delta
from walreplay.delta.target import Target
from walreplay.errors import TargetError
from walreplay.ledger.state import Holder, from_json, to_json
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]


def _relation(columns: dict[str, int], name: str = "t", oid: int = 1) -> m.Relation:
    return relation(oid, name, {"id": INT4, **columns, "z": TEXT})


_B, _C = _relation({"b": TEXT}), _relation({"c": TEXT})
_OTHER = _relation({"b": TEXT}, "other")

_STEPS: dict[str, tuple[str, Sequence[m.AnyMessage], Sequence[m.AnyMessage]]] = {
    # What the run is about to do, and what another one undoes behind it.
    "a column is renamed": (
        "columns are to change",
        (_C, m.Insert(1, row(2, "b", "z"))),
        (_B, m.Insert(1, row(3, "c", "z"))),
    ),
    "a table gets what a rename needs": (
        "features are to come",
        (_C, m.Insert(1, row(2, "b", "z"))),
        (_B, m.Insert(1, row(3, "c", "z"))),
    ),
    "a column is widened and another comes": (
        "columns are to change",
        (relation(1, "t", {"id": INT8, "b": TEXT, "z": TEXT, "y": TEXT}), m.Insert(1, row(2, "b", "z", "y"))),
        (_relation({"b": TEXT}, oid=9), m.Insert(9, row(3, "c", "z"))),
    ),
    "a table is renamed": (
        "folder is to be renamed",
        (_OTHER, m.Insert(1, row(2, "b", "z"))),
        (_B, m.Insert(1, row(3, "c", "z"))),
    ),
    "a table is set aside": (
        "folder is to be renamed",
        (_relation({"b": TEXT}, oid=2), m.Insert(2, row(2, "b", "z"))),
        (_relation({"b": TEXT}, oid=3), m.Insert(3, row(3, "c", "z"))),
    ),
    "rows are merged": (
        "plan written",
        (m.Update(1, row(1, "late", "z")),),
        (m.Update(1, row(1, "later", "z")),),
    ),
}

_BY_STATEMENT = {"a column is renamed": True, "a table gets what a rename needs": False}
"""What Spark's ALTER TABLE may do late all the same, and whether the next run has to refuse the table as it is then."""


@pytest.mark.parametrize("what", _STEPS)
def test_what_a_run_was_about_to_do_is_not_done_once_another_has_taken_over(
    spark: SparkSession, tmp_path: Path, elsewhere: OtherProcess, what: str
) -> None:
    step, late, undone = _STEPS[what]
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_B, m.Insert(1, row(1, "a", "z")))
    mirror.write(*late)
    target = Path(mirror.target)
    with elsewhere.paused(mirror.captures, target, step, folder=tmp_path, silent=True) as zombie:
        _silence(spark, target)
        mirror.apply(*undone)
        before = table_versions(target)
        outcome = zombie.go_on()

    assert outcome.exit_code == 1
    assert "another has taken over" in outcome.stderr.splitlines()[-1]
    is_late = table_versions(target) != before
    assert not is_late or what in _BY_STATEMENT
    assert not (target / "_walreplay" / "moving").exists()
    mirror.write(m.Insert(undone[-1].relation_oid, row(4, "d", "z")))  # type: ignore[union-attr]
    if is_late and _BY_STATEMENT[what]:
        with pytest.raises(TargetError, match="If a run that was taken over has written this late: RESTORE") as refused:
            walreplay.apply(spark, captures=mirror.captures, target=target)
        (statement,) = re.findall(r"RESTORE TABLE \S+ TO VERSION AS OF \d+", str(refused.value))
        spark.sql(statement)
    walreplay.apply(spark, captures=mirror.captures, target=target)
    assert mirror.rows() == mirror.expected(tmp_path / "expected")


def _silence(spark: SparkSession, target: Path) -> None:
    """Have it look as if the run had given no sign of life for an hour."""
    table = Target.parse(str(target)).ledger("state")
    (found,) = delta.read(spark, table).collect()
    holder = from_json(Holder, found.holder)
    holder = replace(holder, beat=holder.beat - timedelta(hours=1))
    spark.sql(f"UPDATE {table.sql} SET holder = '{to_json(holder)}'")

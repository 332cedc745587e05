"""A ledger that is older than its tables, and tables that are not as the ledger has left them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from wal2delta.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_KEYED = relation(1, "keyed", {"id": INT4, "v": TEXT})
_FULL = relation(2, "full", {"id": INT4, "v": TEXT}, "f")
_ADDED = relation(3, "added", {"id": INT4, "v": TEXT}, "n")
_WIDER = relation(1, "keyed", {"id": INT4, "v": TEXT, "w": INT4})
_RENAMED = relation(1, "keyed", {"id": INT4, "w": INT4}, "d")
_LATE = relation(4, "late", {"id": INT4, "v": TEXT}, "f")

_RUNS: Sequence[Sequence[m.AnyMessage]] = (
    (_KEYED, m.Insert(1, row(1, "a")), _FULL, m.Insert(2, row(1, "x")), _ADDED, m.Insert(3, row(1, "n"))),
    (
        _KEYED,
        m.Insert(1, row(2, "b")),
        m.Insert(2, row(1, "x")),
        m.Insert(3, row(1, "n")),
        _LATE,
        m.Insert(4, row(9, "l")),
    ),
    (
        _WIDER,
        m.Insert(1, row(3, "c", 30)),
        m.Update(1, row(1, "CHANGED", 10)),
        m.Delete(2, old=row(1, "x")),
        m.Insert(4, row(9, "l")),
        m.Insert(3, row(2, "n")),
    ),
    (
        m.Delete(1, key=row(2, None, None)),
        m.Truncate((2,), 0),
        m.Insert(2, row(5, "y")),
        m.Update(4, row(9, "m"), old=row(9, "l")),
        m.Insert(3, row(3, "n")),
    ),
)
"""Tables of every kind: keyed, without a key, with inserts alone; one that is new, columns that come, a truncate."""


def _whole(mirror: SmallMirror, kept: Path) -> None:
    mirror.put_back(kept)


def _state(mirror: SmallMirror, kept: Path) -> None:
    mirror.put_back(kept / "state", "state")


def _restored(mirror: SmallMirror, kept: Path) -> None:
    version = max(int(path.stem) for path in (kept / "state" / "_delta_log").glob("*.json"))
    mirror.spark.sql(f"RESTORE TABLE delta.`{mirror.ledger / 'state'}` TO VERSION AS OF {version}")


_WAYS: Sequence[Callable[[SmallMirror, Path], None]] = (_whole, _state, _restored)


def _assert_whole(mirror: SmallMirror, tmp_path: Path) -> None:
    """See that the rows are right, that the ledger has each transaction once, and that nothing is left to be done."""
    assert mirror.rows() == mirror.expected(tmp_path / "expected")
    ledger = {
        name: mirror.spark.read.format("delta").load(str(mirror.ledger / name)).collect()
        for name in ("runs", "transactions", "files")
    }
    assert sorted(row.commit_lsn for row in ledger["transactions"]) == [100 * n for n in range(1, mirror.files + 1)]
    assert sum(row.transactions for row in ledger["runs"]) == mirror.files
    assert len({row.run for row in ledger["runs"]}) == len(ledger["runs"])
    assert mirror.apply().status == "nothing new"


@pytest.mark.parametrize("way", _WAYS, ids=lambda way: way.__name__.strip("_"))
@pytest.mark.parametrize("back", [1, 2])
def test_a_ledger_that_was_set_back_is_gone_on_from(
    spark: SparkSession, tmp_path: Path, way: Callable[[SmallMirror, Path], None], back: int
) -> None:
    mirror, kept = SmallMirror(spark, tmp_path), tmp_path / "kept"
    for number, changes in enumerate(_RUNS[:3], 1):
        mirror.apply(*changes)
        if number == 3 - back:
            mirror.save(kept)
    way(mirror, kept)

    report = mirror.apply(*_RUNS[3])

    assert any("was set back" in warning for warning in report.warnings), report.warnings
    _assert_whole(mirror, tmp_path)


@pytest.mark.parametrize("commits", [1, 2, 3, 4, 5])
def test_a_ledger_whose_newest_commits_are_lost_is_gone_on_from(
    spark: SparkSession, tmp_path: Path, commits: int
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    for changes in _RUNS[:2]:
        mirror.apply(*changes)
    mirror.lose("state", commits)

    mirror.write(*_RUNS[2])
    mirror.apply(*_RUNS[3])

    _assert_whole(mirror, tmp_path)

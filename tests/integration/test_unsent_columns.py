"""Columns that a table has and its changes do not bring: they were dropped, or are not published any more.

A row keeps its values of them, also under a key that it takes, and a new row has none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from support.extent import further
from support.readers import collect
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_WIDE: Final = relation(1, "t", {"id": INT4, "n": INT4, "a": TEXT})
_NARROW: Final = relation(1, "t", {"id": INT4, "n": INT4})
_FIRST: Final = (_WIDE, m.Insert(1, row(1, 10, "one")), m.Insert(1, row(2, 20, "two")))


def _moved(old: int, *new: int) -> m.Update:
    return m.Update(1, row(*new), key=row(old, None))


_CASES: Final = {
    "an update": ([(_NARROW, m.Update(1, row(1, 11)))], [(1, 11, "one"), (2, 20, "two")]),
    "another key": ([(_NARROW, _moved(1, 9, 11))], [(2, 20, "two"), (9, 11, "one")]),
    "two other keys": ([(_NARROW, _moved(1, 8, 11)), (_NARROW, _moved(8, 9, 12))], [(2, 20, "two"), (9, 12, "one")]),
    "a key that is free again": (
        [(_NARROW, m.Delete(1, key=row(1, None)), _moved(2, 1, 21)), (_NARROW, m.Insert(1, row(2, 22)))],
        [(1, 21, "two"), (2, 22, None)],
    ),
    "a new row of its key": (
        [(_NARROW, m.Delete(1, key=row(1, None)), m.Insert(1, row(1, 12)))],
        [(1, 12, None), (2, 20, "two")],
    ),
}


@pytest.mark.parametrize("way", further(["one run", "a run each"], but=["a run each"], long=["a run each, by Spark"]))
@pytest.mark.parametrize("case", _CASES)
def test_rows_keep_what_is_not_sent(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, way: str
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark" if way.endswith("Spark") else "")
    later, expected = _CASES[case]
    mirror, config = SmallMirror(spark, tmp_path), {"outputs": ["mirror", "history"]}
    for changes in (_FIRST, *later):
        mirror.write(*changes)
        if way != "one run":
            mirror.apply(**config)
    mirror.apply(**config)
    assert sorted(collect(mirror.location("t"), "id", "n", "a")) == expected
    opened = collect(mirror.location("t__history"), "id", "n", "a", "__end_lsn")
    assert sorted(values for *values, end in opened if end is None) == [list(values) for values in expected]

"""The rows that a new table gets are those that Spark's plan of the same keeps and repeats."""

from __future__ import annotations

import pyarrow as pa
import pytest

from walreplay.fold.events import Identity, Mode
from walreplay.spark.workers import fold
from walreplay.spark.workers.fold import NetFold


def _task(mode: Mode) -> NetFold:
    return NetFold((), (), Identity(mode), (), False, ())


def _final(mode: Mode, **columns: list[object]) -> tuple[list[object], dict[str, int]]:
    rows = pa.RecordBatch.from_pydict(columns)
    values = [value for batch in _task(mode).final_rows(rows) for value in batch.column("c0").to_pylist()]
    return values, _task(mode).counts_of(rows)


def test_deleted_rows_of_a_keyed_table_are_counted_and_left_out() -> None:
    rows, counts = _final(
        Mode.KEYED,
        c0=[1, 2, 3, 4],
        deleted=[False, True, True, False],
        expected=[True, True, False, False],
        unknown=[True, True, False, False],
    )
    assert rows == [1, 4]
    assert counts == {"live": 1, "gone": 1, "unknown": 1}


@pytest.mark.parametrize("at_once", [1, 2, 1 << 16])
def test_rows_of_a_multiset_come_as_often_as_they_are_there(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(fold, "_ROWS_AT_ONCE", at_once)
    # As by Spark: `needed` copies go, and `needed + net` come.
    rows, counts = _final(
        Mode.MULTISET,
        c0=list("abcdef"),
        net=[3, -1, -1, 0, 1, -2],
        needed=[0, 1, 3, 0, 2, 2],
        unknown=[True, True, False, False, False, True],
    )
    assert rows == ["a"] * 3 + ["c"] * 2 + ["e"] * 3
    assert counts == {"unknown": 1, "gone": 8, "copies": 8}


def test_many_copies_of_a_long_row_come_a_few_at_a_time() -> None:
    row = pa.RecordBatch.from_pydict({"c0": ["x" * (1 << 20)], "net": [3000], "needed": [0], "unknown": [False]})
    sizes = [(batch.num_rows, batch.nbytes) for batch in _task(Mode.MULTISET).final_rows(row)]
    assert sum(rows for rows, _ in sizes) == 3000
    assert max(size for _, size in sizes) < 80 << 20


def test_added_rows_stay_as_they_are() -> None:
    rows, counts = _final(Mode.APPEND, c0=[1, 2], unknown=[False, True])
    assert (rows, counts) == ([1, 2], {"unknown": 1})

"""Into how many parts a run's changes are split."""

from __future__ import annotations

import pytest

from walreplay.job.execution import buckets_of, tasks_of


@pytest.mark.parametrize(
    ("size", "buckets"), [(0, 1), (1 << 20, 1), (16 << 20, 2), (40 << 20, 4), (256 << 20, 4), (1 << 30, 16)]
)
def test_little_is_split_into_a_few_parts_and_much_by_its_size(size: int, buckets: int) -> None:
    assert buckets_of(size) == buckets


@pytest.mark.parametrize(("size", "tasks"), [(0, 1), (100_000, 1), (9 << 20, 3), (1 << 30, 4)])
def test_a_table_of_which_little_is_staged_is_folded_by_few_tasks(size: int, tasks: int) -> None:
    assert tasks_of(4, size) == tasks

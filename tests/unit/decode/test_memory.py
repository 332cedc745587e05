from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import DTypeLike

from walreplay.decode import change_batch, gathered
from walreplay.decode import placing as memory
from walreplay.decode.change_batch import RowPlaces, WalkedBytes, column_types
from walreplay.decode.columns import base
from walreplay.decode.gathered import RelationRows
from walreplay.decode.kernels import programs
from walreplay.protocol import messages as m


@pytest.fixture(autouse=True)
def _none_idle() -> Iterator[None]:
    _forget_idle()
    yield
    _forget_idle()


def _forget_idle() -> None:
    for blocks in memory._idle.values():
        blocks.clear()


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_block_is_used_again_once_the_last_view_is_gone() -> None:
    array = memory.empty(100_000, np.int64)
    array[:] = 7
    where = address(array)
    column = pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(array[20:30])])
    sliced = column.slice(5)
    del array, column
    assert memory.idle_bytes() == 0
    assert address(memory.empty(100_000, np.int64)) != where
    assert sliced.to_pylist() == [7] * 5
    del sliced
    assert memory.idle_bytes() >= 1 << 20
    taken = [memory.empty(130_000, np.int64) for _ in range(2)]
    assert where in [address(array) for array in taken]


def test_small_arrays_are_numpys_own() -> None:
    memory.empty(100, np.int64)
    assert memory.idle_bytes() == 0


def test_no_more_is_kept_than_a_few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_IDLE", 3 << 20)
    arrays = [memory.empty(1 << 20, np.uint8) for _ in range(5)]
    arrays.clear()
    assert memory.idle_bytes() == 3 << 20


def test_what_has_lain_idle_longest_makes_room_for_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_IDLE", 5 << 20)
    kept, *old = [memory.empty(1 << 20, np.uint8) for _ in range(4)]
    where = address(kept)
    old.clear()
    del kept
    other = memory.empty(4 << 20, np.uint8)
    elsewhere = address(other)
    del other
    assert memory.idle_bytes() == 5 << 20
    assert address(memory.empty(4 << 20, np.uint8)) == elsewhere
    assert address(memory.empty(1 << 20, np.uint8)) == where


def test_a_block_too_large_to_be_kept_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_IDLE", 3 << 20)
    small, large = memory.empty(1 << 20, np.uint8), memory.empty(4 << 20, np.uint8)
    del small, large
    assert memory.idle_bytes() == 1 << 20


def test_each_slot_that_has_a_program_may_have_pending_rows() -> None:
    # Kernels write these lists by their addresses: with too little room they would write into what lies behind.
    placer = memory.Placer()
    for slot_count in range(1, 1000):
        placer.extend(slot_count)
        assert len(placer.touched) >= len(placer.programs) >= slot_count


@pytest.mark.parametrize("before_finish", [False, True])
def test_where_memory_lacks_kernels_place_nothing_until_there_is_room_again(
    before_finish: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (m.Column("id", 23, -1, True), m.Column("name", 25, -1, False), m.Column("at", 1114, -1, False))
    relation = m.Relation(1, "public", "t", "d", columns)
    for left in range(30):
        rows = RelationRows(relation, column_types(relation, {}), {}, "utf-8", RowPlaces([None]))
        rows.set_source(WalkedBytes("x"))
        with monkeypatch.context() as patch:
            _lack_memory_behind(left, patch)
            try:
                rows.finish() if before_finish else rows.reserve(1000)
            except MemoryError:
                assert not rows.program[[programs.ROOM, programs.LIMIT]].any()
                rows.drop_pending()
                assert not rows.program[programs.LIMIT]
            else:
                assert left > 0
                return
        rows.reserve(1000)
        assert rows.program[programs.LIMIT] > 0
        for number, builder in enumerate(rows.columns.builders):
            word = programs.HEAD + number * programs.COLUMN
            assert rows.program[word + programs.VALID] == address(builder._valid)
            assert len(builder._valid) >= 1000
    raise AssertionError("more arrays than expected")


def _lack_memory_behind(count: int, patch: pytest.MonkeyPatch) -> None:
    """Let so many arrays be made, and no more."""
    left = [count]

    def made(size: int, dtype: DTypeLike) -> np.ndarray:
        left[0] -= 1
        if left[0] < 0:
            raise MemoryError
        return memory.empty(size, dtype)

    for module in (base, change_batch, gathered):
        patch.setattr(module, "empty", made)

"""Kernels that Python runs give what compiled ones give: from the same source, with Python's numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import walreplay
from support.captures import case
from support.interpreted import SLOW, both_ways, by_python
from support.zipped import PACKAGE
from walreplay.decode.compile import interpreter
from walreplay.decode.compile.kernel import IS_COMPILED
from walreplay.decode.kernels import base, place, programs, text, tuples, values
from walreplay.sink import fold, identity, images, routes, version_fold

needs_compiled = pytest.mark.skipif(not IS_COMPILED, reason="there is nothing to compare with")

_FEW = ("o02", "o07", "o08", "o09", "o12")
"""Text and binary format, all types, TOAST, two framings."""

_MORE = [f"o{number:02}" for number in (1, *range(3, 7), 10, 11, *range(13, 16), *range(17, 27))]

_ROOM = 64
"""Kernels may look at so many bytes on either side of a value, and write as many behind it."""


def _read(name: str) -> list[pa.RecordBatch]:
    return [batch.data for batch in walreplay.read_changes(case(name).files)]


@needs_compiled
@pytest.mark.parametrize("name", [*_FEW, *(pytest.param(name, marks=pytest.mark.full) for name in _MORE)])
def test_a_capture_is_read_alike(name: str) -> None:
    expected = _read(name)
    with by_python():
        found = _read(name)
    assert [batch.serialize().to_pybytes() for batch in found] == [batch.serialize().to_pybytes() for batch in expected]


@needs_compiled
@pytest.mark.parametrize("name", [pytest.param("o08", marks=pytest.mark.full), "o09"])
def test_each_kernel_gives_the_same_for_values_of_all_types(name: str) -> None:
    with both_ways() as seen:
        for batch in _read(name):
            identity.hash_rows(batch.columns, batch.num_rows)
    assert len(seen) > 5


@needs_compiled
@given(seed=st.integers(0, 2**32 - 1), events=st.integers(1, 30), tracked=st.integers(0, 3))
def test_each_kernel_gives_the_same_for_rows_that_change(seed: int, events: int, tracked: int) -> None:
    chance = np.random.default_rng(seed)

    def numbers(most: int, dtype: Any) -> Any:
        return chance.integers(0, most, events).astype(dtype)

    # Few keys, whose hashes use all bits.
    some = chance.integers(0, 2**64, (2, 5), dtype=np.uint64)
    key, old = (tuple(some[:, chance.integers(0, 5, events)].copy()) for _ in range(2))
    key, old = (key[0].copy(), key[1].copy()), (old[0].copy(), old[1].copy())
    action, expected = numbers(4, np.uint8), numbers(3, np.uint8)
    unchanged = chance.integers(0, 2, (events, tracked)).astype(np.uint8)
    epoch, lsn = np.sort(numbers(3, np.int32)), np.sort(numbers(9, np.int64))
    comes = numbers(2, np.bool_)
    with both_ways() as seen:
        fold.fold_keys(action, expected, key, old, unchanged)
        fold.fold_between_moves(action, expected, key, old, unchanged)
        version_fold.follow_keys(action, expected, epoch, lsn, key, old, unchanged)
        version_fold.follow_images(np.where(comes, 1, -1), epoch, key)
        images.count_images(np.where(comes, 1, -1), numbers(3, np.int64), lsn, key)
        images.settle(comes, key)
        images.unmatched(comes, key)
        routes.components([routes.Routes(key[0], old[0])])
    assert len(seen) == 8


def _own(function: Any) -> Any:
    """Give a helper as Python runs its own source."""
    return interpreter.interpreted(getattr(function, "py_func", function))


def _form(function: Any) -> Any:
    return interpreter.interpreted(interpreter.declared[id(function)])


def _at(data: bytes) -> tuple[Any, int]:
    """Put bytes somewhere in memory, with room around them; give the array and the place of the first."""
    array = np.frombuffer(bytes(_ROOM) + data + bytes(_ROOM), np.uint8).copy()
    return array, int(array.ctypes.data) + _ROOM


_digits = st.one_of(
    st.from_regex(rb"[0-9]{1,19}", fullmatch=True),
    st.binary(min_size=1, max_size=19),
    st.from_regex(rb"[0-9_+ -]{1,19}", fullmatch=True),
)
_texts = st.one_of(st.text(max_size=80).map(str.encode), st.binary(max_size=80))


@given(_digits)
def test_digits_are_read_alike(data: bytes) -> None:
    array, start = _at(data)
    size = len(data)
    assert _form(base.digits)(start - 40, 40, size) == _own(base.digits)(start - 40, 40, size)
    first = min(size, 8)
    assert _form(base.digits_of_word)(start + first, first) == _own(base.digits_of_word)(start + first, first)
    # Where fewer than 8 bytes stand in front of them.
    assert _form(base.last_digits)(start, first, first) == _own(base.last_digits)(start, first, first)
    assert array.size


@given(_texts)
def test_texts_are_looked_at_and_copied_alike(data: bytes) -> None:
    array, start = _at(data)
    size = len(data)
    for function in (tuples.has_nul, tuples.has_nul_behind):
        for offset in (0, 40):
            assert _form(function)(start - offset, offset, size) == bool(_own(function)(start - offset, offset, size))
    assert _form(place._text_flags)(start, start + size) == _own(place._text_flags)(start, start + size)
    utf8 = text._is_utf8_throughout
    assert _form(utf8)(start - 8, 8, 8 + size) == _own(utf8)(start - 8, 8, 8 + size)
    for last in (start, start + _ROOM):
        copies = []
        for copy in (_form(values._copy_text), _own(values._copy_text)):
            target = np.zeros(size + 2 * _ROOM, np.uint8)
            copy(int(target.ctypes.data), start, size, last)
            copies.append(target[:size].tobytes())
        assert copies == [data, data]
    view = memoryview(array)
    for count in range(min(size, 8) + 1):
        assert _form(identity._word_of)(view, _ROOM, count) == _own(identity._word_of)(view, _ROOM, count)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4))
def test_words_of_programs_are_read_and_written_alike(words: list[int]) -> None:
    program = np.array(words, np.int64)
    address = int(program.ctypes.data)
    for number, word in enumerate(words):
        assert _form(programs.get)(address, number) == _own(programs.get)(address, number) == word
        _form(programs.put)(address, number, ~word)
        assert program[number] == ~word
        _own(programs.put)(address, number, word)
        assert program[number] == word


def test_numbers_are_cut_to_their_bits() -> None:
    assert interpreter.signed(1 << 63) == -(1 << 63)
    assert interpreter.signed(-(1 << 63) - 1) == (1 << 63) - 1
    assert interpreter.signed(0xFFFF, 16) == -1


_WITHOUT = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
for name in ("numba", "llvmlite"):
    sys.modules[name] = None
from walreplay.decode.compile import shared_library
shared_library.load = lambda: None
from walreplay.cli import main
sys.exit(main(["inspect", sys.argv[2]]))
"""


def test_a_command_says_once_that_python_runs_them() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "WALREPLAY_KERNELS"}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, str(PACKAGE.parent), str(case("o02").folder)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"warning: {SLOW}\n"
    assert "616 row changes" in done.stdout

"""Two rows are the same when their values are, exactly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from walreplay.decode.change_batch import rescued_of
from walreplay.fold.identity import hash_rows


def hashes(array: pa.Array) -> list[int]:
    return hash_rows([array], len(array))[0].tolist()


def test_zero_and_minus_zero_are_two_and_every_nan_is_one() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000123], np.uint64)
    nans = pa.array(bits.view(np.float64))
    assert nans.null_count == 0
    assert len(set(hashes(nans))) == 1
    assert len(set(hashes(pa.array([0.0, -0.0, float("nan"), None])))) == 4
    assert hashes(pa.array([None, float("nan")]))[1] == hashes(nans)[0]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_large_offsets_change_nothing(kind: pa.DataType) -> None:
    large = pa.large_string() if kind == pa.string() else pa.large_binary()
    values = pa.array(["", "a", None, "é\x01" * 9], pa.string()).cast(kind)
    assert hashes(values.cast(large)) == hashes(values)
    assert hashes(values.slice(1)) == hashes(values)[1:]


def test_only_the_named_columns_texts_are_given_in_the_names_order() -> None:
    rescued = pa.array([None, '{"b": "1", "a": "2", "c": "3"}', '{"c": "3"}'])
    found = rescued_of(rescued, ["a", "b"])
    assert found is not None
    assert found.to_pylist() == [None, '{"a":"2","b":"1"}', None]
    assert rescued_of(pa.nulls(3, pa.string()), ["a"]) is None


def test_an_integer_is_the_same_in_a_wider_column() -> None:
    values = [0, -1, 7, None]
    assert hashes(pa.array(values, pa.int16())) == hashes(pa.array(values, pa.int32())) == hashes(pa.array(values))

"""Row identity: 128-bit hashes of exact values, computed from column buffers.

Two rows are the same if the values of their keys are the same, exactly: -0 is not 0, and a value that its column cannot
hold is identified by its rescued text.  The hash is of the typed values, so a value has the same hash in text and in
binary.  With 128 bits, two of ten thousand million keys share a hash with a probability of 10^-19.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.compile.kernel import Kernel, helper, kernel
from walreplay.decode.compile.parameters import BYTES, CELLS, INT64, given, out
from walreplay.decode.rescued import read_rescued, rescued_array, spread
from walreplay.sink.slots import HASHES

if TYPE_CHECKING:
    from numpy.typing import NDArray


_INTEGER: Final = pa.int64()

_MIXED: Final = (out("uint64"), out("uint64"))


@helper
def _mix(h, v):  # type: ignore[no-untyped-def]
    h = np.uint64((h ^ v) * np.uint64(0xBF58476D1CE4E5B9))
    h ^= h >> np.uint64(29)
    h = np.uint64(h * np.uint64(0x94D049BB133111EB))
    h ^= h >> np.uint64(32)
    return h


@helper
def _word_of(data, at, count):  # type: ignore[no-untyped-def]
    """Take up to 8 bytes as a number, the first as the lowest."""
    word = np.uint64(0)
    for k in range(count):
        word |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return word


@kernel(BYTES, INT64, INT64, BYTES, INT64, *_MIXED)
def _hash_fixed(data, width, start, valid, has_valid, first, second):  # type: ignore[no-untyped-def]
    """Mix a column of ``width`` bytes a value (up to 16) into the hashes of its rows."""
    for i in range(first.shape[0]):
        if has_valid and valid[i] == 0:
            low = np.uint64(0x9E3779B97F4A7C15)
            high = np.uint64(1)
            size = np.uint64(255)
        else:
            high = np.uint64(0)
            at = (start + i) * width
            low = _word_of(data, at, min(width, 8))
            if width > 8:
                high = _word_of(data, at + 8, width - 8)
            size = np.uint64(width)
        first[i] = _mix(_mix(first[i] + size, low), high)
        second[i] = _mix(_mix(second[i] ^ high, low + size), np.uint64(0xD6E8FEB86659FD93))
    return first.shape[0]


def _hash_variable(data, offsets, valid, has_valid, first, second):  # type: ignore[no-untyped-def]
    """Mix a column of strings or bytes into the hashes of its rows."""
    for i in range(first.shape[0]):
        a = first[i]
        b = second[i]
        if has_valid and valid[i] == 0:
            a = _mix(a, np.uint64(0x9E3779B97F4A7C15))
            b = _mix(b + np.uint64(1), np.uint64(0x9E3779B97F4A7C15))
        else:
            lo = np.int64(offsets[i])
            hi = np.int64(offsets[i + 1])
            size = np.uint64(hi - lo)
            p = lo
            while p < hi:
                word = _word_of(data, p, min(8, hi - p))
                a = _mix(a, word)
                b = _mix(b ^ np.uint64(0xD6E8FEB86659FD93), word)
                p += 8
            a = _mix(a, size)
            b = _mix(b + size, np.uint64(0xA0761D6478BD642F))
        first[i] = a
        second[i] = b
    return first.shape[0]


_hash_short: Final = Kernel(_hash_variable, (BYTES, CELLS, BYTES, INT64, *_MIXED))
_hash_long: Final = Kernel(_hash_variable, (BYTES, given("int64"), BYTES, INT64, *_MIXED))


@kernel(CELLS, BYTES, INT64, *HASHES, *_MIXED)
def _hash_lists(offsets, valid, has_valid, child_first, child_second, first, second):  # type: ignore[no-untyped-def]
    """Mix lists into the hashes of their rows, given the hashes of their elements."""
    for i in range(first.shape[0]):
        a = first[i]
        b = second[i]
        if has_valid and valid[i] == 0:
            a = _mix(a, np.uint64(0x9E3779B97F4A7C15))
            b = _mix(b + np.uint64(1), np.uint64(0x9E3779B97F4A7C15))
        else:
            size = np.uint64(offsets[i + 1] - offsets[i])
            for p in range(offsets[i] - offsets[0], offsets[i + 1] - offsets[0]):
                a = _mix(a, child_first[p])
                b = _mix(b, child_second[p])
            a = _mix(a + np.uint64(2), size)
            b = _mix(b + size, np.uint64(0xE7037ED1A0B428DB))
        first[i] = a
        second[i] = b
    return first.shape[0]


def _mix_lists(array: pa.Array, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> None:
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    elements = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    child = hash_rows([elements], len(elements))
    valid, has_valid = _bits(array)
    _hash_lists(offsets, valid, has_valid, *child, first, second)


def _bits(array: pa.Array) -> tuple[NDArray[np.uint8], bool]:
    if array.null_count == 0:
        return np.zeros(0, np.uint8), False
    return np.asarray(array.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False)), True


def _as_bytes(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _mix_array(array: pa.Array, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> None:
    kind = array.type
    if pa.types.is_list(kind):
        _mix_lists(array, first, second)
        return
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind.bit_width < _INTEGER.bit_width):
        # All integers are hashed as 64 bits, so that a key keeps its hash when its column is widened.
        array, kind = array.cast(_INTEGER), _INTEGER
    elif pa.types.is_floating(kind):
        array = _one_nan(array)
    valid, has_valid = _bits(array)
    buffers = array.buffers()
    variable = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if variable or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = np.int32 if variable else np.int64
        offsets = np.frombuffer(buffers[1], width)[array.offset : array.offset + len(array) + 1]
        hash_texts = _hash_short if variable else _hash_long
        hash_texts(_as_bytes(buffers[2]), offsets, valid, has_valid, first, second)
    else:
        _hash_fixed(_as_bytes(buffers[1]), kind.bit_width // 8, array.offset, valid, has_valid, first, second)


def _one_nan(array: pa.Array) -> pa.Array:
    """Replace all NaNs by one, because values in binary format may have any of the many bit patterns."""
    nan = pc.is_nan(array)
    return pc.if_else(nan, pa.scalar(float("nan"), array.type), array) if pc.any(nan).as_py() else array


def hash_rows(
    arrays: Sequence[pa.Array], rows: int, rescued: pa.Array | None = None
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Give the two halves of each row's 128-bit hash over some columns.

    Args:
        arrays: columns of ``rows`` values each, always in the same order.
        rescued: the rescued texts of these columns (see `rescued_of`), NULL for rows without; None if no row has any.
            The hash of a row without rescued texts does not depend on the other rows.
    """
    first = np.full(rows, 0x243F6A8885A308D3, np.uint64)
    second = np.full(rows, 0x13198A2E03707344, np.uint64)
    if rows:
        for array in arrays:
            _mix_array(contiguous(array), first, second)
        if rescued is not None and rescued.null_count < rows:
            texts = contiguous(rescued)
            some = np.nonzero(texts.is_valid().to_numpy(zero_copy_only=False))[0]
            one, two = first[some], second[some]
            _mix_array(texts.take(pa.array(some)), one, two)
            first[some], second[some] = one, two
    return first, second


def contiguous(array: Any) -> pa.Array:
    """Give a column as one array."""
    if isinstance(array, pa.ChunkedArray):
        return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    return array


def rescued_of(rescued: pa.Array, names: Sequence[str]) -> pa.Array | None:
    """Give only the rescued texts of some columns, in the order of ``names``; None if there are none."""
    if rescued.null_count == len(rescued):
        return None
    some = np.nonzero(rescued.is_valid().to_numpy(zero_copy_only=False))[0]
    rows = read_rescued(rescued.take(pa.array(some)))
    found = rescued_array({name: values[name] for name in names if name in values} for values in rows)
    return spread(found, some, len(rescued))

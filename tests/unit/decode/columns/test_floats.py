"""Numbers become the floats that are nearest, midway between two the even one, whatever digits they were sent with."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from walreplay.decode.kernels import programs
from walreplay.decode.kernels.place import place_column

KINDS = {
    "double": (programs.FLOAT64, np.float64, np.uint64),
    "single": (programs.FLOAT32, np.float32, np.uint32),
}

PLAIN = [
    *("0", "-0", "0.0", "-0.00", "1", "-1", "0.1", "100.000", "9007199254740993", "9007199254740992.5", "16777217"),
    *("16777216.5", "4294967296.5", "9999999999999999999", "0.0000000000000000001", "0.9999999999999999999"),
]
OTHERS = [
    *("1e5", "1.5e-07", "Infinity", "-Infinity", "NaN", "", "-", ".5", "5.", "1a", "1.2.3", "--1", " 1", "1 ", "+1"),
    *("12345678901234567890", "1.00000000000000000000", "1\0"),
]


def read(texts: list[str], kind: str) -> tuple[Any, list[int]]:
    """Return the numbers, and which texts are left to another reader."""
    number, dtype, _ = KINDS[kind]
    buf = np.frombuffer((" " * 8 + "".join(texts)).encode(), np.uint8)
    length = np.array([len(text) for text in texts], np.int32)
    offset = (8 + np.cumsum(length) - length).astype(np.int32)
    values, valid = np.zeros(len(texts), dtype), np.zeros(len(texts), np.uint8)
    misses = np.zeros(len(texts) + 1, np.int32)
    program = np.array([number, values.ctypes.data, valid.ctypes.data, *(0,) * 5], np.int64)
    tile = buf, offset, length, np.arange(len(texts), dtype=np.int32), 0
    assert place_column(*tile, program, 0, 0, misses) == len(texts)
    left = misses[1 : misses[0] + 1].tolist()
    assert [row for row in range(len(texts)) if not valid[row]] == left
    return values, left


def nearest(text: str, kind: str) -> Any:
    """Find the nearest float among the neighbours of a guess, by exact fractions."""
    _, dtype, bits = KINDS[kind]
    guess, exact = dtype(float(text)), Fraction(text)
    if guess == 0:
        return guess
    around = [guess, np.nextafter(guess, dtype(np.inf)), np.nextafter(guess, dtype(-np.inf))]
    return min(around, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(bits)) & 1))


def midway(rng: random.Random) -> str:
    """Return what lies midway between two floats, or a digit beside that."""
    bits = rng.choice([23, 52])
    value, decimals = Fraction(2 * rng.randrange(1 << bits, 2 << bits) + 1) * Fraction(2) ** rng.randrange(-20, 12), 0
    while value.denominator != 1 and decimals < 19:
        value, decimals = value * 10, decimals + 1
    digits = str(int(value) + rng.choice([0, 0, 1, -1]))[:19].zfill(decimals + 1)
    return digits[: len(digits) - decimals] + ("." + digits[len(digits) - decimals :] if decimals else "")


def some_number(rng: random.Random) -> str:
    whole, decimals = rng.randrange(10 ** rng.randrange(1, 19)), rng.randrange(19)
    fraction = "".join(rng.choices("0123456789", k=decimals))
    shortest = rng.uniform(-1, 1) * 10.0 ** rng.randrange(-4, 15)
    return rng.choice([midway(rng), repr(shortest), str(np.float32(shortest)), f"{whole}.{fraction}".rstrip(".")])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_numbers_are_the_nearest_floats(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    texts = [text for text in (some_number(rng) for _ in range(1000)) if "e" not in text and len(text) < 19]
    texts += ["-" + text for text in texts if text[0] != "-"]
    values, left = read(texts, kind)
    assert left == []
    for text, value in zip(texts, values, strict=True):
        assert value.tobytes() == nearest(text, kind).tobytes(), text


@pytest.mark.parametrize("kind", KINDS)
def test_limits(kind: str) -> None:
    values, left = read(PLAIN, kind)
    assert left == []
    assert [value.tobytes() for value in values] == [nearest(text, kind).tobytes() for text in PLAIN]


@pytest.mark.parametrize("kind", KINDS)
def test_other_forms_are_left_to_another_reader(kind: str) -> None:
    values, left = read(OTHERS, kind)
    assert left == list(range(len(OTHERS)))
    assert not values.any()

"""The check of UTF-8 agrees with Python's, value by value, wherever values and vectors end."""

from __future__ import annotations

import random

import numpy as np
import pytest

from walreplay.decode.kernels import text as kernels_text

# The least and the greatest of each length, and the neighbours of what is excluded.
CHARACTERS = ["a", "z", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
BYTES = [0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xF5, 0xFF]


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def some_value(rng: random.Random) -> bytes:
    length = rng.choice([0, 1, 2, 3, 5, 11, 40])
    value = bytearray("".join(rng.choices(CHARACTERS, k=length)).encode())
    at = rng.randrange(len(value)) if value else 0
    damage = rng.choice(["none"] * 9 + ["byte", "lost", "end", "start"])
    if value and damage == "byte":
        value[at] = rng.choice(BYTES)
    elif value and damage == "lost":
        del value[at]
    elif damage == "end":
        del value[at:]
    elif damage == "start":
        del value[:at]
    return bytes(value)


@pytest.mark.parametrize("seed", range(20))
def test_values_are_judged_as_python_does(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        values = [some_value(rng) for _ in range(rng.randrange(1, 12))]
        before = "aé"[: rng.randrange(3)].encode()
        behind = bytes(rng.randrange(40))
        data = np.frombuffer(before + b"".join(values) + behind + b"\0", np.uint8).copy()
        ends = np.cumsum([len(before), *map(len, values)]).astype(np.int32)
        verdicts = [is_utf8(value) for value in values]
        assert bool(kernels_text.are_utf8(data, ends, 0, len(values))) == all(verdicts), (values, ends)
        upto = [bool(kernels_text.are_utf8(data, ends, 0, row + 1)) for row in range(len(values))]
        assert upto == [all(verdicts[: row + 1]) for row in range(len(values))], (values, ends)

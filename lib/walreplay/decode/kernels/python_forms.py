"""What Python has faster than the kernels' own way: for `walreplay.decode.compile.kernel.python_form`.

Each gives the same as the helper of its name, for all that the helper may be called with; a test compares them.
"""

from __future__ import annotations

from typing import Final

from walreplay.decode.compile.memory import MASK, MEMORY, WORDS, put_word
from walreplay.decode.kernels.outcomes import HAS_HIGH, HAS_NUL

BAD_DIGITS: Final = MASK


def get(program: int, word: int) -> int:
    """Read a word: numpy puts programs at addresses that 8 divides."""
    return WORDS[(program >> 3) + word]


def put(program: int, word: int, value: int) -> None:
    """Write a word."""
    return put_word((program >> 3) + word, value)


def digits_of_word(end: int, count: int) -> int:
    """Read the digits in front of an address."""
    text = MEMORY[end - count : end].tobytes()
    return int(text) if text.isdigit() else BAD_DIGITS


def last_digits(base: int, end: int, count: int) -> int:
    """Read the digits in front of `end`."""
    text = MEMORY[base + end - count : base + end].tobytes()
    return int(text) if text.isdigit() else BAD_DIGITS


def digits(base: int, start: int, count: int) -> int:
    """Read the digits from `start` on."""
    text = MEMORY[base + start : base + start + count].tobytes()
    return int(text) if text.isdigit() else BAD_DIGITS


def has_nul(base: int, p: int, size: int) -> bool:
    """Say whether one of the bytes is 0."""
    return b"\0" in MEMORY[base + p : base + p + size].tobytes()


def text_flags(start: int, end: int) -> int:
    """Tell whether there is a NUL, or a byte outside of ASCII, between two addresses."""
    text = MEMORY[start:end].tobytes()
    return (HAS_NUL if b"\0" in text else 0) | (0 if text.isascii() else HAS_HIGH)


def is_utf8_throughout(base: int, first: int, end: int) -> bool:
    """Say whether the bytes are UTF-8: Python's codec knows it as RFC 3629 does."""
    try:
        str(MEMORY[base + first : base + end], "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def copy_text(target: int, source: int, count: int, last: int) -> None:
    """Copy the bytes."""
    MEMORY[target : target + count] = MEMORY[source : source + count]


def word_of(data: memoryview, at: int, count: int) -> int:
    """Take up to 8 bytes as a number, the first as the lowest."""
    return int.from_bytes(data[at : at + count], "little")

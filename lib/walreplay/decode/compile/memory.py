"""The machine's instructions that kernels use, as Python does them: for where nothing compiles kernels.

The whole memory is one buffer, so that an address is an index.  As in compiled kernels no bounds are checked.
Numbers are Python's: what is returned fits 64 bits, and of what is stored the lower bits count.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_ADDRESSES: Final = min(1 << 56, sys.maxsize)
"""More than any system gives to programs."""

MEMORY: Final = memoryview((ctypes.c_uint8 * _ADDRESSES).from_address(0)).cast("B")

WORDS: Final = MEMORY.cast("q")
"""The same in words of 8 bytes with a sign: for addresses that 8 divides, and cheaper there."""

put_word: Final = WORDS.__setitem__

MASK: Final = 0xFFFFFFFFFFFFFFFF


def _loader(form: str) -> Callable[..., Any]:
    return struct.Struct(form).unpack_from


def _storer(form: str) -> Callable[..., None]:
    return struct.Struct(form).pack_into


_get_word, _get_32, _get_64 = _loader("<Q"), _loader("=i"), _loader("=q")
_get_big_16, _get_big_32, _get_big_64 = _loader(">H"), _loader(">I"), _loader(">q")
_put_16, _put_32, _put_64 = _storer("=H"), _storer("=I"), _storer("=Q")


def address_of(array: memoryview) -> int:
    """Give the address of the first byte of an array that a kernel was given."""
    return int(array.obj.__array_interface__["data"][0])  # type: ignore[attr-defined]


def load_byte(address: int) -> int:
    """See `walreplay.decode.kernels.base` for what each of these does."""
    return MEMORY[address]


def load_word(address: int) -> Any:  # noqa: D103
    return _get_word(MEMORY, address)[0]


def load_big_16(address: int) -> Any:  # noqa: D103
    return _get_big_16(MEMORY, address)[0]


def load_big_32(address: int) -> Any:  # noqa: D103
    return _get_big_32(MEMORY, address)[0]


def load_big_64(address: int) -> Any:  # noqa: D103
    return _get_big_64(MEMORY, address)[0]


def load_int32(address: int) -> Any:  # noqa: D103
    return _get_32(MEMORY, address)[0]


def load_int64(address: int) -> Any:  # noqa: D103
    return _get_64(MEMORY, address)[0]


def store_8(address: int, value: int) -> None:  # noqa: D103
    MEMORY[address] = value & 0xFF


def store_16(address: int, value: int) -> None:  # noqa: D103
    return _put_16(MEMORY, address, value & 0xFFFF)


def store_32(address: int, value: int) -> None:  # noqa: D103
    return _put_32(MEMORY, address, value & 0xFFFFFFFF)


def store_64(address: int, value: int) -> None:  # noqa: D103
    return _put_64(MEMORY, address, value & 0xFFFFFFFFFFFFFFFF)


def copy_bytes(target: int, source: int, count: int) -> None:  # noqa: D103
    MEMORY[target : target + count] = MEMORY[source : source + count]


def copy_32(target: int, source: int) -> None:  # noqa: D103
    copy_bytes(target, source, 32)


def nul_bits(address: int) -> int:  # noqa: D103
    return sum(1 << place for place, byte in enumerate(MEMORY[address : address + 32]) if byte == 0)


def utf8_faults(address: int) -> int:  # noqa: D103
    bytes_, faults = MEMORY[address - 3 : address + 32], 0
    for place in range(32):
        third, second, first, this = bytes_[place : place + 4]
        goes_on = 0x80 <= this < 0xC0
        has_to = first >= 0xC0 or second >= 0xE0 or third >= 0xF0
        excluded = 0xC0 <= this < 0xC2 or this >= 0xF5
        after = (
            (first == 0xE0 and this < 0xA0)
            or (first == 0xED and this >= 0xA0)
            or (first == 0xF0 and this < 0x90)
            or (first == 0xF4 and this >= 0x90)
        )
        faults |= (goes_on != has_to or excluded or after) << place
    return faults


def store_uuid(target: int, source: int) -> None:  # noqa: D103
    digits = MEMORY[source : source + 16].hex()
    text = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    MEMORY[target : target + 64] = text.encode().ljust(64, b"-")


def multiply_add(high: int, low: int, factor: int, addend: int) -> tuple[int, int]:  # noqa: D103
    value = (high << 64 | low) * factor + addend
    return value >> 64 & MASK, value & MASK


def leading_zeros(word: int) -> int:  # noqa: D103
    return 64 - word.bit_length()

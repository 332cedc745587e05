"""What the value kernels share: machine instructions that numba does not offer, and digits.

No bounds are checked here: the walk has seen every cell inside its buffer.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from walreplay.decode.compile.kernel import helper, instruction, ir, types

if TYPE_CHECKING:
    from collections.abc import Callable

# Helpers take a buffer as the address of its first byte: numba counts references to an array that goes from
# helper to helper at run time, which costs more than reading a number does.


@instruction
def address_of(typingctx: Any, array: Any) -> Any:
    """Return the address of an array's first byte."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, value=arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), codegen


def _load(builder: Any, address: Any, kind: Any) -> Any:
    """Load a value of an LLVM type from any address."""
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def _store(context: Any, builder: Any, address: Any, value: Any) -> Any:
    """Store a value of any LLVM type at any address; return what an instruction without a result gives."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1
    return context.get_dummy_value()


def _load_instruction(
    bits: int, *, swaps: bool = False, extend: str = "zext", result: str = "int64"
) -> Callable[..., Any]:
    """Make the instruction that loads a number of so many bits, in the machine's order of bytes or the other one."""

    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = _load(builder, arguments[0], ir.IntType(bits))
            if swaps:
                value = builder.bswap(value)
            return getattr(builder, extend)(value, ir.IntType(64)) if bits < 64 else value

        return getattr(types, result)(types.int64), codegen

    return instruction(load)


load_byte: Final = _load_instruction(8)
load_word: Final = _load_instruction(64, result="uint64")  # the first byte is the lowest
# Big-endian numbers; those of 16 and 32 bits are taken without a sign.
load_big_16: Final = _load_instruction(16, swaps=True)
load_big_32: Final = _load_instruction(32, swaps=True)
load_big_64: Final = _load_instruction(64, swaps=True)
# Numbers with a sign, as the machine writes them.
load_int32: Final = _load_instruction(32, extend="sext")
load_int64: Final = _load_instruction(64)


def _store_instruction(bits: int, argument: str = "int64") -> Callable[..., Any]:
    """Make the instruction that stores so many lower bits of a number, as the machine writes them."""

    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            return _store(context, builder, arguments[0], value)

        return types.void(types.int64, getattr(types, argument)), codegen

    return instruction(store)


store_8: Final = _store_instruction(8)
store_16: Final = _store_instruction(16)
store_32: Final = _store_instruction(32)
store_64: Final = _store_instruction(64)
store_word: Final = _store_instruction(64, "uint64")


@instruction
def copy_32(typingctx: Any, target: Any, source: Any) -> Any:
    """Copy 32 bytes from one address to another."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = _load(builder, arguments[1], ir.VectorType(ir.IntType(8), 32))
        return _store(context, builder, arguments[0], loaded)

    return types.void(types.int64, types.int64), codegen


@instruction
def nul_bits(typingctx: Any, address: Any) -> Any:
    """Compare the 32 bytes at an address with 0 at once: one bit each, the first byte's is the lowest."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 32)
        is_nul = builder.icmp_unsigned("==", _load(builder, arguments[0], vector), ir.Constant(vector, [0] * 32))
        return builder.zext(builder.bitcast(is_nul, ir.IntType(32)), ir.IntType(64))

    return types.int64(types.int64), codegen


@instruction
def utf8_faults(typingctx: Any, address: Any) -> Any:
    """Compare the 32 bytes at an address, and the 3 in front of them, with the forms of UTF-8; 0 if all fit.

    A byte goes on a character exactly where the bytes before it ask for that; RFC 3629 excludes some bytes, and some
    second bytes: overlong forms, surrogates and what lies beyond U+10FFFF.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 32)

        def load(back: int) -> Any:
            return _load(builder, builder.sub(arguments[0], ir.Constant(ir.IntType(64), back)), vector)

        def is_(comparison: str, bytes_: Any, limit: int) -> Any:
            return builder.icmp_unsigned(comparison, bytes_, ir.Constant(vector, [limit] * 32))

        def any_of(*conditions: Any) -> Any:
            return reduce(builder.or_, conditions)

        this, *before = (load(back) for back in range(4))
        goes_on = builder.and_(is_(">=", this, 0x80), is_("<", this, 0xC0))
        has_to = any_of(*(is_(">=", bytes_, lead) for bytes_, lead in zip(before, (0xC0, 0xE0, 0xF0), strict=True)))
        seconds = ((0xE0, "<", 0xA0), (0xED, ">=", 0xA0), (0xF0, "<", 0x90), (0xF4, ">=", 0x90))
        faults = any_of(
            builder.xor(goes_on, has_to),
            builder.and_(is_(">=", this, 0xC0), is_("<", this, 0xC2)),
            is_(">=", this, 0xF5),
            *(builder.and_(is_("==", before[0], lead), is_(how, this, limit)) for lead, how, limit in seconds),
        )
        return builder.zext(builder.bitcast(faults, ir.IntType(32)), ir.IntType(64))

    return types.int64(types.int64), codegen


@instruction
def copy_bytes(typingctx: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy bytes from one address to another; they do not overlap."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, ir.IntType(64)])
        to, start = (builder.inttoptr(address, pointer) for address in arguments[:2])
        builder.call(memcpy, [to, start, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


_UUID_PLACES: Final = [*range(8), 32, *range(8, 12), 32, *range(12, 16), 32, *range(16, 20), 32, *range(20, 32)]
"""Where the 32 digits of a uuid stand in its text; 32 is a dash."""


@instruction
def store_uuid(typingctx: Any, target: Any, source: Any) -> Any:
    """Write 16 bytes as a uuid's 36 characters; what lies behind those is overwritten up to 64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def splat(number: int, count: int = 32) -> Any:
            return ir.Constant(ir.VectorType(ir.IntType(8), count), [number] * count)

        def shuffled(first: Any, second: Any, places: list[int]) -> Any:
            mask = ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)
            return builder.shuffle_vector(first, second, mask)

        raw = _load(builder, arguments[1], ir.VectorType(ir.IntType(8), 16))
        upper, lower = builder.lshr(raw, splat(4, 16)), builder.and_(raw, splat(15, 16))
        nibbles = shuffled(
            upper, lower, [place for pair in zip(range(16), range(16, 32), strict=True) for place in pair]
        )
        to_letter = builder.select(builder.icmp_unsigned(">", nibbles, splat(9)), splat(39), splat(0))
        digits = builder.add(builder.add(nibbles, splat(48)), to_letter)
        text = shuffled(digits, splat(45), _UUID_PLACES + [32] * 28)
        return _store(context, builder, arguments[0], text)

    return types.void(types.int64, types.int64), codegen


@instruction
def multiply_add(typingctx: Any, high: Any, low: Any, factor: Any, addend: Any) -> Any:
    """Return (high, low) * factor + addend as the two halves of 128 bits."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        high, low, factor, addend = (builder.zext(argument, wide) for argument in arguments)
        value = builder.or_(builder.shl(high, ir.Constant(wide, 64)), low)
        value = builder.add(builder.mul(value, factor), addend)
        word = ir.IntType(64)
        halves = [builder.trunc(builder.lshr(value, ir.Constant(wide, 64)), word), builder.trunc(value, word)]
        return context.make_tuple(builder, signature.return_type, halves)

    word = types.uint64
    return types.UniTuple(types.uint64, 2)(word, word, word, word), codegen


@instruction
def leading_zeros(typingctx: Any, word: Any) -> Any:
    """Count the bits in front of the first that is set."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


BAD_DIGITS: Final = np.uint64(0xFFFFFFFFFFFFFFFF)  # What `digits` gives for other characters; no 19 digits come near

POWERS_OF_TEN: Final = np.array([10**exponent for exponent in range(20)], dtype=np.uint64)

_ZEROS: Final = np.uint64(0x3030303030303030)
_ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_ABOVE_NINE: Final = np.uint64(0x7676767676767676)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_PAIRS: Final = np.uint64(0x00FF00FF00FF00FF)
_FOURS: Final = np.uint64(0x0000FFFF0000FFFF)
_TEN: Final = np.uint64(2561)  # 10 << 8 | 1: adds ten times a digit to the next one
_HUNDRED: Final = np.uint64(6553601)
_TEN_THOUSAND: Final = np.uint64(42949672960001)
_8: Final = np.uint64(8)
_16: Final = np.uint64(16)
_32: Final = np.uint64(32)
_10: Final = np.uint64(10)
_1E8: Final = np.uint64(10**8)
_1E16: Final = np.uint64(10**16)


@helper
def above_nine(word):
    """Return (as a non-zero word) whether any byte of the word is more than 9."""
    return ((word + _ABOVE_NINE) | word) & _HIGH_BITS


@helper
def digits_of_word(end, count):
    """Read the 1 to 8 digits that stand in front of an address, all at once; there are 8 bytes at least."""
    # What stands in front of the digits is the low bytes of the word; they become leading zeros.
    word = (load_word(end - 8) ^ _ZEROS) & (_ALL << np.uint64(64 - 8 * count))
    if above_nine(word) != np.uint64(0):
        return BAD_DIGITS
    word = ((word * _TEN) >> _8) & _PAIRS
    word = ((word * _HUNDRED) >> _16) & _FOURS
    return np.uint64(word * _TEN_THOUSAND) >> _32


@helper
def last_digits(base, end, count):
    """Read the 1 to 8 digits that stand in front of `end` in the buffer at `base`."""
    if end >= 8:
        return digits_of_word(base + end, count)
    value = np.uint64(0)
    for i in range(end - count, end):
        digit = np.uint64(load_byte(base + i) - 48)
        if digit >= _10:
            return BAD_DIGITS
        value = value * _10 + digit
    return value


@helper
def digits(base, start, count):
    """Read 1 to 19 digits, or give BAD_DIGITS."""
    end = start + count
    if count <= 8:
        return last_digits(base, end, count)
    low = last_digits(base, end, 8)
    if count <= 16:
        high = last_digits(base, end - 8, count - 8)
        if low == BAD_DIGITS or high == BAD_DIGITS:
            return BAD_DIGITS
        return high * _1E8 + low
    middle = last_digits(base, end - 8, 8)
    high = last_digits(base, end - 16, count - 16)
    if low == BAD_DIGITS or middle == BAD_DIGITS or high == BAD_DIGITS:
        return BAD_DIGITS
    return high * _1E16 + middle * _1E8 + low

"""Unaligned big-endian loads for the kernels, as single instructions.

numba compiles ``buf[i] << 8 | buf[i + 1]`` into byte loads; reading through the array's pointer and swapping
doubles the speed of the walk.  No bounds are checked here: the callers check first.
"""

from typing import Any

from wal2delta.decode.kernel import instruction, ir, types


def _load_big_endian(bits: int, result: str) -> Any:
    def load(typingctx: Any, buf: Any, index: Any) -> Any:
        signature = getattr(types, result)(buf, index)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            array = context.make_array(sig.args[0])(context, builder, value=args[0])
            offset = context.cast(builder, args[1], sig.args[1], types.intp)
            address = builder.gep(array.data, [offset])
            pointer = builder.bitcast(address, ir.IntType(bits).as_pointer())
            value = builder.load(pointer)
            value.align = 1
            return builder.bswap(value)

        return signature, codegen

    return load


load_u16 = instruction(_load_big_endian(16, "uint16"))
load_u32 = instruction(_load_big_endian(32, "uint32"))
load_i64 = instruction(_load_big_endian(64, "int64"))

__all__ = ["load_i64", "load_u16", "load_u32"]

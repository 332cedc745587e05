"""Compile the kernels into a library: ``python -m walreplay.kernel_build``.

Needs numba, and a C compiler to link by.  Where that is missing, or the processor is too old, nothing is built, and
numba compiles the kernels when they are called.

What the library exports takes the objects of arrays as they are, and reads where their data lies and their shape: to
ask numpy for that from Python would take longer than most kernels do.
"""

# numba has no types.
# mypy: disable-error-code="no-untyped-call, no-untyped-def"

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from walreplay import decode
from walreplay.console import Screen
from walreplay.decode.compile import shared_library as kernel_library

_DATA: Final = 2
_DIMENSIONS: Final = 4
"""Which words of an array's object hold the address of its data, and that of its shape.

CPython's PyObject_HEAD is two words; then come numpy's ``char *data; int nd; npy_intp *dimensions``, which its binary
interface has kept since 2006.
"""

_NEVER_CALLED: Final = """
#include <stdlib.h>
/* What numba's code refers to in the paths of an error or of an array of its own; kernels have neither. */
#define NEVER(name) __attribute__((visibility("hidden"))) void name(void) { abort(); }
NEVER(NRT_Free)
NEVER(NRT_Allocate)
NEVER(NRT_MemInfo_call_dtor)
NEVER(numba_do_raise)
NEVER(numba_gil_ensure)
NEVER(numba_gil_release)
NEVER(numba_runtime_build_excinfo_struct)
NEVER(numba_unpickle)
NEVER(PyBytes_FromStringAndSize)
NEVER(PyErr_Clear)
NEVER(PyErr_SetNone)
NEVER(PyErr_SetString)
NEVER(PyErr_WriteUnraisable)
NEVER(PyUnicode_FromString)
NEVER(Py_DecRef)
#define NOTHING(name) __attribute__((visibility("hidden"))) void *name = 0;
NOTHING(PyExc_RuntimeError)
NOTHING(PyExc_StopIteration)
NOTHING(PyExc_SystemError)
"""


def build() -> Path | None:
    """Build the library into the package's folder, if it is not there; None where that cannot be done."""
    path = Path(kernel_library.__file__).with_name(kernel_library.FOLDER) / kernel_library.name()
    if path.exists():
        return path
    compiler = _c_compiler()
    if not kernel_library.is_usable() or compiler is None:
        return None
    # All this is read when numba, and the kernels' modules, are imported.
    os.environ |= {kernel_library.CHOICE: "numba", "NUMBA_CPU_NAME": kernel_library.PROCESSOR, "NUMBA_CPU_FEATURES": ""}
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        objects = _compile_all(Path(folder))
        rest = Path(folder, "never_called.c")
        rest.write_text(_NEVER_CALLED, encoding="utf-8")
        linked = Path(folder, path.name)
        options = ["-shared", "-fPIC", "-O1", "-o", str(linked)]
        subprocess.run([*compiler, *options, *map(str, objects), str(rest)], check=True)
        for old in path.parent.glob("kernels-*.so"):  # libraries of earlier sources: the digest is in the name
            old.unlink()
        shutil.move(linked, path)
    return path


def _c_compiler() -> list[str] | None:
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        words = name.split() if name else []  # CC may have options
        if words and shutil.which(words[0]):
            return words
    return None


def _compile_all(folder: Path) -> list[Path]:
    """Compile every kernel into an object file."""
    from llvmlite import binding

    from walreplay import fold
    from walreplay.decode.compile.kernel import Kernel

    # A kernel registers itself when its module is imported.
    for package in (decode, fold):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(cpu=kernel_library.PROCESSOR, opt=3, reloc="pic", codemodel="default")
    objects = []
    for number, kernel in enumerate(Kernel.all.values()):
        assembly = binding.parse_assembly(_llvm(kernel))
        assembly.verify()
        objects.append(folder / f"{number}.o")
        objects[-1].write_bytes(machine.emit_object(assembly))
    return objects


def _llvm(kernel: Any) -> str:
    """Compile a kernel into LLVM's language, as a function of C that takes arrays' objects and numbers."""
    import numba

    from walreplay.decode.compile import compiler as kernel_compiler
    from walreplay.decode.compile.parameters import Array, Record, flat_parameters

    names, arguments = [f"a{number}" for number, _ in enumerate(flat_parameters(kernel.signature))], []
    scope: dict[str, Any] = {"function": kernel_compiler.compiled(kernel.function, kernel.signature, cache=False)}
    left = iter(names)
    for number, parameter in enumerate(kernel.signature):
        parts = []
        for part in flat_parameters([parameter]):
            parts.append(name := next(left))
            if isinstance(part, Array):
                scope[f"array_{name}"] = _array_of(kernel_compiler.type_of(part))
                parts[-1] = f"array_{name}({name})"
        if isinstance(parameter, Record):
            scope[f"record_{number}"] = parameter.kind
            parts = [f"record_{number}({', '.join(parts)})"]
        arguments += parts
    exec(f"def entry({', '.join(names)}):\n    return function({', '.join(arguments)})\n", scope)
    word = numba.types.int64
    entry: Any = numba.cfunc(word(*[word] * len(names)))(scope["entry"])  # addresses and numbers are words of 64 bits
    return str(entry._library.get_llvm_str()).replace(entry._wrapper_name, kernel.symbol)


def _array_of(kind: Any) -> Any:
    """Return the instruction that makes numba's array of the object at an address."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array, populate_array

    word = ir.IntType(64)

    @intrinsic
    def array_at(typingctx, address):
        def codegen(context, builder, signature, arguments):
            def load(words, number):
                return builder.load(builder.gep(words, [ir.Constant(word, number)]))

            fields = builder.inttoptr(arguments[0], word.as_pointer())
            item = context.get_data_type(kind.dtype)
            size = ir.Constant(word, context.get_abi_sizeof(item))
            dimensions = builder.inttoptr(load(fields, _DIMENSIONS), word.as_pointer())
            shape = [load(dimensions, number) for number in range(kind.ndim)]
            strides = [size]
            for count in reversed(shape[1:]):
                strides.insert(0, builder.mul(strides[0], count))
            array = make_array(kind)(context, builder)
            data = builder.inttoptr(load(fields, _DATA), item.as_pointer())
            populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
            return array._getvalue()

        return kind(types.int64), codegen

    return array_at


def main() -> None:
    """Build the library, and say what came of it."""
    path = build()
    what = "not built, as there is no C compiler or the processor is too old: numba will compile what is called"
    Screen.of_errors().line(str(path or what))


if __name__ == "__main__":
    main()

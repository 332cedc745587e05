"""Kernels that were compiled ahead need no numba, give the same as with it, and are never those of other sources."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import walreplay
import walreplay.decode
import walreplay.fold
from support.captures import case
from support.zipped import PACKAGE, zip_package
from walreplay.decode.compile import shared_library as kernel_library
from walreplay.decode.compile.kernel import LIBRARY, Kernel
from walreplay.decode.kernels.text import HAS_HIGH, text_flags

needs_library = pytest.mark.skipif(LIBRARY is None, reason="no library: no C compiler, or other sources")

_READ = """
import hashlib, json, sys
sys.path[:0] = [sys.argv[1]]
for name in sys.argv[2].split():
    sys.modules[name] = None
import pyarrow as pa
from walreplay import read_changes
from walreplay.decode.compile.kernel import LIBRARY
for captures in json.loads(sys.argv[3]):
    digest = hashlib.sha256()
    for batch in read_changes(captures):
        digest.update(batch.data.serialize().to_pybytes())
    print(digest.hexdigest())
print(LIBRARY is not None, LIBRARY._name if LIBRARY else "")
"""


def _read(root: Path, *captures: list[Path], without: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Read streams in a process that prints each one's digest, whether it has the library, and where that lies."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    given = json.dumps([[str(path) for path in one] for one in captures])
    command = [sys.executable, "-c", _READ, str(root), without, given]
    return subprocess.run(command, env=environment | more, capture_output=True, text=True, check=False)


def _expected(captures: list[Path]) -> str:
    digest = hashlib.sha256()
    for batch in walreplay.read_changes(captures):
        digest.update(batch.data.serialize().to_pybytes())
    return digest.hexdigest()


@pytest.mark.skipif(os.environ.get(kernel_library.CHOICE) in ("numba", "python"), reason="another way is asked for")
def test_where_they_can_be_compiled_ahead_they_are() -> None:
    assert LIBRARY is not None or not kernel_library.is_usable() or shutil.which("cc") is None, "run `make kernels`"


@needs_library
def test_a_zip_brings_them_along(tmp_path: Path) -> None:
    captures = case("o02").files
    home = tmp_path / "home"
    seen = set()
    for name in ("one.zip", "other.zip"):
        done = _read(
            zip_package(tmp_path / name, library=True), captures, without="numba llvmlite", XDG_CACHE_HOME=str(home)
        )
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    ((digest, has_library, path),) = map(str.split, seen)
    assert (digest, has_library) == (_expected(captures), "True")
    assert Path(path).is_relative_to(home)
    # What is found there is not taken for the library unless it is.
    Path(path).write_bytes(b"something else")
    done = _read(tmp_path / "one.zip", captures, without="numba llvmlite", XDG_CACHE_HOME=str(home))
    assert done.stdout.split()[0] == digest, done.stderr


@pytest.mark.full
@needs_library
def test_they_need_no_numba_and_where_the_sources_are_others_numba_gives_the_same(tmp_path: Path) -> None:
    # To compile all of them takes half a minute: once for whatever needs it.
    captures = [case(name).files for name in ("o02", "o12", "o18")]
    expected = [_expected(files) for files in captures]
    without = _read(PACKAGE.parent, *captures, without="numba llvmlite")
    assert without.returncode == 0, without.stderr
    assert without.stdout.split()[:-1] == [*expected, "True"]

    archive = zip_package(tmp_path / "w.zip", comment="# changed\n", library=True)
    home = str(tmp_path / "home")
    neither = _read(archive, captures[0], without="numba llvmlite", XDG_CACHE_HOME=home)
    assert neither.returncode == 1
    assert "has no compiled kernels for this machine, and numba is not installed. Install a wheel" in neither.stderr
    compiled = _read(archive, *captures, XDG_CACHE_HOME=home)
    assert compiled.stdout.split() == [*expected, "False"], compiled.stderr


@needs_library
def test_who_asks_for_numba_gets_it() -> None:
    done = _read(PACKAGE.parent, WALREPLAY_KERNELS="numba")
    assert done.stdout.split() == ["False"], done.stderr


@needs_library
def test_every_kernel_is_in_the_library() -> None:
    for package in (walreplay.decode, walreplay.fold):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # What needs numba is for where there is no library.
            if not module.name.endswith(("compile.cache", "compile.compiler")):
                importlib.import_module(module.name)
    assert LIBRARY is not None
    assert [symbol for symbol in Kernel.all if not hasattr(LIBRARY, symbol)] == []


def test_numbers_of_numpy_are_taken_like_pythons() -> None:
    data = np.frombuffer(b"a r\xf6w\0\0\0", np.uint8)
    assert text_flags(data, np.int64(0), np.int32(5)) == HAS_HIGH
    assert text_flags(data, False, 5) == HAS_HIGH


def test_arguments_of_other_types_are_refused_where_kernels_are_checked() -> None:
    data = np.zeros(8, np.uint8)
    text_flags(data, 0, 8)
    for wrong in (data.astype(np.int8), data[::2], data.reshape(2, 4), bytes(8)):
        with pytest.raises(TypeError):
            text_flags(wrong, 0, 4)
    with pytest.raises(TypeError):
        text_flags(data, 0)
    with pytest.raises(TypeError):
        text_flags(data, 0, "4")


def test_a_processor_without_the_instructions_is_not_given_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nflags\t\t: fpu sse2 ssse3\n\nprocessor\t: 1\nflags\t\t: avx2\n")
    assert kernel_library._flags(info) == {"flags", ":", "fpu", "sse2", "ssse3"}
    assert kernel_library._flags(tmp_path / "missing") == set()
    monkeypatch.setattr(kernel_library.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(kernel_library, "_flags", lambda: {"sse2"})
    assert not kernel_library.is_usable()
    assert kernel_library.load() is None
    monkeypatch.setattr(kernel_library.platform, "machine", lambda: "aarch64")
    assert kernel_library.is_usable()

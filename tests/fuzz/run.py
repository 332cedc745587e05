"""Fuzz a reader by atheris: ``run.py TARGET [options of libFuzzer]``, as ``make fuzz`` does with each of them.

New inputs are kept in ``build/fuzz/TARGET``, and what a target fails at in ``build/fuzz/TARGET-crash-…`` (or
``timeout``).  ``run.py TARGET --keep`` puts the least of the inputs that reach as much into ``tests/fuzz/corpus``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("WALREPLAY_KERNELS", "checked")

import atheris

from fuzz.target import CORPUS, Target

MODULES: Final = {
    "messages": ("walreplay.protocol",),
    "framings": ("walreplay.protocol", "walreplay.decode.stream", "fuzz"),
    "copies": ("walreplay.loading", "fuzz"),
    "dumps": ("walreplay.loading", "fuzz"),
    "records": ("walreplay.loading", "walreplay.recorded_names", "walreplay.lsn", "walreplay.decode.announcements"),
}
"""The targets, and the modules whose lines are counted: of kernels the fuzzer sees what their references do."""

WORK: Final = Path("build/fuzz")
LEAST: Final = "-least"
MERGE: Final = "-merge=1"
MOST_KEPT: Final = 200
"""Of each target, the smallest ones."""


def uncounted(counted: tuple[str, ...]) -> list[str]:
    """Return the modules whose lines are not counted: atheris takes whole packages but for those."""
    tests = Path(__file__).parents[1]
    paths = [path.relative_to(root) for root in (tests, tests.parent / "lib") for path in root.rglob("*.py")]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not f"{name}.".startswith(tuple(f"{prefix}." for prefix in counted))]


def write(folder: Path, data: bytes) -> None:
    """Write an input under the name that libFuzzer gives it."""
    (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def keep(name: str) -> None:
    """Put the smallest inputs that reach as much as all of a target's into the kept corpus, in place of those there."""
    least, kept = WORK / f"{name}{LEAST}", CORPUS / name
    shutil.rmtree(least, ignore_errors=True)
    subprocess.run([sys.executable, __file__, name, MERGE], check=True)  # the fuzzer ends its process
    inputs = sorted((path.read_bytes() for path in least.iterdir()), key=len)
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for data in inputs[:MOST_KEPT]:
        write(kept, data)


def fuzz(name: str, options: list[str]) -> None:
    """Run the fuzzer, which ends the process."""
    with atheris.instrument_imports(include=["walreplay", "fuzz"], exclude=uncounted(MODULES[name])):
        target: Target = import_module(f"fuzz.{name}").TARGET
    folders = [WORK / name, CORPUS / name]
    if MERGE in options:
        folders.insert(0, WORK / f"{name}{LEAST}")
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for data in target.seeds():
        if len(data) <= target.longest:
            write(WORK / name, data)
    words = WORK / f"{name}.words"
    words.write_text("".join('"' + "".join(map(r"\x{:02x}".format, word)) + '"\n' for word in target.words))
    limits = [f"-max_len={target.longest}", f"-dict={words}", f"-artifact_prefix={WORK}/{name}-", "-timeout=60"]
    command = f"{sys.executable} {__file__} {name}"  # by which libFuzzer starts itself to merge
    atheris.Setup([command, *limits, *options, *map(str, folders)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    _, name, *options = sys.argv
    if options == ["--keep"]:
        keep(name)
    else:
        fuzz(name, options)

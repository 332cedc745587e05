"""What a new Python worker needs until its first batch is decoded, and what the next one takes.

The package comes as it is installed here, and as a zip, as of ``--py-files``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from measuring import Timing

_ROOT: Final = Path(__file__).resolve().parents[2]

_CAPTURE: Final = _ROOT / "tests" / "captures" / "o08_types_text_pg16" / "capture" / "stream.bin"
"""Of all types: what is met for the first time is most."""


def run(runs: int) -> list[list[Timing]]:
    """Measure new processes, with kernels that were compiled ahead, and with those that numba compiles."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = _zip(folder / "walreplay.zip")
        return [
            _measured("installed", runs, folder),
            # Nothing is kept on the machine yet: the library is brought out of the zip.
            _measured("zip, first time", 1, folder, package),
            _measured("zip", runs, folder, package),
            _measured("zip, numba, first time", 1, folder, package, "numba"),
            _measured("zip, numba", runs, folder, package, "numba"),
        ]


def _measured(name: str, runs: int, folder: Path, package: Path | None = None, kernels: str = "") -> list[Timing]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "WALREPLAY_KERNELS": kernels}
    for unwanted in ("NUMBA_CACHE_DIR", "PYTHONPATH"):
        environment.pop(unwanted, None)
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    seconds = defaultdict[str, list[float]](list)
    command = [sys.executable, str(Path(__file__).with_name("first_batch.py")), str(_CAPTURE)]
    for _ in range(runs):
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        told = json.loads(done.stdout)
        assert (package is not None) == told["package"].startswith(str(folder)), told["package"]
        for part, value in told["seconds"].items():
            seconds[part].append(value)
    return [Timing("start", f"{name}: {part}", values) for part, values in seconds.items()]


def _zip(path: Path) -> Path:
    """Pack the package as its wheel does: sources, and the kernels that were compiled ahead."""
    package = _ROOT / "lib" / "walreplay"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(package.parent))
    return path

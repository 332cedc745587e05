"""Kernels that numba compiles from a zip are found again by its content, whatever its path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.zipped import zip_package

_CALL = """
import sys
sys.path[:0] = [sys.argv[1]]
import numpy as np
from walreplay.decode.kernels.text import text_flags
text_flags(np.zeros(8, np.uint8), 0, 8)
compiled = text_flags._run
print(sum(compiled.stats.cache_hits.values()), compiled.stats.cache_path)
"""


def _hits(archive: Path, home: Path, **more: str) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(home), "PYTHONPATH": "", "WALREPLAY_KERNELS": "numba", **more}
    done = subprocess.run(
        [sys.executable, "-c", _CALL, str(archive)], env=environment, capture_output=True, text=True, check=True
    )
    hits, _, path = done.stdout.strip().partition(" ")
    return int(hits), path


def test_a_copy_at_another_path_is_not_compiled_again_and_other_sources_are(tmp_path: Path) -> None:
    first, copy = zip_package(tmp_path / "a" / "w.zip"), zip_package(tmp_path / "b" / "w.zip")
    home = tmp_path / "home"
    hits, path = _hits(first, home)
    assert (hits, Path(path).is_relative_to(home)) == (0, True)
    assert _hits(first, home) == (1, path)
    assert _hits(copy, home) == (1, path)
    assert _hits(zip_package(tmp_path / "c" / "w.zip", comment="# changed\n"), home)[0] == 0


def test_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.write_text("a file")
    temporary.mkdir()
    archive = zip_package(tmp_path / "a" / "w.zip")
    hits, path = _hits(archive, home, TMPDIR=str(temporary))
    assert (hits, Path(path).is_relative_to(temporary)) == (0, True)
    assert _hits(archive, home, TMPDIR=str(temporary)) == (1, path)

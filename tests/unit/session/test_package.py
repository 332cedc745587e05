"""The package as one file for Spark's executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import walreplay
from support.captures import case
from support.command import run_without
from walreplay.decode.compile.kernel import LIBRARY
from walreplay.errors import ConfigError
from walreplay.session.session import give_package

_READ = """
import json, sys
sys.path[:] = [place for place in sys.path if not place.endswith("/lib")]
import walreplay
from walreplay.decode.compile.kernel import LIBRARY
rows = sum(batch.data.num_rows for batch in walreplay.read_changes(sys.argv[1]))
print(json.dumps([walreplay.__file__, rows, LIBRARY is not None]))
"""

_IMPORT_ALL = """
import importlib, pkgutil
import walreplay
import pyspark.util
assert pyspark.util.is_remote_only()
for found in pkgutil.walk_packages(walreplay.__path__, "walreplay."):
    if not found.name.endswith(".__main__"):
        importlib.import_module(found.name)
        print(found.name)
"""


class Remote:
    """A session of Spark Connect, as far as artifacts go."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.given: list[tuple[str, bytes, bool]] = []

    def addArtifacts(self, file: str, *, pyfile: bool) -> None:  # noqa: N802
        sys.path.insert(1, file)  # as pyspark does
        if self.refuses:
            raise RuntimeError("[UNSUPPORTED]")
        self.given.append((Path(file).name, Path(file).read_bytes(), pyfile))


def test_the_zip_alone_reads_changes_with_the_kernels_in_it(tmp_path: Path) -> None:
    zipped = walreplay.package_zip(tmp_path / "walreplay.zip")
    recorded = case("o03")
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(recorded.folder)],
        env={**os.environ, "PYTHONPATH": zipped, "XDG_CACHE_HOME": str(tmp_path), "WALREPLAY_KERNELS": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    file, rows, has_library = json.loads(done.stdout)
    assert file.startswith(f"{zipped}/")
    assert rows == 616
    assert has_library == (LIBRARY is not None)


def test_the_zip_holds_no_leftovers_and_is_the_same_each_time(tmp_path: Path) -> None:
    one, other = (Path(walreplay.package_zip(tmp_path / name)) for name in ("a.zip", "b.zip"))
    assert one.read_bytes() == other.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert "walreplay/session/delta_jars.lock" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("/")]


@pytest.mark.parametrize(("name", "says"), [("walreplay.whl", "only from a file .zip"), ("no/w.zip", "No such file")])
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        walreplay.package_zip(tmp_path / name)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_server_is_given_the_package_and_may_refuse(refuses: bool) -> None:
    remote: Any = Remote(refuses)
    before = list(sys.path)
    give_package(remote)
    give_package(remote)
    assert sys.path == before
    names = {name for name, _, _ in remote.given}
    assert len(names) == (0 if refuses else 1)
    assert all(name.endswith(".zip") and pyfile for name, _, pyfile in remote.given)


def test_all_can_be_imported_with_sparks_client_alone() -> None:
    """pyspark-client has neither pyspark.core nor py4j, and pyspark knows it by that."""
    done = run_without("pyspark.core py4j delta grpc", _IMPORT_ALL)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "walreplay.job.apply" in done.stdout.split()

"""The wheel that `make wheel` has built does its work where nothing of the sources is: ``make test-wheel``.

It is installed by pip with what it depends on, at the locked versions, into an environment of its own.  Spark and Delta
alone are those of the environment of the tests: they are half a gigabyte, and no part of what pip resolves for a wheel.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import ComponentScope
from packaging.requirements import Requirement

import walreplay
from support.captures import case
from support.pages import ROOT
from support.spark import spark_environment, start_session
from support.truth import assert_mirror_equals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENVIRONMENT = ROOT / "build" / "wheel-environment"
_PURE_ENVIRONMENT = ROOT / "build" / "pure-wheel-environment"
_PURE_WHEEL = ROOT / "build" / "pure-wheel"
_SPARK = ("pyspark", "delta", "py4j")
_SPARK_NEEDS = ("pandas", "importlib-metadata")
_PATIENCE = 300.0
_FETCHED = "fetch Delta {} for Spark {}".format(
    importlib.metadata.version("delta-spark"), ".".join(importlib.metadata.version("pyspark").split(".")[:2])
)

_READ = """
import hashlib, json, sys
import walreplay
from walreplay.decode.compile.kernel import LIBRARY
digest, rows = hashlib.sha256(), 0
for batch in walreplay.read_changes(sys.argv[1]):
    digest.update(batch.data.serialize().to_pybytes())
    rows += batch.data.num_rows
compiler = [name for name in sys.modules if name.partition(".")[0] in ("numba", "llvmlite")]
print(json.dumps([digest.hexdigest(), rows, LIBRARY and LIBRARY._name, compiler]))
"""

_IMPORT_ALL = """
import importlib, pkgutil
import walreplay

def fail(name):
    raise

names = [found.name for found in pkgutil.walk_packages(walreplay.__path__, "walreplay.", onerror=fail)]
for name in names:
    # What needs numba is for where there is no library.
    if not name.endswith((".__main__", ".compile.cache", ".compile.compiler")):
        importlib.import_module(name)
print("\\n".join(names))
"""

_FILES = """
import importlib.metadata
for file in importlib.metadata.files("walreplay"):
    print(file)
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it.

    Attributes:
        away: a folder that holds nothing; commands run there.
        cache: where numba would keep what it compiles.
    """

    root: Path
    away: Path
    cache: Path

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = self.root.glob("lib/python*/site-packages")
        return found

    def run(self, *command: object) -> str:
        """Run a command of the environment, which has to succeed, and give what it prints."""
        return self.done(*command).stdout

    def done(self, *command: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment, which has to end with a code."""
        done = subprocess.run(
            [str(self.root / "bin" / str(command[0])), *map(str, command[1:])],
            env=self._variables(),
            cwd=self.away,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
        assert done.returncode == code, done.stderr[-4000:]
        return done

    def _variables(self) -> dict[str, str]:
        """Return what a program needs of the machine, and nothing of the tests or the sources."""
        kept = {
            name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "MAVEN_REPOSITORY") if name in os.environ
        }
        small = "--master local[2] --conf spark.driver.memory=1g --conf spark.sql.shuffle.partitions=4 pyspark-shell"
        return {
            **kept,
            "HOME": str(self.away),
            "NUMBA_CACHE_DIR": str(self.cache),
            "PYSPARK_SUBMIT_ARGS": small,
            "SPARK_LOCAL_DIRS": str(self.away),
            "SPARK_SUBMIT_OPTS": spark_environment(self.away)["SPARK_SUBMIT_OPTS"],
        }


def _pip(root: Path, *arguments: object) -> None:
    options = ["--quiet", "--no-compile", "--disable-pip-version-check", "--only-binary", ":all:"]
    lock = ROOT / "conf" / "requirements.lock"
    command = [root / "bin" / "python", "-m", "pip", "install", *options, "--constraint", lock, *arguments]
    done = subprocess.run([*map(str, command)], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _lend_spark(installed: Installed) -> None:
    """Let the environment have the tests' Spark and Delta, but not Delta's JARs, and nothing else of theirs."""
    lent = installed.root / "lent"
    lent.mkdir()
    for folder in map(Path, site.getsitepackages()):
        for found in folder.iterdir():
            name = found.name.partition("-")[0].replace("delta_spark", "delta")
            if name in _SPARK:
                (lent / found.name).symlink_to(found)
    (installed.packages / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")


def _installed(wheel: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    venv.create(root, clear=True, with_pip=True)
    _pip(root, wheel, *_SPARK_NEEDS)
    made = Installed(root, tmp_path_factory.mktemp("away"), tmp_path_factory.mktemp("cache"))
    _lend_spark(made)
    return made


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    wheels = list((ROOT / "dist").glob("*.whl"))
    assert len(wheels) == 1, "there is not one wheel in dist/: run `make wheel`"
    return _installed(wheels[0], _ENVIRONMENT, tmp_path_factory)


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel for any machine, which brings no kernels, where numba is not."""
    command = [sys.executable, ROOT / "conf" / "wheel.py", "--pure", "--into", _PURE_WHEEL]
    done = subprocess.run([*map(str, command)], env=_with_sources(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = _PURE_WHEEL.glob("*-py3-none-any.whl")
    return _installed(wheel, _PURE_ENVIRONMENT, tmp_path_factory)


def _with_sources(root: Path = ROOT) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root / "lib"), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start the tests' own session, which reads what the wheel has written."""
    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


def test_nothing_of_the_sources_is_used(installed: Installed) -> None:
    found = installed.run("python", "-c", "import sys, walreplay; print(walreplay.__file__, *sys.path, sep='\\n')")
    file, *places = found.splitlines()
    assert Path(file).is_relative_to(installed.packages)
    assert str(ROOT / "lib") not in places


def test_the_wheel_has_its_types_and_its_licence(installed: Installed) -> None:
    files = installed.run("python", "-c", _FILES).splitlines()
    assert "walreplay/py.typed" in files
    assert any(file.endswith("dist-info/licenses/LICENSE") for file in files)


def _bill(installed: Installed) -> Bom:
    (file,) = installed.packages.glob("walreplay-*.dist-info/sboms/walreplay.cdx.json")
    return Bom.from_json(json.loads(file.read_text(encoding="utf-8")))  # type: ignore[attr-defined]


def _asked_for() -> dict[str, ComponentScope]:
    """Return what the sources say that is installed with a wheel, or may be."""
    requirements = map(Requirement, importlib.metadata.requires("walreplay") or ())
    markers = [(requirement.name, str(requirement.marker or "")) for requirement in requirements]
    return {
        name: ComponentScope.OPTIONAL if "extra" in marker else ComponentScope.REQUIRED
        for name, marker in markers
        if 'extra == "dev"' not in marker
    }


def test_the_wheel_has_a_bill_of_all_that_is_in_it_and_that_it_asks_for(installed: Installed) -> None:
    bill = _bill(installed)
    assert bill.metadata.component is not None
    assert bill.metadata.component.version == importlib.metadata.version("walreplay")
    external = {part.name: part.scope for part in bill.components if part.is_external}
    assert external == _asked_for()
    assert external["pyarrow"] == ComponentScope.REQUIRED
    assert all(part.licenses for part in bill.components if part.is_external)
    inside = {part.name: part for part in bill.components if not part.is_external}
    (library,) = installed.packages.glob("walreplay/decode/compile/prebuilt/*.so")
    assert set(inside) == {"numba", library.name}
    (digest,) = inside[library.name].hashes
    assert digest.content == hashlib.sha256(library.read_bytes()).hexdigest()


def test_a_wheel_without_kernels_has_nothing_of_others_in_it(pure: Installed) -> None:
    bill = _bill(pure)
    assert {part.name for part in bill.components if not part.is_external} == set()
    assert {part.name for part in bill.components} == set(_asked_for())


def test_the_licence_of_what_is_compiled_in_is_its_own(installed: Installed) -> None:
    (file,) = installed.packages.glob("walreplay-*.dist-info/licenses/LICENSES/numba.txt")
    of_numba = [path for path in importlib.metadata.files("numba") or () if path.name == "LICENSE"]
    assert file.read_text(encoding="utf-8") in [path.read_text(encoding="utf-8") for path in of_numba]


def test_the_same_sources_give_the_same_bytes_in_any_folder(tmp_path: Path) -> None:
    made = []
    for folder, umask, hashes in (("a", 0o022, "1"), ("b/of another", 0o077, "2")):
        root, into = tmp_path / folder, tmp_path / f"{hashes}.out"
        root.mkdir(parents=True)
        for name in ("lib", "conf", "LICENSES"):
            shutil.copytree(ROOT / name, root / name, copy_function=shutil.copyfile)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(ROOT / name, root / name)
        command = [sys.executable, root / "conf" / "wheel.py", "--sdist", "--into", into]
        settings = {**_with_sources(root), "PYTHONHASHSEED": hashes, "SOURCE_DATE_EPOCH": "1700000000"}
        done = subprocess.run([*map(str, command)], env=settings, umask=umask, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        made.append({path.name: path.read_bytes() for path in into.iterdir()})
    assert sorted(name.rpartition(".")[2] for name in made[0]) == ["gz", "whl"]
    assert made[0] == made[1]


def test_the_wheel_has_the_scripts_for_the_source(installed: Installed, tmp_path: Path) -> None:
    installed.run("walreplay", "--scripts", tmp_path)
    scripts = ROOT / "lib" / "walreplay" / "postgresql"
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        file.name: file.read_text() for file in scripts.iterdir()
    }


def test_every_module_can_be_imported(installed: Installed) -> None:
    names = installed.run("python", "-c", _IMPORT_ALL).split()
    sources = (path.relative_to(ROOT / "lib").with_suffix("") for path in (ROOT / "lib").rglob("*.py"))
    there = {".".join(path.parts).removesuffix(".__init__") for path in sources}
    assert {*names, "walreplay"} == there


@pytest.mark.parametrize("name", ["o02", "o08", "o13", "o18", "o19"])
def test_changes_are_read_by_the_kernels_of_the_wheel(installed: Installed, name: str) -> None:
    folder = case(name).folder
    digest, rows, library, compiler = json.loads(installed.run("python", "-c", _READ, folder))
    assert Path(library).is_relative_to(installed.packages)
    assert compiler == []
    # The sources' own, which other tests hold to the truth.
    expected, expected_rows = hashlib.sha256(), 0
    for batch in walreplay.read_changes(folder):
        expected.update(batch.data.serialize().to_pybytes())
        expected_rows += batch.data.num_rows
    assert (digest, rows) == (expected.hexdigest(), expected_rows)
    assert rows > 0


def test_the_commands_do_their_work(installed: Installed, spark: SparkSession, tmp_path: Path) -> None:
    sample, mirror = case("o03"), tmp_path / "mirror"

    inspected = json.loads(installed.run("walreplay", "inspect", sample.folder, "--json"))
    done = installed.done("walreplay", "apply", "--captures", sample.folder, "--target", mirror, "--json")
    applied = json.loads(done.stdout)
    looked = installed.done("walreplay", "status", "--target", mirror, "--json")
    status = json.loads(looked.stdout)

    assert (applied["status"], applied["warnings"]) == ("applied", [])
    assert {table["name"] for table in applied["tables"]} == set(sample.truth)
    # Delta's JARs are fetched once.
    assert [line.partition(" into ")[0] for line in done.stderr.splitlines() if "Delta" in line] == [_FETCHED]
    assert "Delta" not in looked.stderr
    assert inspected["transactions"] == applied["transactions"] == status["runs"][0]["transactions"]
    assert inspected["changes"] == applied["changes"] == status["runs"][0]["changes"]
    assert (status["runs"][0]["state"], status["open_transactions"]) == ("applied", [])
    assert_mirror_equals(spark, mirror, sample)
    assert list(installed.cache.rglob("*.nb*")) == []


def test_neither_wheel_brings_numba(installed: Installed, pure: Installed) -> None:
    for environment in (installed, pure):
        assert [*environment.packages.glob("pyarrow")] != []
        assert [*environment.packages.glob("numba*"), *environment.packages.glob("llvmlite*")] == []


def test_without_compiled_kernels_an_error_says_what_to_install(pure: Installed, tmp_path: Path) -> None:
    captures, target = case("o03").folder, tmp_path / "mirror"
    for command in (("inspect", captures), ("apply", "--captures", captures, "--target", target)):
        told = pure.done("walreplay", *command, code=2).stderr
        assert "has no compiled kernels for this machine, and numba is not installed" in told
        assert "pip install 'walreplay[numba]'" in told
    assert not target.exists()

"""Environments as users have them: an interpreter, packages that pip has installed, and programs that are run there.

They are kept in ``build/environments``, so that they are made once.  What is installed of walreplay itself is the wheel
of `make wheel`, each time anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from support.captures import Case, case
from support.pages import ROOT
from support.spark import READ_CLASSES

KEPT: Final = ROOT / "build" / "environments"
EXECUTORS: Final = ("numpy<2.4", "pandas<3", "pyarrow")
"""All that the Python of an executor has."""

_PATIENCE: Final = 900.0
_OF_THE_MACHINE: Final = ("PATH", "JAVA_HOME", "LANG", "HOME", "MAVEN_REPOSITORY", "XDG_CACHE_HOME")

_THIS: Final = "{}.{}".format(*sys.version_info[:2])

SMALL: Final = (
    "--conf spark.driver.memory=1g --conf spark.sql.shuffle.partitions=4 --conf spark.ui.enabled=false "
    "--conf spark.databricks.delta.snapshotPartitions=2"
)
"""For small tables: by default Delta reads the state of each in 50 tasks."""


def interpreter(version: str) -> str:
    """Find Python of a version (``3.10``); a test that needs one that is not there is skipped, and says so."""
    if version == _THIS:
        return str(Path(sys.prefix, "bin", "python"))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)]
    found += filter(None, [shutil.which(f"python{version}")])
    for python in found:
        if subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode == 0:
            return python
    say(f"NOT TRIED: this machine has no Python {version}")
    pytest.skip(f"no Python {version} on this machine")


def say(text: str) -> None:
    """Print a line among those of pytest."""
    print(f"\n  {text}", flush=True)


def installed(packages: Sequence[str], *, python: str = _THIS, with_wheel: bool = True) -> Path:
    """Return the folder of an environment with packages, which is made if it is not there.

    Args:
        packages: as pip is told them; the wheel itself needs not be among them.
        with_wheel: install walreplay.
    """
    program = interpreter(python)
    wheels = list((ROOT / "dist").glob("*.whl")) if with_wheel else []
    if with_wheel:
        assert len(wheels) == 1, "there is not one wheel in dist/: run `make wheel`"
    name = hashlib.sha256(json.dumps([program, with_wheel, *packages]).encode()).hexdigest()[:12]
    root = KEPT / f"python{python}-{name}"
    if not (root / "ready").exists():
        shutil.rmtree(root, ignore_errors=True)
        _checked([program, "-m", "venv", str(root)])
        _pip(root, *map(str, wheels), *packages)
        (root / "ready").write_text("\n".join(packages) + "\n", encoding="utf-8")
    if with_wheel:
        _pip(root, "--force-reinstall", "--no-deps", *map(str, wheels))
    return root


def _pip(root: Path, *arguments: str) -> None:
    _checked([str(root / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments])


def _checked(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@dataclass(frozen=True)
class Environment:
    """Where commands are run.

    Attributes:
        root: of the environment of Python.
        folder: commands are run in it, and what they leave behind is there.
        variables: beside the few of the machine.
    """

    root: Path
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def shell(self, text: str, *, succeeds: bool = True) -> str:
        """Run commands as a shell does, and give what they print, errors behind it."""
        done = subprocess.run(
            ["bash", "-euc", text],
            env=self.variables_of_commands(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert (done.returncode == 0) is succeeds, f"{text}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
        return done.stdout + done.stderr

    def versions(self, *packages: str) -> str:
        """Return which versions of Python and of packages it has."""
        ask = "import importlib.metadata as m, sys; print('Python %d.%d.%d' % sys.version_info[:3], *["
        ask += "f'{name} {m.version(name)}' for name in sys.argv[1:]], sep=', ')"
        return self.shell(f'python -c "{ask}" {" ".join(packages)}').strip()

    def variables_of_commands(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _OF_THE_MACHINE if name in os.environ}
        kept["PATH"] = os.pathsep.join([str(self.root / "bin"), kept["PATH"]])
        return {
            **kept,
            "PYTHONPATH": str(ROOT / "tests"),  # for `compare`
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_DIRS": str(self.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": READ_CLASSES,
            **self.variables,
        }


@dataclass
class Halves:
    """A capture that is applied in two halves, then once more when there is nothing new, and compared with its truth.

    Attributes:
        captures: the folder that commands read.
        target: where they write.
        printed: what each command has printed.
    """

    environment: Environment
    target: str
    case: Case = field(default_factory=lambda: case("o03"))
    seconds: list[float] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    @property
    def captures(self) -> Path:
        return self.environment.folder / "captures"

    def run(self, command: str) -> None:
        """Run a command three times; ``{report}`` in it is the file for its report.

        Args:
            command: as a shell takes it, with this object's captures and target in it.
        """
        self.captures.mkdir()
        half = len(self.case.files) // 2
        for files, expected in ((self.case.files[:half], "applied"), (self.case.files[half:], "applied"), ((), None)):
            for file in files:
                shutil.copy(file, self.captures)
            report = self.environment.folder / f"report{len(self.seconds)}.json"
            began = time.monotonic()
            self.printed.append(self.environment.shell(command.replace("{report}", str(report))))
            self.seconds.append(time.monotonic() - began)
            said: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
            assert said["status"] == (expected or "nothing new"), self.printed[-1]
            assert expected is None or said["tables"], self.printed[-1]
        self.compare()

    def compare(self) -> None:
        """Compare every table with the truth, as this environment's Spark reads them."""
        compare(self.environment, self.target, self.case)

    def tell(self, way: str) -> None:
        """Print what was tried, and how long it took."""
        first, second, nothing = self.seconds
        tables = len(self.case.truth)
        say(f"{way}: first {first:.0f} s, next {second:.0f} s, nothing new {nothing:.0f} s; {tables} tables are right")


def compare(environment: Environment, target: str, recorded: Case) -> None:
    """Compare every table of a target with the truth, as the environment's Spark reads them."""
    environment.shell(f"python -m support.mirror_check '{target}' {recorded.name}")


def locked_jars(*, but: str = "postgresql") -> list[Path]:
    """Return Delta's JARs as they are locked, in the place of those that Spark would fetch."""
    return [jar for jar in sorted(Path(sys.prefix, "jars").glob("*.jar")) if not jar.name.startswith(but)]


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def serving(environment: Environment, command: str, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have a server run while the block does.

    Args:
        port: it is up once it listens there.
        log: the file for what it says.
    """
    with log.open("wb") as lines:
        process = subprocess.Popen(
            ["bash", "-euc", f"exec {command}"],
            env=environment.variables_of_commands(),
            cwd=environment.folder,
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
            start_new_session=True,
        )
    try:
        _await(process, port, log)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends = time.monotonic() + 120
    while time.monotonic() < ends:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"nothing listens at {port}:\n{log.read_text(errors='replace')[-4000:]}")

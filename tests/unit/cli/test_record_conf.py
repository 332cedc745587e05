"""The units, the container file and the DAG of conf/record run commands that there are, and end the recorder gently."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

import walreplay.recording.transfer
from support.command import run_without
from support.pages import ROOT
from walreplay.cli.commands import app
from walreplay.errors import ConfigError

_FOLDER = ROOT / "conf" / "record"
_UNITS = sorted(path.name for path in _FOLDER.iterdir() if path.suffix in (".service", ".timer"))
_SERVICES = [name for name in _UNITS if name.endswith(".service")]
_PROGRAM = "/opt/walreplay/bin/walreplay"
_SERVERS_SECONDS = 10.0  # that the end of a stream may take, behind the store

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


def parse(arguments: list[str]) -> dict[str, Any]:
    """Have the program read a command with its options, which it does not carry out; return what it reads."""
    command, *options = arguments
    with get_command(app).make_context("walreplay", [command], resilient_parsing=True) as context:
        found: Any = context.command.get_command(context, command)  # type: ignore[attr-defined]
        assert found is not None, f"there is no command {command}"
        values: dict[str, Any] = found.make_context(command, options, parent=context).params
    return values


def test_a_command_and_an_option_that_are_not_there_are_found() -> None:
    assert parse(["apply", "--target", "/t", "--captures", "/c"])["captures"] == "/c"
    with pytest.raises(AssertionError, match="no command recrod"):
        parse(["recrod"])
    with pytest.raises(Exception, match="--slto"):
        parse(["record", "--slto", "archive", "--publication", "archive", "--to", "/c"])
    with pytest.raises(Exception, match="parameter: to"):
        parse(["record", "--slot", "archive", "--publication", "archive"])


# The units of systemd.


def settings(name: str) -> dict[str, list[str]]:
    """Return a unit's settings; one may be given several times."""
    found: dict[str, list[str]] = {}
    text = (_FOLDER / name).read_text(encoding="utf-8").replace("\\\n", "")
    for line in text.splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def variables() -> dict[str, str]:
    """Return what the file of the environment sets, also where it is commented out."""
    text = (_FOLDER / "walreplay.env").read_text(encoding="utf-8")
    return dict(re.findall(r"^(?:# )?([A-Z_]+)=(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("name", _SERVICES)
def test_a_service_runs_commands_with_options_that_they_have(name: str) -> None:
    commands = settings(name)["ExecStart"]
    for command in commands:
        program, *arguments = shlex.split(re.sub(r"\$\{(\w+)\}", lambda match: variables()[match[1]], command))
        assert program == _PROGRAM
        parse(arguments)
    assert [command.split()[1] for command in commands] == {
        "walreplay-record.service": ["record"],
        "walreplay-apply.service": ["apply", "maintain"],
    }[name]


def test_the_recorder_gets_the_time_that_it_needs_to_end() -> None:
    unit = settings("walreplay-record.service")
    (seconds,), (signal,), (kept,) = unit["TimeoutStopSec"], unit["KillSignal"], unit["RestartPreventExitStatus"]
    assert float(seconds) > walreplay.recording.transfer._END_SECONDS + _SERVERS_SECONDS
    assert signal == "SIGTERM"
    assert int(kept) == ConfigError.exit_code
    assert unit["Restart"] == ["on-failure"]
    container = (_FOLDER / "Containerfile").read_text(encoding="utf-8")
    assert re.findall(r"--stop-timeout (\d+)", container) == [seconds]


def test_a_service_is_started_by_its_timer_and_by_nothing_else() -> None:
    assert "WantedBy" not in settings("walreplay-apply.service")
    assert settings("walreplay-apply.timer")["WantedBy"] == ["timers.target"]
    assert Path(_FOLDER, "walreplay-apply.timer").with_suffix(".service").exists()


@pytest.fixture
def unit_files(tmp_path: Path) -> Path:
    """Copy the units, with a program that is there on every machine."""
    for name in _UNITS:
        text = (_FOLDER / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace(_PROGRAM, "/bin/true"), encoding="utf-8")
    return tmp_path


def verify(files: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *arguments, *(f"./{name}" for name in _UNITS)]
    return subprocess.run(command, cwd=files, capture_output=True, text=True, timeout=60)


@needs_systemd
def test_systemd_takes_the_units_and_finds_a_wrong_one(unit_files: Path) -> None:
    done = verify(unit_files, "verify", "--man=no")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    unit = unit_files / "walreplay-record.service"
    unit.write_text(unit.read_text(encoding="utf-8").replace("on-failure", "on-faliure"), encoding="utf-8")
    assert "on-faliure" in verify(unit_files, "verify", "--man=no").stderr


@needs_systemd
def test_the_recorder_is_confined(unit_files: Path) -> None:
    # Of 10, as 100; without the options it would be 92.
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "./walreplay-record.service"]
    done = subprocess.run(command, cwd=unit_files, capture_output=True, text=True, timeout=60)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd reads no files of units")
    assert done.returncode == 0, done.stdout[-400:]


# The container.


def instructions() -> list[tuple[str, str]]:
    """Return the container file's instructions with what they are given."""
    text = (_FOLDER / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_the_container_has_the_recorder_without_rights_and_ends_it_gently() -> None:
    names = [name for name, _ in instructions()]
    given = dict(instructions())
    assert names[0] == "FROM"
    (version,) = re.findall(r"^docker\.io/library/python:(3\.\d+)-slim$", given["FROM"])
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"Python :: {version}" in project
    assert names.index("USER") > max(number for number, name in enumerate(names) if name in ("RUN", "COPY"))
    assert int(given["USER"]) > 0
    assert f"--uid {given['USER']} " in given["RUN"]  # the last RUN makes the user
    assert given["STOPSIGNAL"] == "SIGTERM"
    assert given["ENTRYPOINT"] == '["walreplay", "record"]'


def test_the_container_is_installed_by_commands_that_there_are() -> None:
    text = (_FOLDER / "Containerfile").read_text(encoding="utf-8")
    (install,) = (rest for name, rest in instructions() if name == "RUN" and rest.startswith("pip install"))
    (extras,) = re.findall(r"\.whl\)\[([a-z,]+)\]", install)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.findall(r"^(\w+) = \[", project.partition("optional-dependencies]")[2], re.MULTILINE)
    assert set(extras.split(",")) <= set(declared) - {"spark"}
    assert "record" in extras
    helped = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert all(option in helped for option in re.findall(r"--[a-z-]+", install))
    (arguments,) = re.findall(r" walreplay-record +(--slot .*)$", text.replace("\\\n#", ""), re.MULTILINE)
    assert parse(["record", *shlex.split(arguments)])["create"] is True
    (archive,) = re.findall(r"-v \S+:(\S+)", text)
    assert f"--to {archive}" in arguments


def test_the_recorder_needs_neither_spark_nor_delta(tmp_path: Path) -> None:
    options = ["--slot", "s", "--publication", "p", "--to", str(tmp_path / "c"), "--dsn", f"host={tmp_path} user=u"]
    program = f"from walreplay.cli import main\nsys.exit(main({['record', *options]!r}))"
    done = run_without("pyspark delta py4j pandas numba deltalake", program)
    assert f'connection to server on socket "{tmp_path}/' in done.stderr
    assert done.returncode == 1


# The DAG of Airflow.


class Dag:
    """Takes what Airflow's would; tasks add themselves to the one whose block they stand in."""

    current: Dag | None = None

    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.options = name, options
        self.tasks: list[Task] = []

    def __enter__(self) -> Dag:
        Dag.current = self
        return self

    def __exit__(self, *_: object) -> None:
        Dag.current = None


class Task:
    def __init__(self, *, task_id: str, bash_command: str, **options: Any) -> None:
        assert Dag.current is not None
        Dag.current.tasks.append(self)
        self.task_id, self.bash_command = task_id, bash_command
        self.options = {**Dag.current.options["default_args"], **options}
        self.next: Task | None = None

    def __rshift__(self, other: Task) -> Task:
        self.next = other
        return other


_LAYOUTS: dict[str, dict[str, dict[str, Any]]] = {
    "3": {"airflow.sdk": {"DAG": Dag}, "airflow.providers.standard.operators.bash": {"BashOperator": Task}},
    "2": {"airflow": {"DAG": Dag}, "airflow.operators.bash": {"BashOperator": Task}},
}


def modules_of(layout: Mapping[str, Mapping[str, Any]]) -> dict[str, ModuleType]:
    """Make the modules, and the packages that they are in."""
    found: dict[str, ModuleType] = {}
    for path, names in layout.items():
        parts = path.split(".")
        for length in range(1, len(parts) + 1):
            name = ".".join(parts[:length])
            found.setdefault(name, ModuleType(name)).__path__ = []
        found[path].__dict__.update(names)
    return found


@pytest.fixture(params=_LAYOUTS)
def dag(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Dag:
    """Run the file as one of Airflow's versions does, whose modules are laid out differently."""
    for name, module in modules_of(_LAYOUTS[request.param]).items():
        monkeypatch.setitem(sys.modules, name, module)
    path = _FOLDER / "walreplay_dag.py"
    names: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    made: Dag = names["dag"]
    return made


def test_the_dag_applies_one_run_at_a_time_and_then_verifies(dag: Dag) -> None:
    assert dag.options["max_active_runs"] == 1
    assert dag.options["catchup"] is False
    assert [task.task_id for task in dag.tasks] == ["apply", "maintain", "verify"]
    assert [task.next for task in dag.tasks] == [*dag.tasks[1:], None]
    assert [task.options["retries"] > 0 for task in dag.tasks] == [True, True, False]


def test_the_dags_tasks_run_commands_with_options_that_they_have(dag: Dag) -> None:
    for task in dag.tasks:
        (line,) = (line for line in task.bash_command.splitlines() if line.startswith(_PROGRAM))
        _, *arguments = shlex.split(line)
        assert arguments[0] == task.task_id
        parse(arguments)


@pytest.mark.parametrize(("day", "code"), [(6, 99), (7, 0)])
def test_the_dag_verifies_on_sundays(dag: Dag, day: int, code: int, tmp_path: Path) -> None:
    (tmp_path / "date").write_text(f"#!/bin/sh\necho {day}\n")
    (tmp_path / "date").chmod(0o755)
    verify = dag.tasks[-1]
    assert verify.options["skip_on_exit_code"] == 99
    command = verify.bash_command.replace(_PROGRAM, "true")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert subprocess.run(["bash", "-c", command], env={**os.environ, "PATH": path}).returncode == code

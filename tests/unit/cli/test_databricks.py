"""The bundle for Databricks is one that its tools take, and its jobs run commands that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from databricks.bundles.jobs import Job
from typer.main import get_command

from walreplay.cli.commands import app
from walreplay.config import load_configuration

_BUNDLE = Path(__file__).parents[3] / "conf" / "databricks"
_JOBS = sorted(_BUNDLE.glob("resources/*.job.yml"))
_WORKSPACE = {"workspace.file_path", "workspace.current_user.userName", "bundle.name", "bundle.target"}


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def _jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in _JOBS:
        for name, job in _read(path)["resources"]["jobs"].items():
            assert path.name == f"{name}.job.yml"
            yield name, job


def test_the_bundle_has_all_ways_of_running() -> None:
    found = dict(_jobs())
    assert set(found) == {"apply_on_arrival", "apply_nightly", "backfill"}
    assert "file_arrival" in found["apply_on_arrival"]["trigger"]
    assert found["apply_nightly"]["schedule"]["quartz_cron_expression"]
    assert {bool(job.get("environments")) for job in found.values()} == {True, False}
    assert all(found[name]["max_concurrent_runs"] == 1 for name in ("apply_on_arrival", "apply_nightly"))
    assert all(job["email_notifications"]["on_failure"] for job in found.values())


@pytest.mark.parametrize(("name", "job"), list(_jobs()), ids=[name for name, _ in _jobs()])
def test_a_job_is_one_that_databricks_takes(name: str, job: dict[str, Any]) -> None:
    made = Job.from_dict(job)
    assert made.as_dict()["tasks"][0]["task_key"]
    for task in job["tasks"]:
        keys = {one["environment_key"] for one in job.get("environments", [])}
        clusters = {one["job_cluster_key"] for one in job.get("job_clusters", [])}
        assert task.get("environment_key") in keys or task.get("job_cluster_key") in clusters


@pytest.mark.parametrize(("name", "job"), list(_jobs()), ids=[name for name, _ in _jobs()])
def test_a_job_calls_a_command_with_options_that_it_has(name: str, job: dict[str, Any]) -> None:
    for task in job["tasks"]:
        wheel = task["python_wheel_task"]
        assert (wheel["package_name"], wheel["entry_point"]) == ("walreplay", "walreplay")
        command, *arguments = wheel["parameters"]
        given = [argument for argument in arguments if argument.startswith("--")]
        with get_command(app).make_context("walreplay", [command], resilient_parsing=True) as context:
            known = {option for one in _command(context, command).params for option in one.opts}
        assert set(given) <= known
        declared = {one["name"] for one in job.get("parameters", [])}
        assert set(re.findall(r"{{job\.parameters\.(\w+)}}", " ".join(arguments))) <= declared


def _command(context: Any, name: str) -> Any:
    return context.command.get_command(context, name)


def test_all_names_that_are_put_in_are_declared() -> None:
    variables = {f"var.{name}" for name in _read(_BUNDLE / "databricks.yml")["variables"]}
    for path in (_BUNDLE / "databricks.yml", *_JOBS):
        named = set(re.findall(r"\$\{([^}]+)\}", path.read_text(encoding="utf-8")))
        assert named <= variables | _WORKSPACE, path
    assert _read(_BUNDLE / "databricks.yml")["include"] == ["resources/*.job.yml"]


def test_the_notebook_is_python_in_cells() -> None:
    notebook = (_BUNDLE / "notebooks" / "look.py").read_text(encoding="utf-8")
    assert notebook.startswith("# Databricks notebook source\n")
    compile(notebook, "look.py", "exec")


def test_its_configuration_is_valid() -> None:
    assert load_configuration(str(_BUNDLE / "walreplay.yaml"))

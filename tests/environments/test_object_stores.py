"""An object store: S3's protocol over HTTP, each request late by 30 ms, some refused or cut off, runs killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.captures import Case, case
from support.environments import SMALL, Environment, compare, installed, say
from support.object_store import HADOOP, ObjectStore, object_store
from support.pages import block, with_places

_AWAY = 0.03
"""Seconds that each request takes longer, as in a store that is far."""

_MOST_REQUESTS = {"first": 300, "next": 250, "nothing new": 10}
"""Of runs with four small tables and seven capture files, each by a process of its own."""


class Lake:
    """A store, and the environment in which walreplay is run on it."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        settings = " ".join(f"--conf {name}={value}" for name, value in store.settings().items())
        submitted = f"--master local[2] {SMALL} {HADOOP} {settings} pyspark-shell"
        root = installed(("pyspark==4.2.0", "delta-spark==4.4.0", "pandas<3"))
        self.store = store
        self.environment = Environment(root, folder, {"PYSPARK_SUBMIT_ARGS": submitted})

    def put(self, recorded: Case, files: slice) -> None:
        """Store capture files."""
        for file in recorded.files[files]:
            self.store.put("lake", f"{recorded.name}/captures/{file.name}", file.read_bytes())

    def command(self, recorded: Case) -> str:
        """Give the page's command for a capture."""
        text = block("docs/running.md", "export PYSPARK_SUBMIT_ARGS='--packages").text.splitlines()[-1]
        return with_places(text, {"s3a://bucket": f"s3a://lake/{recorded.name}"})

    def apply(self, recorded: Case) -> tuple[str, int, float]:
        """Run it; give what it prints, the number of requests, and seconds."""
        began = time.monotonic()
        with self.store.counted() as counts:
            printed = self.environment.shell(self.command(recorded))
        return printed, sum(counts.values()), time.monotonic() - began

    def compare(self, recorded: Case) -> None:
        """Compare every table with the truth."""
        compare(self.environment, f"s3a://lake/{recorded.name}/mirror", recorded)


@contextmanager
def lake(folder: Path, *, faults: int = 0, delay: float = _AWAY) -> Iterator[Lake]:
    """Serve a store with a bucket."""
    with object_store(folder, delay, faults=faults) as store:
        store.make_bucket("lake")
        yield Lake(store, folder)


def test_two_halves_and_nothing_new_take_few_requests(tmp_path: Path) -> None:
    recorded = case("o03")
    half = len(recorded.files) // 2
    told = []
    with lake(tmp_path) as far:
        for name, files in (("first", slice(half)), ("next", slice(half, None)), ("nothing new", slice(0))):
            far.put(recorded, files)
            _, requests, seconds = far.apply(recorded)
            told.append(f"{name} {requests} requests, {seconds:.0f} s")
            assert requests < _MOST_REQUESTS[name], told
        far.compare(recorded)
    say(f"S3, 30 ms away: {'; '.join(told)}; {len(recorded.truth)} tables are right")


@pytest.mark.parametrize("at", ["staging/", "/_delta_log/00000000000000000000.json", "state/_delta_log/"])
def test_a_run_that_was_killed_is_finished(tmp_path: Path, at: str) -> None:
    recorded = case("o03")
    with lake(tmp_path) as far:
        far.put(recorded, slice(None))
        killed = subprocess.Popen(
            ["bash", "-euc", f"exec {far.command(recorded)}"],
            env=far.environment.variables_of_commands(),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        written = f"PUT /lake/{recorded.name}/mirror/"
        while not any(written in line and at in line for line in far.store.requests()):
            assert killed.poll() is None, "it has ended before it could be killed"
            time.sleep(0.01)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        far.apply(recorded)
        far.compare(recorded)
    say(f"S3: killed at {at} and run again: right")


def test_a_store_that_refuses_and_cuts_off_is_asked_again(tmp_path: Path) -> None:
    recorded = case("o03")
    with lake(tmp_path, faults=20, delay=0.0) as shaky:
        shaky.put(recorded, slice(0))
        for file in recorded.files:
            _put_again(shaky.store, f"{recorded.name}/captures/{file.name}", file.read_bytes())
        _, requests, _ = shaky.apply(recorded)
        shaky.compare(recorded)
    say(f"S3, of 20 requests one is answered by 503 and one is cut off: {requests} requests, right")


def _put_again(store: ObjectStore, key: str, data: bytes) -> None:
    for _ in range(5):
        try:
            return store.put("lake", key, data)
        except OSError:
            continue
    raise AssertionError("the store cannot be filled")


@pytest.mark.parametrize(
    ("captures", "target", "said"),
    [
        ("s3a://nowhere/captures", "s3a://lake/mirror", "the bucket nowhere does not exist"),
        ("s3a://closed/captures", "s3a://lake/mirror", "403"),
        ("s3a://lake/o03_basic_split_bytes/captures", "s3a://closed/mirror", "403"),
        ("s3a://lake/o03_basic_split_bytes/captures", "s3a://nowhere/mirror", "the bucket nowhere does not exist"),
    ],
)
def test_what_is_refused_is_told_in_one_line(tmp_path: Path, captures: str, target: str, said: str) -> None:
    with lake(tmp_path, delay=0.0) as far:
        far.put(case("o03"), slice(None))
        printed = far.environment.shell(f"walreplay apply --captures {captures} --target {target}", succeeds=False)
        assert "Traceback" not in printed
        assert said in printed

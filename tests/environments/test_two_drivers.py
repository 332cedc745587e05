"""Two drivers that apply to one target at the same time, in an object store or a folder: paused, killed, unarbitrated.

Each is a process with Spark of its own.  ``python test_two_drivers.py`` is one: it applies once for each line of its
input, and stands still, or ends at once, at the step that the line names by its number.

``WALREPLAY_LONG=100`` tries so many rounds, ``WALREPLAY_LEASE=120`` waits as long as a user's driver does.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from deltalake import DeltaTable

import walreplay
from support.environments import say
from support.framings import frame
from support.object_store import HADOOP, KEYS, ObjectStore, object_store
from support.small_mirror import INT4, TEXT, relation, row
from support.spark import spark_environment
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TESTS: Final = Path(__file__).parents[1]
_ROUNDS: Final = int(os.environ.get("WALREPLAY_LONG", "5"))
_LEASE: Final = float(os.environ.get("WALREPLAY_LEASE", "4"))
"""Seconds without a sign of life until the other driver takes over."""
_STEPS: Final = 15
"""A run reaches more steps than these."""
_CONFIG: Final = {"source": "shop", "outputs": ["mirror", "changelog"]}
_TABLE: Final = relation(9, "t", {"id": INT4, "v": TEXT})


class _Bucket:
    """A bucket of an object store."""

    name = "S3"
    spark, delta = "s3a://lake", "s3://lake"

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        store.make_bucket("lake")
        settings = " ".join(f"--conf {name}={value}" for name, value in store.settings().items())
        self.arguments = f"{HADOOP} {settings}"
        self.options = {
            "aws_access_key_id": KEYS["access"],
            "aws_secret_access_key": KEYS["secret"],
            "aws_region": "us-east-1",
            "aws_endpoint": store.endpoint,
            "aws_allow_http": "true",
        }

    def put(self, name: str, data: bytes) -> None:
        self._store.put("lake", name, data)


class _Disk:
    """A folder of this machine."""

    name = "a folder"
    arguments, options = "", dict[str, str]()

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.spark = self.delta = str(folder)

    def put(self, name: str, data: bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


_Lake = _Bucket | _Disk


class _Driver:
    def __init__(self, lake: _Lake, folder: Path) -> None:
        folder.mkdir()
        environment = {**os.environ, **spark_environment(folder, ""), "PYTHONPATH": str(_TESTS), "LAKE": lake.spark}
        environment["PYSPARK_SUBMIT_ARGS"] = f"{lake.arguments} --conf spark.ui.enabled=false pyspark-shell"
        self._errors = folder / "errors"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def begin(self, **what: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> str:
        """Return how the run has ended: its status, or the error; ``killed`` for a process that is gone."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().decode().strip()
        return said or "killed"

    def wake(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


class _Source:
    """A table's changes, a file each round, and what they make."""

    def __init__(self, lake: _Lake) -> None:
        self._lake = lake
        self._chance = random.Random(1)
        self.rows: dict[int, str] = {}
        self.operations: Counter[str] = Counter()
        self.files = 0

    def change(self) -> None:
        self.files += 1
        lsn, said = 100 * self.files, list[m.AnyMessage]([_TABLE])
        for id_ in self._chance.sample(range(20), 6):
            text = f"{self.files}.{id_}"
            if id_ not in self.rows:
                said.append(m.Insert(9, row(id_, text)))
                self.operations["c"] += 1
            elif self._chance.random() < 0.4:
                said.append(m.Delete(9, key=row(id_, None)))
                self.operations["d"] += 1
                del self.rows[id_]
                continue
            else:
                said.append(m.Update(9, row(id_, text)))
                self.operations["u"] += 1
            self.rows[id_] = text
        data = frame([m.Begin(lsn, lsn, self.files), *said, m.Commit(0, lsn, lsn + 8, lsn)], Framing.RAW)
        self._lake.put(f"captures/{self.files:04}.bin", data)

    def check(self) -> None:
        """Compare the tables with what the changes make: nothing is lost, nothing is there twice."""
        mirror = _read(self._lake, "s/t", ["id", "v"])
        assert dict(zip(mirror["id"], mirror["v"], strict=True)) == self.rows
        assert len(mirror["id"]) == len(self.rows)
        log = _read(self._lake, "s/t__changes", ["__op"])
        assert Counter(log["__op"]) == self.operations
        runs = _read(self._lake, "_walreplay/runs", ["run", "transactions"])
        assert len(set(runs["run"])) == len(runs["run"])
        assert sum(runs["transactions"]) == self.files


def _read(lake: _Lake, table: str, columns: list[str]) -> dict[str, list[Any]]:
    delta = DeltaTable(f"{lake.delta}/mirror/{table}", storage_options=lake.options)
    found: dict[str, list[Any]] = delta.to_pyarrow_table(columns=columns).to_pydict()
    return found


@contextmanager
def _drivers(lake: _Lake, folder: Path) -> Iterator[list[_Driver]]:
    drivers = [_Driver(lake, folder / "0")]
    try:
        # Its packages are fetched before the second one asks for them: Ivy's cache is not for two at once.
        drivers[0].begin()
        drivers[0].end()
        drivers.append(_Driver(lake, folder / "1"))
        yield drivers
    finally:
        for driver in drivers:
            driver.close()


@pytest.mark.parametrize("where", ["bucket", "folder"])
def test_of_two_drivers_one_wins_and_nothing_is_lost_or_doubled(where: str, tmp_path: Path) -> None:
    chance, endings = random.Random(7), Counter[str]()
    with ExitStack() as stack:
        lake: _Lake = _Disk(tmp_path / "lake")
        if where == "bucket":
            lake = _Bucket(stack.enter_context(object_store(tmp_path, 0.0)))
        source, drivers = _Source(lake), stack.enter_context(_drivers(lake, tmp_path))
        for number in range(_ROUNDS):
            source.change()
            harm = ("nothing", "pause", "pause", "kill")[number % 4]
            step = chance.randrange(1, _STEPS)
            drivers[0].begin(**({} if harm == "nothing" else {harm: step}))
            drivers[1].begin(delay=chance.randrange(0, 3))
            ended = [drivers[1].end()]
            drivers[0].wake()
            ended.append(drivers[0].end())
            endings.update(ended)
            assert all(said in ("applied", "nothing new", "killed", "at work", "lost") for said in ended), ended
            if ended[1] == "killed":
                drivers[0].close()
                drivers[0] = _Driver(lake, tmp_path / f"0-{number}")
                time.sleep(_LEASE)
            drivers[1].begin()
            assert drivers[1].end() in ("applied", "nothing new")
            source.check()
    say(f"{lake.name}: two drivers at once, {_ROUNDS} times, one paused or killed: right ({dict(endings)})")


def _main() -> None:
    from walreplay.ledger import state as lock
    from walreplay.session import steps
    from walreplay.session.session import build_session

    lock.LEASE = timedelta(seconds=_LEASE)  # type: ignore[misc]
    lock.BEAT_SECONDS = _LEASE / 4  # type: ignore[misc]
    spark = build_session("one of two drivers")
    for line in sys.stdin:
        told: dict[str, int] = json.loads(line)
        time.sleep(told.get("delay", 0))
        steps.on_step = _stand_still(told.get("pause", 0), told.get("kill", 0))
        deadline = time.monotonic() + 3 * _LEASE
        said = _apply(spark)
        while said == "at work" and time.monotonic() < deadline:
            time.sleep(0.5)
            said = _apply(spark)
        sys.stdout.write(said.replace("\n", " ") + "\n")
        sys.stdout.flush()


def _stand_still(pause: int, kill: int) -> Callable[[str], None]:
    reached = 0

    def on_step(_: str) -> None:
        nonlocal reached
        reached += 1
        if reached == kill:
            os.killpg(os.getpid(), signal.SIGKILL)
        if reached == pause:
            os.kill(os.getpid(), signal.SIGSTOP)

    return on_step


def _apply(spark: SparkSession) -> str:
    try:
        lake = os.environ["LAKE"]
        report = walreplay.apply(spark, captures=f"{lake}/captures", target=f"{lake}/mirror", config=_CONFIG)
    except walreplay.WalReplayError as error:
        text = str(error)
        return "at work" if "at work" in text else "lost" if "taken over" in text or "lost" in text else text
    return report.status


if __name__ == "__main__":
    _main()

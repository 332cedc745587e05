"""An object store: S3's protocol over HTTP, each request late by 30 ms, some refused or cut off, runs killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.captures import Case, case
from support.environments import SMALL, Environment, compare, installed, say
from support.framings import frame
from support.object_store import HADOOP, ObjectStore, object_store
from support.pages import block, with_places
from support.small_mirror import INT4, TEXT, relation, row
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

_AWAY = 0.03
"""Seconds that each request takes longer, as in a store that is far."""

_MOST_REQUESTS = {"first": 300, "next": 250, "nothing new": 10}
"""Of runs with four small tables and seven capture files, each by a process of its own."""

_NOBODY = "127.0.0.1:9"
"""Where nothing listens."""

_NIGHTS = 12
_MANY = 2000


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
        """Return the page's command for a capture."""
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
        _kill(far, far.command(recorded), f"PUT /lake/{recorded.name}/mirror/.*{re.escape(at)}")
        far.apply(recorded)
        far.compare(recorded)
    say(f"S3: killed at {at} and run again: right")


def _kill(far: Lake, command: str, at: str) -> None:
    """Run a command, and kill it with all its processes once it makes a request that a pattern finds."""
    before = len(far.store.requests())
    killed = subprocess.Popen(
        ["bash", "-euc", f"exec {command}"],
        env=far.environment.variables_of_commands(),
        cwd=far.environment.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not any(re.search(at, request) for request in far.store.requests()[before:]):
        assert killed.poll() is None, "it has ended before it could be killed"
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()


_APPLY_EACH = """
import sys
from pathlib import Path
import walreplay
from support.object_store import ObjectStore
from walreplay.job import context
from walreplay.session.session import build_session

context.COMPACT_EVERY_RUNS = 1 << 30
spark, (place, endpoint, *files) = build_session(), sys.argv[1:]
store = ObjectStore(endpoint, Path("unused"))
for number, file in enumerate(files):
    store.put("lake", f"{place}/captures/{number:03}.bin", Path(file).read_bytes())
    where = f"s3a://lake/{place}"
    walreplay.apply(
        spark, captures=f"{where}/captures", target=f"{where}/mirror", metrics=f"{where}/metrics",
    )
"""

_APPLY_OFTEN = """
import sys
from walreplay.cli import main
from walreplay.job import context

context.COMPACT_EVERY_RUNS = 1
sys.exit(main(sys.argv[1:]))
"""

_OPTIMIZED = r"PUT /lake/.*/_walreplay/\w+/part-\d+-.*-c000\.snappy\.parquet$"
"""The file that OPTIMIZE has written, and not yet committed."""


def test_ledger_and_tables_are_kept_small_there_also_if_that_is_killed(tmp_path: Path) -> None:
    recorded = case("o01")
    data = b"".join(recorded.streams())
    step = -(-len(data) // _NIGHTS)
    pieces = [tmp_path / f"{number:03}.bin" for number in range(_NIGHTS)]
    for number, piece in enumerate(pieces):
        piece.write_bytes(data[number * step : (number + 1) * step])
    (tmp_path / "nights.py").write_text(_APPLY_EACH)
    (tmp_path / "always.yaml").write_text("ledger_keep_days: 30\n")
    (tmp_path / "always.py").write_text(_APPLY_OFTEN)
    where = f"s3a://lake/{recorded.name}"
    maintain = f"walreplay maintain --target {where}/mirror"
    with lake(tmp_path) as far:
        every_night = f"python nights.py {recorded.name} {far.store.endpoint}"
        far.environment.shell(f"{every_night} {' '.join(map(str, pieces[:-1]))}")
        far.store.put("lake", f"{recorded.name}/captures/{_NIGHTS - 1:03}.bin", pieces[-1].read_bytes())
        apply = f"python always.py apply --config always.yaml --captures {where}/captures --target {where}/mirror"
        _kill(far, apply, _OPTIMIZED)
        assert "nothing new" in far.environment.shell(apply)
        dry = far.environment.shell(f"{maintain} --dry-run")
        assert re.search(r"ledger: runs .* optimize", dry), dry
        _kill(far, maintain, _OPTIMIZED)
        with far.store.counted() as counts:
            began = time.monotonic()
            far.environment.shell(f"{maintain} --report {where}/maintained.json")
            seconds = time.monotonic() - began
        report = json.loads(far.store.get("lake", f"{recorded.name}/maintained.json"))
        assert not any(table["problem"] for table in report["tables"])
        done = {table["name"] for table in report["tables"] if table["done"]}
        assert done >= {"ledger: runs", "ledger: files", "ledger: transactions"}
        with far.store.counted() as looked:
            assert "0 of " in far.environment.shell(f"{maintain} --dry-run")
        told = json.loads(far.environment.shell(f"walreplay status --target {where}/mirror --json 2>/dev/null"))
        assert [run["run"] for run in told["runs"]] == list(range(1, _NIGHTS + 1))
        far.compare(recorded)
        metrics = {request for request in far.store.requests() if f"PUT /lake/{recorded.name}/metrics/" in request}
        assert len(metrics) == _NIGHTS - 1
    say(
        f"S3: killed while it wrote the ledger's files together, and in maintain; then maintain took "
        f"{sum(counts.values())} requests, {seconds:.0f} s, and {sum(looked.values())} to find nothing to do: right"
    )


def test_many_small_captures_are_listed_once_and_each_is_read_for_its_scan_and_its_decode(tmp_path: Path) -> None:
    """Two requests are what Arrow's client needs for an object: it asks for the size first."""
    announced = relation(1, "t", {"id": INT4, "v": TEXT})
    with lake(tmp_path) as far:

        def put(number: int) -> None:
            lsn, first = 100 * (number + 1), (announced,) if number == 0 else ()
            changes = [*first, m.Insert(1, row(number, "x"))]
            data = frame([m.Begin(lsn, lsn, number + 1), *changes, m.Commit(0, lsn, lsn + 8, lsn)], Framing.RAW)
            far.store.put("lake", f"many/captures/{number:05}.bin", data)
            Path(tmp_path, "captures", f"{number:05}.bin").write_bytes(data)

        (tmp_path / "captures").mkdir()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(put, range(_MANY)))
        on_disk, _ = _apply_many(far, "./captures", "./mirror")
        seconds, counts = _apply_many(far, "s3a://lake/many/captures", "s3a://lake/many/mirror")
        for method in ("HEAD", "GET"):
            reads = [n for kind, n in counts.items() if re.fullmatch(rf"{method} /lake/many/captures/\d+\.bin", kind)]
            assert (len(reads), sum(reads)) == (_MANY, 2 * _MANY)
        listed = sum(n for kind, n in counts.items() if kind.startswith("GET /lake?") and "captures" in kind)
        assert listed <= _MANY // 1000 + 4, counts.most_common(20)
    requests = sum(counts.values())
    say(f"S3: {_MANY:,} small captures, {requests:,} requests: {seconds:.0f} s, a disk {on_disk:.0f} s")


def _apply_many(far: Lake, captures: str, target: str) -> tuple[float, Counter[str]]:
    """Apply many files; give seconds and requests."""
    began = time.monotonic()
    with far.store.counted() as counts:
        far.environment.shell(f"walreplay apply --captures {captures} --target {target} --report report.json")
    report = json.loads((far.environment.folder / "report.json").read_text())
    assert (report["files"], report["changes"]) == (_MANY, _MANY)
    return time.monotonic() - began, counts


def test_a_run_whose_credentials_expire_says_so_and_is_finished_with_others(tmp_path: Path) -> None:
    recorded = case("o03")
    with lake(tmp_path, delay=0.0) as far:
        far.put(recorded, slice(None))
        far.store.deny_from(r"PUT /lake/.*/mirror/(?!_walreplay).*/_delta_log/")
        printed = far.environment.shell(far.command(recorded), succeeds=False)
        (told,) = [line for line in printed.splitlines() if line.startswith("error:")]
        # What Spark's own executor logs of the task stands above.
        assert "denies access" in told, printed
        assert "Traceback" not in told
        far.store.deny_from(None)
        far.apply(recorded)
        far.compare(recorded)
    say("S3: credentials that expire in the middle are told; run again with others: right")


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
        ("s3a://closed/captures", "s3a://lake/mirror", "the store denies access"),
        ("s3a://lake/o03_basic_split_bytes/captures", "s3a://closed/mirror", "the store denies access"),
        ("s3a://lake/o03_basic_split_bytes/captures", "s3a://nowhere/mirror", "the bucket nowhere does not exist"),
        ("s3a://unlisted/captures", "s3a://lake/mirror", "the store denies access"),
    ],
)
def test_what_is_refused_is_told_in_one_line(tmp_path: Path, captures: str, target: str, said: str) -> None:
    with lake(tmp_path, delay=0.0) as far:
        far.put(case("o03"), slice(None))
        printed = far.environment.shell(f"walreplay apply --captures {captures} --target {target}", succeeds=False)
        assert "Traceback" not in printed
        assert said in printed, printed


def test_a_store_that_does_not_answer_is_told_in_one_line(tmp_path: Path) -> None:
    recorded = case("o03")
    away = Lake(ObjectStore(f"http://{_NOBODY}", tmp_path / "no.log"), tmp_path)
    for captures, target in (("s3a://lake/captures", "./mirror"), (str(recorded.folder), "s3a://lake/mirror")):
        printed = away.environment.shell(f"walreplay apply --captures {captures} --target {target}", succeeds=False)
        assert "Traceback" not in printed
        assert f"nothing answers at {_NOBODY}" in printed, printed


def test_with_a_setting_that_arrow_does_not_know_spark_does_the_work(tmp_path: Path) -> None:
    recorded = case("o03")
    with lake(tmp_path, delay=0.0) as far:
        far.put(recorded, slice(None))
        variables = far.environment.variables
        submitted = variables["PYSPARK_SUBMIT_ARGS"]
        more = "--conf spark.hadoop.fs.s3a.requester.pays.enabled=true pyspark-shell"
        by_spark = {"PYSPARK_SUBMIT_ARGS": submitted.replace("pyspark-shell", more)}
        far.environment = Environment(far.environment.root, tmp_path, {**variables, **by_spark})
        printed = far.environment.shell(far.command(recorded), succeeds=False)
        assert "Name one in the configuration" in printed, printed
        (tmp_path / "staged.yaml").write_text(f"staging: {tmp_path / 'staged'}\n", encoding="utf-8")
        printed = far.environment.shell(f"{far.command(recorded)} --config staged.yaml")
        assert "written by Spark's statements" in printed, printed
        far.compare(recorded)

"""`apply` of captures in an object store to tables there, beside the same on a local disk.

Each request to the store takes 30 ms longer.  There are two servers: the tests' own (moto, in Python), which takes 20
ms of a core for each MB that is stored; and, if Go is installed, versitygw, which takes a tenth of that.  Both share
the machine's cores with Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from generate import MEGABYTE, write_archive
from measuring import Timing, Work, compared, in_turn
from pyarrow import fs

from support.environments import free_port
from support.object_store import HADOOP, KEYS, ObjectStore, object_store
from support.spark import spark_environment
from walreplay import apply
from walreplay.session.session import build_session

_TESTS: Final = Path(__file__).parents[1]
_FILE_BYTES: Final = 32 * MEGABYTE
_DELAY: Final = 0.03
_SERVERS: Final = ("moto", "versitygw")
_VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_BUCKET: Final = "lake"
_PATIENCE: Final = 60.0


def run(folder: Path, megabytes: int, runs: int) -> list[list[Timing]]:
    """Measure orders of so many megabytes, with each server in a process of its own."""
    archive = write_archive(folder / f"far-{megabytes}", megabytes * MEGABYTE, _FILE_BYTES)
    groups = []
    for server in _SERVERS:
        if server == "versitygw" and not _built(folder):
            continue
        command = [sys.executable, __file__, str(archive), server, str(runs)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_TESTS), str(Path(__file__).parent)])}
        # Ivy says a page.
        with Path(folder, f"{server}.log").open("wb") as log:
            said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=log, check=True).stdout
        timings = [Timing(**found) for found in json.loads(said.splitlines()[-1])]
        groups.append(compared(timings, timings[0].name))
    return groups


def _built(folder: Path) -> bool:
    """Build the programs in Go; say whether they are there."""
    if shutil.which("go") is None:
        return False
    there = {**os.environ, "GOBIN": str(folder.resolve())}
    for arguments in (["install", _VERSITYGW], ["build", "-o", str(folder.resolve() / "late"), "."]):
        if subprocess.run(["go", *arguments], cwd=Path(__file__).parent / "peers" / "late", env=there).returncode:
            return False
    return True


@contextmanager
def _gateway(programs: Path, scratch: Path) -> Iterator[ObjectStore]:
    (scratch / "store").mkdir()
    here, behind = (f"127.0.0.1:{free_port()}" for _ in range(2))
    log = scratch / "requests.log"
    log.touch()
    keys = {"ROOT_ACCESS_KEY": KEYS["access"], "ROOT_SECRET_KEY": KEYS["secret"]}
    commands = (
        [str(programs / "versitygw"), "--port", behind, "--quiet", "posix", str(scratch / "store")],
        [str(programs / "late"), here, f"http://{behind}", f"{_DELAY}s", str(log)],
    )
    begun = [subprocess.Popen(one, env={**os.environ, **keys}, stdout=subprocess.DEVNULL) for one in commands]
    try:
        _await(behind, here)
        yield ObjectStore(f"http://{here}", log)
    finally:
        for process in begun:
            process.kill()
            process.wait()


def _measure(archive: Path, server: str, runs: int) -> list[Timing]:
    """Measure with one server, in this process; sides take turns."""
    with TemporaryDirectory() as made, ExitStack() as stack:
        scratch = Path(made)
        serving = object_store(scratch, _DELAY) if server == "moto" else _gateway(archive.parent, scratch)
        store = stack.enter_context(serving)
        client = fs.S3FileSystem(
            access_key=KEYS["access"],
            secret_key=KEYS["secret"],
            region="us-east-1",
            endpoint_override=store.endpoint,
            allow_bucket_creation=True,
        )
        client.create_dir(_BUCKET)
        files = sorted(archive.glob("*.bin"))
        for file in files:
            with client.open_output_stream(f"{_BUCKET}/captures/{file.name}") as copy:
                copy.write(file.read_bytes())
        os.environ.update(spark_environment(scratch, ""))
        settings = " ".join(f"--conf {name}={value}" for name, value in store.settings().items())
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--conf spark.driver.memory=3g {HADOOP} {settings} pyspark-shell"
        return _timings(files, store, scratch, server, runs)


def _timings(files: list[Path], store: ObjectStore, scratch: Path, server: str, runs: int) -> list[Timing]:
    spark = build_session("walreplay bench")
    local = scratch / "captures"
    local.mkdir()
    for file in files:
        (local / file.name).symlink_to(file.resolve())
    requests: dict[str, list[int]] = {}

    def side(name: str, captures: str, target: str, commits: str) -> Work:
        def work() -> None:
            with patch.dict(os.environ, {"WALREPLAY_COMMITS": commits}), store.counted() as counts:
                apply(spark, captures, f"{target}-{len(requests.setdefault(name, []))}", {"source": "bench"})
            requests[name].append(sum(counts.values()))

        return work

    far = f"s3a://{_BUCKET}"
    sides = {
        "local disk": side("local disk", str(local), str(scratch / "mirror"), ""),
        f"S3 ({server})": side(f"S3 ({server})", f"{far}/captures", f"{far}/files", ""),
        f"S3 ({server}), Spark reads and writes": side("spark", f"{far}/captures", f"{far}/spark", "spark"),
    }
    taken = in_turn(sides, runs)
    told = dict(zip(sides, requests.values(), strict=True))
    size = sum(file.stat().st_size for file in files)
    return [Timing("stores", name, seconds, size, {"requests": told[name][-1]}) for name, seconds in taken.items()]


def _await(*addresses: str) -> None:
    ends = time.monotonic() + _PATIENCE
    for address in addresses:
        host, _, port = address.partition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.1)


if __name__ == "__main__":
    measured = _measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    names = ("section", "name", "seconds", "bytes", "more")
    print(json.dumps([{name: getattr(timing, name) for name in names} for timing in measured]))

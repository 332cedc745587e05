"""The recorder beside pg_recvlogical: the same changes, from the start of a process until the server has its word.

pg_recvlogical gives it for a file on this machine; the recorder for what was cut, compressed, stored and read again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil
from measuring import Timing, compared

from support.postgres import Server, running_server
from support.recording import Recorder, confirmed_lsn

_ROWS: Final = 3_000_000  # so many that the start of a process does not count
_ROWS_OF_A_TRANSACTION: Final = 5_000
_SIDES: Final = ("pg_recvlogical", "record")  # the former is what the latter is compared with
_OPTIONS: Final = {"proto_version": "4", "publication_names": "archive"}


def run(runs: int) -> list[list[Timing]]:
    """Measure both in turn, each time from a slot of its own; the figures are their time, and their processors'."""
    with (
        running_server(18, settings={"max_wal_size": "8GB", "max_replication_slots": f"{2 * runs}"}) as server,
        tempfile.TemporaryDirectory() as name,
    ):
        folder = Path(name)
        folder.chmod(0o777)  # the server's programs run as another user
        end = _change(server, runs)
        seconds: dict[str, list[float]] = {side: [] for side in _SIDES}
        processor_seconds: dict[str, list[float]] = {side: [] for side in _SIDES}
        for number in range(runs):
            for side in _SIDES:
                slot = f"{side}_{number}"
                began = time.perf_counter()
                process = _START[side](server, folder, slot)
                processor_seconds[side].append(_followed(process, server, slot, end))
                seconds[side].append(time.perf_counter() - began)
                os.kill(process.pid, signal.SIGINT)
                process.wait()
        size = (folder / "pg_recvlogical_0.bin").stat().st_size
        stored = sum(path.stat().st_size for path in (folder / "record_0").iterdir() if path.is_file())
    return [
        compared([Timing("record", f"{side}, {what}", values[side], size) for side in _SIDES], f"{_SIDES[0]}, {what}")
        for what, values in (("all", seconds), (f"processor ({stored >> 20} MiB stored)", processor_seconds))
    ]


def _change(server: Server, runs: int) -> int:
    """Make the slots and then the changes; return the LSN behind these."""
    server.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, note text, amount int, at timestamptz DEFAULT now())",
        "CREATE PUBLICATION archive FOR TABLE orders",
        *(
            f"SELECT pg_create_logical_replication_slot('{side}_{number}', 'pgoutput')"
            for number in range(runs)
            for side in _SIDES
        ),
    )
    for first in range(0, _ROWS, _ROWS_OF_A_TRANSACTION):
        last = first + _ROWS_OF_A_TRANSACTION - 1
        server.execute(
            f"INSERT INTO orders SELECT n, 'the note of order ' || n, n FROM generate_series({first}, {last}) AS n"
        )
    return server.lsn()


def _start_recvlogical(server: Server, folder: Path, slot: str) -> subprocess.Popen[bytes]:
    often = ("--no-loop", "--fsync-interval", "1", "--status-interval", "1")
    return server.receive(folder / f"{slot}.bin", slot, _OPTIONS, *often, errors=folder / "errors")


def _start_recorder(server: Server, folder: Path, slot: str) -> subprocess.Popen[bytes]:
    often = ("--heartbeat", "0", "--file-seconds", "1")
    recorder = Recorder(server, str(folder / slot), folder / "log", "--slot", slot, *often)
    recorder.start()
    assert recorder.process is not None
    return recorder.process


_START: Final = {"pg_recvlogical": _start_recvlogical, "record": _start_recorder}


def _followed(process: subprocess.Popen[bytes], server: Server, slot: str, end: int) -> float:
    """Wait until a slot is confirmed up to an LSN; return the seconds that the process has used."""
    while (confirmed_lsn(server, slot) or 0) < end:
        if process.poll() is not None:
            raise RuntimeError(f"it has ended with {process.returncode}")
        time.sleep(0.05)
    used = psutil.Process(process.pid).cpu_times()
    return used.user + used.system

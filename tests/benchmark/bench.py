"""Measure how fast captures are decoded, on one core: ``make bench``.

For each capture: the walk alone (message boundaries, what the scan of a file costs), and `read_changes` to typed
Arrow batches, files already in the page cache and kernels compiled.  Medians, with the extremes beside them; wall
clocks swing from run to run, so compare figures of one run only.  Results also go to ``build/bench.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

# The benchmark speaks of one core: Arrow's own threads would help themselves to the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from generate import write_capture

from wal2delta import read_changes
from wal2delta.changes import plan_files

MEGABYTE = 1_000_000


def measure(work: Callable[[], int], runs: int) -> tuple[list[float], int]:
    """Give the seconds of each run, the first (warming up) left out, and what the work counted."""
    count = work()
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        count = work()
        seconds.append(time.perf_counter() - began)
    return seconds, count


def decode(path: Path) -> int:
    """Decode a capture to Arrow and count its row changes."""
    return sum(batch.data.num_rows for batch in read_changes(path))


def scan(path: Path) -> int:
    """Find a capture's boundaries and count its transactions."""
    return plan_files([str(path)]).transactions


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=208, help="size of each capture")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the median is taken")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"))
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    folder = arguments.output.parent / "bench"
    table = Table(title=f"Decode on one core, {arguments.megabytes} MB captures, {arguments.runs} runs")
    for header in ("capture", "framing", "what", "MB/s median", "min", "max", "million changes/s"):
        table.add_column(header, justify="left" if header in ("capture", "framing", "what") else "right")
    results = []
    for kind in ("pgbench", "orders"):
        for framing, newline in (("recvlogical", True), ("raw", False)):
            path = folder / f"{kind}-{framing}-{arguments.megabytes}.bin"
            write_capture(path, kind, arguments.megabytes * MEGABYTE, newline=newline)
            size = path.stat().st_size
            for what, work in (("boundaries", scan), ("read_changes", decode)):
                seconds, count = measure(lambda work=work, path=path: work(path), arguments.runs)
                speeds = sorted(size / MEGABYTE / value for value in seconds)
                median = statistics.median(speeds)
                changes = count / statistics.median(seconds) / 1e6 if what == "read_changes" else None
                results.append(
                    {
                        "capture": kind,
                        "framing": framing,
                        "what": what,
                        "bytes": size,
                        "seconds": seconds,
                        "median_mb_per_s": median,
                        "million_changes_per_s": changes,
                    }
                )
                table.add_row(
                    kind,
                    framing,
                    what,
                    f"{median:,.0f}",
                    f"{speeds[0]:,.0f}",
                    f"{speeds[-1]:,.0f}",
                    "" if changes is None else f"{changes:.2f}",
                )
    Console().print(table)
    report = {"python": platform.python_version(), "machine": platform.machine(), "results": results}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

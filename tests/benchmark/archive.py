"""How time and memory grow with an archive: `apply` of its first files, and of more of them, each in a process anew.

Two more archives are of a kind of their own: millions of small transactions, and one of gigabytes that is streamed.
The driver's heap is a gigabyte, whatever the archive's size.  Every process that a run has is watched: the peak of what
is resident of the Java virtual machine, and of the Python worker that needs most.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pygal
import streamed
from generate import MEGABYTE, files_in, write_archive
from measuring import Timing

HEAP = "1g"
FILE_BYTES = 32 * MEGABYTE
_GIGABYTE = 1000 * MEGABYTE
_MANY = 1_350 * MEGABYTE
_HUGE = 2_000 * MEGABYTE
_CONFIG = {"source": "bench"}


def run(folder: Path, sizes: Sequence[float], charts: Path) -> list[list[Timing]]:
    """Measure archives of so many gigabytes, and draw the curves; then those that are of a kind of their own."""
    return [_by_size(folder, sizes, charts), [_many_transactions(folder), _one_transaction(folder)]]


def _by_size(folder: Path, sizes: Sequence[float], charts: Path) -> list[Timing]:
    archive = write_archive(folder / f"archive-{max(sizes):g}", int(max(sizes) * _GIGABYTE), FILE_BYTES)
    timings = [_measured(folder / "archive-run", archive, size) for size in sorted(sizes)]
    slope, base = _line(timings)
    for timing in timings:
        expected = base + slope * timing.bytes
        timing.more |= {"line_s": round(expected, 2), "residual": round(timing.median / expected - 1, 3)}
    _draw(timings, charts, slope, base)
    return timings


def _many_transactions(folder: Path) -> Timing:
    captures = write_archive(folder / "transactions", _MANY, FILE_BYTES, "pgbench")
    timing = watched(captures, folder / "archive-run" / "mirror", HEAP)
    timing.name = f"{timing.more['transactions']:,} transactions"
    return timing


def _one_transaction(folder: Path) -> Timing:
    """Apply one streamed transaction of many savepoints; its tables are looked at afterwards."""
    made = folder / "transaction"
    if not (made / "expected.json").exists():
        shutil.rmtree(made, ignore_errors=True)
        streamed.write_capture(made, _HUGE, -(-_HUGE // (2 * FILE_BYTES)))
    mirror = folder / "archive-run" / "mirror"
    timing = watched(made / "capture", mirror, HEAP, keep=True)
    command = [sys.executable, streamed.__file__, str(made), "--check", str(mirror)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(mirror)
    timing.name = f"one transaction of {timing.bytes / _GIGABYTE:.1f} GB"
    return timing


def _line(timings: Sequence[Timing]) -> tuple[float, float]:
    """Fit seconds to bytes; each size counts alike, whatever its own."""
    sizes, seconds = (np.array(values) for values in ([t.bytes for t in timings], [t.median for t in timings]))
    if len(timings) == 1:
        return float(seconds[0] / sizes[0]), 0.0
    slope, base = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    return float(slope), float(base)


def _measured(folder: Path, archive: Path, size: float) -> Timing:
    captures = folder / "captures"
    shutil.rmtree(captures, ignore_errors=True)
    captures.mkdir(parents=True)
    files = files_in(archive)[: max(1, round(size * _GIGABYTE / FILE_BYTES))]
    for path in files:
        (captures / path.name).hardlink_to(path)
    timing = watched(captures, folder / "mirror", HEAP)
    timing.name = f"{timing.bytes / _GIGABYTE:.2f} GB, {timing.more['transactions']:,} transactions"
    return timing


def watched(captures: Path, target: Path, heap: str, *, keep: bool = False, until: datetime | None = None) -> Timing:
    """Apply captures to a new target in a process with so much heap, and watch what it takes.

    The target goes afterwards, but to ``keep`` it.  ``until`` is a time at which a backfill ends.

    Gives beside the seconds: transactions, changes, MB spilled and shuffled by Spark, peaks of memory, and the stages.
    """
    for path in (target, target.with_name(f"{target.name}-warm")):
        shutil.rmtree(path, ignore_errors=True)
    report = in_process([__file__, str(captures), str(target), *([] if until is None else [until.isoformat()])], heap)
    sizes = [path.stat().st_size for path in files_in(captures)]
    if not keep:
        shutil.rmtree(target)
    seconds = report.pop("seconds")
    report["files"] = len(sizes)
    return Timing("archive", captures.name, [seconds], sum(sizes), report)


def in_process(arguments: Sequence[str], heap: str) -> dict[str, Any]:
    """Run a script of Python with so much heap; give what its last line says, as JSON, and its peaks of memory."""
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--conf spark.driver.memory={heap} pyspark-shell"}
    with subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True) as process:
        watch = _Watch(process.pid)
        output, _ = process.communicate()
        watch.stop()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} has failed")
    peaks = {"java_peak_mb": round(watch.java / MEGABYTE), "worker_peak_mb": round(watch.worker / MEGABYTE)}
    return {**json.loads(output.splitlines()[-1]), **peaks}


@dataclass
class _Watch:
    """The peaks of resident memory, in bytes, of a process's descendants."""

    pid: int
    java: int = 0
    worker: int = 0
    _done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.1):
            try:
                below = psutil.Process(self.pid).children(recursive=True)
            except psutil.NoSuchProcess:
                return
            for process in below:
                try:
                    size, name = process.memory_info().rss, process.name()
                except psutil.NoSuchProcess:
                    continue
                if name == "java":
                    self.java = max(self.java, size)
                elif name.startswith("python"):
                    # Not what Java begins as a copy of itself, for a moment.
                    self.worker = max(self.worker, size)


def _draw(timings: Sequence[Timing], charts: Path, slope: float, base: float) -> None:
    charts.mkdir(parents=True, exist_ok=True)
    sizes = [timing.bytes / _GIGABYTE for timing in timings]
    chart = pygal.XY(title="apply: seconds by gigabytes of captures", x_title="GB", y_title="s", stroke=False)
    chart.add("measured", [(size, timing.median) for size, timing in zip(sizes, timings, strict=True)])
    ends = (0, max(sizes))
    chart.add("fitted line", [(size, base + slope * size * _GIGABYTE) for size in ends], stroke=True, show_dots=False)
    chart.render_to_file(str(charts / "time-by-size.svg"))
    chart = pygal.XY(title="peak memory by gigabytes of captures", x_title="GB", y_title="MB")
    for name, key in (("Java", "java_peak_mb"), ("worker", "worker_peak_mb")):
        chart.add(name, [(size, timing.more[key]) for size, timing in zip(sizes, timings, strict=True)])
    chart.render_to_file(str(charts / "memory-by-size.svg"))


def _apply(captures: str, target: str, until: str | None = None) -> dict[str, Any]:
    """Apply captures in this process, the session up and warm, and say what that took."""
    from walreplay import apply, backfill
    from walreplay.session.session import build_session

    spark = build_session("walreplay bench")
    first = files_in(Path(captures))[0]
    apply(spark, first, f"{target}-warm", _CONFIG)
    before = _moved(spark)
    began = time.perf_counter()
    if until is None:
        report = apply(spark, captures, target, _CONFIG)
    else:
        report = backfill(spark, captures, target, _CONFIG, until_time=until)
    seconds = time.perf_counter() - began
    spilled, shuffled = (now - then for now, then in zip(_moved(spark), before, strict=True))
    heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
    return {
        "seconds": seconds,
        "transactions": report.transactions,
        "changes": report.changes,
        "stages_s": {name: round(value, 2) for name, value in report.stages.items()},
        "heap_mb": round(heap / MEGABYTE),
        "spilled_mb": round(spilled / MEGABYTE, 3),
        "shuffled_mb": round(shuffled / MEGABYTE, 3),
    }


def _moved(spark: Any) -> tuple[int, int]:
    """Return how many bytes Spark's tasks have spilled to disk and written for shuffles so far."""
    store = spark.sparkContext._jsc.sc().statusStore()
    # Scala's arguments have no defaults here.
    found = store.stageList(None, *(getattr(store, f"stageList$default${number}")() for number in range(2, 6)))
    stages = [found.apply(number) for number in range(found.size())]
    return sum(stage.diskBytesSpilled() for stage in stages), sum(stage.shuffleWriteBytes() for stage in stages)


if __name__ == "__main__":
    print(json.dumps(_apply(*sys.argv[1:4])))

"""How time and memory grow with an archive: `apply` of its first files, and of more of them, each in a process anew.

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
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pygal
from generate import MEGABYTE, write_archive
from measuring import Timing

HEAP = "1g"
FILE_BYTES = 32 * MEGABYTE
_GIGABYTE = 1000 * MEGABYTE
_CONFIG = {"source": "bench"}


def run(folder: Path, sizes: Sequence[float], charts: Path) -> list[list[Timing]]:
    """Measure archives of so many gigabytes, and draw the curves."""
    archive = write_archive(folder / f"archive-{max(sizes):g}", int(max(sizes) * _GIGABYTE), FILE_BYTES)
    timings = [_measured(folder / "archive-run", archive, size) for size in sorted(sizes)]
    slope, base = _line(timings)
    for timing in timings:
        expected = base + slope * timing.bytes
        timing.more |= {"line_s": round(expected, 2), "residual": round(timing.median / expected - 1, 3)}
    _draw(timings, charts, slope, base)
    return [timings]


def _line(timings: Sequence[Timing]) -> tuple[float, float]:
    """Fit seconds to bytes; each size counts alike, whatever its own."""
    sizes, seconds = (np.array(values) for values in ([t.bytes for t in timings], [t.median for t in timings]))
    if len(timings) == 1:
        return float(seconds[0] / sizes[0]), 0.0
    slope, base = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    return float(slope), float(base)


def _measured(folder: Path, archive: Path, size: float) -> Timing:
    shutil.rmtree(folder, ignore_errors=True)
    captures = folder / "captures"
    captures.mkdir(parents=True)
    files = sorted(archive.iterdir())[: max(1, round(size * _GIGABYTE / FILE_BYTES))]
    for path in files:
        (captures / path.name).hardlink_to(path)
    options = f"--conf spark.driver.memory={HEAP} pyspark-shell"
    command = [sys.executable, __file__, str(captures), str(folder / "mirror")]
    with subprocess.Popen(
        command, env={**os.environ, "PYSPARK_SUBMIT_ARGS": options}, stdout=subprocess.PIPE, text=True
    ) as process:
        watch = _Watch(process.pid)
        output, _ = process.communicate()
        watch.stop()
    if process.returncode:
        raise SystemExit(f"the run of {size:g} GB has failed")
    report: dict[str, Any] = json.loads(output.splitlines()[-1])
    shutil.rmtree(folder)
    more = {
        "files": len(files),
        **{name: report[name] for name in ("transactions", "changes", "spilled_mb", "heap_mb", "stages_s")},
        "java_peak_mb": round(watch.java / MEGABYTE),
        "worker_peak_mb": round(watch.worker / MEGABYTE),
    }
    total = sum(path.stat().st_size for path in files)
    return Timing(
        "archive",
        f"{total / _GIGABYTE:.2f} GB, {report['transactions']:,} transactions",
        [report["seconds"]],
        total,
        more,
    )


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


def _apply(captures: str, target: str) -> dict[str, Any]:
    """Apply captures in this process, the session up and warm, and say what that took."""
    from wal2delta import apply
    from wal2delta.spark.session import build_session

    spark = build_session("wal2delta bench")
    first = sorted(Path(captures).iterdir())[0]
    apply(spark, first, f"{target}-warm", _CONFIG)
    began = time.perf_counter()
    report = apply(spark, captures, target, _CONFIG)
    seconds = time.perf_counter() - began
    heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
    return {
        "seconds": seconds,
        "transactions": report.transactions,
        "changes": report.changes,
        "stages_s": {name: round(value, 2) for name, value in report.stages.items()},
        "heap_mb": round(heap / MEGABYTE),
        "spilled_mb": round(_spilled(spark) / MEGABYTE),
    }


def _spilled(spark: Any) -> int:
    """Give how many bytes Spark's tasks have spilled to disk."""
    store = spark.sparkContext._jsc.sc().statusStore()
    # Scala's arguments have no defaults here.
    stages = store.stageList(None, *(getattr(store, f"stageList$default${number}")() for number in range(2, 6)))
    return sum(stages.apply(number).diskBytesSpilled() for number in range(stages.size()))


if __name__ == "__main__":
    print(json.dumps(_apply(*sys.argv[1:3])))

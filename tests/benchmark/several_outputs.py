"""What a history and a change log cost beside the mirror: the same captures into new targets, in turn."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from applying import size_of
from generate import MEGABYTE, Shape, write_files
from measuring import Timing, compared, in_turn

from walreplay import apply
from walreplay.session.session import build_session

_FILES = 8
_OUTPUTS = (["mirror"], ["mirror", "changelog"], ["mirror", "history"], ["mirror", "history", "changelog"])


def run(folder: Path, megabytes: int, runs: int) -> list[list[Timing]]:
    """Measure new targets of small and of wide rows."""
    spark = build_session("walreplay bench")
    groups = []
    for kind in ("pgbench", "orders"):
        captures = write_files(folder / f"{kind}-{megabytes}-files", Shape(kind), megabytes * MEGABYTE, _FILES)
        target = folder / "mirror" / f"{kind}-outputs"
        sides = {
            f"{kind}: {', '.join(outputs)}": partial(
                apply, spark, captures, target, {"source": "bench", "outputs": outputs}
            )
            for outputs in _OUTPUTS
        }
        before = dict.fromkeys(sides, partial(shutil.rmtree, target, ignore_errors=True))
        taken = in_turn(sides, runs, before=before)
        timings = [Timing("outputs", name, seconds, size_of(captures)) for name, seconds in taken.items()]
        groups.append(compared(timings, next(iter(sides))))
    return groups

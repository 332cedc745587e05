"""An archive that is backfilled to its middle by time, beside `apply` of the files that the half lies in."""

from __future__ import annotations

import shutil
from pathlib import Path

from archive import FILE_BYTES, HEAP, watched
from generate import MEGABYTE, files_in, write_archive
from measuring import Timing, compared

from walreplay.archive.messages import inspect_captures

_GIGABYTE = 1000 * MEGABYTE


def run(folder: Path, gigabytes: float) -> list[list[Timing]]:
    """Measure it with an archive of so many gigabytes, a process each; the heap is a gigabyte."""
    archive = write_archive(folder / f"archive-{gigabytes:g}", int(gigabytes * _GIGABYTE), FILE_BYTES)
    files = files_in(archive)
    first, last = (inspect_captures([path]) for path in (files[0], files[-1]))
    assert first.first_commit is not None
    assert last.last_commit is not None
    middle = first.first_commit + (last.last_commit - first.first_commit) / 2
    work = folder / "backfill-run"
    half = work / "half"
    shutil.rmtree(work, ignore_errors=True)
    half.mkdir(parents=True)
    for path in files[: len(files) // 2]:
        (half / path.name).hardlink_to(path)
    applied = watched(half, work / "mirror", HEAP)
    backfilled = watched(archive, work / "mirror", HEAP, until=middle)
    # It takes what `apply` of the same transactions takes, but that it lists all and reads up to the end.
    backfilled.bytes = applied.bytes
    for timing, name in ((applied, "apply of its first half"), (backfilled, "backfill to its middle")):
        timing.section = "backfill"
        timing.name = f"{gigabytes:g} GB: {name}, {timing.more['transactions']:,} transactions"
    return [compared([applied, backfilled], applied.name)]

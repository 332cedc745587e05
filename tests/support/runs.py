"""Runs over capture files in memory: which files a run reads and what it plans, without Spark.

It decides as `walreplay.job.apply` does: files in the order of their names, the newest of which may have grown
since; the first is scanned from where the last run ended, the others from a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from walreplay.decode.files import ScanTask, scan_file
from walreplay.decode.scan import Until
from walreplay.ledger.state import from_json, to_json
from walreplay.protocol.framing import Framing
from walreplay.protocol.messages import Relation
from walreplay.spark.workers.decode import Assigned, DecodeTask, decode_batches
from walreplay.spark.workers.rows import ERROR_TABLE
from walreplay.stream.plan import Plan, Resume
from walreplay.stream.stitch import Stitch
from walreplay.task_settings import TaskSettings
from walreplay.types.text import UTF8

Files = Mapping[str, bytes]
"""The captures' files by name, in their order."""


def cut(data: bytes, places: Sequence[int], prefix: str = "") -> dict[str, bytes]:
    """Cut bytes into files at some places; equal places make empty files."""
    edges = [0, *sorted(places), len(data)]
    return {f"{prefix}part{number:04}": data[start:end] for number, (start, end) in enumerate(pairwise(edges))}


def grown_to(files: Files, size: int) -> dict[str, bytes]:
    """Return the files as they were when only so many bytes of the stream had been written."""
    result: dict[str, bytes] = {}
    for name, content in files.items():
        result[name] = content[:size]
        size -= len(content)
        if size < 0:
            break
    return result


@dataclass(frozen=True)
class Planned:
    """A run's plan, as it is after it was stored, and how many guesses did not hold."""

    plan: Plan
    rescans: int


def plan_run(
    files: Files,
    stored: str | None,
    *,
    guessing: bool = True,
    framing: Framing | None = None,
    codec: str = UTF8,
    wants_origin: Callable[[str | None], bool] = lambda _: True,
    until: Until | None = None,
) -> Planned | None:
    """Plan the next run.

    Args:
        files: all that are there.
        stored: where the last run ended, as JSON; None for the first.
        guessing: scan the files as if in parallel; else each from its true place.
        framing: where it is known.
        codec: what names are in.
        wants_origin, until: see `Stitch`.

    Returns:
        None when nothing has come since the last run.
    """
    resume = None if stored is None else from_json(Resume, stored)
    reading = what_is_new(files, resume)
    if not reading:
        return None
    stitch = Stitch(resume, wants_origin=wants_origin, until=until)
    rescans = 0
    for number, name in enumerate(reading):
        if stitch.state.ended:
            break
        content = files[name]
        if number == 0 and resume is not None:
            known = resume.length if name == resume.path else 0
            start = resume.offset if name == resume.path else 0
            task = ScanTask(framing, resume.place, start, known_length=known, codec=codec, until=until)
            scan = scan_file(name, content, task)
            assert not known or scan.known_fingerprint == resume.fingerprint
            stitch.add_exact(scan)
        elif number == 0 or not guessing:
            stitch.add_exact(scan_file(name, content, stitch.next_scan(framing, codec)))
        elif not stitch.add(scan_file(name, content, ScanTask(framing, codec=codec))):
            rescans += 1
            stitch.add_exact(scan_file(name, content, stitch.next_scan(framing, codec)))
    plan = stitch.plan()
    stored_plan = from_json(Plan, to_json(plan))
    assert stored_plan == plan
    return Planned(stored_plan, rescans)


def what_is_new(files: Files, resume: Resume | None) -> list[str]:
    """Return the files that the next run reads, behind where the last one has ended."""
    names = list(files)
    if resume is None:
        return names
    last = names.index(resume.last_path)
    later = names[last + 1 :]
    if not (later or resume.has_more) and len(files[resume.last_path]) == resume.last_length:
        return []
    again = names[names.index(resume.path) : last + 1]
    if resume.done and len(files[resume.path]) == resume.length:
        again.remove(resume.path)
    return [*again, *later]


def plan_runs(
    stages: Sequence[Files], *, guessing: bool = True, framing: Framing | None = None, codec: str = UTF8
) -> Iterator[tuple[Files, Planned]]:
    """Plan one run after the other, each over what is there by then."""
    stored: str | None = None
    for files in stages:
        planned = plan_run(files, stored, guessing=guessing, framing=framing, codec=codec)
        if planned is not None:
            yield files, planned
            stored = to_json(planned.plan.resume)


def staged(
    plan: Plan,
    files: Files,
    relations: Mapping[Relation, Assigned],
    *,
    settings: TaskSettings | None = None,
    truncates: Mapping[int, tuple[int, int]] | None = None,
    buckets: int = 1,
) -> list[pa.RecordBatch]:
    """Decode a plan as the tasks of a run do, and return what they stage.

    Args:
        truncates: by oid, LSN and ordinal of the last one.
    """
    task = DecodeTask(
        files={file.path: file for file in plan.files if file.steps},
        versions=plan.versions,
        types=plan.type_versions,
        relations=relations,
        truncates=truncates or {},
        settings=settings or TaskSettings(),
        buckets=buckets,
    )
    contents = [pa.RecordBatch.from_pylist([{"path": path, "content": files[path]}]) for path in task.files]
    return list(decode_batches(contents, task=task))


def staged_rows(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the rows that `staged` gives, none of which is an error."""
    rows = [row for batch in staged(*arguments, **options) for row in batch.to_pylist()]
    for row in rows:
        assert row["table"] != ERROR_TABLE, row["info"]
    return rows

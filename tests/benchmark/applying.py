"""What Spark adds: the decode stage against the transport of its bytes, and `apply` against the least that it could do.

The floor of a run is to bring the captures' bytes into Python workers that look only at their length, and to write
(append, or MERGE) the rows that the run comes to, read from Parquet in which they lie folded.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa
from generate import MEGABYTE, Shape, files_in, write_accounts, write_files
from measuring import Timing, compared, in_turn

from walreplay import apply
from walreplay.config import make_settings
from walreplay.delta.statements import sql_schema
from walreplay.delta.target import Target
from walreplay.job.context import RunContext
from walreplay.job.execution import buckets_of
from walreplay.job.scanning import RunInput, Scanning
from walreplay.session.isolation import settings
from walreplay.session.session import build_session
from walreplay.spark import captures as source
from walreplay.spark.captures import ONE_FILE_A_BATCH, list_captures, read_files
from walreplay.spark.workers.decode import DecodeTask, decode_batches, decoder_of
from walreplay.spark.workers.rows import STAGE
from walreplay.spark.workers.scan import capture_files
from walreplay.stream.planned import PlannedBytes
from walreplay.table.versions import Catalogue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES = 8
_CONFIG = {"source": "bench"}


def run(folder: Path, megabytes: int, runs: int, rows: int) -> list[list[Timing]]:
    """Measure the decode stage, fresh targets, and a batch of changes to a large table."""
    spark = build_session("walreplay bench")
    groups = []
    for kind in ("pgbench", "orders"):
        captures = write_files(folder / f"{kind}-{megabytes}-files", Shape(kind), megabytes * MEGABYTE, _FILES)
        groups.append(_stage(spark, kind, captures, runs))
        groups.append(_fresh(spark, kind, captures, folder / "mirror" / kind, runs))
    loaded, changed = write_accounts(folder / f"accounts-{rows}", rows, rows // 10, _FILES)
    title = f"{rows // 10:,} changes into {rows:,} rows"
    groups.append(_changes(spark, title, loaded, changed, folder / "mirror" / "accounts", runs))
    return groups


def size_of(captures: Path) -> int:
    """Return how many bytes a folder's files have."""
    return sum(path.stat().st_size for path in files_in(captures))


def transport(spark: SparkSession, captures: Path, names: str = "*") -> None:
    """Bring files' bytes into Python workers, and do nothing with them."""

    # Inside, as workers do not know this module.
    def lengths(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [len(value.as_buffer()) for value in batch.column("content")]
            yield pa.RecordBatch.from_arrays([pa.array(found, pa.int64())], names=["length"])

    frame = spark.read.format("binaryFile").option("pathGlobFilter", names).load(str(captures)).select("content")
    with settings(spark, ONE_FILE_A_BATCH):
        frame.mapInArrow(lengths, "length LONG").write.format("noop").mode("overwrite").save()


def _run(spark: SparkSession, target: Target) -> RunContext:
    """Return a run that has not begun."""
    return RunContext.of(spark, target, make_settings(_CONFIG), None)


def decode_stage(spark: SparkSession, captures: Path, *, folded: bool) -> None:
    """Scan and decode files as a run does, and write nothing.

    Args:
        folded: what is decoded is folded by file, too, and given to Spark as it would be staged.
    """
    target = Target.parse(str(captures / "none"))
    run = _run(spark, target)
    files = list_captures(run.session, str(captures), run.settings)
    plan = Scanning(run, RunInput(tuple(files), 0, None)).plan()
    task = DecodeTask(
        files={file.path: file for file in plan.files if file.steps},
        versions=plan.versions,
        types=plan.type_versions,
        relations=Catalogue.of(plan, run.settings, ()).assignments,
        truncates={},
        settings=run.settings.of_tasks,
        buckets=buckets_of(size_of(captures)),
    )
    frame = read_files(run.session, list(task.files), size_of(captures))
    if folded:
        frame = frame.mapInArrow(partial(decode_batches, task=task), sql_schema(STAGE))
    else:
        frame = frame.mapInArrow(_row_counts(task), "rows LONG")
    with settings(run.session, ONE_FILE_A_BATCH):
        frame.write.format("noop").mode("overwrite").save()


def _row_counts(task: DecodeTask) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Yield a function that decodes whole files to batches of changes, of which it tells the rows."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path, content in capture_files(batches, task.files):
            plan = task.files[path]
            decoder = decoder_of(plan.steps[0].place.framing, task)
            planned = PlannedBytes.of(plan, memoryview(content))
            steps = (planned.decode(decoder, step, task.versions, task.types) for step in plan.steps)
            # The decoder's rest is there once the steps are through.
            counts = [batch.data.num_rows for step in steps for batch in step]
            counts += [batch.data.num_rows for batch in decoder.rest()]
            yield pa.RecordBatch.from_arrays([pa.array(counts, pa.int64())], names=["rows"])

    return rows


def _stage(spark: SparkSession, kind: str, captures: Path, runs: int) -> list[Timing]:

    def through_spark(*, folded: bool) -> None:
        # As if the files lay in an object store: workers do not map them, but get their bytes from Spark.
        with patch.object(source, "LOCAL_SCHEME", "none:"):
            decode_stage(spark, captures, folded=folded)

    sides = {
        f"{kind} transport alone": lambda: transport(spark, captures),
        f"{kind} scanned and decoded": lambda: decode_stage(spark, captures, folded=False),
        f"{kind} scanned and decoded, bytes from Spark": lambda: through_spark(folded=False),
        f"{kind} scanned, decoded and folded by file": lambda: decode_stage(spark, captures, folded=True),
        f"{kind} scanned, decoded and folded by file, bytes from Spark": lambda: through_spark(folded=True),
    }
    return _compared("stage", sides, captures, runs)


def _compared(section, sides, captures, runs, before=None, size=None):  # type: ignore[no-untyped-def]
    taken = in_turn(sides, runs, before=before)
    timings = [Timing(section, name, seconds, size or size_of(captures)) for name, seconds in taken.items()]
    return compared(timings, next(iter(sides)))


def _fresh(spark: SparkSession, kind: str, captures: Path, target: Path, runs: int) -> list[Timing]:
    shutil.rmtree(target, ignore_errors=True)
    tables = {table.name: Path(table.location) for table in apply(spark, captures, target, _CONFIG).tables}
    folded = {
        name: _fold(spark, f"delta.`{path}`", target.with_name(f"{kind}-folded") / name)
        for name, path in tables.items()
    }
    other = target.with_name(f"{kind}-floor")

    def append(name: str) -> None:
        spark.read.parquet(str(folded[name])).write.format("delta").save(str(other / name))

    def floor() -> None:
        transport(spark, captures)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, folded))

    stages: dict[str, list[float]] = {}

    def whole() -> None:
        report = apply(spark, captures, target, _CONFIG)
        for name, seconds in report.stages.items():
            stages.setdefault(name, []).append(seconds)

    before = {"floor": lambda: _clear(other), "apply": lambda: _clear(target)}
    return _against_floor(f"{kind}, fresh target", floor, whole, before, size_of(captures), runs, stages)


def _changes(spark: SparkSession, title: str, loaded: Path, changed: Path, target: Path, runs: int) -> list[Timing]:
    base, other = target.with_name("accounts-base"), target.with_name("accounts-floor")
    for path in (base, target):
        _clear(path)
    lsn = apply(spark, loaded, base, _CONFIG).applied_lsn
    shutil.copytree(base, target)
    (table,) = apply(spark, changed, target, _CONFIG).tables
    name = Path(table.location).relative_to(target)
    rows = f"(SELECT * FROM delta.`{target / name}` WHERE __commit_lsn > {lsn})"
    folded = _fold(spark, rows, target.with_name("accounts-folded"))
    new = [path.name for path in files_in(changed)][_FILES:]

    def floor() -> None:
        transport(spark, changed, f"{{{','.join(new)}}}")
        spark.read.parquet(str(folded)).createOrReplaceTempView("folded")
        spark.sql(
            f"MERGE INTO delta.`{other / name}` AS t USING folded AS s ON t.aid = s.aid "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    stages: dict[str, list[float]] = {}

    def whole() -> None:
        report = apply(spark, changed, target, _CONFIG)
        for stage, seconds in report.stages.items():
            stages.setdefault(stage, []).append(seconds)

    def again(path: Path) -> None:
        _clear(path)
        shutil.copytree(base, path)

    before = {"floor": lambda: again(other), "apply": lambda: again(target)}
    size = sum((changed / name).stat().st_size for name in new)
    return _against_floor(title, floor, whole, before, size, runs, stages)


def _against_floor(title, floor, whole, before, size, runs, stages):  # type: ignore[no-untyped-def]
    names = {"floor": f"{title}: floor", "apply": f"{title}: apply"}
    sides = {names["floor"]: floor, names["apply"]: whole}
    timings = _compared("apply", sides, None, runs, {names[side]: work for side, work in before.items()}, size)
    timings[1].more["stages_s"] = {name: round(sorted(taken)[len(taken) // 2], 3) for name, taken in stages.items()}
    return timings


def _fold(spark: SparkSession, rows: str, path: Path) -> Path:
    spark.sql(f"SELECT * FROM {rows}").write.mode("overwrite").parquet(str(path))
    return path


def _clear(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)

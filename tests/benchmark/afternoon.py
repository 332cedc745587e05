"""`apply` beside the script that an engineer writes in an afternoon: one table, whole messages in each file, no rules.

The script reads files as Spark does (``binaryFile``), parses them by ``struct`` on executors (`peers.by_struct`), keeps
the newest row of each key by ``row_number``, casts the texts and writes Delta: a new table, or a MERGE into one.  It
knows nothing of transactions across files, of changed keys, of values that do not fit, or of being run twice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
from generate import MEGABYTE, Shape, capture
from measuring import Timing, Work, compared, in_turn
from peers import by_struct

from walreplay import apply
from walreplay.protocol.framing import Framing
from walreplay.session.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES: Final = 8
_CONFIG = {"source": "bench"}
_COLUMNS: Final = {
    "id": "bigint",
    "customer_id": "bigint",
    "status": "string",
    "placed_at": "timestamp",
    "shipped_at": "timestamp",
    "due": "date",
    "currency": "string",
    "net": "decimal(12,2)",
    "tax": "decimal(12,2)",
    "gross": "decimal(14,2)",
    "items": "int",
    "weight": "double",
    "express": "boolean",
    "token": "string",
    "channel": "string",
    "note": "string",
    "address": "string",
    "payload": "string",
    "updated_at": "timestamp_ntz",
    "version": "int",
}
_COMPARED: Final = ("id", "customer_id", "net", "note", "token", "version")


def run(folder: Path, megabytes: int, runs: int) -> list[list[Timing]]:
    """Measure a new table of an archive, and a MERGE of its second half into the first one's table."""
    spark = build_session("walreplay bench")
    spark.sparkContext.addPyFile(by_struct.__file__)
    captures = _write(folder / f"afternoon-{megabytes}", megabytes * MEGABYTE)
    return [
        _new_table(spark, captures, folder / "afternoon-new", runs),
        _merged(spark, captures, folder / "afternoon-merged", runs),
    ]


def _write(folder: Path, size: int) -> Path:
    """Write orders as files of whole transactions, the first of which alone describes the table."""
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        rest, number = bytearray(), 0
        for piece in capture(Shape("orders", Framing.RAW), size):
            rest += piece
            if len(rest) >= size // _FILES and number < _FILES - 1:
                (part / f"part{number}.bin").write_bytes(rest)
                rest, number = bytearray(), number + 1
        (part / f"part{number}.bin").write_bytes(rest)
        part.rename(folder)
    return folder


def _newest(spark: SparkSession, captures: Path) -> DataFrame:
    """Yield the newest change of each key, with the columns' types."""
    names = list(_COLUMNS)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from by_struct import parse  # type: ignore[import-not-found]  # workers have it by this name

        def batch(found: list[by_struct.Row]) -> pa.RecordBatch:
            _, operation, lsn, _, ordinal, values = zip(*found, strict=True)
            heads = [pa.array(operation), pa.array(lsn, pa.int64()), pa.array(ordinal, pa.int64())]
            cells = [pa.array(column, pa.binary()).cast(pa.string()) for column in zip(*values, strict=True)]
            return pa.RecordBatch.from_arrays([*heads, *cells], names=["op", "lsn", "ordinal", *names])

        for files in batches:
            for content in files.column("content"):
                found: list[by_struct.Row] = []
                for row in parse(content.as_py(), {}):
                    found.append(row)
                    if len(found) == 10_000:
                        yield batch(found)
                        found = []
                if found:
                    yield batch(found)

    schema = "op string, lsn bigint, ordinal bigint, " + ", ".join(f"{name} string" for name in names)
    files = spark.read.format("binaryFile").load(str(captures)).select("content")
    changes = files.mapInArrow(rows, schema)
    order = "row_number() OVER (PARTITION BY id ORDER BY lsn DESC, ordinal DESC) AS place"
    casts = [f"CAST({name} AS {kind}) AS {name}" for name, kind in _COLUMNS.items()]
    return changes.selectExpr("*", order).where("place = 1").selectExpr("op", *casts)


def _overwrite(spark: SparkSession, captures: Path, table: Path) -> None:
    _newest(spark, captures).where("op <> 'd'").drop("op").write.format("delta").mode("overwrite").save(str(table))


def _merge(spark: SparkSession, captures: Path, table: Path) -> None:
    _newest(spark, captures).createOrReplaceTempView("newest")
    columns = ", ".join(_COLUMNS)
    spark.sql(
        f"MERGE INTO delta.`{table}` AS t USING newest AS s ON t.id = s.id "
        "WHEN MATCHED AND s.op = 'd' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in _COLUMNS)} "
        f"WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({columns}) "
        f"VALUES ({', '.join(f's.{name}' for name in _COLUMNS)})"
    )


def _apply(spark: SparkSession, captures: Path, target: Path, *, commits: str) -> Work:
    def work() -> None:
        with patch.dict(os.environ, {"WALREPLAY_COMMITS": commits}):
            apply(spark, captures, target, _CONFIG)

    return work


def _new_table(spark: SparkSession, captures: Path, folder: Path, runs: int) -> list[Timing]:
    paths = {name: folder / name for name in ("script", "files", "spark")}
    sides: dict[str, Work] = {
        "script": lambda: _overwrite(spark, captures, paths["script"]),
        "files": _apply(spark, captures, paths["files"], commits=""),
        "spark": _apply(spark, captures, paths["spark"], commits="spark"),
    }
    before: dict[str, Work] = {name: _clearing(paths[name]) for name in paths}
    taken = in_turn(sides, runs, before=before)
    _check(spark, _files(captures), paths)
    return _timings("new table", taken, _size(captures))


def _merged(spark: SparkSession, captures: Path, folder: Path, runs: int) -> list[Timing]:
    files = _files(captures)
    grown, rest = folder / "grown", folder / "rest"
    shutil.rmtree(folder, ignore_errors=True)
    _link(files[: _FILES // 2], grown)
    bases = {name: folder / f"base-{name}" for name in ("script", "files", "spark")}
    _overwrite(spark, grown, bases["script"])
    _apply(spark, grown, bases["files"], commits="")()
    _apply(spark, grown, bases["spark"], commits="spark")()  # a table that Spark has written has Spark's checksums
    for place in (grown, rest):
        _link(files[_FILES // 2 :], place)
    paths = {name: folder / name for name in bases}
    sides: dict[str, Work] = {
        "script": lambda: _merge(spark, rest, paths["script"]),
        "files": _apply(spark, grown, paths["files"], commits=""),
        "spark": _apply(spark, grown, paths["spark"], commits="spark"),
    }

    def again(name: str) -> Work:
        def work() -> None:
            shutil.rmtree(paths[name], ignore_errors=True)
            shutil.copytree(bases[name], paths[name])

        return work

    taken = in_turn(sides, runs, before={name: again(name) for name in paths})
    _check(spark, files, paths)
    return _timings("second half merged", taken, _size(rest))


def _link(files: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file.name).hardlink_to(file)


def _timings(what: str, taken: dict[str, list[float]], size: int) -> list[Timing]:
    names = {
        "script": f"orders, {what}: a script of an afternoon",
        "files": f"orders, {what}: apply",
        "spark": f"orders, {what}: apply, WALREPLAY_COMMITS=spark",
    }
    timings = [Timing("script", names[name], seconds, size) for name, seconds in taken.items()]
    return compared(timings, names["script"])


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.bin"))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


def _clearing(path: Path) -> Work:
    return lambda: shutil.rmtree(path, ignore_errors=True)


def _check(spark: SparkSession, files: list[Path], paths: dict[str, Path]) -> None:
    """Hold the tables to the rows that the captures leave, each in some of its columns as text."""
    places = [list(_COLUMNS).index(name) for name in _COMPARED]
    newest: dict[bytes | None, tuple[bytes | None, ...]] = {}
    for file in files:
        for _, operation, _, _, _, values in by_struct.parse(file.read_bytes(), {}):
            newest[values[0]] = tuple(values[place] for place in places)
            if operation == "d":
                del newest[values[0]]
    expected = {tuple(value and value.decode() for value in row) for row in newest.values()}
    for name, path in paths.items():
        table = path if name == "script" else path / "shop" / "orders"
        found = spark.read.format("delta").load(str(table)).selectExpr(*(f"string({name})" for name in _COMPARED))
        columns = [pc.cast(column, pa.string()).to_pylist() for column in found.toArrow().columns]
        if len(columns[0]) != len(expected) or set(zip(*columns, strict=True)) != expected:
            raise AssertionError(f"the rows of {table} are not those of the captures")

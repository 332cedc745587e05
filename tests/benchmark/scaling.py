"""What grows with tables, with past runs and with archived files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from generate import cut
from measuring import Timing

from support.wire import encode
from walreplay import apply
from walreplay.protocol import messages as m
from walreplay.session.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONFIG = {"source": "bench"}
_ROWS, _LATER = 50, 10


def run(folder: Path, tables: int, files: int) -> list[list[Timing]]:
    """Measure many small tables in one run, and few new files behind many."""
    spark = build_session("walreplay bench")
    return [_tables(spark, folder / "tables", tables), _files(spark, folder / "archive", files)]


def _changes(tables: int, tag: str, ids: Sequence[int], lsn: int, *, announced: bool) -> bytes:
    """Return a transaction that changes the same rows of every table."""
    messages: list[m.AnyMessage] = [m.Begin(lsn, lsn, 700 + lsn // 4096)]
    for table in range(tables):
        oid = 20_000 + table
        if not announced:
            columns = (m.Column("id", 23, -1, True), m.Column("v", 25, -1, False))
            messages.append(m.Relation(oid, "many", f"t{table:04}", "d", columns))
        for id_ in ids:
            new = m.TupleData((m.Cell("t", b"%d" % id_), m.Cell("t", b"%s of %d" % (tag.encode(), table))))
            messages.append(m.Insert(oid, new) if tag == "first" else m.Update(oid, new))
    messages.append(m.Commit(0, lsn, lsn + 48, lsn))
    return b"".join(encode(message) for message in messages)


def _timed(spark: SparkSession, captures: Path, target: Path) -> float:
    began = time.perf_counter()
    apply(spark, captures, target, _CONFIG)
    return time.perf_counter() - began


def _tables(spark: SparkSession, folder: Path, tables: int) -> list[Timing]:
    shutil.rmtree(folder, ignore_errors=True)
    timings = []
    # The first of each warms up.
    for number, count in enumerate((1, 1, tables)):
        captures, target = folder / f"captures{number}", folder / f"mirror{number}"
        captures.mkdir(parents=True)
        (captures / "1.bin").write_bytes(_changes(count, "first", range(_ROWS), 1 << 16, announced=False))
        fresh = _timed(spark, captures, target)
        (captures / "2.bin").write_bytes(_changes(count, "later", range(_LATER), 1 << 17, announced=True))
        later, nothing = _timed(spark, captures, target), _timed(spark, captures, target)
        if number:
            named = f"{count} table{'s' if count > 1 else ''}"
            timings += [
                Timing("tables", f"{named}, fresh", [fresh]),
                Timing("tables", f"{named}, changed", [later]),
                Timing("tables", f"{named}, nothing new", [nothing]),
            ]
    for one, many in zip(timings[:3], timings[3:], strict=True):
        many.more["seconds_per_table_beyond_the_first"] = round((many.median - one.median) / (tables - 1), 3)
    return timings


def _transactions(count: int, first: int) -> Iterator[bytes]:
    for number in range(first, first + count):
        yield _changes(1, "first", [number], (16 + number) << 12, announced=number > 0)


def _files(spark: SparkSession, folder: Path, files: int) -> list[Timing]:
    shutil.rmtree(folder, ignore_errors=True)
    timings = []
    for archived in (files // 100, files):
        captures, target = folder / f"captures{archived}", folder / f"mirror{archived}"
        cut(b"".join(_transactions(2 * archived, 0)), captures, archived)
        whole = _timed(spark, captures, target)
        for number in range(2):
            first = archived + 10 * number
            cut(b"".join(_transactions(20, 2 * first)), captures, 10, first)
            later, nothing = _timed(spark, captures, target), _timed(spark, captures, target)
        timings += [
            Timing("files", f"{archived:,} files", [whole]),
            Timing("files", f"10 files behind {archived:,}", [later]),
            Timing("files", f"nothing new behind {archived:,}", [nothing]),
        ]
    return timings

"""Moments of a capture, and what its tables held then, as a replay row by row has it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.captures import Case
from support.reference import Identity, Replay, replay
from support.truth import assert_equal, mirror_tables, read_tables, source_tables
from walreplay.lsn import POSTGRES_EPOCH, format_lsn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUFFIXES = {"history": "__history", "changelog": "__changes"}


def outputs_at(target: Path) -> Mapping[str, dict[str, Path]]:
    """List the tables of a target by their output, each with its source table's name."""
    found: dict[str, dict[str, Path]] = {"mirror": {}, **{output: {} for output in _SUFFIXES}}
    for name, location in mirror_tables(target).items():
        output = next((one for one, suffix in _SUFFIXES.items() if name.endswith(suffix)), "mirror")
        found[output][name.removesuffix(_SUFFIXES.get(output, ""))] = location
    return found


def moments(recorded: Case, count: int) -> list[dict[str, Any]]:
    """Choose ends for a backfill, half of them LSNs, in an order in which one target can reach them."""
    known = Replay()
    for stream in recorded.streams():
        known.session(stream, recorded.framing)
    chosen = random.Random(recorded.name)
    found: list[dict[str, Any]] = []
    for lsn, _, time in chosen.sample(list(known.applied), min(count, len(known.applied))):
        if len(found) % 2:
            found.append({"until_time": POSTGRES_EPOCH + timedelta(microseconds=time + chosen.choice([-1, 0, 1]))})
        else:
            found.append({"until_lsn": format_lsn(lsn + chosen.choice([-1, 0, 1]))})
    return sorted(found, key=lambda end: len(applied_at(recorded, end)))


def too_late(end: dict[str, Any]) -> Callable[[Identity], bool]:
    if "until_time" in end:
        return lambda one: POSTGRES_EPOCH + timedelta(microseconds=one[2]) > end["until_time"]
    high, low = (int(part, 16) for part in end["until_lsn"].split("/"))
    return lambda one: one[0] > high << 32 | low


def applied_at(recorded: Case, end: dict[str, Any]) -> list[Identity]:
    replayed = Replay(too_late(end))
    for stream in recorded.streams():
        replayed.session(stream, recorded.framing)
    return list(replayed.applied)


def assert_holds(spark: SparkSession, target: Path, recorded: Case, end: dict[str, Any]) -> None:
    """Compare a target with what a replay, row by row, gives at an end."""
    tables = replay(recorded.streams(), recorded.framing, too_late(end))
    sources = [
        replace(source, rows=[list(one.values) for one in tables[source.qualified_name].rows])
        for source in source_tables(recorded)
        if source.qualified_name in tables
    ]
    assert_equal(read_tables(spark, outputs_at(target)["mirror"]), sources)


def third_of(recorded: Case) -> int:
    """Give so many bytes that all files are some runs, and not as many as there are files."""
    return max(1, sum(file.stat().st_size for file in recorded.files) // 3)

"""Moments of a capture, and what its tables held then, as a replay row by row has it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.captures import Case
from support.reference import Replay, replay_of
from support.truth import assert_equal, mirror_tables, read_tables, source_tables
from walreplay.lsn import POSTGRES_EPOCH, format_lsn, parse_lsn
from walreplay.names import Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def outputs_at(target: Path) -> Mapping[str, dict[str, Path]]:
    """List the tables of a target by their output, each with its source table's name."""
    suffixes = {output: output.table.removeprefix("{table}") for output in Output}
    found: dict[str, dict[str, Path]] = {output.value: {} for output in Output}
    for name, location in mirror_tables(target).items():
        # The mirror's is empty.
        output = max((one for one in Output if name.endswith(suffixes[one])), key=lambda one: len(suffixes[one]))
        found[output.value][name.removesuffix(suffixes[output])] = location
    return found


def moments(recorded: Case, count: int) -> list[dict[str, Any]]:
    """Choose ends for a backfill, half of them LSNs, in an order in which one target can reach them."""
    known = replay_of(recorded)
    chosen = random.Random(recorded.name)
    found: list[dict[str, Any]] = []
    for lsn, _, time in chosen.sample(list(known.applied), min(count, len(known.applied))):
        if len(found) % 2:
            found.append({"until_time": POSTGRES_EPOCH + timedelta(microseconds=time + chosen.choice([-1, 0, 1]))})
        else:
            found.append({"until_lsn": format_lsn(lsn + chosen.choice([-1, 0, 1]))})
    return sorted(found, key=lambda end: last_before(known, end))


def last_before(replayed: Replay, end: dict[str, Any]) -> int:
    """Return the commit LSN that a run with an end applies last: nothing is applied from the first later one on."""
    last = 0
    for lsn, _, time in replayed.applied:
        if "until_time" in end and POSTGRES_EPOCH + timedelta(microseconds=time) > end["until_time"]:
            break
        if "until_lsn" in end and lsn > parse_lsn(end["until_lsn"]):
            break
        last = lsn
    return last


def assert_holds(spark: SparkSession, target: Path, recorded: Case, end: dict[str, Any]) -> None:
    """Compare a target with what a replay, row by row, gives at an end."""
    replayed = replay_of(recorded)
    sources = replayed.sources(source_tables(recorded), last_before(replayed, end))
    assert_equal(read_tables(spark, outputs_at(target)["mirror"]), sources)


def third_of(recorded: Case) -> int:
    """Return so many bytes that all files are some runs, and not as many as there are files."""
    return max(1, sum(file.stat().st_size for file in recorded.files) // 3)

"""Recorded captures as mirrors, histories and change logs at once: as of moments, in several runs, and in one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import Case, case
from support.change_model import assert_logs_changes, comparable, folded
from support.extent import further
from support.history_model import assert_is_history, versions
from support.moments import assert_holds, last_before, moments, outputs_at, third_of
from support.readers import read
from support.reference import replay_of
from support.small_mirror import runs_of
from support.truth import assert_equal, read_tables, source_tables
from walreplay.names import Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ALL: Mapping[str, Any] = {"outputs": [output.value for output in Output]}

_IS_LONG = bool(os.environ.get("WALREPLAY_LONG"))
"""``WALREPLAY_LONG=1`` tries all captures, and many ends of each."""

_FURTHER = [
    "o01",
    "o02",
    "o04",
    "o05",
    "o06",
    "o07",
    "o08",
    "o10",
    "o17",
    "o20",
    "o21",
    "o22",
    "o23",
    "o24",
    "o25",
    "o26",
]
"""Captures that are like others in all that outputs hang on."""

CAPTURES = ["o03", "o12", "o18", *(_FURTHER if _IS_LONG else ())]
"""Those that can be replayed row by row: cuts, identities, TOAST, truncates, streams."""

_WITH_TIME = ("o11", "o13", "o19")
"""Those that take longest."""

_NOT_AS_SENT = ("o04", "o10", "o20", "o24", "o25", "o26")
"""Those whose columns change, or whose sessions overlap: what is read later is not what was written."""

_OF_EACH_KIND = ("o18", False)

_BY_STATEMENTS = ("o11", "o18")
"""Those that are also applied in one run by statements."""

_MOMENTS = 40 if _IS_LONG else 2
"""Ends of each capture, half of them LSNs."""

_CUTS = 25
"""Transactions behind which each history is looked at."""


@pytest.mark.parametrize(
    ("name", "by_statements"),
    further(
        [_OF_EACH_KIND, *((name, name in _BY_STATEMENTS) for name in CAPTURES)],
        but=(_OF_EACH_KIND,),
        long=[(name, name in _BY_STATEMENTS) for name in _WITH_TIME],
    ),
)
def test_all_outputs_hold_what_the_source_held(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, by_statements: bool
) -> None:
    recorded = case(name)
    captures, parts, whole = str(recorded.folder), tmp_path / "parts", tmp_path / "whole"
    replayed = replay_of(recorded)
    ends = [end for end in moments(recorded, _MOMENTS) if last_before(replayed, end)]
    assert ends
    for end in ends:
        with runs_of(third_of(recorded)):
            report = walreplay.backfill(spark, captures, parts, ALL, **end)
        assert report.applied_lsn == last_before(replayed, end)
        assert_holds(spark, parts, recorded, end)
    walreplay.apply(spark, captures, parts, ALL)
    targets = [parts]
    if by_statements:
        monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
        walreplay.apply(spark, captures, whole, ALL)
        targets.append(whole)
    for target in targets:
        found = outputs_at(target)
        assert_equal(read_tables(spark, found["mirror"]), source_tables(recorded))
        assert all(tables.keys() == found["mirror"].keys() for tables in found.values())
        if name not in _NOT_AS_SENT:
            _assert_logs(spark, target, recorded)
    first, *others = (
        {name: read(location) for name, location in outputs_at(target)["history"].items()} for target in targets
    )
    assert_is_history(first, recorded, replayed, _CUTS)
    for other in others:
        for name_, table in other.items():
            assert versions(table) == versions(first[name_]), name_


def _assert_logs(spark: SparkSession, target: Path, recorded: Case) -> None:
    """Check that logs have what was sent, and that folding them gives the mirror."""
    found = outputs_at(target)
    logs = {name: str(location) for name, location in found["changelog"].items()}
    files = [str(path) for path in recorded.files]
    assert_logs_changes(spark, logs, files)
    newest = {batch.relation.qualified_name: batch.relation for batch in walreplay.read_changes(files)}
    for name, location in logs.items():
        relation_ = newest[name]
        log = spark.read.format("delta").load(location)
        columns = [column.name for column in relation_.columns]
        key = [column.name for column in relation_.columns if column.key] if relation_.replica_identity != "f" else []
        mirror = spark.read.format("delta").load(str(found["mirror"][name])).select(*(f"`{one}`" for one in columns))
        if relation_.replica_identity != "f" and not key:
            rows = log.where("__op = 'c'").select(*mirror.columns)
        elif key and log.where("size(__unchanged) > 0 AND __before IS NOT NULL").count():
            # A value that was not sent with another key is the old key's.
            continue
        elif key and log.where(" OR ".join(f"`{one}` IS NULL" for one in key)).where("__op <> 't'").count():
            # Keys that their columns cannot hold are told apart by the rescued texts alone.
            continue
        else:
            rows = folded(log, key, columns)
        told, expected = ([comparable(list(one)) for one in frame.collect()] for frame in (rows, mirror))
        assert sorted(map(repr, told)) == sorted(map(repr, expected)), name

"""All columns of all outputs are the same, wherever runs end and whoever writes the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.extent import further
from support.fault_cases import FAULTS
from support.framings import frame
from support.histories import (
    BYTEA,
    FLOAT8,
    INT4,
    INTS,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    WILD,
    History,
    Table,
    random_ops,
)
from support.readers import collect
from support.small_mirror import runs_of
from support.truth import mirror_tables
from walreplay.decode.change_batch import rescued_json
from walreplay.lsn import parse_lsn
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.writing.merge import rescued_json as as_sql

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.integration

OUTPUTS: Final = {"outputs": ["mirror", "history", "changelog"]}

TABLES: Final = (
    Table((INT4,), (), "f"),
    Table((INT4, TIMESTAMP, INTS), (), "f"),
    Table((INT4, TIMESTAMPTZ, INTS, WILD), (0,), "d"),
    Table((FLOAT8, TEXT), (), "f"),
    Table((NUMERIC, TEXT, INTS), (0,), "d"),
    Table((INT4, TEXT, NUMERIC), (0,), "f", configured=True, deferrable=True),
    Table((INT4, BYTEA), (0,), "d", alternating=True),
    Table((INT4, TEXT), (), "d"),
)


@dataclass(frozen=True)
class Way:
    """How a target is filled.

    Attributes:
        commits: what ``WALREPLAY_COMMITS`` says.
        runs: how many there are, cut anywhere.
        is_backfill: the runs are those of a backfill.
    """

    commits: str
    runs: int = 1
    is_backfill: bool = False


def _transactions(tables: Sequence[Table], chance: Random) -> list[list[m.AnyMessage]]:
    """Return the transactions of all tables, in one order of commits."""
    queues = [list(_own_transactions(number, table, chance)) for number, table in enumerate(tables)]
    found: list[list[m.AnyMessage]] = []
    while any(queues):
        lsn = 1000 + 16 * len(found)
        changes = chance.choice([queue for queue in queues if queue]).pop(0)
        # Commit times are no order.
        time = 700_000_000_000_000 + chance.randrange(50) * 1_000_000
        found.append([m.Begin(lsn, time, lsn & 0xFFFF), *changes, m.Commit(0, lsn, lsn + 8, time)])
    return found


def _own_transactions(number: int, table: Table, chance: Random) -> Iterator[list[m.AnyMessage]]:
    history = History(table)
    history.play(random_ops(table, chance, 30), leave_open=False)
    changes: list[m.AnyMessage] = []
    for message in history.messages:
        if isinstance(message, m.Commit):
            yield changes
            changes = []
        elif not isinstance(message, m.Begin):
            changes.append(_named(message, number))


def _named(message: m.AnyMessage, number: int) -> m.AnyMessage:
    """Return a message of a table's own history as that of one of several tables."""
    if isinstance(message, m.Relation):
        return replace(message, oid=100 * number + message.oid, name=f"{message.name}{number}")
    if isinstance(message, m.Truncate):
        return replace(message, relation_oids=tuple(100 * number + oid for oid in message.relation_oids))
    assert isinstance(message, (m.Insert, m.Update, m.Delete))
    return replace(message, relation_oid=100 * number + message.relation_oid)


def _rows(spark: SparkSession, target: Path) -> Mapping[str, list[str]]:
    def values(row: Row) -> tuple[Any, ...]:
        return tuple(value for name, value in row.asDict().items() if name not in ("__file", "__offset"))

    return {
        name: sorted(repr(values(row)) for row in collect(location)) for name, location in mirror_tables(target).items()
    }


def _fill(
    spark: SparkSession, folder: Path, data: bytes, way: Way, config: Mapping[str, Any], ends: Sequence[int]
) -> Mapping[str, list[str]]:
    captures, target = folder / "captures", folder / "target"
    captures.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("WALREPLAY_COMMITS", way.commits)
        if way.is_backfill:
            (captures / "cap.0").write_bytes(data)
            with runs_of(len(data) // way.runs + 1):
                walreplay.backfill(spark, captures, target, config)
            return _rows(spark, target)
        for number, (start, stop) in enumerate(zip([0, *ends], [*ends, len(data)], strict=True)):
            (captures / f"cap.{number}").write_bytes(data[start:stop])
            walreplay.apply(spark, captures, target, config)
    return _rows(spark, target)


BY_FILES: Final = Way("", 3)
BY_STATEMENTS: Final = Way("spark", 2)
WAYS: Final = {
    "quick": (TABLES[:2], [BY_FILES]),
    "more": (TABLES[:3], [BY_STATEMENTS]),
    "thorough": (TABLES, [BY_FILES, Way("", 6), BY_STATEMENTS, Way("spark"), Way("", 3, is_backfill=True)]),
}


@pytest.mark.parametrize(
    ("extent", "seed"),
    further([("quick", 0), ("more", 0)], long=[("thorough", seed) for seed in range(1, 22)]),
)
def test_no_column_depends_on_where_runs_end_or_on_who_writes(
    spark: SparkSession, tmp_path: Path, extent: str, seed: int
) -> None:
    chance = Random(seed)
    tables, ways = WAYS[extent]
    data = frame([one for part in _transactions(tables, chance) for one in part], Framing.COPYDATA)
    keys = [
        {"table": {"source_schema": "public", "source_table": f"t{number}", "keys": [table.names[0]]}}
        for number, table in enumerate(tables)
        if table.configured
    ]
    config = {**OUTPUTS, **({"objects": keys} if keys else {})}
    wanted = _fill(spark, tmp_path / "whole", data, Way(""), config, ())
    assert len(wanted) == 3 * len(tables)
    for number, way in enumerate(ways):
        ends = sorted(chance.randrange(64, len(data)) for _ in range(way.runs - 1))
        found = _fill(spark, tmp_path / str(number), data, way, config, ends)
        assert found.keys() == wanted.keys(), way
        for name, rows in wanted.items():
            assert found[name] == rows, (way, ends, name)


@pytest.mark.parametrize("way", further([Way(""), Way("", 2), BY_STATEMENTS], but=(Way("", 2),)), ids=str)
def test_an_update_that_changes_nothing_is_the_last_to_have_written_its_row(
    spark: SparkSession, tmp_path: Path, way: Way
) -> None:
    data = (FAULTS / "noop_update" / "capture" / "cap.0001").read_bytes()
    (row,) = _fill(spark, tmp_path, data, way, {}, (109,)[: way.runs - 1])["shop.g"]
    assert row.startswith(f"(1, 'a', {parse_lsn('0/15A69F88')}, ")


def test_rescued_values_are_one_text_whoever_writes_them(spark: SparkSession) -> None:
    values = {f"{chr(code)}\u2028\U0001d11e": f"a{chr(code)}é" for code in (*range(1, 256), 0x2029, 0xFFFD)}
    text = rescued_json(values)
    found = spark.createDataFrame([(text,)], "t string").selectExpr(as_sql("from_json(t, 'map<string,string>')"))
    assert found.collect()[0][0] == text

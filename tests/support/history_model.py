"""Histories in the plainest form: the rows of each table after each transaction, as a replay row by row has them."""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import walreplay
from support.captures import Case
from support.reference import Identity, Replay, _Open
from support.truth import SourceTable, arrow_table, row_difference, row_images, source_tables
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = ("_rescued_data", "__START_AT", "__END_AT", "__start_lsn", "__end_lsn", "__ordinal", "__op")
"""What a history has behind its source's columns."""

Rows = Mapping[str, list[list[str | None]]]


@dataclass
class Moments(Replay):
    """A replay that remembers what the tables held behind some transactions.

    Attributes:
        wanted: their commit LSNs; None for all.
        held: the rows of each table, by the commit LSN.
    """

    wanted: set[int] | None = None
    held: dict[int, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def commit(self, transaction: _Open | None, identity: Identity) -> None:
        before = len(self.applied)
        super().commit(transaction, identity)
        if len(self.applied) > before and (self.wanted is None or identity[0] in self.wanted):
            tables = self.by_name().items()
            self.held[identity[0]] = {name: [list(one.values) for one in table.rows] for name, table in tables}


@dataclass(frozen=True)
class Truth:
    """What a capture's tables held.

    Attributes:
        lsns: the commit LSNs, rising; ``tops`` has the time of each on the axis, in µs since 1970.
        held: the rows of each table behind some of them.
    """

    sources: Mapping[str, SourceTable]
    lsns: Sequence[int]
    tops: Sequence[int]
    held: Mapping[int, Rows]

    @classmethod
    def of(cls, recorded: Case, count: int) -> Truth:
        """Replay a capture, and remember what was held behind some transactions, the last one among them."""
        known = _replayed(recorded, Moments(wanted=set()))
        commits = list(known.applied)
        lsns = [lsn for lsn, _, _ in commits]
        chosen = random.Random(recorded.name).sample(lsns, min(count, len(lsns)))
        moments = _replayed(recorded, Moments(wanted={*chosen, lsns[-1]}))
        tops = accumulate((time + POSTGRES_EPOCH_UNIX_MICROS for _, _, time in commits), max)
        sources = {source.qualified_name: source for source in source_tables(recorded)}
        return cls(sources, lsns, list(tops), moments.held)

    def top(self, lsn: int) -> int:
        """Give a transaction's time."""
        return self.tops[self.lsns.index(lsn)]

    def lsn_at(self, time: int) -> int:
        """Give the last transaction at a time: of the longest prefix before the first later commit."""
        at = bisect_right(self.tops, time)
        return self.lsns[at - 1] if at else -1


def _replayed(recorded: Case, replay: Moments) -> Moments:
    for stream in recorded.streams():
        replay.session(stream, recorded.framing)
    return replay


def histories_of(report: walreplay.RunReport) -> dict[str, str]:
    """Give where the histories are that a run has written to, by their source tables' names."""
    suffix = " (history)"
    return {one.name.removesuffix(suffix): one.location for one in report.tables if one.name.endswith(suffix)}


def history(spark: SparkSession, location: str | Path) -> pa.Table:
    """Read a history."""
    return spark.read.format("delta").load(str(location)).toArrow()


def versions(table: pa.Table) -> list[tuple[Any, ...]]:
    """Give a history's rows in one order, to be compared with another's."""
    rows = []
    for row in table.to_pylist():
        texts = row.get("_rescued_data")
        row["_rescued_data"] = sorted(json.loads(texts).items()) if texts else None
        rows.append(tuple(repr(value) for value in row.values()))
    return sorted(rows)


def as_of_lsn(table: pa.Table, lsn: int) -> pa.Table:
    """Give the versions that are the rows as of an LSN."""
    ended = pc.fill_null(pc.less_equal(table.column("__end_lsn"), lsn), False)
    return table.filter(pc.and_(pc.less_equal(table.column("__start_lsn"), lsn), pc.invert(ended)))


def as_of_time(table: pa.Table, micros: int) -> pa.Table:
    """Give the versions that are the rows at a time."""
    time = pa.scalar(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
    ended = pc.fill_null(pc.less_equal(table.column("__END_AT"), time), False)
    return table.filter(pc.and_(pc.less_equal(table.column("__START_AT"), time), pc.invert(ended)))


def assert_is_history(tables: Mapping[str, pa.Table], truth: Truth) -> None:
    """Check histories against what a replay gives: at each remembered transaction, by LSN and by time."""
    assert tables.keys() <= truth.sources.keys()
    for name, table in tables.items():
        assert tuple(table.schema.names[-len(OWN) :]) == OWN
        _check_axis(name, table, truth)
    for lsn, held in truth.held.items():
        at = truth.top(lsn)
        assert held.keys() <= tables.keys(), lsn
        for name, rows in held.items():
            source = replace(truth.sources[name], rows=rows)
            expected = Counter(row_images(source, arrow_table(source)))
            found = row_images(source, as_of_lsn(tables[name], lsn))
            assert (told := row_difference(source, found, list(expected.elements()))) is None, (lsn, told)
            last = truth.lsn_at(at)
            if last == lsn:
                found = row_images(source, as_of_time(tables[name], at))
                assert (told := row_difference(source, found, list(expected.elements()))) is None, (at, told)
            early = as_of_time(tables[name], at - 1)
            assert versions(early) == versions(as_of_lsn(tables[name], truth.lsn_at(at - 1)))


def _check_axis(name: str, table: pa.Table, truth: Truth) -> None:
    tops = dict(zip(truth.lsns, truth.tops, strict=True))
    for lsn_name, time_name in (("__start_lsn", "__START_AT"), ("__end_lsn", "__END_AT")):
        lsns = table.column(lsn_name).to_pylist()
        times = table.column(time_name).cast(pa.int64()).to_pylist()
        assert times == [None if lsn is None else tops[lsn] for lsn in lsns], (name, time_name)
    starts, ends = table.column("__start_lsn").to_pylist(), table.column("__end_lsn").to_pylist()
    assert all(end is None or start < end for start, end in zip(starts, ends, strict=True)), name
    assert set(table.column("__op").to_pylist()) <= {"c", "u"}


def moment(micros: int) -> datetime:
    """Give a time for people."""
    return pa.scalar(micros, pa.int64()).cast(pa.timestamp("us", "UTC")).as_py()

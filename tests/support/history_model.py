"""Histories in the plainest form: the rows of each table after each transaction, as a replay row by row has them."""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from support.captures import Case
from support.reference import Replay
from support.truth import arrow_table, row_difference, row_images, source_tables
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS

OWN = ("_rescued_data", "__START_AT", "__END_AT", "__start_lsn", "__end_lsn", "__ordinal", "__op")
"""What a history has behind its source's columns."""


def versions(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return a history's rows in one order, to be compared with another's."""
    rows = []
    for row in table.to_pylist():
        texts = row.get("_rescued_data")
        row["_rescued_data"] = sorted(json.loads(texts).items()) if texts else None
        rows.append(tuple(repr(value) for value in row.values()))
    return sorted(rows)


def as_of_lsn(table: pa.Table, lsn: int) -> pa.Table:
    """Return the versions that are the rows as of an LSN."""
    ended = pc.fill_null(pc.less_equal(table.column("__end_lsn"), lsn), False)
    return table.filter(pc.and_(pc.less_equal(table.column("__start_lsn"), lsn), pc.invert(ended)))


def as_of_time(table: pa.Table, micros: int) -> pa.Table:
    """Return the versions that are the rows at a time."""
    time = pa.scalar(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
    ended = pc.fill_null(pc.less_equal(table.column("__END_AT"), time), False)
    return table.filter(pc.and_(pc.less_equal(table.column("__START_AT"), time), pc.invert(ended)))


def assert_is_history(tables: Mapping[str, pa.Table], recorded: Case, replayed: Replay, count: int) -> None:
    """Check histories against a replay: behind some transactions, the last one among them, by LSN and by time."""
    lsns = [lsn for lsn, _, _ in replayed.applied]
    # The axis of time: the highest commit time so far, in µs since 1970.
    tops = list(accumulate((time + POSTGRES_EPOCH_UNIX_MICROS for _, _, time in replayed.applied), max))
    top_of = dict(zip(lsns, tops, strict=True))

    def lsn_at(time: int) -> int:
        """Return the last transaction at a time: of the longest prefix before the first later commit."""
        at = bisect_right(tops, time)
        return lsns[at - 1] if at else -1

    sources = source_tables(recorded)
    assert tables.keys() <= {source.qualified_name for source in sources}
    for name, table in tables.items():
        assert tuple(table.schema.names[-len(OWN) :]) == OWN
        _check_axis(name, table, top_of)
    for lsn in {*random.Random(recorded.name).sample(lsns, min(count, len(lsns))), lsns[-1]}:
        at = top_of[lsn]
        for source in replayed.sources(sources, lsn):
            table, expected = tables[source.qualified_name], row_images(source, arrow_table(source))
            assert (told := row_difference(source, row_images(source, as_of_lsn(table, lsn)), expected)) is None, (
                lsn,
                told,
            )
            if lsn_at(at) == lsn:
                found = row_images(source, as_of_time(table, at))
                assert (told := row_difference(source, found, expected)) is None, (at, told)
            assert versions(as_of_time(table, at - 1)) == versions(as_of_lsn(table, lsn_at(at - 1)))


def _check_axis(name: str, table: pa.Table, top_of: Mapping[int, int]) -> None:
    for lsn_name, time_name in (("__start_lsn", "__START_AT"), ("__end_lsn", "__END_AT")):
        lsns = table.column(lsn_name).to_pylist()
        times = table.column(time_name).cast(pa.int64()).to_pylist()
        assert times == [None if lsn is None else top_of[lsn] for lsn in lsns], (name, time_name)
    starts, ends = table.column("__start_lsn").to_pylist(), table.column("__end_lsn").to_pylist()
    assert all(end is None or start < end for start, end in zip(starts, ends, strict=True)), name
    assert set(table.column("__op").to_pylist()) <= {"c", "u"}

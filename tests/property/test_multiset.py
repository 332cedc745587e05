"""Rows without a key: which of several equal rows goes does not depend on where runs, files and parts end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from support.extent import examples
from walreplay.sink.events import Events, Identity, Mode, concat, from_ipc, to_ipc
from walreplay.sink.merge import fold_events, rows_to_merge

MULTISET = Identity(Mode.MULTISET)
NAMES = ("v",)

Table = list[tuple[int, int]]
"""Rows as value and commit LSN."""

changes = st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 3)), min_size=1, max_size=30)
places = st.lists(st.integers(0, 90), max_size=4)


def drawn(items: Sequence[tuple[int, bool, int]]) -> list[tuple[int, int, int]]:
    """Give what comes (1) and goes (-1): value, which of both, commit LSN; what is there is updated, too."""
    found: list[tuple[int, int, int]] = []
    lsn = 0
    for number, (value, comes, times) in enumerate(items):
        lsn += number % 3 != 0
        found += [(value, 1 if comes else -1, lsn)] * times
        if times == 2:
            # An update that changes nothing.
            found += [(value, -1, lsn), (value, 1, lsn)]
    return found


def build(events: Sequence[tuple[int, int, int]]) -> Events:
    action = np.array([event[1] for event in events], np.int64)
    lsn = pa.array([event[2] for event in events], pa.int64())
    return Events(
        columns=[pa.array([event[0] for event in events], pa.int64())],
        lsn=lsn,
        ts=lsn.cast(pa.timestamp("us", "UTC")),
        rescued=pa.nulls(len(events), pa.string()),
        action=action,
        expected=np.where(action < 0, 1, 0),
        unchanged={},
    )


def parted(events: Sequence[tuple[int, int, int]], cuts: Sequence[int]) -> Iterator[Sequence[tuple[int, int, int]]]:
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    return (events[start:stop] for start, stop in pairwise(edges) if start < stop)


def play(table: Table, events: Sequence[tuple[int, int, int]]) -> tuple[Table, int]:
    """Do what each event says: what goes is the newest of its equals."""
    table, missing = sorted(table, key=lambda row: row[1]), 0
    for value, comes, lsn in events:
        if comes > 0:
            table.append((value, lsn))
            continue
        last = max((at for at, row in enumerate(table) if row[0] == value), default=None)
        if last is None:
            missing += 1
        else:
            del table[last]
    return table, missing


def apply(table: Table, events: Sequence[tuple[int, int, int]], cuts: Sequence[int]) -> tuple[Table, int]:
    """Fold files, then all of them, and do to the table what the rows to merge say."""
    files = [from_ipc(to_ipc(fold_events(build(part), MULTISET, NAMES))) for part in parted(events, cuts)]
    rows = [
        row for batch in rows_to_merge(concat(files), MULTISET, NAMES, (), moves=False) for row in batch.to_pylist()
    ]
    assert max(Counter(row["c0"] for row in rows if row["needed"]).values(), default=1) == 1
    assert max(Counter((row["c0"], row["lsn"]) for row in rows if row["net"] + row["needed"]).values(), default=1) == 1
    table, missing = list(table), 0
    for row in rows:
        equal = sorted((one for one in table if one[0] == row["c0"]), key=lambda one: -one[1])
        for one in equal[: row["needed"]]:
            table.remove(one)
        missing += max(row["needed"] - len(equal), 0)
    return table + [(row["c0"], row["lsn"]) for row in rows for _ in range(row["net"] + row["needed"])], missing


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 2), st.just(0)), max_size=4), changes, places, places)
def test_the_newest_of_equal_rows_goes_wherever_runs_and_files_end(
    table: Table, items: list[tuple[int, bool, int]], runs: list[int], files: list[int]
) -> None:
    events = drawn(items)
    wanted, missing = play(table, events)
    found, lost = table, 0
    for run in parted(events, runs):
        found, some = apply(found, run, files)
        lost += some
    assert Counter(found) == Counter(wanted)
    assert lost == missing


def test_an_update_that_changes_nothing_is_the_last_to_have_written_its_row() -> None:
    events = [(1, 1, 100), (1, -1, 200), (1, 1, 200)]
    assert apply([], events, []) == ([(1, 200)], 0)
    assert apply([(1, 100)], events[1:], []) == ([(1, 200)], 0)


def test_a_row_that_changes_many_times_is_folded_to_one_event() -> None:
    count = 100_000
    events = build([(1, comes, 1 + at // 2) for at in range(2 * count) for comes in (-1 if at % 2 == 0 else 1,)])
    folded = fold_events(events, MULTISET, NAMES)
    assert (folded.rows, folded.action.tolist(), folded.expected.tolist()) == (1, [0], [1])

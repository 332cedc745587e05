"""The time of a change is the greatest commit time up to its transaction, wherever files, units and runs end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from property.test_until import played, wishes
from support.runs import Files, plan_run
from support.simulator import Drawn, captures
from walreplay.decode.change_batch import column_types
from walreplay.decode.masking import Shown
from walreplay.fold.events import from_ipc
from walreplay.fold.versions import NO_TIME, Axis, Commits
from walreplay.ledger.state import to_json
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.names import Output
from walreplay.spark.workers.decode import Assigned, Assignment, DecodeTask, staged_rows
from walreplay.spark.workers.fold import timed
from walreplay.spark.workers.rows import PARTS, USES_TABLE
from walreplay.stream.plan import Plan
from walreplay.table.versions import identity_of
from walreplay.task_settings import TaskSettings


def staged(plan: Plan, files: Files) -> list[dict[str, Any]]:
    """Stage a plan's rows as those of histories."""
    relations = dict.fromkeys((*plan.relations, *plan.versions))
    assigned = {}
    for number, one in enumerate(relations):
        to = Assignment(number, number, identity_of(one, None), Shown(one, tuple(range(len(one.columns)))))
        assigned[one] = Assigned(number, tuple(column_types(one, {})), {Output.HISTORY: to})
    task = DecodeTask({}, plan.versions, plan.type_versions, assigned, {}, TaskSettings(), buckets=2)
    read = [file for file in plan.files if file.steps]
    return [row for file in read for row in staged_rows(file, memoryview(files[file.path]), task)]


def times(rows: list[dict[str, Any]], axis: Axis) -> Iterator[tuple[int, int]]:
    """Yield commit LSN and time of each event and each truncate."""
    for row in rows:
        if row["table"] < 0:
            continue
        if len(row["data"]):
            events = timed(from_ipc(row["data"]), row["sequence"], axis)
            assert events.marks is not None
            yield from zip(events.lsn.to_pylist(), events.marks.top.tolist(), strict=True)
        for sequence, lsn, _, top in json.loads(row["info"]).get("emptied", ()):
            yield lsn, int(axis.times(sequence // PARTS, np.array([lsn]), np.array([top]))[0])


def axis_of(plan: Plan, rows: list[dict[str, Any]], before: int) -> Axis:
    told = [json.loads(row["info"])[:2] for row in rows if row["table"] == USES_TABLE]
    decided = [(one.commit_lsn, one.commit_time + POSTGRES_EPOCH_UNIX_MICROS) for one in plan.decided]
    return Axis.of(before, told, decided)


@given(captures, wishes)
def test_the_time_of_a_change_is_that_of_the_cut_it_belongs_to(drawn: Drawn, chosen: Any) -> None:
    files, state, ends = played(drawn, chosen)
    tops = accumulate((one.commit_time + POSTGRES_EPOCH_UNIX_MICROS for one in state.transactions), max)
    expected = dict(zip((one.commit_lsn for one in state.transactions), tops, strict=True))
    for guessing in (False, True):
        stored, before = None, NO_TIME
        for until in [*ends, None]:
            planned = plan_run(files, stored, guessing=guessing, until=until)
            if planned is None:
                continue
            stored = to_json(planned.plan.resume)
            rows = staged(planned.plan, files)
            axis = axis_of(planned.plan, rows, before)
            for lsn, time in times(rows, axis):
                # A copy of a transaction is decoded only to be compared.
                assert time == expected[lsn], f"{lsn:X}: {time - expected[lsn]} µs, until {until}"
            before = axis.end
        assert before == max(expected.values())


@pytest.mark.parametrize("lsns", [[], [5], [1, 9, 5, 5]])
def test_a_time_is_the_greatest_up_to_an_lsn(lsns: list[int]) -> None:
    known = np.array(lsns, np.int64)
    commits = Commits.of(known, 100 - known)
    asked = np.array([0, 1, 5, 7, 9, 10])
    found = commits.up_to(asked).tolist()
    assert found == [max((100 - lsn for lsn in lsns if lsn <= one), default=NO_TIME) for one in asked.tolist()]

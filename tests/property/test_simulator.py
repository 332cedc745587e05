"""Simulated captures come out as the simulator's model says: any transactions, sessions, files and runs.

``WALREPLAY_LONG=1`` tries 100,000 captures (another number: as many), ``WALREPLAY_SEED=n`` the one of that seed alone.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import assume, given, note

from support.extent import examples
from support.runs import Files, plan_runs
from support.simulator import LEAST_BYTES, Capture, Drawn, captures, play, seeded
from support.simulator_model import Label, Row, Rows
from support.simulator_server import UNCHANGED
from walreplay.changes import ChangeBatch, decode_plan
from walreplay.errors import CaptureError
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.stream.plan import Plan

_LONG: Final = int(os.environ.get("WALREPLAY_LONG") or 0)
_SEED: Final = os.environ.get("WALREPLAY_SEED")
_VOLUME: Final = 100_000 if _LONG == 1 else _LONG or examples(150)

_RARELY: Final = 0.005
"""Of all captures, as many may be refused: because a message that goes on in the next file, or is torn, can be read two
ways, or because of a session of which not one message is whole, between two that are torn."""


def rows_of(batch: ChangeBatch) -> list[Row]:
    """Write a batch's changes as the model does."""
    data = batch.data
    names = [column.name for column in batch.relation.columns]
    lists = {name: data.column(name).to_pylist() for name in ("__op", "__commit_lsn", "__xid", "__ordinal", *names)}
    times = data.column("__commit_ts").cast(pa.int64()).to_pylist()
    for name, mask in batch.unchanged.items():
        column = zip(lists[name], mask.to_pylist(), strict=True)
        lists[name] = [UNCHANGED if unchanged else value for value, unchanged in column]
    before: dict[int, tuple[str | None, ...]] = {}
    if batch.before is not None:
        for row in batch.before.to_pylist():
            before[row["__row"]] = tuple(_text(row[name]) for name in names)
    return [
        (
            op,
            lists["__commit_lsn"][at],
            times[at] - POSTGRES_EPOCH_UNIX_MICROS,
            lists["__xid"][at],
            lists["__ordinal"][at],
            None if op == "t" else tuple(_text(lists[name][at]) for name in names),
            before.get(at),
        )
        for at, op in enumerate(lists["__op"])
    ]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def decoded(plan: Plan, files: Files) -> Rows:
    """Return the row changes that a run applies."""
    found: Rows = {}
    for batch in decode_plan(plan, files.__getitem__):
        found.setdefault(batch.relation.qualified_name, []).extend(rows_of(batch))
    return found


def listed(plan: Plan) -> list[Label]:
    return [(one.kind, one.xid, one.gid) for one in plan.resume.open_transactions]


def difference(got: Rows, expected: Rows) -> str:
    """Return where row changes differ first."""
    for name in sorted({*got, *expected}):
        for number, (one, other) in enumerate(zip_longest(got.get(name, ()), expected.get(name, ()))):
            if one != other:
                return f"{name} change {number}: {one} instead of {other}"
    return "none"


def check_run(capture: Capture, size: int, applied: Rows, plan: Plan | None) -> bool:
    """See that what was applied so far is what the bytes hold; say whether that could be decided."""
    state = capture.expected(size)
    tears = capture.undecided(size)
    if tears and applied != state.rows:
        assert any(applied == capture.expected(tear).rows for tear in tears)
        return False
    assert applied == state.rows, f"after {size} bytes: {difference(applied, state.rows)}"
    if not tears and plan is not None:
        faults = state.faults_of(listed(plan))
        if faults and capture.is_open_ended(size):
            faults = capture.expected(size - 1).faults_of(listed(plan))
        bare = capture.bare_since(size)
        if faults and bare is not None:
            faults = capture.expected(bare).faults_of(listed(plan))
        assert faults == [], f"after {size} bytes: {faults}"
    return not tears


def check(capture: Capture, *, guessing: bool, forced: bool) -> str:
    """Run over a capture.

    Returns:
        right; refused, for a message that can be read two ways, several torn ones in a row, or the beginning of one
        alone; or undecided, where that message is one of which the rest of the capture may be the content.
    """
    applied: Rows = {}
    done = 0
    decided = True
    framing = capture.framing if forced else None
    try:
        for files, planned in plan_runs(capture.stages, guessing=guessing, framing=framing):
            done = sum(map(len, files.values()))
            for name, rows in decoded(planned.plan, files).items():
                applied.setdefault(name, []).extend(rows)
            decided = check_run(capture, done, applied, planned.plan)
    except (AssertionError, CaptureError) as error:
        if capture.is_completed():
            return "completed"
        if isinstance(error, CaptureError) and capture.has_bare_session():
            return "refused"
        if "too few to tell" in str(error) and not capture.has_message(min(s for s in capture.sizes if s > done)):
            return "refused"
        if "two ways" not in str(error):
            raise
        # Of a torn logical message that is as it should be; of others it has to be rare.
        return "undecided" if any(map(capture.undecided, capture.sizes)) else "refused"
    if done < len(capture.data):
        # There were no more bytes than in the run before, or no run at all.
        check_run(capture, len(capture.data), applied, None)
    return "right" if decided else "undecided"


def check_both(drawn: Drawn, capture: Capture) -> set[str]:
    """Run over a capture with each file scanned from a guess, and from its true place."""
    forced = drawn.options[3] // 16 % 2 == 1
    return {check(capture, guessing=guessing, forced=forced) for guessing in (False, True)}


@given(captures)
def test_any_capture_comes_out_as_the_model_says(drawn: Drawn) -> None:
    capture = play(drawn)
    assume(len(capture.data) >= LEAST_BYTES)
    note(capture.listing())
    check_both(drawn, capture)


def test_many_captures_come_out_as_the_model_says() -> None:
    seeds = range(_VOLUME) if _SEED is None else [int(_SEED)]
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        drawn = seeded(seed)
        capture = play(drawn)
        if len(capture.data) < LEAST_BYTES:
            continue
        try:
            outcomes.update(check_both(drawn, capture))
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n{capture.listing()}\n{drawn}", pytrace=False)
    assert outcomes["refused"] <= 1 + _RARELY * len(seeds)

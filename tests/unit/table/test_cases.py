"""What is there, and what comes: each pair has exactly one case, and a run's tables come to the right one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from support.planned import Used, relation, run_plan
from walreplay.config.selection import Share
from walreplay.delta.commits import CommitId
from walreplay.fold.events import Mode
from walreplay.spark.staging import EmptiedAt
from walreplay.table.cases import ACTIONS, CASES, CommitKind, EpochCase, Incoming, Present
from walreplay.table.table_run import TableRun

COMMIT = CommitId("ledger", 3)
KNOWN = run_plan(Used(relation("id* note"))).tables[0].after


def run_of(*versions: str, known: bool = False, share: bool = False, **values: object) -> TableRun:
    """Plan a run for a table; ``values``: attributes of the run, of its plan, and of the epochs."""
    entries = (KNOWN,) if known else ()
    (plan,) = run_plan(*(Used(relation(text)) for text in versions), entries=entries).tables
    of_epochs = {name: values.pop(name) for name in ("rows", "identity") if name in values}
    epochs = tuple(replace(epoch, **of_epochs) for epoch in plan.epochs)  # type: ignore[arg-type]
    of_plan = {name: values.pop(name) for name in ("truncated", "soft_deletes") if name in values}
    metadata = replace(plan.metadata, share=Share("source", "a") if share else None)
    plan = replace(plan, epochs=epochs, metadata=metadata, **of_plan)  # type: ignore[arg-type]
    run = TableRun(plan, COMMIT, resumed=False, buckets=1, tasks=1, size=0, exists=known)
    return replace(run, **values)  # type: ignore[arg-type]


def test_each_pair_of_what_is_there_and_what_comes_has_exactly_one_case() -> None:
    assert set(CASES) == set(Present)
    assert all(set(cases) == set(Incoming) for cases in CASES.values())
    assert all(isinstance(CASES[present][incoming], EpochCase) for present, incoming in product(Present, Incoming))
    assert {case.commit for cases in CASES.values() for case in cases.values()} == set(CommitKind)
    assert {case.action for cases in CASES.values() for case in cases.values()} == set(ACTIONS)


def test_only_a_table_that_the_ledger_knows_keeps_rows_that_are_there() -> None:
    for present, cases in CASES.items():
        for incoming, case in cases.items():
            keeps = case.commit in (CommitKind.APPEND, CommitKind.EMPTY, CommitKind.MERGE) and not case.fresh
            assert keeps == (present is Present.KNOWN and incoming is not Incoming.TRUNCATED)


def test_a_table_that_is_gone_is_not_made_of_a_runs_changes_alone() -> None:
    run = run_of("id* note", known=True, exists=False)
    assert (run.present, run.merges[0].case.commit) == (Present.GONE, CommitKind.REFUSED)
    # All that it had is deleted: it is whole.
    truncated = run_of("id* note", known=True, exists=False, truncated=True)
    assert truncated.merges[0].case.commit is CommitKind.CREATE
    soft = run_of("id* note", known=True, exists=False, truncated=True, soft_deletes=True)
    assert soft.merges[0].case.commit is CommitKind.REFUSED


@pytest.mark.parametrize(
    ("values", "present"),
    [
        ({}, Present.NOTHING),
        ({"exists": True}, Present.UNKNOWN),
        ({"exists": True, "resumed": True}, Present.BEGUN),
        ({"exists": True, "share": True}, Present.BEGUN),
        ({"exists": True, "share": True, "has_own_rows": False}, Present.OTHERS),
        ({"known": True}, Present.KNOWN),
        ({"known": True, "share": True}, Present.KNOWN),
        ({"known": True, "exists": False}, Present.GONE),
    ],
)
def test_a_run_knows_what_is_there(values: dict[str, bool], present: Present) -> None:
    assert run_of("id* note", **values).present is present


def test_every_run_comes_to_the_commit_that_its_rows_need() -> None:
    identities = {mode: replace(KEYED, mode=mode, key=() if mode is not Mode.KEYED else KEYED.key) for mode in Mode}
    flags = ("exists", "known", "share", "has_own_rows", "resumed", "truncated", "soft_deletes")
    for *bits, mode, rows, ends in product(*[[False, True]] * len(flags), Mode, (0, 5), (False, True)):
        given = dict(zip(flags, bits, strict=True))
        emptied = (EmptiedAt(0, 7, 0, 8),) if ends else ()
        run = run_of("id* note", rows=rows, identity=identities[mode], emptied=emptied, **given)
        assert run.merges[0].case == expected(mode, rows=rows, ends=ends, **given), (given, mode, rows, ends)


KEYED = run_of("id* note").plan.epochs[0].identity


def expected(
    mode: Mode,
    *,
    rows: int,
    ends: bool,
    exists: bool,
    known: bool,
    share: bool,
    has_own_rows: bool,
    resumed: bool,
    truncated: bool,
    soft_deletes: bool,
) -> EpochCase:
    """Decide the same step by step, without a table of cases."""
    empties = truncated and not soft_deletes
    if not exists:
        if known and not empties:
            return EpochCase(CommitKind.REFUSED, "unchanged")
        return EpochCase(CommitKind.CREATE, "created", fresh=True)
    if not known and not has_own_rows:
        return EpochCase(CommitKind.APPEND, "created", fresh=True)
    if not known:
        return EpochCase(CommitKind.OVERWRITE, "created" if resumed or share else "overwritten", fresh=True)
    if empties:
        return EpochCase(CommitKind.OVERWRITE, "overwritten", fresh=True)
    if mode is Mode.APPEND and not ends:
        return EpochCase(CommitKind.APPEND, "appended")
    if not rows and not ends:
        return EpochCase(CommitKind.EMPTY, "merged")
    return EpochCase(CommitKind.MERGE, "merged")


def test_later_epochs_find_what_the_first_one_has_left() -> None:
    run = run_of("id* note", "id note*", truncated=True, exists=True)
    assert [merge.case.commit for merge in run.merges] == [CommitKind.OVERWRITE, CommitKind.MERGE]
    numbers = [merge.commit.number for merge in run.merges]
    assert numbers == sorted(set(numbers))
    assert len({merge.form for merge in run.merges}) == 2

"""What a table's commits say of it, against what the ledger's last run has left."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walreplay.delta.commits import CommitId, LoggedCommit, RunId, follow, others_change

LEFT = 4


def own(version, run, number=1, ledger="ours", operation="MERGE", **parameters):
    return LoggedCommit(version, operation, parameters, CommitId(ledger, number, RunId(run, 100, 1), 7))


def others(version, operation, **parameters):
    return LoggedCommit(version, operation, parameters, None)


def restore(version, back):
    return LoggedCommit(version, "RESTORE", {"version": back}, None)


def stand(*commits, run=None, left=LEFT):
    return follow(commits, ledger="ours", left=left, run=run)


@pytest.mark.parametrize(
    "commit",
    [
        CommitId("ours", 3),
        CommitId("ours", 3 << 16 | 5, RunId("id", 1 << 63, 12), 16384),
        CommitId("ours/runs", 3, RunId("id", -1, 0)),
        CommitId("ours", 3, RunId("id", 1, 1), 7, {"without_base": 2}),
        CommitId("ours", 3, RunId("id", 1, 1), 7, {}),
        CommitId("ours", 3, RunId("id", 1, 1), 7, None, "eu"),
        CommitId("ours", 3, RunId("id", 1, 1), 7, None, None, "0a1b"),
    ],
)
def test_a_mark_is_read_as_it_was_written(commit):
    found = CommitId.of_mark(commit.mark)
    assert (found, found.counts, found.source, found.form) == (commit, commit.counts, commit.source, commit.form)


def test_what_its_rows_are_counted_for_makes_no_other_commit():
    one = CommitId("ours", 3, RunId("id", 1, 1), 7)
    assert replace(one, counts={"gone": 1}) == one


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "3",
        '{"number": 1}',
        '{"walreplay": "a", "number": 1, "counts": 3}',
        '{"walreplay": "a", "number": "x"}',
    ],
)
def test_what_others_have_there_is_no_mark(text):
    assert CommitId.of_mark(text) is None


@pytest.mark.parametrize(
    "operation", ["OPTIMIZE", "VACUUM END", "SET TBLPROPERTIES", "CLUSTER BY", "REORG", "RENAME COLUMN"]
)
def test_what_keeps_the_rows_is_nobodys_concern(operation):
    standing = stand(others(5, operation))
    assert (standing.is_sound, standing.latest, standing.left) == (True, 5, LEFT)


@pytest.mark.parametrize("operation", ["WRITE", "MERGE", "UPDATE", "DELETE", "TRUNCATE", "DROP COLUMNS", "one to come"])
def test_what_changes_rows_is_somebodys_change(operation):
    standing = stand(others(5, "OPTIMIZE"), others(6, operation), others(7, "OPTIMIZE"))
    assert (standing.changed.version, standing.left, standing.latest) == (6, LEFT, 7)


def test_a_restore_undoes_what_has_come_since():
    change = others(5, "DELETE")
    assert stand(change, restore(6, LEFT)).is_sound
    assert stand(others(5, "OPTIMIZE"), others(6, "UPDATE"), restore(7, "5")).is_sound
    assert not stand(change, restore(6, 5)).is_sound
    # From before, from nowhere, or by a time, which does not say what it is.
    for back in (LEFT - 1, 99, None):
        assert stand(change, restore(6, back)).changed.version == 5
        assert stand(restore(5, back)).changed.version == 5


def test_commits_of_runs_that_the_ledger_does_not_know_are_ahead_of_it():
    standing = stand(own(5, "b", 8), own(6, "c", 9))
    assert [(one.run.id, one.number) for one in standing.ahead] == [("b", 8), ("c", 9)]
    assert standing.changed is None
    assert stand(own(5, "b"), restore(6, LEFT)).is_sound
    assert [one.run.id for one in stand(own(5, "b"), restore(6, LEFT), own(7, "c")).ahead] == ["c"]
    assert stand(own(5, "b", ledger="theirs")).changed.version == 5
    assert stand(own(0, "b"), left=-1).ahead


def test_the_highest_number_of_a_ledger_s_commits_is_known_though_a_restore_has_undone_them():
    assert stand(own(5, "b", 8), own(6, "c", 9), restore(7, LEFT), own(8, "x", 99, "theirs")).highest == 9
    assert stand(others(5, "OPTIMIZE")).highest == 0


def test_an_interrupted_run_has_looked_at_what_was_there_before_its_first_commit():
    standing = stand(others(5, "DELETE"), own(6, "a", 11), own(7, "a", 12), run="a")
    assert (standing.is_sound, standing.left, standing.steps) == (True, 7, {11, 12})
    # Whether it was there when the run began to look, the table does not say.
    assert standing.passed.version == 5
    assert stand(others(5, "OPTIMIZE"), own(6, "a", 11), run="a").passed is None


def test_of_a_runs_commits_those_by_others_between_them_are_told():
    between = own(5, "b"), others(6, "OPTIMIZE"), others(7, "DELETE"), others(8, "UPDATE"), own(9, "a")
    assert others_change(between, ledger="ours").version == 7
    assert others_change(between[:2], ledger="ours") is None
    theirs = (own(5, "x", 1, "theirs"),)
    assert others_change(theirs, ledger="ours").version == 5
    assert others_change(theirs, ledger="ours", is_siblings=lambda commit: commit.application == "theirs") is None


def test_what_is_undone_of_an_interrupted_run_has_to_come_back():
    commits = own(5, "a", 11), own(6, "a", 12), restore(7, 5)
    standing = stand(*commits, run="a")
    assert (standing.changed.version, standing.left) == (7, 6)
    assert stand(*commits, restore(8, standing.left), run="a").is_sound


_EVENTS = st.lists(st.one_of(st.sampled_from(["keep", "change", "a", "b"]), st.integers(0, 8)), max_size=8)


@given(_EVENTS, st.sampled_from([None, "a"]))
def test_going_back_to_what_is_named_makes_any_table_sound_again(events, run):
    commits = []
    for version, event in enumerate(events, LEFT + 1):
        if isinstance(event, int):
            commits.append(restore(version, LEFT - 2 + event))
        elif event in ("keep", "change"):
            commits.append(others(version, "OPTIMIZE" if event == "keep" else "DELETE"))
        else:
            commits.append(own(version, event, version))
    standing = stand(*commits, run=run)
    again = stand(*commits, restore(standing.latest + 1, standing.left), run=run)
    assert again.is_sound
    assert len(again.steps) >= len(standing.steps)


def shared(*commits, run=None, left=LEFT):
    return follow(commits, ledger="ours", left=left, run=run, is_siblings=lambda commit: commit.application == "theirs")


def test_commits_of_another_source_leave_a_source_s_rows_as_they_are():
    theirs = [own(version, "x", version, "theirs") for version in (5, 6)]
    found = shared(*theirs)
    # To set the table back to it takes nobody's rows away.
    assert (found.is_sound, found.latest, found.left) == (True, 6, 6)
    changed = shared(theirs[0], others(6, "UPDATE"), own(7, "x", 7, "theirs"))
    assert (changed.changed.version, changed.left) == (6, 5)
    assert shared(theirs[0], own(6, "x", 1, "strangers")).changed.version == 6
    # What is not said to be shared is as ever.
    assert stand(*theirs).changed.version == 5


def test_no_ledger_is_asked_of_what_comes_behind_a_change():
    asked = []

    def is_siblings(commit):
        asked.append(commit.number)
        return False

    told = [own(version, "x", version, "theirs") for version in range(5, 50)]
    assert follow(told, ledger="ours", left=LEFT, is_siblings=is_siblings).changed.version == 5
    assert asked == [5]


def test_a_run_that_goes_on_finds_its_steps_between_those_of_others():
    found = shared(own(5, "x", 1, "theirs"), own(6, "run", 3), own(7, "x", 2, "theirs"), own(8, "run", 4), run="run")
    assert (found.is_sound, found.steps, found.left) == (True, {3, 4}, 8)
    ahead = shared(own(5, "x", 1, "theirs"), own(6, "lost", 3), own(7, "x", 2, "theirs"))
    assert ([commit.number for commit in ahead.ahead], ahead.left) == ([3], 5)


def test_a_restore_that_takes_a_source_s_rows_away_is_seen():
    assert shared(own(5, "x", 1, "theirs"), restore(6, 3)).changed.version == 6
    assert shared(own(5, "x", 1, "theirs"), others(6, "UPDATE"), restore(7, 5)).is_sound
    # Another source cannot say that a RESTORE is its own.
    told = replace(restore(6, 3), id=own(6, "x", 2, "theirs").id)
    assert shared(own(5, "x", 1, "theirs"), told).changed.version == 6

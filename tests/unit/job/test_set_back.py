"""What a run says of tables that are newer than their ledger."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from walreplay.delta.commits import CommitId, RunId, Standing
from walreplay.delta.target import TableName
from walreplay.errors import TargetError
from walreplay.job.standing import MAX_STATEMENTS, KnownTable, check_ahead

_KNOWN, _REACHED = 100, 300

# One transaction is applied, two are to come.
_PLAN = SimpleNamespace(after_lsn=_KNOWN, upto_lsn=_REACHED, transactions=2, resume=SimpleNamespace(applied=3))


def _ahead(name="t", *, upto=_REACHED, applied=3, is_known=True, shared=False):
    commit = CommitId("ours", 2 << 16, RunId("lost", upto, applied), 1)
    table, siblings = TableName(path=f"/m/s/{name}"), (lambda _: True) if shared else None
    known = KnownTable(table, name, "ours", SimpleNamespace() if is_known else None, is_siblings=siblings)
    return known, Standing(2, 1, ahead=(commit,))


def _refused(*ahead):
    """Return the error; one transaction of the plan is at 200."""
    with pytest.raises(TargetError) as caught:
        check_ahead(ahead, _PLAN, SimpleNamespace(count=lambda lsn: {200: 1}[lsn]))
    return str(caught.value)


def _statements(error):
    return re.findall(r"RESTORE TABLE \S+ TO VERSION AS OF \d+", error)


def test_one_error_has_the_statements_for_all_tables():
    error = _refused(_ahead("a"), _ahead("b", upto=200, applied=2), _ahead("new", is_known=False))
    assert _statements(error) == [f"RESTORE TABLE delta.`/m/s/{name}` TO VERSION AS OF 1" for name in "ab"]
    assert error.startswith("table a, b: the ledger was set back: 2 tables are newer")


def test_of_very_many_tables_the_error_says_how_the_others_follow():
    error = _refused(*(_ahead(f"t{number}") for number in range(MAX_STATEMENTS + 7)))
    assert len(_statements(error)) == MAX_STATEMENTS
    assert "the next run names the statements for the other 7" in error


def test_tables_that_the_ledger_does_not_know_are_written_from_the_beginning():
    check_ahead([_ahead(is_known=False)], _PLAN, SimpleNamespace())
    check_ahead([], _PLAN, SimpleNamespace())


@pytest.mark.parametrize("lost", [{"upto": 301}, {"applied": 4}, {"upto": 200, "applied": 3}])
@pytest.mark.parametrize("known", [True, False])
def test_no_statement_is_named_that_would_lose_transactions(lost, known):
    error = _refused(_ahead("kept"), _ahead("t", is_known=known, **lost))
    assert not _statements(error)
    assert error.startswith("/m/s/t, table t: the table is newer than the ledger")
    assert "Bring back the captures that are missing" in error


def test_what_a_run_that_was_taken_over_has_written_late_is_undone_on_a_condition():
    error = _refused(_ahead(upto=_KNOWN, applied=1))
    assert "If a run that was taken over has written this late: RESTORE TABLE" in error
    assert "the ledger knows of LSN" in error
    assert "the table has that only since then" in error


def test_no_statement_is_named_that_would_take_rows_of_others_away():
    error = _refused(_ahead("a"), _ahead("b", shared=True))
    assert not _statements(error)
    assert "to set it back would take their rows away" in error

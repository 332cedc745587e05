"""A run may end at any commit: what it applies is the prefix of all commits up to there, and the next run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from hypothesis import assume, given, note
from hypothesis import strategies as st

from property.test_simulator import decoded, difference
from support.runs import Files, plan_run
from support.simulator import LEAST_BYTES, Drawn, captures, play
from support.simulator_model import Rows, State, Transaction
from walreplay.decode.scan import Until
from walreplay.errors import CaptureError
from walreplay.ledger.state import to_json

Wish = tuple[int, bool, int]
"""Which transaction an end is near (a number that wraps around), whether by its time, and how far from it."""

wishes = st.lists(st.tuples(st.integers(0, 200), st.booleans(), st.sampled_from([-1, 0, 1])), min_size=1, max_size=4)


def until_of(wish: Wish, transactions: Sequence[Transaction]) -> Until:
    number, by_time, distance = wish
    chosen = transactions[number % len(transactions)]
    return Until(time=chosen.commit_time + distance) if by_time else Until(lsn=chosen.commit_lsn + distance)


def wanted(until: Until | None, transactions: Sequence[Transaction]) -> list[Transaction]:
    """Return the transactions in front of the first one that is too late."""

    def in_time(one: Transaction) -> bool:
        if until is None:
            return True
        return one.commit_lsn <= until.lsn if until.lsn is not None else one.commit_time <= (until.time or 0)

    return list(takewhile(in_time, transactions))


def rows_of_runs(files: Files, ends: Sequence[Until | None], state: State, *, guessing: bool) -> None:
    """Run to one end after the other, and see after each that what was applied is what is wanted."""
    stored: str | None = None
    applied: Rows = {}
    for until in ends:
        planned = plan_run(files, stored, guessing=guessing, until=until)
        if planned is not None:
            stored = to_json(planned.plan.resume)
            for name, rows in decoded(planned.plan, files).items():
                applied.setdefault(name, []).extend(rows)
        part = State(tuple(wanted(until, state.transactions)), {}, frozenset(), ())
        assert applied == part.rows, f"until {until}: {difference(applied, part.rows)}"


def played(drawn: Drawn, chosen: Sequence[Wish]) -> tuple[Files, State, list[Until]]:
    """Return the files of a simulated capture, what they hold, and ends of runs, each behind the one before."""
    capture = play(drawn)
    assume(len(capture.data) >= LEAST_BYTES)
    files = capture.stages[-1]
    state = capture.expected(sum(map(len, files.values())))
    assume(state.transactions)
    try:
        whole = plan_run(files, None)
    except CaptureError:
        # It may be read in two ways.
        assume(False)
    assert whole is not None
    assume(decoded(whole.plan, files) == state.rows)
    note(capture.listing())
    ends = [until_of(wish, state.transactions) for wish in chosen]
    ends.sort(key=lambda until: len(wanted(until, state.transactions)))
    return files, state, ends


@given(captures, wishes)
def test_a_run_ends_in_front_of_the_first_transaction_that_is_too_late(drawn: Drawn, chosen: list[Wish]) -> None:
    files, state, ends = played(drawn, chosen)
    note(f"{ends}")
    for guessing in (False, True):
        rows_of_runs(files, [*ends, None], state, guessing=guessing)

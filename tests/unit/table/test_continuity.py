"""What shows that captures are of another server, and what does not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from walreplay.delta.target import Target
from walreplay.errors import OrderError
from walreplay.evolution.shapes import TableShape
from walreplay.stream.duplicates import Followed
from walreplay.table.placement import Placement, Use, UsedRelation, check_followed, plan_moves, warnings_of
from walreplay.table.registry import MirrorEntry

TARGET = Target.parse("/m")
DAY = timedelta(days=1)


def remade(count: int, *, of: int = 5, policy: str = "replace", said: bool = False, known: int = 0) -> Placement:
    """Place so many tables that were made anew, and so many that were not, of those that there are."""
    tables = [TARGET.table("s", f"t{number}") for number in range(of)]
    entries = [MirrorEntry(number, f"s.t{number}", table, TableShape()) for number, table in enumerate(tables)]
    wanted = [
        UsedRelation(
            number + (0 if number < known else 100), f"s.t{number}", tables[number], policy, policy_is_explicit=said
        )  # type: ignore[arg-type]
        for number in range(known + count)
    ]
    uses: Sequence[Use] = [Use(one.oid, one.table.place) for one in wanted]
    return plan_moves(entries, wanted, uses, TARGET)


@pytest.mark.parametrize(
    "followed",
    [
        Followed(3, -1, DAY),
        Followed(100, -(1 << 31), DAY),
        Followed(1, -(1 << 21), DAY),
        Followed(1, 7, -DAY),
        Followed(5, 1, timedelta(minutes=-61)),
    ],
)
def test_what_no_one_server_can_have_done_is_refused(followed: Followed) -> None:
    with pytest.raises(OrderError, match=r"4 of 5 tables \(s\.t0, s\.t1, s\.t2, …\) have new oids") as caught:
        check_followed(remade(4), lambda: followed, 5)
    assert "on_recreate: replace" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    "followed",
    [
        Followed(8, 1, DAY),
        # Some were under way for long, but others began since.
        Followed(1000, 1, None),
        # One or two may have been under way.
        Followed(2, -1000, DAY),
        Followed(1, -(1 << 20), DAY),
        # An origin brings times of its own, and no clock is exact.
        Followed(8, 1, None),
        Followed(8, 1, timedelta(minutes=-5)),
        Followed(0, 0, None),
    ],
)
def test_what_one_server_can_have_done_is_not(followed: Followed) -> None:
    check_followed(remade(4), lambda: followed, 5)


@pytest.mark.parametrize(
    ("placement", "is_in_doubt"),
    [
        (remade(1), True),
        (remade(5), True),
        (remade(0), False),
        (remade(0, known=2), False),
        (remade(4, known=1), False),
        (remade(5, said=True), False),
    ],
)
def test_nothing_is_in_doubt_where_a_table_is_as_it_was_or_somebody_has_said_it(
    placement: Placement, is_in_doubt: bool
) -> None:
    compared = []
    check_followed(placement, lambda: compared.append(True), 5)
    assert bool(compared) == is_in_doubt


@pytest.mark.parametrize(
    ("policy", "text"), [("replace", "old rows are set aside, in the ledger"), ("keep", "old rows are kept")]
)
def test_many_tables_that_were_made_anew_are_a_warning(policy: str, text: str) -> None:
    (warning,) = warnings_of(remade(3, policy=policy), 5)
    assert warning.startswith("3 of 5 tables (s.t0, s.t1, s.t2) were dropped and created again")
    assert text in warning
    assert not list(warnings_of(remade(2, policy=policy), 5))
    assert not list(warnings_of(remade(3, of=6, policy=policy), 6))

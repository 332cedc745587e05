"""Changes of a column's type whose values follow from the old ones, by the oids and modifiers of PostgreSQL's types."""

import pytest

from walreplay.decode.announcements import casts_exactly


def numeric(digits, scale):
    return 1700, (digits << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((23, -1), (23, -1)),
        ((23, -1), (20, -1)),
        ((20, -1), (21, -1)),
        ((23, -1), (25, -1)),
        ((23, -1), numeric(12, 2)),
        (numeric(10, 2), numeric(14, 4)),
        (numeric(10, 2), (1700, -1)),
        ((1043, 14), (1043, 24)),
        ((1043, 14), (25, -1)),
        ((1114, 0), (1114, 3)),
        ((1082, -1), (1114, -1)),
        ((700, -1), (701, -1)),
        ((1042, 9), (1042, -1)),
    ],
)
def test_what_keeps_values(old, new):
    assert casts_exactly(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (numeric(10, 2), numeric(10, 1)),
        (numeric(10, 2), (23, -1)),
        ((1700, -1), numeric(10, 2)),
        (numeric(3, -2), numeric(10, 0)),
        (numeric(10, 2), numeric(3, -2)),
        ((23, -1), numeric(3, -2)),
        # Both are texts in the mirror.
        (numeric(50, 2), numeric(50, 4)),
        ((20, -1), (701, -1)),
        ((701, -1), (700, -1)),
        ((1114, -1), (1184, -1)),
        ((1114, -1), (1114, 0)),
        ((1042, 9), (25, -1)),
        ((1043, 24), (1043, 14)),
        ((25, -1), (1043, 14)),
        ((650, -1), (869, -1)),
        ((23, -1), (16400, -1)),
        ((1007, -1), (1016, -1)),
    ],
)
def test_what_may_not(old, new):
    assert not casts_exactly(old, new)

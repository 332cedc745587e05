"""interval, and the types that ended with PostgreSQL 11."""

from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types.datetime import abstime_text, interval_text, reltime_text, tinterval_text

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("months", "days", "micros", "text"),
    [
        (0, 0, 0, "00:00:00"),
        (12, 0, 0, "1 year"),
        (-12, 0, 0, "-1 years"),
        (14, 3, 14_706_700_000, "1 year 2 mons 3 days 04:05:06.7"),
        (-1, 1, 0, "-1 mons +1 day"),
        (0, -1, 7200 * SECOND, "-1 days +02:00:00"),
        (0, 1, -SECOND, "1 day -00:00:01"),
        (-11, 0, -1, "-11 mons -00:00:00.000001"),
        (0, 0, 2**63 - 1, "2562047788:00:54.775807"),
        (-(2**31), 0, 0, "-178956970 years -8 mons"),
        (2**31 - 1, 2**31 - 1, 2**63 - 1, "infinity"),
        (-(2**31), -(2**31), -(2**63), "-infinity"),
    ],
)
def test_each_part_of_an_interval_has_its_own_sign(months, days, micros, text):
    assert interval_text(pack("!qii", micros, days, months)) == text


def test_an_interval_has_its_size():
    with pytest.raises(ValueFormatError):
        interval_text(b"\0" * 12)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01 00:00:00+00"),
        (-1, "1969-12-31 23:59:59+00"),
        (0x7FFF_FFFC, "infinity"),
        (-(2**31), "-infinity"),
        (0x7FFF_FFFE, "invalid"),
    ],
)
def test_an_abstime(seconds, text):
    assert abstime_text(pack("!i", seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "00:00:00"), (90_061, "1 day 01:01:01"), (31_557_600 + 30 * 86_400, "1 year 1 mon"), (-60, "-00:01:00")],
)
def test_a_reltime(seconds, text):
    assert reltime_text(pack("!i", seconds)) == text


def test_a_tinterval():
    assert tinterval_text(pack("!iii", 1, 0, 1)) == '["1970-01-01 00:00:00+00" "1970-01-01 00:00:01+00"]'
    assert tinterval_text(pack("!iii", 0, 0, 1)) == '["Undefined Range"]'
    with pytest.raises(ValueFormatError):
        tinterval_text(pack("!iii", 2, 0, 1))

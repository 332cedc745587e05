"""Dates and times in binary format, which count from 2000-01-01."""

from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types.datetime import (
    clock_text,
    date_text,
    time_text,
    timestamp_text,
    timestamptz_text,
    timetz_text,
)

DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "2000-01-01"),
        (59, "2000-02-29"),
        (-1, "1999-12-31"),
        (-730_119, "0001-01-01"),
        (-730_120, "0001-12-31 BC"),
        (-2_451_545, "4714-11-24 BC"),
        (2_921_940, "10000-01-01"),
        (2_145_031_948, "5874897-12-31"),
        (2**31 - 1, "infinity"),
        (-(2**31), "-infinity"),
    ],
)
def test_a_date(days, text):
    assert date_text(pack("!i", days)) == text


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "2000-01-01 00:00:00"),
        (1, "2000-01-01 00:00:00.000001"),
        (-500_000, "1999-12-31 23:59:59.5"),
        (-730_120 * DAY + 60_000_000, "0001-12-31 00:01:00 BC"),
        (9_223_371_331_199_999_999, "294276-12-31 23:59:59.999999"),
        (2**63 - 1, "infinity"),
        (-(2**63), "-infinity"),
    ],
)
def test_a_timestamp(micros, text):
    assert timestamp_text(pack("!q", micros)) == text


@pytest.mark.parametrize(
    ("micros", "text"),
    [(0, "2000-01-01 00:00:00+00"), (-730_120 * DAY, "0001-12-31 00:00:00+00 BC"), (2**63 - 1, "infinity")],
)
def test_a_timestamptz_is_in_utc(micros, text):
    assert timestamptz_text(pack("!q", micros)) == text


@pytest.mark.parametrize(
    ("micros", "text"),
    [(0, "00:00:00"), (DAY, "24:00:00"), (3_723_040_000, "01:02:03.04"), (DAY - 1, "23:59:59.999999")],
)
def test_a_time(micros, text):
    assert time_text(pack("!q", micros)) == text


@pytest.mark.parametrize(
    ("west", "zone"), [(0, "+00"), (-3600, "+01"), (12_600, "-03:30"), (-57_599, "+15:59:59"), (15, "-00:00:15")]
)
def test_the_zone_of_a_timetz_is_sent_in_seconds_to_the_west(west, zone):
    assert timetz_text(pack("!qi", 0, west)) == f"00:00:00{zone}"


def test_the_hours_of_a_clock_have_no_limit():
    assert clock_text(1000 * 3_600_000_000) == "1000:00:00"


@pytest.mark.parametrize(
    ("write", "data"),
    [
        (date_text, pack("!i", 2_145_031_949)),
        (date_text, pack("!i", -2_451_546)),
        (date_text, pack("!q", 0)),
        (timestamp_text, pack("!q", 9_223_371_331_200_000_000)),
        (timestamptz_text, pack("!q", -(2**63) + 1)),
        (timestamp_text, b""),
        (time_text, pack("!q", DAY + 1)),
        (time_text, pack("!q", -1)),
        (timetz_text, pack("!qi", 0, 57_600)),
        (timetz_text, pack("!q", 0)),
    ],
)
def test_what_no_server_sends_is_refused(write, data):
    with pytest.raises(ValueFormatError):
        write(data)

"""Dates, times and intervals in binary format; dates count from 2000-01-01.

The types that ended with PostgreSQL 11 count from 1970.
"""

from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types.datetime import (
    abstime_text,
    clock_text,
    date_text,
    interval_text,
    reltime_text,
    time_text,
    timestamp_text,
    timestamptz_text,
    timetz_text,
    tinterval_text,
)

SECOND = 1_000_000
DAY = 86_400 * SECOND
TEXTS = {
    (date_text, "!i"): [
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
    (timestamp_text, "!q"): [
        (0, "2000-01-01 00:00:00"),
        (1, "2000-01-01 00:00:00.000001"),
        (-500_000, "1999-12-31 23:59:59.5"),
        (-730_120 * DAY + 60_000_000, "0001-12-31 00:01:00 BC"),
        (9_223_371_331_199_999_999, "294276-12-31 23:59:59.999999"),
        (9_223_371_331_200_000_000, "294277-01-01 00:00:00"),
        (2**63 - 1, "infinity"),
        (-(2**63), "-infinity"),
    ],
    # In UTC.
    (timestamptz_text, "!q"): [
        (0, "2000-01-01 00:00:00+00"),
        (-730_120 * DAY, "0001-12-31 00:00:00+00 BC"),
        (2**63 - 1, "infinity"),
    ],
    (time_text, "!q"): [
        (0, "00:00:00"),
        (DAY, "24:00:00"),
        (3_723_040_000, "01:02:03.04"),
        (DAY - 1, "23:59:59.999999"),
    ],
    # The zone is sent in seconds to the west.
    (timetz_text, "!qi"): [
        (0, 0, "00:00:00+00"),
        (0, -3600, "00:00:00+01"),
        (0, 12_600, "00:00:00-03:30"),
        (0, -57_599, "00:00:00+15:59:59"),
        (0, 15, "00:00:00-00:00:15"),
    ],
    # Microseconds, days and months, each of which has its own sign.
    (interval_text, "!qii"): [
        (0, 0, 0, "00:00:00"),
        (0, 0, 12, "1 year"),
        (0, 0, -12, "-1 years"),
        (14_706_700_000, 3, 14, "1 year 2 mons 3 days 04:05:06.7"),
        (0, 1, -1, "-1 mons +1 day"),
        (7200 * SECOND, -1, 0, "-1 days +02:00:00"),
        (-SECOND, 1, 0, "1 day -00:00:01"),
        (-1, 0, -11, "-11 mons -00:00:00.000001"),
        (2**63 - 1, 0, 0, "2562047788:00:54.775807"),
        (0, 0, -(2**31), "-178956970 years -8 mons"),
        (2**63 - 1, 2**31 - 1, 2**31 - 1, "infinity"),
        (-(2**63), -(2**31), -(2**31), "-infinity"),
    ],
    (abstime_text, "!i"): [
        (0, "1970-01-01 00:00:00+00"),
        (-1, "1969-12-31 23:59:59+00"),
        (0x7FFF_FFFC, "infinity"),
        (-(2**31), "-infinity"),
        (0x7FFF_FFFE, "invalid"),
    ],
    (reltime_text, "!i"): [
        (0, "00:00:00"),
        (90_061, "1 day 01:01:01"),
        (31_557_600 + 30 * 86_400, "1 year 1 mon"),
        (-60, "-00:01:00"),
    ],
    (tinterval_text, "!iii"): [
        (1, 0, 1, '["1970-01-01 00:00:00+00" "1970-01-01 00:00:01+00"]'),
        (0, 0, 1, '["Undefined Range"]'),
    ],
}


@pytest.mark.parametrize(
    ("write", "layout", "fields", "text"),
    [(write, layout, fields, text) for (write, layout), rows in TEXTS.items() for *fields, text in rows],
)
def test_a_value_is_written_as_the_server_writes_it(write, layout, fields, text):
    assert write(pack(layout, *fields)) == text


def test_the_hours_of_a_clock_have_no_limit():
    assert clock_text(1000 * 3_600_000_000) == "1000:00:00"


@pytest.mark.parametrize(
    ("write", "data"),
    [
        (date_text, pack("!i", 2_145_031_949)),
        (date_text, pack("!i", -2_451_546)),
        (date_text, pack("!q", 0)),
        (timestamp_text, pack("!q", 9_223_371_331_200_000_001)),
        (timestamptz_text, pack("!q", -(2**63) + 1)),
        (timestamp_text, b""),
        (time_text, pack("!q", DAY + 1)),
        (time_text, pack("!q", -1)),
        (timetz_text, pack("!qi", 0, 57_600)),
        (timetz_text, pack("!q", 0)),
        (interval_text, b"\0" * 12),
        (tinterval_text, pack("!iii", 2, 0, 1)),
    ],
)
def test_what_no_server_sends_is_refused(write, data):
    with pytest.raises(ValueFormatError):
        write(data)

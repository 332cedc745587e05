import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from walreplay.types import DoesNotFit, TypeOptions, resolve
from walreplay.types.families import keeps_values_apart, read_overridden

TEXT, NUMERIC, INT4, INT8, BOOL, FLOAT8, VARCHAR, DATE = 25, 1700, 23, 20, 16, 701, 1043, 1082
TIMESTAMP, TIMESTAMPTZ, TEXTS = 1114, 1184, 1009


def read(text, override):
    column = resolve(-1, -1, {}, override=override)
    value = read_overridden(text, column)
    if pa.types.is_decimal(column.arrow):
        return Decimal(f"{value}e{-column.arrow.scale}")
    if pa.types.is_date(column.arrow):
        return pa.array([value], pa.int32()).cast(column.arrow)[0].as_py()
    return pa.array([value]).cast(column.arrow)[0].as_py() if column.element is None else value


@pytest.mark.parametrize(
    ("override", "text", "value"),
    [
        ("bigint", "5", 5),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("bigint", "5.00", 5),
        ("bigint", "1.5e3", 1500),
        ("bigint", "+7", 7),
        ("bigint", "42   ", 42),  # character(5)
        ("smallint", "-0", 0),
        ("oid", "4294967295", 2**32 - 1),
        ("numeric(20,4)", "1.5", Decimal("1.5")),
        ("numeric(20,4)", "-1e-4", Decimal("-0.0001")),
        ("numeric(20,4)", "12e2", Decimal(1200)),
        ("numeric(20,4)", "0.00010000", Decimal("0.0001")),
        ("numeric(20,4)", ".5", Decimal("0.5")),
        (
            "numeric(38,10)",
            "9999999999999999999999999999.9999999999",
            Decimal("9999999999999999999999999999.9999999999"),
        ),
        ("double precision", "0.1", 0.1),
        ("double precision", "-Infinity", -math.inf),
        ("real", "0.1", 0.10000000149011612),
        ("boolean", "true", True),
        ("boolean", "0", False),
        ("boolean", "F", False),
        ("date", "2024-02-29", datetime.date(2024, 2, 29)),
        ("date", "2024-02-29 00:00:00", datetime.date(2024, 2, 29)),
        ("timestamp", "2024-02-29", datetime.datetime(2024, 2, 29)),
        ("timestamp", "2024-02-29T12:34", datetime.datetime(2024, 2, 29, 12, 34)),
        ("timestamp", "2024-02-29 12:34:56.789000000", datetime.datetime(2024, 2, 29, 12, 34, 56, 789000)),
        (
            "timestamptz",
            "2024-02-29T12:34:56Z",
            datetime.datetime(2024, 2, 29, 12, 34, 56, tzinfo=datetime.timezone.utc),
        ),
        (
            "timestamptz",
            "2024-02-29 12:34:56+0530",
            datetime.datetime(2024, 2, 29, 7, 4, 56, tzinfo=datetime.timezone.utc),
        ),
        ("bytea", r"\x00ff", b"\x00\xff"),
        ("text", "anything", "anything"),
        ("uuid", "anything", "anything"),
        ("integer[]", "{1,NULL,3.0}", [1, None, 3]),
        ("vector", "[1,2]", [1.0, 2.0]),
    ],
)
def test_a_text_is_read_as_the_type_that_it_was_given(override, text, value):
    assert read(text, override) == value


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("bigint", "5.5"),
        ("bigint", "9223372036854775808"),
        ("bigint", "abc"),
        ("bigint", ""),
        ("bigint", "1,000"),
        ("bigint", "NaN"),
        ("bigint", "1e999999999"),
        ("bigint", "1" * 5000),
        ("oid", "-1"),
        ("numeric(20,4)", "0.00001"),
        ("numeric(20,4)", "1e16"),
        ("numeric(20,4)", "NaN"),
        ("numeric(20,4)", "$1.00"),
        ("numeric(38,10)", "1e-11"),
        ("double precision", "1e400"),
        ("double precision", "one"),
        ("real", "1e39"),
        ("boolean", "2"),
        ("date", "29.02.2024"),
        ("date", "2024-02-30"),
        ("date", "2024-02-29 00:00:01"),
        ("date", "infinity"),
        ("timestamp", "2024-02-29 12:34:56+00"),
        ("timestamp", "2024-02-29 12:34:56.1234567"),
        ("timestamp", "2024-02-29 25:00:00"),
        ("timestamp", "2024-02-29 12"),
        ("timestamptz", "2024-02-29 12:34:56"),
        ("bytea", "\\xzz"),
        ("integer[]", "{1,x}"),
        ("integer[]", "1,2"),
        ("integer[]", "{{1},{2}}"),
        ("vector", "{1,2}"),
    ],
)
def test_what_is_not_exactly_a_value_of_that_type_does_not_fit(override, text):
    with pytest.raises(DoesNotFit):
        read(text, override)


@pytest.mark.parametrize(
    ("oid", "override", "apart"),
    [
        (TEXT, None, True),
        (NUMERIC, None, True),
        (TEXT, "bigint", False),
        (VARCHAR, "numeric(20,4)", False),
        (TEXT, "timestamptz", False),
        (NUMERIC, "numeric(20,4)", True),
        (NUMERIC, "bigint", True),
        (NUMERIC, "double precision", False),
        (INT8, "double precision", False),
        (INT4, "double precision", True),
        (INT8, "text", True),
        (TEXT, "uuid", True),
        (DATE, "timestamp", True),
        (FLOAT8, "bigint", False),
        (BOOL, "integer", False),
        (TEXTS, "integer[]", False),
        (70001, "bigint", False),
    ],
)
def test_an_override_that_can_make_two_values_one_is_known(oid, override, apart):
    assert keeps_values_apart(resolve(oid, -1, {}, override=override)) is apart


def test_numerics_as_doubles_can_become_one():
    assert not keeps_values_apart(resolve(NUMERIC, -1, {}, options=TypeOptions(decimal_handling_mode="double")))
    assert keeps_values_apart(resolve(NUMERIC, -1, {}, options=TypeOptions(decimal_handling_mode="string")))

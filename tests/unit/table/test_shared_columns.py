"""Which columns two sources can share."""

import pytest

from walreplay.table.sharing import Fit, fit_of


@pytest.mark.parametrize(
    ("there", "wanted", "fits"),
    [
        ("int", "INT", Fit.HOLDS),
        ("bigint", "SMALLINT", Fit.HOLDS),
        ("smallint", "BIGINT", Fit.WIDENS),
        ("float", "DOUBLE", Fit.WIDENS),
        ("decimal(12,2)", "DECIMAL(10,2)", Fit.HOLDS),
        ("decimal(12,2)", "DECIMAL(10,4)", Fit.CONFLICTS),
        ("decimal(12,2)", "DECIMAL(14,4)", Fit.WIDENS),
        ("array<int>", "ARRAY<INT>", Fit.HOLDS),
        ("array<int>", "ARRAY<BIGINT>", Fit.CONFLICTS),
        ("int", "DOUBLE", Fit.CONFLICTS),
        ("bigint", "DECIMAL(20,0)", Fit.CONFLICTS),
        ("date", "TIMESTAMP_NTZ", Fit.CONFLICTS),
        ("timestamp", "TIMESTAMP_NTZ", Fit.CONFLICTS),
        ("string", "BINARY", Fit.CONFLICTS),
    ],
)
def test_a_column_holds_what_it_is_as_wide_as(there, wanted, fits):
    assert fit_of(there, wanted) is fits

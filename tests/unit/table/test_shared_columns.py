"""Which columns two sources can share."""

import pytest

from walreplay.table.sharing import TableColumn, needed

HOLDS, WIDENS, CONFLICTS = (False, False), (True, False), (False, True)


@pytest.mark.parametrize(
    ("there", "wanted", "fits"),
    [
        ("int", "INT", HOLDS),
        ("bigint", "SMALLINT", HOLDS),
        ("smallint", "BIGINT", WIDENS),
        ("float", "DOUBLE", WIDENS),
        ("decimal(12,2)", "DECIMAL(10,2)", HOLDS),
        ("decimal(12,2)", "DECIMAL(10,4)", CONFLICTS),
        ("decimal(12,2)", "DECIMAL(14,4)", WIDENS),
        ("array<int>", "ARRAY<INT>", HOLDS),
        ("array<int>", "ARRAY<BIGINT>", CONFLICTS),
        ("int", "DOUBLE", CONFLICTS),
        ("bigint", "DECIMAL(20,0)", CONFLICTS),
        ("date", "TIMESTAMP_NTZ", CONFLICTS),
        ("timestamp", "TIMESTAMP_NTZ", CONFLICTS),
        ("string", "BINARY", CONFLICTS),
    ],
)
def test_a_column_holds_what_it_is_as_wide_as(there, wanted, fits):
    changes = needed([TableColumn("c", there)], [TableColumn("c", wanted)])
    assert (bool(changes.widened), bool(changes.conflicts)) == fits

"""Which columns' older rows may differ from the source's: those that the source has given values, and no others."""

from dataclasses import replace

import pyarrow as pa
import pytest

from walreplay.decode.masking import masked_type
from walreplay.evolution.shapes import OWN, Evolution, Policy, SourceColumn
from walreplay.table.column_checks import doubts_of
from walreplay.types import families, resolve
from walreplay.types.base import ColumnType

INT = ColumnType(pa.int32(), families.INT32, "integer", oid=23)


def column(name, number=0, **changes):
    return SourceColumn(name, name, INT, number=number, **changes)


def named(*versions, base_lsn=None, announced=False):
    """Return what is named when the last version comes."""
    evolution = Evolution(None, Policy())
    found = []
    for version in versions:
        ids = evolution.ids_of(version)
        doubts = doubts_of(evolution.shape, version, ids, base_lsn, announced=announced)
        found = [text.partition(":")[0] for text in doubts]
        evolution.take(version)
    return found


BEFORE = [column("id", 1), column("a", 2)]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([*BEFORE, column("b", 3)], []),
        ([*BEFORE, column("b", 3, rewritten=50)], ["column b"]),
        ([*BEFORE, column("b", 3, rewritten=50, missing="7")], []),
        ([column("id", 1), column("a", 2, rewritten=50)], ["column a"]),
        ([column("id", 1, rewritten=50), column("a", 2, rewritten=40)], ["columns id, a"]),
    ],
)
def test_values_that_the_source_has_given_older_rows(after, expected):
    assert named(BEFORE, after) == expected
    # Once, and not where there are no older rows, or where they were loaded behind it.
    assert named(BEFORE, after, after) == []
    assert named(after) == []
    assert named(BEFORE, after, base_lsn=50) == []


def test_a_column_that_was_there_before_it_was_published():
    assert named([column("id", 1), column("b", 3)], [column("id", 1), column("a", 2), column("b", 3)]) == ["column a"]


_WIDE, _NARROW = [column("id"), column("a"), column("b")], [column("id"), column("b")]
_WIDE_BY_NUMBER = [column("id", 1), column("a", 2), column("b", 3)]
_NARROW_BY_NUMBER = [_WIDE_BY_NUMBER[0], _WIDE_BY_NUMBER[2]]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        # A column list that was changed looks like DROP and ADD COLUMN.
        ((_WIDE, _NARROW, _WIDE), ["column a"]),
        ((_WIDE, [column("id")], _WIDE), ["columns a, b"]),
        ((_WIDE, _NARROW), []),
        # It was dropped and added again between two rows, as no column list can.
        ((_WIDE, [column("id"), column("b"), column("a")]), []),
        # Its number says that it is the same one, or another.
        ((_WIDE_BY_NUMBER, _NARROW_BY_NUMBER, _WIDE_BY_NUMBER), ["column a"]),
        ((_WIDE_BY_NUMBER, _NARROW_BY_NUMBER, [*_NARROW_BY_NUMBER, column("a", 4)]), []),
        ((_WIDE, _NARROW, _WIDE_BY_NUMBER), ["column a"]),
    ],
)
def test_columns_that_were_not_sent_for_a_while(versions, expected):
    assert named(*versions) == expected
    assert named(*versions, versions[-1]) == []


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        # In their order, and by names from before.
        ([column("id", 1), column("a", 2), column("b", 3), column("c", 4)], []),
        ([column("id", 1, first="id"), column("b", 2, first="a"), column("a", 3, first="b")], []),
        ([column("id", 1), column("a", 2), column("x", 4)], ["columns b, x"]),
        ([column("id", 1), column("b", 3), column("a", 4)], ["column a"]),
        # Names of a later time do not say what was what when the rows came.
        ([column("id", 1, first="id"), column("b", 3, first="b"), column("a", 4, first="a")], ["column a"]),
        # Nothing is announced.
        ([column("id"), column("a"), column("x")], []),
        ([column(OWN)], []),
    ],
)
def test_columns_that_nothing_says_the_past_of(after, expected):
    assert named([column("id"), column("a"), column("b")], after) == expected


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([column("id"), column("a")], []),
        ([column("id"), column("a"), column("b")], ["column b"]),
        ([column("id"), column("b", missing="7"), column("x")], ["columns a, x"]),
        ([column("id"), column("x")], ["columns a, x"]),
        ([column("id", 1), column("a", 2), column("b", 3)], []),
        ([column(OWN)], []),
        # Soft deletes that are switched on meanwhile are no change of the source's.
        ([column("id"), column("x"), column(OWN)], ["columns a, x"]),
        ([column("id"), column("a"), column(OWN)], []),
    ],
)
def test_a_change_that_was_to_be_announced_and_is_not(after, expected):
    assert named([column("id"), column("a")], after, announced=True) == expected
    # Of a table that is new nothing is doubtful.
    assert named(after, announced=True) == []


def test_a_change_that_is_not_announced_behind_one_that_is():
    before = [column("id", 1), column("a", 2)]
    assert named(before, [column("id"), column("b")], announced=True) == ["columns a, b"]


def _type(oid, typmod=-1, override=None):
    return resolve(oid, typmod, {}, override=override)


TIMESTAMP, TIMESTAMPTZ = _type(1114), _type(1184)


@pytest.mark.parametrize(
    ("old", "new", "is_named"),
    [
        (TIMESTAMPTZ, _type(25), True),
        (_type(1185), _type(25), True),
        (_type(1185), _type(1009), True),
        (TIMESTAMP, TIMESTAMPTZ, True),
        (TIMESTAMPTZ, _type(1082), True),
        (_type(1083), _type(1266), True),
        (_type(142), _type(25), True),
        (_type(23), _type(790), True),
        (_type(2205), _type(25), True),
        (TIMESTAMPTZ, _type(1184, 0), False),
        (TIMESTAMP, _type(25), False),
        (_type(1266), _type(1083), False),
        (_type(23), _type(25), False),
        (_type(790), _type(25), False),
        (_type(1114, override="text"), _type(1114, 0, override="text"), True),
        (_type(23, override="text"), _type(20, override="text"), False),
        (TIMESTAMP, _type(1114, override="text"), False),
        (masked_type(TIMESTAMP), masked_type(_type(1114, 0)), True),
        (masked_type(_type(701)), masked_type(_type(1700)), True),
        (masked_type(_type(1043, 14)), masked_type(_type(25)), False),
        (masked_type(_type(23)), masked_type(_type(20)), False),
    ],
)
def test_a_cast_whose_result_is_not_in_the_stream_is_named(old, new, is_named):
    before = [column("id"), replace(column("a"), type=old)]
    after = [column("id"), replace(column("a"), type=new)]
    assert named(before, after) == (["column a"] if is_named else [])

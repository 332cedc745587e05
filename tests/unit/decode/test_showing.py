import json
from dataclasses import replace

import pytest

from support.batches import batch_of, row
from walreplay.decode.masking import Shown, show
from walreplay.errors import CaptureError
from walreplay.protocol import messages as m
from walreplay.types import resolve

TABLE = m.Relation(
    9,
    "s",
    "t",
    "f",
    tuple(m.Column(name, kind, -1, True) for name, kind in (("secret", 25), ("id", 23), ("day", 1082), ("note", 25))),
)
NARROW = m.Relation(
    9, "s", "t", "f", (m.Column("nr", 23, -1, True), m.Column("id", 1082, -1, True), m.Column("note", 25, -1, True))
)
"""Under the mirror's names; one of them is another column's in the source."""


def batch():
    return batch_of(
        TABLE,
        m.Insert(9, row(b"x", b"1", b"2024-01-01", b"n")),
        m.Update(9, row(b"y", b"1", b"infinity", b"n"), old=row(b"x", b"1", b"-infinity", b"n")),
        m.Delete(9, old=row(b"y", b"1", b"infinity", b"n")),
    )


def rescued(array):
    return [None if text is None else json.loads(text) for text in array.to_pylist()]


def test_a_batch_that_is_taken_as_it_is_stays():
    given = batch()
    assert show(given, Shown(TABLE, (0, 1, 2, 3)), b"") is given


def test_wanted_columns_are_taken_under_the_mirrors_names():
    found = show(batch(), Shown(NARROW, (1, 2, 3)), b"")
    assert found.relation == NARROW
    assert found.data.schema.names[:5] == batch().data.schema.names[:5]
    assert found.data.schema.names[5:] == ["nr", "id", "note"]
    assert found.data.column("nr").to_pylist() == [1, 1, 1]
    assert found.before.schema.names[1:] == ["nr", "id", "note"]
    assert found.before.num_rows == batch().before.num_rows


def test_what_is_unchanged_or_rescued_goes_by_the_mirrors_names():
    given = batch()
    found = show(given, Shown(NARROW, (1, 2, 3)), b"")
    assert rescued(given.rescued) == [None, {"day": "infinity"}, {"day": "infinity"}]
    assert rescued(found.rescued) == [None, {"id": "infinity"}, {"id": "infinity"}]
    assert rescued(found.before_rescued) == [{"id": "-infinity"}]


def test_masks_of_unchanged_values_go_by_the_mirrors_names():
    columns = tuple(replace(column, key=column.name == "id") for column in TABLE.columns)
    table = replace(TABLE, replica_identity="d", columns=columns)
    kept = m.TupleData((m.UNCHANGED_CELL, *row(b"1", b"2024-01-01").cells, m.UNCHANGED_CELL))
    given = batch_of(table, m.Update(9, kept))
    assert given.unchanged.keys() == {"secret", "note"}
    shown = replace(
        NARROW, replica_identity="d", columns=tuple(replace(one, name=f"{one.name}_") for one in NARROW.columns)
    )
    found = show(given, Shown(shown, (1, 2, 3)), b"")
    assert {name: mask.to_pylist() for name, mask in found.unchanged.items()} == {"note_": [True]}


def test_nothing_is_left_of_columns_that_are_not_wanted():
    one = m.Relation(9, "s", "t", "f", (m.Column("id", 23, -1, True),))
    found = show(batch(), Shown(one, (1,)), b"")
    assert rescued(found.rescued) == [None] * 3
    assert not found.unchanged
    assert found.data.schema.names[5:] == ["id"]


def test_masked_values_are_not_rescued():
    found = show(batch(), Shown(NARROW, (1, 2, 3), masked=((2, resolve(1082, -1, {})),)), b"salt")
    assert all(len(text) == 64 for text in found.data.column("id").to_pylist())
    assert found.rescued is None or found.rescued.null_count == 3


def test_a_table_without_a_column_for_rescued_values_refuses_them():
    with pytest.raises(CaptureError, match="does not fit its column") as caught:
        show(batch(), Shown(NARROW, (1, 2, 3), rescues=False), b"")
    assert caught.value.table == "s.t.id"
    assert "infinity" not in str(caught.value)
    # Not those of columns that it has not, or that are masked.
    one = m.Relation(9, "s", "t", "f", (m.Column("id", 23, -1, True),))
    show(batch(), Shown(one, (1,), rescues=False), b"")
    show(batch(), Shown(NARROW, (1, 2, 3), masked=((2, resolve(1082, -1, {})),), rescues=False), b"salt")

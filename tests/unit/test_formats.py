"""The same changes, recorded once in text and once in binary format."""

import json

from support.captures import case
from walreplay import read_changes

OIDS = ("c051_regclass", "c052_regtype", "c053_regproc")
"""In binary format these are bare numbers."""

RANGE = "c101_floatrange"
"""A range of a user's own does not say what its bounds are."""


def rows_of(name):
    found = {}
    for batch in read_changes(case(name).folder):
        rescued = batch.rescued.to_pylist() if batch.rescued is not None else [None] * batch.data.num_rows
        for row, texts in zip(batch.data.to_pylist(), rescued, strict=True):
            values = {column: value for column, value in row.items() if not column.startswith("__")}
            found.setdefault(batch.relation.name, []).append((values, json.loads(texts or "{}")))
    return found


def without(rows, columns):
    return [
        repr([{name: value for name, value in part.items() if name not in columns} for part in row]) for row in rows
    ]


def test_values_in_binary_format_are_those_in_text():
    in_text, in_binary = rows_of("o08"), rows_of("o09")
    assert in_text.keys() == in_binary.keys()
    for name, rows in in_text.items():
        assert without(in_binary[name], (*OIDS, RANGE)) == without(rows, (*OIDS, RANGE))


def test_what_binary_values_do_not_say_is_kept_as_it_is():
    for row, rescued in rows_of("o09")["all_types"]:
        assert all(row[name] in (None, "-") or row[name].isdecimal() for name in OIDS)
        assert row[RANGE] is None
        assert rescued.get(RANGE, r"\x").startswith(r"\x")
    assert any(RANGE in rescued for _, rescued in rows_of("o09")["all_types"])

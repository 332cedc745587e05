"""What a table asks of its readers."""

import pytest

from walreplay.delta.commits import (
    COLUMN_MAPPING,
    DELETION_VECTORS,
    TIMESTAMP_NTZ,
    TYPE_WIDENING,
    missing,
    needed_by,
)

PLAIN = {"delta.minReaderVersion": "1"}


def listing(*features):
    """Return the properties of a table whose protocol lists features, as Spark shows them."""
    return {"delta.minReaderVersion": "3", **{f"delta.feature.{name}": "supported" for name in features}}


def field(name="a", kind="integer"):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def array(kind):
    return {"type": "array", "elementType": kind, "containsNull": True}


@pytest.mark.parametrize("name", ["a", "A.b", "o'clock\"`", "größe", "a\rb", "\x01", "_x", "%20", "日本"])
def test_a_name_that_parquet_holds_needs_nothing(name):
    assert needed_by([field(name)]) == {}


@pytest.mark.parametrize("character", " ,;{}()\n\t=")
def test_a_name_that_it_does_not_hold_needs_a_mapping(character):
    assert needed_by([field(), field(f"a{character}b")]) == COLUMN_MAPPING


@pytest.mark.parametrize(
    "kind",
    [
        "timestamp_ntz",
        array("timestamp_ntz"),
        array({"type": "struct", "fields": [field("x"), field("y", "timestamp_ntz")]}),
    ],
)
def test_local_times_need_their_feature_wherever_they_are(kind):
    assert needed_by([field(), field("b", kind)]) == TIMESTAMP_NTZ


@pytest.mark.parametrize("kind", ["timestamp", "date", array("timestamp"), "decimal(10,2)"])
def test_other_types_need_nothing(kind):
    assert needed_by([field("b", kind)]) == {}


def test_what_a_table_has_it_does_not_miss():
    there = {**COLUMN_MAPPING, "delta.enableTypeWidening": "TRUE", **listing("timestampNtz")}
    assert missing(COLUMN_MAPPING | TYPE_WIDENING | TIMESTAMP_NTZ, there) == {}
    assert missing(COLUMN_MAPPING | DELETION_VECTORS, there) == DELETION_VECTORS


@pytest.mark.parametrize(
    ("wanted", "there", "more"),
    [
        (COLUMN_MAPPING, PLAIN, TIMESTAMP_NTZ),
        (COLUMN_MAPPING | TYPE_WIDENING, PLAIN, {}),
        (COLUMN_MAPPING, listing("deletionVectors"), {}),
        (COLUMN_MAPPING, {**PLAIN, "delta.feature.clustering": "supported"}, TIMESTAMP_NTZ),
        (DELETION_VECTORS, PLAIN, {}),
    ],
)
def test_a_mapping_never_comes_without_a_list_of_features_for_readers(wanted, there, more):
    assert missing(wanted, there) == wanted | more


def test_nor_is_a_table_made_without_one():
    assert missing({}, {}) == {}
    assert missing(COLUMN_MAPPING, {}) == COLUMN_MAPPING | TIMESTAMP_NTZ
    assert missing(COLUMN_MAPPING | TYPE_WIDENING, {}) == COLUMN_MAPPING | TYPE_WIDENING
    assert missing(COLUMN_MAPPING | TIMESTAMP_NTZ, {}) == COLUMN_MAPPING | TIMESTAMP_NTZ

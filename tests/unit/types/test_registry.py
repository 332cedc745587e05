import pickle

import pyarrow as pa
import pytest

from wal2delta.types import Family, describe, resolve
from wal2delta.types.builtin import BUILTIN_TYPES
from wal2delta.types.numeric import precision_and_scale


def numeric_typmod(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("oid", "arrow"),
    [
        (16, pa.bool_()),
        (21, pa.int16()),
        (23, pa.int32()),
        (20, pa.int64()),
        (26, pa.int64()),
        (28, pa.int64()),
        (29, pa.string()),
        (700, pa.float32()),
        (701, pa.float64()),
        (17, pa.binary()),
        (25, pa.string()),
        (18, pa.string()),
        (1082, pa.date32()),
        (1083, pa.string()),
        (1114, pa.timestamp("us")),
        (1184, pa.timestamp("us", "UTC")),
        (2950, pa.string()),
        (22, pa.string()),
        (1007, pa.list_(pa.field("element", pa.int32()))),
        (1006, pa.list_(pa.field("element", pa.string()))),
    ],
)
def test_built_in_types_go_by_their_oid(oid, arrow):
    assert resolve(oid, -1, {}).arrow == arrow


@pytest.mark.parametrize(
    ("precision", "scale", "arrow"),
    [
        (12, 2, pa.decimal128(12, 2)),
        (38, 38, pa.decimal128(38, 38)),
        (5, 0, pa.decimal128(5, 0)),
        (39, 0, pa.string()),
        (1000, 10, pa.string()),
        (3, 5, pa.string()),
        (5, -2, pa.string()),
    ],
)
def test_a_numeric_is_a_decimal_only_where_a_decimal_holds_its_scale(precision, scale, arrow):
    typmod = numeric_typmod(precision, scale)
    assert precision_and_scale(typmod) == (precision, scale)
    assert resolve(1700, typmod, {}).arrow == arrow
    assert resolve(1231, typmod, {}).arrow.value_type == arrow
    assert resolve(1700, typmod, {}).postgres_name == f"numeric({precision},{scale})"


def test_a_numeric_without_a_typmod_is_a_string():
    assert resolve(1700, -1, {}).arrow == pa.string()


@pytest.mark.parametrize("namespace", ["", "pg_catalog"])
def test_a_domain_goes_by_its_base_type_without_its_own_typmod(namespace):
    assert resolve(70001, -1, {70001: (namespace, "int4")}).arrow == pa.int32()
    assert resolve(70001, numeric_typmod(5, 2), {70001: (namespace, "numeric")}).arrow == pa.string()
    assert resolve(70001, -1, {70001: (namespace, "_text")}).family == Family.ARRAY


@pytest.mark.parametrize(
    ("names", "postgres_name"),
    [
        ({70001: ("public", "int4")}, "public.int4"),
        ({70001: ("public", "_mood")}, "public._mood"),
        ({70001: ("public", "vector")}, "public.vector"),
        ({70001: ("", "no_such_type")}, "no_such_type"),
        ({}, "type 70001"),
    ],
)
def test_types_that_are_not_built_in_stay_text(names, postgres_name):
    found = resolve(70001, -1, names)
    assert (found.arrow, found.postgres_name) == (pa.string(), postgres_name)


def test_an_announcement_does_not_change_a_built_in_oid():
    assert resolve(23, -1, {23: ("public", "text")}).arrow == pa.int32()


def test_only_arrays_of_boxes_are_parted_by_semicolons():
    arrays = [oid for oid, builtin in BUILTIN_TYPES.items() if builtin.element]
    assert [oid for oid in arrays if resolve(oid, -1, {}).delimiter == ";"] == [1020]


def test_every_built_in_type_resolves_and_every_element_is_one():
    for oid, builtin in BUILTIN_TYPES.items():
        found = resolve(oid, -1, {})
        assert (found.family == Family.ARRAY) == bool(builtin.element)
        assert builtin.element == 0 or builtin.element in BUILTIN_TYPES
        assert pickle.loads(pickle.dumps(found)) == found


def test_the_description_names_every_arrow_type_that_resolve_gives():
    described = {row.arrow for row in describe()}
    resolved = {resolve(oid, -1, {}) for oid in BUILTIN_TYPES}
    assert {str(found.arrow) for found in resolved if found.element is None} <= described
    assert any("numeric(p,s)" in row.postgres for row in describe())

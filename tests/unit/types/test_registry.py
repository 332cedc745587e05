import pickle

import pyarrow as pa
import pytest

from walreplay.errors import ConfigError
from walreplay.types import TypeOptions, families, resolve
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.numbers import precision_and_scale


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
    assert resolve(70001, -1, {70001: (namespace, "_text")}).family == families.ARRAY


@pytest.mark.parametrize(
    ("names", "postgres_name"),
    [
        ({70001: ("public", "int4")}, "public.int4"),
        ({70001: ("public", "_mood")}, "public._mood"),
        ({70001: ("public", "sparsevec")}, "public.sparsevec"),
        ({70001: ("public", "_vector")}, "public._vector"),
        ({70001: ("public", "hstore")}, "public.hstore"),
        ({70001: ("extensions", "citext")}, "extensions.citext"),
        ({70001: ("public", "ltree")}, "public.ltree"),
        ({70001: ("public", "geometry")}, "public.geometry"),
        ({70001: ("public", "geography")}, "public.geography"),
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
        assert (found.family == families.ARRAY) == bool(builtin.element)
        assert builtin.element == 0 or builtin.element in BUILTIN_TYPES
        assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(("namespace", "name"), [("public", "vector"), ("extensions", "halfvec"), ("", "vector")])
def test_vectors_are_lists_of_single_precision_floats(namespace, name):
    found = resolve(70001, 3, {70001: (namespace, name)})
    assert found.arrow == pa.list_(pa.field("element", pa.float32()))
    assert (found.family, found.oid, found.typmod, found.element) == (families.VECTOR, 70001, 3, None)


@pytest.mark.parametrize(
    ("oid", "typmod", "names", "sent"),
    [
        (23, -1, {}, (23, -1)),
        (1700, numeric_typmod(12, 2), {}, (1700, numeric_typmod(12, 2))),
        (1043, 24, {}, (1043, 24)),
        (1231, numeric_typmod(12, 2), {}, (1231, numeric_typmod(12, 2))),
        (70001, numeric_typmod(12, 2), {70001: ("", "numeric")}, (1700, -1)),
        (70001, -1, {70001: ("", "_int4")}, (1007, -1)),
        (70001, 7, {70001: ("public", "mood")}, (70001, 7)),
        (70001, 7, {70001: ("", "no_such_type")}, (70001, 7)),
        (70001, 7, {}, (70001, 7)),
    ],
)
def test_a_column_type_says_in_which_type_its_values_are_sent(oid, typmod, names, sent):
    found = resolve(oid, typmod, names)
    assert (found.oid, found.typmod) == sent


def test_an_arrays_elements_say_in_which_type_they_are_sent():
    found = resolve(1231, numeric_typmod(12, 2), {})
    assert (found.element.oid, found.element.typmod) == (1700, numeric_typmod(12, 2))


@pytest.mark.parametrize(
    ("mode", "typmod", "family", "arrow"),
    [
        ("precise", -1, families.STRING, pa.string()),
        ("precise", numeric_typmod(12, 2), families.DECIMAL, pa.decimal128(12, 2)),
        ("string", -1, families.STRING, pa.string()),
        ("string", numeric_typmod(12, 2), families.STRING, pa.string()),
        ("double", -1, families.NUMERIC_AS_DOUBLE, pa.float64()),
        ("double", numeric_typmod(12, 2), families.NUMERIC_AS_DOUBLE, pa.float64()),
        ("double", numeric_typmod(50, 2), families.NUMERIC_AS_DOUBLE, pa.float64()),
    ],
)
def test_numerics_become_what_the_decimal_handling_mode_says(mode, typmod, family, arrow):
    options = TypeOptions(decimal_handling_mode=mode)
    found = resolve(1700, typmod, {}, options=options)
    assert (found.family, found.arrow, found.oid, found.typmod) == (family, arrow, 1700, typmod)
    assert not found.overridden
    assert resolve(1231, typmod, {}, options=options).element == found
    assert resolve(701, -1, {}, options=options) == resolve(701, -1, {})


def test_options_reach_a_domains_base_type():
    options = TypeOptions(decimal_handling_mode="double")
    assert resolve(70001, -1, {70001: ("", "numeric")}, options=options).arrow == pa.float64()


@pytest.mark.parametrize(
    ("oid", "override", "arrow"),
    [
        (1700, "numeric(38,10)", pa.decimal128(38, 10)),
        (25, "bigint", pa.int64()),
        (25, "timestamp with time zone", pa.timestamp("us", "UTC")),
        (20, "text", pa.string()),
        (25, "integer[]", pa.list_(pa.field("element", pa.int32()))),
        (25, "halfvec", pa.list_(pa.field("element", pa.float32()))),
        (1007, "text", pa.string()),
    ],
)
def test_an_override_changes_what_is_read_and_not_what_is_sent(oid, override, arrow):
    found = resolve(oid, 77, {}, override=override)
    assert (found.arrow, found.oid, found.typmod, found.overridden) == (arrow, oid, 77, True)
    assert found.element is None or found.element.overridden


@pytest.mark.parametrize(
    ("oid", "typmod", "override"),
    [(23, -1, "int"), (25, -1, "varchar"), (1700, numeric_typmod(20, 4), "numeric(20,4)"), (1009, -1, "text[]")],
)
def test_an_override_that_says_what_is_so_anyway_changes_nothing(oid, typmod, override):
    assert resolve(oid, typmod, {}, override=override) == resolve(oid, typmod, {})


def test_an_override_goes_before_the_mode():
    options = TypeOptions(decimal_handling_mode="double")
    assert resolve(1700, -1, {}, options=options, override="numeric(20,4)").arrow == pa.decimal128(20, 4)
    assert resolve(1700, -1, {}, options=options, override="numeric").arrow == pa.string()


def test_an_override_that_is_no_type_is_a_configuration_error():
    with pytest.raises(ConfigError, match="'numric'"):
        resolve(25, -1, {}, override="numric")

import pytest

from walreplay.errors import ConfigError
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.names import type_named
from walreplay.types.numbers import precision_and_scale


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("bigint", "int8"),
        ("int8", "int8"),
        ("INT", "int4"),
        ("double  precision", "float8"),
        ("float", "float8"),
        ("decimal", "numeric"),
        ("timestamp", "timestamp"),
        ("timestamptz", "timestamptz"),
        ("Timestamp With Time Zone", "timestamptz"),
        ("time without time zone", "time"),
        ("character varying", "varchar"),
        ("char", "bpchar"),
        ('"char"', "char"),
        ("bit varying", "varbit"),
        ("int[]", "_int4"),
        ("integer [ ] [ ]", "_int4"),
        ("_int4", "_int4"),
        ("timestamp with time zone[]", "_timestamptz"),
        ("vector", "vector"),
        (" halfvec ", "halfvec"),
    ],
)
def test_types_are_known_by_all_their_names(written, name):
    assert type_named(written).name == name


def test_every_built_in_type_is_known_by_its_own_names():
    for oid, builtin in BUILTIN_TYPES.items():
        assert type_named(builtin.sql_name).oid == oid
        if builtin.name not in ("char", "_char"):  # in SQL that is character(1)
            assert type_named(builtin.name).oid == oid


@pytest.mark.parametrize(
    ("written", "modifiers"),
    [("numeric(20,4)", (20, 4)), ("DECIMAL ( 38 , 0 )", (38, 0)), ("numeric(7)", (7, 0)), ("numeric(9,9)[]", (9, 9))],
)
def test_a_numeric_takes_precision_and_scale(written, modifiers):
    assert precision_and_scale(type_named(written).typmod) == modifiers


def test_without_a_modifier_there_is_no_typmod():
    assert type_named("numeric").typmod == -1
    assert type_named("text").typmod == -1


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("numric(20,4)", "The nearest name is 'numeric'"),
        ("bigin", "The nearest name is 'bigint'"),
        ("public.mood", "built-in type"),
        ("", "built-in type"),
        ("int with time zone", "is no type"),
        ("numeric(20", "is no type"),
        ("numeric(a)", "Write them as in numeric(20,4)"),
        ("numeric(39,0)", "up to 38 digits"),
        ("numeric(5,6)", "up to 38 digits"),
        ("numeric(0)", "up to 38 digits"),
        ("varchar(20)", "Leave it out"),
        ("timestamp(3) with time zone", "Leave it out"),
        ("tinterval[]x", "is no type"),
        ("gtsvector[][", "is no type"),
        ("pg_node_tree[]", "no arrays"),
    ],
)
def test_other_names_say_what_is_wrong_and_what_is_right(written, part):
    with pytest.raises(ConfigError) as caught:
        type_named(written)
    assert part in str(caught.value)

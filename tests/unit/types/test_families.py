"""Each family's record is complete, its parts agree with each other, and no other module asks which family it is."""

from __future__ import annotations

import ast
import pickle
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import walreplay
from support.binary_cells import Binary, convert
from walreplay.decode.columns import make, make_builder
from walreplay.delta.statements import sql_type
from walreplay.evolution.convert import convert as converted
from walreplay.evolution.convert import keeps_values
from walreplay.types import TypeOptions, families, resolve
from walreplay.types.base import FAMILIES, Family, Meaning
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.families import may_be_rescued, output_of, text_of

VECTOR, TEXT = 70001, 25
NAMES = {VECTOR: ("public", "vector")}
OIDS = {builtin.name: oid for oid, builtin in BUILTIN_TYPES.items()}


class Sample(NamedTuple):
    """A value as it is sent in both formats, and a text that is sent as the type and does not fit; None if all fit."""

    text: str
    binary: str
    misfit: str | None = None
    oid: int = 0
    typmod: int = -1
    mode: str = "precise"


SAMPLES = {
    "boolean": Sample("t", "01"),
    "int16": Sample("-2", "fffe"),
    "int32": Sample("-2", "fffffffe"),
    "int64": Sample("-2", "fffffffffffffffe"),
    "unsigned": Sample("4294967295", "ffffffff"),
    "float32": Sample("1.5", "3fc00000", "1e+39"),
    "float64": Sample("1.5", "3ff8000000000000", "1e+309"),
    "decimal": Sample("1.50", "0002 0000 0000 0002 0001 1388", "NaN", 1700, (12 << 16 | 2) + 4),
    "numeric as double": Sample("1.5", "0002 0000 0000 0001 0001 1388", "1" + 309 * "0", 1700, mode="double"),
    "string": Sample("é", "c3a9", oid=TEXT),
    "binary": Sample(r"\x00ff", "00ff"),
    "date": Sample("2024-02-29", "00002279", "infinity"),
    "timestamp": Sample("2024-02-29 12:34:56.789", "0002b58341728608", "infinity"),
    "timestamptz": Sample("2024-02-29 12:34:56.789+00", "0002b58341728608", "10000-01-01 00:00:00+00"),
    "array": Sample(
        "{1,NULL}",
        "00000001 00000001 00000017 00000002 00000001 00000004 00000001 ffffffff",
        "{{1},{2}}",
        1007,
    ),
    "vector": Sample("[1.5,2]", "0002 0000 3fc00000 40000000", "[1,]", VECTOR),
}


def type_of(family: Family):
    sample = SAMPLES[family.name]
    oid = sample.oid or OIDS[family.types[0]]
    found = resolve(oid, sample.typmod, NAMES, options=TypeOptions(decimal_handling_mode=sample.mode))
    assert found.family is family
    return found


@pytest.fixture(params=FAMILIES.values(), ids=repr)
def family(request):
    return request.param


def test_each_family_is_a_constant_has_a_sample_and_a_builder():
    constants = {id(value) for value in vars(families).values() if isinstance(value, Family)}
    assert constants == {id(family) for family in FAMILIES.values()}
    assert SAMPLES.keys() == FAMILIES.keys()
    assert make._BUILDERS.keys() == set(FAMILIES.values())


def test_each_family_is_the_same_in_another_process(family):
    assert pickle.loads(pickle.dumps(family)) is family
    assert pickle.loads(pickle.dumps(type_of(family))) == type_of(family)


def test_both_formats_become_the_value_whose_text_is_written(family):
    kind, sample = type_of(family), SAMPLES[family.name]
    values, misfits = convert(kind, [sample.text, Binary(bytes.fromhex(sample.binary)), None], NAMES)
    assert misfits == []
    assert output_of(values, kind).to_pylist() == [sample.text, sample.text, None]
    assert family.arrow in (None, kind.arrow)


def test_what_does_not_fit_is_rescued_as_the_record_says(family):
    kind, sample = type_of(family), SAMPLES[family.name]
    assert (sample.misfit is not None) == bool(family.misfits) == may_be_rescued(kind)
    if sample.misfit is not None:
        values, misfits = convert(kind, [sample.text, sample.misfit], NAMES)
        assert values.null_count == 1
        assert [(one.row, one.text) for one in misfits] == [(1, sample.misfit)]


def test_the_exact_reader_reads_the_same_as_the_builder(family):
    kind, sample = type_of(family), SAMPLES[family.name]
    column, _ = convert(kind, [sample.text], NAMES)
    value = family.read(sample.text, kind)
    if pa.types.is_decimal(kind.arrow):
        value = pa.scalar(value, pa.int64()).cast(pa.decimal128(20, 0)).as_py().scaleb(-kind.arrow.scale)
    elif pa.types.is_boolean(kind.arrow):
        value = bool(value)
    assert pa.array([value], kind.arrow).equals(column)
    chosen, misfits = convert(replace(kind, overridden=True), [sample.text, "\x01"], NAMES)
    assert chosen[:1].equals(column)
    assert len(misfits) == (family.keeps_apart is not None)


def test_a_conversion_to_text_and_back_changes_nothing(family):
    kind, sample = type_of(family), SAMPLES[family.name]
    column, _ = convert(kind, [sample.text], NAMES)
    text = resolve(TEXT, -1, {})
    texts, rescued = converted(column, None, [kind, text])
    assert rescued is None
    assert texts.equals(text_of(column, kind))
    back, rescued = converted(texts, None, [text, kind])
    assert rescued is None
    assert back.equals(column)
    assert keeps_values(kind, kind)


def test_a_type_is_of_one_family_and_its_column_has_a_name(family):
    assert all(resolve(OIDS[name], -1, {}).family is family for name in family.types)
    assert sql_type(type_of(family).arrow)
    assert (family.meaning is Meaning.INTEGER) == (family.limits is not None)
    assert (family.meaning is None) == (family is families.STRING)
    assert not family.types or family.arrow is not None


def test_text_in_another_encoding_is_read_where_the_record_says(family):
    builder = make_builder(type_of(family), NAMES, codec="latin-1")
    assert (builder._codec == "latin-1") == family.holds_text


# Who asks which family it is

PACKAGE = Path(walreplay.__file__).parent
CONSTANTS = {name for name, value in vars(families).items() if isinstance(value, Family)}

MAKERS = ("ColumnType", "_column", "replace")
"""What is called with a family to make a column's type."""

ASKING = {
    "types/families.py": "has the records",
    "decode/columns/make.py": "has the builders",
}
ASKED = {
    "STRING": "text, whose meaning is the type's name's, is unlike all families with a form",
}
"""Families for which any module may ask."""


def questions(path: Path) -> list[str]:
    """Return the families that a module asks for, other than to make a column's type."""
    text = path.read_text(encoding="utf-8")
    if "families" not in text:
        return []
    tree = ast.parse(text)
    made = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS
        for inner in ast.walk(node)
    }
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "walreplay.types.families"
        for alias in node.names
    }
    asked = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and id(node) not in made
        and isinstance(node.value, ast.Name)
        and node.value.id == "families"
    ]
    asked += [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and id(node) not in made and node.id in imported
    ]
    return sorted(name for name in asked if name in CONSTANTS and name not in ASKED)


def test_no_module_asks_which_family_it_is():
    found = {str(path.relative_to(PACKAGE)): questions(path) for path in sorted(PACKAGE.rglob("*.py"))}
    assert {name: asked for name, asked in found.items() if asked and name not in ASKING} == {}


def test_a_question_is_found(tmp_path):
    path = tmp_path / "module.py"
    text = "from walreplay.types.families import DATE\nx is DATE, families.INT16\n"
    path.write_text(f"{text}ColumnType(a, families.INT32, DATE)\n")
    assert questions(path) == ["DATE", "INT16"]

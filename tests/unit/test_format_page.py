"""docs/notes/formats.md has the columns and numbers of ledger, index and tables, and the fields of what is JSON."""

from __future__ import annotations

import re
import zlib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from support.format_sample import current, unpack
from support.format_schemas import DECLARED, PLACES, RECORDS, Columns, described, schema_at
from support.pages import ROOT
from walreplay.archive import index
from walreplay.ledger import state

PAGE = (ROOT / "docs" / "notes" / "formats.md").read_text(encoding="utf-8")

SAME = {"index.open_at_end": "index.open_at_start", "changelog.__before": "changelog"}
"""Structs that the page describes by another table, or in words."""


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sample of this version's formats."""
    folder = tmp_path_factory.mktemp("sample")
    assert current().exists(), "make it: PYTHONPATH=tests python -m support.format_sample"
    assert unpack(current(), folder) == (state.FORMAT, index.FORMAT)
    return folder


def listed() -> dict[str, dict[str, str]]:
    """Return the columns under each of the page's headings, with their types, in their order."""
    tables = {}
    for section in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)[1:]:
        heading = re.match(r"`([\w.]+)`\n", section)
        if heading is not None:
            tables[heading[1]] = dict(re.findall(r"^\| `(\w+)` \| ([\w<>]+) \|", section, re.MULTILINE))
    return tables


def columns_of(sample: Path) -> dict[str, Columns]:
    """Return the columns of all tables of the sample, and of the structs in them."""
    return {part: columns for name in PLACES for part, columns in described(name, schema_at(sample, name))}


def test_the_page_has_exactly_the_columns_of_fresh_tables(sample: Path) -> None:
    columns = columns_of(sample)
    for same, other in SAME.items():
        assert columns[other].items() >= columns.pop(same).items()
    page = listed()
    assert page.keys() == columns.keys()
    for name in columns:
        assert list(page[name].items()) == list(columns[name].items()), name


@pytest.mark.parametrize("name", DECLARED)
def test_the_sample_has_the_columns_that_the_code_declares(sample: Path, name: str) -> None:
    assert list(described(name, schema_at(sample, name))) == list(described(name, DECLARED[name]))


def test_the_page_has_the_numbers_of_the_formats() -> None:
    assert re.findall(r"^\| (\w+) \| (\d+) \| `([\w.]+)`", PAGE, re.MULTILINE) == [
        ("ledger", str(state.FORMAT), "ledger.state.FORMAT"),
        ("index", str(index.FORMAT), "archive.index.FORMAT"),
    ]
    assert re.findall(r"format \*\*(\d+)\*\*", PAGE) == [str(state.FORMAT), str(index.FORMAT)]


def test_the_page_has_the_fields_of_what_is_written_as_json() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| ((?:`\w+`(?:, )?)+) \|$", PAGE, re.MULTILINE)
    page = {name: re.findall(r"`(\w+)`", names) for name, names in rows}
    assert page == {name: [field.name for field in fields(kind)] for name, kind in RECORDS.items()}


def test_the_number_of_the_ledger_is_raised_with_its_columns_and_what_its_records_need() -> None:
    """If this fails: raise `FORMAT`, put the new numbers here, and make another sample."""
    columns = [list(described(name, schema)) for name, schema in DECLARED.items() if name != "index"]
    needed = {
        name: [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
        for name, kind in RECORDS.items()
    }
    assert (state.FORMAT, zlib.crc32(repr((columns, needed)).encode())) == (2, 2255911089)


def test_the_samples_are_small() -> None:
    assert 0 < sum(file.stat().st_size for file in current().parent.iterdir()) < 200_000

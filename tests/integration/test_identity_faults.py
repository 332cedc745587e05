"""What is sent of old rows is not what the mirror has: other settings of the sender, other identities of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import Case, load
from support.extent import further
from support.readers import collect
from support.truth import SourceTable, mirror_tables, read_mirror, source_tables
from walreplay.errors import CaptureError
from walreplay.types.by_value import Form, one_form
from walreplay.writing import by_files as writing_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

FAULTS = Path(__file__).parents[1] / "faults"

_FORMS = {
    "interval": Form.INTERVAL,
    "tstzrange": Form.MOMENTS,
    "tstzmultirange": Form.MOMENTS,
    "timestamp with time zone": Form.MOMENTS,
    "point": Form.NUMBERS,
    "double precision": Form.NUMBERS,
}


def _value(text: Any, kind: str) -> Any:
    """Return what two texts have alike that are one value; the forms themselves are held against a live server."""
    if text is None:
        return None
    if isinstance(text, bytearray | bytes):
        return "\\x" + bytes(text).hex()
    if isinstance(text, list):
        return [_value(one, kind.removesuffix("[]")) for one in text]
    form = Form.SHAPE if "." in kind or kind.endswith("[]") else _FORMS.get(kind)
    return str(text) if form is None else one_form(str(text), form)


def _listed(text: str | None, kind: str) -> Any:
    """Read the truth's array of a built-in type."""
    if text is None or kind != "interval[]":
        return _value(text, kind)
    parts = [None if part == "NULL" else part.strip('"') for part in text[1:-1].split(",")]
    return [_value(part, "interval") for part in parts]


def _difference(spark: SparkSession, target: Path, source: SourceTable) -> dict[str, list[str]]:
    kinds = [column.type for column in source.columns]
    expected = Counter(
        repr([_listed(text, kind) for text, kind in zip(row, kinds, strict=True)]) for row in source.rows
    )
    frame = read_mirror(spark, mirror_tables(target)[source.qualified_name])
    columns = [
        f"CAST(`{c.name}` AS STRING)" if c.type in ("date", "timestamp with time zone") else f"`{c.name}`"
        for c in source.columns
    ]
    found = Counter(
        repr([_moment(value, kind) for value, kind in zip(row, kinds, strict=True)])
        for row in frame.selectExpr(*columns).collect()
    )
    lost, more = expected - found, found - expected
    return {"lost": list(lost), "more": list(more)} if lost or more else {}


def _moment(value: Any, kind: str) -> Any:
    return _value(f"{value}+00" if kind == "timestamp with time zone" else value, kind)


def _case(name: str) -> Case:
    root = FAULTS / name
    case = load(root)
    for entry in case.info["tables"]:
        entry.setdefault("identity_key", entry.get("primary_key", []))
    return case


def _apply(spark: SparkSession, case: Case, folder: Path, *, at_once: bool, config: Mapping[str, Any]) -> list[Any]:
    captures = folder / "captures"
    captures.mkdir(parents=True)
    reports = []
    for file in case.files:
        (captures / file.name).write_bytes(file.read_bytes())
        if not at_once or file is case.files[-1]:
            reports.append(walreplay.apply(spark, captures=captures, target=folder / "mirror", config=config or None))
    return reports


_EXCLUDED = {"partition_identities": {"table_exclude_list": [r"p\.full_keys"]}}

_WAYS = {
    "settings_change": ["in one run"],
    "intervalstyle_changes": ["session by session"],
    "partition_identities": ["in one run", "session by session, merged"],
    "root_full_deletes": ["in one run"],
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "way"),
    further(
        [(name, way) for name, ways in _WAYS.items() for way in ways],
        long=[("settings_change", way) for way in ("session by session", "session by session, merged")],
    ),
    ids=lambda value: str(value),
)
def test_every_row_is_found_and_nobody_is_warned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    if way.endswith("merged"):
        monkeypatch.setattr(writing_files, "begin_rewrite", lambda *_: "it is to be merged")
    case = _case(name)
    config = _EXCLUDED.get(name, {})
    reports = _apply(spark, case, tmp_path, at_once=way == "in one run", config=config)
    wanted = [table for table in source_tables(case) if not config or table.name != "full_keys"]
    wrong = {table.qualified_name: _difference(spark, tmp_path / "mirror", table) for table in wanted}
    assert {name: found for name, found in wrong.items() if found} == {}
    assert [warning for report in reports for warning in report.warnings] == []


@pytest.mark.full
def test_the_table_keeps_the_text_that_was_sent_last(spark: SparkSession, tmp_path: Path) -> None:
    _apply(spark, _case("intervalstyle_changes"), tmp_path, at_once=False, config={})
    rows = collect(tmp_path / "mirror" / "public" / "ikey")
    assert sorted((row.every, row.v) for row in rows) == [("1 year", "c"), ("P1M", "A")]


def test_partitions_that_send_nothing_in_common_stop_the_run_and_say_which(spark: SparkSession, tmp_path: Path) -> None:
    case = _case("partition_identities")
    with pytest.raises(CaptureError, match=r"p\.full_keys_1: primary key \(id, created\); p\.full_keys_2: index") as no:
        _apply(spark, case, tmp_path, at_once=True, config={})
    assert no.value.table == "p.full_keys"
    assert not (tmp_path / "mirror" / "p").exists()

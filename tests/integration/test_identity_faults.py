"""What is sent of old rows is not what the mirror has: other settings of the sender, other identities of partitions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import Case
from support.extent import further
from support.fault_cases import fault_case
from support.readers import collect
from support.truth import SourceTable, mirror_tables, read_mirror, source_tables
from support.writing import only_merge
from walreplay.errors import CaptureError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def _value(value: Any) -> Any:
    """Return a value of the mirror as the truth has it."""
    if value is None:
        return None
    if isinstance(value, bytearray | bytes):
        return "\\x" + bytes(value).hex()
    return [_value(one) for one in value] if isinstance(value, list) else str(value)


def _listed(text: str | None, kind: str) -> Any:
    """Read the truth's array of a built-in type."""
    if text is None or kind != "interval[]":
        return text
    return [None if part == "NULL" else part.strip('"') for part in text[1:-1].split(",")]


def _difference(spark: SparkSession, target: Path, source: SourceTable) -> dict[str, list[str]]:
    frame = read_mirror(spark, mirror_tables(target)[source.qualified_name])
    there = [(place, column) for place, column in enumerate(source.columns) if column.name in frame.columns]
    expected = Counter(repr([_listed(row[place], column.type) for place, column in there]) for row in source.rows)
    columns = [
        f"CAST(`{c.name}` AS STRING) || '{'+00' if c.type == 'timestamp with time zone' else ''}'"
        if c.type in ("date", "timestamp with time zone")
        else f"`{c.name}`"
        for _, c in there
    ]
    found = Counter(repr([_value(value) for value in row]) for row in frame.selectExpr(*columns).collect())
    lost, more = expected - found, found - expected
    return {"lost": list(lost), "more": list(more)} if lost or more else {}


def _apply(spark: SparkSession, case: Case, folder: Path, *, at_once: bool, config: Mapping[str, Any]) -> list[Any]:
    captures = folder / "captures"
    captures.mkdir(parents=True)
    reports = []
    for file in case.files:
        (captures / file.name).write_bytes(file.read_bytes())
        if not at_once or file is case.files[-1]:
            reports.append(walreplay.apply(spark, captures=captures, target=folder / "mirror", config=config or None))
    return reports


_CONFIG: dict[str, dict[str, Any]] = {
    "partition_identities": {"table_exclude_list": [r"p\.full_keys"]},
    # Values of users' types stay as they were sent.
    "settings_change": {
        "table_exclude_list": [r"t\.k_(spans|lots|len)"],
        "objects": [
            {"table": {"source_schema": "t", "source_table": "whole", "exclude_columns": ["spans", "lots", "len"]}}
        ],
    },
}

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
        only_merge(monkeypatch)
    case = fault_case(name)
    config = _CONFIG.get(name, {})
    reports = _apply(spark, case, tmp_path, at_once=way == "in one run", config=config)
    excluded = re.compile("|".join(config.get("table_exclude_list", ["nothing"])))
    wanted = [table for table in source_tables(case) if not excluded.fullmatch(table.qualified_name)]
    wrong = {table.qualified_name: _difference(spark, tmp_path / "mirror", table) for table in wanted}
    assert {name: found for name, found in wrong.items() if found} == {}
    assert [warning for report in reports for warning in report.warnings] == []


def test_the_table_has_one_text_of_a_value_whatever_was_sent(spark: SparkSession, tmp_path: Path) -> None:
    _apply(spark, fault_case("intervalstyle_changes"), tmp_path, at_once=False, config={})
    rows = collect(tmp_path / "mirror" / "public" / "ikey")
    assert sorted((row.every, row.v) for row in rows) == [("1 mon", "A"), ("1 year", "c")]


def test_partitions_that_send_nothing_in_common_stop_the_run_and_say_which(spark: SparkSession, tmp_path: Path) -> None:
    case = fault_case("partition_identities")
    with pytest.raises(CaptureError, match=r"p\.full_keys_1: primary key \(id, created\); p\.full_keys_2: index") as no:
        _apply(spark, case, tmp_path, at_once=True, config={})
    assert no.value.table == "p.full_keys"
    assert not (tmp_path / "mirror" / "p").exists()

"""Names are data: no name of a table or a column is an expression, a path, markup or an escape sequence to anybody."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import walreplay
from support.captures import load
from support.hostile_names import Script, read_rows, script, short_script
from support.truth import rows_of_csv
from walreplay.cli import main
from walreplay.errors import visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAULTS = Path(__file__).parents[1] / "faults"

pytestmark = pytest.mark.integration

_META = ["__op", "__commit_lsn", "__commit_ts", "__xid", "__ordinal"]


@dataclass(frozen=True)
class Applied:
    """The script, applied in a run for each of its parts.

    Attributes:
        found: by run, the tables that it has written: their columns and rows.
        shown: what the command line has printed of the last one.
    """

    script: Script
    captures: Path
    target: Path
    found: list[Mapping[str, tuple[list[str], list[tuple[Any, ...]]]]]
    shown: str


@pytest.fixture(scope="module", params=["files", pytest.param("spark", marks=pytest.mark.long)])
def applied(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    made, folder = script(few=request.param == "spark"), tmp_path_factory.mktemp(request.param)
    # The folders of the captures and of the tables may have such names, too.
    captures, target, config = folder / "cap ${x} [1]", folder / "mirror ${x} 'a`b", folder / "config.yaml"
    captures.mkdir()
    config.write_text(yaml.safe_dump(made.config), encoding="utf-8")
    done = Applied(made, captures, target, [], "")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "spark":
            patch.setenv("WALREPLAY_COMMITS", "spark")
        for number, data in enumerate(made.runs[:-1]):
            (captures / f"{number}.bin").write_bytes(data)
            report = walreplay.apply(spark, captures=captures, target=target, config=config)
            done.found.append(_read(spark, {table.name: table.location for table in report.tables}))
        (captures / "last.bin").write_bytes(made.runs[-1])
        shown = _run("apply", "--captures", captures, "--target", target, "--config", config, "--quiet")
    tables = walreplay.versions_at(spark, target, len(made.runs)).tables
    done.found.append(_read(spark, {table.name: table.location for table in tables}))
    return Applied(made, captures, target, done.found, shown)


def _read(spark: SparkSession, locations: Mapping[str, str]) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
    frames = {name: spark.read.format("delta").load(location) for name, location in locations.items()}
    return {name: (frame.columns, read_rows(frame.collect(), frame.columns)) for name, frame in frames.items()}


def _run(*arguments: object) -> str:
    """Run the command line, and give what it prints."""
    with redirect_stdout(io.StringIO()) as out:
        assert main([str(argument) for argument in arguments]) == 0
    return out.getvalue()


@pytest.mark.full
def test_each_table_holds_after_each_run_what_its_source_does(applied: Applied) -> None:
    for run, (found, expected) in enumerate(zip(applied.found, applied.script.expected, strict=True), start=1):
        for (schema, name), (columns, rows) in expected.items():
            if f"{schema}.{name}" not in found and run < len(applied.found):
                # The run had nothing for it.
                continue
            assert found[f"{schema}.{name}"][0] == columns, (run, schema, name)
            assert found[f"{schema}.{name}"][1] == rows, (run, schema, name)


@pytest.mark.full
def test_nothing_that_is_printed_steers_the_terminal(applied: Applied) -> None:
    printed = {
        "apply": applied.shown,
        "inspect": _run("inspect", applied.captures),
        "messages": _run("inspect", applied.captures, "--messages"),
        "status": _run("status", "--target", applied.target),
        "at": _run("status", "--target", applied.target, "--as-of", len(applied.script.runs)),
    }
    for what, text in printed.items():
        assert all(line.isprintable() for line in text.split("\n")), what
    for what in ("apply", "inspect", "messages", "at"):
        for table in (*applied.script.tables, *(applied.script.small if what != "apply" else ())):
            assert visible(f"{table.schema}.{table.name}") in printed[what]


@pytest.mark.full
def test_json_has_the_names_as_they_are_and_steers_no_terminal_either(applied: Applied) -> None:
    texts = [
        _run("inspect", applied.captures, "--json"),
        _run("status", "--target", applied.target, "--as-of", len(applied.script.runs), "--json"),
    ]
    messages = _run("inspect", applied.captures, "--messages", "--json").split("\n")[:-1]
    for text in (*texts, *messages):
        assert all(line.isprintable() for line in text.split("\n"))
    inspected, cut = map(json.loads, texts)
    names = {f"{schema}.{name}" for schema, name in applied.script.expected[-1]}
    assert names == {table["name"] for table in cut["tables"]}
    assert names <= {relation["name"] for relation in inspected["relations"]}
    assert len([json.loads(line) for line in messages]) > applied.script.changes


@pytest.mark.full
def test_a_catalogs_tables_may_have_columns_of_any_names(spark: SparkSession, tmp_path: Path) -> None:
    made, before = short_script(), {row[0] for row in spark.sql("SHOW SCHEMAS").collect()}
    try:
        for run, data in enumerate(made.runs):
            (tmp_path / f"{run}.bin").write_bytes(data)
            report = walreplay.apply(spark, captures=tmp_path, target="spark_catalog", config=made.config)
            locations = {table.name: table.location for table in report.tables}
            for (schema, name), (columns, rows) in made.expected[run].items():
                if f"{schema}.{name}" in locations:
                    frame = spark.table(locations[f"{schema}.{name}"])
                    assert frame.columns == columns, (run, schema, name)
                    assert read_rows(frame.collect(), columns) == rows, (run, schema, name)
            assert len(locations) == len(made.tables)
    finally:
        for row in spark.sql("SHOW SCHEMAS").collect():
            if row[0] not in before:
                spark.sql(f"DROP SCHEMA `{row[0]}` CASCADE")


@pytest.mark.parametrize("framing", [None, "raw"])
def test_changes_are_read_whatever_columns_are_called(tmp_path: Path, framing: str | None) -> None:
    made = script()
    for number, data in enumerate(made.runs):
        (tmp_path / f"{number}.bin").write_bytes(data)
    rows = 0
    for batch in walreplay.read_changes(tmp_path, framing=framing):
        names, own = batch.data.schema.names, [column.name for column in batch.relation.columns]
        assert names[:5] == _META
        assert len(set(names)) == len(names)
        for name, given in zip(own, names[5:], strict=True):
            assert given == name or (given.startswith(f"{name}__") and name in (*_META, "__row", "__op__2"))
        if batch.before is not None:
            assert batch.before.schema.names == ["__row", *names[5:]]
        assert set(batch.unchanged) <= set(own)
        rows += len([op for op in batch.ops.to_pylist() if op != "t"])
    assert rows == made.changes


def test_a_column_that_is_called_like_one_of_ours_comes_out(spark: SparkSession, tmp_path: Path) -> None:
    case = load(FAULTS / "column_named_op")
    report = walreplay.apply(spark, captures=case.folder, target=tmp_path)
    found = {table.name: spark.read.format("delta").load(table.location) for table in report.tables}
    for table in case.info["tables"]:
        rows = [tuple(row) for row in found[table["table"]].select(table["columns"]).collect()]
        assert [tuple(map(str, row)) for row in rows] == [
            tuple(row) for row in rows_of_csv(case.truth[table["table"]].read_text(encoding="utf-8"), table["columns"])
        ]
    (batch,) = (one for one in walreplay.read_changes(case.folder) if one.relation.name == "sink")
    assert batch.data.column("__op").to_pylist() == ["c", "u"]
    assert batch.data.column("__op__2").to_pylist() == ["a", "a"]

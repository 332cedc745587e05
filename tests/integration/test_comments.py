"""Tables say which relation they are the mirror of, and columns of what type they are there; people's comments stay."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from support.readers import READERS, rows_of
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, row
from support.stopped_run import StoppedError
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_VARCHAR, _NUMERIC, _NUMERICS, _STAMP, _MOOD = 1043, 1700, 1231, 1184, 70_000
_PRECISE = (10 << 16 | 2) + 4

_OURS = {
    "__commit_lsn": "Commit LSN of the transaction that has written the row last",
    "__commit_ts": "When that transaction has committed, by the source's clock",
    "_rescued_data": "Values that the types of their columns cannot hold: JSON of column and PostgreSQL's text",
}

_NASTY = 'it\'s \\ a \n"q" 😀 ${x} \\u0041 %_ \\% `b` é' + "ü" * 80
"""A name of more than 200 bytes, of all that a literal has to look after."""


Columns = dict[str, int | tuple[int, int]]


def _relation(oid: int, name: str, columns: Columns, *, schema: str = "s", key: str = "id") -> m.Relation:
    typed = {column: kind if isinstance(kind, tuple) else (kind, -1) for column, kind in columns.items()}
    return m.Relation(oid, schema, name, "d", tuple(m.Column(c, *kind, c == key) for c, kind in typed.items()))


def _described(mirror: SmallMirror, location: Path) -> tuple[str | None, dict[str, str | None]]:
    """Return what a table says of itself and of its columns, to Spark and to delta-rs, where that reads the table."""
    (detail,) = mirror.spark.sql(f"DESCRIBE DETAIL delta.`{location}`").collect()
    told = mirror.spark.sql(f"DESCRIBE TABLE delta.`{location}`").collect()
    said = {row.col_name: row.comment for row in told if row.col_name and not row.col_name.startswith("#")}
    if detail.minReaderVersion == 1:
        table = DeltaTable(location)
        fields = json.loads(table.schema().to_json())["fields"]
        assert table.metadata().description == detail.description
        assert {field["name"]: field["metadata"].get("comment") for field in fields} == said
    return detail.description, said


_COLUMNS: Columns = {
    "id": INT4,
    "price": (_NUMERIC, _PRECISE),
    "prices": (_NUMERICS, _PRECISE),
    "note": (_VARCHAR, 24),
    "at": (_STAMP, 3),
    "mood": _MOOD,
    "what": 80_000,
}
_SAID = {
    "id": "integer",
    "price": "numeric(10,2)",
    "prices": "numeric(10,2)[]",
    "note": "character varying(20)",
    "at": "timestamp(3) with time zone",
    "mood": f'"{_NASTY.replace(chr(34), 2 * chr(34))}"."order"',
    "what": "type 80000",
}
_VALUES = ("1.25", "{1.25,NULL}", "x", "2026-01-02 03:04:05.678+00", "ok", "?")


@pytest.mark.full
def test_comments_follow_the_source_and_leave_those_of_people_alone(mirror: SmallMirror) -> None:
    spark, enum = mirror.spark, m.Type(_MOOD, _NASTY, "order")
    mirror.apply(enum, _relation(1, "t", _COLUMNS), m.Insert(1, row(1, *_VALUES)))
    assert _described(mirror, mirror.location("t")) == ("PostgreSQL table s.t", {**_SAID, **_OURS})
    protocol = DeltaTable(mirror.location("t")).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    # Rows alone change nothing of it.
    mirror.apply(m.Insert(1, row(2, *_VALUES)), m.Update(1, row(1, *_VALUES)))
    assert mirror.history("t")[-1] in {"MERGE", "WRITE"}
    assert _described(mirror, mirror.location("t"))[1] == {**_SAID, **_OURS}
    # Somebody says something else, or nothing.
    table = f"delta.`{mirror.location('t')}`"
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN note COMMENT 'mine'")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN price COMMENT ''")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN __commit_ts COMMENT 'ours'")
    # A length changes, which is no change for Delta; types grow; a column comes.
    columns: Columns = {**_COLUMNS, "id": INT8, "note": (_VARCHAR, 44), "price": (_NUMERIC, (12 << 16 | 2) + 4)}
    columns |= {"at": (_STAMP, 6), "new": (_VARCHAR, 9)}
    report = mirror.apply(_relation(1, "t", columns), m.Insert(1, row(3, *_VALUES, "new")))
    assert report.warnings == ()
    kept = {"note": "mine", "price": None, "__commit_ts": "ours"}
    said = {**_SAID, "id": "bigint", "at": "timestamp(6) with time zone", "new": "character varying(5)", **_OURS}

    def told() -> dict[str, str | None]:
        return {name: comment or None for name, comment in _described(mirror, mirror.location("t"))[1].items()}

    assert told() == {**said, **kept}
    # What is read is the same; a column with a comment of somebody's gets another name, one of ours another type.
    del columns["price"]
    renamed: Columns = {("remark" if name == "note" else name): kind for name, kind in columns.items()}
    renamed |= {"what": TEXT}
    mirror.apply(_relation(1, "t", renamed), m.Insert(1, row(4, *_VALUES[1:], "new")))
    said |= {"remark": "mine", "what": "text", "__commit_ts": "ours", "price": None}
    del said["note"]
    assert told() == said
    found = spark.read.format("delta").load(str(mirror.location("t"))).toArrow()
    assert rows_of(READERS["DuckDB"](mirror.location("t"))) == rows_of(found)


@pytest.mark.full
def test_a_table_that_is_written_anew_keeps_its_comments(mirror: SmallMirror) -> None:
    mirror.apply(_relation(1, "t", {"id": INT4, "note": (_VARCHAR, 24)}), m.Insert(1, row(1, "x")))
    mirror.spark.sql(f"ALTER TABLE delta.`{mirror.location('t')}` ALTER COLUMN __commit_ts COMMENT 'mine'")
    said = {"id": "integer", "note": "character varying(20)", **_OURS, "__commit_ts": "mine"}
    # It is emptied; and again with a type that rewrites it.
    mirror.apply(m.Truncate((1,), 0), m.Insert(1, row(2, "7")))
    assert _described(mirror, mirror.location("t"))[1] == said
    mirror.apply(_relation(1, "t", {"id": INT4, "note": INT4}), m.Insert(1, row(3, 8)))
    assert _described(mirror, mirror.location("t"))[1] == {**said, "note": "integer"}


@pytest.mark.full
def test_a_table_that_is_renamed_says_so_unless_somebody_has_it_say_something_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    changes = [(_relation(oid, f"t{oid}", {"id": INT4}), m.Insert(oid, row(1))) for oid in (1, 2)]
    mirror.apply(*changes[0], *changes[1])
    mirror.spark.sql(f"COMMENT ON TABLE delta.`{mirror.location('t2')}` IS 'mine'")
    renamed = [_relation(1, "Order", {"id": INT4}), _relation(2, "t3", {"id": INT4})]
    mirror.apply(*renamed, m.Insert(1, row(2)), m.Insert(2, row(2)))
    assert _described(mirror, mirror.location("Order"))[0] == 'PostgreSQL table s."Order"'
    assert _described(mirror, mirror.location("t3"))[0] == "mine"
    # A new relation of an old name is another table, and the old one's rows lie aside.
    mirror.apply(_relation(3, "t3", {"id": INT8}), m.Insert(3, row(3)))
    assert _described(mirror, mirror.location("t3")) == ("PostgreSQL table s.t3", {"id": "bigint", **_OURS})
    assert _described(mirror, mirror.ledger / "set_aside_2")[0] == "mine"


@pytest.mark.full
def test_a_run_that_stops_anywhere_between_comments_is_finished(
    mirror: SmallMirror, stop: Callable[[str], None]
) -> None:
    old, new = (
        _relation(1, "t", {"id": INT4, "a": (_VARCHAR, 24)}),
        _relation(1, "u", {"id": INT8, "a": (_VARCHAR, 44)}),
    )
    by_spark = bool(os.environ["WALREPLAY_COMMITS"])
    runs = [
        ((old, m.Insert(1, row(1, "x"))), ["comment is to change" if by_spark else "table applied"]),
        ((new, m.Insert(1, row(2, "x"))), ["comment has changed", "columns are to change"]),
    ]
    for changes, stops in runs:
        mirror.write(*changes)
        for step in stops:
            stop(step)
            with pytest.raises(StoppedError):
                mirror.apply()
        mirror.apply()
    said = {"id": "bigint", "a": "character varying(40)", **_OURS}
    assert _described(mirror, mirror.location("u")) == ("PostgreSQL table s.u", said)
    assert mirror.history("u").count("SET TBLPROPERTIES") == 1
    rows = mirror.spark.sql(f"DESCRIBE HISTORY delta.`{mirror.location('u')}`").collect()
    assert [row.operation for row in rows].count("SET TBLPROPERTIES") == (3 if by_spark else 2)


@pytest.mark.full
def test_what_delta_rs_has_a_table_say_is_no_change_of_somebody_elses(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_relation(1, "t", {"id": INT4}), m.Insert(1, row(1)))
    table = DeltaTable(mirror.location("t"))
    table.alter.set_table_description("mine")
    table.alter.set_column_metadata("id", {"comment": "whose?"})
    report = mirror.apply(_relation(1, "t", {"id": INT8}), m.Insert(1, row(2)))
    assert report.warnings == ()
    assert _described(mirror, mirror.location("t")) == ("mine", {"id": "whose?", **_OURS})


@pytest.mark.full
def test_a_catalog_s_tables_say_so_too(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path, "spark_catalog")

    def said(table: str) -> tuple[str, dict[str, str]]:
        (detail,) = spark.sql(f"DESCRIBE DETAIL {table}").collect()
        fields = spark.table(table).schema.fields
        return detail.description, {field.name: field.metadata.get("comment", "") for field in fields}

    try:
        enum = m.Type(_MOOD, "it's", "a\\b")
        mirror.apply(enum, _relation(1, "t", {"id": INT4, "a": _MOOD}), m.Insert(1, row(1, "x")))
        assert said("s.t") == ("PostgreSQL table s.t", {"id": "integer", "a": '"it\'s"."a\\b"', **_OURS})
        spark.sql("ALTER TABLE s.t ALTER COLUMN id COMMENT 'mine'")
        mirror.apply(_relation(1, "u", {"id": INT8, "a": TEXT}), m.Insert(1, row(2, "x")))
        assert said("s.u") == ("PostgreSQL table s.u", {"id": "mine", "a": "text", **_OURS})
    finally:
        for schema in ("s", "_walreplay"):
            spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def test_names_that_are_hard_to_write_come_through(mirror: SmallMirror) -> None:
    mirror.apply(_relation(1, "t", {"id": INT4}, schema=_NASTY), m.Insert(1, row(1)))
    location = next(path.parent for path in Path(mirror.target).glob("[!_]*/t/_delta_log"))
    said = (f'PostgreSQL table "{_quoted(_NASTY)}".t', {"id": "integer", **_OURS})
    assert _logged(location) == said


def _quoted(name: str) -> str:
    return name.replace('"', '""')


def _logged(location: Path) -> tuple[str, dict[str, Any]]:
    """Return the same by the table's log: no statement can name such a path."""
    (*_, newest) = (action["metaData"] for action in _actions(location) if "metaData" in action)
    fields = json.loads(newest["schemaString"])["fields"]
    return newest["description"], {field["name"]: field["metadata"].get("comment") for field in fields}


def _actions(location: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(Path(location, "_delta_log").glob("*.json")):
        yield from map(json.loads, path.read_text().splitlines())

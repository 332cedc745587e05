"""Properties and clustering get into the tables, and change with the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.readers import READERS, collect, rows_of
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, relation, row
from support.truth import mirror_tables
from walreplay.config import Settings
from walreplay.errors import ConfigError
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_COLUMNS = {"id": INT4, "a": TEXT, "f": 701, "flag": 16}


def _changes(number: int, first: m.Relation | None = None) -> Sequence[m.AnyMessage]:
    """Change both tables, the first of which may have other columns, and one that rows are only added to."""
    relations = [relation(oid, f"t{oid}", _COLUMNS, kind) for oid, kind in ((1, "d"), (2, "d"), (3, "n"))]
    relations[0] = first or relations[0]
    values = (number, "x", 0.5, "t", "more")
    return [one for r in relations for one in (r, m.Insert(r.oid, row(*values[: len(r.columns)])))]


def _layout(mirror: SmallMirror, name: str) -> tuple[dict[str, str], list[str]]:
    (found,) = mirror.spark.sql(f"DESCRIBE DETAIL delta.`{mirror.location(name)}`").collect()
    return dict(found.properties), list(found.clusteringColumns)


def _config(own: dict[str, Any], **general: Any) -> dict[str, Any]:
    return {"objects": [{"table": {"source_schema": "s", "source_table": "t1", **own}}], **general}


def test_what_this_spark_keeps_for_itself_is_refused_in_a_configuration(spark: SparkSession) -> None:
    names = spark._jvm.org.apache.spark.sql.connector.catalog.CatalogV2Util.TABLE_RESERVED_PROPERTIES()  # type: ignore[union-attr]
    reserved = names.mkString(" ").split()
    assert {"owner", "location", "provider"} < {*reserved}
    for name in reserved:
        with pytest.raises(ConfigError, match=f"{name} may not be given"):
            Settings.from_mapping({"table_properties": {name: "x"}})


@pytest.mark.full
def test_a_table_has_what_the_configuration_wants_of_it(mirror: SmallMirror) -> None:
    retention = {"delta.logRetentionDuration": "interval 60 days"}
    own = {"table_properties": {"it's": "ours", "delta.checkpointInterval": 5}, "cluster_by": ["a", "__commit_ts"]}
    mirror.apply(*_changes(1), **_config(own, table_properties=retention, cluster_by=["id"]))
    assert _layout(mirror, "t1") == (
        {**retention, "it's": "ours", "delta.checkpointInterval": "5"},
        ["a", "__commit_ts"],
    )
    assert _layout(mirror, "t2") == (retention, ["id"])
    assert _layout(mirror, "t3") == (retention, ["id"])
    # The same again changes nothing but rows.
    before = mirror.history("t1")
    mirror.apply(*_changes(2), **_config(own, table_properties=retention, cluster_by=["id"]))
    assert len(mirror.history("t1")) == len(before) + 1
    # A table that only gets rows, whose files are written before anything is committed, gets other properties.
    mirror.apply(relation(3, "t3", _COLUMNS, "n"), m.Insert(3, row(5, "y", 1.5, "f")), table_properties={"a": "b"})
    assert _layout(mirror, "t3") == ({"a": "b"}, [])
    # Another configuration, and a column that it is clustered by gets another name.
    other = relation(1, "t1", {"id": INT8, "b": TEXT, "f": 701, "flag": 16, "n": TEXT})
    mirror.apply(*_changes(3, other), **_config({"cluster_by": ["b"]}, table_properties={"it's": "theirs"}))
    assert _layout(mirror, "t1")[1] == ["b"]
    assert _layout(mirror, "t2")[1] == []
    for name in ("t1", "t2"):
        found = {key: value for key, value in _layout(mirror, name)[0].items() if key != "delta.enableTypeWidening"}
        assert {key: value for key, value in found.items() if "columnMapping" not in key} == {"it's": "theirs"}
    mirror.spark.sql(f"OPTIMIZE delta.`{mirror.location('t1')}`")
    change = [m.Update(1, row(1, "new", 0.5, "t", "n"))]
    mirror.apply(*change, **_config({"cluster_by": ["b"]}, table_properties={"it's": "theirs"}))
    found = mirror.spark.read.format("delta").load(str(mirror.location("t1"))).toArrow()
    assert sorted(map(tuple, collect(mirror.location("t1"), "id", "b", "n"))) == [
        (1, "new", "n"),
        (2, "x", None),
        (3, "x", "more"),
    ]
    assert rows_of(READERS["DuckDB"](mirror.location("t1"))) == rows_of(found)


@pytest.mark.full
def test_a_clustering_column_may_go_and_its_table_be_written_anew(mirror: SmallMirror, tmp_path: Path) -> None:
    config = _config({"cluster_by": ["a"], "on_drop_column": "drop"})
    mirror.apply(*_changes(1), **config)
    mirror.apply(relation(1, "t1", {"id": INT4, "f": 701, "flag": 16}), m.Insert(1, row(2, 1.5, "f")), **config)
    assert _layout(mirror, "t1")[1] == []
    again = _config({"cluster_by": ["f"], "on_drop_column": "drop"})
    mirror.apply(m.Truncate((1,), 0), m.Insert(1, row(3, 2.5, "f")), **again)
    assert _layout(mirror, "t1")[1] == ["f"]
    mirror.apply(relation(1, "t1", {"id": INT4, "f": TEXT, "flag": 16}), m.Insert(1, row(4, "x", "f")), **again)
    assert _layout(mirror, "t1")[1] == ["f"]
    assert len(mirror.rows()["s.t1"]) == 2


@pytest.mark.parametrize("columns", [["nowhere"], ["flag"]])
def test_a_clustering_that_cannot_be_stops_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, columns: list[str]
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    with pytest.raises(ConfigError, match="cluster_by names"):
        mirror.apply(*_changes(1), **_config({"cluster_by": columns}))
    assert mirror_tables(mirror.target) == {}

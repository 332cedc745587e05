"""Properties and clustering: what the configuration takes, and what it comes to for a table."""

import pytest

from support.small_mirror import INT4, TEXT, relation
from walreplay.config import make_settings
from walreplay.config.selection import select
from walreplay.errors import ConfigError

COLUMNS = {"id": INT4, "a": TEXT, "b": TEXT}
T = relation(1, "t", COLUMNS)


def settings(own=None, **general):
    table = {"source_schema": "s", "source_table": "t", **(own or {})}
    return make_settings({"objects": [{"table": table}], **general})


def layout(own=None, of=T, versions=(), **general):
    return select(settings(own, **general), of, versions).layout


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("delta.logRetentionDuration", "interval 60 days", "interval 60 days"),
        ("delta.deletedFileRetentionDuration", "1 week 2 days", "1 week 2 days"),
        ("delta.checkpointInterval", 20, "20"),
        ("delta.dataSkippingNumIndexedCols", -1, "-1"),
        ("delta.enableDeletionVectors", False, "false"),
        ("delta.enableChangeDataFeed", True, "true"),
        ("delta.columnMapping.mode", "name", "name"),
        ("delta.enableTypeWidening", True, "true"),
        ("team", "o'clock", "o'clock"),
        ("Delta.x", "anything", "anything"),
    ],
)
def test_a_property_is_taken_as_text(name, value, kept):
    assert layout({"table_properties": {name: value}}).properties == ((name, kept),)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("delta.logRetentionDurations", "interval 60 days", "the nearest is delta.logRetentionDuration"),
        ("delta.bogus", "x", "no property of Delta's that is known"),
        ("delta.logRetentionDuration", 60, "must be an interval"),
        ("delta.logRetentionDuration", "2 months", "must be an interval"),
        ("delta.checkpointInterval", 0, "above 0"),
        ("delta.enableChangeDataFeed", "maybe", "true or false"),
        ("delta.columnMapping.mode", "none", "must be name"),
        ("delta.columnMapping.mode", "id", "must be name"),
        ("delta.enableTypeWidening", False, "must be true"),
        ("delta.appendOnly", True, "may not be given"),
        ("delta.columnMapping.maxColumnId", 3, "may not be given"),
        ("delta.feature.timestampNtz", "supported", "may not be given"),
        ("delta.minReaderVersion", 3, "may not be given"),
        ("delta.setTransactionRetentionDuration", "interval 1 day", "may not be given"),
        ("team", ["x"], "must be text"),
        ("owner", "sales", "such as data_owner"),
        ("location", "/data", "destination_schema and destination_table"),
        ("EXTERNAL", True, "a catalog decides it"),
        ("comment", "x", "follows the source's own"),
        ("spark.sql.sources.provider", "x", "may not be given"),
    ],
)
@pytest.mark.parametrize("everywhere", [True, False])
def test_a_property_that_cannot_be_had_is_an_error_that_names_it(name, value, problem, everywhere):
    given = {"table_properties": {name: value}}
    with pytest.raises(ConfigError, match=problem) as refused:
        settings(**given) if everywhere else settings(given)
    assert name in str(refused.value)


def test_a_tables_own_properties_come_on_top():
    both = layout({"table_properties": {"a": "own", "b": "own"}}, table_properties={"a": "all", "c": "all"})
    assert dict(both.properties) == {"a": "own", "b": "own", "c": "all"}


def test_a_tables_own_clustering_is_in_place_of_the_one_of_all():
    assert layout(cluster_by=["id", "__commit_ts"]).cluster_by == ("id", "__commit_ts")
    assert layout({"cluster_by": ["b"]}, cluster_by=["id"]).cluster_by == ("b",)
    assert layout({"cluster_by": []}, cluster_by=["id"]).cluster_by == ()


@pytest.mark.parametrize("names", [["a", "a"], ["a", "b", "c", "d", "e"], [""], "a"])
def test_what_is_no_clustering_is_an_error(names):
    with pytest.raises(ConfigError, match="cluster_by"):
        settings(cluster_by=names)


def test_a_column_that_the_table_never_had_is_an_error_that_names_the_nearest():
    with pytest.raises(ConfigError, match=r"cluster_by names 'idd'.*the nearest column is 'id'"):
        layout({"cluster_by": ["idd"]})


def test_a_column_that_is_left_out_is_an_error():
    with pytest.raises(ConfigError, match="cluster_by names 'b', which is left out"):
        layout({"cluster_by": ["b"], "exclude_columns": ["b"]})


def test_a_column_that_another_version_has_is_a_warning():
    older, newer = T, relation(1, "t", {"id": INT4, "a": TEXT})
    found = select(settings({"cluster_by": ["b", "a"]}), newer, (older, newer))
    assert found.layout.cluster_by == ("a",)
    assert "cluster_by names 'b'" in found.warnings[0]


def test_a_column_goes_by_whichever_of_its_names():
    newer = relation(1, "t", {"id": INT4, "a": TEXT, "c": TEXT})
    own = {"cluster_by": ["b"], "rename_columns": {"b": "c"}}
    assert layout(own, newer, (T, newer)).cluster_by == ("c",)


def test_rows_are_marked_unless_that_is_switched_off():
    assert layout().marks_rows
    assert not layout({"table_properties": {"delta.enableDeletionVectors": False}}).marks_rows

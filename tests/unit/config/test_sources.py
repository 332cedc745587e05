"""Several sources in one configuration: what is common to them, and what each has of its own."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from walreplay.config import (
    Configuration,
    Settings,
    SourceSettings,
    load_configuration,
    make_configuration,
    make_settings,
    source_settings,
)
from walreplay.errors import ConfigError, OrderError
from walreplay.report import SourceReport, SourcesReport

LAKE = """
file_order: modified
origin_exclude_list: [node_b]
table_include_list: ["shop[.].*"]
on_recreate: stop
objects:
  - table: {source_schema: shop, source_table: orders, keys: [id]}
  - table: {source_schema: shop, source_table: items, destination_schema: fixed}
sources:
  eu:
    captures: s3a://bucket/eu
    destination_schema: "eu_{schema}"
  us:
    captures: /data/us
    file_order: path
    file_pattern: "*.bin"
    origin_include_list: [none]
    source: /old/us
    table_exclude_list: ["audit[.].*"]
    skipped_operations: [t]
    objects:
      - table: {source_schema: shop, source_table: orders, keys: [number]}
      - table: {source_schema: other, source_table: notes}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "lake.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def configuration(text: str) -> Configuration:
    return Configuration.from_mapping(yaml.safe_load(text))


def test_a_source_has_what_is_common_and_what_is_its_own(write: Callable[[str], Path]) -> None:
    found = load_configuration(write(LAKE))
    assert found.captures_of == {"eu": "s3a://bucket/eu", "us": "/data/us"}
    eu, us = found.of("eu"), source_settings(write(LAKE), "us")
    assert (eu.file_order, eu.file_pattern) == ("modified", None)
    assert (us.file_order, us.file_pattern) == ("path", "*.bin")
    assert [[one.origins.wants(origin) for origin in (None, "node_a", "node_b")] for one in (eu, us)] == [
        [True, True, False],
        [True, False, False],
    ]
    assert (eu.source, us.source) == (None, "/old/us")
    assert eu.wants_table("shop", "a")
    assert not eu.wants_table("other", "a")
    assert us.wants_table("other", "a")
    assert not us.wants_table("audit", "a")
    assert (eu.skips("t"), us.skips("t")) == (False, True)
    assert (eu.keys_of("shop", "orders"), us.keys_of("shop", "orders")) == (("id",), ("number",))
    assert eu.table("other", "notes") is None
    assert us.table("other", "notes") is not None
    # What the configuration says counts as said, in each of them.
    assert "on_recreate" in eu.model_fields_set & us.model_fields_set
    assert "on_drop_column" not in eu.model_fields_set | us.model_fields_set


def test_announcements_can_be_said_of_one_source() -> None:
    found = configuration("{sources: {eu: {captures: x, announcements: walreplay}, us: {captures: y}}}")
    assert [found.of(name).announcements for name in ("eu", "us")] == ["walreplay", None]
    found = configuration("{announcements: all, sources: {eu: {captures: x, announcements: own}, us: {captures: y}}}")
    assert [found.of(name).announcements for name in ("eu", "us")] == ["own", "all"]


@pytest.mark.parametrize("nothing", ["[]", "null"])
def test_a_source_without_objects_keeps_those_of_all_sources(nothing: str) -> None:
    text = "{column_mask_salt: s, objects: [{table: {source_schema: a, source_table: b, column_mask_hash: [c]}}], "
    found = configuration(f"{text} sources: {{eu: {{captures: x, objects: {nothing}}}}}}}").of("eu")
    assert found.options_of("a", "b").masks_column("c")


def test_what_is_empty_under_a_source_leaves_what_is_said_of_all_sources() -> None:
    common = "file_order: path, origin_include_list: [none], table_include_list: [a], outputs: history"
    nothing = ", ".join(f"{key}: null" for key in SourceSettings.model_fields if key != "captures")
    found = configuration(f"{{{common}, sources: {{eu: {{captures: x, {nothing}}}}}}}")
    assert found.of("eu").explicit == Settings.from_mapping(yaml.safe_load(f"{{{common}}}")).explicit


def test_a_source_has_a_schema_for_each_of_its_own(write: Callable[[str], Path]) -> None:
    found = load_configuration(write(LAKE))
    eu, us = found.of("eu"), found.of("us")
    assert eu.options_of("shop", "orders").destination == ("eu_shop", "orders")
    assert eu.options_of("a", "b").destination == ("eu_a", "b")
    assert eu.options_of("shop", "items").destination == ("fixed", "items")
    assert us.options_of("shop", "orders").destination == ("shop", "orders")
    one = Settings.from_mapping({"destination_schema": "all"})
    assert one.options_of("a", "b").destination == ("all", "b")


def test_the_settings_of_a_source_know_which_ledger_is_theirs() -> None:
    found = configuration(LAKE)
    eu = found.of("eu")
    for same in (eu, eu.allowing_gaps(), pickle.loads(pickle.dumps(eu)), make_settings(eu)):
        assert (same.ledger_name, same.siblings, same.captures_uri) == ("eu", ("us",), "s3a://bucket/eu")
    assert (Settings().ledger_name, Settings().siblings, Settings().captures_uri) == (None, (), None)


def test_tables_that_sources_share_are_named_for_all_of_them() -> None:
    found = configuration(f"{LAKE}shared_tables: 'shop[.]orders, all[.].*'")
    eu, us = found.of("eu"), found.of("us")
    for same in (us, us.allowing_gaps(), pickle.loads(pickle.dumps(us)), make_settings(us)):
        assert [same.shares_table("shop", name) for name in ("orders", "orders2", "items")] == [True, False, False]
    # By the names that the target's tables have.
    assert not eu.shares_table(*eu.options_of("shop", "orders").destination)
    assert not Settings().shares_table("shop", "orders")
    with pytest.raises(ConfigError, match="there are no sources"):
        configuration("shared_tables: ['a[.]b']")


def test_what_a_command_says_holds_for_all_sources() -> None:
    text = "outputs: history\nsources: {a: {captures: x, outputs: changelog}, b: {captures: y}}"
    found = configuration(text)
    assert (found.of("a").outputs, found.of("b").outputs) == (("changelog",), ("history",))
    said = found.allowing_gaps().accepting_changed_tables()
    for name in ("a", "b"):
        one = said.of(name)
        assert (one.allow_gaps, one.accept_changed_tables) == (True, True)


def test_sources_are_chosen_by_name_in_their_order() -> None:
    found = configuration("sources: {b: {captures: x}, a: {captures: y}, c: {captures: z}}")
    assert found.chosen() == ("b", "a", "c")
    assert found.chosen(["c", "b", "c"]) == ("b", "c")
    with pytest.raises(ConfigError, match="no source 'd'") as caught:
        found.chosen(["a", "d"])
    assert caught.value.remedy == "There is b, a, c"
    with pytest.raises(ConfigError, match="no sources at all"):
        Configuration().chosen(["a"])


def test_several_sources_are_not_taken_for_one(write: Callable[[str], Path]) -> None:
    for config in (configuration(LAKE), yaml.safe_load(LAKE), write(LAKE)):
        with pytest.raises(ConfigError, match=r"the configuration has sources \(eu, us\)"):
            make_settings(config)
    with pytest.raises(ConfigError, match="has sources"):
        make_settings(write(LAKE))
    plain = {"source": "a", "file_pattern": "x"}
    assert make_configuration(plain).single() == make_settings(plain) == Settings.from_mapping(plain)
    assert make_configuration(make_settings(plain)).single() == make_settings(plain)
    assert make_settings(write("sources:\n")) == Settings()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("sources: {eu: {}}", "line 1, sources.eu.captures: is missing"),
        (
            "sources:\n  eu: {captures: a, tabel_include_list: [b]}",
            "line 2, sources.eu.tabel_include_list: unknown key",
        ),
        ("sources: {eu: {captures: a, tabel_include_list: [b]}}", "The nearest key is 'table_include_list'"),
        ("sources: {eu: {captures: a, file_patern: b}}", "The nearest key is 'file_pattern'"),
        ("sources: {eu: {captures: {uri: a}}}", "sources.eu.captures: must be text"),
        ("sources: {eu: {captures: null}}", "sources.eu.captures: is missing"),
        ("sources: {eu: a}", "sources.eu: must be a mapping of keys to values, not 'a'"),
        ("sources: {1: {captures: a}}", "Put the name in quotes"),
        ('sources: {"a b": {captures: x}}', "a source's name has letters, digits"),
        ('sources: {"../x": {captures: x}}', "a source's name has letters, digits"),
        ("sources: {_x: {captures: x}}", "a source's name has letters, digits"),
        ("sources: {eu: {captures: a}, EU: {captures: b}}", "two of the sources are called eu and EU"),
        ("source: a\nsources: {eu: {captures: a}}", "source is the name of one stream"),
        ('sources: {eu: {captures: a, destination_schema: "{table}"}}', "knows {schema}"),
        (
            "table_include_list: [b]\nsources: {eu: {captures: a, table_include_list: [b], table_exclude_list: [c]}}",
            "sources.eu: may have table_include_list or table_exclude_list, not both",
        ),
        (
            "objects: [{table: {source_schema: a, source_table: b}}]\nsources: {eu: {captures: x, "
            'table_exclude_list: ["a[.]b"]}}',
            "the source eu: a.b stands under objects, but table_exclude_list leaves it out",
        ),
        ("column_mask_salt: 5\nsources: {eu: {captures: x}}", "column_mask_salt: must be"),
    ],
)
def test_a_wrong_source_is_named_with_what_is_right(write: Callable[[str], Path], text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_configuration(write(text))
    assert part in str(caught.value)


def test_no_secret_stands_in_a_sources_error() -> None:
    with pytest.raises(ConfigError) as caught:
        configuration("column_mask_salt: hush\nsources: {eu: {captures: x, source_encoding: none}}")
    assert "hush" not in str(caught.value)


def test_every_key_of_a_source_stands_in_the_shipped_example() -> None:
    example = (Path(__file__).parents[3] / "conf" / "walreplay.yaml").read_text(encoding="utf-8")
    section = example[example.index("# sources:") :]
    for key in SourceSettings.model_fields:
        assert re.search(rf"^#.*\b{key}\b", section, re.MULTILINE), key


def test_a_report_of_sources_keeps_what_came_of_each() -> None:
    failure = OrderError("a gap", path="x", remedy="Bring it")
    report = SourcesReport(
        (
            SourceReport("a", {"n": 1}, None, 1.23456),
            SourceReport("b", None, failure, 2.0),
            SourceReport("c", None, KeyError("a value"), 2.0),
        )
    )
    assert report.results == {"a": {"n": 1}}
    assert [one.source for one in report.failed] == ["b", "c"]
    with pytest.raises(OrderError, match="a gap"):
        report.raise_first()
    done, wrong, fault = report.to_dict()["sources"]
    assert done == {"source": "a", "status": "done", "error": None, "report": {"n": 1}, "seconds": 1.235}
    assert (wrong["status"], wrong["error"], wrong["report"]) == ("failed", "x: a gap. Bring it", None)
    assert fault["error"] == "KeyError, a fault of walreplay"
    SourcesReport((SourceReport("a", 1, None, 0.0),)).raise_first()

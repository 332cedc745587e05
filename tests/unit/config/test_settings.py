import pickle
import re
from pathlib import Path

import pytest

from walreplay.config import (
    Settings,
    TableSettings,
    make_settings,
)
from walreplay.config.model import Narrowed, tables_named
from walreplay.errors import ConfigError
from walreplay.names import Output
from walreplay.types import TypeOptions

FULL = """
source: shop
framing: recvlogical
file_pattern: "*.bin"
file_order: modified
origin_exclude_list: [node_b]
objects:
  - table: {source_schema: public, source_table: orders, keys: [id, line]}
  - table:
      source_schema: public
      source_table: customers
      destination_schema: sales
      destination_table: customer
      exclude_columns: [blob]
      rename_columns: {mail: email}
      column_mask_hash: [mail]
      scd_type: SCD_TYPE_1
      soft_deletes: true
      on_type_change: stop
      on_recreate: keep
      on_drop_column: drop
table_include_list: ["public[.].*", "other[.]orders"]
skipped_operations: [t, d]
commit_lsn_column: lsn
rescued_data_column: null
column_mask_salt: pepper
ledger_keep_days: 400
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "walreplay.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_key_is_read(write):
    settings = make_settings(write(FULL))
    assert settings.source == "shop"
    assert settings.framing == "recvlogical"
    assert settings.file_pattern == "*.bin"
    assert settings.file_order == "modified"
    assert settings.origins.exclude == ("node_b",)
    assert settings.ledger_keep_days == 400


def test_what_is_said_of_a_table_is_read(write):
    settings = make_settings(write(FULL))
    table = settings.table("public", "customers")
    assert table.destination == ("sales", "customer")
    assert table.renames == (("mail", "email"),)
    assert (table.scd_type, table.soft_deletes) == (1, True)
    assert (table.on_type_change, table.on_recreate, table.on_drop_column) == ("stop", "keep", "drop")
    assert settings.table("public", "orders").destination == ("public", "orders")
    assert settings.table("public", "unsaid") is None
    assert settings.skipped_operations == ("t", "d")
    assert settings.skips("t")
    assert not settings.skips("u")
    assert (settings.commit_lsn_column, settings.rescued_data_column) == ("lsn", None)
    assert settings.commit_ts_column == "__commit_ts"
    assert settings.mask_salt == b"pepper"


def test_the_policies_are_those_that_lose_nothing_and_need_nobody():
    settings = Settings()
    assert (settings.on_type_change, settings.on_recreate, settings.on_drop_column) == ("rewrite", "replace", "keep")
    assert settings.soft_deletes is False
    assert settings.skipped_operations == ()


def test_keys_are_those_of_the_table_that_is_named(write):
    settings = make_settings(write(FULL))
    assert settings.keys_of("public", "orders") == ("id", "line")
    assert settings.keys_of("public", "customers") is None
    assert settings.keys_of("other", "orders") is None


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "{}", "framing:\norigin_include_list:\nobjects:\nsources:\ntable_properties:\n"]
)
def test_an_empty_configuration_is_the_defaults(write, text):
    assert make_settings(write(text)) == Settings() == make_settings(None)


def test_the_shipped_example_is_valid_and_says_the_defaults():
    example = Path(__file__).parents[3] / "conf" / "walreplay.yaml"
    assert make_settings(example) == Settings()


def test_every_key_stands_in_the_shipped_example():
    example = (Path(__file__).parents[3] / "conf" / "walreplay.yaml").read_text(encoding="utf-8")
    for model in (Settings, TableSettings):
        for key in model.model_fields:
            assert re.search(rf"^[# -]*{key}:", example, re.MULTILINE), key


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, ["public.a", "public.b", "Public.A", "x.public.a"]),
        ({"table_include_list": ["public[.]a"]}, ["public.a", "Public.A"]),
        ({"table_include_list": ["(?-i:public[.]a)"]}, ["public.a"]),
        ({"table_include_list": ["a", "ublic.*"]}, []),
        ({"table_exclude_list": [r"public\.a"]}, ["public.b", "x.public.a"]),
        ({"table_include_list": "public.a , public.b,"}, ["public.a", "public.b", "Public.A"]),
        ({"table_include_list": r"public.{1\,1}"}, []),
        ({"table_include_list": r"public\..{1\,1}"}, ["public.a", "public.b", "Public.A"]),
    ],
)
def test_tables_are_wanted_by_expressions_over_their_whole_names(values, wanted):
    settings = Settings.from_mapping(values)
    names = [("public", "a"), ("public", "b"), ("Public", "A"), ("x", "public.a")]
    assert [".".join(name) for name in names if settings.wants_table(*name)] == wanted


@pytest.mark.parametrize(
    ("given", "skipped"),
    [([], ()), (["none"], ()), ("none", ()), (["t"], ("t",)), ("c, u,d", ("c", "u", "d"))],
)
def test_operations_are_skipped_by_their_letters(given, skipped):
    assert Settings.from_mapping({"skipped_operations": given}).skipped_operations == skipped


@pytest.mark.parametrize(
    ("said", "wanted", "masked"),
    [
        ({}, ["id", "mail", "email", "note"], []),
        ({"include_columns": ["id", "note"]}, ["id", "note"], []),
        ({"exclude_columns": ["note"]}, ["id", "mail", "email"], []),
        ({"column_mask_hash": ["mail"]}, ["id", "mail", "email", "note"], ["mail"]),
        ({"column_mask_hash": ["mail"], "rename_columns": {"mail": "email"}}, None, ["mail", "email"]),
        ({"column_mask_hash": ["email"], "rename_columns": {"mail": "m", "m": "email"}}, None, ["mail", "email"]),
        ({"exclude_columns": ["mail"], "rename_columns": {"mail": "email"}}, ["id", "note"], []),
        ({"include_columns": ["email"], "rename_columns": {"mail": "email"}}, ["mail", "email"], []),
    ],
)
def test_columns_stay_left_out_and_masked_when_they_are_renamed(said, wanted, masked):
    table = TableSettings.model_validate({"source_schema": "a", "source_table": "b", **said})
    names = ["id", "mail", "email", "note"]
    assert [name for name in names if table.wants_column(name)] == (wanted or names)
    assert [name for name in names if table.masks_column(name)] == masked


def test_the_salt_is_shown_nowhere():
    settings = Settings.from_mapping({"column_mask_salt": "pepper"})
    assert "pepper" not in repr(settings)
    assert "pepper" not in str(settings)
    with pytest.raises(ConfigError, match="column_mask_salt: must be text") as caught:
        Settings.from_mapping({"column_mask_salt": 31337})
    assert "31337" not in str(caught.value)


def test_files_follow_naturally_and_gaps_stop_a_run_unless_told_otherwise():
    assert Settings().file_order == "natural"
    assert Settings().allow_gaps is False


def test_gaps_can_be_allowed_afterwards(write):
    settings = make_settings(write(FULL))
    allowing = settings.allowing_gaps()
    assert (settings.allow_gaps, settings.accept_changed_tables) == (False, False)
    assert (allowing.allow_gaps, allowing.accept_changed_tables) == (True, False)
    assert allowing.explicit == settings.explicit
    assert allowing.accepting_changed_tables().allow_gaps


@pytest.mark.parametrize(
    ("origins", "wanted"),
    [
        ({}, [None, "node_a", "node_b"]),
        ({"origin_exclude_list": ["node_b"]}, [None, "node_a"]),
        ({"origin_exclude_list": ["none"]}, ["node_a", "node_b"]),
        ({"origin_exclude_list": ["none", "node_a"]}, ["node_b"]),
        ({"origin_include_list": ["node_a"]}, ["node_a"]),
        ({"origin_include_list": ["none"]}, [None]),
        ({"origin_include_list": ["None", "node_a"]}, [None, "node_a"]),
    ],
)
def test_changes_are_wanted_by_their_origin(origins, wanted):
    settings = Settings.from_mapping(origins)
    assert [origin for origin in (None, "node_a", "node_b") if settings.origins.wants(origin)] == wanted


def test_the_word_for_no_origin_is_never_an_origins_name():
    assert not Settings.from_mapping({"origin_include_list": ["none"]}).origins.wants("none")
    assert Settings.from_mapping({"origin_exclude_list": ["none"]}).origins.wants("none")


def test_settings_travel_to_executors(write):
    settings = make_settings(write(FULL))
    sent = pickle.dumps(settings)
    assert pickle.loads(sent) == settings
    assert len(sent) < 2_600


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("captures: /data", ["line 1, captures: unknown key", "'sources.captures'"]),
        ("\nframin: raw", ["line 2, framin: unknown key", "'framing'"]),
        ("framin:", ["framin: unknown key", "'framing'"]),
        ("pattern: a", ["pattern: unknown key", "'file_pattern'"]),
        ("zzz: 1", ["zzz: unknown key", "The keys here are outputs, soft_deletes"]),
        (
            "objects:\n  - table:\n      source_schema: a\n      source_table: b\n      key: [x]\n",
            ["line 5, objects[0].table.key: unknown key", "'keys'"],
        ),
        ("table_includelist: [a]", ["table_includelist: unknown key", "'table_include_list'"]),
        ("include_columns: [a]", ["include_columns: unknown key", "'objects.table.include_columns'"]),
        ("commit_lns_column: a", ["commit_lns_column: unknown key", "'commit_lsn_column'"]),
    ],
)
def test_an_unknown_key_names_its_place_and_the_nearest_right_one(write, text, parts):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        make_settings(path)
    for part in [str(path), *parts]:
        assert part in str(caught.value)


TABLE = "objects: [{{table: {{source_schema: a, source_table: b, {}}}}}]"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("ledger_keep_days: four", "ledger_keep_days: must be a whole number, not 'four'"),
        ("ledger_keep_days: true", "ledger_keep_days: must be a whole number, not True"),
        ("ledger_keep_days: 0", "ledger_keep_days: must be greater than or equal to 1, not 0"),
        ("framing: rwa", "framing: must be 'auto', 'raw'"),
        ("file_order: time", "file_order: must be 'natural', 'path' or 'modified', not 'time'"),
        (
            "origin_include_list: [a]\norigin_exclude_list: [b]",
            "may have origin_include_list or origin_exclude_list, not both",
        ),
        ("origin_include_list: []", "origin_include_list: must not be empty"),
        ("origin_exclude_list: [a, a]", "origin_exclude_list: must name each origin once"),
        ("origin_include_list: [any]", "any is no origin's name: leave the list out"),
        ("origin_include_list: node_a", "origin_include_list: must be a list"),
        ("infer_renames: 1", "infer_renames: must be true or false"),
        ("objects: 3", "objects: must be a list"),
        ("source: ''", "source: must not be empty"),
        ("objects: [{table: {source_schema: a}}]", "objects[0].table.source_table: is missing"),
        ("objects: [{table: {source_schema: a, source_table: no}}]", "Put the name in quotes"),
        ("objects: [{table: {source_schema: a, source_table: b, keys: []}}]", "keys: must not be empty"),
        (
            "objects: [{table: {source_schema: a, source_table: b, keys: [x, x]}}]",
            "must name each column once",
        ),
        (
            "objects: [{table: &t {source_schema: a, source_table: b}}, {table: *t}]",
            "must name each table once, and a.b",
        ),
        ("table_include_list: [a]\ntable_exclude_list: [b]", "table_include_list or table_exclude_list, not both"),
        ("table_include_list: [a, 'b(']", "table_include_list: 'b(' is not a regular expression: missing )"),
        ("table_exclude_list: 'a,b['", "table_exclude_list: 'b[' is not a regular expression"),
        ("table_include_list: []", "table_include_list: must not be empty"),
        ("table_include_list: ' , '", "table_include_list: must not be empty"),
        (
            "table_include_list: [x.*]\nobjects: [{table: {source_schema: a, source_table: b}}]",
            "configuration: a.b stands under objects, but table_include_list leaves it out",
        ),
        ("skipped_operations: [x]", "skipped_operations[0]: must be 'c', 'u', 'd' or 't', not 'x'"),
        ("skipped_operations: [t, t]", "must name each operation once"),
        ("skipped_operations: [none, t]", "none stands alone"),
        ("skipped_operations: 3", "skipped_operations: must be a list"),
        ("on_recreate: drop", "on_recreate: must be 'replace', 'keep' or 'stop', not 'drop'"),
        ("soft_deletes: yes please", "soft_deletes: must be true or false"),
        ("commit_ts_column: __COMMIT_LSN", "two of the metadata columns are called __commit_lsn"),
        ("commit_lsn_column: x\nrescued_data_column: X", "two of the metadata columns are called x"),
        ("commit_lsn_column: __deleted", "two of the metadata columns are called __deleted"),
        ("rescued_data_column: __start_at", "two of the metadata columns are called __start_at"),
        ("commit_ts_column: __source", "two of the metadata columns are called __source"),
        ("commit_lsn_column: null\nrescued_data_column: __commit_lsn", "two of the metadata columns are called"),
        ("commit_ts_column: _Change_Type", "_Change_Type is a name that Delta keeps"),
        ("commit_ts_column: ''", "commit_ts_column: must not be empty"),
        ("column_mask_salt: ''", "column_mask_salt: must not be empty"),
        ("source: a\nsource: b", "line 2, source: the key stands there twice"),
        (TABLE.format("keys: [a], keys: [a]"), "keys: the key stands there twice"),
        ("[1]", "not a mapping"),
        ("source: [", "not YAML"),
        ("source: 2024-99-99", "not YAML"),
        ("source: &x [*x]", "an alias stands inside"),
        ("source: !!python/object/apply:os.getcwd []", "not YAML"),
        ("decimal_handling_mode: exact", "decimal_handling_mode: must be 'precise', 'string' or 'double', not 'exact'"),
        ("source_encoding: LATIN11", "source_encoding: 'LATIN11' is no encoding of PostgreSQL's. The nearest"),
        ("source_encoding: SQL_ASCII", "Name the encoding that the text really has"),
        (TABLE.format("type_overrides: {c: numric}"), "table.type_overrides.c: 'numric' is no type"),
        (TABLE.format("type_overrides: {c: 'numeric(99,2)'}"), "table.type_overrides.c: 'numeric(99,2)' is not what"),
        (TABLE.format("type_overrides: {c: 5}"), "table.type_overrides.c: must be text"),
        (TABLE.format("type_overrides: {}"), "table.type_overrides: must not be empty"),
        (TABLE.format("type_overrides: [c]"), "table.type_overrides: must be a mapping"),
        (TABLE.format("type_override: {c: text}"), "The nearest key is 'type_overrides'"),
        (TABLE.format("type_overrides: {c: text}, exclude_columns: [c]"), "'c' is in type_overrides, but in"),
    ],
)
def test_a_wrong_value_names_its_place_and_what_was_expected(write, text, part):
    with pytest.raises(ConfigError) as caught:
        make_settings(write(text))
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("include_columns: [a], exclude_columns: [b]", "may have include_columns or exclude_columns, not both"),
        ("include_columns: [a], keys: [b]", "'b' is in keys, but not in include_columns"),
        ("exclude_columns: [b], keys: [b]", "'b' is in keys, but in exclude_columns as well"),
        ("exclude_columns: [b], column_mask_hash: [b]", "'b' is in column_mask_hash, but in exclude_columns as well"),
        ("include_columns: [a, a]", "include_columns: must name each column once"),
        ("rename_columns: {a: a}", "rename_columns: 'a' is renamed to itself"),
        ("rename_columns: {a: c, b: c}", "rename_columns: two columns cannot be renamed to one"),
        ("rename_columns: [a]", "rename_columns: must be a mapping of names to names"),
        ("rename_columns: {a: 1}", "rename_columns.a: must be text, not 1"),
        ("rename_columns: {}", "rename_columns: must not be empty"),
        ("column_mask_hash: [b]", "a.t has a column_mask_hash, which needs a column_mask_salt"),
        ("scd_type: 3", "scd_type: must be 1 or 2, not 3"),
        ("scd_type: true", "scd_type: must be 1 or 2"),
        ("scd_type: 2, outputs: [mirror, history]", "a.t has scd_type 2, a history in place of its mirror"),
        ("destination_table: raw.orders", "is the table's name alone; its schema is destination_schema"),
        ("destination_catalog: main", "destination_catalog: unknown key"),
        ("on_type_change: no", "on_type_change: must be 'rewrite' or 'stop'"),
    ],
)
def test_what_is_said_of_a_table_has_to_agree(write, said, part):
    with pytest.raises(ConfigError) as caught:
        make_settings(write(f"objects: [{{table: {{source_schema: a, source_table: t, {said}}}}}]"))
    assert part in str(caught.value)


def test_all_problems_are_named_at_once(write):
    with pytest.raises(ConfigError) as caught:
        make_settings(write("infer_renames: x\nledger_keep_days: 0\n"))
    assert "infer_renames" in str(caught.value)
    assert "ledger_keep_days" in str(caught.value)


def test_a_missing_file_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="no such file") as caught:
        make_settings(tmp_path / "none.yaml")
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_text_is_a_configuration_error(tmp_path):
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        make_settings(path)


def test_settings_can_be_given_in_every_form(write):
    path = write(FULL)
    settings = make_settings(path)
    assert make_settings(None) == Settings()
    assert make_settings(settings) is settings
    assert make_settings(str(path)) == settings
    assert make_settings({"ledger_keep_days": 2}) == Settings(ledger_keep_days=2)
    with pytest.raises(ConfigError, match="nearest key is 'ledger_keep_days'"):
        make_settings({"ledger_keep_day": 2})


def test_settings_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Settings().infer_renames = False  # type: ignore[misc]


TYPES = """
decimal_handling_mode: double
source_encoding: Latin-1
objects:
  - table:
      source_schema: public
      source_table: orders
      rename_columns: {cost: price, price: amount}
      type_overrides: {amount: "numeric(20,4)", number: bigint}
  - table: {source_schema: public, source_table: customers}
"""


def test_a_tables_type_options_are_the_mode_and_its_overrides(write):
    settings = make_settings(write(TYPES))
    orders = settings.type_options("public", "orders")
    assert orders.decimal_handling_mode == "double"
    assert orders.override_of("number") == "bigint"
    assert orders.override_of("id") is None
    common = TypeOptions("double")
    assert settings.type_options("public", "customers") == common
    assert settings.type_options("public", "other") == common
    assert Settings().type_options("public", "orders") == TypeOptions()


def test_an_override_holds_under_all_names_of_its_column(write):
    orders = make_settings(write(TYPES)).type_options("public", "orders")
    assert {orders.override_of(name) for name in ("cost", "price", "amount")} == {"numeric(20,4)"}


def test_the_sources_encoding_is_known_by_postgresqls_names(write):
    assert Settings().source_codec == "utf-8"
    assert make_settings(write(TYPES)).source_codec == "iso8859-1"


# What a table becomes.


def test_a_table_becomes_its_mirror_alone_unless_more_is_said():
    said = {"source_schema": "s", "source_table": "t", "destination_table": "d"}
    settings = Settings.from_mapping({"objects": [{"table": {**said, "outputs": ["changelog", "mirror"]}}]})
    assert settings.outputs_of("s", "other") == (Output.MIRROR,)
    assert settings.outputs_of("s", "t") == (Output.MIRROR, Output.CHANGELOG)
    (item,) = settings.objects
    assert item.table.name_of(Output.MIRROR) == "d"
    assert item.table.name_of(Output.CHANGELOG) == "d__changes"


def test_scd_type_2_is_a_history_in_the_mirrors_place():
    said = {"source_schema": "s", "source_table": "t", "destination_table": "d", "scd_type": "SCD_TYPE_2"}
    settings = Settings.from_mapping({"objects": [{"table": said}], "outputs": ["mirror", "changelog"]})
    assert settings.outputs_of("s", "t") == (Output.HISTORY, Output.CHANGELOG)
    (item,) = settings.objects
    assert item.table.name_of(Output.HISTORY) == "d"
    beside = Settings.from_mapping({"objects": [{"table": said | {"scd_type": 1}}], "outputs": ["mirror", "history"]})
    assert beside.outputs_of("s", "t") == (Output.MIRROR, Output.HISTORY)
    assert beside.objects[0].table.name_of(Output.HISTORY) == "d__history"


ALL_TABLES = """
column_mask_salt: pepper
soft_deletes: true
outputs: [mirror, changelog]
on_drop_column: drop
destination_schema: all
track_history_column_list: [a]
table_properties: {desk: sales, team: one}
cluster_by: [day]
"""


@pytest.mark.parametrize("nothing", ["null", "{}"])
def test_what_is_empty_under_a_table_leaves_what_is_said_of_all_tables(write, nothing):
    keys = ["table_properties"]
    if nothing == "null":
        keys += ["soft_deletes", "outputs", "on_drop_column", "destination_schema", "track_history_column_list"]
        keys += ["track_history_except_column_list", "cluster_by", "on_recreate", "column_mask_hash", "keys"]
    said = ", ".join(f"{key}: {nothing}" for key in keys)
    settings = make_settings(write(ALL_TABLES + f"objects: [{{table: {{source_schema: s, source_table: t, {said}}}}}]"))
    mine, other = settings.options_of("s", "t"), settings.options_of("s", "other")
    assert mine.model_copy(update={"source_table": "other"}) == other
    assert (other.soft_deletes, other.outputs, other.on_drop_column) == (True, ("mirror", "changelog"), "drop")
    assert (other.destination, other.track_history_column_list) == (("all", "other"), ("a",))
    assert (other.table_properties, other.cluster_by) == ({"desk": "sales", "team": "one"}, ("day",))
    assert "on_recreate" not in mine.explicit


def test_what_is_said_of_a_table_stands_in_place_of_what_is_said_of_all(write):
    said = "soft_deletes: false, cluster_by: [], track_history_except_column_list: [b], table_properties: {team: two}"
    settings = make_settings(write(ALL_TABLES + f"objects: [{{table: {{source_schema: s, source_table: t, {said}}}}}]"))
    mine = settings.options_of("s", "t")
    assert (mine.soft_deletes, mine.cluster_by) == (False, ())
    assert mine.table_properties == {"desk": "sales", "team": "two"}
    # One of the two lists stands in place of both.
    assert (mine.track_history_column_list, mine.track_history_except_column_list) == (None, ("b",))


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"outputs": ["histories"]}, "outputs"),
        ({"outputs": []}, "outputs: must not be empty"),
        ({"outputs": "mirror, mirror"}, "outputs: must name each output once"),
    ],
)
def test_wrong_outputs_are_named(values, part):
    with pytest.raises(ConfigError, match=re.escape(part)):
        Settings.from_mapping(values)


def test_a_call_wants_a_part_of_what_the_configuration_does():
    settings = Settings.from_mapping(
        {"table_exclude_list": [r"s\.b"], "outputs": ["mirror", "changelog"], "column_mask_salt": "s"}
    )
    narrowed = settings.narrowed(Narrowed(r"s\.[ab]", frozenset({9}), (Output.CHANGELOG,), 16))
    for given in (narrowed, pickle.loads(pickle.dumps(narrowed)), narrowed.allowing_gaps()):
        assert [name for name in "abc" if given.wants_table("s", name)] == ["a"]
        assert [oid for oid in (8, 9) if given.wants_relation(oid)] == [9]
        assert given.outputs_of("s", "a") == (Output.CHANGELOG,)
        assert given.from_lsn == 16
    assert [name for name in "abc" if settings.wants_table("s", name)] == ["a", "c"]
    assert (settings.wants_relation(8), settings.from_lsn) == (True, -1)
    assert settings.outputs_of("s", "a") == (Output.MIRROR, Output.CHANGELOG)


def test_outputs_may_be_others_for_a_call():
    table = {"source_schema": "s", "source_table": "t", "outputs": ["mirror"]}
    settings = Settings.from_mapping({"objects": [{"table": table}]})
    assert settings.makes_whole
    given = settings.with_outputs((Output.CHANGELOG,))
    assert (given.outputs_of("s", "t"), given.outputs_of("s", "u")) == ((Output.CHANGELOG,), (Output.CHANGELOG,))
    assert [one for one in Output if settings.with_outputs((one,)).makes_whole] == [Output.MIRROR, Output.HISTORY]


@pytest.mark.parametrize("text", ["(", "*", "a{99999999999}"])
def test_what_names_tables_has_to_be_an_expression(text):
    with pytest.raises(ConfigError, match=r"--table: .* is not a regular expression"):
        tables_named(text)

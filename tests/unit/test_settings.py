import pickle
from pathlib import Path

import pytest

from wal2delta.errors import ConfigError
from wal2delta.settings import Settings, load_settings, make_settings

FULL = """
source: shop
captures: {framing: recvlogical, pattern: "*.bin", recursive: false, order: modified, allow_gaps: true}
origins: {exclude: [node_b]}
objects:
  - table: {source_schema: public, source_table: orders, keys: [id, line]}
  - table: {source_schema: public, source_table: customers}
tables_at_once: 2
bucket_bytes: 1048576
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "wal2delta.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_key_is_read(write):
    settings = load_settings(write(FULL))
    assert settings.source == "shop"
    assert settings.captures.framing == "recvlogical"
    assert settings.captures.pattern == "*.bin"
    assert settings.captures.recursive is False
    assert settings.captures.order == "modified"
    assert settings.captures.allow_gaps is True
    assert settings.origins.exclude == ("node_b",)
    assert settings.tables_at_once == 2
    assert settings.bucket_bytes == 1 << 20


def test_keys_are_those_of_the_table_that_is_named(write):
    settings = load_settings(write(FULL))
    assert settings.keys_of("public", "orders") == ("id", "line")
    assert settings.keys_of("public", "customers") is None
    assert settings.keys_of("other", "orders") is None


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "captures:\norigins:\nobjects:\n"])
def test_an_empty_configuration_is_the_defaults(write, text):
    assert load_settings(write(text)) == Settings() == load_settings(None)


def test_the_shipped_example_is_valid_and_says_the_defaults():
    example = Path(__file__).parents[2] / "conf" / "wal2delta.yaml"
    assert load_settings(example) == Settings()


def test_files_follow_naturally_and_gaps_stop_a_run_unless_told_otherwise():
    assert Settings().captures.order == "natural"
    assert Settings().captures.allow_gaps is False


def test_gaps_can_be_allowed_afterwards(write):
    settings = load_settings(write(FULL.replace(", allow_gaps: true", "")))
    assert settings.captures.allow_gaps is False
    assert settings.allowing_gaps() == load_settings(write(FULL))


@pytest.mark.parametrize(
    ("origins", "wanted"),
    [
        ({}, [None, "node_a", "node_b"]),
        ({"exclude": ["node_b"]}, [None, "node_a"]),
        ({"exclude": ["none"]}, ["node_a", "node_b"]),
        ({"exclude": ["none", "node_a"]}, ["node_b"]),
        ({"include": ["node_a"]}, ["node_a"]),
        ({"include": ["none"]}, [None]),
        ({"include": ["None", "node_a"]}, [None, "node_a"]),
    ],
)
def test_changes_are_wanted_by_their_origin(origins, wanted):
    settings = Settings.from_mapping({"origins": origins})
    assert [origin for origin in (None, "node_a", "node_b") if settings.wants_origin(origin)] == wanted


def test_the_word_for_no_origin_is_never_an_origins_name():
    assert not Settings.from_mapping({"origins": {"include": ["none"]}}).wants_origin("none")
    assert Settings.from_mapping({"origins": {"exclude": ["none"]}}).wants_origin("none")


def test_settings_travel_to_executors(write):
    settings = load_settings(write(FULL))
    sent = pickle.dumps(settings)
    assert pickle.loads(sent) == settings
    assert len(sent) < 2_000


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("capture: {}", ["line 1, capture: unknown key", "'captures'"]),
        ("\ncaptures: {framin: raw}", ["line 2, captures.framin: unknown key", "'framing'"]),
        ("allow_gaps: true", ["allow_gaps: unknown key", "'captures.allow_gaps'"]),
        ("origins: {included: [a]}", ["origins.included: unknown key", "'include'"]),
        ("framing: raw", ["framing: unknown key", "'captures.framing'"]),
        ("zzz: 1", ["zzz: unknown key", "The keys here are source, captures"]),
        (
            "objects:\n  - table:\n      source_schema: a\n      source_table: b\n      key: [x]\n",
            ["line 5, objects[0].table.key: unknown key", "'keys'"],
        ),
    ],
)
def test_an_unknown_key_names_its_place_and_the_nearest_right_one(write, text, parts):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    for part in [str(path), *parts]:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("tables_at_once: four", "tables_at_once: must be a whole number, not 'four'"),
        ("tables_at_once: true", "tables_at_once: must be a whole number, not True"),
        ("tables_at_once: 0", "tables_at_once: must be greater than or equal to 1, not 0"),
        ("captures: {framing: rwa}", "captures.framing: must be 'auto', 'raw'"),
        ("captures: {order: time}", "captures.order: must be 'natural', 'path' or 'modified', not 'time'"),
        ("captures: {allow_gaps: 1}", "captures.allow_gaps: must be true or false"),
        ("origins: {include: [a], exclude: [b]}", "line 1, origins: may have include or exclude, not both"),
        ("origins: {include: []}", "origins.include: must not be empty"),
        ("origins: {exclude: [a, a]}", "origins.exclude: must name each origin once"),
        ("origins: {include: [any]}", "any is no origin's name: leave origins out"),
        ("origins: {include: node_a}", "origins.include: must be a list"),
        ("captures: {recursive: 1}", "captures.recursive: must be true or false"),
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
        ("source: a\nsource: b", "line 2, source: the key stands there twice"),
        ("captures: {framing: raw, framing: raw}", "framing: the key stands there twice"),
        ("[1]", "not a mapping"),
        ("source: [", "not YAML"),
        ("source: 2024-99-99", "not YAML"),
        ("source: &x [*x]", "an alias stands inside"),
        ("source: !!python/object/apply:os.getcwd []", "not YAML"),
    ],
)
def test_a_wrong_value_names_its_place_and_what_was_expected(write, text, part):
    with pytest.raises(ConfigError) as caught:
        load_settings(write(text))
    assert part in str(caught.value)


def test_all_problems_are_named_at_once(write):
    with pytest.raises(ConfigError) as caught:
        load_settings(write("tables_at_once: x\nbucket_bytes: 1\n"))
    assert "tables_at_once" in str(caught.value)
    assert "bucket_bytes" in str(caught.value)


def test_a_missing_file_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="no such file") as caught:
        load_settings(tmp_path / "none.yaml")
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_text_is_a_configuration_error(tmp_path):
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_settings(path)


def test_settings_can_be_given_in_every_form(write):
    path = write(FULL)
    settings = load_settings(path)
    assert make_settings(None) == Settings()
    assert make_settings(settings) is settings
    assert make_settings(str(path)) == settings
    assert make_settings({"tables_at_once": 2}) == Settings(tables_at_once=2)
    with pytest.raises(ConfigError, match="nearest key is 'tables_at_once'"):
        make_settings({"table_at_once": 2})


def test_settings_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Settings().tables_at_once = 3  # type: ignore[misc]

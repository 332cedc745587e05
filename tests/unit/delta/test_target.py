import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walreplay.delta.target import Target, encode_for_catalog, encode_name, quote
from walreplay.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders", "orders"),
        ("order items", "order items"),
        ("Größe 北京", "Größe 北京"),
        ("a/b", "a%2Fb"),
        ("a\\b", "a%5Cb"),
        ("100%", "100%25"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("_private", "%5Fprivate"),
        ("tab\there", "tab%09here"),
        ("a%2Fb", "a%252Fb"),
    ],
)
def test_a_name_becomes_one_visible_folder(name, folder):
    assert encode_name(name) == folder


def test_no_two_names_become_one_folder():
    names = ["a/b", "a%2Fb", "a%252Fb", "_a", "%5Fa", ".a", "%2Ea", "a\\b", "a%5Cb"]
    assert len({encode_name(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("orders", "orders"),
        ("OrderItems_2", "OrderItems_2"),
        ("_private", "_private"),
        ("order-items", "order__x2d__items"),
        ("a.b c", "a__x2e__b__x20__c"),
        ("größe", "gr__xf6_df__e"),
        ("it's `x`", "it__x27__s__x20_60__x__x60__"),
        ("a__x20__b", "a__x5f___x20__b"),
        ("a__X20__b", "a__x5f___X20__b"),
        ("_walreplay", "__x5f__walreplay"),
        ("_WalReplay_runs", "__x5f__WalReplay_runs"),
    ],
)
def test_a_name_becomes_one_that_every_catalog_takes(name, table):
    assert encode_for_catalog(name) == table


@given(st.text("_xX2f0 ö/", min_size=1, max_size=9))
def test_a_catalogs_name_can_be_read_back(name):
    encoded = encode_for_catalog(name)
    assert re.fullmatch("[A-Za-z0-9_]+", encoded)

    def read(found: re.Match[str]) -> str:
        return "".join(chr(int(code, 16)) for code in found[1].split("_"))

    assert re.sub("__x([0-9a-f]+(?:_[0-9a-f]+)*)__", read, encoded) == name


def test_the_longest_names_stay_within_what_catalogs_take():
    assert max(len(encode_for_catalog(char * (63 // len(char.encode())))) for char in "/é北🙂") <= 255


def test_a_source_cannot_write_to_the_ledger():
    for text in ("main", "main.raw"):
        target = Target.parse(text)
        ledger = target.ledger("runs").text.casefold()
        for schema, table in (("_walreplay", "runs"), ("_WALREPLAY", "runs"), ("x", "_walreplay_runs")):
            assert target.table(schema, table).text.casefold() != ledger


def test_a_backtick_in_a_name_does_not_end_it():
    assert quote("a`; DROP TABLE b; --") == "`a``; DROP TABLE b; --`"


@pytest.mark.parametrize(
    ("text", "location", "ledger"),
    [
        ("s3a://bucket/mirror/", "s3a://bucket/mirror/shop/orders", "s3a://bucket/mirror/_walreplay/runs"),
        ("/data/mirror", "/data/mirror/shop/orders", "/data/mirror/_walreplay/runs"),
        ("main", "main.shop.orders", "main._walreplay.runs"),
        ("main.raw", "main.raw.orders", "main.raw._walreplay_runs"),
    ],
)
def test_a_target_gives_tables_and_ledger_their_places(text, location, ledger):
    target = Target.parse(text)
    assert target.table("shop", "orders").text == location
    assert target.ledger("runs").text == ledger


def test_a_relative_folder_is_made_absolute():
    assert Target.parse("build/mirror").text == str(Path.cwd() / "build" / "mirror")


def test_a_target_that_is_neither_folder_nor_catalog_is_refused():
    with pytest.raises(ConfigError, match="is no target") as caught:
        Target.parse("a.b.c")
    assert caught.value.exit_code == 2


def test_an_empty_namespace_is_pg_catalog():
    assert Target.parse("main").table("", "pg_class").text == "main.pg_catalog.pg_class"


@pytest.mark.parametrize("text", ["/data/mirror", "s3a://bucket/mirror", "main", "main.raw"])
@pytest.mark.parametrize(
    ("namespace", "name"), [("shop", "orders"), ("", "a.b"), ("_a_", "__x__b_"), ("a_x__b", "_x2e__"), ("Ü", "x__")]
)
@pytest.mark.parametrize("source", [None, "eu", "EU-2.x"])
def test_a_table_of_a_side_target_stands_for_one_of_the_target(text, namespace, name, source):
    target = Target.parse(text).of_source(source)
    side = target.side("0f3a")
    table = side.table(namespace, name)
    assert target.of_side(side, table) == target.table(namespace, name)
    # It lies with the ledger, beside all that the ledger has, and so does its own ledger.
    sample = target.ledger("rebuild")
    for one in (table, side.ledger("state"), side.set_aside(9)):
        assert one.text.startswith(sample.text)
        assert one.text != target.ledger("state").text

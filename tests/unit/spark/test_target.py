from pathlib import Path

import pytest

from wal2delta.errors import ConfigError
from wal2delta.spark.target import Target, encode_name, quote


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


def test_a_backtick_in_a_name_does_not_end_it():
    assert quote("a`; DROP TABLE b; --") == "`a``; DROP TABLE b; --`"


@pytest.mark.parametrize(
    ("text", "location", "ledger"),
    [
        ("s3a://bucket/mirror/", "s3a://bucket/mirror/shop/orders", "s3a://bucket/mirror/_wal2delta/runs"),
        ("/data/mirror", "/data/mirror/shop/orders", "/data/mirror/_wal2delta/runs"),
        ("main", "main.shop.orders", "main._wal2delta.runs"),
        ("main.raw", "main.raw.orders", "main.raw._wal2delta_runs"),
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

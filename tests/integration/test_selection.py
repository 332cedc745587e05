"""What the configuration chooses, renames and hides of a real server's tables, in one run and in one for each file."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import walreplay
from support.extent import further
from support.fault_cases import FAULTS
from support.postgres import chosen_versions, running_server
from support.readers import collect, read
from support.scenarios import (
    FILE_BY_FILE,
    ONE_RUN,
    Applied,
    Recorded,
    apply_both,
    apply_file_by_file,
    apply_in_one_run,
    files_of_parts,
)
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.truth import mirror_tables, read_mirror
from walreplay.errors import ConfigError, WalReplayError
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration]

_WAYS = [ONE_RUN, FILE_BY_FILE]
_SALT = "a long random text"

_TABLES = (
    "CREATE SCHEMA shop",
    "CREATE TABLE shop.plain (id int PRIMARY KEY, v text)",
    'CREATE TABLE shop."TMP_load" (id int PRIMARY KEY)',
    "CREATE TABLE shop.tmp_other (id int PRIMARY KEY)",
    "CREATE TABLE shop.included (secret text, id int PRIMARY KEY, a text)",
    "CREATE TABLE shop.excluded (id int PRIMARY KEY, photo bytea, a text)",
    "CREATE TABLE shop.masked (id int PRIMARY KEY, email text, born date, v text)",
    "CREATE TABLE shop.masked_key (email text PRIMARY KEY, v text)",
    "CREATE TABLE shop.customers (id int PRIMARY KEY, v text)",
    "CREATE TABLE shop.by_hand (id int, v text)",
    "ALTER TABLE shop.by_hand REPLICA IDENTITY FULL",
    "CREATE TABLE shop.soft (id int PRIMARY KEY, v text)",
    "CREATE TABLE shop.soft_emptied (id int PRIMARY KEY, v text)",
    "CREATE TABLE shop.archive (id int PRIMARY KEY, v text, d date)",
    "CREATE PUBLICATION everything FOR ALL TABLES",
)
_NAMES = ("plain", "included", "excluded", "masked", "masked_key", "customers", "by_hand", "soft", "soft_emptied")

_ROWS = (
    *(
        f"INSERT INTO shop.{name} SELECT i, 'v' || i FROM generate_series(1, 4) i"
        for name in ("plain", "customers", "by_hand", "soft", "soft_emptied", "archive")
    ),
    'INSERT INTO shop."TMP_load" VALUES (1)',
    "INSERT INTO shop.tmp_other VALUES (1)",
    "INSERT INTO shop.included SELECT 'secret', i, 'a' || i FROM generate_series(1, 3) i",
    r"INSERT INTO shop.excluded SELECT i, '\x00', 'a' || i FROM generate_series(1, 3) i",
    """INSERT INTO shop.masked VALUES (1, 'a@example.org', '2000-01-31', 'v'), (2, NULL, 'infinity', 'v'),
        (3, '', NULL, 'v')""",
    "INSERT INTO shop.masked_key VALUES ('a@example.org', 'v'), ('b@example.org', 'v'), ('c@example.org', 'v')",
)

_CHANGES = (
    "UPDATE shop.plain SET v = 'changed' WHERE id = 1",
    "ALTER TABLE shop.included ADD more_secret text",
    "UPDATE shop.included SET more_secret = 'x', a = 'changed', secret = 'y' WHERE id = 1",
    "ALTER TABLE shop.excluded ADD extra int",
    "UPDATE shop.excluded SET extra = 1 WHERE id = 1",
    "ALTER TABLE shop.masked RENAME email TO mail",
    "UPDATE shop.masked SET v = 'changed' WHERE id = 1",
    "UPDATE shop.masked SET mail = 'z@example.org' WHERE id = 3",
    "UPDATE shop.masked_key SET v = 'changed' WHERE email = 'a@example.org'",
    "UPDATE shop.masked_key SET email = 'd@example.org' WHERE email = 'b@example.org'",
    "DELETE FROM shop.masked_key WHERE email = 'c@example.org'",
    "UPDATE shop.customers SET v = 'changed' WHERE id = 1",
    "DELETE FROM shop.customers WHERE id = 2",
    "UPDATE shop.by_hand SET id = 10 WHERE id = 1",
    "DELETE FROM shop.by_hand WHERE id = 2",
    "DELETE FROM shop.soft WHERE id IN (1, 2)",
    "INSERT INTO shop.soft VALUES (2, 'back')",
    "UPDATE shop.soft SET id = 30 WHERE id = 3",
    "TRUNCATE shop.soft_emptied",
    "INSERT INTO shop.soft_emptied VALUES (1, 'back')",
    "DELETE FROM shop.archive WHERE id = 1",
    "UPDATE shop.archive SET v = 'changed', d = 'infinity' WHERE id = 2",
    "TRUNCATE shop.archive",
    "INSERT INTO shop.archive VALUES (5, 'v5')",
)

_OBJECTS: Mapping[str, Mapping[str, Any]] = {
    "included": {"include_columns": ["id", "a"]},
    "excluded": {"exclude_columns": ["photo"]},
    "masked": {"column_mask_hash": ["email", "born"], "rename_columns": {"email": "mail"}},
    "masked_key": {"column_mask_hash": ["email"]},
    "customers": {"destination_schema": "crm", "destination_table": "customer"},
    "by_hand": {"keys": ["id"]},
    "soft": {"soft_deletes": True},
    "soft_emptied": {"soft_deletes": True},
}

_CONFIG: Mapping[str, Any] = {
    "table_exclude_list": [r"shop\.tmp_.*", r".*\.archive"],
    "column_mask_salt": _SALT,
    "objects": [{"table": {"source_schema": "shop", "source_table": name, **it}} for name, it in _OBJECTS.items()],
}


@pytest.fixture(scope="module", params=chosen_versions())
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A shop's tables and their changes, recorded once."""
    with running_server(request.param) as server:
        server.execute(*_TABLES)
        files = files_of_parts(server, tmp_path_factory.mktemp("recorded"), _ROWS, _CHANGES)
        return Recorded(files, server.source_tables("shop"))


@pytest.fixture(scope="module")
def applied(spark: SparkSession, recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    """The same, applied as the configuration wants it."""
    return apply_both(spark, recorded.files, tmp_path_factory.mktemp("applied"), recorded.sources, _CONFIG)


def _without(applied: Applied, table: str, *columns: str) -> Applied:
    """Leave columns out of what the source holds."""
    source = applied.sources[table]
    stay = [number for number, column in enumerate(source.columns) if column.name not in columns]
    shown = replace(
        source,
        columns=tuple(source.columns[number] for number in stay),
        rows=[[row[number] for number in stay] for row in source.rows],
    )
    return replace(applied, sources={**applied.sources, table: shown})


def _mask(text: str) -> str:
    return hashlib.sha256((_SALT + text).encode()).hexdigest()


def test_tables_of_the_exclude_list_are_not_mirrored_whatever_their_case(applied: Applied) -> None:
    expected = {f"shop.{name}" for name in _NAMES} - {"shop.customers"} | {"crm.customer"}
    for way in _WAYS:
        assert mirror_tables(applied.targets[way]).keys() == expected


_MIRRORED: Mapping[str, tuple[str, Sequence[str], str]] = {
    "a table of which nothing is said is mirrored as it is": ("shop.plain", (), ""),
    "included columns are the only ones also when the source adds others": (
        "shop.included",
        ("secret", "more_secret"),
        "",
    ),
    "excluded columns stay out and added ones come": ("shop.excluded", ("photo",), ""),
    "a table is written to its destination": ("shop.customers", (), "crm.customer"),
    "a key given by hand finds rows under identity full": ("shop.by_hand", (), ""),
}
"""What holds where a table is, but for some columns, what the source has, at its own place or another."""


@pytest.mark.parametrize(("name", "without", "at"), _MIRRORED.values(), ids=_MIRRORED)
def test_rows_are_the_sources(
    spark: SparkSession, applied: Applied, name: str, without: Sequence[str], at: str
) -> None:
    _without(applied, name, *without).assert_mirrored(spark, name, at=at)


def test_masked_columns_hold_salted_hashes_under_their_new_name_too(spark: SparkSession, applied: Applied) -> None:
    for way in _WAYS:
        assert applied.rows(spark, way, "shop.masked", "id", "mail", "born", "v", "_rescued_data") == [
            (1, _mask("a@example.org"), _mask("2000-01-31"), "changed", None),
            (2, None, _mask("infinity"), "v", None),
            (3, _mask("z@example.org"), None, "v", None),
        ]


@pytest.mark.full
def test_a_masked_key_still_tells_rows_apart(spark: SparkSession, applied: Applied) -> None:
    for way in _WAYS:
        assert set(applied.rows(spark, way, "shop.masked_key", "email", "v")) == {
            (_mask("a@example.org"), "changed"),
            (_mask("d@example.org"), "v"),
        }


def test_no_file_of_the_target_holds_a_value_that_is_masked_or_left_out(applied: Applied) -> None:
    for way in _WAYS:
        for table in ("shop.masked", "shop.masked_key", "shop.included"):
            files = list(applied.location(way, table).rglob("*.parquet"))
            assert files
            for file in files:
                assert b"example.org" not in file.read_bytes()
                assert b"secret" not in file.read_bytes()


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        # The row that was 3 is 30 now: it is no deleted one.
        ("shop.soft", [(1, "v1", True), (2, "back", False), (30, "v3", False), (4, "v4", False)]),
        # A truncate marks them, also those that come and go within one run.
        ("shop.soft_emptied", [(1, "back", False), (2, "v2", True), (3, "v3", True), (4, "v4", True)]),
    ],
)
def test_softly_deleted_rows_stay_and_come_back(
    spark: SparkSession, applied: Applied, name: str, rows: Sequence[tuple[Any, ...]]
) -> None:
    for way in _WAYS:
        assert applied.rows(spark, way, name, "id", "v", "__deleted") == rows


@pytest.mark.full
def test_softly_deleted_rows_do_not_depend_on_where_runs_end(spark: SparkSession, tmp_path: Path) -> None:
    keyed = relation(1, "t", {"id": INT4, "v": TEXT, "w": TEXT})
    toast = m.TupleData((m.Cell("t", b"2"), m.UNCHANGED_CELL, m.Cell("t", b"two")))
    changes: tuple[tuple[m.AnyMessage, ...], ...] = (
        (keyed, m.Insert(1, row(1, "a", "x")), m.Insert(1, row(2, "b", "x")), m.Insert(1, row(3, "c", "x"))),
        (m.Delete(1, key=row(3, None, None)), m.Update(1, new=toast), m.Insert(1, row(4, "d", "x"))),
        (m.Truncate((1,), 0), m.Insert(1, row(5, "e", "x")), m.Insert(1, row(1, "back", "x"))),
        (
            m.Update(1, new=row(9, "moved", "x"), key=row(5, None, None)),
            m.Insert(1, row(6, "f", "x")),
            m.Truncate((1,), 0),
        ),
        (m.Insert(1, row(6, "again", "x")), m.Insert(1, row(7, "g", "x"))),
    )
    config = {"soft_deletes": True}
    by_file, whole = SmallMirror(spark, tmp_path / "by_file"), SmallMirror(spark, tmp_path / "whole")
    for one in changes:
        by_file.apply(*one, **config)
        whole.write(*one)
    whole.apply(**config)

    def held(mirror: SmallMirror) -> list[tuple[Any, ...]]:
        columns = ("id", "v", "w", "__deleted", "__commit_lsn", "__commit_ts")
        return sorted(map(tuple, collect(mirror.location("t"), *columns)))

    assert held(by_file) == held(whole)
    assert [one[:4] for one in held(whole)] == [
        (1, "back", "x", True),
        (2, "b", "two", True),
        (3, "c", "x", True),
        (4, "d", "x", True),
        (6, "again", "x", False),
        (7, "g", "x", False),
        (9, "moved", "x", True),
    ]
    # What is right is left as it is.
    (made,) = walreplay.rebuild(spark, by_file.captures, by_file.target, r"s\.t", config=config).tables
    assert made.action == "unchanged"


@pytest.mark.full
def test_an_archive_can_ignore_deletes_and_truncates_and_name_its_own_columns(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    config = {
        "table_include_list": r"shop\.archive",
        "skipped_operations": "d, t",
        "commit_lsn_column": "_lsn",
        "commit_ts_column": None,
        "rescued_data_column": "_other",
    }
    target, _ = apply_file_by_file(spark, recorded.files, tmp_path, config)
    frame = read_mirror(spark, target / "shop" / "archive")
    assert frame.columns == ["id", "v", "d", "_lsn", "_other"]
    assert sorted((row.id, row.v, row._other) for row in frame.collect()) == [
        (1, "v1", None),
        (2, "changed", '{"d":"infinity"}'),
        (3, "v3", None),
        (4, "v4", None),
        (5, "v5", None),
    ]
    assert mirror_tables(target).keys() == {"shop.archive"}


def test_what_is_hidden_stays_hidden_when_the_table_is_renamed(spark: SparkSession, tmp_path: Path) -> None:
    def called(name: str) -> m.Relation:
        return relation(1, name, {"id": INT4, "email": TEXT, "v": TEXT})

    def hiding(*names: str) -> dict[str, Any]:
        more = {"source_schema": "s", "destination_table": "people", "column_mask_hash": ["email"]}
        objects = [{"table": {"source_table": name, **more}} for name in names]
        return {"objects": objects, "column_mask_salt": _SALT, "outputs": ["mirror", "history", "changelog"]}

    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(called("people"), m.Insert(1, row(1, "a@x", "one")), **hiding("people"))
    renamed = called("persons"), m.Insert(1, row(2, "b@x", "two"))
    with pytest.raises(ConfigError, match=r"s\.persons: the table was called s\.people before"):
        mirror.apply(*renamed, **hiding("people"))
    # The remedy; and from the archive, in one run.
    mirror.apply(**hiding("people", "persons"))
    whole = walreplay.apply(
        spark, captures=mirror.captures, target=tmp_path / "whole", config=hiding("people", "persons")
    )
    assert whole.warnings == ()
    with pytest.raises(ConfigError, match=r"s\.persons: the table was called s\.people before"):
        walreplay.apply(spark, captures=mirror.captures, target=tmp_path / "other", config=hiding("people"))
    for target in (Path(mirror.target), tmp_path / "whole"):
        found = collect(target / "s" / "people", "id", "email")
        assert sorted(map(tuple, found)) == [
            (number, hashlib.sha256(f"{_SALT}{text}".encode()).hexdigest()) for number, text in ((1, "a@x"), (2, "b@x"))
        ]
        assert not [path for path in target.rglob("*.parquet") if b"@x" in path.read_bytes()]


_RENAMED = FAULTS / "mask_follows_no_rename" / "captures"


@pytest.mark.parametrize("name", further(["mobile", "phone"], but=["mobile"]))
def test_a_mask_follows_an_announced_rename_and_without_announcements_the_run_is_refused(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = {"source_schema": "shop", "source_table": "customers", "column_mask_hash": [name]}
    config = {"column_mask_salt": _SALT, "objects": [{"table": table}], "outputs": ["mirror", "history", "changelog"]}
    with pytest.raises(ConfigError, match=r"shop\.customers: 'phone' may have been renamed to 'mobile'"):
        walreplay.apply(spark, captures=_RENAMED, target=tmp_path / "refused", config=config)
    assert mirror_tables(tmp_path / "refused") == {}
    files = sorted(_RENAMED.iterdir())
    captures = tmp_path / "captures"
    captures.mkdir()
    for runs in ([files[:1], files[1:]], [files]) if name == "phone" else [[files]]:
        target = tmp_path / f"in {len(runs)}"
        for run in runs:
            for file in run:
                shutil.copy(file, captures)
            walreplay.apply(spark, captures=captures, target=target, config={**config, "announcements": "walreplay"})
        shutil.rmtree(captures)
        captures.mkdir()
        for table_name in ("customers", "customers__history", "customers__changes"):
            location = target / "shop" / table_name
            columns = [column for column in read(location).column_names if column in ("phone", "mobile", "__before")]
            found = [value for values in collect(location, *columns) for value in values if value is not None]
            assert len(found) >= 23
            assert all(re.fullmatch("[0-9a-f]{64}", str(value)) for value in found)


def _announced(version: m.Relation, lsn: int, *numbers: int) -> tuple[m.AnyMessage, m.Relation]:
    columns = [
        {"n": number, "name": column.name, "type": column.type_oid}
        for number, column in zip(numbers, version.columns, strict=True)
    ]
    content = {"walreplay": 1, "oid": version.oid, "natts": 9, "columns": columns}
    return m.Message(True, lsn, "walreplay", json.dumps(content).encode()), version


@pytest.mark.parametrize("in_one_run", further([False, True], but=(False,)))
@pytest.mark.parametrize("key", further(["column_mask_hash", "exclude_columns"], but=["column_mask_hash"]))
def test_no_file_has_a_value_of_an_announced_column_that_is_hidden_under_another_name(
    spark: SparkSession, tmp_path: Path, key: str, in_one_run: bool
) -> None:
    def version(*names: str) -> m.Relation:
        return relation(1, "t", dict.fromkeys(("id", *names), TEXT), "f")

    def changes(at: int, *values: str) -> Sequence[m.AnyMessage]:
        first, second = row(f"k{at}", *values), row(f"k{at}", *(f"{value}+" for value in values))
        return m.Insert(1, first), m.Update(1, second, old=first), m.Insert(1, row(f"j{at}", *values))

    mirror = SmallMirror(spark, tmp_path)
    plain = version("phone", "note")
    # Texts that are no numbers are rescued, under each name.
    overrides = dict.fromkeys(("phone", "tel", "mobile"), "bigint")
    said = {"source_schema": "s", "source_table": "t", key: ["phone"]}
    said |= {} if key == "exclude_columns" else {"type_overrides": overrides}
    config = {
        "announcements": "walreplay",
        "column_mask_salt": _SALT,
        "outputs": ["mirror", "history", "changelog"],
        "objects": [{"table": said}],
    }
    for ends_run, sent in (
        (True, (*_announced(plain, 90, 1, 2, 3), *changes(1, "SECRET", "open"))),
        (False, (*_announced(version("tel", "note"), 190, 1, 2, 3), *changes(2, "SECRET", "open"))),
        (True, (*_announced(version("mobile", "note"), 290, 1, 2, 3), *changes(3, "SECRET", "open"))),
        # The ledger alone has the listed name.
        (True, changes(4, "SECRET", "open")),
        # Another column gets it, and the hidden one goes.
        (True, (*_announced(version("note", "phone"), 490, 1, 3, 5), *changes(5, "open", "SECRET"))),
    ):
        mirror.write(*sent)
        if ends_run and not in_one_run:
            mirror.apply(**config)
    mirror.apply(**config)
    assert mirror_tables(mirror.target).keys() == {"s.t", "s.t__history", "s.t__changes"}
    for path in Path(mirror.target).rglob("*.parquet"):
        assert "SECRET" not in str(pq.read_table(path).to_pylist()), path
    location = mirror.location("t")
    assert sum("open" in str(values) for values in collect(location, "note")) == 10
    kept = [name for name in read(location).column_names if not name.startswith("_")]
    assert kept == (["id", "note"] if key == "exclude_columns" else ["id", "mobile", "note", "phone"])


def test_a_value_without_a_place_stops_the_run_before_anything_is_applied(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    config = {
        "table_include_list": [r"shop\.archive", r"shop\.plain"],
        "skipped_operations": ["t"],
        "rescued_data_column": None,
    }
    with pytest.raises(WalReplayError, match="rescued_data") as stopped:
        apply_in_one_run(spark, recorded.files, tmp_path, config)
    assert "infinity" not in str(stopped.value)
    assert mirror_tables(tmp_path / "mirror") == {}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"exclude_columns": ["fotos"]}, "fotos"),
        ({"exclude_columns": ["id"]}, "id"),
        ({"keys": ["number"]}, "number"),
    ],
    ids=["a column that never was", "a key column left out", "a key that is no column"],
)
def test_a_slip_in_the_configuration_stops_the_run_before_anything_is_applied(
    spark: SparkSession, recorded: Recorded, tmp_path: Path, values: Mapping[str, Any], problem: str
) -> None:
    config = {"objects": [{"table": {"source_schema": "shop", "source_table": "excluded", **values}}]}
    with pytest.raises(ConfigError, match=problem):
        apply_in_one_run(spark, recorded.files, tmp_path, config)
    assert mirror_tables(tmp_path / "mirror") == {}

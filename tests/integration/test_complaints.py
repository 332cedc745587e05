"""What users of other tools complain about, and what real servers do: each has its test, and the name says it.

One course of events on a real server, recorded in five files, is applied in one run, in a run for each file, and as
another slot has sent it in binary format.  What the source's tables hold at the end is the measure.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.postgres import Server, chosen_versions, running_server
from support.readers import collect
from support.scenarios import FILE_BY_FILE, ONE_RUN, Applied, Slot, apply_both, apply_in_one_run
from support.truth import SourceTable, mirror_tables
from walreplay.errors import OrderError, TargetError, WalReplayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration, pytest.mark.full]

_BINARY = "values in binary"
_WAYS = [ONE_RUN, FILE_BY_FILE, _BINARY]

_SETTINGS = {"max_prepared_transactions": "10"}
_OPTIONS = {"proto_version": "4", "streaming": "on", "two_phase": "true", "messages": "true"}

_LONG = "repeat('long ' || i, 1500)"
"""A value that is stored out of line, so that an update which leaves it alone sends `unchanged`."""

_TABLES = (
    "CREATE SCHEMA c",
    "CREATE SCHEMA f",
    "CREATE TYPE c.mood AS ENUM ('sad', 'fine')",
    "CREATE TYPE c.pair AS (a int, b text)",
    "CREATE DOMAIN c.amount AS numeric(10,2)",
    "CREATE TABLE c.toast (id int PRIMARY KEY, doc text, n int)",
    "CREATE TABLE c.toast_full (doc text, n int, id int)",
    "ALTER TABLE c.toast_full REPLICA IDENTITY FULL",
    "CREATE TABLE c.toast_key (doc text, id int PRIMARY KEY, v text)",
    "CREATE TABLE c.mixed (id int PRIMARY KEY, a text, b text, n int)",
    "CREATE TABLE c.again (id int PRIMARY KEY, v text)",
    "CREATE TABLE c.moved (id int PRIMARY KEY, v text)",
    "CREATE TABLE c.interleaved (id int PRIMARY KEY, v text)",
    "CREATE TABLE c.one_lsn (n int, v text)",
    "ALTER TABLE c.one_lsn REPLICA IDENTITY FULL",
    "CREATE TABLE c.origin (id int PRIMARY KEY, v text)",
    "CREATE TABLE c.compound (v text, a int, b text, c date, PRIMARY KEY (b, c, a))",
    "CREATE TABLE c.truncated (id int PRIMARY KEY, v text)",
    "CREATE TABLE c.truncated_too (id int PRIMARY KEY, other int REFERENCES c.truncated)",
    "CREATE TABLE c.dates (id int PRIMARY KEY, d date, t timestamp, z timestamptz)",
    """CREATE TABLE c.numbers (id int PRIMARY KEY,
        free numeric, price numeric(10,2), wide numeric(60,30), rounded numeric(5,-2), f double precision)""",
    """CREATE TABLE c.kinds (id int PRIMARY KEY, mood c.mood, moods c.mood[], pair c.pair, amount c.amount,
        span int4range, bytes bytea, grid int[], tree tsvector, place point, doc jsonb)""",
    "CREATE TABLE c.hot (id int PRIMARY KEY, n int)",
    "CREATE TABLE c.parts (id int, part int, v text, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
    "CREATE TABLE c.part1 PARTITION OF c.parts FOR VALUES IN (1)",
    "CREATE TABLE c.part2 PARTITION OF c.parts FOR VALUES IN (2)",
    "CREATE TABLE c.part3 (id int, part int, v text, PRIMARY KEY (id, part))",
    "CREATE TABLE c.leaving (id int, part int, v text, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
    "CREATE TABLE c.leaves PARTITION OF c.leaving FOR VALUES IN (1)",
    """CREATE TABLE c.generated (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED,
        thrice int GENERATED ALWAYS AS (n * 3) VIRTUAL)""",
    "CREATE TABLE c.prepared (id int PRIMARY KEY, v text)",
    "CREATE TABLE c.resent (id int PRIMARY KEY, v text)",
    "CREATE TABLE c.swapped (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text)",
    "ALTER TABLE c.swapped REPLICA IDENTITY FULL",
    "CREATE TABLE c.bag (n int, v text)",
    "ALTER TABLE c.bag REPLICA IDENTITY FULL",
    "CREATE TABLE c.older (id int PRIMARY KEY, doc text, n int)",
    "CREATE TABLE c.nothing (v text)",
    "ALTER TABLE c.nothing REPLICA IDENTITY NOTHING",
    "CREATE TABLE f.filtered (id int, active boolean, doc text, PRIMARY KEY (id, active))",
    *(
        f"ALTER TABLE {table} ALTER {column} SET STORAGE EXTERNAL"
        for table, column in (
            *(("c.toast", "doc"), ("c.toast_full", "doc"), ("c.toast_key", "doc"), ("c.mixed", "a")),
            *(("c.mixed", "b"), ("c.older", "doc"), ("f.filtered", "doc")),
        )
    ),
    f"INSERT INTO c.older SELECT i, {_LONG}, i FROM generate_series(1, 4) i",
    """CREATE PUBLICATION everything FOR TABLES IN SCHEMA c
        WITH (publish_via_partition_root = true, publish_generated_columns = stored)""",
    "CREATE PUBLICATION filtered FOR TABLE f.filtered WHERE (active)",
)

_ROWS = (
    f"INSERT INTO c.toast SELECT i, {_LONG}, i FROM generate_series(1, 4) i",
    f"INSERT INTO c.toast_full SELECT {_LONG}, i, i FROM generate_series(1, 4) i",
    f"INSERT INTO c.toast_key SELECT {_LONG}, i, 'v' FROM generate_series(1, 4) i",
    f"INSERT INTO c.mixed SELECT i, {_LONG}, {_LONG}, i FROM generate_series(1, 6) i",
    "INSERT INTO c.again SELECT i, 'first' FROM generate_series(1, 3) i",
    "INSERT INTO c.moved SELECT i, 'v' || i FROM generate_series(1, 6) i",
    "INSERT INTO c.interleaved VALUES (1, 'first')",
    "INSERT INTO c.origin VALUES (1, 'first'), (2, 'first')",
    """INSERT INTO c.compound SELECT 'v', i % 3, 'b' || i % 2, date '2024-01-01' + i / 6
        FROM generate_series(0, 11) i""",
    "INSERT INTO c.truncated VALUES (1, 'gone'), (2, 'gone')",
    "INSERT INTO c.truncated_too VALUES (1, 1)",
    """INSERT INTO c.dates VALUES (1, 'infinity', '-infinity', 'infinity'),
        (2, '0044-03-15 BC', '0001-12-31 23:59:59 BC', '4713-01-01 00:00:00+00 BC'),
        (3, '10000-01-01', '294276-12-31 23:59:59.999999', '99999-01-01 00:00:00+00'),
        (4, '9999-12-31', '0001-01-01 00:00:00', '1969-12-31 23:59:59.999999+00'), (5, NULL, NULL, NULL)""",
    """INSERT INTO c.numbers VALUES (1, 'NaN', 'NaN', 'NaN', 'NaN', 'NaN'),
        (2, 'Infinity', NULL, NULL, NULL, '-Infinity'),
        (3, 0.1234567890123456789012345678901234567890, 99999999.99, -1.000000000000000000000000000001, 12300, 0.1),
        (4, 1e100, -0.01, 123456789012345678901234567890, -100, '-0')""",
    r"""INSERT INTO c.kinds VALUES (1, 'sad', '{fine,NULL}', '(1,"a, b")', 1.50, '[1,5)', '\x005c27ff', '{{1,2},{3,4}}',
        'a:1 b:2', '(1.5,-2)', '{"a": [1, null]}'),
        (2, NULL, '{}', NULL, 'NaN', 'empty', '\x', '{1,NULL}', '', NULL, 'null')""",
    "SELECT pg_logical_emit_message(true, 'a prefix', 'in a transaction')",
    "SELECT pg_logical_emit_message(false, 'a prefix', 'outside')",
    "INSERT INTO c.hot SELECT i, 0 FROM generate_series(1, 3) i",
    "INSERT INTO c.parts SELECT i, 1 + i % 2, 'v' || i FROM generate_series(1, 6) i",
    "INSERT INTO c.part3 VALUES (30, 3, 'before'), (31, 3, 'before')",
    "INSERT INTO c.leaving VALUES (1, 1, 'v'), (2, 1, 'v')",
    "INSERT INTO c.generated SELECT i, i FROM generate_series(1, 3) i",
    "INSERT INTO c.prepared VALUES (1, 'v')",
    "INSERT INTO c.swapped VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    "INSERT INTO c.bag VALUES (1, 'same'), (1, 'same'), (1, 'same'), (2, 'same'), (NULL, NULL), (NULL, NULL)",
    "INSERT INTO c.nothing VALUES ('a'), ('a')",
    f"INSERT INTO f.filtered SELECT i, i < 3, {_LONG} FROM generate_series(1, 3) i",
)

_CHANGES = (
    "UPDATE c.toast SET n = n + 100",
    "UPDATE c.toast SET n = NULL WHERE id = 2",
    "UPDATE c.toast_full SET n = n + 100 WHERE id < 3",
    "UPDATE c.toast_key SET id = id + 10, v = 'moved' WHERE id = 1",
    "UPDATE c.toast_key SET id = 20 WHERE id = 2",
    "UPDATE c.toast_key SET id = 2 WHERE id = 3",
    "DELETE FROM c.toast_key WHERE id = 4",
    "UPDATE c.mixed SET n = 0 WHERE id = 1",
    "UPDATE c.mixed SET a = 'short' WHERE id = 2",
    "UPDATE c.mixed SET b = NULL WHERE id = 3",
    "BEGIN; DELETE FROM c.mixed WHERE id = 4; INSERT INTO c.mixed VALUES (4, 'again', NULL, 4); COMMIT",
    "UPDATE c.mixed SET a = NULL, b = 'short' WHERE id = 5",
    "UPDATE c.mixed SET n = 1 WHERE id IN (2, 3, 5)",
    "BEGIN; DELETE FROM c.again WHERE id = 1; INSERT INTO c.again VALUES (1, 'second'); COMMIT",
    """BEGIN; INSERT INTO c.again VALUES (9, 'first'); DELETE FROM c.again WHERE id = 9;
        INSERT INTO c.again VALUES (9, 'second'); COMMIT""",
    """BEGIN; DELETE FROM c.again WHERE id = 2; INSERT INTO c.again VALUES (2, 'x');
        DELETE FROM c.again WHERE id = 2; COMMIT""",
    "UPDATE c.moved SET id = 10 WHERE id = 1",
    "UPDATE c.moved SET id = 11, v = 'moved' WHERE id = 10",
    "UPDATE c.moved SET id = 1, v = 'taken over' WHERE id = 2",
    "UPDATE c.moved SET id = id + 100 WHERE id IN (5, 6)",
    "DELETE FROM c.compound WHERE a = 1 AND b = 'b1' AND c = '2024-01-01'",
    "UPDATE c.compound SET v = 'changed' WHERE a = 2 AND b = 'b0' AND c = '2024-01-01'",
    "UPDATE c.compound SET c = c + 100 WHERE a = 0 AND b = 'b0'",
    "UPDATE c.truncated SET v = 'still gone'",
    "TRUNCATE c.truncated CASCADE",
    "INSERT INTO c.truncated VALUES (2, 'after'), (3, 'after')",
    "UPDATE c.dates SET d = '2024-02-29', t = NULL WHERE id = 1",
    "UPDATE c.dates SET z = '0001-01-01 00:00:00+00' WHERE id = 2",
    "UPDATE c.numbers SET price = 0.10 WHERE id = 1",
    "UPDATE c.kinds SET mood = 'fine', grid = '[2:3]={7,8}' WHERE id = 1",
    *["UPDATE c.hot SET n = n + 1"] * 40,
    "UPDATE c.parts SET part = 2, v = 'moved' WHERE id = 2",
    "DELETE FROM c.parts WHERE id = 3",
    "ALTER TABLE c.parts ATTACH PARTITION c.part3 FOR VALUES IN (3)",
    "UPDATE c.parts SET v = 'after' WHERE id = 30",
    "INSERT INTO c.parts VALUES (32, 3, 'after')",
    "ALTER TABLE c.leaving DETACH PARTITION c.leaves",
    "UPDATE c.leaves SET v = 'left' WHERE id = 1",
    "UPDATE c.generated SET n = 10 WHERE id = 1",
    "UPDATE c.swapped SET id = 3 - id WHERE id < 3",
    """BEGIN; UPDATE c.swapped SET id = 4 - id WHERE id IN (1, 3);
        UPDATE c.swapped SET v = v || '!' WHERE id = 1; COMMIT""",
    "DELETE FROM c.bag WHERE ctid IN (SELECT ctid FROM c.bag WHERE n = 1 LIMIT 1)",
    "UPDATE c.bag SET v = 'other' WHERE ctid IN (SELECT ctid FROM c.bag WHERE n IS NULL LIMIT 1)",
    "UPDATE c.older SET n = 100 WHERE id = 1",
    "DELETE FROM c.older WHERE id = 2",
    "INSERT INTO c.nothing VALUES ('a')",
    "UPDATE f.filtered SET active = false WHERE id = 1",
    "UPDATE f.filtered SET active = true WHERE id = 3",
)

_LAST = (
    "UPDATE c.toast SET doc = 'short' WHERE id = 1",
    "UPDATE c.toast SET n = 7 WHERE id = 3",
    "UPDATE c.toast_full SET id = 30 WHERE id = 3",
    "UPDATE c.mixed SET id = 60 WHERE id = 6",
    "DELETE FROM c.moved WHERE id = 11",
    "UPDATE c.parts SET v = 'last' WHERE id = 5",
    "UPDATE f.filtered SET doc = 'known again' WHERE id = 2",
)

_CONFIG: Mapping[str, Any] = {
    "objects": [
        {"table": {"source_schema": "c", "source_table": name, "keys": ["id"]}} for name in ("swapped", "toast_full")
    ]
}


@dataclass(frozen=True)
class Recorded:
    """What was recorded.

    Attributes:
        small: files of other slots, by what is special about each.
        rows_of_one_lsn: so many messages had one LSN.
    """

    files: Sequence[Path]
    binary: Sequence[Path]
    small: Mapping[str, Path]
    sources: Sequence[SourceTable]
    rows_of_one_lsn: int


@pytest.fixture(scope="module", params=chosen_versions())
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The course of events, recorded once."""
    folder = tmp_path_factory.mktemp("recorded")
    with running_server(request.param, settings=_SETTINGS) as server:
        server.execute(*_TABLES)
        publications = "everything,filtered"
        # Escape is what a role may have set; values in hex follow in the other files.
        slot = Slot(server, folder / "text", publications, options=_OPTIONS)
        binary = Slot(server, folder / "binary", publications, name="binary", options={**_OPTIONS, "binary": "true"})
        server.execute(*_ROWS)
        slot.take(settings=["SET bytea_output = 'escape'"])
        rows_of_one_lsn = _copy_in(server, slot.name)
        _change_and_take(server, slot)
        server.execute(*_LAST)
        slot.take()
        binary.take()
        names = server.rows("SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('c', 'f')")
        sources = [server.source_table(*name) for name in names]
        small = _record_small(server, folder)
    return Recorded(slot.files, binary.files, small, sources, rows_of_one_lsn)


def _copy_in(server: Server, slot: str) -> int:
    """Copy rows in, many to a WAL record; give how many messages have the LSN that most have."""
    with server.connect() as connection, connection.cursor() as cursor:
        with cursor.copy("COPY c.one_lsn FROM STDIN") as copy:
            for number in range(200):
                copy.write_row((number % 50, "v"))
        cursor.execute(
            b"SELECT lsn FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
            b" 'proto_version', '4', 'publication_names', 'everything', 'two_phase', 'true')",
            [slot],
        )
        return max(Counter(cursor.fetchall()).values())


def _change_and_take(server: Server, slot: Slot) -> None:
    """Change rows in ways that need several connections, and record it on the way."""
    with server.connect() as one, server.connect() as other:
        # The first change of one is older than the commit of other, its own commit is younger.
        one.execute("BEGIN")
        one.execute("INSERT INTO c.interleaved VALUES (2, 'older change, younger commit')")
        other.execute("INSERT INTO c.interleaved VALUES (3, 'of the other')")
        other.execute("UPDATE c.interleaved SET v = 'of the other' WHERE id = 1")
        # A stream that is open when its session ends, and what it has begun is taken back.
        other.execute("BEGIN")
        other.execute("INSERT INTO c.resent VALUES (1, 'stays')")
        other.execute("SAVEPOINT s")
        other.execute("INSERT INTO c.resent SELECT i, 'taken back' FROM generate_series(2, 5) i")
        slot.take(how="peek", settings=["SET debug_logical_replication_streaming = 'immediate'"])
        other.execute("ROLLBACK TO s")
        other.execute("INSERT INTO c.resent VALUES (2, 'second try')")
        other.execute("COMMIT")
        server.execute(
            """BEGIN; ALTER TABLE c.prepared ADD lost int; INSERT INTO c.prepared VALUES (2, 'taken back', 2);
                PREPARE TRANSACTION 'taken back'""",
            "BEGIN; INSERT INTO c.nothing VALUES ('prepared'); PREPARE TRANSACTION 'holds'",
            *_CHANGES,
        )
        _commit_with_an_old_time(server)
        slot.take()
        one.execute("UPDATE c.interleaved SET v = 'younger commit' WHERE id IN (1, 3)")
        one.execute("COMMIT")
    server.execute(
        "ROLLBACK PREPARED 'taken back'", "COMMIT PREPARED 'holds'", "INSERT INTO c.prepared VALUES (3, 'v')"
    )
    slot.take()


def _commit_with_an_old_time(server: Server) -> None:
    """Change rows as a subscriber does, under another server's commit time."""
    with server.connect() as connection:
        connection.execute("UPDATE c.origin SET v = 'earlier commit, younger time' WHERE id = 1")
        connection.execute("SELECT pg_replication_origin_create('elsewhere')")
        connection.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
        with connection.transaction():
            connection.execute("SELECT pg_replication_origin_xact_setup('0/100', '2001-01-01 00:00:00+00')")
            connection.execute("UPDATE c.origin SET v = 'later commit, older time' WHERE id = 1")
            connection.execute("DELETE FROM c.origin WHERE id = 2")


def _record_small(server: Server, folder: Path) -> dict[str, Path]:
    """Record one transaction by several slots: with other settings, and with other tables."""
    server.execute(
        "CREATE SCHEMA s",
        "CREATE TABLE s.small (id int PRIMARY KEY, d date, i interval, b bytea, t text)",
        "CREATE TABLE s.other (id int PRIMARY KEY)",
        "CREATE PUBLICATION small FOR TABLE s.small",
        "CREATE PUBLICATION other FOR TABLE s.other",
    )
    slots = {
        "plain": Slot(server, folder / "plain", "small", name="plain"),
        "other": Slot(server, folder / "other", "other", name="other"),
        "dated": Slot(server, folder / "dated", "small", name="dated", settings=["SET DateStyle = 'SQL, MDY'"]),
        "spoken": Slot(
            server,
            folder / "spoken",
            "small",
            name="spoken",
            settings=[
                "SET IntervalStyle = 'iso_8601'",
                "SET bytea_output = 'escape'",
                "SET client_encoding = 'LATIN1'",
            ],
        ),
    }
    server.execute(
        r"""BEGIN; INSERT INTO s.small VALUES (1, '2024-02-01', '1 day 2 hours', '\x00ff5c27', 'Größe');
            INSERT INTO s.other VALUES (1); COMMIT"""
    )
    return {name: slot.take() for name, slot in slots.items()}


@pytest.fixture(scope="module")
def applied(spark: SparkSession, recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    """The same, applied."""
    folder = tmp_path_factory.mktemp("applied")
    found = apply_both(spark, recorded.files, folder, recorded.sources, _CONFIG)
    target, reports = apply_in_one_run(spark, recorded.binary, folder / "binary", _CONFIG)
    return replace(found, targets={**found.targets, _BINARY: target}, reports={**found.reports, _BINARY: reports})


_MIRRORED = {
    "an unchanged toast value is never overwritten by a placeholder": ("c.toast",),
    "an unchanged toast value under identity full is taken from the old row": ("c.toast_full",),
    "a null in a key tuple is not a null value": ("c.toast_key",),
    "rows with other columns unchanged go through one merge": ("c.mixed",),
    "a key deleted and inserted again in a batch is one row": ("c.again",),
    "interleaved transactions count in the order of their commits": ("c.interleaved",),
    "a later commit with an older time wins": ("c.origin",),
    "an update of a key leaves no old row": ("c.moved",),
    "a delete on a compound key takes its one row": ("c.compound",),
    "keys swapped in one statement keep their rows": ("c.swapped",),
    "identity full flags all columns and equal rows stay as many": ("c.bag", "c.nothing"),
    "a truncate empties its tables and the run goes on": ("c.truncated", "c.truncated_too"),
    "columns of a prepared transaction that rolls back never come": ("c.prepared",),
    "a stream sent again has nothing of what was rolled back meanwhile": ("c.resent",),
}
"""What holds where some tables are, at the end, what the source has."""


@pytest.mark.parametrize("tables", _MIRRORED.values(), ids=_MIRRORED)
def test_rows_are_the_sources(spark: SparkSession, applied: Applied, tables: tuple[str, ...]) -> None:
    applied.assert_mirrored(spark, *tables)


# Keys and their order.


def test_changes_that_share_an_lsn_are_all_there_once_though_their_session_came_again(
    spark: SparkSession, recorded: Recorded, applied: Applied
) -> None:
    assert recorded.rows_of_one_lsn > 10
    applied.assert_mirrored(spark, "c.one_lsn")


_HELD: Mapping[str, tuple[str, Sequence[str], Sequence[tuple[Any, ...]]]] = {
    "a later commit keeps its older time": (
        "c.origin",
        ("v", "__commit_ts"),
        [("later commit, older time", datetime(2001, 1, 1))],
    ),
    # The unchanged value is nobody's to know: NULL, never a placeholder.
    "an update of a row older than the captures is written": ("c.older", ("id", "doc", "n"), [(1, None, 100)]),
    "a row that comes back into a row filter has values that nobody knows": (
        "f.filtered",
        ("id", "active", "doc"),
        [(2, True, "known again"), (3, True, None)],
    ),
    "detaching a partition sends nothing, so its rows stay": ("c.leaving", ("id", "v"), [(1, "v"), (2, "v")]),
    "a partition that was detached is a table": ("c.leaves", ("id", "v"), [(1, "left")]),
    "a table that is attached has had its rows": ("c.part3", ("id", "v"), [(30, "before"), (31, "before")]),
}
"""What holds where a table has some rows at the end."""


@pytest.mark.parametrize(("name", "columns", "rows"), _HELD.values(), ids=_HELD)
def test_rows_are_held(
    spark: SparkSession, applied: Applied, name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    for way in _WAYS:
        assert applied.rows(spark, way, name, *columns) == rows


@pytest.mark.parametrize(
    ("name", "key", "value"), [("c.again", 9, "second"), ("c.interleaved", 2, "older change, younger commit")]
)
def test_the_last_value_of_a_key_is_kept(
    spark: SparkSession, applied: Applied, name: str, key: int, value: str
) -> None:
    for way in _WAYS:
        assert (key, value) in applied.rows(spark, way, name, "id", "v")


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("c.parts", "without_base"),
        ("c.older", "without_base"),
        ("c.older", "deletes_without_row"),
        ("f.filtered", "unknown"),
    ],
)
def test_what_the_captures_do_not_know_is_counted(applied: Applied, name: str, count: str) -> None:
    for way in _WAYS:
        assert applied.total(way, name, count) == 1


def test_many_changes_of_a_row_meet_its_row_in_the_table_once(spark: SparkSession, applied: Applied) -> None:
    applied.assert_mirrored(spark, "c.hot")
    assert applied.total(ONE_RUN, "c.hot", "changes") > 100
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{applied.location(ONE_RUN, 'c.hot')}`").collect()
    assert detail["numFiles"] == 1


# Values.


def test_infinite_dates_and_years_before_1_and_past_9999_are_kept_as_text(
    spark: SparkSession, applied: Applied
) -> None:
    applied.assert_mirrored(spark, "c.dates")
    for way in _WAYS:
        rescued = dict(applied.rows(spark, way, "c.dates", "id", "_rescued_data"))
        assert rescued[1] == '{"z":"infinity"}'
        assert "10000-01-01" in rescued[3]
        assert rescued[4] is None


def test_numerics_keep_every_digit_and_nan_breaks_nothing(spark: SparkSession, applied: Applied) -> None:
    applied.assert_mirrored(spark, "c.numbers")
    for way in _WAYS:
        found = {row[0]: row[1:] for row in applied.rows(spark, way, "c.numbers", "id", "free", "price", "f")}
        assert found[1][:2] == ("NaN", Decimal("0.10"))
        assert math.isnan(found[1][2])
        assert found[3] == ("0.1234567890123456789012345678901234567890", Decimal("99999999.99"), 0.1)


def test_unknown_types_and_logical_messages_do_not_stop_a_run(spark: SparkSession, applied: Applied) -> None:
    applied.assert_mirrored(spark, "c.kinds")
    for way in _WAYS:
        messages = collect(applied.targets[way] / "_walreplay" / "messages")
        assert {"in a transaction", "outside"} <= {bytes(row.content).decode() for row in messages}


def test_stored_generated_columns_are_mirrored_and_virtual_ones_are_not_sent(
    spark: SparkSession, applied: Applied
) -> None:
    source = applied.sources["c.generated"]
    assert [column.name for column in source.columns] == ["id", "n", "twice", "thrice"]
    sent = replace(source, columns=source.columns[:3], rows=[row[:3] for row in source.rows])
    replace(applied, sources={"c.generated": sent}).assert_mirrored(spark, "c.generated")


# Partitions.


def test_partitions_are_one_table_and_rows_move_between_them(spark: SparkSession, applied: Applied) -> None:
    expected = sorted((int(id_ or 0), int(part or 0), v) for id_, part, v in applied.sources["c.parts"].rows)
    for way in _WAYS:
        rows = applied.rows(spark, way, "c.parts", "id", "part", "v")
        assert sorted(row for row in rows if row[1] < 3) == [row for row in expected if row[1] < 3]
        assert not {"c.part1", "c.part2"} & mirror_tables(applied.targets[way]).keys()


def test_attaching_a_partition_sends_nothing_and_its_rows_come_when_they_change(
    spark: SparkSession, applied: Applied
) -> None:
    for way in _WAYS:
        rows = applied.rows(spark, way, "c.parts", "id", "part", "v")
        assert [row for row in rows if row[1] == 3] == [(30, 3, "after"), (32, 3, "after")]


# Slots.


def test_two_slots_with_one_commit_lsn_and_other_rows_are_never_mixed(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    with pytest.raises(OrderError, match="differ"):
        apply_in_one_run(spark, _named(tmp_path, recorded.small["plain"], recorded.small["other"]), tmp_path / "mixed")
    target, _ = apply_in_one_run(spark, [recorded.small["other"]], tmp_path / "one")
    with pytest.raises(TargetError, match="was made from the source"):
        walreplay.apply(spark, captures=recorded.small["plain"].parent, target=target)


def _named(folder: Path, *files: Path) -> list[Path]:
    return [Path(shutil.copy(file, folder / f"{number}.bin")) for number, file in enumerate(files)]


def test_dates_in_the_senders_own_style_stop_the_run_and_the_setting_is_named(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    with pytest.raises(WalReplayError, match="DateStyle"):
        apply_in_one_run(spark, [recorded.small["dated"]], tmp_path)
    assert mirror_tables(tmp_path / "mirror") == {}


def test_bytes_that_are_not_utf8_stop_the_run_unless_their_encoding_is_named(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    with pytest.raises(WalReplayError, match="source_encoding"):
        apply_in_one_run(spark, [recorded.small["spoken"]], tmp_path / "not told")
    target, _ = apply_in_one_run(spark, [recorded.small["spoken"]], tmp_path / "told", {"source_encoding": "LATIN1"})
    (row,) = collect(target / "s" / "small")
    # Octal escapes are the bytes that they mean, and an interval has one text in all styles.
    assert (row.t, bytes(row.b), row.i) == ("Größe", b"\x00\xff\\'", "1 day 02:00:00")

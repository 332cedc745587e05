"""Base loads from a live PostgreSQL over JDBC, while it works."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.base_copies import snapshot
from support.extent import further
from support.pages import block, with_places
from support.postgres import Server, on_tcp, running_server, server_versions
from support.truth import Beyond, assert_tables_equal
from support.workload import SCHEMAS, SETUP, at_work, run_workload
from walreplay.cli.program import main
from walreplay.errors import CaptureError, ConfigError, SparkFailure
from walreplay.loading import database
from walreplay.lsn import parse_lsn
from walreplay.protocol.messages import Column, Relation
from walreplay.scripts import copy_scripts
from walreplay.spark import base_rows as base_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

_PATIENCE = 300.0

_PASSWORD = "a:secret\\word"

_READER = (
    f"CREATE ROLE reader LOGIN REPLICATION PASSWORD '{_PASSWORD}'",
    "GRANT pg_read_all_data TO reader",
    "CREATE ROLE stranger LOGIN",
)

_ACCESS = (
    "local all all trust\nhost all stranger,postgres 127.0.0.1/32 trust\nhost all reader 127.0.0.1/32 scram-sha-256\n"
)
_ACCESS += "local replication all trust\nhost replication reader 127.0.0.1/32 scram-sha-256\n"


@pytest.fixture(scope="module", params=further(server_versions(), but=server_versions()[-1:]))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Run a server that asks for a password, with a database ``prepared`` that has been there for a while."""
    with running_server(request.param, settings=on_tcp()) as server:
        server.execute("CREATE DATABASE prepared")
        (server.home / "data" / "pg_hba.conf").write_text(_ACCESS)
        server.execute("SELECT pg_reload_conf()")
        server.database = "prepared"
        server.execute(*_READER, *SETUP)
        run_workload(server, transactions=400, seed=5, pause=lambda: None)
        yield server


@pytest.fixture
def shop(server: Server) -> Server:
    """Return a test a database ``shop`` of its own, without the tables and slots of others."""
    server.database = "postgres"
    server.drop_slots()
    server.execute(
        "DROP DATABASE IF EXISTS shop WITH (FORCE)",
        "CREATE DATABASE shop TEMPLATE prepared",
    )
    server.database = "shop"
    return server


@pytest.fixture
def url(shop: Server) -> str:
    return f"jdbc:postgresql://127.0.0.1:{shop.port}/shop"


@pytest.fixture(autouse=True)
def asked_by_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setattr(database, "_PART_BYTES", 64 << 10)


class HeldCommand:
    """A program on the path that stands for ``walreplay``: it writes down its arguments, and waits until it may end."""

    def __init__(self, folder: Path) -> None:
        self._said, self._end = folder / "said", folder / "end"
        self.path = folder / "bin"
        self.path.mkdir()
        program = self.path / "walreplay"
        waits = f"until [ -e {self._end} ]; do sleep 0.1; done; exit $(cat {self._end})"
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\0" "$@" > {self._said}.part\nmv {self._said}.part {self._said}\n{waits}\n'
        )
        program.chmod(0o755)

    def arguments(self, is_over: Callable[[], bool]) -> list[str]:
        """Wait until it was started, and give what it was given."""
        deadline = time.monotonic() + _PATIENCE
        while not self._said.exists():
            assert time.monotonic() < deadline
            assert not is_over()
            time.sleep(0.05)
        return self._said.read_text().split("\0")[:-1]

    def end(self, code: int) -> None:
        self._end.write_text(str(code))


def test_the_commands_of_the_page_read_a_database_at_work(
    spark: SparkSession,
    shop: Server,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    data = tmp_path / "data"
    captures = data / "captures"
    captures.mkdir(parents=True)
    passwords = data / "passwords"
    escaped = _PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
    passwords.write_text(f"127.0.0.1:*:*:reader:{escaped}\n")
    passwords.chmod(0o600)
    copy_scripts(data / "scripts")
    shop.execute(block("docs/starting.md", "CREATE PUBLICATION").text)
    command = with_places(
        block("docs/starting.md", "export PGHOST=db.example").text,
        {
            "walreplay --scripts /data/scripts\n": f"export PGPORT={shop.port}\n",
            "jdbc:postgresql://db.example/shop": url,
            "db.example": "127.0.0.1",
            "/data/": f"{data}/",
        },
    )
    held = HeldCommand(tmp_path)
    path = os.pathsep.join([str(held.path), str(shop.programs), os.environ["PATH"]])
    unset = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    monkeypatch.setenv("PGUSER", "reader")
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    with at_work(shop, 6):
        running = subprocess.Popen(["bash", "-euc", command], env={**unset, "PATH": path})
        try:
            arguments = held.arguments(lambda: running.poll() is not None)
            with shop.recording(captures / "1.bin", publication="archive", slot="archive", make=False):
                # The server goes on working while the tables are read.
                code = main([*arguments, "--json"])
                run_workload(shop, transactions=200, seed=7, pause=lambda: None)
        finally:
            held.end(0)
            ended = running.wait(_PATIENCE)
    output, said = capfd.readouterr()
    assert (code, ended) == (0, 0), said
    told = dict(pairwise(arguments))
    report = json.loads(output)
    tables = shop.source_tables(*SCHEMAS)
    assert (report["status"], report["captures"], len(report["tables"])) == ("loaded", url, len(tables))
    walreplay.apply(spark, captures, data / "mirror")
    lsn = parse_lsn(told["--consistent-point"])
    assert_tables_equal(spark, data / "mirror", tables, Beyond(loaded=lsn - 1))
    # The password is nowhere: neither in what was said, nor in what is kept.
    kept = b"".join(file.read_bytes() for file in (data / "mirror").rglob("*") if file.is_file())
    assert _PASSWORD not in output + said
    assert _PASSWORD.encode() not in kept
    assert shlex.join(arguments).count(_PASSWORD) == 0


_KINDS = (
    "CREATE SCHEMA kinds",
    "CREATE TABLE kinds.parent (id int PRIMARY KEY, note text)",
    "CREATE TABLE kinds.child (PRIMARY KEY (id)) INHERITS (kinds.parent)",
    "CREATE TABLE kinds.divided (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
    "CREATE TABLE kinds.low PARTITION OF kinds.divided FOR VALUES FROM (0) TO (100)",
    # Its columns stand in another order.
    "CREATE TABLE kinds.high (note text, id int NOT NULL)",
    "ALTER TABLE kinds.divided ATTACH PARTITION kinds.high FOR VALUES FROM (100) TO (9000)",
    "CREATE TABLE kinds.filtered (id int PRIMARY KEY, tags jsonb, hidden text)",
    'CREATE TABLE kinds."odd ""?${x}" ("a ""?" int PRIMARY KEY, "c.d`" text, g int GENERATED ALWAYS AS (7) STORED)',
    "CREATE TABLE kinds.without_columns ()",
    "CREATE TABLE kinds.empty (id int PRIMARY KEY)",
    "CREATE TYPE kinds.pair AS (a int, b text)",
    "CREATE TABLE kinds.composite (id int PRIMARY KEY, p kinds.pair)",
    "INSERT INTO kinds.parent VALUES (1, 'parent')",
    "INSERT INTO kinds.child VALUES (2, 'child')",
    "INSERT INTO kinds.divided SELECT g, repeat('x', 100) || g FROM generate_series(1, 1000) g",
    """INSERT INTO kinds.filtered VALUES (1, '{"k": 1}', 'h'), (2, '{"z?": 1}', 'h'), (3, NULL, 'h')""",
    """INSERT INTO kinds."odd ""?${x}" VALUES (1, 'v')""",
    "INSERT INTO kinds.without_columns DEFAULT VALUES",
    "INSERT INTO kinds.without_columns DEFAULT VALUES",
    "INSERT INTO kinds.composite VALUES (1, ROW(NULL, NULL)), (2, NULL), (3, ROW(1, 'x'))",
    "CREATE PUBLICATION kinds FOR TABLE ONLY kinds.parent, kinds.child, kinds.divided, kinds.without_columns,"
    " kinds.empty, kinds.composite,"
    """ kinds."odd ""?${x}", kinds.filtered (id, tags) WHERE (tags ? 'k' OR tags ? 'z?')"""
    " WITH (publish_via_partition_root)",
)


def test_every_kind_of_table_is_read_as_the_publication_sends_it(
    spark: SparkSession, shop: Server, url: str, tmp_path: Path
) -> None:
    shop.execute(*_KINDS)

    def load(target: Path, **options: Any) -> walreplay.RunReport:
        return walreplay.load(
            spark, url, target, snapshot=seen.name, consistent_point=seen.lsn, captures=tmp_path / "captures", **options
        )

    with snapshot(shop) as seen:
        # What commits later is not seen, wherever the rows are by then.
        shop.execute("UPDATE kinds.divided SET note = 'later'", "INSERT INTO kinds.empty VALUES (1)")
        shop.execute("DELETE FROM kinds.divided WHERE id % 2 = 0", "VACUUM kinds.high", "VACUUM FULL kinds.parent")
        report = load(tmp_path / "mirror", publication="kinds", connections=2)
        alone = load(tmp_path / "alone", table="kinds.divided")
    assert report.warnings == ()
    (warning,) = alone.warnings
    assert warning.startswith("kinds.divided: partitioned, and no publication is named")
    assert [(table.name, table.inserted) for table in alone.tables] == [("kinds.divided", 1000)]
    assert {table.name.partition(".")[2]: table.inserted for table in report.tables} == {
        "parent": 1,
        "child": 1,
        "divided": 1000,
        "filtered": 2,
        'odd "?${x}': 1,
        "without_columns": 2,
        "empty": 0,
        "composite": 3,
    }

    def rows(name: str, *columns: str) -> set[tuple[Any, ...]]:
        frame = spark.read.format("delta").load(str(tmp_path / "mirror" / "kinds" / name))
        assert [column for column in frame.columns if not column.startswith("_")] == list(columns)
        numbers = [frame.columns.index(column) for column in columns]
        return {tuple(row[number] for number in numbers) for row in frame.collect()}

    assert rows("parent", "id", "note") == {(1, "parent")}
    assert rows("divided", "id", "note") == {(n, "x" * 100 + str(n)) for n in range(1, 1001)}
    assert {number for number, _ in rows("filtered", "id", "tags")} == {1, 2}
    assert rows("composite", "id", "p") == {(1, "(,)"), (2, None), (3, "(1,x)")}


def test_what_cannot_be_read_is_refused_with_its_reason_and_the_remedy_helps(
    spark: SparkSession, shop: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.execute(
        "CREATE SCHEMA s",
        "CREATE TABLE s.items (id int PRIMARY KEY, note text)",
        "INSERT INTO s.items VALUES (1)",
        # Later it would look like a rename of the schema, there and back.
        "GRANT USAGE ON SCHEMA s TO stranger",
    )

    def load(said: str = url, name: str | None = None, table: str | None = "s.items", **options: Any) -> None:
        walreplay.load(
            spark,
            said,
            tmp_path / "mirror",
            snapshot=name,
            table=table,
            captures=tmp_path / "captures",
            **{"consistent_point": "0/1", **options},
        )

    def refused(kind: type[Exception], match: str, **options: Any) -> None:
        with pytest.raises(kind, match=match) as caught:
            load(**options)
        assert "secret" not in str(caught.value)
        assert not (tmp_path / "mirror" / "s").exists()

    with snapshot(shop) as seen:
        good = {"name": seen.name, "consistent_point": seen.lsn}
        refused(ConfigError, "each of them would see other rows")
        refused(ConfigError, "which tables are to be read", table=None, **good)
        refused(ConfigError, "no such table or publication", **{**good, "table": "s.nothing"})
        refused(SparkFailure, "no such database on the server", said=f"{url}_nowhere", **good)
        refused(SparkFailure, "cannot be reached", said="jdbc:postgresql://127.0.0.1:1/shop", **good)
        with monkeypatch.context() as patch:
            patch.setattr(base_database, "DRIVER", "org.postgresql.NoDriver")
            refused(SparkFailure, "has not got PostgreSQL's JDBC driver", **good)
        with monkeypatch.context() as patch:
            patch.setenv("PGUSER", "reader")
            patch.setenv("PGPASSWORD", "another secret")
            refused(SparkFailure, "does not let the user in", **good)
        # It can connect, and may not read.
        stranger = monkeypatch.context()
        with stranger as patch:
            patch.setenv("PGUSER", "stranger")
            refused(SparkFailure, "may not read a table", **good)
            shop.execute(
                "GRANT SELECT ON s.items TO stranger",
                "CREATE POLICY hidden ON s.items USING (false)",
                "ALTER TABLE s.items ENABLE ROW LEVEL SECURITY",
            )
            refused(SparkFailure, "hides rows of a table from the user", **good)
            shop.execute("ALTER TABLE s.items DISABLE ROW LEVEL SECURITY")
        shop.execute("ALTER TABLE s.items RENAME note TO remark")
        refused(CaptureError, "a column of the table was renamed", **good)
        shop.execute("ALTER TABLE s.items RENAME remark TO note")
        shop.execute("ALTER TABLE s.items ALTER note TYPE varchar(9)")
        refused(CaptureError, "was rewritten", **good)
    refused(SparkFailure, "the snapshot is gone", **good)
    with snapshot(shop) as seen:
        load(name=seen.name, consistent_point=seen.lsn)
    assert (tmp_path / "mirror" / "s" / "items").exists()


_VALUES = {
    "boolean": "true",
    '"char"': "'x'",
    "char(5)": "'ab '",
    "name": "'n'",
    "inet": "'10.0.0.1'",
    "cidr": "'10.0.0.0/8'",
    "money": "12345.6",
    "interval": "'1 mon -2 days 03:04:05.6'",
    "bytea": "'\\x00ff'",
    "real": "0.1",
    "double precision": "1e-300",
    "numeric": "1.500",
    "timestamptz": "'2024-02-29 12:00:00.5+03'",
    "timestamp": "'infinity'",
    "date": "'0044-03-15 BC'",
    "timetz": "'12:00+05:30'",
    "bit(3)": "'101'",
    "text": "''",
    "varchar": "E'a\\\\b\\tc'",
    "json": "'{\"a\":  1}'",
    "jsonb": "'{\"a\":  1}'",
    "uuid": "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
    "boolean[]": "'{t,NULL}'",
    "regclass": "'pg_catalog.pg_class'",
    "tstzrange": "'[2024-01-01 00:00+02,)'",
    "point": "'(1.5,2)'",
    "xid": "'7'",
    "oid": "4000000000",
    "pg_lsn": "'1/0'",
    "tsvector": "'a b:1'",
    "live.mood": "'very happy'",
    "live.amount": "1.5",
    "live.insert_only": "ROW(NULL, NULL)",
}


def test_values_have_the_text_that_copy_writes_of_them(shop: Server) -> None:
    names = [f"c{number}" for number in range(len(_VALUES))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, _VALUES, strict=True))
    with shop.connect() as connection, connection.transaction():
        connection.execute(f"CREATE TABLE texts ({columns})".encode())
        connection.execute(f"INSERT INTO texts VALUES ({', '.join(_VALUES.values())})".encode())
        connection.execute("INSERT INTO texts DEFAULT VALUES")
        query = (
            "SELECT attname, atttypid, atttypmod FROM pg_attribute WHERE attrelid = 'texts'::regclass AND attnum > 0"
        )
        found = connection.execute(query).fetchall()
        relation = Relation(1, "public", "texts", "d", tuple(Column(*row, False) for row in found))
        for statement in database.session_statements(None).split("; ")[1:]:
            connection.execute(statement.encode())
        piece = database.TablePiece("public.texts", 1, "public", "texts", None, 0, 0)
        read = connection.execute(f"SELECT * FROM {database.rows_query(piece, relation)}".encode()).fetchall()
        with connection.cursor() as cursor, cursor.copy("COPY texts TO STDOUT") as copy:
            copied = list(copy.rows())
    assert len(read) == 2
    assert [tuple(row) for row in read] == copied


def test_a_session_that_lost_its_snapshot_fails(shop: Server) -> None:
    query = f"SELECT * FROM {database.query_of('SELECT json_build_object()')}"
    with shop.connect() as connection:
        for statement in database.session_statements(None).split("; "):
            connection.execute(statement.encode())  # each is its own transaction
        with pytest.raises(Exception, match="the_snapshot_is_not_held") as caught:
            connection.execute(query.encode())
    told = database.problem_of(str(caught.value))
    assert told is not None
    assert told[0] == "a session lost its snapshot"

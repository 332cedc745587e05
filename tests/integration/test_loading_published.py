"""A base load by scripts, dumps and files: what publications send, what leaves the snapshot, what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import walreplay
from support.extent import further
from support.pages import block, with_places
from support.postgres import Server, running_server, server_versions
from walreplay.errors import CaptureError, ConfigError
from walreplay.loading import database
from walreplay.loading.description import read_description
from walreplay.protocol.messages import Column, Relation
from walreplay.scripts import copy_scripts, script, script_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


def copied(server: Server, slot: str, names: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run base.sh."""
    scripts = folder.parent / "scripts"
    if not scripts.exists():
        copy_scripts(scripts)
    command = [str(scripts / "base.sh"), slot, names, str(folder)]
    return subprocess.run(command, env=environment_of(server), capture_output=True, text=True)


def environment_of(server: Server) -> dict[str, str]:
    """Return the environment in which the scripts find the server."""
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(server.programs), os.environ["PATH"]]),
        "PGPORT": server.port,
        "PGHOST": str(server.home),
        "PGUSER": "postgres",
        "PGDATABASE": server.database,
    }


def load(spark: SparkSession, folder: Path, target: Path, **options: Any) -> walreplay.RunReport:
    return walreplay.load(spark, folder, target, **{**_places(folder), **options})


@pytest.fixture(scope="module", params=further(server_versions(), but=server_versions()[-1:]))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running_server(request.param) as server:
        server.execute(
            "CREATE TYPE mood AS ENUM ('sad', 'ok')",
            "CREATE TABLE kept (id int PRIMARY KEY, m mood, note text)",
            "CREATE TABLE added (id int PRIMARY KEY)",
            "CREATE TABLE emptied (id int PRIMARY KEY)",
            "CREATE TABLE whole (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
            "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (100)",
            *(f"INSERT INTO {name} VALUES (1), (2)" for name in ("kept", "added", "emptied", "whole")),
            "CREATE PUBLICATION archive FOR TABLE kept, added, emptied, whole",
            "CREATE PUBLICATION fewer FOR TABLE kept (id)",
        )
        yield server


def test_the_columns_of_a_query_are_asked_for_without_a_snapshot(server: Server) -> None:
    """Spark asks for them in a session that has nothing set; its own question needs no Spark to be seen."""
    relation = Relation(1, "public", "kept", "d", (Column("id", 23, -1, True),))
    piece = database.TablePiece("public.kept", 1, "public", "kept", 1, 0, 0, row_filter="(id > 1)")
    queries = [database.query_of(one) for one in (database.SERVER, database.PIECES, script("describe.sql"))]
    queries += [database.query_of(script("kept.sql")), database.rows_query(piece, relation)]
    for query in queries:
        with server.connect() as connection:
            assert connection.execute(f"SELECT * FROM {query} WHERE 1=0".encode()).fetchall() == []
        with server.connect() as connection, pytest.raises(psycopg.Error, match="is_not_held"):
            connection.execute(f"SELECT * FROM {query}".encode())


def test_publications_that_cannot_be_recorded_together_are_refused_by_the_script(
    server: Server, tmp_path: Path
) -> None:
    for number, (names, problem) in enumerate(
        [
            ("archive,fewer", "publications send different columns of public.kept"),
            ("archive,Nowhere", "there is no publication nowhere"),
            ('"It\'s"', 'there is no publication "It\'s"'),
        ]
    ):
        done = copied(server, f"refused_{number}", names, tmp_path / str(number))
        assert done.returncode != 0
        assert problem in done.stderr
        assert not (tmp_path / f"{number}.lsn").exists()
        # Nothing is left of the attempt, and no slot keeps WAL.
        assert not (tmp_path / str(number)).exists()
        assert server.value("SELECT count(*) FROM pg_replication_slots WHERE slot_name ~ '^refused_'") == 0


def test_generated_columns_are_described_if_they_are_sent(server: Server) -> None:
    is_new = server.value("SELECT current_setting('server_version_num')::int") >= 180_000
    made = "(id int PRIMARY KEY, y int GENERATED ALWAYS AS (id * 2) STORED)"
    server.execute(
        f"CREATE TABLE sent {made}", f"CREATE TABLE unsent {made}", "CREATE PUBLICATION plain FOR TABLE sent"
    )
    sending = " WITH (publish_generated_columns = stored)" if is_new else ""
    server.execute(f"CREATE PUBLICATION sending FOR TABLE sent{sending}")

    def columns(names: str) -> dict[str, list[str]]:
        with server.connect() as connection:
            connection.execute("SELECT set_config('walreplay.publication', %s, false)", [names])
            lines = [json.dumps(line) for (line,) in connection.execute(script("describe.sql").encode()).fetchall()]
        found = read_description("\n".join(lines), "f").relations
        return {name[7:]: [column.name for column in one.columns] for name, (one,) in found.items() if "sent" in name}

    sent = ["id", "y"] if is_new else ["id"]
    assert columns("plain") == {"sent": ["id"]}
    assert columns("sending") == {"sent": sent}
    # As nobody says which, what some publication sends: rows without it are then refused, not loaded with NULL.
    assert columns("") == {"sent": sent, "unsent": ["id"]}
    server.execute("DROP TABLE sent, unsent", "DROP PUBLICATION plain, sending")


def test_a_folder_that_was_used_before_is_refused_before_there_is_a_slot(server: Server, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "shop.old.copy").write_text("1\n")
    done = copied(server, "never", "archive", tmp_path / "base")
    assert done.returncode != 0
    assert "is not empty" in done.stderr
    assert not server.value("SELECT count(*) FROM pg_replication_slots")
    (tmp_path / "base" / "shop.old.copy").unlink()
    assert copied(server, "made", "archive", tmp_path / "base").returncode == 0
    server.execute("SELECT pg_drop_replication_slot('made')")


_HARMLESS = (
    "ALTER TABLE added ADD COLUMN later int",
    "TRUNCATE emptied",
    "VACUUM FULL kept",
    "UPDATE part SET note = 'x'",
    "ALTER TABLE part RENAME TO piece",
    # What writes the tables' rows in pg_class, as a renaming does.
    "GRANT SELECT ON kept, added, whole TO PUBLIC",
    "CREATE INDEX ON kept (note)",
    "VACUUM (FREEZE, ANALYZE)",
    "ALTER TABLE kept SET (fillfactor = 90)",
    "ALTER TABLE kept ADD CHECK (id > 0), ENABLE ROW LEVEL SECURITY, REPLICA IDENTITY FULL",
    "CREATE RULE quiet AS ON UPDATE TO added WHERE false DO INSTEAD NOTHING",
    "ALTER TABLE emptied ADD FOREIGN KEY (id) REFERENCES kept NOT VALID",
)
_SWAP_TABLES = "ALTER TABLE kept RENAME TO aside; ALTER TABLE added RENAME TO kept; ALTER TABLE aside RENAME TO added"
_SWAP_COLUMNS = (
    "ALTER TABLE whole RENAME id TO x; ALTER TABLE whole RENAME note TO id; ALTER TABLE whole RENAME x TO note"
)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", "public.mood"),
        ("ALTER TABLE piece SET UNLOGGED", "public.part"),
        ("ALTER TABLE kept ALTER note TYPE varchar(9)", "public.kept"),
        ("DROP TABLE added", "public.added"),
        # Rows are read by names, and another table or column may take them.
        ("ALTER TABLE kept RENAME TO aside", "public.kept"),
        ("ALTER TABLE whole DETACH PARTITION piece", "public.whole"),
        ("ALTER TABLE whole RENAME note TO aside", "public.whole"),
        ("ALTER TABLE kept DROP COLUMN note", "public.kept"),
        # There and back.
        (f"{_SWAP_TABLES}; {_SWAP_TABLES}", "public.kept public.added"),
        (f"{_SWAP_COLUMNS}; {_SWAP_COLUMNS}", "public.whole"),
        ("CREATE SCHEMA s; ALTER TABLE kept SET SCHEMA s; ALTER TABLE s.kept SET SCHEMA public", "public.kept"),
        ("ALTER SCHEMA public RENAME TO aside; ALTER SCHEMA aside RENAME TO public", "public"),
        (
            "ALTER TABLE whole DETACH PARTITION piece; ALTER TABLE whole ATTACH PARTITION piece DEFAULT",
            "public.whole",
        ),
        (
            "ALTER TABLE piece RENAME TO part; ALTER TABLE part SET UNLOGGED; ALTER TABLE part SET LOGGED",
            "public.part",
        ),
    ],
)
def test_what_does_not_keep_to_the_snapshot_is_seen(server: Server, statement: str, name: str) -> None:
    """The lines of before and now, as base.sh and a load over JDBC compare them."""
    server.database = "postgres"
    server.execute("DROP DATABASE IF EXISTS copy", "CREATE DATABASE copy TEMPLATE postgres")
    server.database = "copy"
    names = ["kept", "added", "whole", "emptied"]
    oids = [oid for (oid,) in server.rows("SELECT oid::bigint FROM pg_class WHERE relname = ANY (%s)", names)]

    def lines(connection: psycopg.Connection[Any], **moved: str) -> list[str]:
        for setting, value in {**database.tables_setting(oids), **moved}.items():
            connection.execute("SELECT set_config(%s, %s, false)", [setting, value])
        return [json.dumps(line) for (line,) in connection.execute(script("kept.sql").encode()).fetchall()]

    try:
        with server.connect() as before, server.connect() as now, before.transaction():
            before.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            database.check_kept(lines(before, **database.MOVED), lines(now))
            for harmless in _HARMLESS:
                now.execute(harmless.encode())
            database.check_kept(lines(before, **database.MOVED), lines(now))
            now.execute(statement.encode())
            with pytest.raises(CaptureError) as caught:
                database.check_kept(lines(before, **database.MOVED), lines(now))
            assert caught.value.table in name.split()
    finally:
        server.database = "postgres"


_SWAP_MOODS = "; ".join(
    f"ALTER TABLE {name} RENAME TO {other}" for name, other in (("moods", "x"), ("twin", "moods"), ("x", "twin"))
)
_SWAP_OF_MOODS = "; ".join(
    f"ALTER TABLE moods RENAME {name} TO {other}" for name, other in (("a", "x"), ("b", "a"), ("x", "b"))
)


@pytest.mark.parametrize(
    ("before", "behind", "problem"),
    [
        ("", "ALTER TYPE once RENAME VALUE 'a' TO 'c'", "labels of the enum were renamed"),
        (_SWAP_MOODS, _SWAP_MOODS, "the table was renamed"),
        (_SWAP_OF_MOODS, _SWAP_OF_MOODS, "a column of the table was renamed"),
        ("GRANT SELECT ON moods TO PUBLIC", "CREATE INDEX ON moods (a)", None),
        ("TRUNCATE moods", "VACUUM FULL twin", None),
    ],
)
def test_base_sh_fails_where_something_has_not_kept_to_the_snapshot(
    server: Server, tmp_path: Path, before: str, behind: str, problem: str | None
) -> None:
    """Somebody works in front of the copy of a table, and behind it."""
    server.execute("CREATE TYPE once AS ENUM ('a', 'b')")
    server.execute("CREATE TABLE moods (a once, b once)", "CREATE TABLE twin (LIKE moods)")
    server.execute("INSERT INTO moods VALUES ('a', 'b')", "INSERT INTO twin VALUES ('b', 'b')")
    server.execute("CREATE PUBLICATION moods FOR TABLE moods")
    copy_scripts(tmp_path / "scripts")
    base = tmp_path / "scripts" / "base.sh"
    lines = base.read_text().splitlines(keepends=True)
    (at,) = (number for number, line in enumerate(lines) if line.lstrip().startswith('in_snapshot -o "$file"'))
    lines[at : at + 1] = [f'psql -X -q -c "{before}"\n', lines[at], f'psql -X -q -c "{behind}"\n']
    base.write_text("".join(lines))
    try:
        done = copied(server, "kept", "moods", tmp_path / "base")
        assert (done.returncode == 0) == (tmp_path / "base.lsn").exists() == (problem is None), done.stderr
        assert problem is None or problem in done.stderr
        described = read_description((tmp_path / "base.jsonl").read_text(), "base.jsonl")
        assert any(described.emptied.values()) == ("TRUNCATE" in before)
        if problem is not None:
            # The remedy.
            assert "Drop the slot kept, empty" in done.stderr
            (tmp_path / "again").mkdir()
            server.execute("SELECT pg_drop_replication_slot('kept')")
            assert copied(server, "kept", "moods", tmp_path / "again" / "base").returncode == 0
            copied_again = (tmp_path / "again" / "base" / "public.moods.copy").read_text()
            assert copied_again == ("c\tb\n" if "labels" in problem else "a\tb\n")
    finally:
        server.drop_slots("kept")
        server.execute("DROP PUBLICATION moods", "DROP TABLE moods, twin", "DROP TYPE once")


@pytest.mark.parametrize("meanwhile", ["", "rewritten", "swapped"])
def test_a_dump_is_checked_as_the_page_says(server: Server, tmp_path: Path, meanwhile: str) -> None:
    """Between the snapshot and the locks of pg_dump a table is rewritten, which it sees empty, or read as another."""
    copy_scripts(tmp_path / "scripts")
    server.drop_slots()
    server.execute("CREATE TABLE dumped (a int, note text)", "INSERT INTO dumped VALUES (1, 'x')")
    server.execute("CREATE TABLE other (a int, note text)")
    text = block("docs/starting.md", "/data/scripts/snapshot.sh archive").text
    names = [("dumped", "aside"), ("other", "dumped"), ("aside", "other")]
    swap = "; ".join(f"ALTER TABLE {name} RENAME TO {new}" for name, new in names)
    before = {"rewritten": "ALTER TABLE dumped ALTER a TYPE bigint", "swapped": swap}.get(meanwhile, "SELECT")
    behind = swap if meanwhile == "swapped" else "SELECT"
    text = with_places(
        text,
        {
            " pg_dump ": f' psql -Xqc "{before}" && pg_dump ',
            "=/data/base &&": f'=/data/base && psql -Xqc "{behind}" &&',
            "/data/": f"{tmp_path}/",
            "walreplay.publication=archive": "walreplay.publication=dumped",
        },
    )
    server.execute("CREATE PUBLICATION dumped FOR TABLE dumped")
    try:
        done = subprocess.run(["sh", "-euc", text], env=environment_of(server), capture_output=True, text=True)
        assert (done.returncode == 0) == (tmp_path / "base.lsn").exists() == (not meanwhile), done.stderr
        assert ("public.dumped" in done.stderr) == bool(meanwhile)
    finally:
        server.drop_slots()
        server.execute("DROP PUBLICATION dumped", "DROP TABLE dumped, other")


def test_scripts_say_what_they_need_and_what_to_do_with_a_slot_that_is_there(server: Server, tmp_path: Path) -> None:
    copy_scripts(tmp_path / "scripts")
    for name in script_names():
        if name.endswith(".sh"):
            done = subprocess.run([tmp_path / "scripts" / name], capture_output=True, text=True)
            assert (done.returncode, done.stdout) == (2, "")
            assert f"    {name} " in done.stderr or f" {name} " in done.stderr
    server.execute("SELECT pg_create_logical_replication_slot('there', 'pgoutput')")
    done = copied(server, "there", "archive", tmp_path / "base")
    assert done.returncode != 0
    assert "There is a slot there already" in done.stderr
    assert not (tmp_path / "base").exists()
    (remedy,) = re.findall(r'psql -c "(.*)"', done.stderr)
    server.execute(remedy)
    assert copied(server, "there", "archive", tmp_path / "base").returncode == 0
    environment = environment_of(server)
    command = [tmp_path / "scripts" / "snapshot.sh", "there", "true"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "--temporary" in done.stderr
    command = [tmp_path / "scripts" / "snapshot.sh", "--temporary", "other", "true"]
    assert subprocess.run(command, env=environment, capture_output=True, text=True).returncode == 0
    server.drop_slots("there")


# Files.


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Make the files and the description that base.sh leaves of two tables."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "_an.ev.copy").write_text("1\t1\n2\t2\n")
    (folder / "shop.g.copy").write_text("1\tone\n2\ttwo\n3\tthreethree\n")
    (tmp_path / "base.lsn").write_text("0/97\n")
    lines = [
        *(_line("_an", "ev", 8, number, name, 23) for number, name in enumerate(("id", "a"), 1)),
        *(_line("shop", "g", 9, number, *one) for number, one in enumerate((("id", 23), ("t", 25)), 1)),
        *({"oid": oid, "rows": rows} for oid, rows in ((8, 2), (9, 3))),
    ]
    (tmp_path / "base.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _line(schema: str, table: str, oid: int, number: int, column: str, kind: int) -> dict[str, Any]:
    named = {"schema": schema, "table": table, "oid": oid, "replica_identity": "d", "attnum": number}
    typed = {"type_oid": kind, "typmod": -1, "type_schema": "pg_catalog", "type_name": "x"}
    return {**named, "column": column, "key": column == "id", **typed}


def test_hidden_names_are_the_tables_that_are_called_so_and_others_are_told(
    spark: SparkSession, tmp_path: Path, base: Path
) -> None:
    (base / "shop.g").mkdir()
    for name in ("_SUCCESS", "shop.g/.part-0.parquet.crc", "_temporary/shop.g.copy", ".shop.g.copy"):
        (base / name).parent.mkdir(exist_ok=True)
        (base / name).write_text("x\n")
    report = load(spark, base, tmp_path / "mirror")
    assert {(table.name, table.inserted) for table in report.tables} == {("_an.ev", 2), ("shop.g", 3)}
    (told,) = report.warnings
    assert all(name in told for name in ("_SUCCESS", "part-0.parquet.crc", "_temporary/shop.g.copy", "/.shop.g.copy"))
    for name in ("_an.ev.copy", "shop.g.copy"):
        (base / name).unlink()
    with pytest.raises(ConfigError, match="there are no files of tables"):
        load(spark, base, tmp_path / "other")


def test_files_that_are_not_as_they_were_copied_are_refused_by_name_and_the_remedy_helps(
    spark: SparkSession, tmp_path: Path, base: Path
) -> None:
    file = base / "shop.g.copy"
    whole = file.read_text()

    def refused(problem: str, table: str | None = "shop.g") -> CaptureError | ConfigError:
        with pytest.raises((CaptureError, ConfigError), match=problem) as caught:
            load(spark, base, tmp_path / "mirror")
        assert caught.value.table == table
        assert caught.value.remedy
        assert not (tmp_path / "mirror" / "shop").exists()
        return caught.value

    file.write_text(whole[:-3])
    error = refused("the last row has no newline")
    assert (str(error.path).endswith("shop.g.copy"), error.offset) == (True, len("1\tone\n2\ttwo\n"))
    # Between two rows.
    file.write_text("1\tone\n2\ttwo\n")
    refused("3 rows of the table were copied, and 2 are here")
    file.unlink()
    refused("3 rows of the table were copied, and 0 are here")
    file.write_text(whole)
    (base / "shop.g.0002.copy").write_text("4\tfour\n")
    refused("3 rows of the table were copied, and 4 are here")
    (base / "shop.g.0002.copy").unlink()
    (base / "shop.old.copy").write_text("1\told\n")
    assert "take it away" in str(refused("named like none of the tables", None).remedy)
    (base / "shop.old.copy").unlink()
    # One table's file alone is enough for it.
    assert walreplay.load(spark, file, tmp_path / "one", **_places(base)).tables[0].inserted == 3
    load(spark, base, tmp_path / "mirror")


def _places(base: Path) -> dict[str, Any]:
    return {
        "consistent_point": base.with_suffix(".lsn").read_text().strip(),
        "describe": base.with_suffix(".jsonl"),
        "captures": base.parent / "captures",
    }

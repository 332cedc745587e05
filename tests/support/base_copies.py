"""Base copies of a live server's tables: a snapshot with its LSN, and COPY in it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq, sql

from support.postgres import TEXT_SETTINGS, Server
from walreplay.scripts import copy_scripts, script


@dataclass(frozen=True)
class Snapshot:
    """What a slot has exported, and the LSN from which it sends."""

    server: Server
    name: str
    lsn: str

    def dump(self, into: Path, *arguments: str, publications: str = "") -> Path:
        """Have pg_dump write all tables; give the file that describes them, beside it."""
        into.parent.mkdir(parents=True, exist_ok=True)
        server = self.server
        command = [server.programs / "pg_dump", "-h", server.home, "-p", server.port, "-U", "postgres", server.database]
        command += ["--snapshot", self.name, "--file", into, *arguments]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        described = into.with_suffix(".jsonl")
        return self.describe(described, publications=publications)

    def describe(self, described: Path, *, publications: str = "") -> Path:
        """Write what the tables are, or those of some publications."""
        with self.server.connect() as connection:
            connection.execute("SELECT set_config('walreplay.publication', %s, false)", [publications])
            self._describe(connection, described)
        return described

    def _describe(self, connection: psycopg.Connection[Any], described: Path) -> None:
        lines = connection.execute(script("describe.sql").encode()).fetchall()
        described.write_text("".join(json.dumps(line) + "\n" for (line,) in lines), encoding="utf-8")

    def copy(self, folder: Path, options: str = "", ending: str = "copy", *, schemas: tuple[str, ...]) -> Path:
        """Copy the tables of some schemas into a folder; give the file that describes them, beside it."""
        folder.mkdir(parents=True)
        described = folder.with_suffix(".jsonl")
        with self.server.connect() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{self.name}'".encode())
            for setting in TEXT_SETTINGS:
                connection.execute(setting.encode())
            self._describe(connection, described)
            names = connection.execute(
                "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = ANY(%s) ORDER BY 1, 2", [list(schemas)]
            ).fetchall()
            for schema, name in names:
                query = sql.SQL("COPY {} TO STDOUT ").format(sql.Identifier(schema, name)) + sql.SQL(options)  # type: ignore[arg-type]
                with (
                    connection.cursor() as cursor,
                    cursor.copy(query) as copy,
                    (folder / f"{schema}.{name.replace('%', '%25').replace('/', '%2F')}.{ending}").open("wb") as file,
                ):
                    for piece in copy:
                        file.write(piece)
        return described


@contextmanager
def snapshot(server: Server, slot: str = "base") -> Iterator[Snapshot]:
    """Make a slot, and keep the snapshot that it exports until the block ends."""
    target = f"host={server.home} port={server.port} user=postgres dbname={server.database} replication=database"
    connection = pq.PGconn.connect(target.encode())
    try:
        result = connection.exec_(f'CREATE_REPLICATION_SLOT "{slot}" TEMPORARY LOGICAL pgoutput'.encode())
        assert result.status == pq.ExecStatus.TUPLES_OK, connection.error_message
        values = {
            (result.fname(n) or b"").decode(): (result.get_value(0, n) or b"").decode() for n in range(result.nfields)
        }
        yield Snapshot(server, values["snapshot_name"], values["consistent_point"])
    finally:
        connection.finish()


def copied_by_script(server: Server, folder: Path, publication: str) -> Path:
    """Copy a publication's tables by base.sh, into a folder below this one, and drop its slot."""
    copy_scripts(folder / "scripts")
    place = {"PGHOST": str(server.home), "PGPORT": server.port, "PGDATABASE": server.database, "PGUSER": "postgres"}
    done = subprocess.run(
        [str(folder / "scripts" / "base.sh"), "copies", publication, str(folder / "base")],
        env={**os.environ, **place, "PATH": os.pathsep.join([str(server.programs), os.environ["PATH"]])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    server.drop_slots("copies")
    return folder / "base"

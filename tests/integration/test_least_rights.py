"""The roles of SECURITY.md may do what recorder and loads need, and no more."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import walreplay
from support.pages import block, without_comments
from support.postgres import Server, running_server
from walreplay.loading import database
from walreplay.recording.first_copy import FirstCopy
from walreplay.recording.recorder import Recorder
from walreplay.recording.server import Snapshot, Stream, StreamOptions
from walreplay.recording.store import store_at
from walreplay.recording.transfer import RecordOptions, RecordStatus
from walreplay.scripts import script

pytestmark = pytest.mark.live

_PATIENCE = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        server.execute(
            "CREATE SCHEMA shop",
            "CREATE TABLE shop.orders (id int PRIMARY KEY, note text)",
            "INSERT INTO shop.orders VALUES (1, 'old')",
            "CREATE PUBLICATION archive FOR ALL TABLES",
        )
        roles = without_comments(block("SECURITY.md", "CREATE ROLE recorder").text, "--")
        server.execute(*filter(None, map(str.strip, roles.split(";"))))
        yield server


class Released(FirstCopy):
    """Lets the snapshot of a new slot go."""

    def __init__(self) -> None:
        super().__init__("", "archive", ("archive",), None, announces=False)
        self.is_over = threading.Event()

    def start(self, snapshot: Snapshot, release: Callable[[], None]) -> None:
        release()
        self.is_over.set()


def address(server: Server, user: str) -> str:
    return f"host={server.home} port={server.port} user={user} dbname={server.database}"


def test_the_recorder_makes_its_slot_records_and_may_read_no_table(server: Server, tmp_path: Path) -> None:
    dsn, stored = address(server, "recorder"), list[RecordStatus]()
    options = RecordOptions(dsn, "archive", StreamOptions(("archive",)), file_seconds=0.5, heartbeat=0.5, create=True)
    first_copy = Released()
    recorder = Recorder(options, store_at(str(tmp_path)), stored.append, first_copy)
    thread = threading.Thread(target=recorder.run, daemon=True)
    thread.start()
    assert first_copy.is_over.wait(_PATIENCE)
    server.execute("INSERT INTO shop.orders VALUES (2, 'new')")
    deadline, rows = time.monotonic() + _PATIENCE, list[dict[str, object]]()
    while not rows and time.monotonic() < deadline:
        time.sleep(0.5)
        if any(tmp_path.glob("[!._]*")):
            rows = [row for batch in walreplay.read_changes(tmp_path) for row in batch.data.to_pylist()]
    recorder.stop()
    thread.join(_PATIENCE)
    assert [(row["id"], row["note"]) for row in rows] == [(2, "new")]
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT FROM shop.orders")


def test_the_loader_exports_a_snapshot_reads_the_tables_and_may_write_none(server: Server) -> None:
    dsn = address(server, "loader")
    holder = Stream(dsn, lambda: False)
    try:
        snapshot = holder.create_slot("once", two_phase=False, failover=False)
        with psycopg.connect(dsn, autocommit=True) as connection, connection.transaction():
            for statement in database.session_statements(snapshot.name).split("; "):
                connection.execute(statement.encode())
            (line,) = connection.execute(f"SELECT * FROM {database.query_of(database.SERVER)}".encode())
            assert database.read_server(line[0]).version == holder.version
            describe = re.sub(r"^\s*--.*$", "", script("describe.sql"), flags=re.MULTILINE)
            lines = [line for (line,) in connection.execute(describe.encode())]
            assert {(line["schema"], line["table"]) for line in lines} == {("shop", "orders")}
            (row,) = connection.execute("SELECT note FROM ONLY shop.orders WHERE id = 1")
            assert row == ("old",)
        with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM shop.orders")
    finally:
        holder.close()
        server.drop_slots("once")

"""A server is set up, recorded and read again as docs/capturing.md says, and the mirrors are what the source holds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.command import program_environment
from support.pages import block, with_places, without_comments
from support.postgres import Server, running_server
from support.truth import assert_equal, mirror_tables, read_tables
from support.waiting import wait_until
from walreplay.recorded_names import RecordedName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.full]

_PATIENCE = 60.0

_TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, day date, at timestamptz, lasts interval, data bytea, price float8)",
    # Equal rows without a key, and values that are stored out of line.
    "CREATE TABLE t (day date, doc text)",
    "ALTER TABLE t REPLICA IDENTITY FULL",
    "ALTER TABLE t ALTER doc SET STORAGE EXTERNAL",
)
_ORDERS = (
    "INSERT INTO orders SELECT n, DATE '2025-12-31' - n, TIMESTAMPTZ '2025-12-31 12:00+00' - n * INTERVAL '1 h', "
    "n * INTERVAL '1 day 1 min', decode(repeat('00ff', n), 'hex'), 1.0 / n FROM generate_series(1, 20) n",
    "UPDATE orders SET price = price / 3 WHERE id % 2 = 0",
    "DELETE FROM orders WHERE id = 7",
)
_OLD = "INSERT INTO t SELECT DATE '2025-12-31', repeat('x', 3000) FROM generate_series(1, 4) n"
_NEW = "DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t)"

_OTHERWISE = {
    "datestyle": "'SQL, DMY'",
    "timezone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "intervalstyle": "postgres_verbose",
    "extra_float_digits": "0",
}
"""What a recorder that sets nothing would send."""


@pytest.fixture
def server() -> Iterator[Server]:
    """Run a server with the page's settings, and others that the page's environment has to overrule."""
    lines = without_comments(block("docs/capturing.md", "wal_level").text).splitlines()
    settings = dict(line.replace(" ", "").split("=") for line in lines)
    with running_server(settings={**_OTHERWISE, **settings}) as running:
        assert all(running.value("SELECT current_setting(%s)", name) == value for name, value in settings.items())
        running.execute("CREATE DATABASE shop")
        running.database = "shop"
        running.execute(*_TABLES)
        yield running


@pytest.fixture
def captures(server: Server) -> Path:
    """Make a folder that the server can write to as well."""
    folder = server.home / "captures"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@contextmanager
def recording(server: Server, captures: Path, file: str | None = None) -> Iterator[int]:
    """Run pg_recvlogical as the page has it, as `running` does."""
    text = with_places(block("docs/capturing.md", "export PGOPTIONS").text, {"/captures/": f"{captures}/"})
    if file is not None:
        text = with_places(text, {"$(date -u +%Y%m%dT%H%M%SZ).bin": file})
    with running(server, captures, text) as group:
        yield group


@contextmanager
def running(server: Server, captures: Path, text: str) -> Iterator[int]:
    """Run a recorder's commands in a shell, whose process group is given, until the block ends."""
    programs = [str(Path(sys.prefix, "bin")), str(server.programs)]
    environment = {
        **program_environment(captures.parent),
        "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
        "PGHOST": str(server.home),
        "PGUSER": "postgres",
        "PGDATABASE": "shop",
    }
    log = captures.with_name("recorder.log")
    with log.open("wb") as output:
        # Interrupted together, as by Ctrl-C: a group of its own, and no answer to it inherited.
        process = subprocess.Popen(
            ["bash", "-euc", text], env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        active = "SELECT 1 FROM pg_replication_slots WHERE active"
        wait_until(lambda: server.rows(active), "the recorder", log.read_text)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(_PATIENCE)
    assert process.returncode in (0, -signal.SIGINT, -signal.SIGKILL), log.read_text()


def holds(captures: Path, text: bytes) -> bool:
    return any(text in file.read_bytes() for file in captures.iterdir())


def run_as_written(server: Server, text: str) -> None:
    """Run a block's statements in one session, as psql would."""
    with server.connect() as connection:
        for statement in without_comments(text, "--").split(";"):
            if statement.strip():
                connection.execute(statement.encode())


def assert_mirrored(spark: SparkSession, server: Server, captures: Path, target: Path, *tables: str) -> None:
    walreplay.apply(spark, captures=captures, target=target)
    sources = [server.source_table("public", table) for table in tables]
    assert_equal(read_tables(spark, mirror_tables(target)), sources)


def test_a_server_that_is_captured_as_the_page_says_is_mirrored(
    spark: SparkSession, server: Server, captures: Path, tmp_path: Path
) -> None:
    run_as_written(server, block("docs/capturing.md", "CREATE PUBLICATION").text)
    server.execute(_OLD)
    with recording(server, captures):
        server.execute(*_ORDERS, "INSERT INTO orders (id, data) VALUES (100, 'the end')")
        log = captures.with_name("recorder.log")
        wait_until(lambda: holds(captures, b"the end".hex().encode()), "the last row", log.read_text)
    assert_mirrored(spark, server, captures, tmp_path / "first", "orders")

    # "Older rows": of a table that was filled before its slot was made, a part is known alone.
    later = captures.with_name("later")
    later.mkdir()
    later.chmod(0o777)
    server.execute("SELECT pg_replication_slot_advance('archive', pg_current_wal_lsn())")
    run_as_written(server, block("docs/capturing.md", "BEGIN;").text)
    server.execute(_NEW)
    copy = block("docs/capturing.md", "SET datestyle = ISO; SET").text
    run_as_written(server, with_places(copy, {"/captures/": f"{later}/"}))
    assert [file.name for file in later.iterdir()] == ["0001.bin"]
    assert_mirrored(spark, server, later, tmp_path / "second", "t")
    shutil.rmtree(later)


def test_a_server_that_is_recorded_as_the_page_says_is_mirrored(
    spark: SparkSession, server: Server, captures: Path, tmp_path: Path
) -> None:
    run_as_written(server, block("docs/capturing.md", "CREATE PUBLICATION").text)
    command = with_places(block("docs/capturing.md", "walreplay record").text, {"/data/captures": captures})
    with running(server, captures, command):
        server.execute(*_ORDERS)
        received = "SELECT 1 FROM pg_stat_replication WHERE write_lsn >= %s::pg_lsn"
        lsn = server.value("SELECT pg_current_wal_lsn()::text")
        log = captures.with_name("recorder.log")
        wait_until(lambda: server.rows(received, lsn), "the last row", log.read_text)
    names = sorted(file.name for file in captures.iterdir())
    assert "`_recorded` beside the files" in Path("docs/capturing.md").read_text()
    assert names.pop() == "_recorded"
    assert [name for name in names if RecordedName.parse(name) is None] == []
    assert_mirrored(spark, server, captures, tmp_path / "mirror", "orders")


def test_files_that_are_rotated_as_the_page_says_are_read_in_their_order(
    spark: SparkSession, server: Server, captures: Path, tmp_path: Path
) -> None:
    run_as_written(server, block("docs/capturing.md", "CREATE PUBLICATION").text)
    log, live = captures.with_name("recorder.log"), captures / ".live"
    assert "`-f /captures/.live`" in Path("docs/capturing.md").read_text()
    command = with_places(block("docs/capturing.md", "cd /captures").text, {"/captures": captures})

    def rotate(group: int, *, is_signalled: bool = True) -> int:
        signalled = f"pkill -HUP -g {group} pg_recvlogical" if is_signalled else "true"
        text = with_places(command, {"pkill -HUP pg_recvlogical": signalled})
        return subprocess.run(["sh", "-euc", text], stderr=subprocess.DEVNULL).returncode

    def record(key: int) -> None:
        text = f"row {key} is there"
        server.execute(f"INSERT INTO orders (id, data) VALUES ({key}, '{text}')")
        hidden = text.encode().hex().encode()
        wait_until(lambda: live.exists() and hidden in live.read_bytes(), text, log.read_text)

    with recording(server, captures, ".live") as group:
        record(1)
        assert rotate(group) == 0
        # There is no other file yet, or an empty one.
        assert rotate(group) != 0
        time.sleep(1.1)
        record(2)
        assert rotate(group) == 0
        assert_mirrored(spark, server, captures, tmp_path / "first", "orders")
        time.sleep(1.1)
        record(3)
        # The recorder dies between the two commands, and writes to the file until then.
        assert rotate(group, is_signalled=False) == 0
        os.killpg(group, signal.SIGKILL)
    time.sleep(1.1)
    with recording(server, captures, ".live") as group:
        record(4)
        # The recorder may have made its next file already.
        finished = lambda: rotate(group) == 0 and len(list(captures.glob("2*.bin"))) == 4  # noqa: E731
        wait_until(finished, "the last file", log.read_text)
    for name in ("first", "second"):
        assert_mirrored(spark, server, captures, tmp_path / name, "orders")

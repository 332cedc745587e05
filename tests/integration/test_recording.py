"""``walreplay record`` loses and doubles nothing, whatever is killed, and never confirms what the store has not.

``WALREPLAY_LONG=200`` makes so many incidents in a course, and not 6; ``WALREPLAY_SEED=n`` is another course.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from support.faulty_store import FaultyStore, faulty_store
from support.object_store import KEYS, object_store
from support.postgres import Server, chosen_versions, running_server
from support.recording import ArchiveBucket, ArchiveFolder, Recorder, Watcher, available, confirmed_lsn, names_of
from support.waiting import wait_until
from walreplay.changes import read_changes
from walreplay.lsn import parse_lsn
from walreplay.recorded_names import broken_chains

pytestmark = [pytest.mark.live, pytest.mark.integration]

_INCIDENTS: Final = int(os.environ.get("WALREPLAY_LONG") or 6)
_SEED: Final = int(os.environ.get("WALREPLAY_SEED") or 0)

_SETUP: Final = (
    "CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text)",
    "CREATE TABLE other (id int)",
    "CREATE PUBLICATION archive FOR TABLE events",
)
_SETTINGS: Final = {
    "logical_decoding_work_mem": "64kB",
    "max_prepared_transactions": "20",
    "wal_sender_timeout": "5s",
}
_OPTIONS: Final = ("--file-seconds", "0.3", "--file-bytes", "100KiB", "--heartbeat", "0.5")


@pytest.fixture(scope="module", params=chosen_versions())
def running(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running_server(request.param, settings=_SETTINGS) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    """A database of its own."""
    running.database = "postgres"
    running.drop_slots()
    if running.rows("SELECT FROM pg_database WHERE datname = 'shop'"):
        running.database = "shop"
        for (gid,) in running.rows("SELECT gid FROM pg_prepared_xacts"):
            running.execute(f"ROLLBACK PREPARED '{gid}'")
        running.database = "postgres"
    running.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'shop'")
    running.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    running.database = "shop"
    running.execute(*_SETUP)
    return running


class _Work:
    """Transactions of all kinds that insert numbered rows, in several connections, until the block ends."""

    def __init__(self, server: Server, seed: int, connections: int = 3) -> None:
        self._server, self._ends = server, threading.Event()
        self._chances = [random.Random(f"{seed}/{number}") for number in range(connections)]
        self._threads = [threading.Thread(target=self._work, args=(chance,)) for chance in self._chances]

    def __enter__(self) -> _Work:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _work(self, chance: random.Random) -> None:
        while not self._ends.is_set():
            # A server that is down, or goes down meanwhile: a commit that was not answered may have happened.
            with suppress(psycopg.OperationalError), self._server.connect() as connection:
                while not self._ends.is_set():
                    self._transaction(connection, chance)
            time.sleep(0.05)

    def _transaction(self, connection: psycopg.Connection[Any], chance: random.Random) -> None:
        gid = f"g{chance.randrange(1 << 60)}" if chance.random() < 0.15 else None
        insert = b"INSERT INTO events (v) SELECT repeat('x', 30) FROM generate_series(1, %s)"
        connection.execute("BEGIN")
        for _ in range(chance.randrange(1, 4)):
            connection.execute("SAVEPOINT s")
            connection.execute(insert, [chance.choice((1, 1, 3, 50, 2_000))])
            if chance.random() < 0.3:
                connection.execute("ROLLBACK TO s")
            time.sleep(chance.random() * 0.01)
        if gid is None:
            connection.execute(b"COMMIT" if chance.random() < 0.9 else b"ROLLBACK")
            return
        connection.execute(f"PREPARE TRANSACTION '{gid}'".encode())
        time.sleep(chance.random() * 0.5)
        if self._ends.is_set() or chance.random() < 0.95:
            connection.execute(f"{chance.choice(('COMMIT', 'ROLLBACK'))} PREPARED '{gid}'".encode())


def _check(archive: ArchiveFolder, server: Server) -> None:
    """Hold an archive against the table, row by row, and its files' names against each other."""
    archive.pull()
    paths = [str(archive.folder / str(name)) for name in names_of(archive.files())]
    assert list(broken_chains(paths)) == []
    recorded: list[int] = []
    for batch in read_changes(paths):
        if batch.relation.name == "events":
            recorded += batch.data.column("id").to_pylist()
    assert len(recorded) == len(set(recorded))
    committed = {number for (number,) in server.rows("SELECT id FROM events")}
    assert set(recorded) == committed
    assert len(committed) > 0


def _settle(server: Server) -> None:
    """Decide what is still prepared, and write one row more, behind all others."""
    with server.connect() as connection:
        for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            connection.execute(f"COMMIT PREPARED '{gid}'".encode())
        connection.execute("INSERT INTO events (v) VALUES ('last')")


def _crash(server: Server, _: Recorder, __: random.Random) -> None:
    server.stop("immediate")
    server.start()


def _restart(server: Server, _: Recorder, __: random.Random) -> None:
    server.stop("fast")  # it waits for what is stored
    server.start()


def _end_session(server: Server, _: Recorder, __: random.Random) -> None:
    server.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")


def _kill(_: Server, recorder: Recorder, __: random.Random) -> None:
    recorder.kill()
    recorder.start()


def _end(_: Server, recorder: Recorder, __: random.Random) -> None:
    # One that is only starting has no answer to the signal yet.
    assert recorder.end() in (0, -signal.SIGTERM), recorder.said()
    recorder.start()


def _pause(_: Server, recorder: Recorder, chance: random.Random) -> None:
    recorder.signal(signal.SIGSTOP)
    time.sleep(chance.choice((0.5, 7.0)))  # also for longer than the server waits
    recorder.signal(signal.SIGCONT)


_HAPPENINGS: Final[Sequence[Callable[[Server, Recorder, random.Random], None]]] = (
    *(_kill, _kill, _kill, _kill, _end, _pause),
    *(_end_session, _crash, _restart),
)


def _as_its_unit(recorder: Recorder) -> None:
    """See that it runs; start it again where there was no server when it was started: so does a system."""
    assert recorder.process is not None
    if recorder.process.poll() is not None:
        *_, last = recorder.said().splitlines()
        assert last.startswith("error: nothing is recorded: connection to server"), recorder.said()
        recorder.start()


def _course(server: Server, recorder: Recorder, seed: int) -> None:
    """Let things happen while there is work, and end when all of it is in the archive."""
    chance = random.Random(seed)
    recorder.start()
    wait_until(lambda: confirmed_lsn(server) is not None, "the slot", recorder.said)
    with _Work(server, seed):
        for _ in range(_INCIDENTS):
            time.sleep(chance.random() * 2)
            _as_its_unit(recorder)
            chance.choice(_HAPPENINGS)(server, recorder, chance)
    _settle(server)
    _as_its_unit(recorder)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="plain", marks=pytest.mark.full),
        pytest.param(("--streaming=on",), id="streamed", marks=pytest.mark.full),
        pytest.param(("--streaming=on", "--streaming=parallel", "--two-phase", "--binary"), id="all"),
    ],
)
def test_what_is_committed_is_recorded_once_whatever_is_killed(
    server: Server, tmp_path: Path, options: Sequence[str]
) -> None:
    archive = ArchiveFolder(tmp_path / "captures")
    form = available(server.version, *options)
    recorder = Recorder(server, str(archive.folder), tmp_path / "log", *_OPTIONS, *form, "--create")
    try:
        with Watcher(server, archive.files).watching():
            _course(server, recorder, _SEED)
            recorder.await_stored(server.lsn(), archive.end)
            assert recorder.end() == 0, recorder.said()
        _check(archive, server)
    finally:
        recorder.kill()


def test_a_commit_that_follows_a_message_of_no_transaction_is_not_taken_for_stored(
    server: Server, tmp_path: Path
) -> None:
    """The message has the LSN at which the commit begins; a recorder that starts again there has to be sent it."""
    if not available(server.version, "--announce"):
        pytest.skip("the server sends no messages")
    archive = ArchiveFolder(tmp_path / "captures")
    recorder = Recorder(server, str(archive.folder), tmp_path / "log", "--file-seconds", "0.1", "--heartbeat", "0")
    recorder.start("--create")
    is_met = False
    try:
        wait_until(lambda: confirmed_lsn(server) is not None, "the slot", recorder.said)
        for _ in range(5):  # once in a while the server writes a record of its own between
            with server.connect() as connection:
                connection.execute("BEGIN")
                connection.execute("INSERT INTO events (v) VALUES ('open')")
                message = parse_lsn(server.rows("SELECT pg_logical_emit_message(false, 'm', '')::text")[0][0])
                recorder.await_stored(message, archive.end)
                assert recorder.end() == 0, recorder.said()
                connection.execute("COMMIT")
            end = server.lsn()
            server.execute("INSERT INTO events (v) VALUES ('last')")
            recorder.start()
            recorder.await_stored(end, archive.end)
            _check(archive, server)
            paths = [str(archive.folder / str(name)) for name in names_of(archive.files())]
            is_met = is_met or any(message in batch.data["__commit_lsn"].to_pylist() for batch in read_changes(paths))
        assert is_met
    finally:
        recorder.kill()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with object_store(tmp_path_factory.mktemp("store")) as store:
        store.make_bucket("archive")
        yield store


def _recorder(server: Server, proxy: FaultyStore, place: str, scratch: Path, *options: str) -> Recorder:
    uri = f"s3://{place}?scheme=http&region=us-east-1&endpoint_override={proxy.endpoint}"
    keys = {"AWS_ACCESS_KEY_ID": KEYS["access"], "AWS_SECRET_ACCESS_KEY": KEYS["secret"]}
    return Recorder(server, uri, scratch / "log", *_OPTIONS, "--file-bytes", "1MiB", *options, environment=keys)


@pytest.mark.full
def test_nothing_is_lost_or_doubled_by_a_store_that_fails(server: Server, store: Any, tmp_path: Path) -> None:
    place = f"archive/faults{server.programs.parent.name}"
    archive = ArchiveBucket(store.endpoint, place, tmp_path / "captures")
    with faulty_store(store.endpoint, _SEED, share=8) as proxy:
        recorder = _recorder(server, proxy, place, tmp_path, "--create")
        try:
            with Watcher(server, archive.files).watching():
                _course(server, recorder, _SEED)
                recorder.await_stored(server.lsn(), archive.end)
                proxy.share = 0
                assert recorder.end() == 0, recorder.said()
            _check(archive, server)
        finally:
            recorder.kill()
    assert len(proxy.faults) > 2


@pytest.mark.full
def test_a_store_that_is_away_is_waited_for_and_nothing_is_confirmed(
    server: Server, store: Any, tmp_path: Path
) -> None:
    place = f"archive/away{server.programs.parent.name}"
    archive = ArchiveBucket(store.endpoint, place, tmp_path / "captures")
    with faulty_store(store.endpoint, _SEED, share=0) as proxy:
        recorder = _recorder(server, proxy, place, tmp_path, "--spool-bytes", "300KiB")
        recorder.start("--create")
        try:
            wait_until(lambda: archive.end() > 0, "a file", recorder.said)
            proxy.is_away = True
            with Watcher(server, archive.files).watching():
                server.execute("INSERT INTO events (v) SELECT repeat('x', 30) FROM generate_series(1, 30000)")
                assert recorder.wait(240) == 1, recorder.said()
                assert "--spool-bytes" in recorder.said()
                proxy.is_away = False
                recorder.start()
                recorder.await_stored(server.lsn(), archive.end)
                assert recorder.end() == 0
            _check(archive, server)
        finally:
            recorder.kill()


def test_a_store_that_lies_is_not_believed(server: Server, store: Any, tmp_path: Path) -> None:
    place = f"archive/lies{server.programs.parent.name}"
    archive = ArchiveBucket(store.endpoint, place, tmp_path / "captures")
    with faulty_store(store.endpoint, _SEED, share=0) as proxy:
        recorder = _recorder(server, proxy, place, tmp_path)
        recorder.start("--create")
        try:
            wait_until(lambda: archive.end() > 0, "a file", recorder.said)
            with Watcher(server, archive.files).watching():
                proxy.lies = True
                server.execute("INSERT INTO events (v) SELECT 'x' FROM generate_series(1, 100)")
                wait_until(lambda: "does not have it" in recorder.said(), "that it is noticed", recorder.said)
                assert (confirmed_lsn(server) or 0) <= archive.end()
                count = len(archive.files())
                for _ in range(8):  # longer than --file-seconds each
                    server.execute("INSERT INTO events (v) VALUES ('later')")
                    time.sleep(0.4)
                end = server.lsn()
                proxy.lies = False
                recorder.await_stored(end, archive.end)
                # What comes behind a file that is not stored yet goes into one file, and not into one for each time.
                names = names_of(archive.files())[count:]
                assert len([name for name in names if name.start_lsn < end]) <= 3
                assert recorder.end() == 0
            _check(archive, server)
        finally:
            recorder.kill()


@pytest.mark.full
def test_a_recorder_goes_on_behind_a_failover(tmp_path: Path) -> None:
    archive = ArchiveFolder(tmp_path / "captures")
    with running_server(settings=_SETTINGS) as primary:
        primary.execute(*_SETUP)
        with primary.followed() as standby:
            both = f"host={primary.home},{standby.home} port=5432,5432 user=postgres dbname=postgres"
            dsn = f"{both} target_session_attrs=read-write"
            recorder = Recorder(primary, str(archive.folder), tmp_path / "log", *_OPTIONS, "--dsn", dsn, "--create")
            recorder.start()
            try:
                wait_until(lambda: confirmed_lsn(primary) is not None, "the slot", recorder.said)
                synced = "SELECT FROM pg_replication_slots WHERE slot_name = 'archive' AND synced AND NOT temporary"

                def is_synced() -> bool:
                    primary.execute("INSERT INTO events (v) VALUES ('more')")
                    time.sleep(0.5)
                    return bool(standby.rows(synced))

                wait_until(is_synced, "the slot at the standby", recorder.said, patience=180)
                with _Work(primary, _SEED):
                    time.sleep(2)
                _settle(primary)
                wait_until(
                    lambda: archive.end() >= primary.lsn(), "all before the failover", recorder.said, patience=120
                )
                primary.stop("immediate")
                standby.promote()
                standby.execute("INSERT INTO events (v) SELECT 'behind' FROM generate_series(1, 1000)")
                recorder.await_stored(standby.lsn(), archive.end)
                assert recorder.end() == 0, recorder.said()
                _check(archive, standby)
                assert '"timeline": 2' in max(archive.folder.glob("_recorded/*.json")).read_text()
            finally:
                recorder.kill()
                primary.start()


@pytest.mark.full
def test_a_standby_that_is_promoted_while_it_is_recorded_goes_on_in_its_own_timeline(tmp_path: Path) -> None:
    archive = ArchiveFolder(tmp_path / "captures")
    with running_server(settings=_SETTINGS) as primary:
        primary.execute(*_SETUP)
        with primary.followed() as standby:
            recorder = Recorder(standby, str(archive.folder), tmp_path / "log", *_OPTIONS)
            recorder.start("--create")
            try:
                # A standby has to see what runs on the primary, before it can make a slot.
                snapshot = "SELECT pg_log_standby_snapshot()"
                wait_until(lambda: primary.rows(snapshot) and confirmed_lsn(standby), "the slot", recorder.said)
                with _Work(primary, _SEED):
                    time.sleep(2)
                _settle(primary)
                end = primary.lsn()
                primary.execute("INSERT INTO events (v) VALUES ('behind')")  # a standby has no heartbeats
                recorder.await_stored(end, archive.end)
                primary.stop("immediate")
                standby.promote()
                with _Work(standby, _SEED):
                    time.sleep(2)
                _settle(standby)
                recorder.await_stored(standby.lsn(), archive.end)
                assert recorder.end() == 0, recorder.said()
                recorder.start()
                standby.execute("INSERT INTO events (v) VALUES ('behind')")
                recorder.await_stored(standby.lsn(), archive.end)
                assert recorder.end() == 0, recorder.said()
                _check(archive, standby)
                assert "the standby was promoted" in recorder.said()
                assert '"timeline": 2' in max(archive.folder.glob("_recorded/*.json")).read_text()
            finally:
                recorder.kill()
                primary.start()


_SLOT: Final = "SELECT pg_create_logical_replication_slot('archive', 'pgoutput')"
_REFUSALS: Final[dict[str, tuple[Sequence[str], Sequence[str], int, str]]] = {
    "no slot": ((), (), 1, "there is no slot archive.*--create"),
    "no publication": (("DROP PUBLICATION archive",), ("--create",), 2, "there is no publication archive"),
    "another database": (
        ("SELECT pg_create_logical_replication_slot('archive', 'pgoutput')",),
        (),
        2,
        "the database shop",
    ),
    "not of two phases": ((_SLOT,), ("--two-phase",), 2, "was not made for --two-phase"),
    "a folder that is not empty": ((), ("--create", "--and-copy", "{scratch}"), 2, "it is not empty"),
    "no such size": ((), ("--file-bytes", "many"), 2, "is no size"),
    "a copy without a slot": ((), ("--and-copy", "base"), 2, "--create, too"),
    "a password in a damaged address": ((), ("--dsn", "host=a pass word=secret"), 2, "--dsn cannot be read"),
    "no server": ((), ("--dsn", "host=/nowhere"), 1, "nothing is recorded"),
    "no place": ((), ("--to", "ftp://u:secret@host/x"), 2, "nothing here reaches"),
}


@pytest.mark.parametrize("name", _REFUSALS)
def test_what_cannot_be_recorded_is_said_and_nothing_is_left(server: Server, tmp_path: Path, name: str) -> None:
    statements, options, code, said = _REFUSALS[name]
    if name == "not of two phases" and not available(server.version, "--two-phase"):
        said = "has no two_phase"
    server.execute(*statements)
    if name == "another database":
        server.database = "postgres"
        server.execute("DROP PUBLICATION IF EXISTS archive", "CREATE PUBLICATION archive")
    slots = server.rows("SELECT slot_name FROM pg_replication_slots")
    recorder = Recorder(server, str(tmp_path / "captures"), tmp_path / "log")
    recorder.start(*(option.format(scratch=tmp_path) for option in options))
    assert recorder.wait() == code, recorder.said()
    assert re.search(said, recorder.said()), recorder.said()
    assert "secret" not in recorder.said()
    assert server.rows("SELECT slot_name FROM pg_replication_slots") == slots


def test_announcements_are_refused_where_a_server_does_not_send_them(server: Server, tmp_path: Path) -> None:
    if available(server.version, "--announce"):
        pytest.skip("needs a server before PostgreSQL 14 (WALREPLAY_SERVERS)")
    recorder = Recorder(server, str(tmp_path / "captures"), tmp_path / "log", "--create", "--announce")
    recorder.start()
    assert recorder.wait() == 1
    assert "would not send announcements" in recorder.said()
    assert confirmed_lsn(server) is None  # no slot


def test_a_slot_that_was_made_anew_needs_a_new_session_whose_name_says_what_is_missing(
    server: Server, tmp_path: Path
) -> None:
    archive = ArchiveFolder(tmp_path / "captures")
    recorder = Recorder(server, str(archive.folder), tmp_path / "log", *_OPTIONS)
    try:
        recorder.start("--create")
        wait_until(lambda: archive.end() > 0, "a file", recorder.said)
        assert recorder.end() == 0, recorder.said()
        server.drop_slots()
        server.execute("INSERT INTO events (v) VALUES ('never recorded')")
        for options in ((), ("--create",)):
            recorder.start(*options)
            assert recorder.wait() == 1
            assert "--new-session" in recorder.said()
        server.execute("SELECT pg_create_logical_replication_slot('archive', 'pgoutput')")
        recorder.start()
        assert recorder.wait() == 1
        assert "was made anew" in recorder.said()
        recorder.start("--new-session")
        server.execute("INSERT INTO events (v) VALUES ('recorded')")
        recorder.await_stored(server.lsn(), archive.end)
        assert recorder.end() == 0, recorder.said()
        (gap,) = [name for name in names_of(archive.files()) if name.follows_gap]
        assert gap.start_lsn > 0
    finally:
        recorder.kill()


def test_two_recorders_of_one_slot_or_of_one_archive_are_kept_apart(server: Server, tmp_path: Path) -> None:
    archive = ArchiveFolder(tmp_path / "captures")
    first, second = (Recorder(server, str(archive.folder), tmp_path / f"log{number}", *_OPTIONS) for number in (1, 2))
    try:
        first.start("--create")
        wait_until(lambda: archive.end() > 0, "a file", first.said)
        server.execute("SELECT pg_create_logical_replication_slot('other', 'pgoutput')")
        second.start("--slot", "other")
        assert second.wait() == 1
        assert "the slot archive (since" in second.said()
        # Of one slot, the second waits until it has it.
        second.start()
        wait_until(lambda: "slot in use" in second.said(), "that it waits", second.said)
        first.kill()
        wait_until(lambda: "INFO recording" in second.said(), "that it takes over", second.said)
        server.execute("INSERT INTO events (v) VALUES ('last')")
        second.await_stored(server.lsn(), archive.end)
        assert second.end() == 0, second.said()
        _check(archive, server)
    finally:
        first.kill()
        second.kill()


def test_a_disk_that_is_full_loses_nothing(server: Server, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    archive = ArchiveFolder(disk / "captures")
    recorder = Recorder(server, str(archive.folder), tmp_path / "log", *_OPTIONS)
    try:
        recorder.start("--create")
        wait_until(lambda: archive.end() > 0, "a file", recorder.said)
        with Watcher(server, archive.files).watching():
            for _ in range(40):
                server.execute("INSERT INTO events (v) SELECT md5(random()::text) FROM generate_series(1, 500)")
            wait_until(lambda: "No space left" in recorder.said(), "that it is full", recorder.said)
            subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
            recorder.await_stored(server.lsn(), archive.end)
            assert recorder.end() == 0, recorder.said()
        _check(archive, server)
    finally:
        recorder.kill()
        subprocess.run(["umount", str(disk)], check=True)

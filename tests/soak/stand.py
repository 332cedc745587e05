"""All that runs in a leg: the server, its subscriber, perhaps a standby, the network, the store and the recorder."""

from __future__ import annotations

import copy
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from soak import evolving, traffic
from soak.journal import Journal
from soak.link import Link, link_to
from support.faulty_store import FaultyStore, faulty_store
from support.object_store import KEYS, object_store
from support.postgres import Server, running_server, server_versions
from support.recording import SLOT, ArchiveBucket, ArchiveFolder, Recorder, available
from support.waiting import wait_until
from walreplay.lsn import format_lsn

PUBLICATION: Final = "everything"
ORACLE: Final = "oracle"

_SERVER: Final = {
    "logical_decoding_work_mem": "64kB",
    "max_prepared_transactions": "30",
    "max_connections": "60",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "wal_sender_timeout": "5s",
}
_SUBSCRIBER: Final = {
    "wal_receiver_timeout": "10s",
    "wal_retrieve_retry_interval": "500ms",
    "max_worker_processes": "24",
    "max_logical_replication_workers": "12",
}
_FAILOVER: Final = 17
_MOST_FAULTS: Final = 5
_RECORDING: Final = ("--file-seconds", "5", "--file-bytes", "300KiB", "--heartbeat", "2")
_FORMS: Final = (
    (),
    ("--streaming=on",),
    ("--streaming=on", "--streaming=parallel", "--two-phase"),
    ("--streaming=on", "--binary"),
    ("--streaming=on", "--streaming=parallel", "--two-phase", "--binary"),
)


class OracleFailed(Exception):
    """The subscriber cannot go on, by a fault of PostgreSQL's."""


@dataclass(frozen=True)
class Draw:
    """What a seed makes of a leg.

    Attributes:
        kinds: of work (`traffic.KINDS`).
        form: options of the recorder.
        via_root: partitions are published as their root.
        has_store: the archive is in an object store, behind a proxy with faults; else a folder.
        fault_share: of so many requests of the store one meets a fault.
        begins_with_rows: the tables have rows before the slot is made, which are copied and loaded.
        has_standby: it is promoted in the middle.
        has_ddl: tables change (`evolving`), which makes runs much longer.
    """

    version: int
    kinds: Sequence[str]
    form: Sequence[str]
    via_root: bool
    has_store: bool
    fault_share: int
    begins_with_rows: bool
    has_standby: bool
    has_ddl: bool

    @classmethod
    def of(cls, seed: int) -> Draw:
        chance = random.Random(f"{seed}/leg")
        newest = server_versions()[-1]
        version = chance.choice((newest, newest, *server_versions()))
        return cls(
            version,
            chance.sample(traffic.KINDS, 2),
            available(version, *chance.choice(_FORMS)),
            chance.random() < 0.5,
            chance.random() < 0.6,
            chance.choice((4, 8, 20)),
            chance.random() < 0.5,
            chance.random() < 0.6 and version >= _FAILOVER,
            chance.random() < 0.5,
        )


class Stand:
    """All that runs.

    Attributes:
        server: the publisher; behind a failover the promoted standby.
        recorder_link, oracle_link: how the recorder and the subscriber reach it.
        copies: the folder of the rows that the recorder has copied; None: the tables were empty.
        proxy: in front of the store; None for a folder.
    """

    def __init__(self, draw: Draw, seed: int, folder: Path, journal: Journal) -> None:
        self.draw, self.seed, self.folder, self.journal = draw, seed, folder, journal
        self.server: Server
        self.subscriber: Server
        self.standby: Server | None = None
        self.recorder_link: Link
        self.oracle_link: Link
        self.archive = ArchiveFolder(folder / "captures")
        self.proxy: FaultyStore | None = None
        self.recorder: Recorder
        self.traffic: traffic.Traffic
        self.evolving: evolving.Evolving
        self.copies = folder / "base" if draw.begins_with_rows else None

    @contextmanager
    def running(self) -> Iterator[Stand]:
        """Start all; the work has begun."""
        with ExitStack() as stack:
            primary = stack.enter_context(running_server(self.draw.version, _SERVER))
            stack.callback(self._end_primary, primary)
            self.server = copy.copy(primary)
            self.subscriber = stack.enter_context(running_server(None, {**_SERVER, **_SUBSCRIBER}))
            stack.callback(self._keep_logs, primary)
            self.recorder_link = stack.enter_context(link_to(self.server))
            self.oracle_link = stack.enter_context(link_to(self.server))
            self._make_tables()
            self.traffic = traffic.Traffic(self.server, self.seed, self.draw.kinds)
            self.evolving = evolving.Evolving(self.server, self.subscriber, self.seed, self.is_even, self.journal)
            if self.draw.has_standby:
                self.standby = stack.enter_context(primary.followed())
            if self.draw.begins_with_rows:
                self._fill()
            self._subscribe()
            if self.draw.has_ddl:
                self.traffic.add(self.evolving.burst)
            place = self._place(stack)
            self._record(place, stack)
            yield self

    def _end_primary(self, primary: Server) -> None:
        with suppress(AssertionError):
            primary.start()  # `running_server` ends one that runs, and it may have been left

    def _keep_logs(self, primary: Server) -> None:
        for name, server in (("publisher", primary), ("promoted", self.standby), ("subscriber", self.subscriber)):
            if server is not None and server.log.exists():
                shutil.copy(server.log, self.folder / f"{name}.log")

    def _make_tables(self) -> None:
        by_root = "true" if self.draw.via_root else "false"
        options = f"WITH (publish_via_partition_root = {by_root})"
        self.server.execute(*traffic.SETUP, *evolving.SETUP, *traffic.ORIGINS)
        self.server.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES {options}")
        self.subscriber.execute(*traffic.SUBSCRIBER_SETUP, *evolving.SETUP)

    def _fill(self) -> None:
        self.traffic.fill()
        self.traffic.settle()

    def _subscribe(self) -> None:
        copies = "true" if self.draw.begins_with_rows else "false"
        failover = ", failover = true" if self.draw.version >= _FAILOVER else ""
        address = self.oracle_link.dsn(application_name=ORACLE)
        self.subscriber.execute(
            f"CREATE SUBSCRIPTION {ORACLE} CONNECTION '{address}' PUBLICATION {PUBLICATION}"
            f" WITH (copy_data = {copies}, streaming = {random.Random(self.seed).choice(('on', 'off'))}{failover})"
        )
        ready = "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"
        wait_until(lambda: self.subscriber.value(ready), "the subscription", self._subscriber_log, patience=180)

    def _subscriber_log(self) -> str:
        return self.subscriber.log.read_text()[-3000:]

    def _place(self, stack: ExitStack) -> str:
        if not self.draw.has_store:
            return str(self.archive.folder)
        store = stack.enter_context(object_store(self.folder))
        store.make_bucket("archive")
        self.archive = ArchiveBucket(store.endpoint, "archive/captures", self.folder / "captures")
        self.proxy = stack.enter_context(faulty_store(store.endpoint, self.seed, share=self.draw.fault_share))
        return f"s3://archive/captures?scheme=http&region=us-east-1&endpoint_override={self.proxy.endpoint}"

    def _record(self, place: str, stack: ExitStack) -> None:
        keys = {"AWS_ACCESS_KEY_ID": KEYS["access"], "AWS_SECRET_ACCESS_KEY": KEYS["secret"]}
        given = ("--dsn", self.recorder_link.dsn(), *_RECORDING, *self.draw.form)
        log = self.folder / "recorder.log"
        self.recorder = Recorder(self.server, place, log, *given, publication=PUBLICATION, environment=keys)
        stack.callback(lambda: self.recorder.kill())
        copies = ("--and-copy", str(self.copies)) if self.copies else ()
        self.recorder.start("--create", "--announce", *copies)
        copied = f"{self.copies}.lsn"
        wait_until(lambda: self.archive.end() > 0, "a first file", self.recorder.said, patience=180)
        wait_until(lambda: not self.copies or Path(copied).exists(), "the copies", self.recorder.said, patience=180)

    def supervise(self) -> None:
        """Start the recorder again if it has ended by itself, as a system would."""
        assert self.recorder.process is not None
        if self.recorder.process.poll() is not None:
            last = self.recorder.said().splitlines()[-1:]
            self.journal.note("recorder ended by itself", f"{self.recorder.process.returncode} {last}")
            self.recorder.start()

    def is_even(self, patience: float) -> bool:
        """Return whether the subscriber comes up to now within so many seconds."""
        deadline = time.monotonic() + patience
        query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        lsn = ""
        while time.monotonic() < deadline:
            try:
                if not lsn:
                    self.server.execute("SELECT pg_logical_emit_message(true, 'flush', '')")
                    lsn = format_lsn(self.server.lsn())
                if any(held for (held,) in self.server.rows(query, lsn, ORACLE)):
                    return True
                self.server.execute("SELECT pg_log_standby_snapshot()" if self.draw.version >= 16 else "SELECT 1")
            except psycopg.OperationalError:
                lsn = ""
            time.sleep(0.2)
        return False

    @property
    def has_failed(self) -> bool:
        """Whether the subscriber ends by a fault of its own, again and again at one place."""
        return self.subscriber.log.read_text().count("terminated by signal 11") > _MOST_FAULTS

    def await_readers(self, lsn: int) -> None:
        """Wait until the subscriber and the archive have all up to an LSN."""
        wait_until(lambda: self.is_even(5) or self.has_failed, "the subscriber", self._subscriber_log, patience=300)
        if self.has_failed:
            raise OracleFailed(self._subscriber_log())
        self.recorder.await_stored(lsn, self.archive.end)
        self.archive.pull()

    def slots_are_synced(self) -> bool:
        """Return whether the standby has both slots for good."""
        query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = ANY(%s) AND synced AND NOT temporary"
        assert self.standby is not None
        return bool(self.standby.value(query, [SLOT, ORACLE]) == 2)

    def fail_over(self) -> None:
        """Crash the server, and promote its standby, which is the server from then on."""
        assert self.standby is not None
        with self.traffic.paused(self.evolving.burst):
            # The subscriber has had its DDL already.
            lsn = format_lsn(self.server.lsn())
            replayed = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            wait_until(lambda: self.standby and self.standby.value(replayed, lsn), "the standby", patience=120)
            self.server.stop("immediate")
            self.standby.promote()
            self.server.home, self.server.settings = self.standby.home, self.standby.settings

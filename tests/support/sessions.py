"""Record what real servers send across streams, prepared transactions and reconnects: captures and their truth.

A `Scenario` says how; the server's timing makes each recording differ.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.captures import Case
from support.postgres import Server, running_server
from support.recorders import CopyOut, DecodingFailed, PgRecvlogical, Recorder, Walsender
from support.streamed_workload import ORIGINS, SCHEMA, SETUP, Mix, Workload, decide_all, hold, prepare_nothing
from support.truth import SourceTable
from support.workload import PUBLICATION, PUBLISH
from support.workload import SCHEMAS as WORKLOAD_SCHEMAS
from support.workload import SETUP as WORKLOAD_SETUP
from walreplay.errors import TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

SCHEMAS: Final = (*WORKLOAD_SCHEMAS, SCHEMA)

WRITERS: Final = ("pg_recvlogical", "walsender", "copy")

LOST, TORN, STOPPED, TERMINATED, RESTARTED, CRASHED, ROTATED = (
    "lost",  # the recorder is killed
    "torn",  # and so is its machine: the end of the file is missing
    "stopped",  # the recorder ends as it should
    "terminated",  # the server ends the connection
    "restarted",  # is restarted
    "crashed",  # crashes
    "rotated",  # nothing ends, but a new file begins
)
_BY_SERVER: Final = (TERMINATED, RESTARTED, CRASHED)


@dataclass(frozen=True)
class Break:
    """Something that happens to a recorder.

    Attributes:
        new_file: what comes next goes into another file.
        settled: all that the server had to send is in the file by then.
    """

    ending: str
    new_file: bool
    settled: bool


@dataclass(frozen=True)
class Scenario:
    """How to record.

    Attributes:
        writer: one of `WRITERS`.
        confirms_every: seconds between the messages that tell the server what need not come again.
        reconnects: pg_recvlogical begins a new session by itself.
        streaming: ``off``, ``on`` or ``parallel``.
        undecided: a transaction stays prepared from the beginning to the end, so that the server never finds out which
            older ones a crash has ended.
    """

    seed: int
    version: int
    writer: str = "pg_recvlogical"
    framing: Framing = Framing.RECVLOGICAL
    confirms_every: int = 1
    reconnects: bool = False
    streaming: str = "on"
    two_phase: bool = False
    messages: bool = False
    origins: bool = False
    undecided: bool = True
    breaks: tuple[Break, ...] = ()
    transactions: int = 2
    rows: int = 200

    @property
    def protocol(self) -> int:
        """The lowest version of the protocol that can do this."""
        return 4 if self.streaming == "parallel" else 3 if self.two_phase else 2 if self.streaming == "on" else 1

    @property
    def options(self) -> dict[str, str]:
        """What the output plugin is asked for."""
        options = {"proto_version": str(self.protocol), "publication_names": PUBLICATION}
        if self.streaming != "off":
            options["streaming"] = self.streaming
        if self.two_phase:
            options["two_phase"] = "true"
        if self.messages:
            options["messages"] = "true"
        return options


@dataclass(frozen=True)
class Recording:
    """What was recorded, and what the source's tables hold at the end."""

    scenario: Scenario
    case: Case
    tables: list[SourceTable]

    def tags(self) -> Counter[str]:
        """Count the messages of all sessions by their tags; A(sub) and A(top) are Stream Aborts."""
        return Counter(
            _tag(message) for stream in self.case.streams() for message in _whole_messages(stream, self.case)
        )


def _whole_messages(stream: bytes, case: Case) -> Iterator[m.AnyMessage]:
    with suppress(TruncatedMessage):
        for _, message in read_stream(stream, framing=case.framing):
            yield message


def _tag(message: m.AnyMessage) -> str:
    if isinstance(message, m.StreamAbort):
        return "A(top)" if message.xid == message.subxid else "A(sub)"
    return message.tag


# Recording.


_ATTEMPTS: Final = 5


def record(scenario: Scenario, folder: Path) -> Recording:
    """Record a scenario into a folder that must not be there yet."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _record(scenario, folder)
        except DecodingFailed:
            shutil.rmtree(folder)
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError


def _record(scenario: Scenario, folder: Path) -> Recording:
    folder.mkdir(parents=True)
    settings = {
        "logical_decoding_work_mem": "64kB",
        "max_prepared_transactions": "20",
        "lock_timeout": "20s",
        # What is not flushed cannot be decoded; this makes it come while transactions are open.
        "wal_writer_delay": "10ms",
    }
    with running_server(scenario.version, settings) as server:
        server.execute(*WORKLOAD_SETUP, *SETUP, PUBLISH)
        if scenario.origins:
            server.execute(*(f"SELECT pg_replication_origin_create('{name}')" for name in ORIGINS))
        recorder = _recorder(scenario, server, folder)
        # A server that cannot decode its WAL ends the scenario while the recorder runs.
        with closing(recorder):
            _work(scenario, server, recorder)
        tables = server.source_tables(*SCHEMAS)
    sessions = tuple(tuple(folder / name for name in names) for names in recorder.sessions())
    files = tuple(path for paths in sessions for path in paths)
    starts = {"session_starts": recorder.session_starts()}
    return Recording(scenario, Case(folder.name, files, sessions, recorder.framing, {}, starts), tables)


def _recorder(scenario: Scenario, server: Server, folder: Path) -> Recorder:
    if scenario.writer == "copy":
        chance = random.Random(scenario.seed)
        return CopyOut(server, folder, scenario.options, chance=chance, peeks=0.3)
    every = scenario.confirms_every
    if scenario.writer == "walsender":
        return Walsender(server, folder, scenario.options, confirms_every=every / 10, framing=scenario.framing)
    return PgRecvlogical(server, folder, scenario.options, confirms_every=every, reconnects=scenario.reconnects)


def _work(scenario: Scenario, server: Server, recorder: Recorder) -> None:
    chance = random.Random(scenario.seed)
    mix = Mix(
        scenario.seed,
        gates=max(1, len(scenario.breaks)),
        prepares=True,
        origins=scenario.origins,
        messages=scenario.messages,
        transactions=scenario.transactions,
        rows=scenario.rows,
    )
    recorder.begin()
    if scenario.undecided:
        hold(server)
    with Workload(server, mix) as workload:
        for item in scenario.breaks:
            with workload.stopped(lambda item=item: _lose(item, server, recorder, chance)):
                if item.ending not in (ROTATED, *_BY_SERVER):
                    recorder.begin()
        if not scenario.breaks:
            with workload.stopped(recorder.wait_until_sent):
                pass
    decide_all(server, chance)
    prepare_nothing(server)
    server.execute("INSERT INTO big.side (v) VALUES ('the end')")
    end = server.lsn()
    recorder.flush()
    recorder.complete(end)


def _lose(item: Break, server: Server, recorder: Recorder, chance: random.Random) -> None:
    """Break a session, and tear and change its file; only what the server breaks begins again at once."""
    if item.settled:
        recorder.wait_until_sent()
    else:
        recorder.flush()
        time.sleep(chance.random() * 0.2)
    if item.ending == ROTATED:
        if isinstance(recorder, PgRecvlogical):
            recorder.rotate()
    elif item.ending in _BY_SERVER:
        recorder.lose_server(lambda: _break_server(item.ending, server), new_file=item.new_file)
    else:
        if item.ending == STOPPED:
            recorder.stop()
        else:
            recorder.lose()
        if item.ending == TORN:
            recorder.tear(chance)
        if item.new_file:
            recorder.next_file()


def _break_server(ending: str, server: Server) -> None:
    if ending == TERMINATED:
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        return
    server.stop("immediate" if ending == CRASHED else "fast")
    server.start()
    if ending == CRASHED:
        # Only what tells of the running transactions tells decoding which have ended; it comes every 15 seconds.
        server.execute("SELECT pg_log_standby_snapshot()")

"""Record what real servers send across streams, prepared transactions and reconnects: captures and their truth.

A `Scenario` says how; drawn from a seed, no two are alike, and the server's timing makes each recording differ.
The folder that a recording leaves has the layout of ``tests/captures``.  From the command line::

    PYTHONPATH=lib:tests python -m support.sessions OUT --seed 1 --count 20
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from support import captures
from support.captures import Case
from support.postgres import Server, running_server, server_versions
from support.recorders import CopyOut, DecodingFailed, PgRecvlogical, Recorder, Walsender
from support.reference import Replay
from support.streamed_workload import ORIGINS, SCHEMA, SETUP, Mix, Workload, decide_all, hold, prepare_nothing
from support.truth import SourceTable, arrow_table, row_difference, row_images, source_tables
from support.workload import PUBLICATION, PUBLISH
from support.workload import SCHEMAS as WORKLOAD_SCHEMAS
from support.workload import SETUP as WORKLOAD_SETUP
from walreplay.errors import TruncatedMessage
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

SCHEMAS: Final = (*WORKLOAD_SCHEMAS, SCHEMA)

WRITERS: Final = ("pg_recvlogical", "walsender", "copy")

LOST, TORN, STOPPED, TERMINATED, RESTARTED, CRASHED, ROTATED = ENDINGS = (
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
    transactions: int = 3
    rows: int = 300

    @property
    def name(self) -> str:
        """A name for a folder."""
        extras = [name for name in ("two_phase", "messages", "origins") if getattr(self, name)]
        endings = [item.ending for item in self.breaks]
        parts = [f"s{self.seed:04}", self.framing.value, f"streaming_{self.streaming}", *extras, *endings]
        return "_".join([*parts, f"pg{self.version}"])

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


def draw(seed: int, version: int | None = None, **fixed: Any) -> Scenario:
    """Draw a scenario; what is given is not drawn."""
    chance = random.Random(seed)
    writer = fixed.get("writer") or chance.choice(
        ("pg_recvlogical", "pg_recvlogical", "walsender", "walsender", "copy")
    )
    framing = {
        "pg_recvlogical": Framing.RECVLOGICAL,
        "walsender": chance.choice((Framing.COPYDATA, Framing.RAW, Framing.RECVLOGICAL)),
        "copy": Framing.PGCOPY,
    }[writer]
    reconnects = writer == "pg_recvlogical" and chance.random() < 0.3
    drawn = Scenario(
        seed=seed,
        version=version or chance.choice(server_versions()),
        writer=writer,
        framing=framing,
        confirms_every=chance.choice((1, 3600)),
        reconnects=reconnects,
        streaming=chance.choice(("on", "parallel", "parallel", "off")),
        two_phase=chance.random() < 0.6,
        messages=chance.random() < 0.3,
        origins=chance.random() < 0.3,
        undecided=chance.random() < 0.5,
        breaks=tuple(_draw_break(chance, writer, reconnects) for _ in range(chance.randrange(5))),
    )
    return replace(drawn, **{name: value for name, value in fixed.items() if value is not None})


def _draw_break(chance: random.Random, writer: str, reconnects: bool) -> Break:
    endings = {
        "pg_recvlogical": ENDINGS,
        "walsender": (LOST, LOST, TORN, STOPPED, TERMINATED, CRASHED),
        "copy": (LOST, LOST, STOPPED, CRASHED),
    }[writer]
    ending = chance.choice(_BY_SERVER if reconnects and chance.random() < 0.6 else endings)
    new_file = ending == ROTATED or chance.random() < 0.5
    return Break(ending, new_file, settled=chance.random() < 0.5)


# Recording.


_ATTEMPTS: Final = 5


def record(scenario: Scenario, folder: Path) -> Case:
    """Record a scenario into a folder that must not be there yet; give what is in it."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _record(scenario, folder)
        except DecodingFailed:
            shutil.rmtree(folder)
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError


def _record(scenario: Scenario, folder: Path) -> Case:
    capture = folder / "capture"
    capture.mkdir(parents=True)
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
        recorder = _recorder(scenario, server, capture)
        start = server.lsn()
        # A server that cannot decode its WAL ends the scenario while the recorder runs.
        with closing(recorder):
            _work(scenario, server, recorder)
        tables = server.source_tables(*SCHEMAS)
        identities = _identities(server)
        end = server.lsn()
        version = server.value("SHOW server_version")
    info = {
        **_described(scenario),
        "server_version": version,
        "framing": recorder.framing.value,
        "sessions": recorder.sessions(),
        "session_starts": recorder.session_starts(),
        "start_lsn": format_lsn(start),
        "end_lsn": format_lsn(end),
        "tables": [_table_info(table, identities[table.qualified_name]) for table in tables],
    }
    (folder / "truth").mkdir()
    for table in tables:
        (folder / _truth_file(table)).write_text(_csv(table), encoding="utf-8")
    _write_info(folder, info)
    case = captures.load(folder)
    _write_info(folder, {**info, **_counted(case)})
    return captures.load(folder)


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


# The folder.


def _described(scenario: Scenario) -> dict[str, Any]:
    return {
        "case": scenario.name,
        "scenario": {**asdict(scenario), "framing": scenario.framing.value},
        "seed": scenario.seed,
        "recorded_with": scenario.writer,
        "proto_version": scenario.protocol,
        "options": scenario.options,
        "session_starts_note": "where each session begins in the joined files; a file can hold several",
        "starts_from_empty_tables": True,
    }


_IDENTITIES = """
SELECT n.nspname || '.' || c.relname,
    CASE c.relreplident WHEN 'd' THEN 'default' WHEN 'f' THEN 'full' WHEN 'i' THEN 'index' ELSE 'nothing' END,
    ARRAY(SELECT a.attname::text FROM pg_index i JOIN unnest(i.indkey) WITH ORDINALITY k(attnum, place) ON true
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
        WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY k.place)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%s) AND c.relkind = 'r'
"""


def _identities(server: Server) -> dict[str, tuple[str, list[str]]]:
    """Give each table's replica identity and primary key."""
    with server.connect() as connection:
        rows = connection.execute(_IDENTITIES, [list(SCHEMAS)]).fetchall()
    return {name: (identity, key) for name, identity, key in rows}


def _table_info(table: SourceTable, identity: tuple[str, list[str]]) -> dict[str, Any]:
    types: dict[str, dict[str, Any]] = {}
    for column in table.columns:
        types[column.name] = {"type": column.type}
        if column.base is not None:
            types[column.name]["base"] = column.base
        if column.user_array:
            types[column.name]["user_array"] = True
    return {
        "table": table.qualified_name,
        "schema": table.schema,
        "name": table.name,
        "truth": _truth_file(table),
        "rows": len(table.rows),
        "replica_identity": identity[0],
        "primary_key": identity[1],
        "identity_key": list(table.key),
        "columns": [column.name for column in table.columns],
        "column_types": types,
        "row_filter": None,
    }


def _truth_file(table: SourceTable) -> str:
    return f"truth/{table.qualified_name}.csv"


def _csv(table: SourceTable) -> str:
    rows = sorted(table.rows, key=lambda row: [(value is not None, value or "") for value in row])
    lines = [[column.name for column in table.columns], *rows]
    return "".join(",".join(map(_csv_value, line)) + "\n" for line in lines)


def _csv_value(value: str | None) -> str:
    return r"\N" if value is None else '"' + value.replace('"', '""') + '"'


def _write_info(folder: Path, info: Mapping[str, Any]) -> None:
    (folder / "case.json").write_text(json.dumps(info, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _counted(case: Case) -> dict[str, Any]:
    """Count what the sessions hold."""
    replayed = replayed_case(case)
    messages = [list(_whole_messages(stream, case.framing)) for stream in case.streams()]
    tags = Counter(_tag(message) for session in messages for message, _ in session)
    torn = [number for number, session in enumerate(messages) if session and session[-1][1]]
    return {
        "last_frame_torn_in_sessions": torn,
        "transactions_committed": len(replayed.applied),
        "transactions_resent": replayed.resent,
        "prepared_unresolved_at_end": len(replayed.prepared),
        "aborts_of_nothing": replayed.aborts_of_nothing,
        "empty_and_late": replayed.empty_and_late,
        "commits_without_prepare": len(replayed.unprepared),
        "left_open_by_session": replayed.left_open,
        "tags": dict(sorted(tags.items())),
        "exact": difference(case, replayed) is None,
    }


def _whole_messages(stream: bytes, framing: Framing) -> Iterator[tuple[m.AnyMessage | None, bool]]:
    """Give a session's messages; None and True stand for one that is cut off."""
    try:
        for _, message in read_stream(stream, framing=framing):
            yield message, False
    except TruncatedMessage:
        yield None, True


def _tag(message: m.AnyMessage | None) -> str:
    if message is None:
        return "torn"
    if isinstance(message, m.StreamAbort):
        return "A(top)" if message.xid == message.subxid else "A(sub)"
    return message.tag


# Is it right?


def replayed_case(case: Case) -> Replay:
    """Replay all sessions of a case."""
    replayed = Replay()
    for stream in case.streams():
        replayed.session(stream, case.framing)
    return replayed


def replayed_sources(case: Case, replayed: Replay) -> list[SourceTable]:
    """Give the source's tables that a committed transaction has changed, with the rows that a replay gave."""
    tables = replayed.by_name()
    return [
        replace(source, rows=[row.values for row in tables[source.qualified_name].rows])
        for source in source_tables(case)
        if source.qualified_name in tables
    ]


def difference(case: Case, replayed: Replay) -> str | None:
    """Describe how a replay differs from the source's tables."""
    rows = {table.qualified_name: table for table in replayed_sources(case, replayed)}
    for source in source_tables(case):
        actual = rows.get(source.qualified_name, replace(source, rows=[]))
        found = row_difference(source, row_images(source, arrow_table(actual)), row_images(source, arrow_table(source)))
        if found is not None:
            return found
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Record scenarios and replay each of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="OUT", help="where each recording gets a folder")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--version", type=int, choices=server_versions(), help="PostgreSQL's major version")
    parser.add_argument("--writer", choices=WRITERS)
    parser.add_argument("--streaming", choices=("off", "on", "parallel"))
    parser.add_argument("--rows", type=int, help="rows of a big change at most")
    parser.add_argument("--transactions", type=int, help="of each connection around each break")
    arguments = vars(parser.parse_args(argv))
    folder, first, count = (arguments.pop(name) for name in ("folder", "seed", "count"))
    wrong = 0
    for seed in range(first, first + count):
        scenario = draw(seed, **arguments)
        with suppress(FileNotFoundError):
            shutil.rmtree(folder / scenario.name)
        began = time.monotonic()
        case = record(scenario, folder / scenario.name)
        found = difference(case, replayed_case(case))
        wrong += found is not None
        print(f"{case.name}: {_summary(case)}, {time.monotonic() - began:.0f} s", flush=True)
        if found is not None:
            print(found, flush=True)
    return 1 if wrong else 0


def _summary(case: Case) -> str:
    info = case.info
    size = sum(file.stat().st_size for file in case.files)
    sessions = len(info["session_starts"])
    counts = Counter(info["tags"])
    return (
        f"{size:,} bytes, {len(case.files)} files, {sessions} sessions, {info['transactions_committed']} transactions"
        f" ({info['transactions_resent']} again), {counts['S']} blocks, {counts['A(sub)']}+{counts['A(top)']} aborts,"
        f" {counts['P'] + counts['p']} prepared, torn {info['last_frame_torn_in_sessions']}"
    )


if __name__ == "__main__":
    sys.exit(main())

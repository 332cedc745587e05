"""The server: a replication connection by libpq's own interface, and an ordinary one that looks at the slot."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from walreplay.errors import ConfigError
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS, format_lsn, parse_lsn

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGconn, PGresult

TEXT_SETTINGS: Final = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "TimeZone": "UTC",
}
"""What a value's text depends on, as in docs/capturing.md; the script for COPY sets the same."""

TIMEOUTS: Final = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")

_STATUS: Final = Struct("!cQQQqB")  # 'r'; written, flushed and applied up to; the time; whether to reply
_PROTOCOLS: Final = ((160_000, 4), (150_000, 3), (140_000, 2), (0, 1))
_SINCE: Final = {"messages": 140_000, "binary": 140_000, "streaming": 140_000, "two_phase": 150_000}
_PARALLEL: Final = 160_000
_NEW_SYNTAX, _FAILOVER = 150_000, 170_000  # of CREATE_REPLICATION_SLOT
_BATCH: Final = 10_000
_WAIT_SECONDS: Final = 0.2
# A network that is cut is noticed within a minute, as each status has to be acknowledged.
_CONNECTION: Final = {"connect_timeout": "15", "keepalives_idle": "30"}
_ACKNOWLEDGES: Final = 120_000  # libpq's version
_ACKNOWLEDGED: Final = {"tcp_user_timeout": "60000"}
_LOST_CONNECTION: Final = ("08", "57P")  # classes of SQLSTATE: the connection broke, the server was stopped


class SessionError(Exception):
    """A session has ended, or cannot begin.

    Attributes:
        sqlstate: what the server says is wrong; empty: server or store were not reached, so another session may do.
    """

    def __init__(self, problem: str, sqlstate: str = "") -> None:
        super().__init__(problem)
        self.sqlstate = "" if sqlstate.startswith(_LOST_CONNECTION) else sqlstate


@contextmanager
def _session_errors() -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise SessionError(_first_line(str(error)), error.sqlstate or "") from None
    except OSError as error:
        raise SessionError(_first_line(str(error))) from None


def is_starting(dsn: str) -> bool:
    """Return whether a server is there that takes no connections yet: it starts, recovers, or is being stopped."""
    whole = _conninfo(dsn, "", connect_timeout="5")
    from psycopg import pq

    return pq.PGconn.ping(whole.encode()) == pq.Ping.REJECT


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An exported snapshot.

    Attributes:
        name: for SET TRANSACTION SNAPSHOT.
        consistent_point: an LSN; transactions that committed below it are visible, and no others.
    """

    name: str
    consistent_point: int


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What the server is asked to send.

    Attributes:
        streaming: empty, ``on`` or ``parallel``: large transactions while they run.
        messages: logical messages, too; None: where the server can.
    """

    publications: Sequence[str]
    streaming: str = ""
    two_phase: bool = False
    binary: bool = False
    messages: bool | None = None

    def of_server(self, version: int) -> dict[str, str]:
        """Return the plugin's options for a server of this version.

        Raises:
            ConfigError: it has not what is asked for.
        """
        asked = {"streaming": self.streaming, "two_phase": self.two_phase, "binary": self.binary}
        asked["messages"] = version >= _SINCE["messages"] if self.messages is None else self.messages
        options = {name: "true" if value is True else str(value) for name, value in asked.items() if value}
        for name, value in options.items():
            since = _PARALLEL if value == "parallel" else _SINCE[name]
            if version < since:
                raise ConfigError(
                    f"this server (version {version // 10_000}) has no {name}{'' if value == 'true' else '=' + value}",
                    remedy=f"It is there from {since // 10_000} on: leave it out",
                )
        protocol = next(number for since, number in _PROTOCOLS if version >= since)
        names = ",".join(map(identifier, self.publications))
        return {"proto_version": str(protocol), "publication_names": names, **options}


class Stream:
    """A replication connection.

    Attributes:
        system: the server's identifier; ``timeline``, ``database``: where it writes, and what is recorded.

    Raises:
        SessionError: by all methods, and by the making of one.
    """

    def __init__(self, dsn: str, is_ending: Callable[[], bool], settings: str = "") -> None:
        self._connection, self._is_ending = _connect(dsn, settings), is_ending
        row = self._row("IDENTIFY_SYSTEM")
        self.system, self.timeline, self.database = row["systemid"], int(row["timeline"]), row["dbname"]

    @property
    def version(self) -> int:
        """The server's, as ``server_version_num``."""
        return self._connection.server_version

    def switch_point(self, timeline: int) -> int | None:
        """Return the LSN where the server's history has left a timeline; None if it was never on it."""
        if self.timeline == 1:  # it has no history
            return None
        history = self._row(f"TIMELINE_HISTORY {self.timeline}")["content"]
        lines = (line.split("\t") for line in history.splitlines() if line[:1].isdigit())
        return next((parse_lsn(lsn) for number, lsn, *_ in lines if int(number) == timeline), None)

    def create_slot(
        self, slot: str, *, temporary: bool = False, two_phase: bool = False, failover: bool = False
    ) -> Snapshot:
        """Make a slot, and return its snapshot, which lasts until this connection is used or closed.

        The server waits for transactions that are open.
        """
        options = ["SNAPSHOT 'export'"]
        options += ["TWO_PHASE"] if two_phase else []
        options += ["FAILOVER"] if failover and self.version >= _FAILOVER else []
        clause = f" ({', '.join(options)})" if self.version >= _NEW_SYNTAX else ""
        kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
        row = self._row(f"CREATE_REPLICATION_SLOT {identifier(slot)} {kind} pgoutput{clause}")
        return Snapshot(row["snapshot_name"], parse_lsn(row["consistent_point"]))

    def start(self, slot: str, lsn: int, options: Mapping[str, str]) -> None:
        """Have the server send what commits behind an LSN."""
        given = ", ".join(f"{identifier(name)} {literal(value)}" for name, value in options.items())
        self._result(f"START_REPLICATION SLOT {identifier(slot)} LOGICAL {format_lsn(lsn)} ({given})", "COPY_BOTH")
        self._connection.nonblocking = 1

    def receive(self, seconds: float) -> Iterator[memoryview]:
        """Yield what CopyData messages hold, some of those that have come or come within so many seconds."""
        connection, has_waited = self._connection, False
        with _session_errors():
            for _ in range(_BATCH):
                size, data = connection.get_copy_data(1)
                if size > 0:
                    yield data
                elif size < 0:
                    raise _ended(connection.get_result())
                elif has_waited:
                    return
                else:
                    select.select([connection.socket], [], [], seconds)
                    connection.consume_input()
                    has_waited = True

    def confirm(self, received: int, stored: int) -> None:
        """Report up to which LSNs all has come, and is stored: the server forgets what is stored."""
        now = time.time_ns() // 1000 - POSTGRES_EPOCH_UNIX_MICROS
        with _session_errors():
            self._connection.put_copy_data(_STATUS.pack(b"r", max(received, stored), stored, stored, now, 0))
            self._connection.flush()

    def stop(self, seconds: float) -> None:
        """End the stream, so that the server has read what was confirmed, and close the connection."""
        deadline = time.monotonic() + seconds
        with suppress(SessionError), _session_errors():
            self._connection.put_copy_end()
            while time.monotonic() < deadline:
                for _ in self.receive(0.1):
                    pass
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.finish()

    def _result(self, command: str, expected: str) -> PGresult:
        """Run a command, and return its result, of this status; unlike libpq's function, it can be interrupted."""
        from psycopg import pq

        connection = self._connection
        with _session_errors():
            connection.send_query(command.encode())
            while connection.is_busy():
                if self._is_ending():
                    connection.get_cancel().cancel()  # else the server would go on to make a slot
                    raise SessionError("the recorder is being ended")
                select.select([connection.socket], [], [], _WAIT_SECONDS)
                connection.consume_input()
            result = connection.get_result()
            if result is not None and result.status != pq.ExecStatus.COPY_BOTH:
                connection.get_result()  # None: the command is done
        if result is None or result.status != pq.ExecStatus[expected]:
            raise _ended(result)
        return result

    def _row(self, command: str) -> dict[str, str]:
        result = self._result(command, "TUPLES_OK")
        names = ((result.fname(number) or b"").decode() for number in range(result.nfields))
        return {name: (result.get_value(0, number) or b"").decode() for number, name in enumerate(names)}


class Watch:
    """An ordinary connection to the same database."""

    def __init__(self, dsn: str) -> None:
        # A heartbeat must not wait for a standby, which may be this recorder.
        self._conninfo = _conninfo(dsn, "-c statement_timeout=10s -c synchronous_commit=off")
        self._connection = self._connect()
        self._was_standby = self.is_standby()

    def _connect(self) -> psycopg.Connection[Any]:
        import psycopg

        with _session_errors():
            return psycopg.connect(self._conninfo, autocommit=True)

    def slot(self, name: str) -> dict[str, Any] | None:
        """Return what the server shows of a slot, with its LSNs as numbers; None if there is none of that name."""
        rows = self._rows(_SLOT, [name])
        if not rows:
            return None
        slot: dict[str, Any] = rows[0][0]
        lsns = ("confirmed_flush_lsn", "restart_lsn", "position")
        return slot | {lsn: parse_lsn(slot[lsn]) if slot[lsn] else None for lsn in lsns}

    def missing_publications(self, names: Sequence[str]) -> list[str]:
        """Return which of these publications are not there."""
        return sorted(set(names) - {name for (name,) in self._rows("SELECT pubname::text FROM pg_publication")})

    def is_standby(self) -> bool:
        """Return whether the server replays another one's WAL."""
        return bool(self._rows("SELECT pg_is_in_recovery()")[0][0])

    def is_promoted(self) -> bool:
        """Return whether it was a standby when this was made, and writes a timeline of its own now."""
        return self._was_standby and not self.is_standby()

    def run(self, script: str) -> None:
        """Run SQL, for as long as it takes."""
        self._rows(f"SET statement_timeout = 0; {script}; RESET statement_timeout")

    def beat(self) -> None:
        """Write a message into the stream, by which a slot moves on though nothing else is committed."""
        self._rows("SELECT pg_logical_emit_message(true, 'walreplay.heartbeat', '')")

    def _rows(self, query: str, values: Sequence[str] | None = None) -> list[tuple[Any, ...]]:
        with _session_errors():
            if self._connection.closed:  # as the server ends those that idle
                self._connection = self._connect()
            cursor = self._connection.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


_SLOT: Final = """
SELECT to_jsonb(s) || jsonb_build_object(
    'position', CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END,
    'is_standby', pg_is_in_recovery())
FROM pg_replication_slots s WHERE slot_name = %s
"""


def dsn_of(values: Mapping[str, Any]) -> str:
    """Write what libpq reads.

    Raises:
        ConfigError: psycopg is not installed.
    """
    try:
        from psycopg import conninfo
    except ImportError:
        raise ConfigError(
            "psycopg is not installed, by which the server is reached",
            remedy="Install it with: pip install 'walreplay[record]'",
        ) from None
    return conninfo.make_conninfo("", **values)


def environment_of(dsn: str) -> dict[str, str]:
    """Return the variables by which libpq's programs reach the same server."""
    from psycopg import pq

    options = pq.Conninfo.parse(dsn.encode())
    return {option.envvar.decode(): option.val.decode() for option in options if option.val and option.envvar}


def _conninfo(dsn: str, settings: str, **parameters: str) -> str:
    """Add to what the user has given; their own settings of the session stay, but for those that have to be others.

    Raises:
        ConfigError: it cannot be read, or psycopg is not installed.
    """
    dsn_of({})  # says it, if there is no psycopg
    from psycopg import ProgrammingError, conninfo, pq

    try:
        given = conninfo.conninfo_to_dict(dsn)
    except ProgrammingError:  # its text may have the password
        raise ConfigError("--dsn cannot be read", remedy="Write it like 'host=db dbname=shop user=archive'") from None
    user_settings = given.get("options") or os.environ.get("PGOPTIONS", "")
    parameters |= {"options": f"{user_settings} {settings}".strip(), "client_encoding": "UTF8"}
    defaults = _CONNECTION | (_ACKNOWLEDGED if pq.version() >= _ACKNOWLEDGES else {})
    return dsn_of({**defaults, **given, **parameters})


def _connect(dsn: str, settings: str) -> PGconn:
    session = TEXT_SETTINGS | dict.fromkeys(TIMEOUTS, "0")  # one that waits is not ended
    options = " ".join(f"-c {name}={value}" for name, value in session.items())
    whole = _conninfo(dsn, f"{options} {settings}", replication="database")
    from psycopg import pq

    connection = pq.PGconn.connect(whole.encode())
    if connection.status != pq.ConnStatus.OK:
        raise SessionError(_first_line(connection.error_message.decode("utf-8", "replace")))
    return connection


def _ended(result: PGresult | None) -> SessionError:
    from psycopg import pq

    if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
        return SessionError("the server has ended the stream")
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()  # libpq's own errors have none
    return SessionError(_first_line(result.error_message.decode("utf-8", "replace")), state)


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "the connection is lost")


def identifier(name: str) -> str:
    """Write a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Write a text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"

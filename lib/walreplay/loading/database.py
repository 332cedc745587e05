"""A PostgreSQL database as the source of a base load: what is asked of it, and how its tables are divided.

A table is read by several sessions at once.  Each is in one transaction, which takes the exported snapshot before
anything else; so all see the same rows.  Values are read as the text that their types' output functions return, as the
stream sends it.

The server's address for JDBC, and the user, come from the environment, as for libpq.  A password is in ``PGPASSWORD``
or in the file that ``PGPASSFILE`` names, never in an address: addresses are shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from walreplay.errors import CaptureError, ConfigError
from walreplay.lsn import format_lsn, parse_lsn
from walreplay.protocol.messages import Relation
from walreplay.recording.server import TEXT_SETTINGS, TIMEOUTS, identifier, literal

_SNAPSHOT: Final = re.compile(r"[0-9A-Fa-f]+(?:-[0-9A-Fa-f]+)+")

_HELD: Final = "walreplay.snapshot_is_held"

_SAME_TEXT: Final = frozenset({17, 20, 21, 23, 25, 114, 700, 701, 1043, 1082, 1114, 1184, 1700, 2950, 3802})
"""Types (by oid) whose cast to text is their output function's text, at less cost.  It is not for boolean, char(n),
"char" and inet."""

_TID_RANGES: Final = 14_00_00  # The first version that reads a range of a table's blocks without looking at the others

_PART_BYTES: Final = 64 << 20
_FETCHED_BYTES: Final = 8 << 20
_MAX_FETCHED_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Server:
    """What is known of a server.

    Attributes:
        version: as ``server_version_num`` has it.
        is_standby: it replays another one's WAL.
        position: the LSN up to which a standby has replayed, or any other server has written.
        block_size: bytes.
    """

    version: int
    is_standby: bool
    position: int
    block_size: int


@dataclass(frozen=True, slots=True)
class TablePiece:
    """A table that has rows by itself: one that is wanted, or a partition of one.

    Attributes:
        table: which table's rows they are, ``schema.table``.
        blocks: None if it cannot be read in ranges of them.
        size: bytes, with what is stored apart.
        rows: about how many.
        is_elsewhere: the rows lie in another file than at the snapshot's time.
        row_filter: the publication's.
    """

    table: str
    oid: int
    schema: str
    name: str
    blocks: int | None
    size: int
    rows: int
    is_elsewhere: bool = False
    row_filter: str | None = None


def session_statements(snapshot: str | None, settings: Mapping[str, str] | None = None) -> str:
    """Return what a session runs first: its transaction takes the snapshot, and writes values as the stream does.

    Raises:
        ConfigError: that is no snapshot's name.
    """
    # PostgreSQL imports a snapshot only at this level or above, before any query.
    statements = ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"]
    if snapshot is not None:
        if not _SNAPSHOT.fullmatch(snapshot):  # it stands in a statement's text
            raise ConfigError(
                "--snapshot is not the name of a snapshot",
                remedy="Give it as PostgreSQL writes it: 00000003-0000001B-1",
            )
        statements.append(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    statements += [f"SET LOCAL {name} = '{value}'" for name, value in TEXT_SETTINGS.items()]
    # A table whose rows a policy hides is refused, not read in part.
    statements += ["SET LOCAL row_security = off", "SET LOCAL standard_conforming_strings = on"]
    statements += [f"SET LOCAL {name} = 0" for name in TIMEOUTS]  # a large table takes longer than usual statements
    statements += [f"SET LOCAL {name} = {literal(value)}" for name, value in (settings or {}).items()]
    return "; ".join([*statements, f"SET LOCAL {_HELD} = 'yes'"])


_SESSION: Final = (
    f"(SELECT CASE WHEN pg_catalog.current_setting('{_HELD}', true) = 'yes' THEN true "
    # It has no value: a session that was not prepared, or lost it with its transaction, fails here.
    f"ELSE pg_catalog.current_setting('walreplay.the_snapshot_is_not_held') IS NULL END "
    # Spark asks for a query's columns, WHERE 1=0, in a session that was not prepared.  Servers before 18 would look at
    # the conditions in the order of the text, if OFFSET did not keep them apart.
    "OFFSET 0) AS session (is_held)"
)


def query_of(statement: str) -> str:
    """Write a query that returns lines of JSON in the form that Spark's reader accepts."""
    plain = re.sub(r"^\s*--.*$", "", statement, flags=re.MULTILINE).strip().rstrip(";")
    columns = "described.line::pg_catalog.text AS line"
    return f"(SELECT {columns} FROM {_SESSION} CROSS JOIN ({plain}) AS described (line) WHERE is_held) AS q"


SERVER: Final = """
SELECT json_build_object(
    'version', current_setting('server_version_num')::int,
    'is_standby', pg_catalog.pg_is_in_recovery(),
    'position', CASE WHEN pg_catalog.pg_is_in_recovery() THEN coalesce(pg_catalog.pg_last_wal_replay_lsn(), '0/0')
        ELSE pg_catalog.pg_current_wal_insert_lsn() END,
    'block_size', current_setting('block_size')::int
)
"""


def read_server(line: str) -> Server:
    """Read the line that `SERVER` returns."""
    values = json.loads(line)
    return Server(**values | {"position": parse_lsn(values["position"])})


def tables_setting(oids: Iterable[int]) -> dict[str, str]:
    """Return the setting by which `PIECES` and the script ``kept.sql`` know the tables."""
    return {"walreplay.tables": f"{{{','.join(map(str, sorted(oids)))}}}"}


PIECES: Final = """
WITH RECURSIVE tree AS (
    SELECT root, root AS oid FROM unnest(pg_catalog.current_setting('walreplay.tables', true)::oid[]) AS root
    UNION ALL
    SELECT tree.root, i.inhrelid
    FROM tree
    JOIN pg_catalog.pg_class c ON c.oid = tree.oid AND c.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT json_build_object(
    'root', tree.root::bigint, 'oid', c.oid::bigint, 'schema', n.nspname, 'name', c.relname, 'kind', c.relkind,
    'bytes', coalesce(pg_catalog.pg_relation_size(c.oid), 0),
    'size', coalesce(pg_catalog.pg_table_size(c.oid), 0),
    'rows', c.reltuples::bigint,
    'file_seen', c.relfilenode::bigint, 'file_now', pg_catalog.pg_relation_filenode(c.oid)::bigint
)
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY pg_catalog.pg_table_size(c.oid) DESC, c.oid
"""
"""The tables, with their partitions; their files as the snapshot has them, and as they are now."""


def read_pieces(
    lines: Iterable[str], server: Server, tables: Mapping[int, str], row_filters: Mapping[int, str]
) -> tuple[TablePiece, ...]:
    """Read the lines that `PIECES` returns, largest first.

    Args:
        tables: the names of the tables, by their oids.
    """
    pieces = []
    for values in map(json.loads, lines):
        if values["kind"] == "p":  # a partitioned table has no rows by itself
            continue
        is_stored = values["kind"] == "r"  # else a foreign table, without blocks
        has_ranges = is_stored and server.version >= _TID_RANGES
        pieces.append(
            TablePiece(
                tables[values["root"]],
                values["oid"],
                values["schema"],
                values["name"],
                values["bytes"] // server.block_size if has_ranges else None,
                values["size"],
                values["rows"],
                is_stored and values["file_seen"] != values["file_now"],
                row_filters.get(values["root"]),
            )
        )
    return tuple(pieces)


def check_blocks(seen: Sequence[TablePiece], now: Iterable[TablePiece], server: Server) -> None:
    """Refuse tables whose rows have moved to other blocks: VACUUM FULL and CLUSTER keep what old snapshots see.

    After a TRUNCATE the rows do not matter: the stream has it, too.

    Args:
        seen: as of the snapshot; ``now`` without one.

    Raises:
        CaptureError: it is so of a table that is read in ranges.
    """
    emptied = {piece.oid for piece in now if piece.rows < 0}  # nothing has counted them since
    for piece in seen:
        if piece.is_elsewhere and piece.oid not in emptied and len(ranges_of(piece, server.block_size)) > 1:
            raise CaptureError(
                "VACUUM FULL or CLUSTER has moved the table's rows after the snapshot was made, so its parts do not "
                "fit together",
                table=f"{piece.schema}.{piece.name}",
                remedy="Load this table again, in a snapshot from after that",
            )


def check_kept(seen: Iterable[str], now: Iterable[str]) -> None:
    """Refuse what has not kept to the snapshot.

    Args:
        seen: what the script ``kept.sql`` returns in the snapshot, with `MOVED`; ``now`` without it, later.

    Raises:
        CaptureError: a line is not there any more.
    """
    kept = set(now)
    for line in seen:
        if line not in kept:
            problem, name, *_ = json.loads(line)
            raise CaptureError(
                f"{problem}, after the snapshot was made, so the rows that are read in it do not fit",
                table=name,
                remedy="Load again, in a snapshot from after that",
            )


MOVED: Final = {"walreplay.moved": "yes"}
BY_PART: Final = {"walreplay.parts": "yes"}
"""Settings of ``kept.sql``: lines of the snapshot; partitions are read by their own names."""


def check_moment(server: Server, snapshot: str | None, lsn: int) -> None:
    """Refuse rows that are not all as of the LSN.

    Args:
        lsn: the last commit LSN that is among the rows.

    Raises:
        ConfigError: without a snapshot, the server is not a standby at rest, at just that position.
    """
    if snapshot is not None:
        return
    if not server.is_standby:
        raise ConfigError(
            "several sessions read the tables, and without a snapshot each of them would see other rows",
            remedy="Give --snapshot, the snapshot that a slot has exported, as snapshot.sh does (walreplay --scripts)",
        )
    if server.position != lsn + 1:  # the rows are those of commits before the position
        raise ConfigError(
            f"the standby stands at LSN {format_lsn(server.position)}, and not where it was said",
            remedy="Have it stop to replay, SELECT pg_wal_replay_pause(), and give pg_last_wal_replay_lsn() as "
            "--consistent-point",
        )


def rows_query(piece: TablePiece, relation: Relation) -> str:
    """Return the query for a piece's rows: a column ``c0``, ``c1``, … of text for each of the relation's."""
    # Whatever it is, a row needs a column.
    texts = [_text_of(column.name, column.type_oid) for column in relation.columns] or ["NULL::pg_catalog.text"]
    columns = [f"{text} AS c{number}" for number, text in enumerate(texts)]
    if piece.blocks is not None:
        columns.append("ctid AS place")  # the row's block, and its number there
    # Outside of quotes a question mark is an operator, which the driver takes for a parameter unless it is doubled.
    quoted_or_mark = r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")|\?"
    condition = re.sub(quoted_or_mark, lambda match: match[1] or "??", piece.row_filter or "true")
    rows = (
        f"SELECT {', '.join(columns)} FROM ONLY {identifier(piece.schema)}.{identifier(piece.name)} WHERE {condition}"
    )
    return f"(SELECT found.* FROM {_SESSION} CROSS JOIN ({rows}) AS found WHERE is_held) AS q"


def ranges_of(piece: TablePiece, block_size: int) -> list[str]:
    """Return the conditions that divide a piece among sessions; the last has no end, as tables grow."""
    if piece.blocks is None:
        return ["true"]
    parts = max(1, -(-max(piece.size, piece.blocks * block_size) // _PART_BYTES))
    parts = min(parts, max(1, piece.blocks))  # one block at least
    edges = [piece.blocks * number // parts for number in range(1, parts)]
    lows = ["true", *(f"place >= '({edge},0)'::pg_catalog.tid" for edge in edges)]
    highs = [*(f"place < '({edge},0)'::pg_catalog.tid" for edge in edges), "true"]
    return [" AND ".join(pair) for pair in zip(lows, highs, strict=True)]


def rows_at_a_time(piece: TablePiece) -> int:
    """Return how many rows the driver fetches at a time; they lie in memory."""
    return max(1, min(_MAX_FETCHED_ROWS, _FETCHED_BYTES * max(1, piece.rows) // max(1, piece.size)))


def _text_of(name: str, type_oid: int) -> str:
    column = identifier(name)
    if type_oid in _SAME_TEXT:
        return f"{column}::pg_catalog.text"
    # A row of NULLs IS NULL, and is none.
    return f"CASE WHEN pg_catalog.num_nonnulls({column}) = 1 THEN pg_catalog.format('%s', {column}) END"


def problem_of(text: str) -> tuple[str, str] | None:
    """Return what an error's text says of why the database cannot be read, and the remedy; None if it says nothing."""
    return next((problem for sign, *problem in _PROBLEMS if re.search(sign, text)), None)  # type: ignore[return-value]


_PROBLEMS: Final[Sequence[tuple[str, str, str]]] = (
    (
        r"ClassNotFoundException: org\.postgresql|No suitable driver",
        "Spark has not got PostgreSQL's JDBC driver",
        "Start Spark with --packages org.postgresql:postgresql:42.7.14, or give the JAR by --jars; for walreplay "
        "itself set PYSPARK_SUBMIT_ARGS='--packages org.postgresql:postgresql:42.7.14 pyspark-shell'",
    ),
    (
        r"password authentication failed|no password was provided|pg_hba\.conf|role \".*\" does not exist",
        "the database does not let the user in",
        "Check PGUSER, and PGPASSWORD or PGPASSFILE, and the server's pg_hba.conf",
    ),
    (r"database \".*\" does not exist", "there is no such database on the server", "Check the address"),
    (
        r"Connection to .* refused|UnknownHostException|The connection attempt failed|No route to host|timed out",
        "the server cannot be reached",
        "Check the address; all executors have to reach it",
    ),
    (
        r"snapshot \"?[0-9A-Fa-f-]+\"? does not exist|invalid snapshot identifier",
        "the snapshot is gone, or is of another database",
        "It lasts as long as the session that exported it does nothing else: make one that lasts until the load ends, "
        "as snapshot.sh does (walreplay --scripts)",
    ),
    (
        r"row-level security policy",
        "a policy of the database hides rows of a table from the user",
        "Read as the tables' owner, or give the user BYPASSRLS",
    ),
    (r"permission denied", "the user may not read a table", "GRANT SELECT on the tables, and USAGE on their schemas"),
    (
        r"too many (?:clients|connections)|remaining connection slots",
        "the server has no connections left",
        "End some; walreplay.load (in Python) takes a smaller number of connections",
    ),
    (
        r"invalid input syntax for (?:type )?bigint: \"there is no publication",
        "the database has no such publication",
        "Give --publication as the recorder's publication_names; what is not in lower case stands in double quotes",
    ),
    (
        r"invalid input syntax for (?:type )?bigint: \"publications send different columns",
        "the publications send different columns of a table, which PostgreSQL refuses to decode",
        "Have them send the same columns of it (ALTER PUBLICATION), or record and load them apart",
    ),
    (
        r"unrecognized configuration parameter \"walreplay\.",
        "a session lost its snapshot",
        "Connect to the server itself, without a pool in between",
    ),
    (
        r"conflict with recovery",
        "the standby needed room that the rows took",
        "Set hot_standby_feedback on it, or max_standby_streaming_delay = -1, and load again",
    ),
    (
        r"This connection has been closed|An I/O error occurred|terminating connection",
        "the server ended a session",
        "Make a new snapshot if that is gone, and load again",
    ),
)


SCHEME: Final = "jdbc:"

_POSTGRESQL: Final = "jdbc:postgresql:"
_URL: Final = re.compile(r"jdbc:postgresql://(?P<hosts>[^/?#]+)/(?P<database>[^/?#]+)(?:\?(?P<parameters>[^#]*))?")
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]@]+)(?::(?P<port>\d+))?")
_PORT: Final = "5432"
_GROUP_OR_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is.

    Attributes:
        url: for the driver.
        shown: without parameters, for people and the ledger.
        hosts: names and ports.
        user: if the address names one.
    """

    url: str
    shown: str
    hosts: tuple[tuple[str, str], ...]
    database: str
    user: str | None


def read_address(text: str) -> Address:
    """Read an address like ``jdbc:postgresql://host:5432/database?sslmode=require``.

    Raises:
        ConfigError: it is none, or has a password in it; the text is not shown then.
    """
    if not text.startswith(_POSTGRESQL):
        raise ConfigError("of the sources for JDBC, PostgreSQL alone can be read", remedy=_ADDRESS_REMEDY)
    match = _URL.fullmatch(text)
    hosts = [] if match is None else [_HOST.fullmatch(host) for host in match["hosts"].split(",")]
    if match is None or not all(hosts):
        raise ConfigError("the address is not one of PostgreSQL", remedy=_ADDRESS_REMEDY)
    parameters = dict(parse_qsl(match["parameters"] or "", keep_blank_values=True))
    if any("password" in name.lower() for name in parameters):  # also sslpassword
        raise ConfigError("the address has a password in it, and addresses are shown and kept", remedy=_PASSWORD_REMEDY)
    return Address(
        text,
        f"jdbc:postgresql://{match['hosts']}/{match['database']}",
        tuple((host["name"].strip("[]"), host["port"] or _PORT) for host in hosts if host is not None),
        unquote(match["database"]),
        parameters.get("user"),
    )


_ADDRESS_REMEDY: Final = "Write it like jdbc:postgresql://host:5432/database, with parameters as the driver has them"
_PASSWORD_REMEDY: Final = "Set PGPASSWORD, or PGPASSFILE to a file with lines host:port:database:user:password"


def credentials_of(address: Address, environment: Mapping[str, str]) -> dict[str, str]:
    """Return user and password, as the driver takes them; no password if none is known.

    Args:
        environment: has PGUSER, PGPASSWORD and PGPASSFILE.

    Raises:
        ConfigError: nobody is named, or the file with passwords cannot be used.
    """
    user = address.user or environment.get("PGUSER")
    if not user:
        raise ConfigError("it is not said who asks the database", path=address.shown, remedy="Set PGUSER")
    password = environment.get("PGPASSWORD") or _password_in_file(address, user, environment)
    return {"user": user} if password is None else {"user": user, "password": password}


def _password_in_file(address: Address, user: str, environment: Mapping[str, str]) -> str | None:
    """Look a password up in a file as libpq has it."""
    named_file = environment.get("PGPASSFILE")
    file = Path(named_file) if named_file else Path.home() / ".pgpass"
    try:
        if file.stat().st_mode & _GROUP_OR_OTHERS:  # libpq ignores such a file
            raise ConfigError("others may read the file with passwords", path=str(file), remedy=f"chmod 600 {file}")
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        if named_file is None:  # nobody has asked for it
            return None
        raise ConfigError("there is no such file with passwords", path=named_file, remedy="Check PGPASSFILE") from None
    except (OSError, UnicodeDecodeError):
        raise ConfigError("the file with passwords cannot be read", path=str(file), remedy="Check PGPASSFILE") from None
    for line in lines:
        fields = [re.sub(r"\\(.)", r"\1", field) for field in re.findall(r"(?:^|:)((?:\\.|[^\\:])*)", line)]
        if line.startswith("#") or len(fields) != 5:
            continue
        if any(
            all(entry in ("*", value) for entry, value in zip(fields, (*host, address.database, user), strict=False))
            for host in address.hosts
        ):
            return fields[4]  # the first line that fits counts, as for libpq
    return None

"""A snapshot of a PostgreSQL database, with the LSN as of which its rows are.

Only the creation of a replication slot gives both (`protocol-replication`, CREATE_REPLICATION_SLOT).  The slot is
temporary: it is gone with its connection, and so is the snapshot.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from walreplay.errors import ConfigError, TargetError
from walreplay.loading.database import Address
from walreplay.lsn import parse_lsn


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An exported snapshot.

    Attributes:
        name: for SET TRANSACTION SNAPSHOT.
        consistent_point: an LSN; transactions that committed below it are visible, and no others.
    """

    name: str
    consistent_point: int


LEAST_PATIENCE: Final = 60.0
_LOCK_NOT_AVAILABLE: Final = b"55P03"


@contextmanager
def exported_snapshot(address: Address, patience: float) -> Iterator[Snapshot]:
    """Provide a snapshot while the body runs; the server keeps neither WAL nor rows for it afterwards.

    User and password are those of libpq: PGUSER, PGPASSWORD, PGPASSFILE.

    Args:
        patience: seconds for each of the transactions that are open, as the server waits until they have ended.

    Raises:
        ConfigError: psycopg is not installed.
        TargetError: the server has not given one.
    """
    try:
        from psycopg import pq
    except ImportError:
        raise ConfigError(
            "psycopg is not installed, by which a snapshot is made",
            path=address.shown,
            remedy="Install it with: pip install 'walreplay[record]'; or give --snapshot and --consistent-point of a "
            "slot that is made for this (snapshot.sh of walreplay --scripts)",
        ) from None
    connection = pq.PGconn.connect(_conninfo(address, max(patience, LEAST_PATIENCE)))
    try:
        if connection.status != pq.ConnStatus.OK:
            raise _refused(address, connection.error_message)
        name = f"walreplay_verify_{uuid.uuid4().hex[:16]}"
        result = connection.exec_(f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput".encode())
        if result.error_field(pq.DiagnosticField.SQLSTATE) == _LOCK_NOT_AVAILABLE:
            raise TargetError(
                "a transaction that was open when the snapshot was asked for does not end, and the server waits for it",
                path=address.shown,
                remedy="End it: the oldest xact_start of pg_stat_activity, or prepared of pg_prepared_xacts; or wait "
                "longer by --wait",
            )
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise _refused(address, result.error_message)
        fields = {result.fname(number): result.get_value(0, number) for number in range(result.nfields)}
        point, snapshot = fields[b"consistent_point"], fields[b"snapshot_name"]
        assert point is not None
        assert snapshot is not None
        yield Snapshot(snapshot.decode(), parse_lsn(point.decode()))
    finally:
        connection.finish()


def _conninfo(address: Address, patience: float) -> bytes:
    from psycopg.conninfo import make_conninfo

    names, ports = zip(*address.hosts, strict=True)
    values = {"host": ",".join(names), "port": ",".join(ports), "dbname": address.database, "user": address.user}
    # Both drivers have the same names for these; the others' values are files of other forms.
    parameters = dict(parse_qsl(address.url.partition("?")[2]))
    values |= {name: parameters.get(name) for name in ("sslmode", "sslrootcert")}
    chosen = {name: value for name, value in values.items() if value is not None}
    # The session waits while others read in its snapshot.
    timeouts = {"idle_in_transaction_session": 0, "statement": 0, "lock": int(1000 * patience)}
    options = " ".join(f"-c {name}_timeout={milliseconds}" for name, milliseconds in timeouts.items())
    return make_conninfo("", **chosen, replication="database", client_encoding="UTF8", options=options).encode()


def _refused(address: Address, message: bytes) -> TargetError:
    return TargetError(
        f"the server has given no snapshot: {message.decode('utf-8', 'replace').strip().splitlines()[0]}",
        path=address.shown,
        remedy="It takes a user with the right to replicate, wal_level = logical, and a free slot and walsender; or "
        "give --snapshot and --consistent-point of a slot that was made for this (docs/verify.md)",
    )

"""A snapshot of a PostgreSQL database, with the LSN as of which its rows are.

Only the creation of a replication slot gives both (`protocol-replication`, CREATE_REPLICATION_SLOT).  The slot is
temporary: it is gone with its connection, and so is the snapshot.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final
from urllib.parse import parse_qsl

from walreplay.errors import TargetError
from walreplay.loading.database import Address
from walreplay.recording.server import SessionError, Snapshot, Stream, dsn_of

LEAST_PATIENCE: Final = 60.0
_LOCK_NOT_AVAILABLE: Final = "55P03"


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
    lock_timeout = f"-c lock_timeout={int(1000 * max(patience, LEAST_PATIENCE))}"
    try:
        with closing(Stream(_dsn(address), lambda: False, lock_timeout)) as stream:
            yield stream.create_slot(f"walreplay_verify_{uuid.uuid4().hex[:16]}", temporary=True)
    except SessionError as error:
        raise _refused(address, error) from None


def _dsn(address: Address) -> str:
    names, ports = zip(*address.hosts, strict=True)
    values = {"host": ",".join(names), "port": ",".join(ports), "dbname": address.database, "user": address.user}
    # Both drivers have the same names for these; the others' values are files of other forms.
    parameters = dict(parse_qsl(address.url.partition("?")[2]))
    values |= {name: parameters.get(name) for name in ("sslmode", "sslrootcert")}
    return dsn_of({name: value for name, value in values.items() if value is not None})


def _refused(address: Address, error: SessionError) -> TargetError:
    if error.sqlstate == _LOCK_NOT_AVAILABLE:
        return TargetError(
            "a transaction that was open when the snapshot was asked for does not end, and the server waits for it",
            path=address.shown,
            remedy="End it: the oldest xact_start of pg_stat_activity, or prepared of pg_prepared_xacts; or wait "
            "longer by --wait",
        )
    return TargetError(
        f"the server has given no snapshot: {error}",
        path=address.shown,
        remedy="It takes a user with the right to replicate, wal_level = logical, and a free slot and walsender; or "
        "give --snapshot and --consistent-point of a slot that was made for this (docs/verify.md)",
    )

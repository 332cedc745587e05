"""uuid, and types that identify something inside a server: oid, xid, tid, pg_lsn, snapshots, regclass and its kin.

A server writes regclass and its kin as names in text format, but sends only an OID in binary format.  So these values
are written as OIDs.
"""

from __future__ import annotations

import uuid
from struct import Struct
from typing import Final

from walreplay.lsn import format_lsn
from walreplay.types.cursor import Cursor, malformed, unpack

_UNSIGNED4: Final = Struct("!I")
_UNSIGNED8: Final = Struct("!Q")
_TID: Final = Struct("!IH")
"""Block, place within the block."""
_SNAPSHOT: Final = Struct("!qq")
"""The lowest transaction still open, the first not yet begun."""
_XID8: Final = Struct("!q")


def unsigned_text(data: bytes) -> str:
    """Write the 4 bytes of an oid, xid or cid."""
    return str(unpack(_UNSIGNED4, data, "oid or xid")[0])


def regclass_text(data: bytes) -> str:
    """Write the OID of a regclass or one of its kin; 0 is a dash, as in PostgreSQL."""
    return unsigned_text(data) if data != b"\0\0\0\0" else "-"


def xid8_text(data: bytes) -> str:
    """Write the 8 bytes of an xid8."""
    return str(unpack(_UNSIGNED8, data, "xid8")[0])


def pg_lsn_text(data: bytes) -> str:
    """Write the 8 bytes of a pg_lsn."""
    return format_lsn(unpack(_UNSIGNED8, data, "pg_lsn")[0])


def tid_text(data: bytes) -> str:
    """Write a tid's bytes as PostgreSQL does."""
    block, place = unpack(_TID, data, "tid")
    return f"({block},{place})"


def uuid_text(data: bytes) -> str:
    """Write the 16 bytes of a uuid."""
    if len(data) != 16:
        raise malformed("uuid", f"has {len(data)} bytes instead of 16")
    return str(uuid.UUID(bytes=data))


def snapshot_text(data: bytes) -> str:
    """Write the bytes of a pg_snapshot or txid_snapshot as PostgreSQL does."""
    cursor = Cursor(data, "pg_snapshot")
    count = cursor.count(_XID8.size)
    lowest, next_xid = cursor.unpack(_SNAPSHOT)
    running = ",".join(str(cursor.unpack(_XID8)[0]) for _ in range(count))
    cursor.finish()
    return f"{lowest}:{next_xid}:{running}"

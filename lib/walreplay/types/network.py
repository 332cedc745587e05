"""Network addresses (inet, cidr, macaddr, macaddr8), uuid, and types that identify something inside a server.

The latter are oid, xid, tid, pg_lsn, snapshots, regclass and its kin.  A server writes regclass and its kin as names in
text format, but sends only an OID in binary format.  So these values are written as OIDs.
"""

from __future__ import annotations

import uuid
from struct import Struct
from typing import Final

from walreplay.lsn import format_lsn
from walreplay.types.cursor import Cursor, malformed, unpack

_ADDRESS: Final = Struct("!BBBB")
"""Family, network bits, 1 for cidr, length of the address."""
_WORDS: Final = Struct("!8H")

_FAMILY_4: Final = 2
_FAMILY_6: Final = 3
_SIZES: Final = {_FAMILY_4: 4, _FAMILY_6: 16}


def inet_text(data: bytes) -> str:
    """Write an inet's bytes as PostgreSQL does: without the network's size if it is a single address."""
    address, bits, full = _address(data, "inet")
    return address if bits == full else f"{address}/{bits}"


def cidr_text(data: bytes) -> str:
    """Write a cidr's bytes as PostgreSQL does."""
    address, bits, _ = _address(data, "cidr")
    return f"{address}/{bits}"


def macaddr_text(data: bytes) -> str:
    """Write the 6 bytes of a macaddr."""
    if len(data) != 6:
        raise malformed("macaddr", f"has {len(data)} bytes instead of 6")
    return data.hex(":")


def macaddr8_text(data: bytes) -> str:
    """Write the 8 bytes of a macaddr8."""
    if len(data) != 8:
        raise malformed("macaddr8", f"has {len(data)} bytes instead of 8")
    return data.hex(":")


def _address(data: bytes, what: str) -> tuple[str, int, int]:
    """Return an address as text, the number of its network's bits, and the number of all its bits."""
    cursor = Cursor(data, what)
    family, bits, _, size = cursor.unpack(_ADDRESS)
    if _SIZES.get(family) != size or bits > 8 * size:
        raise malformed(what, "has a family, a length or network bits that there are none of")
    address = cursor.take(size)
    cursor.finish()
    return _dotted(address) if family == _FAMILY_4 else _colons(address), bits, 8 * size


def _dotted(address: bytes) -> str:
    return ".".join(map(str, address))


def _colons(address: bytes) -> str:
    """Write an IPv6 address; the first of the longest runs of zeros is left out."""
    words = _WORDS.unpack(address)
    start, length = _longest_zeros(words)
    if length < 2:
        return ":".join(f"{word:x}" for word in words)
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):  # an IPv4 address inside
        return ("::ffff:" if length == 5 else "::") + _dotted(address[12:])
    left, right = words[:start], words[start + length :]
    return ":".join(f"{word:x}" for word in left) + "::" + ":".join(f"{word:x}" for word in right)


def _longest_zeros(words: tuple[int, ...]) -> tuple[int, int]:
    best = (0, 0)
    start = 0
    for position, word in enumerate((*words, 1)):
        if word:
            if position - start > best[1]:
                best = (start, position - start)
            start = position + 1
    return best


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

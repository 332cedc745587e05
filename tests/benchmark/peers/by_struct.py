"""A parser of pgoutput that an engineer writes in an afternoon: by ``struct``, one message after the other.

It knows raw messages of version 1, in text format, without types: what an archive of a plain consumer holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

Row = tuple[int, str, int, int, int, list[bytes | None]]
"""The relation's oid, c, u or d, the commit LSN and time, the place in the transaction, and the values as text."""

_BEGIN = struct.Struct(">qqI")
_OID = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_LENGTH = struct.Struct(">I")


class Relation:
    """A table as its message describes it."""

    def __init__(self, data: bytes, at: int) -> None:
        (self.oid,) = _OID.unpack_from(data, at)
        behind = data.index(0, at + 4)
        self.schema = data[at + 4 : behind].decode()
        end = data.index(0, behind + 1)
        self.name = data[behind + 1 : end].decode()
        (count,) = _COUNT.unpack_from(data, end + 2)
        at, self.columns = end + 4, list[str]()
        for _ in range(count):
            end = data.index(0, at + 1)
            self.columns.append(data[at + 1 : end].decode())
            at = end + 9
        self.end = at


def _tuple(data: bytes, at: int) -> tuple[list[bytes | None], int]:
    """Read TupleData at `at`; give its values and its end."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: list[bytes | None] = []
    for _ in range(count):
        kind = data[at]
        if kind == 116:  # t
            (size,) = _LENGTH.unpack_from(data, at + 1)
            at += 5
            values.append(data[at : at + size])
            at += size
        else:
            values.append(None)
            at += 1
    return values, at


def parse(data: bytes, relations: dict[int, Relation], separator: int = 0) -> Iterator[Row]:
    """Yield the row changes of messages that stand one behind the other, with so many bytes between them."""
    at, end = 0, len(data)
    lsn = time = ordinal = 0
    while at < end:
        tag = data[at]
        if tag == 73 or tag == 85 or tag == 68:  # I U D
            (oid,) = _OID.unpack_from(data, at + 1)
            at += 5
            part = data[at]
            values, at = _tuple(data, at + 1)
            if tag == 85 and part != 78:
                values, at = _tuple(data, at + 1)
            yield oid, "c" if tag == 73 else "u" if tag == 85 else "d", lsn, time, ordinal, values
            ordinal += 1
        elif tag == 66:  # B
            lsn, time, _ = _BEGIN.unpack_from(data, at + 1)
            ordinal = 0
            at += 21
        elif tag == 67:  # C
            at += 26
        elif tag == 82:  # R
            relation = Relation(data, at + 1)
            relations[relation.oid] = relation
            at = relation.end
        else:
            raise ValueError(f"unknown message {tag} at {at}")
        at += separator

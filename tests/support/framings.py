"""Every form that a framing comes in, to write captures in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from walreplay.protocol import messages as m
from walreplay.protocol.framing import (
    COPYDATA_HEADER,
    KEEPALIVE,
    NEWLINE,
    PGCOPY_ROWS,
    XLOGDATA,
    Framing,
    Keepalive,
)
from walreplay.protocol.writer import frame, reframe


@dataclass(frozen=True)
class Form:
    """A framing and what it leaves open.

    Attributes:
        fields: of a pgcopy row.
        xlogdata: what a walsender sends stands behind each length.
    """

    framing: Framing
    fields: int = 3
    xlogdata: bool = False

    @property
    def name(self) -> str:
        """A name for a test."""
        more = f"_of_{self.fields}" if self.fields != 3 else "_of_xlogdata" if self.xlogdata else ""
        return self.framing.value + more

    @property
    def has_keepalives(self) -> bool:
        """Whether a walsender's keepalives have a place in it."""
        return self.xlogdata or self.framing in (Framing.COPYDATA, Framing.WALSENDER)

    @property
    def head(self) -> int:
        """How many bytes stand in front of a message."""
        if self.framing is Framing.PGCOPY:
            return PGCOPY_ROWS[self.fields].size
        field = self.framing.length_field
        own = COPYDATA_HEADER.size if self.framing is Framing.COPYDATA else 0 if field is None else field.header
        return own + (XLOGDATA.size if self.has_keepalives else 0)

    @property
    def keepalive_size(self) -> int:
        """How large a keepalive is with all that stands in front of it."""
        return self.head - XLOGDATA.size + KEEPALIVE.size

    def wrap(self, payload: bytes, *, lsn: int = 0, xid: int = 0, time: int = 0) -> bytes:
        """Write one message as it lies in a file."""
        if self.framing is Framing.PGCOPY:
            return (
                PGCOPY_ROWS[self.fields].pack(self.fields, *(8, lsn, 4, xid)[: 2 * (self.fields - 1)], len(payload))
                + payload
            )
        sent = XLOGDATA.pack(b"w"[0], lsn, lsn, time) if self.has_keepalives else b""
        return self._around(sent + payload)

    def wrap_keepalive(self, alive: Keepalive) -> bytes:
        """Write a keepalive as it lies in a file."""
        return self._around(KEEPALIVE.pack(b"k"[0], alive.wal_end, alive.send_time, alive.reply_requested))

    def _around(self, body: bytes) -> bytes:
        if self.framing is Framing.COPYDATA:
            return COPYDATA_HEADER.pack(b"d"[0], 4 + len(body)) + body
        field = self.framing.length_field
        if field is not None:
            return field.pack(len(body)) + body
        return body + NEWLINE if self.framing is Framing.RECVLOGICAL else body

    def write(self, items: Iterable[m.AnyMessage | Keepalive], *, trailer: bool = True) -> bytes:
        """Write a session."""
        return frame(items, self.framing, trailer=trailer, fields=self.fields, xlogdata=self.xlogdata)

    def rewrite(self, data: bytes, source: Framing) -> bytes:
        """Write a session's bytes in this form."""
        return reframe(data, source, self.framing, fields=self.fields, xlogdata=self.xlogdata)


OLD: Final = [Form(framing) for framing in (Framing.RECVLOGICAL, Framing.COPYDATA, Framing.RAW, Framing.PGCOPY)]
LENGTHS: Final = [framing for framing in Framing if framing.length_field is not None]
NEW: Final = [
    Form(Framing.WALSENDER),
    *(Form(framing) for framing in LENGTHS),
    Form(Framing.PGCOPY, fields=2),
    Form(Framing.PGCOPY, fields=1),
    *(Form(framing, xlogdata=True) for framing in LENGTHS),
]
FORMS: Final = [*OLD, *NEW]

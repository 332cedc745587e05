"""Every form that a framing comes in, to write captures in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from support.wire import encode
from walreplay.protocol import messages as m
from walreplay.protocol.framing import (
    KEEPALIVE,
    PGCOPY_HEADER,
    PGCOPY_ROWS,
    PGCOPY_SIGNATURE,
    PGCOPY_TRAILER,
    XLOGDATA,
    Framing,
)
from walreplay.protocol.reader import Buffer, read_stream


@dataclass(frozen=True, slots=True)
class Keepalive:
    """A walsender's sign of life; it carries no message."""

    wal_end: int
    send_time: int
    reply_requested: bool = False


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
        return self.xlogdata or not self.framing.layout.is_bare

    @property
    def head(self) -> int:
        """How many bytes stand in front of a message."""
        if self.framing is Framing.PGCOPY:
            return PGCOPY_ROWS[self.fields].size
        own = len(self.framing.layout.header(0))
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
        layout = self.framing.layout
        return layout.header(len(body)) + body + layout.trailer

    def write(self, items: Iterable[m.AnyMessage | Keepalive], *, trailer: bool = True) -> bytes:
        """Write messages as one session's file; keepalives among them are left out where the form has none.

        Args:
            trailer: end a pgcopy file properly.
        """
        is_copy = self.framing is Framing.PGCOPY
        parts = [PGCOPY_HEADER.pack(PGCOPY_SIGNATURE, 0, 0)] if is_copy else []
        lsn = time = xid = 0
        for item in items:
            if not isinstance(item, Keepalive):
                lsn, time, xid = _place(item, (lsn, time, xid))
                parts.append(self.wrap(encode(item), lsn=lsn, xid=xid, time=time))
            elif self.has_keepalives:
                parts.append(self.wrap_keepalive(item))
        if is_copy and trailer:
            parts.append(PGCOPY_TRAILER.pack(-1))
        return b"".join(parts)

    def rewrite(self, data: Buffer, source: Framing) -> bytes:
        """Write a session's messages in this form; what the frames themselves said is lost."""
        return self.write(message for _, message in read_stream(data, framing=source))


def transaction(
    lsn: int, *changes: m.AnyMessage, time: int | None = None, xid: int | None = None
) -> list[m.AnyMessage]:
    """Return an ordinary transaction, which commits at its LSN if no time is given."""
    time, xid = lsn if time is None else time, lsn % 1000 if xid is None else xid
    return [m.Begin(lsn, time, xid), *changes, m.Commit(0, lsn, lsn + 8, time)]


def frame(items: Iterable[m.AnyMessage | Keepalive], framing: Framing, *, trailer: bool = True) -> bytes:
    """Write messages as `Form.write` does."""
    return Form(framing).write(items, trailer=trailer)


def reframe(data: Buffer, source: Framing, target: Framing) -> bytes:
    """Write a session's messages in another framing, as `Form.rewrite` does."""
    return Form(target).rewrite(data, source)


def _place(message: m.AnyMessage, before: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return LSN, time and xid for a message's frame: those that were named last."""
    lsn, time, xid = before
    for name in ("final_lsn", "prepare_lsn", "commit_lsn", "lsn", "rollback_end_lsn"):
        lsn = getattr(message, name, lsn)
    for name in ("commit_time", "prepare_time", "rollback_time"):
        time = getattr(message, name, time)
    if isinstance(message, (m.Begin, m.BeginPrepare, m.StreamStart)):
        xid = message.xid
    return lsn, time, xid


OLD: Final = [Form(framing) for framing in (Framing.RECVLOGICAL, Framing.COPYDATA, Framing.RAW, Framing.PGCOPY)]
LENGTHS: Final = [framing for framing in Framing if framing.has_bare_length]
NEW: Final = [
    Form(Framing.WALSENDER),
    *(Form(framing) for framing in LENGTHS),
    Form(Framing.PGCOPY, fields=2),
    Form(Framing.PGCOPY, fields=1),
    *(Form(framing, xlogdata=True) for framing in LENGTHS),
]
FORMS: Final = [*OLD, *NEW]

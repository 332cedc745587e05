"""Which messages are allowed where in a stream, and the errors for those that are not."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from walreplay.decode.walk import Outcome
from walreplay.errors import (
    CaptureError,
    FramingError,
    MalformedMessage,
    OrderError,
)
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.protocol.framing import PGCOPY_HEADER, PGCOPY_SIGNATURE, PGCOPY_TRAILER, Framing

DAMAGED: Final = "The file is damaged or is no pgoutput capture; fetch it from its source again"

NO_TIME: Final = "the transaction's time lies outside of the years 1 to 9999"

PROBLEMS: Final = {
    Outcome.BAD_TUPLE_TAG: (MalformedMessage, "the row change names a kind of tuple that does not exist"),
    Outcome.BAD_CELL: (MalformedMessage, "a value of the row change is neither n, u, t nor b"),
    Outcome.BAD_LENGTH: (MalformedMessage, "a value of the row change has an impossible length"),
    Outcome.BAD_COLUMN_COUNT: (
        MalformedMessage,
        "the row change has another number of columns than its Relation message",
    ),
    Outcome.BAD_FRAME: (FramingError, "no {framing} frame begins here"),
    Outcome.OVERRUN: (FramingError, "the message needs more bytes than its {framing} frame holds"),
    Outcome.UNDERRUN: (FramingError, "the {framing} frame holds more bytes than its message"),
    Outcome.NO_NEWLINE: (FramingError, "the message is not followed by a newline"),
    Outcome.OUTSIDE_TRANSACTION: (OrderError, "a {tag} message stands outside of any transaction"),
    Outcome.BEGIN_INSIDE: (OrderError, "a transaction begins before the one before it has ended"),
    Outcome.COMMIT_MISMATCH: (OrderError, "the Commit is not that of the transaction that is open"),
    Outcome.NUL_IN_TEXT: (MalformedMessage, "a text value holds a NUL byte, which PostgreSQL's never do"),
    Outcome.NO_TIME: (MalformedMessage, NO_TIME),
    Outcome.NOT_AFTER_LAST: (OrderError, "the transaction's commit LSN is not behind the one before it"),
}

BARE: Final = (Framing.RAW, Framing.WALSENDER)
"""Framings in which neither a length nor a newline shows where a message ends."""

NEW_SESSION: Final = (Outcome.BEGIN_INSIDE, Outcome.NOT_AFTER_LAST)


class Where(Enum):
    """The part of the stream in which a message stands, as error texts name it."""

    OUTSIDE = "outside of any transaction"
    TRANSACTION = "inside a transaction"
    PREPARED = "inside a transaction that is being prepared"
    STREAM = "inside a streamed block"
    UNKNOWN = "behind a guessed start"


_ANYWHERE: Final = (m.Message, m.Relation, m.Type)

BETWEEN: Final = (
    m.StreamStart,
    m.StreamCommit,
    m.StreamAbort,
    m.StreamPrepare,
    m.BeginPrepare,
    m.Prepare,
    m.CommitPrepared,
    m.RollbackPrepared,
)

LEGAL: Final[dict[Where, tuple[type, ...]]] = {
    Where.OUTSIDE: (*_ANYWHERE, *BETWEEN),
    Where.TRANSACTION: (*_ANYWHERE, m.Origin, m.Truncate),
    Where.PREPARED: (*_ANYWHERE, m.Origin, m.Truncate, m.Prepare),
    Where.STREAM: (*_ANYWHERE, m.Origin, m.Truncate, m.StreamStop),
    Where.UNKNOWN: (*_ANYWHERE, m.Origin, m.Truncate, *BETWEEN),
}
"""Which of the rare messages are allowed where; the kernel checks the frequent ones."""

STARTERS: Final = (m.StreamStart, m.StreamAbort, m.BeginPrepare, m.Prepare, m.CommitPrepared, m.RollbackPrepared)
"""Messages with which a session may begin, besides Begin: one where it is not allowed shows that a session begins."""


def problem(outcome: Outcome, view: memoryview, at: int, framing: Framing, *, last_lsn: int) -> CaptureError:
    """Make the error for an outcome of the kernel.

    Args:
        view: the bytes.
        at: the offset of the wrong frame or message.
        last_lsn: the commit LSN of the session's transaction before it.
    """
    if outcome is Outcome.NOT_AFTER_LAST:
        return not_after_last(int.from_bytes(view[at + 1 : at + 9], "big"), last_lsn, at)
    kind, text = PROBLEMS[outcome]
    return kind(text.format(framing=framing.value, tag=chr(view[at])), offset=at, remedy=DAMAGED)


def not_after_last(lsn: int, last_lsn: int, offset: int) -> OrderError:
    """Make the error for a transaction whose commit LSN is not higher than that of the one before it."""
    return OrderError(
        f"transaction {format_lsn(lsn)} is not behind {format_lsn(last_lsn)}, the one before it",
        offset=offset,
        remedy="Files out of order, or another slot's files; "
        "name files so that they sort by time and keep one slot's files in one folder",
    )


def is_of_no_transaction(view: memoryview, at: int, limit: int) -> bool:
    """Say whether a logical message inside a streamed block belongs to no transaction, and therefore has no xid."""
    if view[at] != ord("M") or limit - at < 6 or view[at + 1] != 0:
        return False
    # A transaction's message in a block has an xid, and the flag for a transactional message.
    return view[at + 5] != 1 or not any(view[at + 1 : at + 5])


class PgcopyMark(NamedTuple):
    """A header or a trailer of PGCOPY."""

    size: int
    begins_copy: bool


def time_of(message: m.AnyMessage) -> int:
    """Give the time in a message that ends or prepares a transaction; 0 for other messages."""
    if isinstance(message, (m.BeginPrepare, m.Prepare, m.StreamPrepare)):
        return message.prepare_time
    return message.commit_time if isinstance(message, (m.StreamCommit, m.CommitPrepared)) else 0


def pgcopy_mark(view: memoryview, at: int) -> PgcopyMark | None:
    """Measure the header or trailer of a PGCOPY at an offset; None if the bytes end inside it.

    Raises:
        FramingError: neither stands there.
    """
    here = len(view) - at
    if view[at] == 0xFF:
        return None if here < PGCOPY_TRAILER.size else PgcopyMark(PGCOPY_TRAILER.size, begins_copy=False)
    head = bytes(view[at : at + len(PGCOPY_SIGNATURE)])
    if not PGCOPY_SIGNATURE.startswith(head):
        raise FramingError("no pgcopy frame begins here", offset=at, remedy=DAMAGED)
    if here < PGCOPY_HEADER.size:
        return None
    extension = int.from_bytes(view[at + PGCOPY_HEADER.size - 4 : at + PGCOPY_HEADER.size], "big")
    size = PGCOPY_HEADER.size + extension
    return None if here < size else PgcopyMark(size, begins_copy=True)

"""Which messages may stand where in a stream, and what is said of those that may not."""

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
"""Framings in which nothing stands behind a message that would show that it has ended."""

NEW_SESSION: Final = (Outcome.BEGIN_INSIDE, Outcome.NOT_AFTER_LAST)


class Where(Enum):
    """Which part of the stream a message stands in; it says which messages may."""

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
"""Which of the rare messages may stand where; the kernel knows it of the others."""

STARTERS: Final = (m.StreamStart, m.StreamAbort, m.BeginPrepare, m.Prepare, m.CommitPrepared, m.RollbackPrepared)
"""What a session may begin with besides Begin: where such a message may not stand, one has begun."""


def problem(outcome: Outcome, view: memoryview, at: int, framing: Framing, *, last_lsn: int) -> CaptureError:
    """Give the error for what a kernel came back with.

    Args:
        at: the offset of the frame or message that is wrong.
        last_lsn: the commit LSN of the session's transaction before it.
    """
    if outcome is Outcome.NOT_AFTER_LAST:
        return not_after_last(int.from_bytes(view[at + 1 : at + 9], "big"), last_lsn, at)
    kind, text = PROBLEMS[outcome]
    return kind(text.format(framing=framing.value, tag=chr(view[at])), offset=at, remedy=DAMAGED)


def not_after_last(lsn: int, last_lsn: int, offset: int) -> OrderError:
    """Give the error for a transaction whose commit LSN does not lie behind the one before it."""
    return OrderError(
        f"transaction {format_lsn(lsn)} is not behind {format_lsn(last_lsn)}, the one before it",
        offset=offset,
        remedy="Files out of order, or another slot's files; "
        "name files so that they sort by time and keep one slot's files in one folder",
    )


def is_of_no_transaction(view: memoryview, at: int, limit: int) -> bool:
    """Say whether what stands in a streamed block is a logical message of no transaction, which carries no xid."""
    if view[at] != ord("M") or limit - at < 6 or view[at + 1] != 0:
        return False
    # Inside of blocks it would be that of a transaction: with an xid, and with the flag that says so.
    return view[at + 5] != 1 or not any(view[at + 1 : at + 5])


class PgcopyMark(NamedTuple):
    """A header or a trailer of PGCOPY."""

    size: int
    begins_copy: bool


def time_of(message: m.AnyMessage) -> int:
    """Give the time by which a transaction is known, where a message that Python takes has one; 0 else."""
    if isinstance(message, (m.BeginPrepare, m.Prepare, m.StreamPrepare)):
        return message.prepare_time
    return message.commit_time if isinstance(message, (m.StreamCommit, m.CommitPrepared)) else 0


def pgcopy_mark(view: memoryview, at: int) -> PgcopyMark | None:
    """Measure a header or a trailer of PGCOPY; None where the bytes end inside it.

    Raises:
        FramingError: there is neither.
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

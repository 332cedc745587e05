"""Which messages may stand where in a stream, and what is said of those that may not."""

from __future__ import annotations

from enum import Enum
from typing import Final

from wal2delta.decode.walk import Outcome
from wal2delta.errors import (
    FramingError,
    MalformedMessage,
    OrderError,
)
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing

DAMAGED: Final = "The file is damaged or is no pgoutput capture; fetch it from its source again"

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

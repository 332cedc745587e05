"""What the ledger keeps of decoded stretches beside their rows: transactions, and logical messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from walreplay.decode.walk import Records


@dataclass(frozen=True, slots=True)
class Recorded:
    """Records of transactions, or of parts of transactions, that were decoded.

    Attributes:
        path: the file in which their Begins lie, at the offsets ``records.at``.
        session: the number of the session in which they were sent.
        origins: the origins to which the records refer by number.
        ended: the transactions end in these bytes; those that also begin in them are complete.
    """

    records: Records
    path: str
    session: int
    origins: tuple[str | None, ...]
    ended: bool = True


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A logical message that was committed; the fields from ``commit_lsn`` on are None if it has no transaction."""

    lsn: int
    prefix: str
    content: bytes = field(repr=False)
    commit_lsn: int | None = None
    commit_time: int | None = None
    xid: int | None = None
    ordinal: int | None = None


__all__ = ["LogicalMessage", "Recorded"]

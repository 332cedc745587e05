"""Everything that has to be known to continue in the middle of a stream."""

from __future__ import annotations

from dataclasses import dataclass, replace

from walreplay.decode import walk
from walreplay.protocol.framing import Framing


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is open at a place of the stream, between its Begin (or Begin Prepare) and its end.

    Attributes:
        final_lsn: the commit LSN, which its Begin names; for a transaction that is being prepared, the prepare LSN.
        commit_time: the commit time (or prepare time) in microseconds since 2000-01-01.
        ordinal: the ordinal of its next row change.
        gid: the gid if it is being prepared; otherwise None.
    """

    final_lsn: int
    commit_time: int
    xid: int
    ordinal: int
    gid: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Everything that has to be known to continue at a message's boundary.

    Attributes:
        transaction: the open transaction; None between transactions.
        stream: the xid of the streamed block in which the place lies; None outside of blocks.
        last_lsn: the commit LSN of the session's last transaction, -1 at the session's start.  They rise in a session.
        high_lsn: the highest commit LSN of all sessions.  A transaction up to it is a copy.
        message_lsn: the LSN of the last logical message that belongs to no transaction.
        begun: the session has had a message before this place.
        session: the number of sessions before this one.
    """

    framing: Framing
    transaction: Transaction | None = None
    stream: int | None = None
    last_lsn: int = walk.NO_LSN
    last_commit_time: int = 0
    high_lsn: int = walk.NO_LSN
    high_commit_time: int = 0
    message_lsn: int = walk.NO_LSN
    begun: bool = False
    session: int = 0

    def new_session(self) -> Place:
        """Give the place at which the next session begins, if this session ends here."""
        return replace(
            self,
            transaction=None,
            stream=None,
            last_lsn=walk.NO_LSN,
            last_commit_time=0,
            begun=False,
            session=self.session + 1,
        )

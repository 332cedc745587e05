"""All that has to be known to go on in the middle of a stream."""

from __future__ import annotations

from dataclasses import dataclass, replace

from walreplay.decode import walk
from walreplay.protocol.framing import Framing


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is open at a place of the stream, between its Begin (or Begin Prepare) and its end.

    Attributes:
        final_lsn: its commit LSN, which Begin foretells; of a transaction that is being prepared the prepare LSN.
        commit_time: microseconds since 2000-01-01; of one that is being prepared the time of that.
        ordinal: the number that its next row change gets.
        gid: set when it is being prepared.
    """

    final_lsn: int
    commit_time: int
    xid: int
    ordinal: int
    gid: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """All that has to be known to go on at a message's boundary.

    Attributes:
        transaction: the open one; None between transactions.
        stream: the xid of the streamed block that the place lies in.
        last_lsn: the commit LSN of the session's last transaction, -1 at its start; a session's rise.
        high_lsn: the highest commit LSN of all sessions; what comes again up to there is known.
        message_lsn: the LSN of the last logical message that belongs to no transaction.
        begun: the session has had a message before this place.
        session: how many sessions were before this one.
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
        """Give the place at which a session begins that comes behind this place."""
        return replace(
            self,
            transaction=None,
            stream=None,
            last_lsn=walk.NO_LSN,
            last_commit_time=0,
            begun=False,
            session=self.session + 1,
        )

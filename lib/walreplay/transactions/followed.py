"""Compare a run's transactions with the last one before them, to notice captures of another server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

XIDS: Final = 1 << 32
"""Transaction ids are counted modulo this; an id is later than another if it is less than half of this ahead of it."""


_UNDER_WAY: Final = 2
"""So few transactions can all have begun before the last run's last one, and therefore have earlier ids."""


_FAR: Final = 1 << 20
"""An id that lies so far back cannot be a long transaction's: so busy a server would have sent others with it."""


_CLOCK: Final = timedelta(hours=1)
"""A server's clock is not set back by more than this."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A run's transactions compared with the last one in the ledger.

    Attributes:
        transactions: their number, without prepared ones, whose ids may be old.
        newest: the newest id minus the last transaction's, below 0 if it is older.
        later: the newest commit time minus the last transaction's; None if some commit times come from an origin.
    """

    transactions: int
    newest: int
    later: timedelta | None

    @property
    def contradiction(self) -> str | None:
        """Why both cannot come from one server, for an error; None if they can."""
        if self.transactions and self.later is not None and self.later < -_CLOCK:
            return f"all its transactions have committed {-self.later} or more before the last run's last one"
        if self.newest < 0 and (self.transactions > _UNDER_WAY or self.newest < -_FAR):
            return f"the transaction ids of all its {self.transactions:,} transactions lie before that of the last run"
        return None


__all__ = ["XIDS", "Followed"]

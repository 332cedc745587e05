"""How a run's transactions follow those before: what one server cannot have done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

XIDS: Final = 1 << 32
"""Transaction ids are counted modulo this; of two, the one less than half of it ahead is the later."""


_UNDER_WAY: Final = 2
"""So many transactions may all have been under way since before the last run's last one; at most."""


_FAR: Final = 1 << 20
"""A transaction of a server so busy that so many others have begun since would not come alone."""


_CLOCK: Final = timedelta(hours=1)
"""Server clocks are not set back by more."""


@dataclass(frozen=True, slots=True)
class Followed:
    """How a run's transactions follow the last one that the ledger has.

    Attributes:
        transactions: how many there are, but for prepared ones, whose ids are old.
        newest: by how much the newest id lies ahead of the last one's.
        later: by how much the newest commit time does; None where an origin has set some.
    """

    transactions: int
    newest: int
    later: timedelta | None

    @property
    def contradiction(self) -> str | None:
        """What one server cannot have done; None where there is nothing."""
        if self.transactions and self.later is not None and self.later < -_CLOCK:
            return f"all its transactions have committed {-self.later} or more before the last run's last one"
        if self.newest < 0 and (self.transactions > _UNDER_WAY or self.newest < -_FAR):
            return f"the transaction ids of all its {self.transactions:,} transactions lie before that of the last run"
        return None


__all__ = ["XIDS", "Followed"]

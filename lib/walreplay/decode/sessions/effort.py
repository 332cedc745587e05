"""How much work it may take to find where sessions begin in bytes that cannot be read straight on.

Reading itself goes once over the bytes.  What tries several readings of them pays for each from a budget that grows
with the bytes, and gives up when that is used up: hostile bytes would keep it busy for ever, as every place may be
torn, and a session may begin at each.
"""

from __future__ import annotations

from typing import Final

LEAST: Final = 40_000
"""So many units may be spent on any bytes; a unit is five microseconds or so."""

BYTES_A_UNIT: Final = 16
"""For so many bytes there is another unit."""

READING: Final = 8
"""What it takes to begin to read somewhere."""

LOOKING: Final = 4
"""What it takes to look at one message."""

_BYTES_WALKED: Final = 1 << 13
_BYTES_COMPARED: Final = 1 << 6


class GaveUp(Exception):
    """The budget is used up."""


class Effort:
    """A budget.

    Args:
        size: of the bytes that are searched.
        least: the units that there are for any bytes.
    """

    def __init__(self, size: int, least: int = LEAST) -> None:
        self.all = least + size // BYTES_A_UNIT
        self.left = self.all

    def spend(self, units: int) -> None:
        """Pay for work.

        Raises:
            GaveUp: there is not so much left.
        """
        self.left -= units
        if self.left < 0:
            raise GaveUp

    def spend_on_message(self, size: int) -> None:
        """Pay for looking at the one message in so many bytes."""
        self.spend(LOOKING + min(size, 1 << 20) // _BYTES_COMPARED)

    def note_walked(self, size: int) -> None:
        """Pay for bytes that a kernel has gone over; what is paid next may be too much."""
        self.left -= size // _BYTES_WALKED


__all__ = ["Effort", "GaveUp"]

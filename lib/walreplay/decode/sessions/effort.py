"""A limit for the work of finding sessions in bytes that cannot be read in one go.

Reading itself goes once over the bytes.  A search that tries several readings pays for each from a budget that grows
with the number of bytes, and gives up when it is used up.  Otherwise hostile bytes could keep it busy for ever, because
a message may be torn, and a session may begin, at every offset.
"""

from __future__ import annotations

from typing import Final

LEAST: Final = 40_000
"""The budget for any bytes, in units of about five microseconds."""

BYTES_A_UNIT: Final = 16
"""For so many bytes the budget has another unit."""

READING: Final = 8
"""The price of beginning to read at an offset, in units."""

LOOKING: Final = 4
"""The price of looking at one message, in units."""

_BYTES_WALKED: Final = 1 << 13
_BYTES_COMPARED: Final = 1 << 6


class GaveUp(Exception):
    """The budget is used up."""


class Effort:
    """A budget.

    Args:
        size: the number of bytes that are searched.
        least: the units for any number of bytes.
    """

    def __init__(self, size: int, least: int = LEAST) -> None:
        self.all = least + size // BYTES_A_UNIT
        self.left = self.all

    def spend(self, units: int) -> None:
        """Pay for work.

        Raises:
            GaveUp: there are not so many units left.
        """
        self.left -= units
        if self.left < 0:
            raise GaveUp

    def spend_on_message(self, size: int) -> None:
        """Pay for looking at one message of so many bytes."""
        self.spend(LOOKING + min(size, 1 << 20) // _BYTES_COMPARED)

    def note_walked(self, size: int) -> None:
        """Pay for bytes that a kernel has walked over.  This does not raise; the next `spend` may."""
        self.left -= size // _BYTES_WALKED


__all__ = ["Effort", "GaveUp"]

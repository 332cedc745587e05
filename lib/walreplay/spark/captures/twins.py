"""The same bytes under two names: a copy among the captures would be read as if its transactions came again."""

from __future__ import annotations

from typing import Final

from walreplay.decode.summary import FileScan
from walreplay.errors import OrderError

_LEAST: Final = 64


class TwinError(OrderError):
    """The same bytes lie under two names."""


class Twins:
    """The files that were seen, by what is in them."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}

    def refuse(self, path: str, scan: FileScan) -> None:
        """Take a file in.

        Raises:
            TwinError: another one has the same bytes.
        """
        # Files without a message, as idle writers leave them, may be equal.
        if scan.length < _LEAST:
            return
        other = self._names.setdefault((scan.length, scan.fingerprint), path)
        if other != path:
            raise TwinError(
                f"the file holds the same bytes as {other}",
                path=path,
                remedy="Remove one of them, or leave it out by `captures: pattern`",
            )


__all__ = ["TwinError", "Twins"]

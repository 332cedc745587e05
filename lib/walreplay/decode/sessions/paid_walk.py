"""A walk that is paid from a budget, for readings that are only tried."""

from __future__ import annotations

from walreplay.decode.sessions.effort import READING, Effort
from walreplay.decode.stream import StreamWalker


class PaidWalker(StreamWalker):
    """Walk over messages, and pay for the bytes; subclasses set ``_effort``, the budget."""

    _effort: Effort

    def advance(self, data: bytes | memoryview, start: int, stop_at: int | None = None) -> None:
        """Walk over whole messages, from ``start`` up to the first boundary at or after ``stop_at``.

        Raises:
            CaptureError: a message is not valid.
            GaveUp: the budget is used up.
        """
        self._effort.spend(READING)
        try:
            for _ in self.walk(data, start, stop_at):
                pass
        finally:
            self._effort.note_walked(self.position - start)


__all__ = ["PaidWalker"]

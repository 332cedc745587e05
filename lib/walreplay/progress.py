"""The interface by which a long piece of work reports its progress, and the package's log.

The log is one line for each phase, table and commit, for Python's `logging`, under the name ``walreplay``.  Nothing is
written until a program (or ``WALREPLAY_LOG``) gives that logger a handler and a level.  No line holds a cell's value.
"""

from __future__ import annotations

import logging
from typing import Final

from walreplay.errors import visible


class Progress:
    """Receives reports while a run works; calls may come from several threads.  This one shows nothing of them."""

    def stage(self, name: str, total: int | None) -> None:
        """Begin a stage of the work, which ends the one before; ``total`` is None where it is not known."""

    def advance(self, count: int = 1) -> None:
        """Count so many units of the stage as done."""

    def doing(self, what: str) -> None:
        """Report what of the stage is at work now: a table, a step; it replaces the report before."""

    def so_far(self, done: int, total: int) -> None:
        """Report how many of the bytes are read that all runs of a call read; first with none of them."""

    def done(self) -> None:
        """End the last stage."""


LOGGER: Final = logging.getLogger("walreplay")
LOGGER.addHandler(logging.NullHandler())  # or Python writes warnings to standard error by itself


def log(event: str, **ids: object) -> None:
    """Write one line of level INFO: what has happened, and what it belongs to.

    >>> with_ids("table applied", table="s.a b", version=3, seconds=0.5, writer=None)
    'table applied table="s.a b" version=3 seconds=0.500'
    """
    if LOGGER.isEnabledFor(logging.INFO):
        # Not as the format itself: a table's name may have a % in it.
        LOGGER.info("%s", with_ids(event, **ids))


def with_ids(event: str, **ids: object) -> str:
    """Return a line: the event, and ``name=value`` for each value that there is; a text with blanks is quoted."""
    return " ".join([event, *(f"{name}={_shown(value)}" for name, value in ids.items() if value is not None)])


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = visible(str(value))
    return text if text and not set(text) & set(' "=') else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

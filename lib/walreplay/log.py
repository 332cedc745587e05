"""What happens, in lines for Python's `logging`, under the name ``walreplay``: one for each phase, table and commit.

Nothing is written until a program (or ``WALREPLAY_LOG``) gives that logger a handler and a level.  No line holds a
value of a cell.
"""

from __future__ import annotations

import logging
from typing import Final

from walreplay.visible import visible

LOGGER: Final = logging.getLogger("walreplay")
LOGGER.addHandler(logging.NullHandler())


def log(event: str, **ids: object) -> None:
    """Write one line of level INFO: what has happened, and what it belongs to.

    >>> with_ids("table applied", table="s.a b", version=3, seconds=0.5, writer=None)
    'table applied table="s.a b" version=3 seconds=0.500'
    """
    if LOGGER.isEnabledFor(logging.INFO):
        # What a name holds is no format.
        LOGGER.info("%s", with_ids(event, **ids))


def with_ids(event: str, **ids: object) -> str:
    """Give a line: the event, and ``name=value`` for each value that there is; a text with blanks is quoted."""
    return " ".join([event, *(f"{name}={_shown(value)}" for name, value in ids.items() if value is not None)])


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = visible(str(value))
    return text if text and not set(text) & set(' "=') else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


__all__ = ["LOGGER", "log", "with_ids"]

"""Waiting for what others do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(
    condition: Callable[[], Any], what: str, said: Callable[[], str] = str, *, patience: float = 60.0
) -> None:
    """Wait until something is so.

    Args:
        what: it is, for the error where it does not come in so many seconds.
        said: gives what is known of why.
    """
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}\n{said()}"
        time.sleep(0.02)

"""A run that ends in this process at some step, as if it had been stopped there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from walreplay.session import steps


class StoppedError(Exception):
    """The run has come to the step."""


@contextmanager
def stopping(by: type[BaseException] = StoppedError) -> Iterator[Callable[[str], None]]:
    """Return a function that has the next run end at the first step whose name begins so.

    Args:
        by: the error that is raised there.
    """

    def at(name: str) -> None:
        def on_step(step: str) -> None:
            if step.startswith(name):
                steps.on_step = None
                raise by

        steps.on_step = on_step

    try:
        yield at
    finally:
        steps.on_step = None

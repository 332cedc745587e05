"""The interface by which a long piece of work reports its progress."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives reports while a run works; calls may come from several threads."""

    def stage(self, name: str, total: int | None) -> None:
        """Begin a stage of the work, which ends the one before; ``total`` is None where it is not known."""

    def advance(self, count: int = 1) -> None:
        """Count so many units of the stage as done."""

    def doing(self, what: str) -> None:
        """Say what of the stage is at work now: a table, a step; it replaces what was said before."""

    def so_far(self, done: int, total: int) -> None:
        """Say how many of the bytes are read that all runs of a call read; first with none of them."""

    def done(self) -> None:
        """End the last stage."""


class NoProgress:
    """Ignores all reports."""

    def stage(self, name: str, total: int | None) -> None:
        """Say nothing."""

    def advance(self, count: int = 1) -> None:
        """Say nothing."""

    def doing(self, what: str) -> None:
        """Say nothing."""

    def done(self) -> None:
        """Say nothing."""

    def so_far(self, done: int, total: int) -> None:
        """Say nothing."""

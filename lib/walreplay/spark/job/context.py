"""What all phases of a run share: sessions, settings, ledger, writer, progress and warnings."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walreplay.progress import Progress
from walreplay.settings import Settings
from walreplay.spark.delta.target import Target
from walreplay.spark.ledger.ledger import Ledger
from walreplay.spark.session.isolation import has_own_sessions
from walreplay.spark.writing.base import TableWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@dataclass
class RunContext:
    """A run's sessions, settings and ledger, how it writes, and what it has to tell.

    Attributes:
        spark: the caller's session; ``own`` has the settings that the run needs.
        stages: seconds, by the names of the run's stages.
        warnings: what a person should know.
    """

    spark: SparkSession
    own: SparkSession
    target: Target
    settings: Settings
    ledger: Ledger
    writer: TableWriter
    progress: Progress
    stages: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def at_once(self) -> int:
        """How many tables are worked on at a time; each needs a session of its own."""
        return self.settings.tables_at_once if has_own_sessions(self.spark) else 1

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[None]:
        """Report that a stage begins, with its number of parts if known, and measure its time."""
        began = time.monotonic()
        self.progress.stage(name, total)
        try:
            yield
        finally:
            self.stages[name] = self.stages.get(name, 0.0) + time.monotonic() - began

"""Where the rows of a base load come from, as a load sees it: files, rows that Spark has, or a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from walreplay.loading.description import Description
from walreplay.loading.formats import CopiedFiles
from walreplay.protocol.messages import Relation
from walreplay.spark.workers.load import LoadTask
from walreplay.spark.workers.rows import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Works: TypeAlias = "tuple[Sequence[tuple[DataFrame, Work]], Mapping[str, str]]"
"""Rows and what becomes of them, which results in rows to be staged; and settings for the job."""


@dataclass(frozen=True, slots=True)
class BaseRows:
    """The rows of the tables that are wanted.

    Attributes:
        files: how many there are; none where the rows are not in files.
        size: bytes, about; None if nobody knows.
        parts: how many tasks read them, if that is known.
        works: what reads them.
        tasks: how many may be at work at a time; None for any number.
    """

    files: int
    size: int | None
    parts: int | None
    works: Callable[[LoadTask], Works]
    tasks: int | None = None


class BaseSource(ABC):
    """Where rows come from.

    Attributes:
        origin: its name, for errors and the report.
        warnings: what people should know of it, once the rows are asked for.
    """

    origin: str
    warnings: Sequence[str] = ()

    @property
    def place(self) -> str:
        """Its name in the ledger."""
        return self.origin

    @abstractmethod
    def open(self) -> None:
        """Find out what there is.

        Raises:
            WalReplayError: there is nothing, or it cannot be read.
        """

    @abstractmethod
    def described(self) -> Description | None:
        """Give what the source itself says of its tables; None if it does not."""

    @abstractmethod
    def tables(self, description: Description) -> frozenset[str]:
        """Name the tables (``schema.table``) whose rows are there.

        Raises:
            ConfigError: it cannot be told.
        """

    @abstractmethod
    def rows(self, relations: Collection[Relation], description: Description) -> BaseRows:
        """Give the rows of some tables, which were not read yet."""

    def files(self, description: str) -> CopiedFiles | None:
        """Return what it takes to read the rows once more, when `open` has found them; None if that cannot be.

        Args:
            description: of the tables, as ``describe.sql`` writes it.
        """
        return None

    def errors(self) -> AbstractContextManager[None]:
        """Say of what is raised while the rows are read what the source knows of it."""
        return nullcontext()

    def check(self, rows: Mapping[int, int]) -> None:  # noqa: B027 (most have nothing to look at)
        """Check, once all rows are staged, whether they are what they should be.

        Args:
            rows: how many were found of each table that is loaded, by its oid.

        Raises:
            WalReplayError: they are not.
        """


__all__ = ["BaseRows", "BaseSource", "Works"]

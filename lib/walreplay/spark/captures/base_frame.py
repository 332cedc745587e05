"""A base load from rows that Spark has: a DataFrame of a table or of a query."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from walreplay.errors import ConfigError
from walreplay.loading.description import Description
from walreplay.loading.typed_rows import order_of
from walreplay.protocol.messages import Relation
from walreplay.spark.captures.base import BaseRows, BaseSource, Works
from walreplay.spark.workers.load import LoadTask
from walreplay.spark.workers.load_rows import RowsTask, load_rows, make_tables, with_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BYTES_A_BATCH: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20)}
"""Rows may be large, and Spark counts them else."""


class FrameOfBase(BaseSource):
    """A DataFrame with the rows of one table.

    Args:
        origin: what it is called.
        table: whose rows they are.
    """

    def __init__(self, frame: DataFrame, origin: str, table: str | None) -> None:
        self._frame = frame
        self._table = table or ""
        self.origin = origin

    def open(self) -> None:
        """Look whether it is said whose rows they are."""
        if not self._table:
            raise ConfigError(
                "it is not said which table's rows they are", path=self.origin, remedy="Give --table schema.table"
            )

    def described(self) -> Description | None:
        """Rows do not say what their table is."""
        return None

    def tables(self, description: Description) -> frozenset[str]:
        """Name the table."""
        return frozenset([self._table])

    def rows(self, relations: Collection[Relation], description: Description) -> BaseRows:
        """Give the rows."""
        relation = description.relation(self._table)
        order = tuple(order_of(relation, self._frame.columns, self.origin))

        def works(task: LoadTask) -> Works:
            rows = RowsTask(task, relation, order, self.origin)
            # If there is no row, there may be no task either.
            one = self._frame.sparkSession.range(0, 1, 1, 1)
            made = partial(make_tables, task=task)
            return [(with_part(self._frame), partial(load_rows, task=rows)), (one, made)], BYTES_A_BATCH

        return BaseRows(0, None, None, works)


__all__ = ["BYTES_A_BATCH", "FrameOfBase"]

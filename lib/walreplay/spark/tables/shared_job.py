"""Work on many tables' staged rows in one Spark job.

A job takes some tens of milliseconds however little it does, and so does each of its tasks.  If tasks themselves read
staged rows and write files, nothing has to be brought together by Spark, and all tables can share a job.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.session.isolation import session_with
from walreplay.spark.staging.files import FileRows
from walreplay.spark.staging.tasks import Part, work_together
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FILES

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_BYTES_A_TASK: Final = 8 << 20
_LEAST_BYTES: Final = 256 << 10
"""The fixed cost of a share, as the number of bytes that take as long to process."""


@dataclass
class Together:
    """Functions that are run in one job; each gives rows of `walreplay.spark.workers.write.FILES`."""

    spark: SparkSession
    _parts: list[tuple[int, Part]] = field(default_factory=list)
    _slots: int = 0

    def add(self, rows: FileRows, work: Work, size: int) -> int:
        """Add a function; give the position of its rows in the result of `run`.

        Args:
            rows: the staged rows that it works on.
            work: the function.
            size: bytes of the rows.
        """
        slot, count = self._slots, rows.shares.count
        self._slots += 1
        weight = _LEAST_BYTES + size // count
        self._parts += [(weight, Part(slot, work, rows.shares, number)) for number in range(count)]
        return slot

    def run(self) -> list[list[Row]]:
        """Run all functions; give the rows of each, in the order in which they were added."""
        found: list[list[Row]] = [[] for _ in range(self._slots)]
        bins = self._bins()
        if bins:
            with session_with(self.spark, delta.FEW_ROWS) as own:
                numbers = own.range(0, len(bins), 1, len(bins))
                frame = numbers.mapInArrow(partial(work_together, bins=bins), f"slot INT, {sql_schema(FILES)}")
                for row in frame.collect():
                    found[row.slot].append(row)
        return found

    def _bins(self) -> list[list[Part]]:
        """Divide the parts among tasks: the largest first, each to the task that has least to do."""
        total = sum(weight for weight, _ in self._parts)
        bins: list[list[Part]] = [[] for _ in range(min(len(self._parts), -(-total // _BYTES_A_TASK)))]
        least = [(0, number) for number in range(len(bins))]
        for weight, part in sorted(self._parts, key=lambda item: -item[0]):
            taken, number = least[0]
            bins[number].append(part)
            heapq.heapreplace(least, (taken + weight, number))
        return bins

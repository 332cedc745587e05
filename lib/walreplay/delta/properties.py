"""A table's properties, its comment and its clustering: each set in a commit that changes neither rows nor columns.

`TableProperties.ensure` switches on the Delta features that a table needs before a change: Delta does not change
columns in the commit that switches column mapping on.  If a run is killed after that commit, the next one finds the
features there.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from walreplay.delta import statements as delta
from walreplay.delta.commits import missing
from walreplay.delta.opened import OpenedTable
from walreplay.delta.target import TableName, quote
from walreplay.errors import TargetError
from walreplay.evolution.comments import followed
from walreplay.session import steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def conflicts_told(table: TableName, check_lock: Callable[..., None]) -> Iterator[None]:
    """Turn a commit's conflict with another commit into an error for people.

    Args:
        check_lock: raises an error if the run has lost the lock.

    Raises:
        TargetError: there was a conflict; it names the table, or says that another run has taken over.
    """
    try:
        yield
    except Exception as error:
        if not delta.is_conflict(error):
            raise
        check_lock(sure=True)
        raise TargetError(
            "somebody else has written to the table at the same time",
            path=table.text,
            remedy="A mirror must have no other writer; run again",
        ) from error


@dataclass(frozen=True, slots=True)
class TableProperties:
    """What an existing table is besides rows and columns; each change is a commit of its own.

    Attributes:
        spark: a session that only the caller uses.
        check_lock: raises an error if the run has lost the lock.
    """

    spark: SparkSession
    table: TableName
    check_lock: Callable[..., None]

    @property
    def current(self) -> dict[str, str]:
        """The properties, including the protocol's features."""
        return {row.key: row.value for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.table.sql}").collect()}

    def ensure(self, needed: Mapping[str, str]) -> None:
        """Set those properties that the table lacks."""
        lacking = missing(needed, self.current) if needed else {}
        if lacking:
            self._alter(f"SET TBLPROPERTIES ({delta.listed(lacking)})", "features are to come", "features have come")

    def unset(self, old_names: Iterable[str], new_names: Container[str]) -> None:
        """Unset the properties that the table had before and is not to have now."""
        if gone := [name for name in old_names if name not in new_names]:
            self._alter(f"UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(delta.literal, gone))})")

    def say(self, before: str, after: str, *, is_new: bool = False) -> None:
        """Change the comment, unless somebody else has changed it.

        Args:
            before: the comment that walreplay wrote last; empty for none, as is ``after``.
            is_new: the table was just created, without a comment; to read that takes as long as to create it.
        """
        current = "" if is_new else OpenedTable(self.spark, self.table).comment
        comment = followed(current, before, after)
        if comment != current:
            change = f"SET TBLPROPERTIES ({delta.listed({'comment': comment})})"
            self._alter(change, "comment is to change", "comment has changed")

    def cluster(self, columns: Sequence[str]) -> None:
        """Have the table clustered by some columns, or by none."""
        self._alter(f"CLUSTER BY ({', '.join(map(quote, columns))})" if columns else "CLUSTER BY NONE")

    def _alter(self, change: str, before: str = "layout is to change", after: str = "layout has changed") -> None:
        """Run ALTER TABLE; ``before`` and ``after`` are steps of the run.

        Raises:
            TargetError: somebody else has written to the table at the same time.
        """
        self.check_lock()
        steps.reached(f"{before}: {self.table.text}")
        with conflicts_told(self.table, self.check_lock):
            self.spark.sql(f"ALTER TABLE {self.table.sql} {change}")
        # The session must report the version of the commit that follows, not of this one.
        delta.forget_version(self.spark)
        steps.reached(f"{after}: {self.table.text}")

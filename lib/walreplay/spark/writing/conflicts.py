"""That nobody else writes to a mirror table while something of it is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from walreplay.errors import TargetError
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.target import TableName


@contextmanager
def conflicts_told(table: TableName, check_lock: Callable[..., None]) -> Iterator[None]:
    """Say what a commit fails at if somebody else has committed meanwhile.

    Args:
        check_lock: refuses to go on when the run has lost the lock.

    Raises:
        TargetError: naming the table, or that another run has taken over.
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

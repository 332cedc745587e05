"""Report that somebody else has written to a mirror table during a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from walreplay.errors import TargetError
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.target import TableName


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

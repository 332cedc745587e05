"""Whether a mirror table is as the ledger's last run left it; checked before anything is applied to it.

A change that this ledger has not made is refused, with the statement that undoes it.  A table that is ahead of its
ledger, because the ledger was set back, is a case of its own (`Standing.ahead`): see
`walreplay.spark.checks.set_back`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walreplay.delta.local import DamagedLogError
from walreplay.errors import TargetError
from walreplay.sink.lineage import CommitId, LoggedCommit, Standing, follow, mark_of, others_change
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.located import opened_at
from walreplay.spark.delta.target import TableName
from walreplay.spark.planning.registry import MirrorEntry, made_again
from walreplay.spark.session.isolation import has_own_sessions

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_NEWEST: Final = 20
"""So many commits are looked at for the newest of the ledger's own."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger knows of a table, and of the run that checks it.

    Attributes:
        name: for people.
        ledger: the ledger's id.
        entry: None for a table that the ledger does not know.
        run: the id of the run, if it was interrupted and continues now.
        is_siblings: of a table that several sources share, whether another one has made a commit.
    """

    name: str
    ledger: str
    entry: MirrorEntry | None
    run: str | None = None
    is_siblings: Callable[[CommitId], bool] = lambda _: False


def standing_of(spark: SparkSession, table: TableName, known: Known) -> Standing | None:
    """Compare an existing table with the ledger; None if the ledger does not know its version.

    Raises:
        TargetError: it is not the table that the ledger knows, or was set back as a whole.
    """
    entry = known.entry
    if entry is not None and entry.left is None:
        return None
    left = -1 if entry is None or entry.left is None else entry.left
    with damaged_log_errors(table, known.name, entry):
        newest, commits = _commits(spark, table, left)
    if newest < left and known.run is not None and entry is not None and entry.table.place != table.place:
        # It was copied to where it is now.
        left, commits = -1, _commits(spark, table, -1)[1]
    if newest < left:
        raise TargetError(
            f"the table's newest version is {newest}, and the ledger's last run has left version {left}: it was set "
            "back as a whole, or made anew by somebody else",
            table=known.name,
            path=table.text,
            remedy=f"Nothing was applied; bring the table back as it was, or {made_again(entry)}",
        )
    first = commits.pop(0) if entry is not None and commits and commits[0].version == left else None
    if first is not None and entry is not None and not _is_left_by(first, entry, strict=has_own_sessions(spark)):
        if known.run is None:
            raise _not_the_one(table, known)
        # It was copied to where it is now.
        left, commits = -1, _commits(spark, table, -1)[1]
    return follow(commits, ledger=known.ledger, left=left, run=known.run, is_siblings=known.is_siblings)


@contextmanager
def damaged_log_errors(table: TableName, name: str, entry: MirrorEntry | None) -> Iterator[None]:
    """Raise a `TargetError` for a table whose log is damaged."""
    try:
        yield
    except DamagedLogError as error:
        raise TargetError(
            f"the table's log is damaged: {error}",
            table=name,
            path=table.text,
            remedy=f"Nothing was applied; bring the table back as it was, or {made_again(entry)}",
        ) from error


def changed_between(
    spark: SparkSession, table: TableName, known: Known, checked: int, version: int
) -> LoggedCommit | None:
    """Give the first commit by somebody else between a table's check and a run's last commit, if it changed rows.

    Args:
        checked: the version that the check has seen; ``version`` is that of the run's last commit.
    """
    if version <= checked + 1:
        return None
    commits = (one for one in _commits(spark, table, checked + 1)[1] if one.version < version)
    return others_change(commits, ledger=known.ledger, is_siblings=known.is_siblings)


def newest_number(spark: SparkSession, table: TableName, application: str) -> int:
    """Give the number of an application's newest commit in a table of the ledger; 0 where there is none."""
    opened = opened_at(spark, table)
    found: Iterable[LoggedCommit]
    if opened is not None:
        found = opened.history(_NEWEST)
    elif delta.is_known(spark, table):
        found = [_of_history(row) for row in _history(spark, table, _NEWEST)]
    else:
        return 0
    marks = (CommitId.of_mark(commit.mark) for commit in found)
    return next((mark.number for mark in marks if mark is not None and mark.application == application), 0)


def changed_error(table: TableName, name: str, standing: Standing, entry: MirrorEntry | None) -> TargetError:
    """Give the error for a table that somebody else has changed, with what undoes it.

    Args:
        entry: what the ledger knows of it; None for nothing.
    """
    remedy = f"Nothing was applied. {_undone(table, standing, entry)}"
    return TargetError(_change(standing), table=name, path=table.text, remedy=remedy)


def change_warning(entry: MirrorEntry, standing: Standing) -> str:
    """Give the warning about such a change when the run has nothing to write to the table."""
    undone = _undone(entry.table, standing, entry)
    return f"{entry.name}: {_change(standing)}. The run that next has changes for it will refuse it. {undone}"


def _change(standing: Standing) -> str:
    changed = standing.changed
    assert changed is not None
    return (
        "the table was changed by somebody else since the ledger's last run has left it: its version "
        f"{changed.version} is made by {changed.operation}"
    )


def _undone(table: TableName, standing: Standing, entry: MirrorEntry | None) -> str:
    again = "" if entry is None else f" {made_again(entry)};"
    return (
        f"Set it back by RESTORE TABLE {table.sql} TO VERSION AS OF {standing.left};{again} or go on from the rows "
        "that it has, by --accept-changed-tables"
    )


def _not_the_one(table: TableName, known: Known) -> TargetError:
    return TargetError(
        f"the table is not the one that the ledger's last run has left there: its version "
        f"{known.entry.left if known.entry else 0} was made by something else. Either it was replaced, or the ledger "
        "is older than its tables, which were renamed or made anew since",
        table=known.name,
        path=table.text,
        remedy=f"Nothing was applied; bring back the table, or the ledger, as it was; or {made_again(known.entry)}",
    )


def _is_left_by(commit: LoggedCommit, entry: MirrorEntry, *, strict: bool) -> bool:
    """Say whether a commit is the one that the ledger's last run made.

    Args:
        strict: that run's commits are sure to have its id.
    """
    mark = CommitId.of_mark(commit.mark)
    if mark is None:
        # An automatic OPTIMIZE may have followed the commit.
        return commit.keeps_rows or not strict
    return mark.run is not None and mark.run.id == entry.run and mark.oid == entry.oid


def _commits(spark: SparkSession, table: TableName, left: int) -> tuple[int, list[LoggedCommit]]:
    """Give a table's newest version, and its commits from a version on."""
    opened = opened_at(spark, table)
    if opened is not None:
        commits = opened.history(max(opened.version - max(left, 0) + 1, 1))
        return opened.version, [one for one in reversed(list(commits)) if one.version >= left]
    rows = _history(spark, table, 1)
    newest = rows[0].version if rows else -1
    if newest > left:
        rows = _history(spark, table, newest - max(left, 0) + 1)
    return newest, [_of_history(row) for row in reversed(rows) if row.version >= left]


def _history(spark: SparkSession, table: TableName, count: int) -> list[Row]:
    return spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT {count}").collect()


def _of_history(row: Row) -> LoggedCommit:
    parameters: Mapping[str, Any] = row.operationParameters or {}
    return LoggedCommit(int(row.version), str(row.operation), parameters, mark_of(row.userMetadata, parameters))

"""Check whether a mirror table is as the ledger's last run left it, before anything is applied to it.

A change that this ledger has not made is refused, with the statement that undoes it.  A table that is ahead of its
ledger (`Standing.ahead`) is a case of its own: the ledger was set back, because it was restored from a backup or by
RESTORE, or its newest commits are lost.  Then tables have changes of runs that it does not know.  If the captures
still hold all of these, nothing is lost by a RESTORE of each such table to the version that the ledger knows: the next
run applies them again.  Such a ledger is refused, with the statements that put it right (`check_ahead`).

Delta skips a commit whose number the table has had, even if a RESTORE has undone that commit.  So a run's number is
above all that the logs of the ledger's tables and of its own tables show (`highest_recorded`, `Standing.highest`).

`rightness_of` compares a table with one that is known to be right: if both are equal, the table is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructType

from walreplay.delta import statements as delta
from walreplay.delta.commits import CommitId, LoggedCommit, Standing, follow, mark_of, others_change
from walreplay.delta.local import DamagedLogError
from walreplay.delta.target import TableName, Target, ledger_errors, opened_at, quote
from walreplay.errors import TargetError, WalReplayError, listed
from walreplay.ledger.runs import HISTORY
from walreplay.ledger.transactions import History
from walreplay.lsn import format_lsn
from walreplay.names import RowKind, output_of
from walreplay.session.failures import failure_of
from walreplay.session.isolation import has_own_sessions, session_with
from walreplay.stream.plan import Plan
from walreplay.table.registry import MirrorEntry, made_again
from walreplay.table.table_run import run_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.types import StructField


_NEWEST: Final = 20
"""So many commits are looked at for the newest of the ledger's own."""


@dataclass(frozen=True, slots=True)
class KnownTable:
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


def standing_of(spark: SparkSession, table: TableName, known: KnownTable) -> Standing | None:
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
    spark: SparkSession, table: TableName, known: KnownTable, checked: int, version: int
) -> LoggedCommit | None:
    """Return the first commit by somebody else between a table's check and a run's last commit, if it changed rows.

    Args:
        checked: the version that the check has seen; ``version`` is that of the run's last commit.
    """
    if version <= checked + 1:
        return None
    commits = (one for one in _commits(spark, table, checked + 1)[1] if one.version < version)
    return others_change(commits, ledger=known.ledger, is_siblings=known.is_siblings)


def newest_number(spark: SparkSession, table: TableName, application: str) -> int:
    """Return the number of an application's newest commit in a table of the ledger; 0 where there is none."""
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
    """Return the error for a table that somebody else has changed, with what undoes it.

    Args:
        entry: what the ledger knows of it; None for nothing.
    """
    remedy = f"Nothing was applied. {_undone(table, standing, entry)}"
    return TargetError(_change(standing), table=name, path=table.text, remedy=remedy)


def change_warning(entry: MirrorEntry, standing: Standing) -> str:
    """Return the warning about such a change when the run has nothing to write to the table."""
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


def _not_the_one(table: TableName, known: KnownTable) -> TargetError:
    return TargetError(
        f"the table is not the one that the ledger's last run has left there: its version "
        f"{known.entry.left if known.entry else 0} was made by something else. Either it was replaced, or the ledger "
        "is older than its tables, which were renamed or made anew since",
        table=known.name,
        path=table.text,
        remedy=f"Nothing was applied; bring back the table, or the ledger, as it was; or {made_again(known.entry)}",
    )


def _is_left_by(commit: LoggedCommit, entry: MirrorEntry, *, strict: bool) -> bool:
    """Return whether a commit is the one that the ledger's last run made.

    Args:
        strict: that run's commits are sure to have its id.
    """
    mark = CommitId.of_mark(commit.mark)
    if mark is None:
        # An automatic OPTIMIZE may have followed the commit.
        return commit.keeps_rows or not strict
    return mark.run is not None and mark.run.id == entry.run and mark.oid == entry.oid


def _commits(spark: SparkSession, table: TableName, left: int) -> tuple[int, list[LoggedCommit]]:
    """Return a table's newest version, and its commits from a version on."""
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


# A ledger that is older than its tables

MAX_STATEMENTS: Final = 50


@dataclass(frozen=True, slots=True)
class NewerTable:
    """A table that has more than its ledger knows.

    Attributes:
        known: the ledger knows the table; otherwise the run writes it from the beginning.
        shared: other sources write to it, too.
    """

    name: str
    table: TableName
    standing: Standing
    known: bool
    shared: bool = False

    @property
    def restore(self) -> str:
        """The statement that takes the table back to what the ledger knows."""
        return f"RESTORE TABLE {self.table.sql} TO VERSION AS OF {self.standing.left}"


def highest_recorded(spark: SparkSession, target: Target, ledger: str, at_once: int) -> int:
    """Return the number of the last run that wrote to one of the ledger's tables."""

    def highest(name: str) -> int:
        table = target.ledger(name)
        with ledger_errors(table.text):
            return newest_number(spark, table, f"{ledger}/{name}")

    with ThreadPoolExecutor(at_once) as pool:
        return max(pool.map(highest, HISTORY))


def check_ahead(ahead: Sequence[NewerTable], plan: Plan, history: History) -> None:
    """Refuse tables that the ledger knows less of; one that it does not know at all needs no statement.

    Raises:
        TargetError: with the statements, if the captures hold all that the tables have.
    """
    _check_captures(ahead, plan, history)
    known = [one for one in ahead if one.known]
    if not known:
        return
    shared = [one for one in known if one.shared]
    if shared:
        raise TargetError(
            "the table is newer than the ledger, and it is shared with other sources: to set it back would take "
            "their rows away",
            table=shared[0].name,
            path=shared[0].table.text,
            remedy="Nothing was applied; bring back the ledger as it was, or apply to a new target",
        )
    raise TargetError(
        "the ledger was set back: "
        + ("the table is" if len(known) == 1 else f"{len(known)} tables are")
        + " newer, and the captures still hold what is to be applied again",
        table=listed([one.name for one in known]),
        path=known[0].table.text if len(known) == 1 else None,
        remedy=f"Nothing was applied. Bring back the ledger as it was; or run {_statements(known)}, and run again",
    )


def _statements(known: Sequence[NewerTable]) -> str:
    text = "; ".join(one.restore for one in known[:MAX_STATEMENTS])
    more = len(known) - MAX_STATEMENTS
    return text if more <= 0 else f"{text} (the next run names the statements for the other {more})"


def _check_captures(ahead: Sequence[NewerTable], plan: Plan, history: History) -> None:
    """Refuse tables that have transactions which the captures no longer hold."""
    counts: dict[int, int] = {plan.upto_lsn: plan.transactions}
    before = plan.resume.applied - plan.transactions
    for one in ahead:
        for commit in one.standing.ahead:
            if commit.run is None or not plan.after_lsn < commit.run.upto <= plan.upto_lsn:
                raise newer_error(one, commit, plan.after_lsn)
            upto = commit.run.upto
            if upto not in counts:
                counts[upto] = history.count(upto)
            if counts[upto] != commit.run.applied - before:
                raise newer_error(one, commit, plan.after_lsn)


def newer_error(one: NewerTable, commit: CommitId, after_lsn: int) -> TargetError:
    """Return the error for a table with changes that the captures no longer hold."""
    upto = "" if commit.run is None else f" up to LSN {format_lsn(commit.run.upto)}"
    known = f"LSN {format_lsn(after_lsn)}" if after_lsn >= 0 else "nothing"
    late = commit.run is not None and commit.run.upto <= after_lsn
    if late and one.known:
        remedy = f"If a run that was taken over has written this late: {one.restore}. Else bring back "
        remedy += "the ledger as it was, or apply to a new target"
    else:
        remedy = "Bring back the captures that are missing, or the ledger as it was; or apply to a new target"
    return TargetError(
        f"the table is newer than the ledger: it has what run {run_of(commit.number)} has applied{upto}, the ledger "
        f"knows of {known}, and the captures do not hold what lies between",
        table=one.name,
        path=one.table.text,
        remedy=f"Nothing was applied. {remedy}",
    )


def forget_unknown(
    spark: SparkSession, target: Target, known: int, highest: int, check_lock: Callable[[], None]
) -> None:
    """Remove from the ledger's tables what runs have recorded that its state does not know.

    A process that does this late removes nothing else: whatever comes later has a higher number.

    Args:
        known: the last run that the ledger's state knows; ``highest`` is the last one that there was.
    """
    with session_with(spark, delta.FEW_ROWS) as own:
        for table in map(target.ledger, HISTORY):
            with ledger_errors(table.text):
                if delta.exists(own, table):
                    check_lock()
                    own.sql(f"DELETE FROM {table.sql} WHERE run > {known} AND run <= {highest}").collect()


# Comparison with a table that is right

_SEEDS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Rightness:
    """What the comparison of two tables has found.

    Attributes:
        why: what of the table is not right; empty if all is.
        rows: how many the right table has.
    """

    why: str
    rows: int


def rightness_of(
    spark: SparkSession, ledger: str, entry: MirrorEntry | None, right: MirrorEntry, commit_columns: tuple[str, ...]
) -> Rightness:
    """Compare a table with one that has the rows, the columns and the names that it should have.

    Args:
        spark: a session that only the caller uses.
        ledger: the ledger's id.
        entry: what the ledger knows of the table; None for none.
        right: the ledger's entry of the other table.
        commit_columns: of a mirror, the columns that say by which commit a row was written last: where equal rows
            cannot be told apart, they hang on where runs have ended.
    """
    rows = delta.read(spark, right.table)
    left_out = commit_columns if output_of(right.oid).rows is RowKind.CURRENT else ()
    told = _sums(rows.drop(*left_out))
    why = "it is new" if entry is None else _why_not(spark, ledger, entry, right, rows, told, left_out)
    return Rightness(why, told[0])


def _why_not(
    spark: SparkSession,
    ledger: str,
    entry: MirrorEntry,
    right: MirrorEntry,
    rows: DataFrame,
    told: tuple[int, ...],
    left_out: tuple[str, ...],
) -> str:
    if entry.paused:
        return "it lacks what changed while it was switched off"
    shapes = [[(c.source, c.name, c.type, c.dropped) for c in one.shape.columns] for one in (entry, right)]
    if shapes[0] != shapes[1]:
        return "its columns are others"
    try:
        if not delta.exists(spark, entry.table):
            return "it is gone"
        standing = standing_of(spark, entry.table, KnownTable(entry.name, ledger, entry))
        if standing is None or not standing.is_sound:
            return "somebody else has changed it"
        there = delta.read(spark, entry.table)
        if _declared(there.schema) != _declared(rows.schema):
            return "its columns were changed"
        return "" if _sums(there.drop(*left_out)) == told else "its rows are others"
    except TargetError as error:
        return error.problem
    except WalReplayError:
        raise
    except Exception:
        # Whatever is the matter with it: it is made again.
        return "it cannot be read"


def check_readable(spark: SparkSession, entry: MirrorEntry) -> None:
    """Refuse a table whose log is damaged, before anything is put in its place.

    Raises:
        TargetError: it cannot be opened, so nothing can be committed to it.
    """
    try:
        opened_at(spark, entry.table)
        if delta.exists(spark, entry.table):
            # What is committed to a table depends on all of its log.
            delta.read(spark, entry.table).inputFiles()
    except Exception as error:
        failure = None if isinstance(error, DamagedLogError) else failure_of(error)
        if failure is None and not isinstance(error, DamagedLogError):
            raise
        raise TargetError(
            f"nothing can be committed to the table, as its log is damaged: {failure.problem if failure else error}",
            table=entry.name,
            path=(failure.path if failure else None) or entry.table.text,
            remedy=f"Move {entry.table.text} away, and run walreplay rebuild again: it is made anew",
        ) from None


def _declared(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _sums(rows: DataFrame) -> tuple[int, ...]:
    """Return how many rows there are, and sums over hashes of them, in whatever order they lie."""
    parts = [part for field in rows.schema.fields for part in _hashed(field)]
    hashes = (f.sum(f.xxhash64(f.lit(seed), *parts).cast("decimal(20,0)")) for seed in _SEEDS)
    (row,) = rows.agg(f.count(f.lit(1)), *hashes).collect()
    return tuple(int(value or 0) for value in row)


def _hashed(field: StructField) -> list[Column]:
    """Return what of a column is hashed: NULL leaves a hash as it is, and 0.0 is like -0.0."""
    column = f.col(quote(field.name))
    if isinstance(field.dataType, (ArrayType, StructType)):
        column = f.to_json(f.struct(column), {"ignoreNullFields": "false"})
    elif isinstance(field.dataType, (FloatType, DoubleType)):
        column = column.cast("string")
    return [column, column.isNull()]

"""Move a Delta table to another place, or replace its rows by another table's; both can be resumed after any kill.

If the file system can rename a folder in one step, the folder is renamed, and the table keeps its history.  Elsewhere
(object stores, catalogs) the rows are copied in one commit, and then the old table is removed.  In a mounted folder, a
run that has lost the lock cannot rename any more (`Fence`).  Elsewhere, and before a table is removed, the lock is
checked immediately before.

`replace_rows` is one commit, and the table keeps its history of versions.  It gets the columns of the new rows, and
what the configuration wants of its properties, its clustering and its comment.

Why a fence: a process may be paused right after it has checked the lock, and another run may take over meanwhile.  So
both paths of a rename lead through an empty folder of the run's own, ``…/<id>/../…``.  Whoever takes over removes that
folder first.  From then on the system call fails, whenever it is made.

The folder is made before one more check of the lock (`Fence.put_up`), so that a folder made late is never used.  This
works on file systems that driver and system have mounted.  Others resolve ``..`` by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walreplay.delta import statements as delta
from walreplay.delta.commits import needed_by
from walreplay.delta.local import clear_leftovers
from walreplay.delta.opened import FEW_COMMITS, OpenedTable
from walreplay.delta.properties import TableProperties, conflicts_told
from walreplay.delta.target import TableName, Target, folder_at
from walreplay.errors import LedgerConflict, TargetError
from walreplay.session import steps
from walreplay.session.folders import forget_files
from walreplay.session.isolation import has_own_sessions
from walreplay.session.reach import local_folder
from walreplay.table.placement import Move
from walreplay.table.registry import MirrorEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FENCES: Final = "moving"


def occupied(place: str, name: str | None = None) -> TargetError:
    """Return the error for a place that a table (by its name) cannot move to."""
    problem = "a table cannot be moved here, for something is there"
    return TargetError(problem, table=name, path=place, remedy="Move it away, and run again")


class Fence:
    """The fence of one run.

    Args:
        root: the target's folder, where it is mounted.
        ledger: the ledger's folder, inside it.
        run_id: the id of the lock's holder.  Ids are never used again.
    """

    def __init__(self, root: str, ledger: str, run_id: str) -> None:
        self._root = root
        self._fences = Path(ledger, _FENCES)
        self._run_folder = self._fences / run_id
        self._path_up = ""
        self._confirm: Callable[[], None] = lambda: None

    def put_up(self, confirm: Callable[[], None]) -> None:
        """Make the run's folder; ``confirm`` writes the lock's row, and raises if the run has lost the lock."""
        # Before the check of the lock: a folder that is made late must not serve a rename.
        self._run_folder.mkdir(parents=True, exist_ok=True)
        # The real paths: either may be behind a symbolic link.
        self._path_up = os.path.relpath(os.path.realpath(self._root), os.path.realpath(self._run_folder))
        self._confirm = confirm
        confirm()

    def take_down(self) -> None:
        """Remove the run's folder, and the folder of all fences if it was the last."""
        for folder in (self._run_folder, self._fences):
            with suppress(OSError):  # the folder of all fences may have those of other runs in it
                folder.rmdir()

    def take_down_others(self) -> None:
        """Remove the folders of runs that have lost the lock; only for the holder of the lock.

        Raises:
            TargetError: one cannot be removed.
        """
        try:
            others = [folder for folder in self._fences.iterdir() if folder != self._run_folder]
        except FileNotFoundError:
            return
        for folder in others:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise TargetError(
                    f"what a run before has left cannot be removed ({error.strerror})",
                    path=str(folder),
                    remedy="Remove it, and run again",
                ) from None

    def rename(self, source: str, destination: str) -> None:
        """Rename a folder, if it exists and the run's fence still stands.

        Raises:
            TargetError: the run has lost the lock, or something else is at the new place.
        """
        if not Path(source).exists():  # an earlier attempt has renamed it
            self._check()
            return
        # An empty folder may be replaced: nothing is lost with it.
        Path(destination).parent.mkdir(parents=True, exist_ok=True)
        steps.reached(f"folder is to be renamed: {destination}")
        try:
            self._through(source).rename(self._through(destination))
        except OSError as error:
            self._check()
            if Path(destination).exists():
                raise occupied(destination) from None
            raise TargetError(
                f"the table's folder cannot be renamed to {destination} ({error.strerror})",
                path=source,
                remedy="Run again when it can",
            ) from None

    def _check(self) -> None:
        if self._run_folder.exists():
            return
        self._confirm()  # raises if another run has the lock
        raise TargetError(
            "the run has lost what it needs to rename a table's folder",
            path=str(self._run_folder),
            remedy="Somebody has removed it; run again when no other run is at work",
        )

    def _through(self, path: str) -> Path:
        """Return a path that leads through the run's own folder."""
        # The system resolves `..` through the run's folder, which has to exist.
        return self._run_folder / self._path_up / os.path.relpath(path, self._root)


_ATOMIC_RENAMES: Final = ("file", "hdfs", "viewfs", "abfs", "abfss")
"""The file systems that rename a folder in one atomic step."""


@dataclass(frozen=True, slots=True)
class MovedTable:
    """The result of a move.

    Attributes:
        note: a note for the report; None for none.
        is_copy: the table is a copy with versions of its own; otherwise it has kept its versions.
        version: the copy's version.
    """

    note: str | None = None
    is_copy: bool = False
    version: int | None = None


def move(
    spark: SparkSession, step: Move, commit: delta.CommitId, check_lock: Callable[..., None], fence: Fence | None
) -> MovedTable:
    """Move a table; a table that was moved before is left as it is.

    Args:
        commit: the id for the copy's commit, if rows are copied.
        fence: the run's (`fence_of`); None if folders are not mounted.

    Raises:
        TargetError: the table cannot be moved there.
    """
    source, destination = (local_folder(spark, table.path) for table in (step.source, step.destination))
    if fence is not None and source is not None and destination is not None:
        fence.rename(source, destination)
        return _moved(spark, step)
    if step.source.path is not None and step.destination.path is not None:
        files = file_system(spark, step.source.path)
        if files is not None and files.scheme in _ATOMIC_RENAMES:
            files.rename(step.source.path, step.destination.path, check_lock)
            return _moved(spark, step)
    note = None
    if delta.exists(spark, step.source):
        opened, comment = OpenedTable(spark, step.destination), OpenedTable(spark, step.source).comment
        layout, exists = TableProperties(spark, step.destination, check_lock), opened.exists
        if not exists or opened.find(commit, FEW_COMMITS) is None:
            # What a run before could not remove is without rows.
            if exists and not delta.read(spark, step.destination).isEmpty():
                raise occupied(step.destination.text, step.name)
            rows = delta.read(spark, step.source)
            if exists:
                layout.ensure(needed_by(rows.schema.jsonValue()["fields"]))
            new, mode = None if exists else delta.NewTable(comment=comment), "overwrite" if exists else "append"
            delta.write(rows, step.destination, mode, commit, create=new, new_schema=exists)
        layout.say("", comment)
        note = remove(spark, step.source, check_lock)  # last: while the old table is there, a move is resumed
    return copied(spark, step, commit, note)


def copied(
    spark: SparkSession, step: Move, commit: delta.CommitId, note: str | None, depth: int = FEW_COMMITS
) -> MovedTable:
    """Return the result of a move by a copy, whose commit is looked for among the ``depth`` newest ones."""
    destination = OpenedTable(spark, step.destination)
    copy = destination.find(commit, depth) if destination.exists else None
    return MovedTable(note, is_copy=True, version=None if copy is None else copy.version)


def _moved(spark: SparkSession, step: Move) -> MovedTable:
    """Report that a folder was renamed, and make Delta forget what it has cached of both places."""
    for place in (step.source, step.destination):
        delta.forget(spark, place)
    return MovedTable()


def fence_of(spark: SparkSession, target: Target, run_id: str) -> Fence | None:
    """Return the fence of a run, by the id of the lock's holder; None if folders are not mounted."""
    root = local_folder(spark, target.root)
    return None if root is None else Fence(root, str(Path(root, target.ledger_folder)), run_id)


def remove(spark: SparkSession, table: TableName, check_lock: Callable[[], None]) -> str | None:
    """Remove a table; return a note if it is left behind without rows."""
    check_lock()
    if table.path is None:
        delta.drop(spark, table)
        return None
    files = file_system(spark, table.path)
    if files is not None:
        files.delete(table.path)
        return None
    # Over Spark Connect no files can be removed, so the rows are deleted instead.
    spark.sql(f"DELETE FROM {table.sql}")
    return f"{table.path} is left behind without rows, for it cannot be removed from here; remove it by hand"


class FileSystem:
    """A folder's file system, through Hadoop in the session's JVM."""

    def __init__(self, jvm: Any, configuration: Any, path: str) -> None:
        self._path = jvm.org.apache.hadoop.fs.Path
        self._files = self._path(path).getFileSystem(configuration)

    @property
    def scheme(self) -> str:
        """The file system's, such as ``s3a``."""
        return str(self._files.getUri().getScheme())

    def rename(self, source: str, destination: str, check_lock: Callable[[], None]) -> None:
        """Rename an existing folder.

        Raises:
            TargetError: something is at the destination, or the file system refuses.
        """
        old_path, new_path = self._path(source), self._path(destination)
        if not self._files.exists(old_path):  # an earlier attempt has renamed it
            return
        # If the destination exists, Hadoop would move the folder into it instead of renaming it.
        if self._files.exists(new_path):
            raise occupied(destination)
        self._files.mkdirs(new_path.getParent())
        check_lock()
        if not self._files.rename(old_path, new_path):
            remedy = "Run again when it can"
            raise TargetError(f"the table's folder cannot be renamed to {destination}", path=source, remedy=remedy)

    def delete(self, path: str) -> None:
        """Delete a folder with all that is in it."""
        self._files.delete(self._path(path), True)
        # What is made there next may have a log with the same numbers.
        forget_files()


def file_system(spark: SparkSession, path: str) -> FileSystem | None:
    """Return the file system of a path; None if the session has no JVM of its own (Spark Connect)."""
    if not has_own_sessions(spark):
        return None
    return FileSystem(spark._jvm, spark._jsc.hadoopConfiguration(), path)


# Replace a table's rows

_APPENDS_ONLY: Final = "delta.appendOnly"


@dataclass(frozen=True, slots=True)
class Replacing:
    """What is done to one table.

    Attributes:
        source: the table that has the rows.
        entry: the ledger's entry for the table as it is to be; ``before`` is the one that it had, None for a new table.
        commit: the commit that this is.
        resumed: it may have been made already.
    """

    source: TableName
    entry: MirrorEntry
    before: MirrorEntry | None
    commit: delta.CommitId
    resumed: bool
    check_lock: Callable[..., None]

    def layout(self, spark: SparkSession) -> TableProperties:
        """Return what the table is besides rows and columns."""
        return TableProperties(spark, self.entry.table, self.check_lock)


def replace_rows(spark: SparkSession, replacing: Replacing) -> int | None:
    """Put the rows in place, and return the version that the table has with them; None if they are gone.

    Raises:
        TargetError: somebody else writes to the table.
    """
    entry, table = replacing.entry, replacing.entry.table
    folder = folder_at(spark, table)
    if folder is not None:
        # What commits that are gone have left would damn those that come in their place.
        clear_leftovers(folder)
    opened = OpenedTable(spark, table)
    # The commit may be in the log already.
    commit = opened.find(replacing.commit) if replacing.resumed and opened.exists else None
    if commit is None:
        if replacing.resumed and not delta.exists(spark, replacing.source):
            # Somebody has removed them: the table stays as it is.
            return None
        _replace(spark, replacing, exists=opened.exists)
        commit = OpenedTable(spark, table).find(replacing.commit, FEW_COMMITS)
    if commit is None:
        raise not_in_history(entry.name, table, "remove the table and run walreplay rebuild again, which makes it anew")
    steps.reached(f"rows replaced: {entry.name}")
    _lay_out(replacing.layout(spark), replacing)
    return commit.version


def not_in_history(name: str, table: TableName, then: str) -> TargetError:
    """Return the error for a commit that was made, and is not there; ``then``: what to do."""
    return LedgerConflict(
        "the table's commit is not in its history: another one has its number, or something else writes to the table",
        table=name,
        path=table.text,
        remedy="A mirror must have no other writer, and its ledger must not be set back while a run is at work; "
        f"{then}",
    )


def _replace(spark: SparkSession, replacing: Replacing, *, exists: bool) -> None:
    entry, before, layout = replacing.entry, replacing.before, replacing.layout(spark)
    rows = delta.read(spark, replacing.source)
    if exists and before is not None and before.layout.cluster_by:
        layout.cluster(())  # Delta does not drop a column that clusters
    if exists:
        layout.ensure(needed_by(rows.schema.jsonValue()["fields"]))
    # Let the rows of a table that is only appended to be replaced, this once.
    is_append_only = exists and layout.current.get(_APPENDS_ONLY, "").lower() == "true"
    if is_append_only:
        layout.unset([_APPENDS_ONLY], ())
    with conflicts_told(entry.table, replacing.check_lock):
        replacing.check_lock()
        steps.reached(f"rows are to be replaced: {entry.name}")
        new = None if exists else delta.NewTable(dict(entry.layout.properties), entry.comment)
        mode = "overwrite" if exists else "append"
        delta.write(rows, entry.table, mode, replacing.commit, create=new, new_schema=exists)
    if is_append_only:
        layout.ensure({_APPENDS_ONLY: "true"})
    if exists:
        # Columns of the same names may have had other types.
        OpenedTable(spark, entry.table).checkpoint()


def _lay_out(layout: TableProperties, replacing: Replacing) -> None:
    """Set the table's properties, its comment and its clustering; none of it changes rows or columns."""
    entry, before = replacing.entry, replacing.before
    properties = dict(entry.layout.properties)
    if before is not None:
        layout.unset(dict(before.layout.properties), properties)
    layout.ensure(properties)
    layout.say("" if before is None else before.comment, entry.comment)
    if entry.layout.cluster_by:
        layout.cluster(entry.layout.cluster_by)

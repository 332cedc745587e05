"""A Delta table as of one version, and the commit that may follow it: files that were written before.

delta-rs reads the log and commits to it.  `LocalTable.obstacle` names what delta-rs cannot write, and what files would
have to respect that is not known here.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from walreplay.delta.commits import FEATURE, CommitId, LoggedCommit, needed_by
from walreplay.delta.data_files import DataFile, FileColumn, indexed_count
from walreplay.delta.stores import storage_of
from walreplay.errors import TargetError
from walreplay.evolution.comments import comment_in
from walreplay.session.folders import Folder, Listed, MountedFolder, Recent
from walreplay.session.isolation import cached_attribute

LOG: Final = "_delta_log"

ATTEMPTS: Final = 5
"""So often an append is tried where others commit what does not change the columns, such as an OPTIMIZE."""

_COMMITS_A_CHECKPOINT: Final = 10  # Delta's own default

# Properties that our files respect, or do not have to; others (constraints, formats) may ask for more.
_KNOWN_PROPERTIES: Final = (
    "delta.appendOnly",
    "delta.checkpoint",
    "delta.columnMapping.",
    "delta.dataSkipping",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.logRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.setTransactionRetentionDuration",
    "delta.targetFileSize",
)

# Table features that delta-rs can write, and that our files respect, or do not have to.
_KNOWN_FEATURES: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "invariants",
        "timestampNtz",
    }
)

# What a column may have in its metadata; other columns are generated, or must hold something.
_KNOWN_FIELDS: Final = {"comment", "delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.typeChanges"}

# A table is created here only with properties that begin so.
_CREATE_PREFIXES: Final = (
    "delta.checkpoint",
    "delta.dataSkipping",
    "delta.deletedFile",
    "delta.enableExpired",
    "delta.logRetention",
    "delta.setTrans",
)

_WEEK: Final = "interval 1 week"
# How long removed files are kept without the property, and the only form of it that delta-rs reads.
_INTERVAL: Final = re.compile(r"interval \d+ (?:second|minute|hour|day|week)s?", re.IGNORECASE)

_COMMIT_KEY: Final = "walreplay.commit"  # finds our commit again if the store's answer to it was lost
_SOLE_FILE_KEY: Final = "walreplay.file"  # by it a commit names the only file that its table has

# The log's files that show that a table has had a version.
_VERSION_FILE: Final = re.compile(r"(\d{20})\.(json|checkpoint\b.*\.parquet)")

# How files of a version begin, also its checksums and files that were to become a commit.
_VERSIONED_NAME: Final = re.compile(r"\.{0,2}(\d{20})\.")

_CHECKSUMS: Final = re.compile(r"\d{20}\.crc|\.\d{20}\.(json|crc)\.crc")

_DAMAGED: Final = re.compile(r"\bgap\b|Json error|No files in log segment|No table metadata or protocol", re.IGNORECASE)
_MAX_PROBLEM_LENGTH: Final = 200

_RUN_AGAIN: Final = "Run again: it looks at what was done to the table, and goes on where it stopped"


class ConflictError(TargetError):
    """Somebody else has committed to the table since it was opened."""


class DroppedError(TargetError):
    """The table that was opened is not there any more: a commit would begin another one."""


def dropped(place: str) -> DroppedError:
    """Make the error for a table."""
    problem = "the table was dropped, or another one was put in its place, while the run was at work"
    remedy = "Nothing was written to it; bring it back as it was, or run again, which says how to make it again"
    return DroppedError(problem, path=place, remedy=remedy)


class DamagedLogError(ValueError):
    """A table's log lacks a commit, or has one that is not whole."""


class NotReadError(Exception):
    """delta-rs does not read the table: it has a feature that it does not know."""


class LeftToSpark(Exception):
    """Only Spark's statements can write to the table; the text says why."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table.

    Attributes:
        path: as the log has it.
        size: in bytes.
        has_deletion_vector: some of its rows are marked as deleted.
    """

    path: str
    size: int
    has_deletion_vector: bool

    @property
    def name(self) -> str | None:
        """Its name in the table's folder; None if it does not lie there, or does not count as a whole."""
        is_elsewhere = ":" in self.path or self.path.startswith("/")
        return None if self.has_deletion_vector or is_elsewhere else unquote(self.path)


def newest_version(folder: Folder) -> int:
    """Return the newest version of the table in a folder, by the names of its log's files; -1 if there is no table."""
    return _newest(folder.inside(LOG).names())


def sole_file(folder: Folder, version: int) -> str | None:
    """Return the name of the only file that a table has, if the commit of its newest version says so."""
    with suppress(FileNotFoundError, ValueError):
        # All of it: a commit may be cut off, or damaged, behind its first line.
        actions = list(map(json.loads, folder.inside(LOG).read(f"{version:020}.json").splitlines()))
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        name: str | None = info.get(_SOLE_FILE_KEY)  # None if the commit names no file
        return name if any(action.get("add", {}).get("path") == name for action in actions) else None
    return None


def _newest(names: Sequence[str]) -> int:
    return max((int(match[1]) for name in names if (match := _VERSION_FILE.fullmatch(name))), default=-1)


def clear_leftovers(folder: Folder, *, checksums_only: bool = False) -> None:
    """Remove files of a log whose commits are gone: they would seem to belong to the next commits.

    With a checksum of an earlier commit (``.NAME.json.crc``), Hadoop refuses a new commit of the same name.

    Args:
        checksums_only: somebody may be about to commit, so that only checksums, which come last, are known to be left.
    """
    log = folder.inside(LOG)
    names = log.names()
    newest = _newest(names)
    matched_names = ((name, _VERSIONED_NAME.match(name)) for name in names)
    leftovers = (name for name, match in matched_names if match is not None and int(match[1]) > newest)
    log.delete(*(name for name in leftovers if not checksums_only or _CHECKSUMS.fullmatch(name)))


def touch(folder: MountedFolder) -> None:
    """Make Spark see that another table lies at this path after a move.

    Spark keeps what it has read of a path's log, and does not read the log again while the newest commit has the same
    number and time.
    """
    version = newest_version(folder)
    if version >= 0:
        Path(folder.path, LOG, f"{version:020}.json").touch()


class LocalTable:
    """A table as of one version; a commit of other files fails if the table has another version by then.

    Args:
        folder: the table's.
        table: its newest version; None if there is no table yet.
        stamp: the log's files of that version, if they were listed.
    """

    def __init__(self, folder: Folder, table: DeltaTable | None, stamp: frozenset[Listed] = frozenset()) -> None:
        self.folder = folder
        self._table = table
        self._stamp = stamp
        self._pending: tuple[Schema, str, dict[str, str]] | None = None

    @classmethod
    def open(cls, folder: Folder, *, use_cache: bool = True) -> LocalTable:
        """Open the newest version.

        Args:
            use_cache: what was read of the log may be shared with whoever opens the same version.

        Raises:
            DamagedLogError: its log is not whole.
            NotReadError: only Spark may know what is the matter with it.
            OSError: the storage refuses.
        """
        log = folder.inside(LOG).listed()
        newest = _newest([file.name for file in log])
        if newest < 0:
            return cls(folder, None)
        for file in log:
            # A commit without a byte, as a full disk leaves it, would count as one without actions.
            if file.size == 0 and file.name.endswith(".json"):
                raise DamagedLogError(f"{LOG}/{file.name} is empty")
        stamp = frozenset(file for file in log if file.name.startswith(f"{newest:020}."))
        cached_stamp, table = (_OPEN_TABLES.get(folder) if use_cache else None) or (None, None)
        if table is None or cached_stamp != stamp:  # the stamp changes with each commit
            table = _open(folder)
            if use_cache and table is not None and table.version() == newest:  # else another commit has come since
                _OPEN_TABLES.keep(folder, (stamp, table))
        return cls(folder, table, stamp)

    def followed(self, version: int) -> LocalTable | None:
        """Return the table as of the version that was committed; None if somebody else has committed since.

        This table must not come from the cache, and must not be used afterwards.
        """
        try:
            with _log_errors(self.folder):
                self._delta_table.update_incremental()
        except NotReadError:
            return None
        return LocalTable(self.folder, self._table) if self.version == version else None

    @classmethod
    def new(cls, folder: Folder, columns: pa.Schema, properties: Mapping[str, str]) -> LocalTable:
        """Let the first commit create a table.

        Args:
            columns: with the comments of the columns and of the table (`comment_in`).

        Raises:
            LeftToSpark: it is to have a property that delta-rs does not set.
        """
        schema = _schema(columns)
        all_properties = {**properties, **needed_by(_fields(schema))}
        # A feature of times without a zone comes with their columns.
        plain_properties = {name: value for name, value in all_properties.items() if not name.startswith(FEATURE)}
        for name in plain_properties:
            if not name.startswith(_CREATE_PREFIXES):
                raise LeftToSpark(f"it is created with the property {name}")
        table = cls(folder, None)
        table._pending = schema, comment_in(columns) or "", plain_properties
        return table

    @property
    def version(self) -> int:
        """The version; -1 for a table that does not exist yet."""
        return -1 if self._table is None else self._table.version()

    @cached_attribute
    def fields(self) -> list[dict[str, Any]]:
        """The columns as the log declares them."""
        schema = self._pending[0] if self._table is None and self._pending is not None else self._delta_table.schema()
        return _fields(schema)

    @cached_attribute
    def properties(self) -> Mapping[str, str]:
        """The table's properties, without its features."""
        if self._table is None:
            return {} if self._pending is None else self._pending[2]
        return dict(self._table.metadata().configuration)

    @property
    def obstacle(self) -> str | None:
        """What the table has that only Spark can write; None for nothing."""
        if self._table is not None:
            protocol = self._table.protocol()
            unknown_features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _KNOWN_FEATURES
            if unknown_features:
                return f"it has the feature {min(unknown_features)}"
            if self._table.metadata().partition_columns:
                return "it is partitioned"
        for name in self.properties:
            if name.startswith("delta.") and not name.startswith(_KNOWN_PROPERTIES):
                return f"it has the property {name}"
        if all(field["nullable"] and field["metadata"].keys() <= _KNOWN_FIELDS for field in self.fields):
            return None
        return "a column of it is generated, or must hold something"

    @property
    def may_be_rewritten(self) -> bool:
        """Rows may be moved from files to new files: nobody takes a removed file for deleted rows."""
        names = ("delta.appendOnly", "delta.enableChangeDataFeed")
        return not any(self.properties.get(name, "false").lower() != "false" for name in names)

    def columns(self, schema: pa.Schema) -> tuple[FileColumn, ...] | None:
        """Return some of the table's columns as its files have them; None if their types differ."""
        fields_by_name = {field["name"]: field for field in self.fields}
        indexed = _indexed(list(fields_by_name), self.properties)
        columns = []
        for column, expected in zip(schema, declared(schema), strict=True):
            field = fields_by_name.get(column.name)
            kind = None if field is None else _in_files(column.type, expected["type"], field["type"])
            if field is None or kind is None:
                return None
            number = field["metadata"].get("delta.columnMapping.id")
            columns.append(FileColumn(column.name, _physical(field), kind, number, column.name in indexed))
        return tuple(columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns in Arrow's types."""
        return pa.schema(self._delta_table.schema().to_arrow())

    @cached_attribute
    def files(self) -> Sequence[TableFile]:
        """The table's files.

        Raises:
            NotReadError: the table has an `obstacle`, and delta-rs does not say which rows are marked.
        """
        table = self._delta_table
        actions = pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
        with_vectors: set[str] = set()
        # Not the property: rows that are marked stay so once it is off.
        if "deletionVectors" in (table.protocol().reader_features or ()):
            with _log_errors(self.folder):
                vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all()
            with_vectors = {unquote(path).rpartition("/")[2] for path in vectors["filepath"].to_pylist()}
        # By their names alone, which are unique: each has a UUID.
        sizes = ((action["path"], action["size_bytes"]) for action in actions)
        return [TableFile(path, size, unquote(path).rpartition("/")[2] in with_vectors) for path, size in sizes]

    def unreferenced(self) -> int | None:
        """Return how many files no version needs any more which the retention keeps; None if only Spark may know."""
        if not _INTERVAL.fullmatch(self.properties.get("delta.deletedFileRetentionDuration", _WEEK)):
            return None
        with _log_errors(self.folder):
            paths = self._delta_table.vacuum(dry_run=True, full=True)  # full: also files that no commit has named
        split_paths = [path.rpartition("/")[::2] for path in paths]
        # delta-rs takes every deletion vector for a file that nobody needs, and lists Hadoop's checksums, too.
        if any(name.startswith("deletion_vector") for _, name in split_paths):
            return None
        # The log names removed files until a checkpoint forgets them, although they are gone.
        names_by_folder = {folder: set(self.folder.inside(folder).names()) for folder in dict(split_paths)}
        return sum(name in names_by_folder[folder] and not name.startswith(".") for folder, name in split_paths)

    def last_number(self, application: str) -> int:
        """Return the number of an application's last commit; -1 if there is none."""
        number = None if self._table is None else self._table.transaction_version(application)
        return -1 if number is None else number

    def history(self, count: int | None = None) -> Iterator[LoggedCommit]:
        """Return the commits that the log has, the newest first."""
        return map(_logged_commit, [] if self._table is None else self._table.history(count))

    def commit(
        self,
        added: Sequence[DataFile],
        commit: CommitId | None = None,
        *,
        instead_of: Sequence[TableFile] | None = None,
        metrics: Mapping[str, int] | None = None,
        attempts: int = ATTEMPTS,
    ) -> int | None:
        """Commit files; return the table's new version, or None if this very commit was made before.

        Args:
            commit: the commit that this is, if it must be made exactly once.
            instead_of: files that are removed; the commit fails if anybody has changed the table since it was opened.
            metrics: what the history says of it, in place of numbers of files, rows and bytes.
            attempts: so often files are appended to a newer version that somebody else has made of the same columns.

        Raises:
            ConflictError: somebody else has committed: to a table whose files are replaced, or whose columns they
                have changed, or that has an `obstacle` by now, or that was to be created.
            DroppedError: the table is not there any more.
        """
        if self._table is not None:
            self._check_version_exists()
        # Delta's protocol: a number that is not above the application's last one was committed already.
        if commit is not None and self.last_number(commit.application) >= commit.number:
            return None
        now = int(time.time() * 1000)
        actions: list[Any] = [RemoveAction(gone.path, True, now, gone.size, {}) for gone in instead_of or ()]
        actions += [AddAction(file.name, file.size, {}, now, True, file.stats) for file in added]
        metrics = _commit_metrics(added) if metrics is None else metrics
        version, commit_id = self.version + 1, uuid.uuid4().hex
        commit_info: dict[str, Any] = {_COMMIT_KEY: commit_id}
        # The table is new, or this file replaces all others.
        if len(added) == 1 and (version == 0 or (instead_of is not None and len(instead_of) == len(self.files))):
            commit_info[_SOLE_FILE_KEY] = added[0].name
        self._drop_checksums(f"{version:020}.json")
        try:
            with _log_errors(self.folder):
                self._write_commit(actions, _properties(commit_info, commit, metrics))
        except (DeltaError, NotReadError) as error:
            newer = LocalTable.open(self.folder)
            if newer.version < version:  # nobody has made this version: the error is not about a conflict
                raise
            # The answer to it may have been lost.
            entries = newer._delta_table.history(newer.version - version + 1)
            if all((entry.get("version"), entry.get(_COMMIT_KEY)) != (version, commit_id) for entry in entries):
                # Files that replace others were made of this version's rows, which another commit may have changed.
                may_follow = self._table is not None and instead_of is None and newer.fields == self.fields
                if not may_follow or newer.obstacle is not None or attempts == 1:
                    problem = f"somebody else has committed version {version} of the table while the run was at work"
                    raise ConflictError(problem, path=self.folder.uri, remedy=_RUN_AGAIN) from error
                return newer.commit(added, commit, metrics=metrics, attempts=attempts - 1)
        _OPEN_TABLES.drop(lambda folder: folder == self.folder)
        interval = int(self.properties.get("delta.checkpointInterval", _COMMITS_A_CHECKPOINT))
        if version > 0 and version % interval == 0:
            with suppress(NotReadError, OSError, DamagedLogError):  # without it the table is right, and read slower
                LocalTable.open(self.folder).checkpoint()
        return version

    def checkpoint(self) -> None:
        """Write a checkpoint of the log up to this version."""
        self._drop_checksums("_last_checkpoint", f"{self.version:020}.checkpoint.parquet")
        with _log_errors(self.folder):
            self._delta_table.create_checkpoint()

    def _check_version_exists(self) -> None:
        """Refuse to write the next version to a folder without the one before it: a log would begin in its middle."""
        newest = f"{self.version:020}."
        newest_files = {file for file in self.folder.inside(LOG).listed() if file.name.startswith(newest)}
        # A checkpoint of the version may have come since, its commit stays the same file.
        if not newest_files or any(file.name == f"{newest}json" and file not in newest_files for file in self._stamp):
            raise dropped(self.folder.uri)

    def _drop_checksums(self, *names: str) -> None:
        """Remove the checksums that Hadoop keeps of files in mounted folders, before others come in their place."""
        if isinstance(self.folder, MountedFolder):
            self.folder.delete(*(f"{LOG}/.{name}.crc" for name in names))

    def _write_commit(self, actions: Sequence[Any], commit_properties: CommitProperties) -> None:
        # `commit` makes its checkpoints itself
        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        arguments: dict[str, Any] = {"commit_properties": commit_properties, "post_commithook_properties": hooks}
        if self._table is not None:
            # With "overwrite" delta-rs would remove all files of the table; here the actions say which are removed.
            self._table.create_write_transaction(list(actions), "append", self._table.schema(), **arguments)
            return
        assert self._pending is not None
        schema, comment, properties = self._pending
        uri, options = storage_of(self.folder)
        self.folder.make()
        arguments |= {"description": comment or None, "configuration": properties, "storage_options": options}
        create_table_with_add_actions(uri, schema, list(actions), **arguments)

    @property
    def _delta_table(self) -> DeltaTable:
        assert self._table is not None
        return self._table


_OPEN_TABLES: Final = Recent[Folder, tuple[frozenset[Listed], DeltaTable]](64)
"""Tables that this process has open, each with the files of its log's newest version."""


def forget_tables() -> None:
    """Empty the cache: between two runs a store's log may have been replaced by another one with the same stamps."""
    _OPEN_TABLES.drop()


def _open(folder: Folder) -> DeltaTable | None:
    uri, options = storage_of(folder)
    with _log_errors(folder):
        try:
            return DeltaTable(uri, storage_options=options)
        except TableNotFoundError:
            return None


@contextmanager
def _log_errors(folder: Folder) -> Iterator[None]:
    """Turn damaged logs into their own error, and let no failure say more than its first line."""
    try:
        yield
    # `LocalTable.commit` reads the log to decide: a conflict, or an answer that was lost.
    except CommitFailedError:
        raise
    except DeltaError as error:
        problem = str(error).partition("\n")[0]
        if _DAMAGED.search(problem):
            raise DamagedLogError(f"{LOG} of {folder.uri}: {problem[:_MAX_PROBLEM_LENGTH]}") from None
        raise NotReadError(problem) from None


def _properties(info: Mapping[str, Any], commit: CommitId | None, metrics: Mapping[str, int]) -> CommitProperties:
    info = {**info, "operationMetrics": {name: str(count) for name, count in metrics.items()}}
    transactions = []  # the log keeps their numbers: see `last_number`
    if commit is not None:
        info["userMetadata"] = commit.mark
        transactions = [Transaction(commit.application, commit.number, int(time.time() * 1000))]
    # Without retries: delta-rs would rebase the commit on a newer version. Here it fails, and `commit` decides.
    return CommitProperties(custom_metadata=info, app_transactions=transactions, max_commit_retries=0)


def _commit_metrics(added: Sequence[DataFile]) -> dict[str, int]:
    return {
        "numFiles": len(added),
        "numOutputRows": sum(file.rows for file in added),
        "numOutputBytes": sum(file.size for file in added),
    }


def _logged_commit(entry: Mapping[str, Any]) -> LoggedCommit:
    parameters: Mapping[str, Any] = entry.get("operationParameters") or {}
    return LoggedCommit(
        int(entry["version"]),
        str(entry.get("operation", "a commit that does not say what it does")),
        parameters,
        CommitId.logged(entry.get("userMetadata"), parameters),
        int(entry.get("timestamp") or 0),
        {name: str(value) for name, value in (entry.get("operationMetrics") or {}).items()},
    )


# Columns


def declared(columns: pa.Schema) -> list[dict[str, Any]]:
    """Return columns as Delta's log declares them, each with its comment.

    Raises:
        TypeError: for a type that no column has.
    """
    return _fields(_schema(columns))


def _schema(columns: pa.Schema) -> Schema:
    try:
        return Schema.from_arrow(columns)
    except Exception:  # delta-rs has no class of its own for it, and its text has a stack
        raise TypeError(f"no column has the type of one of these: {columns.types}") from None


def _fields(schema: Schema) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema.to_json())["fields"]
    return fields


def _physical(field: Mapping[str, Any]) -> str:
    return str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))


def _in_files(kind: pa.DataType, expected: Any, declared: Any) -> pa.DataType | None:
    """Return a type with the names that files use inside it; None if the table's column has another type.

    Args:
        expected: the type as it would be declared; ``declared`` is the one of the table.
    """
    if isinstance(expected, str) or isinstance(declared, str):
        return kind if expected == declared else None  # of a type without parts the files have no names
    if expected["type"] != declared["type"]:
        return None
    if pa.types.is_list(kind):
        element = _in_files(kind.value_type, expected["elementType"], declared["elementType"])
        return None if element is None else pa.list_(element)
    fields: list[dict[str, Any]] = declared["fields"]
    if [field["name"] for field in expected["fields"]] != [field["name"] for field in fields]:
        return None
    triples = zip(kind, expected["fields"], fields, strict=True)
    parts = [_in_files(part.type, other["type"], field["type"]) for part, other, field in triples]
    return None if None in parts else pa.struct(list(zip(map(_physical, fields), parts, strict=True)))


def _indexed(names: Sequence[str], properties: Mapping[str, str]) -> set[str]:
    """Return the columns of which the log has statistics."""
    named = properties.get("delta.dataSkippingStatsColumns")
    if named is not None:
        return {name.strip(" `") for name in named.split(",")}
    count = indexed_count(properties)
    return set(names if count < 0 else names[:count])

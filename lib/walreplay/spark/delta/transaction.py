"""Commit files that Python has written, by Delta's own transaction.

A DataFrame's write passes rows one by one through the JVM, and an UPDATE of one row is a dozen Spark jobs.  If a table
lies where driver and executors reach it by themselves, Python can write its files from Arrow.  Delta then only has to
commit them: by the same transaction that its statements make, with conflict checks, table features, checkpoints and
checksums.

Calls of Delta's classes are in `walreplay.spark.delta.internals`.  `begin` gives None if the table has a property or
feature that files would have to respect and that is not known here (`Transaction.obstacle`).  Then Spark's statements
write to it.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from walreplay.sink.comments import comment_in
from walreplay.sink.data_files import DataFile, FileColumn, indexed_count
from walreplay.sink.features import FEATURE, missing, needed_by, of_new, protocol_shown
from walreplay.sink.folders import Folder, MountedFolder
from walreplay.sink.table_log import LOG, LoggedVersion
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.internals import CHECKSUMS, COLUMNS, MERGES, PROPERTIES, DeltaTransaction, Internals
from walreplay.spark.delta.sql_types import declared, sql_schema
from walreplay.spark.delta.target import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KNOWN_PROPERTIES: Final = (
    "delta.appendOnly",
    "delta.checkpoint",
    "delta.columnMapping.",
    "delta.dataSkipping",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.enableTypeWidening",
    "delta.logRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.setTransactionRetentionDuration",
    "delta.targetFileSize",
)
"""Properties of tables that files need not heed, or that are heeded; others (constraints, formats) may ask for more."""

_WITHOUT_CHECKSUMS: Final = {"fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs"}
"""In mounted folders Hadoop keeps checksums beside the log's files, and starts a program (chmod, readlink) for each
step that it takes with them: without, a commit takes a third less time."""

_CHECKSUM_FILES: Final = "spark.databricks.delta.writeChecksumFile.enabled"

_LAST_CHECKPOINT_SUM: Final = f"{LOG}/._last_checkpoint.crc"
"""The checksum of the one file of the log that is written again and again."""

_OF_CATALOGS: Final = re.compile("catalogManaged|catalogOwned|coordinatedCommits", re.IGNORECASE)
"""What is in the name of a feature by which a catalog makes a table's commits, or decides between them."""

_KNOWN_FIELDS: Final = {"comment", "delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.typeChanges"}
"""The same of columns; others are generated, or must hold something."""


def begin(
    spark: SparkSession,
    place: Place,
    folder: Folder,
    internals: Internals,
    *,
    create: pa.Schema | None = None,
    properties: Mapping[str, str] = delta.NO_PROPERTIES,
) -> Transaction | None:
    """Begin a transaction on a table; None if Spark has to write to it."""
    begun = begin_or_say(spark, place, folder, internals, create=create, properties=properties)
    return None if isinstance(begun, str) else begun


def begin_or_say(
    spark: SparkSession,
    place: Place,
    folder: Folder,
    internals: Internals,
    *,
    create: pa.Schema | None = None,
    properties: Mapping[str, str] = delta.NO_PROPERTIES,
) -> Transaction | str:
    """Begin a transaction on a table, or say why Spark has to write to it.

    Args:
        folder: the table's, which driver and executors reach by themselves.
        create: the columns, if the table does not exist yet.  A catalog's is made by a statement before.
    """
    # A table that is to be created is believed not to be there; if it is, the commit fails.
    begun = internals.begin_at(spark, place, -1, None) if create is not None else None
    if begun is None:
        begun = internals.begin(spark, place, is_far=folder.is_far)
    transaction = Transaction(spark, begun, folder)
    if transaction.is_new != (create is not None):
        return "it is there already" if create is not None else "it is not there"
    if create is not None:
        transaction.create(create, properties)
    return transaction.obstacle or transaction


def begin_at(
    spark: SparkSession, place: Place, folder: Folder, internals: Internals, version: int, made_by: str | None
) -> Transaction | None:
    """Begin a transaction on a version that is believed to be a table's newest; None if it is known not to be.

    Args:
        made_by: the id of the version's commit (`LoggedVersion.made_by`).
    """
    begun = internals.begin_at(spark, place, version, made_by)
    transaction = None if begun is None else Transaction(spark, begun, folder)
    return None if transaction is None or transaction.obstacle is not None else transaction


class Transaction:
    """A transaction on one table; a conflicting commit by somebody else makes it fail.

    Attributes:
        id: the commit's, once it is made, if its checksum was written here.
    """

    def __init__(self, spark: SparkSession, begun: DeltaTransaction, folder: Folder) -> None:
        self._spark = spark
        self._begun = begun
        self._internals = begun.internals
        self.folder = folder
        self.version = begun.version
        self.id: str | None = None
        in_memory = folder.is_far and self._internals.can(CHECKSUMS)
        self.logged = LoggedVersion(folder, self.version, begun.checksum if in_memory else None)

    @property
    def is_new(self) -> bool:
        """There is no table yet."""
        return self.version < 0

    def create(self, columns: pa.Schema, properties: Mapping[str, str]) -> None:
        """Let the commit create the table, with the comments of its columns and of their schema (`comment_in`)."""
        schema = declared(sql_schema(columns))
        for field, column in zip(schema["fields"], columns, strict=True):
            if comment := comment_in(column):
                field["metadata"]["comment"] = comment
        about = {"description": comment} if (comment := comment_in(columns)) else {}
        metadata = {
            "id": str(uuid.uuid4()),
            **about,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": [],
            "configuration": of_new({**properties, **needed_by(schema["fields"])}),
            "createdTime": _now(),
        }
        self._begun.create(metadata)

    @property
    def may_be_rewritten(self) -> bool:
        """Rows may be moved from files to new files, by a commit that the history shows as a MERGE."""
        if not self._internals.can(MERGES):
            return False
        configuration = self._begun.metadata()["configuration"]
        # With a change data feed, statements must record the changes: a removed file would count as deleted rows.
        return not any(
            configuration.get(name, "false").lower() != "false"
            for name in ("delta.appendOnly", "delta.enableChangeDataFeed")
        )

    @property
    def obstacle(self) -> str | None:
        """What the table has that its files must respect and that is not known here; None for nothing."""
        if any(map(_OF_CATALOGS.search, self._protocol())):
            return "its catalog makes its commits"
        return obstacle_in(self._begun.metadata())

    def may_be_altered(self, *, drops: bool, renames: bool, widens: bool) -> bool:
        """Columns may be changed in the log alone; nothing else depends on them."""
        configuration, protocol = self._begun.metadata()["configuration"], self._protocol()
        mapping = configuration.get("delta.columnMapping.mode", "none")
        return (
            self._internals.can(COLUMNS)
            and (mapping == "name" or (mapping == "none" and not (drops or renames)))
            and "delta.dataSkippingStatsColumns" not in configuration
            and not (widens and configuration.get("delta.enableTypeWidening", "false").lower() != "true")
            and not (widens and f"{FEATURE}typeWidening" not in protocol)
            and not (drops and f"{FEATURE}clustering" in protocol)
        )

    @property
    def may_have_properties(self) -> bool:
        """Properties may be set by `set_properties`."""
        return self._internals.can(PROPERTIES)

    def lacks(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Give the properties among some that the table does not have."""
        return missing(wanted, self._begun.metadata()["configuration"] | self._protocol())

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Commit properties; fails if anybody else has committed since."""
        self._change_properties(
            {"configuration": self._begun.metadata()["configuration"] | dict(properties)}, properties
        )

    @property
    def comment(self) -> str:
        """The table's comment; empty for none."""
        return self._begun.metadata().get("description") or ""

    def set_comment(self, comment: str) -> None:
        """Commit the table's comment as ALTER TABLE does; fails if anybody else has committed since."""
        self._change_properties({"description": comment}, {"comment": comment})

    def _change_properties(self, changed: Mapping[str, Any], told: Mapping[str, str]) -> None:
        self._begun.activate()
        self._begun.change(self._begun.metadata() | dict(changed))
        self._begun.read_all()
        self._commit([], self._internals.set_properties(told), {})

    def _protocol(self) -> dict[str, str]:
        """Give the table's protocol in the form of SHOW TBLPROPERTIES."""
        return protocol_shown(self._begun.protocol())

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The table's columns as the log declares them."""
        return _fields(self._begun.metadata())

    def alter(self, fields: Sequence[Mapping[str, Any]], commit: delta.CommitId) -> int | None:
        """Commit new columns; give the table's new version, or None if this very commit was made before."""
        self._begun.activate()
        if self._is_made(commit):
            return None
        metadata = self._begun.metadata()
        before, after = metadata["schemaString"], json.dumps({"type": "struct", "fields": list(fields)})
        self._begun.change(metadata | {"schemaString": after})
        operation = self._internals.update_schema(before, after)
        return self._commit([_txn(commit)], operation, {delta.USER_METADATA: commit.mark})

    def has_only(self, wanted: pa.Schema) -> bool:
        """Say whether the table has these columns and no other."""
        names: list[str] = wanted.names
        return [field["name"] for field in self.fields] == names

    def columns(self, wanted: pa.Schema) -> tuple[FileColumn, ...] | None:
        """Give some of the table's columns as its files have them; None if their types differ."""
        return columns_in(self._begun.metadata(), wanted)

    def files(self) -> Sequence[Mapping[str, Any]]:
        """Give the log's entries of the table's files; only for small tables."""
        found = self.logged.files()
        if found is not None:
            return found
        return self._begun.files()

    def commit(
        self,
        added: Sequence[DataFile],
        commit: delta.CommitId | None = None,
        *,
        instead_of: Sequence[Mapping[str, Any]] | None = None,
        merged: Mapping[str, int] | None = None,
    ) -> int | None:
        """Commit files; give the table's new version, or None if this very commit was made before.

        Args:
            commit: the commit that this is, if it must be made exactly once.
            instead_of: files that are removed (see `files`); the commit fails if anybody has changed the table since.
            merged: the metrics of the MERGE that this stands for.
        """
        # The transaction may have begun in another of Java's threads.
        self._begun.activate()
        actions: list[tuple[str, Mapping[str, Any]]] = []
        if commit is not None:
            if self._is_made(commit):
                return None
            actions.append(_txn(commit))
        for gone in instead_of or ():
            names = ("path", "partitionValues", "size", "deletionVector")
            kept = {name: gone[name] for name in names if gone.get(name) is not None}
            removed = {"deletionTimestamp": _now(), "dataChange": True, "extendedFileMetadata": True}
            actions.append(("remove", kept | removed))
        actions += [("add", log_entry(file)) for file in added]
        if instead_of is not None:
            self._begun.read_all()
        self._begun.count(_counts(added) if merged is None else merged)
        mark = None if commit is None else commit.mark
        internals = self._internals
        operation = internals.write(mark, anew=instead_of is not None) if merged is None else internals.merge()
        told = {} if merged is None or mark is None else {delta.USER_METADATA: mark}
        return self._commit(actions, operation, told)

    def _commit(self, actions: Sequence[tuple[str, Mapping[str, Any]]], operation: Any, told: Mapping[str, str]) -> int:
        # A checksum file must not outlive the file that it belongs to, wherever this program is stopped.
        if isinstance(self.folder, MountedFolder):
            # A commit of this number that was lost may have left its own.
            self.folder.delete(_LAST_CHECKPOINT_SUM, f"{LOG}/.{self.version + 1:020}.json.crc")
        # Where somebody has switched the files of checksums off, they stay so.
        configured = self._spark._jsparkSession.conf().getOption(_CHECKSUM_FILES)
        writes = self._internals.can(CHECKSUMS) and not (configured.isDefined() and configured.get() == "false")
        own = {_CHECKSUM_FILES: "false"} if writes else {}
        with _java_settings(self._spark, {**_WITHOUT_CHECKSUMS, **own, **told}):
            version = self._begun.commit(actions, operation)
        if writes:
            self._write_checksum(version)
        return version

    def _write_checksum(self, version: int) -> None:
        """Write the file of a version's checksum, as Delta has it in memory.

        Delta itself writes it beside its place and renames it.  In an object store those are sixteen requests, and in a
        mounted folder it takes longer than the commit.
        """
        # The table is right without it: then whoever reads it next takes longer.
        with suppress(OSError):
            if (text := self._begun.checksum(version)) is not None:
                self.id = json.loads(text).get("txnId")
                self.folder.inside(LOG).put(f"{version:020}.crc", text.encode())

    def _is_made(self, commit: delta.CommitId) -> bool:
        """Say whether a commit was made before, and have this one fail if it is made meanwhile."""
        return self._begun.last_number(commit.application, self.logged.transactions()) >= commit.number


def obstacle_in(metadata: Mapping[str, Any]) -> str | None:
    """Say what a table has, by its metadata, that files must respect and that is not known here; None for nothing."""
    if metadata.get("partitionColumns"):
        return "it is partitioned"
    for name in metadata["configuration"]:
        if name.startswith("delta.") and not name.startswith(_KNOWN_PROPERTIES):
            return f"it has the property {name}"
    if all(field["nullable"] and field["metadata"].keys() <= _KNOWN_FIELDS for field in _fields(metadata)):
        return None
    return "a column of it is generated, or must hold something"


def columns_in(metadata: Mapping[str, Any], wanted: pa.Schema) -> tuple[FileColumn, ...] | None:
    """Give some of a table's columns as its files have them, by its metadata; None if their types differ."""
    found = {field["name"]: field for field in _fields(metadata)}
    indexed = _indexed(list(found), metadata["configuration"])
    columns = []
    for column, expected in zip(wanted, declared(sql_schema(wanted))["fields"], strict=True):
        field = found.get(column.name)
        kind = None if field is None else _in_files(column.type, expected["type"], field["type"])
        if field is None or kind is None:
            return None
        number = field["metadata"].get("delta.columnMapping.id")
        columns.append(FileColumn(column.name, _physical(field), kind, number, column.name in indexed))
    return tuple(columns)


@contextmanager
def _java_settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set some settings for a while in the session's Java, which a platform that refuses them to Python may still take.

    Without the mark a commit could not be recognised as the run's own.
    """
    java = spark._jsparkSession.conf()
    before = {key: java.getOption(key) for key in values}
    for key, value in values.items():
        java.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            java.set(key, old.get()) if old.isDefined() else java.unset(key)


def _txn(commit: delta.CommitId) -> tuple[str, Mapping[str, Any]]:
    return "txn", {"appId": commit.application, "version": commit.number, "lastUpdated": _now()}


def _counts(added: Sequence[DataFile]) -> dict[str, int]:
    return {
        "numFiles": len(added),
        "numOutputRows": sum(file.rows for file in added),
        "numOutputBytes": sum(file.size for file in added),
    }


def _fields(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(metadata["schemaString"])["fields"]
    return fields


def _physical(field: Mapping[str, Any]) -> str:
    name: str = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
    return name


def _in_files(kind: pa.DataType, expected: Any, declared: Any) -> pa.DataType | None:
    """Give a type with the names that files use inside it; None if the table's column has another type.

    Args:
        expected: the type as Spark writes it (JSON); ``declared`` is the one of the table's schema.
    """
    if isinstance(expected, str) or isinstance(declared, str):
        return kind if expected == declared else None
    if expected["type"] != declared["type"]:
        return None
    if pa.types.is_list(kind):
        element = _in_files(kind.value_type, expected["elementType"], declared["elementType"])
        return None if element is None else pa.list_(element)
    if [field["name"] for field in expected["fields"]] != [field["name"] for field in declared["fields"]]:
        return None
    fields = []
    for own, wanted, field in zip(kind, expected["fields"], declared["fields"], strict=True):
        part = _in_files(own.type, wanted["type"], field["type"])
        if part is None:
            return None
        fields.append((_physical(field), part))
    return pa.struct(fields)


def _indexed(names: Sequence[str], configuration: Mapping[str, str]) -> set[str]:
    """Give the columns of which the log has statistics."""
    named = configuration.get("delta.dataSkippingStatsColumns")
    if named is not None:
        return {name.strip(" `") for name in named.split(",")}
    count = indexed_count(configuration)
    return set(names if count < 0 else names[:count])


def log_entry(file: DataFile) -> dict[str, Any]:
    """Give the log's entry for a file that is added."""
    return {
        "path": file.name,
        "partitionValues": {},
        "size": file.size,
        "modificationTime": _now(),
        "dataChange": True,
        "stats": file.stats,
    }


def _now() -> int:
    """Give this moment as the log has it: ms since 1970."""
    return int(time.time() * 1000)

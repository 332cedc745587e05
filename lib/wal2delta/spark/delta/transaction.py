"""Commits of files that this program has written itself, made by Delta's own transaction.

A DataFrame's write takes rows one by one through the JVM, and an UPDATE of one row is a dozen of Spark's jobs.  Where a
table lies in a folder that driver and executors have mounted, its files can be written by Python, from Arrow as it is;
all that is left for Delta is the commit: the very transaction that its own statements make (`OptimisticTransaction`),
with its checks for conflicts, its table features, checkpoints and checksums.

Delta has no public interface for that, so that none is relied on: `begin` gives None where Delta's classes are not
there as they are known here (Spark Connect, Databricks), where the table is not in a mounted folder, or has anything
about it that files would have to heed and that is not known here.  Then the DataFrame's write does the same.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from wal2delta.sink.data_files import DataFile, FileColumn
from wal2delta.sink.features import FEATURE, missing, needed_by, of_new, protocol_shown
from wal2delta.sink.table_log import LoggedVersion
from wal2delta.spark.delta import statements as delta
from wal2delta.spark.delta.mounted import mounted_folder
from wal2delta.spark.delta.sql_types import sql_schema
from wal2delta.spark.delta.target import TableName
from wal2delta.spark.session.isolation import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA: Final = "org.apache.spark.sql.delta"

_OPTION: Final = "scala.Option"
_MAP: Final = "scala.collection.immutable.Map"
_STRUCT: Final = "org.apache.spark.sql.types.StructType"

_SCHEMA: Final = "DeltaOperations$UpdateSchema"
_SET: Final = "DeltaOperations$SetTableProperties"
"""The operations that change a table's metadata."""

_SEQ: Final = "scala.collection.immutable.Seq"

_INDEXED: Final = 32
"""Of so many columns Delta keeps statistics, if a table does not say otherwise."""

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

_LAST_CHECKPOINT_SUM: Final = "_delta_log/._last_checkpoint.crc"
"""The checksum of the one file of the log that is written again and again."""

_KNOWN_FIELDS: Final = {"comment", "delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.typeChanges"}
"""The same of columns; others are generated, or must hold something."""


@dataclass(frozen=True, slots=True)
class _Delta:
    """Delta's classes in a session's JVM, and Scala's that they take."""

    log: Any
    action: Any
    write: Any
    write_defaults: tuple[Any, ...]
    merge: Any
    merge_parameters: tuple[str, ...]
    metrics: Any
    schema: Any
    properties: Any
    jvm: Any


def begin(
    spark: SparkSession,
    table: TableName,
    *,
    create: pa.Schema | None = None,
    properties: Mapping[str, str] = delta.NO_PROPERTIES,
) -> Transaction | None:
    """Begin a transaction on a table; None where Spark has to write to it.

    Args:
        create: the columns, where the table is not there yet.
    """
    folder = mounted_folder(spark, table.path)
    classes = None if folder is None else _classes(spark._jvm)
    if folder is None or classes is None:
        return None
    _activate(spark)
    begun = classes.log.forTable(spark._jsparkSession, table.path).startTransaction()
    transaction = Transaction(spark, classes, begun, folder)
    if transaction.is_new != (create is not None):
        return None
    if create is not None:
        transaction.create(create, properties)
    return transaction if transaction.is_plain else None


def _activate(spark: SparkSession) -> None:
    """Have Delta go by what a session has set: it asks the one that is active in Java's thread."""
    getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)


@lru_cache(maxsize=4)
def _classes(jvm: Any) -> _Delta | None:
    """Find Delta's classes, and see that they are what is known here."""
    from py4j.protocol import Py4JError

    if jvm is None:
        return None
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()

        def named(name: str) -> Any:
            return jvm.java.lang.Class.forName(name, True, loader)

        def companion(name: str) -> Any:
            return named(f"{name}$").getField("MODULE$").get(None)

        known = {method.getName() for method in named(f"{_DELTA}.OptimisticTransaction").getMethods()}
        wanted = {"commit", "metadata", "readTxn", "readVersion", "readWholeTable", "registerSQLMetrics", "snapshot"}
        if not wanted | {"txnVersion", "updateMetadataForNewTable"} <= known:
            return None
        write = companion(f"{_DELTA}.DeltaOperations$Write")
        parameters = named(f"{_DELTA}.DeltaOperations$Write").getConstructors()[0].getParameterTypes()
        # The mode, how the table is partitioned, a predicate, the user's metadata, and whatever has come since.
        options = [str(kind.getName()) for kind in parameters]
        if options[:4] != ["org.apache.spark.sql.SaveMode", *[_OPTION] * 3]:
            return None
        merge = named(f"{_DELTA}.DeltaOperations$Merge").getConstructors()[0].getParameterTypes()
        merge_parameters = tuple(str(kind.getName()) for kind in merge)
        return _Delta(
            log=companion(f"{_DELTA}.DeltaLog"),
            action=companion(f"{_DELTA}.actions.Action"),
            write=write,
            write_defaults=tuple(getattr(write, f"apply$default${n}")() for n in range(2, len(options) + 1)),
            merge=companion(f"{_DELTA}.DeltaOperations$Merge") if {*merge_parameters} <= {_OPTION, _SEQ} else None,
            merge_parameters=merge_parameters,
            metrics=companion("org.apache.spark.sql.execution.metric.SQLMetrics"),
            schema=companion(f"{_DELTA}.{_SCHEMA}") if _alters(known, named, _SCHEMA, [_STRUCT] * 2) else None,
            properties=companion(f"{_DELTA}.{_SET}") if _alters(known, named, _SET, [_MAP]) else None,
            jvm=jvm,
        )
    except (Py4JError, TypeError):
        return None


def _alters(known: set[str], named: Callable[[str], Any], operation: str, parameters: Sequence[str]) -> bool:
    """Say whether Delta's transaction changes a table's metadata, by an operation, in the way that is known here."""
    from py4j.protocol import Py4JError

    try:
        found = named(f"{_DELTA}.{operation}").getConstructors()[0].getParameterTypes()
    except Py4JError:
        return False
    return {"updateMetadata", "protocol"} <= known and [str(kind.getName()) for kind in found] == list(parameters)


class Transaction:
    """A transaction on one table; whoever else commits in between makes it fail, if that matters."""

    def __init__(self, spark: SparkSession, classes: _Delta, transaction: Any, folder: str) -> None:
        self._spark = spark
        self._classes = classes
        self._transaction = transaction
        self.folder = folder
        self.version = int(transaction.readVersion())
        self.logged = LoggedVersion(folder, self.version)

    @property
    def is_new(self) -> bool:
        """There is no table yet."""
        return self.version < 0

    def create(self, columns: pa.Schema, properties: Mapping[str, str]) -> None:
        """Have the commit make the table."""
        schema = declared(sql_schema(columns))
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": [],
            "configuration": of_new({**properties, **needed_by(schema["fields"])}),
            "createdTime": _now(),
        }
        self._transaction.updateMetadataForNewTable(self._action("metaData", metadata))

    @property
    def may_be_rewritten(self) -> bool:
        """Rows may go with their files and come back in others, by what is told as a MERGE."""
        if self._classes.merge is None:
            return False
        configuration = self._metadata()["configuration"]
        # Changes that are fed to others are told by statements; a file that goes would be taken for all its rows.
        return not any(
            configuration.get(name, "false").lower() != "false"
            for name in ("delta.appendOnly", "delta.enableChangeDataFeed")
        )

    @property
    def is_plain(self) -> bool:
        """Nothing is asked of the table's files that is not known here."""
        metadata = self._metadata()
        if metadata.get("partitionColumns"):
            return False
        if not all(
            name.startswith(_KNOWN_PROPERTIES) for name in metadata["configuration"] if name.startswith("delta.")
        ):
            return False
        fields = json.loads(metadata["schemaString"])["fields"]
        return all(field["nullable"] and field["metadata"].keys() <= _KNOWN_FIELDS for field in fields)

    def may_be_altered(self, *, drops: bool, renames: bool, widens: bool) -> bool:
        """Columns may change by what is written to the log, with nothing else that would have to know of it."""
        configuration, protocol = self._metadata()["configuration"], self._protocol()
        mapping = configuration.get("delta.columnMapping.mode", "none")
        return (
            self._classes.schema is not None
            and (mapping == "name" or (mapping == "none" and not (drops or renames)))
            and "delta.dataSkippingStatsColumns" not in configuration
            and not (widens and configuration.get("delta.enableTypeWidening", "false").lower() != "true")
            and not (widens and f"{FEATURE}typeWidening" not in protocol)
            and not (drops and f"{FEATURE}clustering" in protocol)
        )

    @property
    def may_have_properties(self) -> bool:
        """The table may get properties by `set_properties`."""
        return self._classes.properties is not None

    def lacks(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Give those of some properties that the table has not."""
        return missing(wanted, self._metadata()["configuration"] | self._protocol())

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Commit properties; whoever has committed anything else since fails it."""
        _activate(self._spark)
        metadata = self._metadata()
        action = self._action("metaData", metadata | {"configuration": metadata["configuration"] | dict(properties)})
        self._transaction.updateMetadata(action, False)
        self._transaction.readWholeTable()
        told = self._classes.jvm.PythonUtils.toScalaMap(dict(properties))
        self._commit([], self._classes.properties.apply(told), {})

    def _protocol(self) -> dict[str, str]:
        """Give the table's protocol, as SHOW TBLPROPERTIES shows it."""
        return protocol_shown(json.loads(self._transaction.protocol().json())["protocol"])

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The table's columns as the log declares them."""
        found: list[dict[str, Any]] = json.loads(self._metadata()["schemaString"])["fields"]
        return found

    def alter(self, fields: Sequence[Mapping[str, Any]], commit: delta.CommitId) -> int | None:
        """Commit new columns; give the table's new version, or None if this very commit was made before."""
        _activate(self._spark)
        if self._last_number(commit.application) >= commit.number:
            return None
        metadata = self._metadata()
        before, after = metadata["schemaString"], json.dumps({"type": "struct", "fields": list(fields)})
        action = self._action("metaData", metadata | {"schemaString": after})
        self._transaction.updateMetadata(action, False)
        kinds = self._classes.jvm.org.apache.spark.sql.types.DataType
        assert self._classes.schema is not None
        operation = self._classes.schema.apply(kinds.fromJson(before), kinds.fromJson(after))
        return self._commit([self._txn(commit)], operation, {delta.USER_METADATA: commit.mark})

    def has_only(self, wanted: pa.Schema) -> bool:
        """Say whether the table has these columns and no other."""
        fields = json.loads(self._metadata()["schemaString"])["fields"]
        names: list[str] = wanted.names
        return [field["name"] for field in fields] == names

    def columns(self, wanted: pa.Schema) -> tuple[FileColumn, ...] | None:
        """Give some of the table's columns as its files have them; None where they are not of these types."""
        metadata = self._metadata()
        fields = json.loads(metadata["schemaString"])["fields"]
        found = {field["name"]: field for field in fields}
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

    def files(self) -> Sequence[Mapping[str, Any]]:
        """Give what the log has of the table's files; to be asked of small tables alone."""
        found = self.logged.files()
        if found is not None:
            return found
        listed = self._transaction.snapshot().allFiles().collectAsList()
        return [json.loads(file.json())["add"] for file in listed]

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
            commit: the commit that it is to be, where that matters.
            instead_of: files that the table has (see `files`), which go; and nobody may have changed it since.
            merged: what the table's history tells of it as of a MERGE, which it stands for.
        """
        call = self._transaction
        # Each of Python's threads has one of Java's, and the transaction may have begun in another.
        _activate(self._spark)
        actions = []
        if commit is not None:
            if self._last_number(commit.application) >= commit.number:
                return None
            actions.append(self._txn(commit))
        for gone in instead_of or ():
            names = ("path", "partitionValues", "size", "deletionVector")
            kept = {name: gone[name] for name in names if gone.get(name) is not None}
            removed = {"deletionTimestamp": _now(), "dataChange": True, "extendedFileMetadata": True}
            actions.append(self._action("remove", kept | removed))
        actions += [self._action("add", log_entry(file)) for file in added]
        if instead_of is not None:
            call.readWholeTable()
        self._count(_counts(added) if merged is None else merged)
        mark = None if commit is None else commit.mark
        operation = self._write(mark, anew=instead_of is not None) if merged is None else self._merge()
        told = {} if merged is None or mark is None else {delta.USER_METADATA: mark}
        return self._commit(actions, operation, told)

    def _txn(self, commit: delta.CommitId) -> Any:
        return self._action("txn", {"appId": commit.application, "version": commit.number, "lastUpdated": _now()})

    def _commit(self, actions: Sequence[Any], operation: Any, told: Mapping[str, str]) -> int:
        # A checksum that another program has left must not outlive what it is of, wherever this one is stopped.
        Path(self.folder, _LAST_CHECKPOINT_SUM).unlink(missing_ok=True)
        with settings(self._spark, {**_WITHOUT_CHECKSUMS, **told}):
            return int(self._transaction.commit(self._classes.jvm.PythonUtils.toSeq(actions), operation))

    def _last_number(self, application: str) -> int:
        """Give the number of an application's last commit, and have this one fail if another is made meanwhile."""
        known = self.logged.transactions()
        if known is None:
            return int(self._transaction.txnVersion(application))
        # The same as Delta does there, but for a query of the table's state, which takes longer than the commit.
        getattr(self._transaction.readTxn(), "$plus$eq")(application)
        return known.get(application, -1)

    def _write(self, mark: str | None, *, anew: bool) -> Any:
        jvm = self._classes.jvm
        modes = jvm.org.apache.spark.sql.SaveMode
        partitioned, predicate, _, *others = self._classes.write_defaults
        mode = modes.Overwrite if anew else modes.Append
        return self._classes.write.apply(mode, partitioned, predicate, jvm.scala.Option.apply(mark), *others)

    def _merge(self) -> Any:
        """Give a MERGE that does not say on what, nor what it does with which rows."""
        jvm = self._classes.jvm
        nothing = {_OPTION: jvm.scala.Option.apply(None), _SEQ: jvm.PythonUtils.toSeq([])}
        return self._classes.merge.apply(*(nothing[kind] for kind in self._classes.merge_parameters))

    def _metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._transaction.metadata().json())["metaData"]
        return found

    def _count(self, counts: Mapping[str, int]) -> None:
        """Have the history tell what is written, as of Spark's own writes."""
        context = self._spark._jsc.sc()
        metrics = {}
        for name, value in counts.items():
            metrics[name] = self._classes.metrics.createMetric(context, name)
            metrics[name].set(value)
        told = self._classes.jvm.PythonUtils.toScalaMap(metrics)
        self._transaction.registerSQLMetrics(self._spark._jsparkSession, told)

    def _action(self, kind: str, values: Mapping[str, Any]) -> Any:
        return self._classes.action.fromJson(json.dumps({kind: values}))


def _counts(added: Sequence[DataFile]) -> dict[str, int]:
    return {
        "numFiles": len(added),
        "numOutputRows": sum(file.rows for file in added),
        "numOutputBytes": sum(file.size for file in added),
    }


def declared(columns: str) -> dict[str, Any]:
    """Give columns that are declared in SQL as Delta's log has them."""
    declared: dict[str, Any] = json.loads(StructType.fromDDL(columns).json())
    return declared


def _physical(field: Mapping[str, Any]) -> str:
    name: str = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
    return name


def _in_files(kind: pa.DataType, expected: Any, declared: Any) -> pa.DataType | None:
    """Give a type with the files' names for what is in it; None where the table's column has another type.

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
    count = int(configuration.get("delta.dataSkippingNumIndexedCols", _INDEXED))
    return set(names if count < 0 else names[:count])


def log_entry(file: DataFile) -> dict[str, Any]:
    """Give what a table's log has of a file that is added."""
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

"""Delta's private classes, called through py4j.  No other module calls them.

Delta has no public interface to commit files that another program has written.  `USED` lists each method that is called
here, with its parameter types.  Before the first call the list is compared, by reflection, with the Delta that is
loaded.  If a method differs, `internals_of` says which, and Spark's statements are used instead.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from walreplay.spark.delta.target import Place
from walreplay.spark.session.isolation import has_own_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_A_MOMENT: Final = 2000.0
"""So many milliseconds Delta's version of a table in far storage counts as the newest."""

_SQL: Final = "org.apache.spark.sql"
_DELTA: Final = f"{_SQL}.delta"
_SESSION: Final = f"{_SQL}.SparkSession"
_OPTION, _SEQ, _MAP = "scala.Option", "scala.collection.immutable.Seq", "scala.collection.immutable.Map"
_TEXT: Final = "java.lang.String"
_STRUCT: Final = f"{_SQL}.types.StructType"


@dataclass(frozen=True, slots=True)
class Method:
    """A method that is called here.

    Attributes:
        of: the class; the name of a Scala object's class ends in ``$``.
        takes: the parameter types.
        more: further parameters may follow, each with a default.
    """

    of: str
    name: str
    takes: tuple[str, ...] = ()
    more: bool = False

    def __str__(self) -> str:
        return f"{self.of}.{self.name}({', '.join(self.takes)}{', …' if self.more else ''})"


_TRANSACTION: Final = f"{_DELTA}.OptimisticTransaction"
_METADATA: Final = f"{_DELTA}.actions.Metadata"
_CATALOG: Final = f"{_SQL}.catalyst.catalog"
_ENTRY: Final = f"{_CATALOG}.CatalogTable"

COMMITS: Final = "commits"
MERGES: Final = "merges"
COLUMNS: Final = "columns"
PROPERTIES: Final = "properties"
FORGETTING: Final = "forgetting"
CHECKPOINTS: Final = "checkpoints"
CHECKSUMS: Final = "checksums"  # and what else hangs on the version that Delta has in memory
CATALOGS: Final = "catalogs"

USED: Final[Mapping[str, tuple[Method, ...]]] = {
    COMMITS: (
        Method(f"{_SQL}.classic.SparkSession", "setActiveSession", (_SESSION,)),
        Method(f"{_SQL}.execution.metric.SQLMetrics$", "createMetric", ("org.apache.spark.SparkContext", _TEXT)),
        Method(f"{_SQL}.execution.metric.SQLMetric", "set", ("long",)),
        Method("org.apache.spark.api.python.PythonUtils", "toSeq", ("java.util.List",)),
        Method("org.apache.spark.api.python.PythonUtils", "toScalaMap", ("java.util.Map",)),
        Method("scala.collection.mutable.ArrayBuffer", "$plus$eq", ("java.lang.Object",)),
        Method(f"{_DELTA}.DeltaLog$", "forTable", (_SESSION, _TEXT)),
        Method(f"{_DELTA}.DeltaLog", "startTransaction"),
        Method(_TRANSACTION, "readVersion"),
        Method(_TRANSACTION, "metadata"),
        Method(_TRANSACTION, "protocol"),
        Method(_TRANSACTION, "snapshot"),
        Method(_TRANSACTION, "updateMetadataForNewTable", (_METADATA,)),
        Method(_TRANSACTION, "txnVersion", (_TEXT,)),
        Method(_TRANSACTION, "readTxn"),
        Method(_TRANSACTION, "readWholeTable"),
        Method(_TRANSACTION, "registerSQLMetrics", (_SESSION, _MAP)),
        Method(_TRANSACTION, "commit", (_SEQ, f"{_DELTA}.DeltaOperations$Operation")),
        Method(f"{_DELTA}.Snapshot", "allFiles"),
        Method(f"{_DELTA}.actions.Action$", "fromJson", (_TEXT,)),
        Method(f"{_DELTA}.actions.Action", "json"),
        # What it takes behind the mode, the partitions' columns, a predicate and the user's metadata differs.
        Method(f"{_DELTA}.DeltaOperations$Write$", "apply", (f"{_SQL}.SaveMode", _OPTION, _OPTION, _OPTION), more=True),
    ),
    MERGES: (
        Method(f"{_DELTA}.DeltaOperations$Merge$", "apply", (_OPTION, _OPTION, _OPTION, _OPTION, _SEQ, _SEQ, _SEQ)),
    ),
    FORGETTING: (Method(f"{_DELTA}.DeltaLog", "invalidateCache", (_SESSION, "org.apache.hadoop.fs.Path")),),
    CHECKPOINTS: (Method(f"{_DELTA}.DeltaLog", "checkpoint"),),
    CHECKSUMS: (
        Method(f"{_DELTA}.DeltaLog", "unsafeVolatileSnapshot"),
        Method(f"{_DELTA}.DeltaLog", "getCapturedSnapshot"),
        Method(f"{_DELTA}.CapturedSnapshot", "snapshot"),
        Method(f"{_DELTA}.CapturedSnapshot", "updateTimestamp"),
        Method(f"{_DELTA}.DeltaLog", "startTransaction", (_OPTION, _OPTION)),
        Method(f"{_DELTA}.Snapshot", "version"),
        Method(f"{_DELTA}.Snapshot", "checksumOpt"),
        Method(f"{_DELTA}.VersionChecksum", "txnId"),
        Method(f"{_DELTA}.util.JsonUtils$", "mapper"),
    ),
    CATALOGS: (
        Method(f"{_SQL}.classic.SparkSession", "sessionState"),
        Method(f"{_SQL}.classic.SparkSession", "sharedState"),
        Method(f"{_SQL}.internal.SessionState", "catalog"),
        Method(f"{_SQL}.internal.SessionState", "catalogManager"),
        Method(f"{_SQL}.internal.SharedState", "externalCatalog"),
        Method(f"{_SQL}.internal.SharedState", "hadoopConf"),
        Method(f"{_SQL}.connector.catalog.CatalogManager", "catalog", (_TEXT,)),
        Method(f"{_CATALOG}.ExternalCatalogWithListener", "unwrapped"),
        Method(f"{_CATALOG}.SessionCatalog", "getTableMetadata", (f"{_SQL}.catalyst.TableIdentifier",)),
        Method(f"{_CATALOG}.SessionCatalog", "getDatabaseMetadata", (_TEXT,)),
        Method(f"{_CATALOG}.SessionCatalog", "defaultTablePath", (f"{_SQL}.catalyst.TableIdentifier",)),
        Method(f"{_CATALOG}.CatalogDatabase", "locationUri"),
        Method(_ENTRY, "provider"),
        Method(_ENTRY, "tableType"),
        Method(_ENTRY, "storage"),
        Method(f"{_CATALOG}.CatalogStorageFormat", "locationUri"),
        Method(f"{_DELTA}.DeltaLog$", "forTable", (_SESSION, _ENTRY)),
        Method(f"{_DELTA}.DeltaLog", "startTransaction", (_OPTION, _OPTION)),
    ),
    COLUMNS: (
        Method(_TRANSACTION, "updateMetadata", (_METADATA, "boolean")),
        Method(f"{_SQL}.types.DataType", "fromJson", (_TEXT,)),
        Method(f"{_DELTA}.DeltaOperations$UpdateSchema$", "apply", (_STRUCT, _STRUCT)),
    ),
    PROPERTIES: (
        Method(_TRANSACTION, "updateMetadata", (_METADATA, "boolean")),
        Method(f"{_DELTA}.DeltaOperations$SetTableProperties$", "apply", (_MAP,)),
    ),
}
"""What is called, by what it is needed for.  Seen to be in Delta 4.0.0, 4.0.1, 4.1.0, 4.2.0, 4.3.0 and 4.4.0."""

_SIGNATURE: Final = re.compile(r"([\w$]+)\(([^)]*)\)")


class _Classes:
    """The classes that a JVM has loaded, by their names."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._methods: dict[str, set[tuple[str, tuple[str, ...]]] | None] = {}

    def companion(self, name: str) -> Any:
        """Give a Scala object; its name ends in ``$``."""
        return self._named(name).getField("MODULE$").get(None)

    def methods(self, name: str) -> set[tuple[str, tuple[str, ...]]] | None:
        """Give a class' public methods, each with the types that it takes; None where there is no such class."""
        from py4j.protocol import Py4JError

        if name not in self._methods:
            try:
                # As one text: to ask each method by itself is a call to Java, and classes have hundreds.
                listed = str(self._jvm.org.apache.commons.lang3.ArrayUtils.toString(self._named(name).getMethods()))
            except (Py4JError, TypeError):
                self._methods[name] = None
            else:
                found = _SIGNATURE.findall(listed)
                self._methods[name] = {(called, tuple(filter(None, taken.split(",")))) for called, taken in found}
        return self._methods[name]

    def has(self, method: Method) -> bool:
        """Say whether there is a method."""
        return bool(self.taken(method))

    def taken(self, method: Method) -> list[tuple[str, ...]]:
        """Give a method's parameter types, including those that may follow; nothing if it does not exist."""
        count = len(method.takes)
        return sorted(
            (
                taken
                for name, taken in self.methods(method.of) or ()
                if name == method.name and taken[:count] == method.takes and (method.more or len(taken) == count)
            ),
            key=len,
        )

    def _named(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name, True, self._loader)


def missing(jvm: Any, methods: Sequence[Method]) -> list[Method]:
    """Give the methods that the loaded classes do not have, or have with other parameters."""
    classes = _Classes(jvm)
    return [method for method in methods if not classes.has(method)]


@dataclass(frozen=True, slots=True)
class Internals:
    """Delta's classes in a session's JVM.

    Attributes:
        missing: the methods that differ, by what they are needed for.
    """

    jvm: Any
    missing: Mapping[str, tuple[Method, ...]]
    _objects: Mapping[str, Any] = field(default_factory=dict)
    _write_defaults: tuple[Any, ...] = ()

    def can(self, what: str) -> bool:
        """Say whether all methods for a purpose exist: `COMMITS`, and with it `MERGES`, `COLUMNS` or `PROPERTIES`."""
        return not self.missing[COMMITS] and not self.missing[what]

    @property
    def warnings(self) -> list[str]:
        """The warnings about missing methods."""
        told = {
            COMMITS: "rows are written by Spark's statements, which take longer",
            MERGES: "small tables are merged into by Spark's statements, which take longer",
            COLUMNS: "columns are changed by ALTER TABLE",
            PROPERTIES: "tables' properties are changed by ALTER TABLE",
        }
        needs = [COMMITS] if self.missing[COMMITS] else [MERGES, COLUMNS, PROPERTIES]
        return [
            f"{told[what]}: the Delta that is loaded has no {', no '.join(map(str, self.missing[what]))}"
            for what in needs
            if self.missing[what]
        ]

    def begin(self, spark: SparkSession, place: Place, *, is_far: bool = False) -> DeltaTransaction:
        """Begin a transaction on a table, which need not exist yet if it is named by its path.

        Args:
            is_far: each request to the storage takes long: a version that Delta has found a moment ago is taken for the
                newest.  If it is not, the commit finds out.
        """
        self.activate(spark)
        log = self._log_of(spark, place)
        if is_far and self.can(CHECKSUMS):
            found = log.getCapturedSnapshot()
            if time.time() * 1000 - int(found.updateTimestamp()) < _A_MOMENT:
                return self._begin_on(spark, log, found.snapshot(), place)
        if place.entry is not None:
            return self._begin_on(spark, log, None, place)
        return DeltaTransaction(spark, self, log, log.startTransaction())

    def _log_of(self, spark: SparkSession, place: Place) -> Any:
        named = place.path if place.entry is None else place.entry
        return self._objects["DeltaLog$"].forTable(spark._jsparkSession, named)

    def _begin_on(self, spark: SparkSession, log: Any, snapshot: Any, place: Place) -> DeltaTransaction:
        """Begin a transaction on a version, or, if that is None, on the newest."""
        option = self.jvm.scala.Option
        begun = log.startTransaction(option.apply(place.entry), option.apply(snapshot))
        return DeltaTransaction(spark, self, log, begun)

    def begin_at(self, spark: SparkSession, place: Place, version: int, made_by: str | None) -> DeltaTransaction | None:
        """Begin a transaction on a version of a table without looking for newer ones; None if another one is known.

        If there is a newer one, the commit finds out.

        Args:
            made_by: the id (``txnId``) of the version's commit: somebody else may have begun the table anew, and now
                has a version of this number, too.
        """
        if not self.can(CHECKSUMS):
            return None
        self.activate(spark)
        log = self._log_of(spark, place)
        snapshot = log.unsafeVolatileSnapshot()
        if int(snapshot.version()) != version or (version >= 0 and _made_by(snapshot) != (made_by or "")):
            return None
        return self._begin_on(spark, log, snapshot, place)

    def write(self, mark: str | None, *, anew: bool) -> Any:
        """Give the history's operation WRITE.

        Args:
            mark: the user's metadata.
            anew: everything that the table had is replaced.
        """
        modes = self.jvm.org.apache.spark.sql.SaveMode
        partitioned, predicate, _, *others = self._write_defaults
        mode = modes.Overwrite if anew else modes.Append
        user = self.jvm.scala.Option.apply(mark)
        return self._objects["DeltaOperations$Write$"].apply(mode, partitioned, predicate, user, *others)

    def merge(self) -> Any:
        """Give the history's operation MERGE, without a condition and clauses."""
        nothing = {_OPTION: self.jvm.scala.Option.apply(None), _SEQ: self.seq([])}
        (method,) = USED[MERGES]
        return self._objects["DeltaOperations$Merge$"].apply(*(nothing[kind] for kind in method.takes))

    def update_schema(self, before: str, after: str) -> Any:
        """Give the history's operation for changed columns.

        Args:
            before, after: the columns, as the log has them (JSON).
        """
        kinds = self.jvm.org.apache.spark.sql.types.DataType
        operation = self._objects["DeltaOperations$UpdateSchema$"]
        return operation.apply(kinds.fromJson(before), kinds.fromJson(after))

    def set_properties(self, properties: Mapping[str, str]) -> Any:
        """Give the history's operation for changed properties."""
        told = self.jvm.PythonUtils.toScalaMap(dict(properties))
        return self._objects["DeltaOperations$SetTableProperties$"].apply(told)

    def action(self, kind: str, values: Mapping[str, Any]) -> Any:
        """Give the action that a line of the log describes."""
        return self._objects["actions.Action$"].fromJson(json.dumps({kind: values}))

    def metric(self, context: Any, name: str, value: int) -> Any:
        """Give a metric for the history."""
        metric = self._objects["SQLMetrics$"].createMetric(context, name)
        metric.set(value)
        return metric

    def seq(self, values: Sequence[Any]) -> Any:
        """Give Scala's sequence of some values."""
        return self.jvm.PythonUtils.toSeq(values)

    def activate(self, spark: SparkSession) -> None:
        """Make Delta use a session's settings: it takes the session that is active in Java's thread."""
        getattr(self.jvm, f"{_SQL}.classic.SparkSession").setActiveSession(spark._jsparkSession)


class DeltaTransaction:
    """Delta's own transaction on one table."""

    def __init__(self, spark: SparkSession, internals: Internals, log: Any, begun: Any) -> None:
        self._spark = spark
        self._internals = internals
        self._log = log
        self._begun = begun
        self.version = int(self._begun.readVersion())

    @property
    def internals(self) -> Internals:
        """The classes that it uses."""
        return self._internals

    def metadata(self) -> dict[str, Any]:
        """Give the table's metadata as the log has them."""
        found: dict[str, Any] = json.loads(self._begun.metadata().json())["metaData"]
        return found

    def protocol(self) -> dict[str, Any]:
        """Give the table's features as the log has them."""
        found: dict[str, Any] = json.loads(self._begun.protocol().json())["protocol"]
        return found

    def create(self, metadata: Mapping[str, Any]) -> None:
        """Let the commit create the table."""
        self._begun.updateMetadataForNewTable(self._internals.action("metaData", metadata))

    def change(self, metadata: Mapping[str, Any]) -> None:
        """Let the commit change the table's metadata."""
        self._begun.updateMetadata(self._internals.action("metaData", metadata), False)

    def files(self) -> list[dict[str, Any]]:
        """Give the table's files as the log has them, by a query of Delta's."""
        return [json.loads(file.json())["add"] for file in self._begun.snapshot().allFiles().collectAsList()]

    def last_number(self, application: str, known: Mapping[str, int] | None) -> int:
        """Give the number of an application's last commit, and fail this commit if another one is made meanwhile.

        Args:
            known: the numbers, if the log has told them.  Otherwise Delta runs a query over the table's state, which
                takes longer than the commit.
        """
        if known is None:
            return int(self._begun.txnVersion(application))
        getattr(self._begun.readTxn(), "$plus$eq")(application)
        return known.get(application, -1)

    def read_all(self) -> None:
        """Let the commit fail if anybody changes the table meanwhile."""
        self._begun.readWholeTable()

    def count(self, counts: Mapping[str, int]) -> None:
        """Report metrics to the history, as Spark's own writes do."""
        context = self._spark._jsc.sc()
        metrics = {name: self._internals.metric(context, name, value) for name, value in counts.items()}
        told = self._internals.jvm.PythonUtils.toScalaMap(metrics)
        self._begun.registerSQLMetrics(self._spark._jsparkSession, told)

    def activate(self) -> None:
        """Make Delta use the session's settings: each Python thread has a Java thread of its own."""
        self._internals.activate(self._spark)

    def commit(self, actions: Sequence[tuple[str, Mapping[str, Any]]], operation: Any) -> int:
        """Commit, and give the table's new version."""
        lines = [self._internals.action(kind, values) for kind, values in actions]
        return int(self._begun.commit(self._internals.seq(lines), operation))

    def checksum(self, version: int) -> str | None:
        """Give the checksum of a version, as its file has it; None if Delta has another version, or none, in memory."""
        snapshot = self._log.unsafeVolatileSnapshot()
        found = snapshot.checksumOpt()
        if int(snapshot.version()) != version or not found.isDefined():
            return None
        return str(self._internals._objects["util.JsonUtils$"].mapper().writeValueAsString(found.get()))


def _made_by(snapshot: Any) -> str | None:
    """Give the id of a version's commit, as far as its checksum is known."""
    checksum = snapshot.checksumOpt()
    made_by = checksum.get().txnId() if checksum.isDefined() else checksum
    return str(made_by.get()) if made_by.isDefined() else None


def internals_of(spark: SparkSession) -> Internals | None:
    """Find Delta's classes; None if the session has no JVM that Python can call."""
    return _of_jvm(spark._jvm) if has_own_sessions(spark) and spark._jvm is not None else None


@lru_cache(maxsize=4)
def _of_jvm(jvm: Any) -> Internals:
    classes = _Classes(jvm)
    lacking = {what: tuple(method for method in used if not classes.has(method)) for what, used in USED.items()}
    if lacking[COMMITS]:
        return Internals(jvm, lacking)
    objects = {
        method.of.removeprefix(f"{_DELTA}.").removeprefix(f"{_SQL}.execution.metric."): classes.companion(method.of)
        for what, used in USED.items()
        for method in used
        if method.of.endswith("$") and not lacking[what]
    }
    write = objects["DeltaOperations$Write$"]
    takes = classes.taken(next(method for method in USED[COMMITS] if method.more))[-1]
    defaults = tuple(getattr(write, f"apply$default${n}")() for n in range(2, len(takes) + 1))
    return Internals(jvm, lacking, objects, defaults)


def checkpoint_log(spark: SparkSession, path: str) -> None:
    """Write a checkpoint of a path's log (see `walreplay.spark.delta.statements.checkpoint`)."""
    # Other builds of Delta have the class elsewhere.  Delta writes a checkpoint by itself before long.
    with suppress(Exception):
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path).checkpoint()


def forget_log(spark: SparkSession, path: str) -> None:
    """Make Delta read a path's log again (see `walreplay.spark.delta.statements.forget`)."""
    # Other builds of Delta have the class elsewhere.
    with suppress(Exception):
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(
            spark._jsparkSession, jvm.org.apache.hadoop.fs.Path(path)
        )

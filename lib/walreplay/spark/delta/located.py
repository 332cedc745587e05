"""Where a table's files lie: at its path, or where Spark's own catalog says.

A catalog is asked only if it is Spark's session catalog with open source Delta's ``DeltaCatalog``, kept in memory or in
a Hive metastore: then a table is what lies at its location, and whoever commits there by Delta has changed the table.
Any other catalog may have its own say in a commit, and only statements are right.

A table may be dropped and made again elsewhere at any time, so nothing is kept here: each question goes to the
metastore, which takes some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from walreplay.sink.folders import Folder
from walreplay.spark.delta.internals import CATALOGS, internals_of
from walreplay.spark.delta.reach import folder_of
from walreplay.spark.delta.target import Place, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "spark_catalog"
_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_BEHIND: Final = (
    "org.apache.spark.sql.catalyst.catalog.InMemoryCatalog",
    "org.apache.spark.sql.hive.HiveExternalCatalog",
)
_METASTORES: Final = "hive.metastore.client.factory.class"
"""The setting by which something else stands in the place of a Hive metastore (Glue, for one)."""
_HIVE: Final = "SessionHiveMetaStoreClientFactory"

_MISSING: Final = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")


def place_of(spark: SparkSession, table: TableName) -> Place | None:
    """Give the place of a table; None for one whose catalog is not asked, and for what is no plain Delta table."""
    if table.path is not None:
        return Place(table.path)
    if not tells(spark, table.parts):
        return None
    try:
        entry = _catalog(spark).getTableMetadata(_identifier(spark, table))
    except AnalysisException as error:
        return Place(None) if error.getCondition() in _MISSING else None
    provider, location = entry.provider(), entry.storage().locationUri()
    kind = str(entry.tableType().name())
    is_delta = provider.isDefined() and str(provider.get()).lower() == "delta"
    if not is_delta or kind not in {"MANAGED", "EXTERNAL"} or not location.isDefined():
        return None
    return Place(_path_of(spark, location.get()), entry)


def folder_at(spark: SparkSession, table: TableName) -> Folder | None:
    """Give a table's folder, if the driver reaches it by itself; None if not, and for a table that does not exist."""
    place = place_of(spark, table)
    return None if place is None else folder_of(spark, place.path)


def schema_folder(spark: SparkSession, table: TableName) -> Folder | None:
    """Give the folder of the schema that a catalog's table is in, or would be; see `folder_at`."""
    return _folder_told(spark, table, lambda catalog: catalog.getDatabaseMetadata(table.parts[-2]).locationUri())


def folder_of_new(spark: SparkSession, table: TableName) -> Folder | None:
    """Give the folder in which a catalog would make a table; see `folder_at`."""
    return _folder_told(spark, table, lambda catalog: catalog.defaultTablePath(_identifier(spark, table)))


def _folder_told(spark: SparkSession, table: TableName, uri_in: Callable[[Any], Any]) -> Folder | None:
    if table.path is not None or not tells(spark, table.parts):
        return None
    try:
        uri = uri_in(_catalog(spark))
    except AnalysisException:
        return None
    return folder_of(spark, _path_of(spark, uri))


def tells(spark: SparkSession, parts: tuple[str, ...]) -> bool:
    """Say whether what a name's catalog says of locations holds for everybody who commits there.

    Args:
        parts: the name's, of a table, or of its catalog alone.
    """
    if parts[:1] == () or parts[0].lower() != _NAME or len(parts) not in {1, 2, 3}:
        return False
    internals = internals_of(spark)
    if internals is None or not internals.can(CATALOGS):
        return False
    session: Any = spark._jsparkSession
    # In a thread of Java's that has no session yet, each has Spark's own catalog alone.
    internals.activate(spark)
    try:
        catalog = session.sessionState().catalogManager().catalog(_NAME)
        behind = session.sharedState().externalCatalog().unwrapped()
        names = catalog.getClass().getName(), behind.getClass().getName()
        factory = session.sharedState().hadoopConf().get(_METASTORES)
    except Exception:
        # A catalog that cannot be loaded; whoever asks it for a table is told why.
        return False
    return names[0] == _CATALOG and names[1] in _BEHIND and (factory is None or str(factory).endswith(_HIVE))


def _catalog(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().catalog()


def _identifier(spark: SparkSession, table: TableName) -> Any:
    jvm: Any = spark._jvm
    _, schema, name = table.parts
    option = jvm.scala.Option
    return jvm.org.apache.spark.sql.catalyst.TableIdentifier(name, option.apply(schema), option.apply(None))


def _path_of(spark: SparkSession, uri: Any) -> str:
    """Give a URI as Hadoop names the place, with nothing encoded."""
    jvm: Any = spark._jvm
    return str(jvm.org.apache.hadoop.fs.Path(uri).toString())


__all__ = ["folder_at", "folder_of_new", "place_of", "schema_folder", "tells"]

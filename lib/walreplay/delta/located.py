"""The folder of a table's files: its path, or what Spark's own catalog says.

A catalog is asked only if it is Spark's session catalog with open source Delta's ``DeltaCatalog``, kept in memory or in
a Hive metastore: then a table is what lies at its location, and whoever commits there by Delta has changed the table.
Any other catalog may have its own say in a commit, and only statements are right.

A table may be dropped and made again elsewhere at any time, so nothing is cached here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException

from walreplay.delta.local import LocalTable, NotReadError
from walreplay.delta.stores import taken
from walreplay.delta.target import TableName
from walreplay.session.folders import Folder
from walreplay.session.isolation import has_own_sessions
from walreplay.session.reach import folder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NAME: Final = "spark_catalog"
_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_METASTORES: Final = "hive.metastore.client.factory.class"
"""The setting by which something else stands in the place of a Hive metastore (Glue, for one)."""
_HIVE: Final = "SessionHiveMetaStoreClientFactory"

_SAID: Final = re.compile(r"^(Type|Provider|Location): (.*)$", re.MULTILINE)


def folder_at(spark: SparkSession, table: TableName) -> Folder | None:
    """Return a table's folder, if driver and delta-rs reach it; None also for a table that a catalog does not have."""
    path = table.path if table.path is not None else _location(spark, table)
    folder = folder_of(spark, path)
    return None if folder is None else taken(folder)


def opened_at(spark: SparkSession, table: TableName) -> LocalTable | None:
    """Open a table by delta-rs; None if Spark has to be asked. A version below 0 says that there is none.

    Raises:
        DamagedLogError: its log is not whole.
    """
    folder = folder_at(spark, table)
    return None if folder is None else opened_in(folder)


def opened_in(folder: Folder, *, shared: bool = True) -> LocalTable | None:
    """Open the table in a folder; see `opened_at` and `LocalTable.open`."""
    try:
        return LocalTable.open(folder, shared=shared)
    except NotReadError:
        return None


def schema_folder(spark: SparkSession, table: TableName) -> Folder | None:
    """Return the folder of the schema that a catalog's table is in, or would be; see `folder_at`."""
    if table.path is not None or not tells(spark, table.parts):
        return None
    try:
        rows = spark.sql(f"DESCRIBE NAMESPACE {TableName(parts=table.parts[:-1]).sql}").collect()
    except AnalysisException:
        return None
    # Of a schema it is a URI, as Hadoop writes it; of a table it is decoded.
    return folder_of(
        spark, next((_plain(unquote(row.info_value)) for row in rows if row.info_name == "Location"), None)
    )


def folder_of_new(spark: SparkSession, table: TableName) -> Folder | None:
    """Return the folder in which a catalog would make a table; see `folder_at`."""
    schema = schema_folder(spark, table)
    return None if schema is None else schema.inside(table.parts[-1].lower())


def tells(spark: SparkSession, parts: tuple[str, ...]) -> bool:
    """Return whether what a name's catalog says of locations holds for everybody who commits there.

    Args:
        parts: the name's, of a table, or of its catalog alone.
    """
    if parts[:1] == () or parts[0].lower() != _NAME or len(parts) not in {1, 2, 3} or not has_own_sessions(spark):
        return False
    try:
        catalog = spark.conf.get(f"spark.sql.catalog.{_NAME}", "")
        kind = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    except Exception:
        # A platform may refuse to say.
        return False
    factory = str(spark._jsc.hadoopConfiguration().get(_METASTORES) or _HIVE)
    return catalog == _CATALOG and kind in {"in-memory", "hive"} and factory.endswith(_HIVE)


def _location(spark: SparkSession, table: TableName) -> str | None:
    """Return where a catalog's table lies; None if it is not asked, has no such table, or this is no Delta table."""
    if not tells(spark, table.parts):
        return None
    # Names in catalogs have letters, digits and underscores alone (`encode_for_catalog`).
    schema, name = TableName(parts=table.parts[:-1]).sql, table.parts[-1]
    try:
        # Unlike other statements this one asks the catalog alone, and opens no table.
        rows = spark.sql(f"SHOW TABLE EXTENDED IN {schema} LIKE '{name}'").collect()
    except AnalysisException:
        return None
    told = dict(_SAID.findall(rows[0].information)) if rows else {}
    if told.get("Provider", "").lower() != "delta" or told.get("Type") not in {"MANAGED", "EXTERNAL"}:
        return None
    return _plain(told["Location"]) if "Location" in told else None


def _plain(location: str) -> str | None:
    """Return a location that is the same whether somebody decodes it or not; None for any other, which Spark knows."""
    return None if "%" in location else location

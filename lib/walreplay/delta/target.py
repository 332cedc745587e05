"""Where tables are written: a folder of Delta tables, or a catalog.

Then the storage's errors, reported with the place: a full disk, a refused path, a damaged ledger, an unknown catalog.

The folder of a table's files: its path, or what Spark's own catalog says.

A catalog is asked only if it is Spark's session catalog with open source Delta's ``DeltaCatalog``, kept in memory or in
a Hive metastore: then a table is what lies at its location, and whoever commits there by Delta has changed the table.
Any other catalog may have its own say in a commit, and only statements are right.

A table may be dropped and made again elsewhere at any time, so nothing is cached here.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException

from walreplay.delta.local import LocalTable, NotReadError
from walreplay.delta.stores import taken
from walreplay.errors import ConfigError, TargetError, WalReplayError
from walreplay.session.failures import failure_of, is_refused
from walreplay.session.folders import Folder
from walreplay.session.isolation import absolute, has_own_sessions
from walreplay.session.reach import folder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LEDGER_SCHEMA: Final = "_walreplay"
_SOURCES: Final = "sources"  # inside the ledger's folder: the ledgers of several sources
_CATALOG = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*(\.[A-Za-z_][A-Za-z0-9_\-]*)?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_NOT_IN_CATALOGS = re.compile(rf"(?:[^A-Za-z0-9_]|_(?=_x)|\A_(?={LEDGER_SCHEMA[1:]}))+", re.IGNORECASE | re.ASCII)
_UNSAFE = re.compile(r"[/\\%\x00-\x1f\x7f]")


_BETWEEN: Final = "__x__"  # no encoded name contains it


def encode_name(name: str) -> str:
    """Write a PostgreSQL name as the name of a folder.

    A name stays as it is, except for what would leave the folder, end the name or hide it from Spark (a leading ``.``
    or ``_``).  That is percent-encoded, and so is ``%`` itself, so that no two names become one.
    """
    encoded = _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    return encoded


def encode_for_catalog(name: str) -> str:
    """Write a PostgreSQL name as the name of a schema or table in a catalog.

    Spark's own catalog and Hive's accept only ASCII letters, digits and ``_``; Unity Catalog accepts a little more.  So
    that a name does not depend on the catalog, other characters are written as ``__x<code>_<code>__``, their code
    points in hexadecimal: ``order-items`` is ``order__x2d__items``.  An underscore that begins ``__x``, or the ledger's
    name, is encoded too.  No two names become one, except those that differ only by case, because catalogs ignore case.
    """
    return _NOT_IN_CATALOGS.sub(lambda match: f"__x{'_'.join(f'{ord(char):x}' for char in match[0])}__", name)


def quote(name: str) -> str:
    """Quote a name for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class TableName:
    """A Delta table's name: its path, or its parts in a catalog."""

    path: str | None = None
    parts: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """The quoted name for SQL."""
        if self.path is not None:
            return f"delta.{quote(self.path)}"
        return ".".join(quote(part) for part in self.parts)

    @property
    def text(self) -> str:
        """The name for people."""
        return self.path if self.path is not None else ".".join(self.parts)

    @property
    def place(self) -> str:
        """A key that is equal for two names of the same table: catalogs ignore case."""
        return self.path if self.path is not None else self.text.lower()


@dataclass(frozen=True, slots=True)
class Target:
    """The place of all tables of one source.

    Attributes:
        root: a folder's URI, or None.
        catalog: the parts before a table's schema: ``catalog``, or ``catalog.schema`` if all tables share one schema.
        side_name: of a side target within a catalog (`side`); empty for any other.
        source: the source, of several that share the place, whose ledger is meant; None for a place of one source.
    """

    root: str | None
    catalog: tuple[str, ...] = ()
    side_name: str = ""
    source: str | None = None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``--target``: a text with a slash or colon is a URI, all else ``catalog`` or ``catalog.schema``.

        Raises:
            ConfigError: it is neither.
        """
        text = text.strip()
        if "/" in text or ":" in text:
            if not _SCHEME.match(text) or text.startswith("file:"):
                # Delta takes delta.`path` for a table's name unless the path is absolute.
                text = absolute(text)
            return cls(root=text.rstrip("/") or "/")
        if _CATALOG.fullmatch(text):
            return cls(root=None, catalog=tuple(text.split(".")))
        raise ConfigError(
            f"{text!r} is no target",
            remedy="Give a folder's URI (./mirror, s3a://bucket/mirror), a catalog, or catalog.schema",
        )

    def of_source(self, name: str | None) -> Target:
        """Return the same place, with the ledger of one of its sources; None for that of a place of one source."""
        return replace(self, source=name)

    @property
    def text(self) -> str:
        """The target as people write it."""
        if self.root is not None:
            return self.root
        return ".".join(self.catalog) + (f" ({self.side_name})" if self.side_name else "")

    def table(self, namespace: str, name: str) -> TableName:
        """Return the mirror table of a source table; an empty namespace is PostgreSQL's ``pg_catalog``."""
        namespace = namespace or "pg_catalog"
        if self.root is not None:
            return TableName(path=f"{self.root}/{encode_name(namespace)}/{encode_name(name)}")
        encoded = encode_for_catalog(name)
        if self.side_name:
            return self.ledger(f"{encode_for_catalog(namespace)}{_BETWEEN}{encoded}")
        if len(self.catalog) == 2:
            return TableName(parts=(*self.catalog, encoded))
        return TableName(parts=(*self.catalog, encode_for_catalog(namespace), encoded))

    def ledger(self, name: str) -> TableName:
        """Return a table of the ledger.

        Each of several sources has tables of its own: a folder, or a schema, that no table of PostgreSQL's can have.
        """
        if self.root is not None:
            return TableName(path=f"{self.root}/{self.ledger_folder}/{name}")
        schema = LEDGER_SCHEMA if self.source is None else f"{LEDGER_SCHEMA}_{encode_for_catalog(self.source)}"
        if self.side_name:
            name = f"{self.side_name}_{name}"
        if len(self.catalog) == 2:
            return TableName(parts=(*self.catalog, f"{schema}_{name}"))
        return TableName(parts=(*self.catalog, schema, name))

    @property
    def ledger_folder(self) -> str:
        """The ledger's folder, below the root."""
        return LEDGER_SCHEMA if self.source is None else f"{LEDGER_SCHEMA}/{_SOURCES}/{encode_name(self.source)}"

    def side(self, name: str) -> Target:
        """Return a target of its own within the ledger's place, in which tables are made before they come to theirs.

        Args:
            name: of letters and digits.
        """
        if self.root is not None:
            return Target(f"{self.root}/{self.ledger_folder}/rebuild/{name}")
        return replace(self, side_name=f"rebuild_{name}")

    def of_side(self, side: Target, table: TableName) -> TableName:
        """Return the table in this target that a side target's table will replace."""
        if self.root is not None and side.root is not None and table.path is not None:
            return TableName(path=f"{self.root}{table.path.removeprefix(side.root)}")
        namespace, _, name = table.parts[-1].partition(f"{side.side_name}_")[2].partition(_BETWEEN)
        return TableName(parts=(*self.catalog, name) if len(self.catalog) == 2 else (*self.catalog, namespace, name))

    def relative(self, table: TableName) -> TableName:
        """Return a table's name for the ledger: below the folder it begins with ``./``, so that the folder may move."""
        if self.root is None or table.path is None or not table.path.startswith(f"{self.root}/"):
            return table
        return TableName(path=f".{table.path[len(self.root) :]}")

    def absolute(self, table: TableName) -> TableName:
        """Return the table of a name that the ledger has."""
        if self.root is None or table.path is None or not table.path.startswith("./"):
            return table
        return TableName(path=f"{self.root}{table.path[1:]}")

    def set_aside(self, oid: int) -> TableName:
        """Return the place for the rows of a relation whose name another one has taken."""
        return self.ledger(f"set_aside_{oid}")


_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_SAID: Final = re.compile("|".join(re.escape(os.strerror(number)) for number in _FULL))
# How Java names the file that it could not write.
_PLACE: Final = re.compile(rf"(/[^\s:()'\"]+)[^/\n]{{0,4}}\((?:{_SAID.pattern})\)")
# Python's text, or Arrow's, for a file that a worker could not reach; its name may have quotes.
_OF_WORKER: Final = re.compile(r"^\w+Error: \[Errno (\d+)\] [^'\"\n]+ ['\"](.+?)['\"](?:$|\. | -> )", re.MULTILINE)
_OF_RUST: Final = re.compile(r"LocalFileSystem error\b.*\(os error (\d+)\)", re.DOTALL)  # how delta-rs ends

# What Spark and Delta say of a table that they cannot read.
_DAMAGE: Final = re.compile(
    r"DELTA_(?!CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)|FAILED_READ_FILE|FileNotFound|Parquet|jackson|EOFException"
    r"|ChecksumException"
)


# What they say of a damaged table while it is written to, when other faults may look alike.
_TORN: Final = re.compile(
    r"DELTA_(?:VERSIONS_NOT_CONTIGUOUS|TRUNCATED_|STATE_RECOVER_|LOG_FILE_NOT_FOUND|MISSING_)|FAILED_READ_FILE|"
    r"FileNotFound|not a Parquet file|ChecksumException"
)

# What they say of whatever file they come to where the machine fails.
_OF_MACHINE: Final = re.compile("|".join([*map(os.strerror, (errno.EMFILE, errno.ENFILE, errno.EIO)), "/blockmgr-"]))


@contextmanager
def storage_errors(place: str, *, if_damaged: str = "", table: str | None = None) -> Iterator[None]:
    """Raise errors of the file system, on whatever machine, as errors for people.

    Args:
        place: the target, if the error does not name the file.
        if_damaged: what to do if the table at the place is damaged; empty if the caller reports that itself.
        table: that table's name in the source.
    """
    try:
        yield
    except WalReplayError:
        raise
    except OSError as error:
        of_rust = _OF_RUST.search(str(error))
        number = error.errno if of_rust is None else int(of_rust[1])
        # Of a store's client, or a lost Java: `walreplay.session.failures.failure_of` explains these.
        if number is None or isinstance(error, ConnectionError):
            raise
        raise _refused(str(error.filename or place), os.strerror(number), number) from error
    except Exception as error:
        disk_full, of_worker = _SAID.search(str(error)), _OF_WORKER.search(str(error))
        if disk_full is not None:
            file_match = _PLACE.search(str(error))
            raise _refused(file_match[1] if file_match else place, disk_full[0], errno.ENOSPC) from error
        if if_damaged and (damage := _damage(error, of_worker, place)) is not None:
            problem, path = damage
            remedy = f"Bring back what is missing; or {if_damaged}"
            raise TargetError(f"the table is damaged: {problem}", table=table, path=path, remedy=remedy) from error
        if of_worker is None:
            raise
        raise _refused(of_worker[2], os.strerror(int(of_worker[1])), int(of_worker[1])) from error


def _damage(error: Exception, of_worker: re.Match[str] | None, place: str) -> tuple[str, str] | None:
    """Return what of a table cannot be read, and where; None if something else is the matter."""
    if of_worker is not None:
        is_gone = int(of_worker[1]) == errno.ENOENT and of_worker[2].startswith(f"{place}/")
        return (os.strerror(errno.ENOENT), of_worker[2]) if is_gone else None
    is_damaged = _TORN.search(str(error)) is not None and _OF_MACHINE.search(str(error)) is None
    failure = failure_of(error) if is_damaged else None
    return None if failure is None or is_refused(failure.problem) else (failure.problem, failure.path or place)


def _refused(path: str, reason: str, number: int) -> TargetError:
    """Return the error that a run cannot go on, by the system's errno."""
    remedy = "See that its folder is there, and may be read and written to"
    if number in _FULL:
        remedy = "Make room (Spark's own files lie where spark.local.dir says)"
    return TargetError(
        f"the run cannot go on: {reason}",
        path=path,
        remedy=f"{remedy}; and run again, as whatever was applied counts once",
    )


@contextmanager
def ledger_errors(table: str) -> Iterator[None]:
    """Raise errors of reading a table of the ledger, by its place, as errors for people."""
    try:
        yield
    except (WalReplayError, OSError):
        raise
    except Exception as error:
        of_spark = type(error).__module__.startswith(("pyspark.", "py4j."))
        if _SAID.search(str(error)) is not None or (of_spark and _DAMAGE.search(str(error)) is None):
            raise
        raise TargetError(
            f"the ledger cannot be read: its table is damaged ({type(error).__name__})",
            path=table,
            remedy="Bring it back from a copy, as old as that may be: what tables have that it does not know of is set "
            "back and applied again. Without a copy, apply to a new target",
        ) from error


_NO_CATALOG: Final = ("REQUIRES_SINGLE_PART_NAMESPACE", "CATALOG_NOT_FOUND", "NO_SUCH_CATALOG_EXCEPTION")


@contextmanager
def catalog_errors(target: Target) -> Iterator[None]:
    """Explain an unknown catalog, by a ConfigError: its name may have been meant as a folder's."""
    try:
        yield
    except AnalysisException as error:
        if target.root is not None or error.getCondition() not in _NO_CATALOG:
            raise
        raise ConfigError(
            f"there is no catalog {target.catalog[0]!r}, as which a name without a slash is taken",
            path=target.text,
            remedy=f"If a folder is meant, write ./{target.text}; if a catalog is, Spark's configuration lacks it",
        ) from None


_NAME: Final = "spark_catalog"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
# The setting that replaces the Hive metastore by something else (AWS Glue, for example).
_METASTORES: Final = "hive.metastore.client.factory.class"
_HIVE: Final = "SessionHiveMetaStoreClientFactory"

_LOCATED: Final = re.compile(r"^(Type|Provider|Location): (.*)$", re.MULTILINE)


def folder_at(spark: SparkSession, table: TableName) -> Folder | None:
    """Return a table's folder, if driver and delta-rs reach it; None also for a table that a catalog does not have."""
    path = table.path if table.path is not None else _location(spark, table)
    folder = folder_of(spark, path)
    return None if folder is None else taken(folder)


def opened_in(folder: Folder, *, use_cache: bool = True) -> LocalTable | None:
    """Open the table in a folder; None if Spark has to be asked.  A version below 0 says that there is none.

    Args:
        use_cache: see `LocalTable.open`.

    Raises:
        DamagedLogError: its log is not whole.
    """
    try:
        return LocalTable.open(folder, use_cache=use_cache)
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
    location = next((_plain(unquote(row.info_value)) for row in rows if row.info_name == "Location"), None)
    return folder_of(spark, location)


def folder_of_new(spark: SparkSession, table: TableName) -> Folder | None:
    """Return the folder in which a catalog would make a table; see `folder_at`."""
    schema = schema_folder(spark, table)
    return None if schema is None else schema.inside(table.parts[-1].lower())  # catalogs ignore case


def tells(spark: SparkSession, parts: tuple[str, ...]) -> bool:
    """Return whether a table is what lies at its location in the catalog, for everybody who commits there.

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
    return catalog == _DELTA_CATALOG and kind in {"in-memory", "hive"} and factory.endswith(_HIVE)


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
    details = dict(_LOCATED.findall(rows[0].information)) if rows else {}
    if details.get("Provider", "").lower() != "delta" or details.get("Type") not in {"MANAGED", "EXTERNAL"}:
        return None
    return _plain(details["Location"]) if "Location" in details else None


def _plain(location: str) -> str | None:
    """Return a location that is the same whether somebody decodes it or not; None for any other, which Spark knows."""
    return None if "%" in location else location

"""Sessions of our own, so that settings for one commit do not affect another; and the names of places.

Delta's idempotence settings are session-wide: every write of a session that has them uses their number.  Spark Connect
has no newSession: there the caller's session is used, and its settings are restored afterwards.  Whatever a cluster or
a session is configured to, values are written and read in one way (`EXACT`).  `one_name` returns the one name of a
place that has several; `mounted_path` its path, if Python reaches it by itself.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from pyspark.logger import PySparkLogger

from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_Value = TypeVar("_Value")

EXACT: Final = {
    # Statements are run as they are written.  Spark would put something else, or nothing, in the place of `${…}` first,
    # within names and quoted texts, too.  And a backslash in a quoted text would be one that escapes nothing.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Spark's default is a form of Parquet's first days, which others read as nanoseconds: years 1677 to 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # With LEGACY, days before 1582 are the Julian calendar's, which Spark alone converts.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""How values are written and read, whatever the platform's defaults are."""

_OFF: Final = """
spark.databricks.delta.schema.autoMerge.enabled spark.databricks.delta.write.dataFilesToSubdir
spark.sql.ansi.doubleQuotedIdentifiers spark.sql.caseSensitive spark.sql.execution.arrow.useLargeVarTypes
spark.sql.files.ignoreCorruptFiles spark.sql.files.ignoreMissingFiles spark.sql.parquet.binaryAsString
spark.sql.parquet.int96TimestampConversion spark.sql.parquet.mergeSchema spark.sql.parquet.writeLegacyFormat
spark.sql.parser.quotedRegexColumnNames spark.sql.preserveCharVarcharTypeInfo
"""
_ON: Final = """
spark.databricks.delta.replaceWhere.constraintCheck.enabled spark.databricks.delta.replaceWhere.dataColumns.enabled
spark.databricks.delta.write.utcTimestampPartitionValues spark.sql.decimalOperations.allowPrecisionLoss
spark.sql.execution.pyspark.binaryAsBytes spark.sql.json.enableExactStringParsing
spark.sql.jsonGenerator.ignoreNullFields spark.sql.parquet.fieldId.write.enabled
spark.sql.parquet.inferTimestampNTZ.enabled spark.sql.parquet.int96AsTimestamp spark.sql.readSideCharPadding
"""
# Settings that are set only where they are configured otherwise.
_DEFAULTS: Final = {
    **dict.fromkeys(_OFF.split(), "false"),
    **dict.fromkeys(_ON.split(), "true"),
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    "spark.sql.storeAssignmentPolicy": "ANSI",
}

_LEGACY: Final = "spark.sql.legacy."
# Settings that begin so are unset: a table's properties come from walreplay's configuration alone.
_UNSET: Final = (_LEGACY, "spark.databricks.delta.properties.defaults.", "spark.databricks.delta.write.txn")


class cached_attribute(Generic[_Value]):  # noqa: N801 - it is written as a decorator
    """`functools.cached_property` without its lock.

    Before Python 3.12 all objects of a class share that, so that threads, each of which works at a table of its own,
    would wait for each other's queries.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute, self._name = compute, compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_attribute[_Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...

    def __get__(self, instance: object | None, owner: type) -> _Value | cached_attribute[_Value]:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)  # which stands in front of this from now on
        return value


def has_own_sessions(spark: SparkSession) -> bool:
    """Return whether new sessions can be made, which share only the cluster."""
    return hasattr(spark, "_jsparkSession")


def own_session(spark: SparkSession) -> SparkSession:
    """Return a new session with settings of its own (`EXACT`), if there can be one; otherwise the given session."""
    if not has_own_sessions(spark):
        return spark
    session, configured = spark.newSession(), _configured(spark)
    _check_refused(_set_all(session, _corrections(configured)), configured)
    return session


def session_with(spark: SparkSession, values: Mapping[str, str]) -> AbstractContextManager[SparkSession]:
    """Return a session with some settings: a new one, or for a while the given one if there can be no new one."""
    session = own_session(spark)
    if session is spark:
        return set_for_a_while(spark, values)
    _set_all(session, values)
    return nullcontext(session)


@contextmanager
def set_for_a_while(spark: SparkSession, values: Mapping[str, str]) -> Iterator[SparkSession]:
    """Have a session write and read values as sessions of our own do, with some more settings.

    Raises:
        ConfigError: a setting would change rows or properties, and the platform does not let it be changed.
    """
    configured = _configured(spark)
    with settings(spark, _corrections(configured)) as refused, settings(spark, values):
        _check_refused(refused, configured)
        yield spark


def _configured(spark: SparkSession) -> Mapping[str, str]:
    try:
        return _of_cluster(spark.sparkContext) if has_own_sessions(spark) else dict(spark.conf.getAll)
    except Exception:  # a platform may refuse to tell
        return {}


@lru_cache(maxsize=1)
def _of_cluster(context: SparkContext) -> Mapping[str, str]:
    """Return what each new session begins with; to ask takes 20 ms."""
    return dict(context.getConf().getAll())


def _corrections(configured: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings that have to be others than those that are configured; None: not set."""
    return {
        **{key: value for key, value in EXACT.items() if configured.get(key) != value},
        **{key: value for key, value in _DEFAULTS.items() if configured.get(key, value) != value},
        **dict.fromkeys(key for key in configured if key.startswith(_UNSET)),
    }


def _check_refused(refused: AbstractSet[str], configured: Mapping[str, str]) -> None:
    """Raise if a setting stays as it is configured.  A platform's own default may stay, and what may be harmless."""
    for key in sorted(refused & configured.keys()):
        value = {**_DEFAULTS, **EXACT}.get(key, "")
        if configured[key].upper() != value.upper() and not key.startswith(_LEGACY):
            raise ConfigError(
                f"Spark lets nobody change {key}, and with {configured[key]} tables get other rows or properties",
                remedy=f"Remove it from Spark's configuration{value and f', or set it to {value}'}, then run again",
            )


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str | None]) -> Iterator[frozenset[str]]:
    """Set some settings for a while; None: have them not set.

    A platform may refuse a setting.  It is then left out; `set_for_a_while` checks those that a right result needs.

    Yields:
        the settings that were refused.
    """
    before: dict[str, str | None] = {}
    refused = set()
    for key, value in values.items():
        try:
            old = spark.conf.get(key, None)
            if old == value:
                continue
            _set(spark, key, value)
            before[key] = old
        except Exception:
            refused.add(key)
    try:
        yield frozenset(refused)
    finally:
        for key, old in before.items():
            _set(spark, key, old)


def _set_all(spark: SparkSession, values: Mapping[str, str | None]) -> set[str]:
    """Set settings for good; return those that the platform refuses."""
    refused = set()
    for key, value in values.items():
        try:
            _set(spark, key, value)
        except Exception:
            refused.add(key)
    return refused


def _set(spark: SparkSession, key: str, value: str | None) -> None:
    with warnings.catch_warnings():
        # That a setting is deprecated, Spark Connect would tell the user.
        warnings.simplefilter("ignore", UserWarning)
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@contextmanager
def quiet_queries() -> Iterator[None]:
    """Keep pyspark from logging its exceptions for a while: their texts quote row values."""
    # Made by pyspark's own class: it calls its loggers in a way that logging's do not know.
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# ``file:/x`` and ``file:///x``; what has a host, ``file://host/x``, is something else.
_MOUNTABLE: Final = re.compile(r"(file|dbfs):(?:/|///+)([^/].*)", re.DOTALL)

_VOLUMES: Final = "Volumes/"


def one_name(place: str) -> str:
    """Return the one name of a path or URI that has several.

    Databricks' volumes have three: ``/Volumes/x``, ``dbfs:/Volumes/x`` and ``file:/Volumes/x``, of which the first is
    given.  ``file:///x`` is ``file:/x``.  All else stays as it is.
    """
    match = _MOUNTABLE.fullmatch(place)
    if match is None:
        return place
    scheme, path = match.groups()
    return f"/{path}" if f"{path}/".startswith(_VOLUMES) else f"{scheme}:/{path}"


def absolute(place: str) -> str:
    """Return a folder's path, or ``file:`` URI, as an absolute one without ``.`` and ``..``; other URIs stay.

    In an object store ``..`` is a name like any other.
    """
    scheme = next(iter(re.findall(r"\Afile:(?:///*(?=/))?(?=/)", place)), "")
    path = place.removeprefix(scheme)
    if not scheme and ("://" in place or place.startswith(("file:", "dbfs:"))):
        return place.rstrip("/")
    plain = os.path.normpath(Path(path).absolute())
    if ".." in path and Path(path).exists() and not Path(path).samefile(plain):
        # Behind a link `..` is the folder above the one that the link leads to.
        plain = os.path.realpath(path)
    return f"{scheme}{plain}"


def mounted_path(place: str) -> Path | None:
    """Return a place as a path, if it is one that Python can reach itself; None for any other URI."""
    name = one_name(place)
    if _SCHEME.match(name) is None:
        return Path(name)
    return Path(name.removeprefix("file:")) if name.startswith("file:/") and _MOUNTABLE.fullmatch(name) else None

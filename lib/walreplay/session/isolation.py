"""Sessions of our own, so that settings for one commit do not affect another; and the names of places.

Delta's idempotence settings are session-wide: every write of a session that has them uses their number.  Spark Connect
has no newSession: there the caller's session is used, and its settings are restored afterwards.  `one_name` returns the
one name of a place that has several; `mounted_path` its path, if Python reaches it by itself.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


AS_WRITTEN: Final = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""Statements are run as they are written.  Spark would put something else, or nothing, in the place of ``${…}`` first:
within names and quoted texts, too.  And a backslash in a quoted text would be one that escapes nothing."""


def has_own_sessions(spark: SparkSession) -> bool:
    """Return whether new sessions can be made, which share only the cluster."""
    return hasattr(spark, "_jsparkSession")


def own_session(spark: SparkSession) -> SparkSession:
    """Return a new session with settings of its own, if there can be one; otherwise the given session."""
    if not has_own_sessions(spark):
        return spark
    own = spark.newSession()
    for key, value in AS_WRITTEN.items():
        with suppress(Exception):
            own.conf.set(key, value)
    return own


def session_with(spark: SparkSession, values: Mapping[str, str]) -> AbstractContextManager[SparkSession]:
    """Return a session with some settings: a new one, or for a while the given one if there can be no new one."""
    own = own_session(spark)
    if own is spark:
        return _set_for_a_while(spark, values)
    for key, value in values.items():
        with suppress(Exception):
            own.conf.set(key, value)
    return nullcontext(own)


@contextmanager
def _set_for_a_while(spark: SparkSession, values: Mapping[str, str]) -> Iterator[SparkSession]:
    with settings(spark, values):
        yield spark


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[frozenset[str]]:
    """Set some settings for a while.

    A platform may refuse a setting.  It is then left out: no setting is needed for a right result.

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
            with _deprecated():
                spark.conf.set(key, value)
            before[key] = old
        except Exception:
            refused.add(key)
    try:
        yield frozenset(refused)
    finally:
        with _deprecated():
            for key, old in before.items():
                if old is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, old)


@contextmanager
def _deprecated() -> Iterator[None]:
    """Take settings that Spark has deprecated without its warnings: Spark Connect passes them on to the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


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
_MOUNTABLE: Final = re.compile(r"(file|dbfs):(?:/|///+)([^/].*)", re.DOTALL)
"""``file:/x`` and ``file:///x``; what has a host, ``file://host/x``, is something else."""

_VOLUMES: Final = "Volumes/"


def one_name(place: str) -> str:
    """Return the one name of a path or URI that has several.

    Databricks' volumes have three: ``/Volumes/x``, ``dbfs:/Volumes/x`` and ``file:/Volumes/x``, of which the first is
    given.  ``file:///x`` is ``file:/x``.  All else stays as it is.
    """
    found = _MOUNTABLE.fullmatch(place)
    if found is None:
        return place
    scheme, path = found.groups()
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

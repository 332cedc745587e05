"""Sessions of a Spark Connect server, for which ``pyspark-client`` alone is enough."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyspark.util import is_remote_only

from walreplay.errors import ConfigError, SparkFailure
from walreplay.spark.session.package import give_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SERVER: Final = "SPARK_REMOTE"
_NAMED: Final = (_SERVER, "SPARK_CONNECT_MODE_ENABLED")
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
_PORT: Final = 15002
_PATIENCE: Final = 10.0
"""Seconds that a server has to take a connection; pyspark tries for ten minutes, without a word."""


def is_remote() -> bool:
    """Say whether sessions are those of a server: one is named, or there is no Spark here."""
    return is_remote_only() or any(name in os.environ for name in _NAMED)


def remote_session(builder: SparkSession.Builder) -> SparkSession:
    """Give a session of the server that ``SPARK_REMOTE`` names, whose workers have this package.

    Raises:
        ConfigError: no server is named.
        SparkFailure: it cannot be reached.
    """
    if not any(name in os.environ for name in _NAMED):
        raise ConfigError(
            "the pyspark that is installed (pyspark-client) has no Spark of its own, and no server is named",
            remedy=f"Name a Spark Connect server: export {_SERVER}=sc://host:{_PORT}; or, to run Spark here: "
            "pip uninstall pyspark-client, then pip install 'walreplay[spark]'",
        )
    _check_server(os.environ.get(_SERVER, ""))
    spark = builder.getOrCreate()
    give_package(spark)
    return spark


def _check_server(address: str) -> None:
    """Raise if nothing takes a connection there."""
    found = urlsplit(address)
    if found.scheme != "sc" or not found.hostname or any(os.environ.get(name) for name in _PROXIES):
        return
    try:
        socket.create_connection((found.hostname, found.port or _PORT), _PATIENCE).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SparkFailure(
            f"the Spark Connect server cannot be reached ({reason})",
            path=f"sc://{found.netloc.rpartition('@')[2]}",
            remedy=f"See that it runs, and that {_SERVER} has its address, then run it again",
        ) from None


__all__ = ["is_remote", "remote_session"]

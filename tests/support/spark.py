"""Spark for the tests: one session in this process, and the same settings for programs started by a test."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIBRARY = Path(__file__).parents[2] / "lib"

_SUBMIT_ARGUMENTS = (
    "--master local[2] --conf spark.driver.memory=1g --conf spark.sql.shuffle.partitions=4 pyspark-shell"
)

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java's quick compiler alone, with room for all that it makes: a process that makes one run needs half the time, as
what the other compiler would do for it does not come back."""


_OF_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MAKE_TERMERR", "MAKE_TERMOUT", "MFLAGS")
"""With these a `make` that a test starts would take itself for a part of the one that has started the tests."""


def spark_environment(scratch: Path) -> dict[str, str]:
    """Give the environment in which walreplay starts a small Spark, for this process or another.

    Args:
        scratch: a folder for what Spark leaves behind.
    """
    return {
        **{name: value for name, value in os.environ.items() if name not in _OF_MAKE},
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--conf spark.sql.warehouse.dir={scratch} {_SUBMIT_ARGUMENTS}",
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_CONF_DIR": str(scratch),  # the machine's own settings do not matter
        # Workers do not see what pytest has put in front of sys.path.
        "PYTHONPATH": os.pathsep.join([str(LIBRARY), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def child_environment(scratch: Path) -> dict[str, str]:
    """Give the environment of a program that a test starts, and that makes one run."""
    return {**spark_environment(scratch), "SPARK_SUBMIT_OPTS": _SHORT_LIVED}


def start_session(scratch: Path) -> SparkSession:
    """Start the session that all tests of a run share; the memory and the master cannot change later."""
    from walreplay.spark.session.session import build_session

    os.environ.update(spark_environment(scratch))
    return build_session("walreplay tests")

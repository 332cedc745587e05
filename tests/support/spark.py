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


def spark_environment(scratch: Path) -> dict[str, str]:
    """Give the environment in which wal2delta starts a small Spark, for this process or another.

    Args:
        scratch: a folder for what Spark leaves behind.
    """
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--conf spark.sql.warehouse.dir={scratch} {_SUBMIT_ARGUMENTS}",
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_CONF_DIR": str(scratch),  # the machine's own settings do not matter
        # Workers do not see what pytest has put in front of sys.path.
        "PYTHONPATH": os.pathsep.join([str(LIBRARY), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def start_session(scratch: Path) -> SparkSession:
    """Start the session that all tests of a run share; the memory and the master cannot change later."""
    from wal2delta.spark.session import build_session

    os.environ.update(spark_environment(scratch))
    return build_session("wal2delta tests")

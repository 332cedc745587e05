"""Spark for the tests: one session in this process, and the same settings for programs started by a test."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIBRARY = Path(__file__).parents[2] / "lib"

CLASS_ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")
"""What `support.class_archive` makes; without it all works, and each start takes 5 s longer."""

_SUBMIT_ARGUMENTS = (
    "--master local[2] --conf spark.driver.memory=1g --conf spark.sql.shuffle.partitions=4 "
    "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN "
    "--conf spark.sql.adaptive.enabled=false --conf spark.databricks.delta.snapshotPartitions=1 pyspark-shell"
)
"""Plans are interpreted: each has few rows, and to compile it takes longer.  For the same reason no plan is made anew
between its stages (a third of all jobs), and each table's state is read in one task.

`make test-environments` and `make bench` have Spark as it comes.
"""

_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xms1g"
"""Java's quick compiler alone, with room for all that it makes; and all memory at once, to be collected less often.

A suite works on little data in many plans, so what the slower compiler would spend on them never comes back.
"""

_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""An archive that is not there, or was made by another Java, is passed over without a word."""

READ_CLASSES: Final = f"{_QUICK} {_SILENT} -XX:SharedArchiveFile={CLASS_ARCHIVE}"

_NO_SETTINGS: Final = Path(sys.prefix, "no-spark-settings")
"""There is no such folder.  It stands in front of Java's class path, so it is the same for all: the archive's is."""

_OF_MAKE: Final = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MAKE_TERMERR", "MAKE_TERMOUT", "MFLAGS")
"""With these a `make` that a test starts would take itself for a part of the one that has started the tests."""


def write_classes(archive: Path) -> str:
    """Return Java's options by which it keeps at its end the classes that it has loaded."""
    return f"{_QUICK} {_SILENT} -XX:ArchiveClassesAtExit={archive}"


def spark_environment(scratch: Path, java: str = READ_CLASSES, more: str = "") -> dict[str, str]:
    """Return the environment in which walreplay starts a small Spark, for this process or another.

    Args:
        scratch: a folder for what Spark leaves behind.
        java: options.
        more: arguments of spark-submit.
    """
    return {
        **{name: value for name, value in os.environ.items() if name not in _OF_MAKE},
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--conf spark.sql.warehouse.dir={scratch} {more} {_SUBMIT_ARGUMENTS}",
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_CONF_DIR": str(_NO_SETTINGS),  # the machine's own settings do not matter
        "SPARK_SUBMIT_OPTS": java,
        # Workers do not see what pytest has put in front of sys.path.
        "PYTHONPATH": os.pathsep.join([str(LIBRARY), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def start_session(scratch: Path, java: str = READ_CLASSES, more: str = "") -> SparkSession:
    """Start the session that all tests of a run share; the memory and the master cannot change later."""
    from walreplay.session.session import build_session

    os.environ.update(spark_environment(scratch, java, more))
    return build_session("walreplay tests")

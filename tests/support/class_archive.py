"""Java's archive of the classes that Spark loads for a run: each JVM of the tests starts in half the time with it.

Usage: python -m support.class_archive FILE

Makes the file anew, by a run of the sample in a JVM that writes at its end what it has loaded.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from support.spark import start_session, write_classes

_SAMPLE = Path(__file__).parents[1] / "captures" / "o03_basic_split_bytes" / "capture"


def make(archive: Path) -> None:
    """Run what tests run, and keep the classes."""
    with tempfile.TemporaryDirectory() as scratch:
        spark = start_session(Path(scratch), write_classes(archive))
        from pyspark import SparkContext

        import walreplay

        walreplay.apply(spark, _SAMPLE, f"{scratch}/mirror")
        gateway = SparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    make(Path(sys.argv[1]))

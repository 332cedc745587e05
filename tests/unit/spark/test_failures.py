"""What Spark, Delta and Java throw becomes an error of ours, whose text quotes no value."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkValueError

from support.thrown import Thrown
from walreplay.errors import MalformedMessage, SparkFailure
from walreplay.spark.session.failures import failure_of, spark_errors

_STATE = (
    "An error occurred while calling o1087.sql.\n: org.apache.spark.sql.delta.DeltaIllegalStateException: "
    "[DELTA_STATE_RECOVER_ERROR] The metadata of your Delta table could not be recovered while Reconstructing\n"
    "version: 0. Did you manually delete files in the _delta_log directory? SQLSTATE: XXKDS\n\tat org.apache.spark"
)
_CAST = (
    "An error occurred while calling o7.save.\n: org.apache.spark.SparkException: Job aborted\n"
    "Caused by: org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'SECRET' of the type "
    '"STRING" cannot be cast. SQLSTATE: 22018\n'
)
_PLAIN = "An error occurred while calling o7.save.\n: java.lang.IllegalStateException: SECRET\n\tat x"


_GAP = (
    "An error occurred while calling o137.load.\n: org.apache.spark.sql.delta.DeltaIllegalStateException: "
    "[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (0, 2, 3) are not contiguous. \nA gap in the delta log\n\tat org.x"
)
_FILE = (
    "An error occurred while calling o208.count.\n: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] "
    "Encountered error while reading file file:///m/a%20b/p=SECRET/_delta_log/3.json.  SQLSTATE: KD001\n\tat x.y(z)\n"
    "Caused by: java.io.EOFException: SECRET\n\tat java.base/java.io"
)
_PATH = (
    "An error occurred while calling o7.save.\n: org.apache.spark.SparkException: Job aborted\n\tat x\n"
    "Caused by: java.io.FileNotFoundException: /m/a b/part-1 (Permission denied)\n\tat x\n"
)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (Thrown(_GAP), "Spark: org.apache.spark.sql.delta.DeltaIllegalStateException (DELTA_VERSIONS_NOT_CONTIGUOUS)"),
        (Thrown(_FILE), "Spark: FAILED_READ_FILE.NO_HINT, by java.io.EOFException at file:///m/a b/p=…/_delta_log/3"),
        (Thrown(_PATH), "Spark: java.io.FileNotFoundException (Permission denied) at /m/a b/part-1"),
        (Thrown(_STATE), "Spark: DELTA_STATE_RECOVER_ERROR"),
        (Thrown(_CAST), "Spark: CAST_INVALID_INPUT"),
        (Thrown(_PLAIN), "Spark: java.lang.IllegalStateException"),
        (Py4JError("SECRET"), "Spark: Py4JError"),
        (Py4JError("java.lang.OutOfMemoryError: SECRET"), "Spark's JVM ran out of memory"),
        (PySparkValueError("SECRET"), "Spark: PySparkValueError"),
        (
            OSError("When listing objects under key 'SECRET/': AWS Error ACCESS_DENIED during ListObjectsV2 operation"),
            "the store denies access (ACCESS_DENIED)",
        ),
        (
            OSError(
                "When listing objects under key 'SECRET/': AWS Error UNKNOWN (HTTP status 400) during ListObjectsV2 "
                "operation: Unable to parse ExceptionName: ExpiredToken Message: SECRET"
            ),
            "the store denies access (ExpiredToken)",
        ),
        (
            OSError("When reading key 'SECRET': AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No"),
            "the store denies access (HTTP status 403)",
        ),
        (
            OSError("When listing objects under key 'SECRET/': AWS Error SLOW_DOWN during ListObjectsV2 operation: x"),
            "the storage refuses or cannot be reached: SLOW_DOWN",
        ),
    ],
)
def test_what_spark_throws_is_told_by_its_condition_and_the_table(error: Exception, problem: str) -> None:
    with pytest.raises(SparkFailure) as raised, spark_errors(table="s.t", path="/mirror/s/t"):
        raise error
    text = str(raised.value)
    assert text.startswith(f"/mirror/s/t, table s.t: {problem}")
    assert "SECRET" not in text
    assert "run it again" in text
    # It can be looked at, and is not shown by itself.
    assert raised.value.__context__ is error
    assert raised.value.__suppress_context__


def test_what_is_ours_or_the_programs_stays_as_it_is() -> None:
    for error in (MalformedMessage("bad", path="f.bin"), KeyError("k"), OSError(28, "No space left on device")):
        with pytest.raises(type(error)) as raised, spark_errors(table="s.t"):
            raise error
        assert raised.value is error
    assert failure_of(KeyError("k")) is None

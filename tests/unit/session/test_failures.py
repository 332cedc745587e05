"""What Spark, Delta and Java throw becomes an error of ours, whose text quotes no value."""

from __future__ import annotations

import re

import pytest
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkValueError

from walreplay.errors import MalformedMessage, SparkFailure
from walreplay.session.failures import failure_of, spark_errors


class Thrown(Py4JJavaError):
    """An exception of Java's by its text, without a JVM to ask for it."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self._text = text

    def __str__(self) -> str:
        return self._text


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
            Thrown(
                "Traceback (most recent call last):\nOSError: When reading information for key 'SECRET' in bucket "
                "'lake': AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 28, Timeout was reached\n"
            ),
            "the store denies access or cannot be reached: NETWORK_CONNECTION",
        ),
        (
            OSError("When listing objects under key 'SECRET/': AWS Error ACCESS_DENIED during ListObjectsV2 operation"),
            "the store denies access or cannot be reached: ACCESS_DENIED",
        ),
        (
            OSError(
                "When listing objects under key 'SECRET/': AWS Error UNKNOWN (HTTP status 400) during ListObjectsV2 "
                "operation: Unable to parse ExceptionName: ExpiredToken Message: SECRET"
            ),
            "the store denies access or cannot be reached: ExpiredToken",
        ),
        (
            OSError("When reading key 'SECRET': AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No"),
            "the store denies access or cannot be reached: HTTP status 403",
        ),
        (
            OSError(
                "Generic S3 error: GET http://x/b?prefix=SECRET 404: <Error><Code>NoSuchBucket</Code><Message>SECRET"
            ),
            "the store denies access or cannot be reached: NoSuchBucket",
        ),
        (
            OSError("When listing objects under key 'SECRET/': AWS Error SLOW_DOWN during ListObjectsV2 operation: x"),
            "the store denies access or cannot be reached: SLOW_DOWN",
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


@pytest.mark.parametrize(
    "said",
    [
        "When listing objects under key 'm/' in bucket 'x': AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation",
        "Generic S3 error: GET http://x/nowhere?prefix=m 404: <Error><Code>NoSuchBucket</Code><Message>m",
    ],
)
def test_a_bucket_that_is_not_there_is_named(said: str) -> None:
    found = failure_of(OSError(said), path="s3a://nowhere/m")
    assert str(found) == (
        "s3a://nowhere/m: the bucket nowhere does not exist. Make it, or correct the name, then run it again"
    )


def test_what_is_ours_or_the_programs_stays_as_it_is() -> None:
    for error in (MalformedMessage("bad", path="f.bin"), KeyError("k"), OSError(28, "No space left on device")):
        with pytest.raises(type(error)) as raised, spark_errors(table="s.t"):
            raise error
        assert raised.value is error
    assert failure_of(KeyError("k")) is None


_CALL = "An error occurred while calling o158.load.\n: "
_AT_DELTA = "\n\tat org.apache.spark.sql.delta.DeltaLog$.getDeltaLogFromCache$1(DeltaLog.scala:995)"

_CAUSES = {
    "s3 for s3a": (
        'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"',
        "Spark has no file system for s3://",
        r"--packages org\.apache\.hadoop:hadoop-aws:\d\.[\d.]+; .*write s3a:// for s3://",
    ),
    "no hadoop-aws": (
        "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class "
        "org.apache.hadoop.fs.s3a.S3AFileSystem not found\n\tat org.apache.hadoop.conf.Configuration.getClass(C.java)",
        "Spark has no file system for the store: no class org.apache.hadoop.fs.s3a.S3AFileSystem",
        r"--packages org\.apache\.hadoop:hadoop-aws:\d",
    ),
    "no bucket": (
        "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://nobucket/mirror/_walreplay/state/_delta_log': "
        "getFileStatus on s3a://nobucket/mirror/_walreplay/state/_delta_log: software.amazon.awssdk.services.s3.model."
        "NoSuchBucketException: The specified bucket does not exist (Service: S3, Status Code: 404, Request ID: Sz)",
        "s3a://nobucket/mirror/_walreplay/state/_delta_log: the bucket nobucket does not exist",
        "Make it, or correct the name",
    ),
    "access denied": (
        "java.nio.file.AccessDeniedException: s3a://closed/x: getFileStatus on s3a://closed/x: software.amazon.awssdk."
        "services.s3.model.S3Exception: Forbidden (Service: S3, Status Code: 403, Request ID: null):null",
        "s3a://closed/x: the store denies access",
        "which credentials Spark has",
    ),
    "access denied to a worker": (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "OSError: When initiating multiple part upload for key 'm/a=SECRET/1' in bucket 'lake': AWS Error "
        "ACCESS_DENIED during CreateMultipartUpload operation: Access Denied\n\n\tat org.apache.spark",
        "the store denies access or cannot be reached: ACCESS_DENIED",
        "have not expired",
    ),
    "a token that has ended at a worker": (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "OSError: When listing objects under key 'x/' in bucket 'lake': AWS Error UNKNOWN (HTTP status 400) during "
        "ListObjectsV2 operation: Unable to parse ExceptionName: ExpiredToken Message: SECRET\n",
        "the store denies access or cannot be reached: ExpiredToken",
        "have not expired",
    ),
    "access denied to a commit": (
        "java.nio.file.AccessDeniedException: mirror/t/_delta_log/00000000000000000001.json: Writing Object on "
        "mirror/t/SECRET: software.amazon.awssdk.services.s3.model.S3Exception: AccessDenied (Service: S3, "
        "Status Code: 403, Request ID: null)",
        "the store denies access",
        "have not expired",
    ),
    "a token that has ended": (
        "org.apache.hadoop.fs.s3a.AWSBadRequestException: getFileStatus on s3a://lake/x: software.amazon.awssdk."
        "services.s3.model.S3Exception: The provided token has expired. (Service: S3, Status Code: 400)",
        "the store denies access",
        "have not expired",
    ),
    "no Delta": (
        "org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. "
        "Make sure the provider name is correct and the package is properly registered. SQLSTATE: 42K02",
        "Spark has no Delta",
        r"--packages io\.delta:delta-spark_4\.\d_2\.13:4\.",
    ),
    "Delta's catalog without Delta": (
        "org.apache.spark.SparkException: Cannot find catalog plugin class for catalog 'spark_catalog': "
        "org.apache.spark.sql.delta.catalog.DeltaCatalog.",
        "Spark has no Delta",
        r"--packages io\.delta:",
    ),
    "Delta for another Spark": (
        "com.google.common.util.concurrent.ExecutionError: java.lang.NoSuchMethodError: 'void "
        "org.apache.spark.internal.LogKey.$init$(org.apache.spark.internal.LogKey)'\n"
        f"\tat com.google.common.cache.LocalCache$Segment.get(LocalCache.java:2075){_AT_DELTA}",
        "the Delta that Spark has loaded was built for another version of Spark (NoSuchMethodError)",
        r"--packages io\.delta:",
    ),
    "no package on executors": (
        'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "worker.py", line 1\n'
        "ModuleNotFoundError: No module named 'walreplay'\n",
        "the Python of Spark's executors has no walreplay",
        "--py-files",
    ),
    "no library on executors": (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "ModuleNotFoundError: No module named 'numpy.core'\n",
        "the Python of Spark's executors has no numpy",
        "Install numpy in it",
    ),
    "another Python on executors": (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.\n",
        "Spark's executors have another Python (3.12) than this program",
        "PYSPARK_PYTHON",
    ),
    "no credentials": (
        "java.nio.file.AccessDeniedException: s3a://lake/x: org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No "
        "AWS Credentials provided by TemporaryAWSCredentialsProvider SimpleAWSCredentialsProvider",
        "s3a://lake/x: the store denies access",
        "which credentials Spark has",
    ),
    "a folder that may not be made": (
        "org.apache.spark.sql.delta.DeltaIOException: [DELTA_CANNOT_CREATE_LOG_PATH] Cannot create file:/m/t/_log",
        "file:/m/t/_log: the folder cannot be made or written to",
        "Spark may write there",
    ),
    "a folder of HDFS that may not be written": (
        'org.apache.hadoop.security.AccessControlException: Permission denied: user=u, access=WRITE, inode="/m/t":a:b',
        "/m/t: the folder cannot be made or written to",
        "Spark may write there",
    ),
}


@pytest.mark.parametrize(("thrown", "problem", "remedy"), _CAUSES.values(), ids=_CAUSES)
def test_a_cause_is_told_in_one_line_with_what_to_do(thrown: str, problem: str, remedy: str) -> None:
    failure = failure_of(Thrown(_CALL + thrown))
    text = str(failure)
    assert problem in text
    assert re.search(remedy, text)
    assert "\n" not in text
    assert "WALREPLAY_TRACEBACK" not in text
    assert "SECRET" not in text


def test_what_only_looks_like_one_is_told_by_its_condition_or_class() -> None:
    for text, problem in (
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: avro. SQLSTATE: 42K02", "DATA_SOURCE_NOT_FOUND"),
        ("java.lang.NoSuchMethodError: 'void a.B.c()'\n\tat a.B.d(B.java:1)", "java.lang.NoSuchMethodError"),
        (
            "[CAST_INVALID_INPUT] The value 'ModuleNotFoundError: No module named 'x'' cannot be cast. SQLSTATE: 22018",
            "CAST_INVALID_INPUT",
        ),
    ):
        failure = failure_of(Thrown(_CALL + text))
        assert failure is not None
        assert failure.problem == f"Spark: {problem}"

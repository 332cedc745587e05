"""Causes that users meet where they first run it, by texts that Spark, Delta and Hadoop have really thrown."""

from __future__ import annotations

import re

import pytest

from support.thrown import Thrown
from walreplay.spark.session.causes import cause_of
from walreplay.spark.session.failures import failure_of

_CALL = "An error occurred while calling o158.load.\n: "
_AT_DELTA = "\n\tat org.apache.spark.sql.delta.DeltaLog$.getDeltaLogFromCache$1(DeltaLog.scala:995)"

_THROWN = {
    "s3 for s3a": (
        'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"',
        "Spark has no file system for s3://",
        r"Write s3a:// in its place; Spark needs org\.apache\.hadoop:hadoop-aws:[\d.]+ for it",
    ),
    "an unknown scheme": (
        'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "oss"',
        "Spark has no file system for oss://",
        "Add the JAR",
    ),
    "no hadoop-aws": (
        "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class "
        "org.apache.hadoop.fs.s3a.S3AFileSystem not found\n\tat org.apache.hadoop.conf.Configuration.getClass(C.java)",
        "Spark lacks the file system for s3a://: no class org.apache.hadoop.fs.s3a.S3AFileSystem",
        r"--packages org\.apache\.hadoop:hadoop-aws:\d",
    ),
    "no hadoop-azure": (
        "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class "
        "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem not found",
        "Spark lacks the file system for abfss://",
        r"--packages org\.apache\.hadoop:hadoop-azure:\d",
    ),
    "no connector for Google's": (
        "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class "
        "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem not found",
        "Spark lacks the file system for gs://",
        r"--packages org\.apache\.hadoop:hadoop-gcp:\d",
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
        "s3a://closed/x: access to it is denied (403)",
        "which credentials Spark has",
    ),
    "access denied to a worker": (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "OSError: When initiating multiple part upload for key 'm/a=SECRET/1' in bucket 'lake': AWS Error "
        "ACCESS_DENIED during CreateMultipartUpload operation: Access Denied\n\n\tat org.apache.spark",
        "the store denies access to the workers (ACCESS_DENIED)",
        "have not expired",
    ),
    "a token that has ended at a worker": (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "OSError: When listing objects under key 'x/' in bucket 'lake': AWS Error UNKNOWN (HTTP status 400) during "
        "ListObjectsV2 operation: Unable to parse ExceptionName: ExpiredToken Message: SECRET\n",
        "the store denies access to the workers (ExpiredToken)",
        "have not expired",
    ),
    "a store that a worker does not reach": (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "OSError: When reading information for key 'x' in bucket 'lake': AWS Error NETWORK_CONNECTION during "
        "HeadObject operation: curlCode: 28, Timeout was reached\n",
        "cannot be reached by them: NETWORK_CONNECTION",
        "the network lets them there",
    ),
    "access denied to a commit": (
        "java.nio.file.AccessDeniedException: mirror/t/_delta_log/00000000000000000001.json: Writing Object on "
        "mirror/t/SECRET: software.amazon.awssdk.services.s3.model.S3Exception: AccessDenied (Service: S3, "
        "Status Code: 403, Request ID: null)",
        "the store denies access (403)",
        "have not expired",
    ),
    "a token that has ended": (
        "org.apache.hadoop.fs.s3a.AWSBadRequestException: getFileStatus on s3a://lake/x: software.amazon.awssdk."
        "services.s3.model.S3Exception: The provided token has expired. (Service: S3, Status Code: 400)",
        "the store's credentials have expired",
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
    "no metastore": (
        "org.apache.spark.sql.AnalysisException: org.apache.hadoop.hive.ql.metadata.HiveException: java.lang."
        "RuntimeException: Unable to instantiate org.apache.hadoop.hive.ql.metadata.SessionHiveMetaStoreClient",
        "Spark's catalog cannot reach its metastore",
        "hive.metastore.uris",
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
        "Spark's executors have another Python (3.12) than this program (3.11)",
        "PYSPARK_PYTHON",
    ),
    "no gRPC for Spark Connect": (
        "[PACKAGE_NOT_INSTALLED] grpcio >= 1.48.1 must be installed; however, it was not found.",
        "pyspark needs grpcio >= 1.48.1",
        r"pip install 'pyspark-client==\d",
    ),
    "a store that is away": (
        "java.net.ConnectException: Call From x to localhost:9000 failed on connection exception: java.net."
        "ConnectException: Connection refused",
        "the storage cannot be reached (ConnectException)",
        "whatever was applied counts once",
    ),
}


@pytest.mark.parametrize(("thrown", "problem", "remedy"), _THROWN.values(), ids=_THROWN)
def test_a_cause_is_told_in_one_line_with_what_to_do(thrown: str, problem: str, remedy: str) -> None:
    failure = failure_of(Thrown(_CALL + thrown))
    text = str(failure)
    assert problem in text
    assert re.search(remedy, text)
    assert "\n" not in text
    assert "--traceback" not in text
    assert "SECRET" not in text


def test_what_only_looks_like_one_is_left_to_others() -> None:
    for text in (
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: avro. SQLSTATE: 42K02",
        "java.lang.NoSuchMethodError: 'void a.B.c()'\n\tat a.B.d(B.java:1)",
        "[CAST_INVALID_INPUT] The value 'ModuleNotFoundError: No module named 'x'' cannot be cast. SQLSTATE: 22018",
    ):
        assert cause_of(_CALL + text) is None

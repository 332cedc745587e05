"""Turn exceptions of Spark, Delta or Java into our own `SparkFailure`.

Their messages quote row values (of a failed cast, for example).  So only what is known to hold none is passed on: names
of classes, schemes, modules and places, the message of an error that is not about data, otherwise only its condition.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from walreplay.errors import SparkFailure, WalReplayError

_GO_ON: Final = "Nothing is half applied; run it again, it goes on where it stopped"
_SEE_MORE: Final = "Set WALREPLAY_TRACEBACK=1 to see more"

_NO_BUCKET: Final = ("the bucket {bucket} does not exist", "Make it, or correct the name, then run it again")

_CREDENTIALS: Final = (
    "See that it can be reached, which credentials Spark has, that they have not expired, and that they may list, read "
    "and write there, then run it again; whatever was applied counts once"
)

_JAVA_GONE: Final = (
    "Spark's JVM has ended, perhaps for want of memory; give it more (--driver-memory, or spark.driver.memory)"
)

_DATA_EXCEPTION: Final = "22"  # this class of SQLSTATEs has messages that quote values

# The condition in the text of one of Spark's errors, however it was wrapped.
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] .*?SQLSTATE: (\w{5})", re.DOTALL)

# An exception in a stack trace of Java's: its class, and the first line of its message.
_THROWN: Final = re.compile(r"^(?:Caused by: |: )((?:[\w$]+\.)+[\w$]+)(?:: ([^\n]*))?", re.MULTILINE)

_REFUSALS: Final = tuple(map(os.strerror, (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)))
_REASON: Final = re.compile("|".join(map(re.escape, (*_REFUSALS, os.strerror(errno.EIO), os.strerror(errno.ENOSPC)))))

_PLACE: Final = r"((?:\w[\w+.-]*:)?/[^\n]+?)"
# How Hadoop, Java and Spark name a file with which something is the matter; a name may have blanks.
_FILES: Final = (
    re.compile(rf"{_PLACE}(?: at \d+ exp: | does not exist| \((?:{_REASON.pattern})\)| is not a Parquet file)"),
    re.compile(rf"reading file {_PLACE}\. "),
    re.compile(rf"(?:Mkdirs failed to create|is not a directory:) {_PLACE}(?: \(|$)"),
    re.compile(rf"{_PLACE}: Unable to reconstruct state"),
)

_LEADING: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_OF_PARTITIONS: Final = re.compile(r"=[^/]*(?=/)")

_NOT_MADE: Final = "the folder cannot be made or written to: that is not permitted, or something is in its way"


@contextmanager
def spark_errors(*, table: str | None = None, path: str | None = None) -> Iterator[None]:
    """Raise exceptions of Spark, Delta or Java from within as `SparkFailure`.

    Args:
        table: the ``schema.table`` that the statements are for, and ``path`` where it lies.
    """
    try:
        yield
    except WalReplayError:
        raise
    except Exception as error:
        failure = failure_of(error, table=table, path=path)
        if failure is None:
            raise
        # The original stays in __context__, but is not shown, because it may quote values.
        raise failure from None


def failure_of(error: Exception, *, table: str | None = None, path: str | None = None) -> WalReplayError | None:
    """Return our error for one of Spark's, Delta's, Java's or an object store's; None for any other exception."""
    if _has_lost_java(error):
        return SparkFailure(_JAVA_GONE, table=table, path=path, remedy=_GO_ON)
    if isinstance(error, OSError) and error.errno is None and not isinstance(error, ConnectionError):
        return _of_store(error, table=table, path=path)
    if not any(kind.__module__.startswith(("pyspark.", "py4j.")) for kind in type(error).__mro__):
        return None
    text = str(error)
    # If an executor raised an error of ours, it is at the end of the traceback that Spark passes on.
    ours = re.findall(r"^(?:\w+\.)*walreplay\.errors\.(\w+): (.*)$", text, re.MULTILINE)
    if ours:
        return SparkFailure(str(ours[-1][1]))
    by_worker = re.search(r"^OSError: (When [^\n]*\b(?:AWS|Google Cloud|Azure)\w* Error [^\n]*)", text, re.MULTILINE)
    if by_worker is not None:
        return _of_store(OSError(by_worker[1]), table=table, path=path)
    traced = f"{text}\n: {getattr(error, '_stackTrace', '')}"
    for sign, problem, remedy in _CAUSES:
        match = re.search(sign, traced, re.MULTILINE)
        if match is not None:
            names = {**match.groupdict(), **_packages()}
            place = names.get("place") or path
            return SparkFailure(problem.format(**names), table=table, path=place, remedy=remedy.format(**names))
    problem = _problem(error, text, innermost(traced))
    return SparkFailure(
        f"Spark: {problem}",
        table=table,
        path=path,
        remedy=_SEE_MORE if table is None else f"{_GO_ON} once the cause is gone. {_SEE_MORE}",
    )


def _problem(error: Exception, text: str, cause: str | None) -> str:
    """Write what is known of an error, and its innermost exception, that quotes no value."""
    condition, state = (_ask(error, name) for name in ("getCondition", "getSqlState"))
    problem = text.strip().splitlines()[0].removesuffix(".") if state else None
    if state is None:
        # Of what Java has thrown as it is, the text alone has them.
        match = _CONDITION.search(text)
        condition, state = (match[1], match[2]) if match else (condition, "")
        problem = condition if match else None
    if state.startswith(_DATA_EXCEPTION):
        return condition or type(error).__name__
    if problem is None:
        return cause or condition or type(error).__name__
    return problem if cause is None else f"{problem}, by {cause}"


def _of_store(error: OSError, *, table: str | None, path: str | None) -> SparkFailure:
    """Return the error for a store's answer to Arrow's client, whose text has addresses and much else."""
    # Needs pyarrow, which the program begins without.
    from walreplay.session.folders import reason_of

    reason, bucket = reason_of(error), urlsplit(path or "").netloc
    if bucket and reason in ("NO_SUCH_BUCKET", "NoSuchBucket"):
        return SparkFailure(_NO_BUCKET[0].format(bucket=bucket), table=table, path=path, remedy=_NO_BUCKET[1])
    problem = f"the store denies access or cannot be reached: {reason}"
    return SparkFailure(problem, table=table, path=path, remedy=_CREDENTIALS)


def innermost(text: str) -> str | None:
    """Name the innermost exception in a stack trace of Java's: its class, its reason and its file, if these are known.

    The rest of a message may quote values.
    """
    thrown = _THROWN.findall(text)
    if not thrown:
        return None
    kind, message = thrown[-1]
    reason = _REASON.search(message) or _LEADING.match(message)
    places = (place for _, detail in reversed(thrown) for sign in _FILES if (place := sign.search(detail)) is not None)
    place = next(places, None)
    problem = kind if reason is None else f"{kind} ({reason[reason.lastindex or 0]})"
    # The folder of a partition has a value in its name.
    if place is None:
        return problem
    # Spark names a file as a URI.
    file = unquote(place[1]) if ":///" in place[1] else place[1]
    return f"{problem} at {_OF_PARTITIONS.sub('=…', file)}"


def is_refused(problem: str) -> bool:
    """Check whether a problem is that the file system does not let anybody write there."""
    return any(reason in problem for reason in (*_REFUSALS, _NOT_MADE))


def _has_lost_java(error: Exception) -> bool:
    """Check whether Java cannot be reached at all: then the first exception may only be a consequence."""
    if not isinstance(error, ConnectionError):
        return False
    return any("py4j" in Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__))


def _ask(error: Exception, name: str) -> str | None:
    try:
        value = getattr(error, name)()
    except Exception:  # py4j's errors have no such method, and some of Spark's cannot answer
        return None
    return value if isinstance(value, str) else None


def _packages() -> dict[str, str]:
    """Return how Spark is given Delta, and the version of Hadoop that pyspark brings."""
    # Needs pyspark, which the program loads without.
    import pyspark

    from walreplay.session.session import fitting_package

    jar = next(Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar"), None)
    hadoop = "VERSION (of Spark's Hadoop)" if jar is None else jar.stem.removeprefix("hadoop-client-api-")
    return {"delta": fitting_package(), "hadoop": hadoop}


_STORE_JARS: Final = (
    "Start Spark with the JAR of the store's file system (for s3a:// --packages org.apache.hadoop:hadoop-aws:{hadoop}; "
    "hadoop-azure for abfss://, hadoop-gcp for gs://), and write s3a:// for s3://; then run it again"
)
_PACKAGE: Final = (
    "Give them the file that walreplay.package_zip('walreplay.zip') writes: by --py-files under spark-submit, by "
    "spark.addArtifacts(…, pyfile=True) on Spark Connect; or install walreplay on the cluster. In local mode "
    "PYSPARK_PYTHON has to name the Python that has it; then run it again"
)
# The causes that people meet: the sign in what Spark has thrown, the problem, and what to do.
_CAUSES: Final = (
    (r"No FileSystem for scheme \"(?P<name>[\w+.-]+)\"", "Spark has no file system for {name}://", _STORE_JARS),
    (
        r"ClassNotFoundException: Class (?P<name>org\.apache\.hadoop\.fs\.\w+\.\w+) not found",
        "Spark has no file system for the store: no class {name}",
        _STORE_JARS,
    ),
    (
        r"\[DATA_SOURCE_NOT_FOUND\][^\n]*: delta\b|Cannot find catalog plugin class [^\n]*\.delta\."
        r"|ClassNotFoundException: (?:org\.apache\.spark\.sql\.delta|io\.delta)\.",
        "Spark has no Delta",
        "{delta}, then run it again",
    ),
    (
        r"java\.lang\.(?P<name>NoSuchMethodError|NoClassDefFoundError|AbstractMethodError|IncompatibleClassChangeError)"
        r"(?:.*\n)+?\s+at (?:org\.apache\.spark\.sql\.delta|io\.delta)\.",
        "the Delta that Spark has loaded was built for another version of Spark ({name})",
        "{delta}, then run it again",
    ),
    (r"UnknownStoreException: `?(?P<place>\w+://(?P<bucket>[^\s'`:/]+)[^\s'`:]*)", *_NO_BUCKET),
    (
        # What is written S3A names by its key alone, which may hold a partition's value.
        r"AccessDeniedException: (?:(?P<place>\w+://[^\s:]+)|[^/\s][^\n]*\bStatus Code: 403\b)"
        r"|NoAuthWithAWSException|NoAwsCredentialsException"
        r"|AWSBadRequestException[^\n]*(?:ExpiredToken|token has expired)|\bExpiredTokenException\b",
        "the store denies access",
        _CREDENTIALS,
    ),
    (
        r"(?:\[DELTA_CANNOT_CREATE_LOG_PATH\] Cannot create |AccessControlException: .*inode=\")(?P<place>[^\n\"]+)",
        _NOT_MADE,
        "See that Spark may write there, then run it again",
    ),
    (
        r"^ModuleNotFoundError: No module named 'walreplay\b",
        "the Python of Spark's executors has no walreplay",
        _PACKAGE,
    ),
    (
        r"^ModuleNotFoundError: No module named '(?P<name>\w+)",
        "the Python of Spark's executors has no {name}",
        "Install {name} in it; then run it again",
    ),
    (
        r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version: (?P<name>[\d.]+)",
        "Spark's executors have another Python ({name}) than this program",
        "Use the same version for both (PYSPARK_PYTHON names the executors'), then run it again",
    ),
    (r"OutOfMemoryError", "Spark's JVM ran out of memory; give it more (--driver-memory, --executor-memory)", _GO_ON),
    (r"Answer from Java side is empty", _JAVA_GONE, _GO_ON),
    (
        r"\[JAVA_GATEWAY_EXITED\]",
        "Spark did not start",
        "What it has said above has the reason; it takes its options from PYSPARK_SUBMIT_ARGS and spark-defaults.conf",
    ),
    (
        r"Python worker (?:exited unexpectedly|process terminated)",
        "a Python worker of Spark's was killed, perhaps for want of memory",
        _GO_ON,
    ),
)

"""Causes that users meet where they first run it, each told in one line with what to do.

They are recognised by the class of an exception or by its SQLSTATE's condition, in the text that Spark passes on.  Of
that text only names of classes, schemes, modules and places are passed on, never a row's value.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyspark

from walreplay.errors import CREDENTIALS, SparkFailure
from walreplay.spark.session.delta_jars import fitting_package

_AGAIN: Final = "then run it again"

_FILE_SYSTEMS: Final = {
    "s3a": ("s3a://", "hadoop-aws"),
    "azurebfs": ("abfss://", "hadoop-azure"),
    "gs": ("gs://", "hadoop-gcp"),
}
"""By the package of Hadoop's classes: the scheme, and the artifact that has them."""


_THROWN: Final = re.compile(r"^(?:Caused by: |: )((?:[\w$]+\.)+[\w$]+)(?:: ([^\n]*))?", re.MULTILINE)
"""An exception in a stack trace of Java's: its class, and the first line of its message."""

_REFUSALS: Final = tuple(map(os.strerror, (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)))
_REASON: Final = re.compile("|".join(map(re.escape, (*_REFUSALS, os.strerror(errno.EIO), os.strerror(errno.ENOSPC)))))

_PLACE: Final = r"((?:\w[\w+.-]*:)?/[^\n]+?)"
_FILES: Final = (
    re.compile(rf"{_PLACE}(?: at \d+ exp: | does not exist| \((?:{_REASON.pattern})\)| is not a Parquet file)"),
    re.compile(rf"reading file {_PLACE}\. "),
    re.compile(rf"(?:Mkdirs failed to create|is not a directory:) {_PLACE}(?: \(|$)"),
    re.compile(rf"{_PLACE}: Unable to reconstruct state"),
)
"""How Hadoop, Java and Spark name a file with which something is the matter; a name may have blanks."""

_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_OF_PARTITIONS: Final = re.compile(r"=[^/]*(?=/)")


def innermost(text: str) -> str | None:
    """Name the innermost exception in a stack trace of Java's: its class, its reason and its file, if these are known.

    The rest of a message may quote values.
    """
    found = _THROWN.findall(text)
    if not found:
        return None
    kind, message = found[-1]
    reason = _REASON.search(message) or _CONDITION.match(message)
    places = (place for _, said in reversed(found) for sign in _FILES if (place := sign.search(said)) is not None)
    place = next(places, None)
    told = kind if reason is None else f"{kind} ({reason[reason.lastindex or 0]})"
    # The folder of a partition has a value in its name.
    if place is None:
        return told
    # Spark names a file as a URI.
    file = unquote(place[1]) if ":///" in place[1] else place[1]
    return f"{told} at {_OF_PARTITIONS.sub('=…', file)}"


def is_refused(problem: str) -> bool:
    """Say whether a problem is that the file system does not let anybody write there."""
    return any(reason in problem for reason in (*_REFUSALS, "cannot be made"))


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause that was recognised.

    Attributes:
        place: where it showed; None if the text does not say.
    """

    problem: str
    remedy: str
    place: str | None = None


def cause_of(text: str) -> Cause | None:
    """Recognise a cause in what Spark has thrown; None for anything else."""
    for sign, told in _CAUSES:
        found = re.search(sign, text, re.MULTILINE)
        if found is not None:
            return told(found)
    return None


def failure_with(text: str, *, table: str | None, path: str | None) -> SparkFailure | None:
    """Give the error for a cause that is recognised.

    Args:
        table, path: of the statement, if the cause names no other place.
    """
    cause = cause_of(text)
    if cause is None:
        return None
    return SparkFailure(cause.problem, table=table, path=cause.place or path, remedy=cause.remedy)


def _no_scheme(found: re.Match[str]) -> Cause:
    scheme = found[1]
    remedy = f"Add the JAR that has one to Spark (spark.jars.packages), {_AGAIN}"
    if scheme in ("s3", "s3n"):
        remedy = f"Write s3a:// in its place; Spark needs {_artifact('hadoop-aws')} for it"
    return Cause(f"Spark has no file system for {scheme}://", remedy)


def _no_file_system(found: re.Match[str]) -> Cause:
    scheme, artifact = _FILE_SYSTEMS.get(found[2], (found[2], f"the JAR that has {found[1]}"))
    known = found[2] in _FILE_SYSTEMS
    remedy = f"Start Spark with --packages {_artifact(artifact)}" if known else f"Add {artifact}"
    return Cause(f"Spark lacks the file system for {scheme}: no class {found[1]}", f"{remedy}, {_AGAIN}")


def _artifact(name: str) -> str:
    """Give an artifact of Hadoop with the version that pyspark brings."""
    found = next(Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar"), None)
    version = "VERSION" if found is None else found.stem.removeprefix("hadoop-client-api-")
    told = " (with Hadoop's own version)" if found is None else ""
    return f"org.apache.hadoop:{name}:{version}{told}"


def _no_bucket(found: re.Match[str]) -> Cause:
    return Cause(
        f"the bucket {_bucket(found[1])} does not exist", f"Make it, or correct the name, {_AGAIN}", place=found[1]
    )


def _bucket(place: str) -> str:
    return re.sub(r"^\w+:/+([^/]*).*", r"\1", place)


def _denied(found: re.Match[str]) -> Cause:
    return Cause(
        f"access to it is denied{' (403)' if '://' in found[1] else ''}",
        CREDENTIALS,
        place=found[1],
    )


def _denied_by_store(_: re.Match[str]) -> Cause:
    return Cause("the store denies access (403)", CREDENTIALS)


def _expired(_: re.Match[str]) -> Cause:
    return Cause("the store's credentials have expired", CREDENTIALS)


def _by_worker(found: re.Match[str]) -> Cause:
    # Needs pyarrow, which is not needed to say what else is the matter.
    from walreplay.sink.folders import is_denied, reason_of

    reason = reason_of(OSError(found[1]))
    if is_denied(reason):
        return Cause(f"the store denies access to the workers ({reason})", CREDENTIALS)
    return Cause(
        f"the storage refuses the workers or cannot be reached by them: {reason}",
        f"See that it is there and the network lets them there, {_AGAIN}; whatever was applied counts once",
    )


def _no_credentials(_: re.Match[str]) -> Cause:
    return Cause(
        "Spark has no credentials for the object store",
        "Give it some (spark.hadoop.fs.s3a.access.key and secret.key, a profile, or an instance's role), " + _AGAIN,
    )


def _unreachable(found: re.Match[str]) -> Cause:
    return Cause(
        f"the storage cannot be reached ({found[1]})",
        f"See that its address is right and the network lets Spark there, {_AGAIN}; whatever was applied counts once",
    )


def _no_module(found: re.Match[str]) -> Cause:
    module = found[1].partition(".")[0]
    remedy = f"Install {module} in it"
    if module == "walreplay":
        remedy = (
            "Give them the file that walreplay.package_zip('walreplay.zip') writes: by --py-files under spark-submit, "
            "by spark.addArtifacts(…, pyfile=True) on Spark Connect; or install walreplay on the cluster. In local "
            "mode PYSPARK_PYTHON has to name the Python that has it"
        )
    return Cause(f"the Python of Spark's executors has no {module}", f"{remedy}; {_AGAIN}")


def _no_package(found: re.Match[str]) -> Cause:
    client = ".".join(pyspark.__version__.split(".")[:2])
    return Cause(
        f"pyspark needs {found[1]}",
        f"Install it with pip; for Spark Connect all is in: pip install 'pyspark-client=={client}.*' 'pandas<3'",
    )


def _other_python(found: re.Match[str]) -> Cause:
    return Cause(
        f"Spark's executors have another Python ({found[1]}) than this program ({found[2]})",
        f"Use the same version of Python for both (PYSPARK_PYTHON names the executors'), {_AGAIN}",
    )


def _no_delta(_: re.Match[str]) -> Cause:
    return Cause("Spark has no Delta", f"{fitting_package()}, {_AGAIN}")


def _other_delta(found: re.Match[str]) -> Cause:
    return Cause(
        f"the Delta that Spark has loaded was built for another version of Spark ({found[1]})",
        f"{fitting_package()}, {_AGAIN}",
    )


def _not_made(found: re.Match[str]) -> Cause:
    return Cause(
        "the folder cannot be made: writing there is not permitted, or something is in its way",
        f"See that Spark may write there, {_AGAIN}",
        place=found[1],
    )


def _wrong_checksum(found: re.Match[str]) -> Cause:
    folder, _, name = found[1].rpartition("/")
    return Cause(
        "the file is not what Hadoop's checksum of it says (ChecksumException)",
        f"Bring the file back as it was; or, if it is right, remove its checksum ({folder}/.{name}.crc); {_AGAIN}",
        place=found[1],
    )


def _no_metastore(_: re.Match[str]) -> Cause:
    return Cause(
        "Spark's catalog cannot reach its metastore",
        f"See that it runs, and that hive.metastore.uris or the database of Derby is right, {_AGAIN}",
    )


_CAUSES: Final[tuple[tuple[str, Callable[[re.Match[str]], Cause]], ...]] = (
    (r"UnsupportedFileSystemException: No FileSystem for scheme \"([\w+.-]+)\"", _no_scheme),
    (r"ClassNotFoundException: Class (org\.apache\.hadoop\.fs\.(\w+)\.\w+) not found", _no_file_system),
    (r"UnknownStoreException: `?(\w+://[^\s'`:]+)", _no_bucket),
    (r"^OSError: (When [^\n]*\b(?:AWS|Google Cloud|Azure)\w* Error [^\n]*)", _by_worker),
    (r"s3a\.AWSBadRequestException[^\n]*(?:ExpiredToken|token has expired)|\bExpiredTokenException\b", _expired),
    (r"java\.nio\.file\.AccessDeniedException: (\w+://[^\s:]+)", _denied),
    # What is written S3A names by its key alone, which may hold a partition's value.
    (r"java\.nio\.file\.AccessDeniedException: [^/\s][^\n]*\bStatus Code: 403\b", _denied_by_store),
    (r"AccessControlException: .*?(?:inode=)?\"?((?:\w+://|/)[^\s:\"]+)", _denied),
    (r"NoAuthWithAWSException|NoAwsCredentialsException|Unable to load credentials from", _no_credentials),
    (r"java\.net\.(UnknownHostException|ConnectException|NoRouteToHostException)", _unreachable),
    (r"\[PACKAGE_NOT_INSTALLED\] (\S+(?: >= \S+)?) must be installed", _no_package),
    (
        r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version: ([\d.]+) than that in driver: ([\d.]+)",
        _other_python,
    ),
    (r"^ModuleNotFoundError: No module named '([\w.]+)'", _no_module),
    (r"\[DATA_SOURCE_NOT_FOUND\][^\n]*: delta\b|Cannot find catalog plugin class [^\n]*\.delta\.", _no_delta),
    (r"ClassNotFoundException: (?:org\.apache\.spark\.sql\.delta|io\.delta)\.", _no_delta),
    (
        r"java\.lang\.(NoSuchMethodError|NoClassDefFoundError|AbstractMethodError|IncompatibleClassChangeError)"
        r"(?:.*\n)+?\s+at (?:org\.apache\.spark\.sql\.delta|io\.delta)\.",
        _other_delta,
    ),
    (r"\[DELTA_CANNOT_CREATE_LOG_PATH\] Cannot create ([^\n]+)", _not_made),
    (r"ChecksumException: Checksum error: ([^\n]+?) at \d+ exp: ", _wrong_checksum),
    (r"Unable to instantiate [\w.]*MetaStoreClient|MetaException\(|Another instance of Derby", _no_metastore),
)
"""Each sign, and what it says."""


__all__ = ["Cause", "cause_of", "failure_with", "innermost", "is_refused"]

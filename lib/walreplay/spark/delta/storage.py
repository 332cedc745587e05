"""Errors of the storage, reported with the place: a full disk, a refused path, a damaged ledger, an unknown catalog."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from walreplay.errors import ConfigError, TargetError, WalReplayError
from walreplay.spark.delta.target import Target
from walreplay.spark.session.failures import failure_of, is_refused

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_SAID: Final = re.compile("|".join(re.escape(os.strerror(number)) for number in _FULL))
_PLACE: Final = re.compile(rf"(/[^\s:()'\"]+)[^/\n]{{0,4}}\((?:{_SAID.pattern})\)")
"""How Java names the file that it could not write."""
_OF_WORKER: Final = re.compile(r"^(?:\w+Error): \[Errno (\d+)\] [^:\n]+: '([^'\n]+)'", re.MULTILINE)
"""What Python says where a worker could not reach a file."""

_DAMAGE: Final = re.compile(
    r"DELTA_(?!CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)|FAILED_READ_FILE|FileNotFound|Parquet|jackson|EOFException"
    r"|ChecksumException"
)
"""What Spark and Delta say of a table that they cannot read."""


_TORN: Final = re.compile(
    r"DELTA_(?:VERSIONS_NOT_CONTIGUOUS|TRUNCATED_|STATE_RECOVER_|LOG_FILE_NOT_FOUND|MISSING_)|FAILED_READ_FILE|"
    r"FileNotFound|not a Parquet file|ChecksumException"
)
"""The same of a table that is written to, where much else may be the matter."""


@contextmanager
def storage_errors(place: str, *, if_damaged: str = "") -> Iterator[None]:
    """Raise errors of the file system, on whatever machine, as errors for people.

    Args:
        place: the target, if the error does not name the file.
        if_damaged: what to do if it is the table at the place that is damaged; empty if that is told elsewhere.
    """
    try:
        yield
    except WalReplayError:
        raise
    except OSError as error:
        if error.errno is None or isinstance(error, ConnectionError):
            raise
        reason = error.strerror or os.strerror(error.errno)
        raise _refused(str(error.filename or place), reason, error.errno) from error
    except Exception as error:
        said, of_worker = _SAID.search(str(error)), _OF_WORKER.search(str(error))
        if said is not None:
            found = _PLACE.search(str(error))
            raise _refused(found[1] if found else place, said[0], errno.ENOSPC) from error
        if if_damaged and (damage := _damage(error, of_worker, place)) is not None:
            told, path = damage
            remedy = f"Bring back what is missing; or {if_damaged}"
            raise TargetError(f"the table is damaged: {told}", path=path, remedy=remedy) from error
        if of_worker is None:
            raise
        number = int(of_worker[1])
        raise _refused(of_worker[2], os.strerror(number), number) from error


def _damage(error: Exception, of_worker: re.Match[str] | None, place: str) -> tuple[str, str] | None:
    """Say what of a table cannot be read, and where; None if something else is the matter."""
    if of_worker is not None:
        is_gone = int(of_worker[1]) == errno.ENOENT and of_worker[2].startswith(f"{place}/")
        return (os.strerror(errno.ENOENT), of_worker[2]) if is_gone else None
    failure = failure_of(error) if _TORN.search(str(error)) is not None else None
    return None if failure is None or is_refused(failure.problem) else (failure.problem, failure.path or place)


def _refused(path: str, reason: str, number: int) -> TargetError:
    """Give the error that a run cannot go on.

    Args:
        number: the system's errno.
    """
    remedy = "See that its folder is there, and may be read and written to"
    if number in _FULL:
        remedy = "Make room (Spark's own files lie where spark.local.dir says)"
    return TargetError(
        f"the run cannot go on: {reason}",
        path=path,
        remedy=f"{remedy}; and run again, as whatever was applied counts once",
    )


@contextmanager
def ledger_errors(table: str) -> Iterator[None]:
    """Raise errors of reading a table of the ledger as errors for people.

    Args:
        table: where it is.
    """
    try:
        yield
    except (WalReplayError, OSError):
        raise
    except Exception as error:
        of_spark = type(error).__module__.startswith(("pyspark.", "py4j."))
        if _SAID.search(str(error)) is not None or (of_spark and _DAMAGE.search(str(error)) is None):
            raise
        raise TargetError(
            f"the ledger cannot be read: its table is damaged ({type(error).__name__})",
            path=table,
            remedy="Bring it back from a copy, as old as that may be: what tables have that it does not know of is set "
            "back and applied again. Without a copy, apply to a new target",
        ) from error


_NO_CATALOG: Final = ("REQUIRES_SINGLE_PART_NAMESPACE", "CATALOG_NOT_FOUND", "NO_SUCH_CATALOG_EXCEPTION")


@contextmanager
def catalog_errors(target: Target) -> Iterator[None]:
    """If a catalog does not exist, say what its name may have been meant to be.

    Raises:
        ConfigError: there is no such catalog.
    """
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if target.root is not None or error.getCondition() not in _NO_CATALOG:
            raise
        raise ConfigError(
            f"there is no catalog {target.catalog[0]!r}, as which a name without a slash is taken",
            path=target.text,
            remedy=f"If a folder is meant, write ./{target.text}; if a catalog is, Spark's configuration lacks it",
        ) from None

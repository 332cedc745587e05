"""Turn exceptions of Spark, Delta or Java into our own `SparkFailure`.

Their messages quote row values (of a failed cast, for example).  So only text that is known to hold none is passed on:
the message of an error that is not about data, otherwise only its condition.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from walreplay.errors import CREDENTIALS, SparkFailure, WalReplayError

_GO_ON: Final = "Nothing is half applied; run it again, it goes on where it stopped"
_SEE_MORE: Final = "Run with --traceback to see more"

_JAVA_GONE: Final = (
    "Spark's JVM has ended, perhaps for want of memory; give it more (--driver-memory, or spark.driver.memory)"
)
_WORKER_GONE: Final = "a Python worker of Spark's was killed, perhaps for want of memory"

_DEATHS: Final = {
    "OutOfMemoryError": "Spark's JVM ran out of memory; give it more (--driver-memory, --executor-memory)",
    "Answer from Java side is empty": _JAVA_GONE,
    "Python worker exited unexpectedly": _WORKER_GONE,
    "Python worker process terminated": _WORKER_GONE,
}
"""What the text of an error says of how a process ended, and how to put it."""

_DATA_EXCEPTION: Final = "22"
"""The class of SQLSTATEs whose messages quote values."""

_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] .*?SQLSTATE: (\w{5})", re.DOTALL)
"""What stands in the text of an error that Spark has given a condition, wherever it was wrapped."""


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
        told = failure_of(error, table=table, path=path)
        if told is None:
            raise
        # The original stays in __context__, but is not shown, because it may quote values.
        raise told from None


def failure_of(error: Exception, *, table: str | None = None, path: str | None = None) -> WalReplayError | None:
    """Give our error for one of Spark's, Delta's, Java's or an object store's; None for any other exception."""
    if _has_lost_java(error):
        return SparkFailure(_JAVA_GONE, table=table, path=path, remedy=_GO_ON)
    if isinstance(error, OSError) and error.errno is None and not isinstance(error, ConnectionError):
        # Needs pyarrow, which the program begins without.
        from walreplay.sink.folders import is_denied, reason_of

        # Arrow's client puts addresses and whatever the store has said into the text.
        reason = reason_of(error)
        if is_denied(reason):
            return SparkFailure(f"the store denies access ({reason})", table=table, path=path, remedy=CREDENTIALS)
        told = f"the storage refuses or cannot be reached: {reason}"
        return SparkFailure(told, table=table, path=path, remedy=f"{_GO_ON} once the cause is gone. {_SEE_MORE}")
    if not any(kind.__module__.startswith(("pyspark.", "py4j.")) for kind in type(error).__mro__):
        return None
    # Needs pyspark, which the program loads without.
    from walreplay.spark.session.causes import failure_with, innermost

    text = str(error)
    # If an executor raised an error of ours, it is at the end of the traceback that Spark passes on.
    ours = re.findall(r"^(?:\w+\.)*walreplay\.errors\.(\w+): (.*)$", text, re.MULTILINE)
    if ours:
        return SparkFailure(str(ours[-1][1]))
    traced = f"{text}\n: {getattr(error, '_stackTrace', '')}"
    recognised = failure_with(traced, table=table, path=path)
    if recognised is not None:
        return recognised
    for sign, told in _DEATHS.items():
        if sign in text:
            return SparkFailure(told, table=table, path=path, remedy=_GO_ON)
    problem = _problem(error, text, innermost(traced))
    return SparkFailure(
        f"Spark: {problem}",
        table=table,
        path=path,
        remedy=_SEE_MORE if table is None else f"{_GO_ON} once the cause is gone. {_SEE_MORE}",
    )


def _problem(error: Exception, text: str, cause: str | None) -> str:
    """Write what is known of an error that quotes no value.

    Args:
        cause: the innermost exception.
    """
    condition, state = (_ask(error, name) for name in ("getCondition", "getSqlState"))
    problem = text.strip().splitlines()[0].removesuffix(".") if state else None
    if state is None:
        # Of what Java has thrown as it is, the text alone has them.
        found = _CONDITION.search(text)
        condition, state = (found[1], found[2]) if found else (condition, "")
        problem = condition if found else None
    if state.startswith(_DATA_EXCEPTION):
        return condition or type(error).__name__
    if problem is None:
        return cause or type(error).__name__
    return problem if cause is None else f"{problem}, by {cause}"


def _has_lost_java(error: Exception) -> bool:
    """Say whether Java cannot be reached at all: then the first exception may only be a consequence."""
    if not isinstance(error, ConnectionError):
        return False
    return any("py4j" in Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__))


def _ask(error: Exception, name: str) -> str | None:
    try:
        value = getattr(error, name)()
    except Exception:  # py4j's errors have no such method, and some of Spark's cannot answer
        return None
    return value if isinstance(value, str) else None

"""Descriptions of Spark's jobs in its UI: a run has hundreds, which would otherwise be named after lines of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from walreplay.errors import visible
from walreplay.session.isolation import has_own_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DESCRIPTION: Final = "spark.job.description"
_LONGEST: Final = 200


@contextmanager
def jobs_named(spark: SparkSession, what: str) -> Iterator[None]:
    """Name the jobs that this thread begins inside: by their description, and on Spark Connect by a tag.

    A platform may refuse either.  Then its UI shows what it shows.

    Args:
        what: may hold names of tables.
    """
    if has_own_sessions(spark):
        with _described(spark, description_of(what)):
            yield
        return
    tag = description_of(what).replace(",", ";")  # no comma may stand in a tag
    added = False
    with suppress(Exception):
        # What the caller has tagged so itself stays.
        if tag not in spark.getTags():
            spark.addTag(tag)
            added = True
    try:
        yield
    finally:
        if added:
            with suppress(Exception):
                spark.removeTag(tag)


@contextmanager
def _described(spark: SparkSession, text: str) -> Iterator[None]:
    context: Any = None
    before: str | None = None
    with suppress(Exception):
        # Clusters that several users share have none.
        context = spark.sparkContext
        before = context.getLocalProperty(_DESCRIPTION)
        context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        if context is not None:
            with suppress(Exception):
                context.setLocalProperty(_DESCRIPTION, before)


def description_of(what: str) -> str:
    """Return what the UI shows, which reads some markup in it.

    >>> description_of("apply s.<b>")
    'walreplay: apply s.‹b›'
    """
    return f"walreplay: {visible(what)}"[:_LONGEST].translate({ord("<"): "‹", ord(">"): "›", ord("&"): "+"})

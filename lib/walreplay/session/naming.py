"""Descriptions of Spark's jobs in its UI: a run has hundreds, which would otherwise be named after lines of code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
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
    undo: Callable[[], object] | None = None
    with suppress(Exception):
        undo = _name_jobs(spark, description_of(what))
    try:
        yield
    finally:
        if undo is not None:
            with suppress(Exception):
                undo()


def _name_jobs(spark: SparkSession, text: str) -> Callable[[], object] | None:
    """Name the jobs that this thread begins from now on; return what undoes that, None if there is nothing to undo."""
    if has_own_sessions(spark):
        context: Any = spark.sparkContext  # clusters that several users share have none
        undo = partial(context.setLocalProperty, _DESCRIPTION, context.getLocalProperty(_DESCRIPTION))
        context.setLocalProperty(_DESCRIPTION, text)
        return undo
    tag = text.replace(",", ";")  # no comma may stand in a tag
    if tag in spark.getTags():
        return None  # what the caller has tagged so itself stays
    spark.addTag(tag)
    return partial(spark.removeTag, tag)


def description_of(what: str) -> str:
    """Return what the UI shows, which reads some markup in it.

    >>> description_of("apply s.<b>")
    'walreplay: apply s.‹b›'
    """
    return f"walreplay: {visible(what)}"[:_LONGEST].translate({ord("<"): "‹", ord(">"): "›", ord("&"): "+"})

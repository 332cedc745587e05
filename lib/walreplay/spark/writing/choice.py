"""Choose how a target's rows are written: once, for all its tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from walreplay.delta.local import forget_tables
from walreplay.sink.folders import Folder, forget_files
from walreplay.spark.delta.located import tells
from walreplay.spark.delta.reach import folder_of, staging_folder
from walreplay.spark.delta.target import Target
from walreplay.spark.staging.reached import Reached, ReachedCatalog, ReachedRoot, ReachedStaging
from walreplay.spark.writing.base import TableWriter
from walreplay.spark.writing.files import FileWriter
from walreplay.spark.writing.statements import StatementWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SWITCH: Final = "WALREPLAY_COMMITS"
"""An environment variable: with ``spark``, Spark does all work; with ``statements``, only Python's commits are left to
it."""


def choose_writer(spark: SparkSession, target: Target, staging: str | None = None) -> TableWriter:
    """Give the writer of a target's tables.

    Python writes files if driver and executors reach the target by themselves.  Of a catalog's tables each is asked for
    by itself.

    Args:
        staging: a folder of the user's for staged events; None: in the target's own place.
    """
    chosen = os.environ.get(_SWITCH)
    folder = None if chosen == "spark" else folder_of(spark, target.root)
    # Since the last run of this process somebody may have begun the target anew.
    forget_files(folder)
    forget_tables()
    reached = None if chosen == "spark" else _reached(spark, target, folder)
    wanted = None if chosen == "spark" or staging is None else staging_folder(spark, staging)
    staged = None if wanted is None else ReachedStaging(spark, wanted)
    if reached is None or chosen == "statements":
        return StatementWriter(reached=reached, staged=staged)
    return FileWriter(reached, staged)


def _reached(spark: SparkSession, target: Target, folder: Folder | None) -> Reached | None:
    if target.root is None:
        return ReachedCatalog(spark) if tells(spark, target.catalog) else None
    return None if folder is None else ReachedRoot(spark, target.root, folder)

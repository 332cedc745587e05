"""Whether rows that are loaded have a key each, before any table has them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from walreplay.errors import CaptureError
from walreplay.outputs import source_oid
from walreplay.sink.events import Mode
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.staging.base import Staging
from walreplay.spark.workers.load import COUNTED, count_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_unique(spark: SparkSession, staging: Staging, runs: Iterable[TableRun]) -> None:
    """Refuse rows that come twice.

    Raises:
        CaptureError: naming the table, and how many there are.
    """
    runs = list(runs)
    mirrors = {run.plan.oid for run in runs}
    for run in runs:
        if run.plan.metadata.history is not None and source_oid(run.plan.oid) in mirrors:
            # It gets the same rows.
            continue
        (epoch,) = run.plan.epochs
        if epoch.identity.mode is not Mode.KEYED or not epoch.rows:
            continue
        task = run.fold_task(epoch)
        rows = run.events(spark, staging, epoch, task)
        counts = rows.mapInArrow(partial(count_keys, task=task), sql_schema(COUNTED)).collect()
        twice = epoch.rows - sum(row.keys for row in counts)
        if twice:
            raise CaptureError(
                f"{twice:,} of the {epoch.rows:,} rows have a key that another one has, too",
                table=run.plan.name,
                remedy="Nothing was loaded. Perhaps a file is there twice; or the rows were not all read in one "
                "snapshot; or the key in the configuration is none",
            )


__all__ = ["check_unique"]

"""Check that a table which several sources write to can have what one of them is about to write.

Each source's ledger knows the columns of its own rows alone.  The table has those of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from walreplay.errors import ConfigError, TargetError
from walreplay.sink.lineage import CommitId
from walreplay.spark.checks.siblings import SiblingLedgers
from walreplay.spark.planning.plan import TablePlan
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.spark.planning.sharing import (
    check_output,
    check_own_columns,
    column_conflict,
    columns_in,
    columns_there,
    needed,
    with_needed,
)
from walreplay.spark.planning.table_run import table_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def check_shared(plan: TablePlan, found: StructType, siblings: SiblingLedgers, made: Iterable[CommitId]) -> None:
    """Refuse a table that lacks what it had, or that has a column of another type than the source's rows.

    Args:
        found: the table's columns.
        made: the commits that have made the table what it is, where the source has none of its rows yet.

    Raises:
        ConfigError: two sources have columns of one name that cannot be one, or another output each.
        TargetError: the table is not as its runs have left it.
    """
    share = plan.metadata.share
    assert share is not None
    columns = columns_there(found)
    if share.column not in found.names:
        raise TargetError(
            f"the table has no column {share.column!r}, which says of a row of what source it is",
            table=plan.name,
            path=plan.table.text,
            remedy="Nothing was applied; move the table away, or take it out of shared_tables",
        )
    if plan.before is not None:
        lost = needed(columns, columns_in(table_schema(plan.before.shape, plan.metadata)))
        if lost.any:
            names = [one.text for one in (*lost.added, *lost.widened, *(one.wanted for one in lost.conflicts))]
            raise TargetError(
                f"the table's columns are not those that its last run has left ({', '.join(names)})",
                table=plan.name,
                path=plan.table.text,
                remedy="A mirror must have no other writer; undo the change, or apply to a new target",
            )
    else:
        check_output(plan.name, plan.table.text, plan.oid, share.source, made)
        check_own_columns(plan, columns)
    for epoch in plan.epochs:
        changes = needed(columns, columns_in(table_schema(epoch.shape, plan.metadata)))
        for column in changes.conflicts:
            raise column_conflict(plan, column, siblings.type_in(plan.table, column.wanted.name))
        columns = with_needed(columns, changes)


def check_unshared(entries: Iterable[MirrorEntry]) -> None:
    """Refuse to make tables again that have rows of other sources.

    Raises:
        ConfigError: naming one.
    """
    for entry in entries:
        if entry.share is not None:
            raise ConfigError(
                "the table is shared with other sources, and is not made again for one of them",
                table=entry.name,
                path=entry.table.text,
                remedy="Leave it out of --table; to have it anew, apply all sources to a new target",
            )


__all__ = ["check_shared", "check_unshared"]

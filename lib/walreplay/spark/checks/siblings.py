"""Check that several sources of one target write to no table together, before any of them does.

Each source has a ledger of its own.  It names the tables that the source has, and those that a run at work (or one that
was interrupted) is about to make.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from walreplay.errors import ConfigError
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.ledger.ledger import Ledger
from walreplay.spark.ledger.state import State
from walreplay.spark.planning.plan import RunPlan
from walreplay.spark.writing.base import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_turn: Final = threading.Lock()
"""Held from the look at the other ledgers until this run's plan is in its own: in one process, one source at a time."""


@contextmanager
def apart_from_siblings(
    spark: SparkSession,
    target: Target,
    writer: TableWriter,
    siblings: tuple[str, ...],
    wanted: Mapping[TableName, str],
    at_once: int,
) -> Iterator[tuple[str, ...]]:
    """Give the places that a run takes, for its plan, which is to be written inside.

    Where a run takes no new place, or the target is of one source or beside it, no other ledger is read.

    Args:
        target: with the source's own ledger.
        siblings: the other sources.
        wanted: the tables that the run makes, with the names of their source tables; see `taken_by`.
        at_once: how many ledgers are read at the same time.

    Raises:
        ConfigError: another source has one of the tables.
    """
    places = tuple(target.relative(table).place for table in wanted)
    if target.source is None or target.beside or not wanted:
        yield places
        return
    with _turn:
        _check(target, _held(spark, target, writer, siblings, at_once), wanted)
        yield places


def taken_by(tables: RunPlan) -> dict[TableName, str]:
    """Give the tables that a run makes or brings to another place, with the names of their source tables."""
    before = {table.table: table.before for table in tables.tables if not table.set_aside}
    names = {table.table: table.name for table in tables.tables if not table.set_aside}
    made = {
        table: names[table]
        for table, known in before.items()
        if known is None or known.set_aside or known.table.place != table.place
    }
    moved = {move.destination: move.name for move in tables.placement.moves if not move.set_aside}
    return {**moved, **made}


def _held(
    spark: SparkSession, target: Target, writer: TableWriter, siblings: tuple[str, ...], at_once: int
) -> dict[str, str | None]:
    """Give who has which place: a source, or None for the ledger that a target of one source has."""
    owners = (None, *siblings)

    def read(owner: str | None) -> State | None:
        # Whoever only looks does not mind an interrupted load.
        return Ledger(spark, target.of_source(owner), writer, loads=True).read()

    with ThreadPoolExecutor(at_once) as pool:
        states = list(pool.map(read, owners))
    held: dict[str, str | None] = {}
    for owner, state in zip(owners, states, strict=True):
        for entry in () if state is None else state.tables:
            if not entry.set_aside:
                held[target.relative(entry.table).place] = owner
        held |= dict.fromkeys(() if state is None else state.places, owner)
    return held


def _check(target: Target, held: Mapping[str, str | None], wanted: Mapping[TableName, str]) -> None:
    for table, name in wanted.items():
        place = target.relative(table).place
        if place not in held:
            continue
        owner = held[place]
        whose = "what was applied to this target without sources" if owner is None else f"the source {owner}"
        raise ConfigError(
            f"the source {target.source} would write to a table of {whose}",
            table=name,
            path=table.text,
            remedy=f"Nothing of it was applied; {_remedy(target)}, or leave the table out with table_exclude_list",
        )


def _remedy(target: Target) -> str:
    if len(target.catalog) == 2:
        return "in the one schema of this target, give one of the two another destination_table under objects"
    return 'give one of the two a destination_schema of its own, such as "NAME_{schema}"'


__all__ = ["apart_from_siblings", "taken_by"]

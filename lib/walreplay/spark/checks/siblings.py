"""Check that several sources of one target write to no table together, before any of them does.

Each source has a ledger of its own.  It names the tables that the source has, and those that a run at work (or one that
was interrupted) is about to make.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walreplay.errors import ConfigError
from walreplay.names import fold
from walreplay.selection import Share
from walreplay.settings.sources import is_source_name
from walreplay.sink.lineage import CommitId
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.ledger.ledger import Ledger
from walreplay.spark.ledger.state import State
from walreplay.spark.planning.plan import RunPlan
from walreplay.spark.writing.base import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_turn: Final = threading.Lock()
"""Held from the look at the other ledgers until this run's plan is in its own: in one process, one source at a time."""


class SiblingLedgers:
    """The ledgers of the other sources, looked at when something of them is asked."""

    def __init__(self, spark: SparkSession, target: Target, writer: TableWriter, siblings: tuple[str, ...]) -> None:
        self._spark, self._target, self._writer = spark, target, writer
        self._siblings = siblings
        self._known: set[tuple[str, str]] = set()
        self._turn = threading.Lock()

    def has_made(self, commit: CommitId) -> bool:
        """Say whether the ledger of another source of this target has made a commit of a shared table.

        The commit says which source's it is.  Whether the configuration still has that one does not matter.
        """
        name = commit.source
        if name is None or name == self._target.source or not is_source_name(name):
            return False
        with self._turn:
            if (name, commit.application) not in self._known:
                state = self._state(name)
                if state is None or state.ledger != commit.application:
                    return False
                self._known.add((name, commit.application))
            return True

    def makers_of(self, share: Share | None) -> Callable[[CommitId], bool]:
        """Give `has_made` for a table that is shared, and for any other what says that no other source writes to it."""
        return self.has_made if share is not None else lambda _: False

    def type_in(self, table: TableName, column: str) -> tuple[str, str] | None:
        """Name another source whose rows of a shared table have a column, with PostgreSQL's name of the type there."""
        for name in self._siblings:
            state = self._state(name)
            for entry in () if state is None else state.tables:
                if entry.set_aside or entry.table.place != table.place:
                    continue
                for one in entry.shape.columns:
                    if fold(one.name) == fold(column):
                        return name, one.type.postgres_name
        return None

    def _state(self, name: str) -> State | None:
        # Whoever only looks does not mind an interrupted load.
        return Ledger(self._spark, self._target.of_source(name), self._writer, loads=True).read()


@contextmanager
def apart_from_siblings(
    spark: SparkSession,
    target: Target,
    writer: TableWriter,
    siblings: tuple[str, ...],
    wanted: Mapping[TableName, str],
    at_once: int,
    shared: Collection[TableName] = (),
) -> Iterator[tuple[str, ...]]:
    """Give the places that a run takes, for its plan, which is to be written inside.

    Where a run takes no new place, or the target is of one source or beside it, no other ledger is read.

    Args:
        target: with the source's own ledger.
        siblings: the other sources.
        wanted: the tables that the run makes, with the names of their source tables; see `taken_by`.
        at_once: how many ledgers are read at the same time.
        shared: those of the tables that other sources may have, too.

    Raises:
        ConfigError: another source has one of the tables.
    """
    places = tuple(target.relative(table).place for table in wanted)
    if target.source is None or target.beside or not wanted:
        yield places
        return
    with _turn:
        _check(target, _held(spark, target, writer, siblings, at_once), wanted, shared)
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


def shared_by(tables: RunPlan) -> set[TableName]:
    """Give those of a run's tables that other sources may have, too."""
    moved = {table.before.table for table in tables.tables if table.before is not None and table.before.share}
    return moved | {table.table for table in tables.tables if table.metadata.share is not None}


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who has a place.

    Attributes:
        source: None for the ledger that a target of one source has.
        shares: others may have it, too; None if the table is still to be made, and says so itself then.
    """

    source: str | None
    shares: bool | None


def _held(
    spark: SparkSession, target: Target, writer: TableWriter, siblings: tuple[str, ...], at_once: int
) -> dict[str, _Holder]:
    """Give who has which place."""
    owners = (None, *siblings)

    def read(owner: str | None) -> State | None:
        # Whoever only looks does not mind an interrupted load.
        return Ledger(spark, target.of_source(owner), writer, loads=True).read()

    with ThreadPoolExecutor(at_once) as pool:
        states = list(pool.map(read, owners))
    held: dict[str, _Holder] = {}
    for owner, state in zip(owners, states, strict=True):
        held |= dict.fromkeys(() if state is None else state.places, _Holder(owner, None))
        for entry in () if state is None else state.tables:
            if not entry.set_aside:
                held[target.relative(entry.table).place] = _Holder(owner, entry.share is not None)
    return held


def _check(
    target: Target, held: Mapping[str, _Holder], wanted: Mapping[TableName, str], shared: Collection[TableName]
) -> None:
    for table, name in wanted.items():
        place = target.relative(table).place
        if place not in held:
            continue
        owner = held[place].source
        if owner is not None and table in shared and held[place].shares is not False:
            continue
        whose = "what was applied to this target without sources" if owner is None else f"the source {owner}"
        raise ConfigError(
            f"the source {target.source} would write to a table of {whose}",
            table=name,
            path=table.text,
            remedy=f"Nothing of it was applied; {_remedy(target)}, or leave the table out with table_exclude_list. "
            "Several sources have one table where shared_tables names it before it is made",
        )


def _remedy(target: Target) -> str:
    if len(target.catalog) == 2:
        return "in the one schema of this target, give one of the two another destination_table under objects"
    return 'give one of the two a destination_schema of its own, such as "NAME_{schema}"'


__all__ = ["SiblingLedgers", "apart_from_siblings", "shared_by", "taken_by"]

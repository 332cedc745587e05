"""What a table that several sources write to needs before one of them can write its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from walreplay.errors import ConfigError
from walreplay.names import fold
from walreplay.sink.sharing import Fit, fit_of
from walreplay.spark.delta.sql_types import sql_type
from walreplay.spark.planning.plan import TablePlan


@dataclass(frozen=True, slots=True)
class Column:
    """A column that does not go together with one of the same name that the table has.

    Attributes:
        name, kind: the table's, the type as SQL writes it.
    """

    wanted: pa.Field
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Needed:
    """What becomes of a table's columns.

    Attributes:
        added: those that it lacks.
        widened: those whose type does not hold all values.
        conflicts: those that it cannot have.
    """

    added: tuple[pa.Field, ...]
    widened: tuple[pa.Field, ...]
    conflicts: tuple[Column, ...]

    @property
    def any(self) -> bool:
        """Whether the table's columns have to change."""
        return bool(self.added or self.widened or self.conflicts)


def needed(found: Sequence[tuple[str, str]], wanted: Iterable[pa.Field]) -> Needed:
    """Compare a table's columns with those that rows have.

    Args:
        found: the table's, (name, SQL type) each.
    """
    there = {fold(name): (name, kind) for name, kind in found}
    added: list[pa.Field] = []
    widened: list[pa.Field] = []
    conflicts: list[Column] = []
    for one in wanted:
        known = there.get(fold(one.name))
        if known is None:
            added.append(one)
            continue
        name, kind = known
        fits = fit_of(kind, sql_type(one.type))
        if name != one.name or fits is Fit.CONFLICTS:
            conflicts.append(Column(one, name, kind))
        elif fits is Fit.WIDENS:
            widened.append(one)
    return Needed(tuple(added), tuple(widened), tuple(conflicts))


def with_needed(found: Sequence[tuple[str, str]], changes: Needed) -> list[tuple[str, str]]:
    """Give the columns that a table has once it has what was needed."""
    kinds = {one.name: sql_type(one.type) for one in (*changes.widened, *changes.added)}
    return [(name, kinds.pop(name, kind)) for name, kind in found] + list(kinds.items())


def column_conflict(plan: TablePlan, column: Column, other: tuple[str, str] | None = None) -> ConfigError:
    """Give the error for a column that two sources have otherwise.

    Args:
        other: another source that has the column, with PostgreSQL's name of its type there; None if it is not known.
    """
    share, name = plan.metadata.share, column.wanted.name
    assert share is not None
    whose = "another source" if other is None else f"the source {other[0]}"
    if column.name != name:
        return ConfigError(
            f"the column is called {name!r} in the source {share.source}, and {column.name!r} in {whose}: the table "
            "that they share cannot have both",
            table=plan.name,
            path=plan.table.text,
            remedy="Leave the column out by exclude_columns in one of them; or take the table out of shared_tables, "
            "and apply to a new target",
        )
    own = {one.name: one.type.postgres_name for epoch in plan.epochs for one in epoch.shape.columns}.get(name)
    here = sql_type(column.wanted.type) + ("" if own is None else f" ({own})")
    there = column.kind.upper() + ("" if other is None else f" ({other[1]})")
    return ConfigError(
        f"the column {name!r} is {here} in the source {share.source}, and {there} in {whose}: in the table that they "
        "share it cannot be both",
        table=plan.name,
        path=plan.table.text,
        remedy=f"Have {share.source} read it as the table has it, by type_overrides in its objects"
        + ("" if other is None else f" ({name}: {other[1]})")
        + ", what does not fit is rescued; or give it one type in all sources, and apply to a new target",
    )


__all__ = ["Column", "Needed", "column_conflict", "needed", "with_needed"]

"""What a table that several sources write to needs before one of them can write its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from walreplay.errors import ConfigError
from walreplay.names import fold
from walreplay.sink.sharing import Fit, fit_of
from walreplay.spark.delta.sql_types import sql_type
from walreplay.spark.planning.plan import TablePlan

Column: TypeAlias = "tuple[str, str]"
"""A column's name, and its type as SQL writes it."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A column that does not go together with one of the same name that the table has."""

    wanted: Column
    there: Column


@dataclass(frozen=True, slots=True)
class Needed:
    """What becomes of a table's columns.

    Attributes:
        added: those that it lacks.
        widened: those whose type does not hold all values.
        conflicts: those that it cannot have.
    """

    added: tuple[Column, ...]
    widened: tuple[Column, ...]
    conflicts: tuple[Conflict, ...]

    @property
    def any(self) -> bool:
        """Whether the table's columns have to change."""
        return bool(self.added or self.widened or self.conflicts)


def columns_in(schema: pa.Schema) -> list[Column]:
    """Give a schema's columns as SQL has them."""
    return [(one.name, sql_type(one.type)) for one in schema]


def needed(found: Iterable[Column], wanted: Iterable[Column]) -> Needed:
    """Compare the columns that a table has with those that rows have."""
    there = {fold(one[0]): one for one in found}
    added: list[Column] = []
    widened: list[Column] = []
    conflicts: list[Conflict] = []
    for one in wanted:
        known = there.get(fold(one[0]))
        if known is None:
            added.append(one)
            continue
        fits = fit_of(known[1], one[1])
        if known[0] != one[0] or fits is Fit.CONFLICTS:
            conflicts.append(Conflict(one, known))
        elif fits is Fit.WIDENS:
            widened.append(one)
    return Needed(tuple(added), tuple(widened), tuple(conflicts))


def with_needed(found: Iterable[Column], changes: Needed) -> list[Column]:
    """Give the columns that a table has once it has what was needed."""
    kinds = dict([*changes.widened, *changes.added])
    return [(name, kinds.pop(name, kind)) for name, kind in found] + list(kinds.items())


def column_conflict(plan: TablePlan, column: Conflict, other: tuple[str, str] | None = None) -> ConfigError:
    """Give the error for a column that two sources have otherwise.

    Args:
        other: another source that has the column, with PostgreSQL's name of its type there; None if it is not known.
    """
    share, (name, kind) = plan.metadata.share, column.wanted
    assert share is not None
    whose = "another source" if other is None else f"the source {other[0]}"
    if column.there[0] != name:
        return ConfigError(
            f"the column is called {name!r} in the source {share.source}, and {column.there[0]!r} in {whose}: the "
            "table that they share cannot have both",
            table=plan.name,
            path=plan.table.text,
            remedy="Leave the column out by exclude_columns in one of them; or take the table out of shared_tables, "
            "and apply to a new target",
        )
    own = {one.name: one.type.postgres_name for epoch in plan.epochs for one in epoch.shape.columns}.get(name)
    here = kind + ("" if own is None else f" ({own})")
    there = column.there[1].upper() + ("" if other is None else f" ({other[1]})")
    return ConfigError(
        f"the column {name!r} is {here} in the source {share.source}, and {there} in {whose}: in the table that they "
        "share it cannot be both",
        table=plan.name,
        path=plan.table.text,
        remedy=f"Have {share.source} read it as the table has it, by type_overrides in its objects"
        + ("" if other is None else f" ({name}: {other[1]})")
        + ", what does not fit is rescued; or give it one type in all sources, and apply to a new target",
    )


__all__ = ["Column", "Conflict", "Needed", "column_conflict", "columns_in", "needed", "with_needed"]

"""What a table that several sources write to needs before one of them can write its rows.

It has the widest of their types, if the values of each are exact in it: `fit_of` compares types as SQL writes them.
Anything else is a conflict, because nothing says which type is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from walreplay.delta.commits import CommitId
from walreplay.delta.statements import sql_type
from walreplay.delta.target import quote
from walreplay.errors import ConfigError
from walreplay.names import fold, output_of
from walreplay.table.plan import TablePlan
from walreplay.table.table_run import own_columns

_RANKS: Final = (
    {"tinyint": 1, "smallint": 2, "int": 3, "bigint": 4},
    {"float": 1, "double": 2},
)
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


class Fit(Enum):
    """How a column that is there fits values of another type."""

    HOLDS = "holds"
    """It has their type, or one that holds all of them exactly."""
    WIDENS = "widens"
    """It has to be widened, which keeps the values that it has."""
    CONFLICTS = "conflicts"


def fit_of(there: str, wanted: str) -> Fit:
    """Return how a column fits.

    Args:
        there: its type, as Spark writes it; ``wanted`` is that of the values.

    >>> fit_of("bigint", "int"), fit_of("int", "bigint"), fit_of("int", "string")
    (<Fit.HOLDS: 'holds'>, <Fit.WIDENS: 'widens'>, <Fit.CONFLICTS: 'conflicts'>)
    """
    there, wanted = there.lower().replace(" ", ""), wanted.lower().replace(" ", "")
    if there == wanted or _is_wider(there, wanted):
        return Fit.HOLDS
    return Fit.WIDENS if _is_wider(wanted, there) else Fit.CONFLICTS


def _is_wider(one: str, other: str) -> bool:
    for ranks in _RANKS:
        if one in ranks and other in ranks:
            return ranks[one] > ranks[other]
    first, second = _DECIMAL.fullmatch(one), _DECIMAL.fullmatch(other)
    if first is None or second is None:
        return False
    (precision, scale), (least_precision, least_scale) = map(int, first.groups()), map(int, second.groups())
    return precision - least_precision >= scale - least_scale >= 0


class TableColumn(NamedTuple):
    """A column, or a field of a change log's old rows, whose fields are the source's columns.

    Attributes:
        kind: its type as SQL writes it.
        within: the column that it is a field of.
    """

    name: str
    kind: str
    within: str | None = None

    @property
    def sql(self) -> str:
        """Its quoted name."""
        return quote(self.name) if self.within is None else f"{quote(self.within)}.{quote(self.name)}"

    @property
    def text(self) -> str:
        """Its name for people."""
        return self.name if self.within is None else f"{self.within}.{self.name}"

    @property
    def place(self) -> tuple[str, str]:
        """What no two of a table have in common."""
        return fold(self.within or ""), fold(self.name)


@dataclass(frozen=True, slots=True)
class Needed:
    """What becomes of a table's columns.

    Attributes:
        added: those that it lacks.
        widened: those whose type does not hold all values.
        conflicts: those that it cannot have, each with the one of the same name that it has.
    """

    added: tuple[TableColumn, ...]
    widened: tuple[TableColumn, ...]
    conflicts: tuple[tuple[TableColumn, TableColumn], ...]

    @property
    def any(self) -> bool:
        """Whether the table's columns have to change."""
        return bool(self.added or self.widened or self.conflicts)


def columns_in(schema: pa.Schema) -> list[TableColumn]:
    """Return a schema's columns as SQL has them."""
    found = []
    for one in schema:
        is_struct = pa.types.is_struct(one.type)
        fields, within = (one.type, one.name) if is_struct else ([one], None)
        found += [TableColumn(field.name, sql_type(field.type), within) for field in fields]
    return found


def columns_there(schema: StructType) -> list[TableColumn]:
    """Return the columns that a table has."""
    found = []
    for one in schema.fields:
        # No column of a source's is a struct.
        fields, within = (one.dataType.fields, one.name) if isinstance(one.dataType, StructType) else ([one], None)
        found += [TableColumn(field.name, field.dataType.simpleString(), within) for field in fields]
    return found


def needed(found: Iterable[TableColumn], wanted: Iterable[TableColumn]) -> Needed:
    """Compare the columns that a table has with those that rows have."""
    there = {one.place: one for one in found}
    added: list[TableColumn] = []
    widened: list[TableColumn] = []
    conflicts: list[tuple[TableColumn, TableColumn]] = []
    for one in wanted:
        known = there.get(one.place)
        if known is None:
            added.append(one)
            continue
        fits = fit_of(known.kind, one.kind)
        if known.name != one.name or fits is Fit.CONFLICTS:
            conflicts.append((one, known))
        elif fits is Fit.WIDENS:
            widened.append(one)
    return Needed(tuple(added), tuple(widened), tuple(conflicts))


def with_needed(found: Iterable[TableColumn], changes: Needed) -> list[TableColumn]:
    """Return the columns that a table has once it has what was needed."""
    more = {one.place: one for one in (*changes.widened, *changes.added)}
    return [more.pop(one.place, one) for one in found] + list(more.values())


def check_output(name: str, path: str, oid: int, source: str, made: Iterable[CommitId]) -> None:
    """Refuse a table in which other sources have another output: their mirror, and not their history.

    Args:
        oid: what stands for the output that the source would write there.
        made: the commits that have made the table what it is.

    Raises:
        ConfigError: saying so.
    """
    own = output_of(oid)
    for commit in made:
        if commit.oid is None or commit.source is None or commit.source == source or output_of(commit.oid) is own:
            continue
        other = output_of(commit.oid).label
        raise ConfigError(
            f"the table is the {other} of the source {commit.source}, and the source {source} would write its "
            f"{own.label} to it",
            table=name,
            path=path,
            remedy="Have the same outputs and scd_type in all sources that share the table; or give it "
            "another name by destination_table",
        )


def check_own_columns(plan: TablePlan, found: Iterable[TableColumn]) -> None:
    """Refuse a table of other sources that has not all of walreplay's own columns that this one's rows have.

    Raises:
        ConfigError: naming those.
    """
    there = {name for one in found for name in (one.name, one.within)}
    missing = [one.name for one in own_columns(plan.metadata, plan.epochs[-1].shape).fields if one.name not in there]
    if missing:
        raise ConfigError(
            f"the table that other sources have made lacks what the source's rows would have ({', '.join(missing)})",
            table=plan.name,
            path=plan.table.text,
            remedy="Name the metadata columns as when the table was made; or apply all sources to a new target",
        )


def column_conflict(
    plan: TablePlan, wanted: TableColumn, there: TableColumn, other: tuple[str, str] | None = None
) -> ConfigError:
    """Return the error for a column that two sources have otherwise.

    Args:
        there: as the table has it.
        other: another source that has the column, with PostgreSQL's name of its type there; None if it is not known.
    """
    share, name, kind = plan.metadata.share, wanted.text, wanted.kind
    assert share is not None
    whose = "another source" if other is None else f"the source {other[0]}"
    if there.name != wanted.name:
        return ConfigError(
            f"the column is called {name!r} in the source {share.source}, and {there.text!r} in {whose}: the "
            "table that they share cannot have both",
            table=plan.name,
            path=plan.table.text,
            remedy="Leave the column out by exclude_columns in one of them; or take the table out of shared_tables, "
            "and apply to a new target",
        )
    own = {one.name: one.type.postgres_name for epoch in plan.epochs for one in epoch.shape.columns}.get(name)
    here = kind + ("" if own is None else f" ({own})")
    theirs = there.kind.upper() + ("" if other is None else f" ({other[1]})")
    return ConfigError(
        f"the column {name!r} is {here} in the source {share.source}, and {theirs} in {whose}: in the table that they "
        "share it cannot be both",
        table=plan.name,
        path=plan.table.text,
        remedy=f"Have {share.source} read it as the table has it, by type_overrides in its objects"
        + ("" if other is None else f" ({name}: {other[1]})")
        + ", what does not fit is rescued; or give it one type in all sources, and apply to a new target",
    )

"""What a table that several sources write to needs before one of them can write its rows.

It has the widest of their types, if the values of each are exact in it; types are compared as SQL writes them.
Anything else is a conflict, because nothing says which type is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from walreplay.delta.commits import CommitId
from walreplay.delta.local import declared
from walreplay.delta.statements import sql_of
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


def _holds(kind: str, other: str) -> bool:
    """Return whether a type, as Spark writes it, has all values of another one exactly."""
    kind, other = kind.lower().replace(" ", ""), other.lower().replace(" ", "")
    if kind == other:
        return True
    for ranks in _RANKS:  # an integer and a float are a conflict, whatever their sizes
        if kind in ranks and other in ranks:
            return ranks[kind] > ranks[other]
    first, second = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(other)
    if first is None or second is None:
        return False
    (precision, scale), (least_precision, least_scale) = map(int, first.groups()), map(int, second.groups())
    return precision - least_precision >= scale - least_scale >= 0  # no fewer digits on either side of the point


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


def columns_in(schema: pa.Schema | StructType) -> list[TableColumn]:
    """Return a schema's columns as SQL has them."""
    columns = []
    for column in declared(schema) if isinstance(schema, pa.Schema) else schema.jsonValue()["fields"]:
        kind = column["type"]
        # No column of a source's is a struct.
        is_struct = not isinstance(kind, str) and kind["type"] == "struct"
        fields, within = (kind["fields"], column["name"]) if is_struct else ([column], None)
        columns += [TableColumn(field["name"], sql_of(field["type"]), within) for field in fields]
    return columns


def needed(table_columns: Iterable[TableColumn], row_columns: Iterable[TableColumn]) -> Needed:
    """Compare the columns that a table has with those that rows have."""
    by_place = {column.place: column for column in table_columns}  # by folded names: Delta ignores case
    added: list[TableColumn] = []
    widened: list[TableColumn] = []
    conflicts: list[tuple[TableColumn, TableColumn]] = []
    for column in row_columns:
        table_column = by_place.get(column.place)
        if table_column is None:
            added.append(column)
            continue
        is_held = _holds(table_column.kind, column.kind)
        # Names that differ in case alone are one name to Delta.
        if table_column.name != column.name or not (is_held or _holds(column.kind, table_column.kind)):
            conflicts.append((column, table_column))
        elif not is_held:
            widened.append(column)
    return Needed(tuple(added), tuple(widened), tuple(conflicts))


def with_needed(columns: Iterable[TableColumn], changes: Needed) -> list[TableColumn]:
    """Return the columns that a table has once it has what was needed."""
    # Widened ones keep their places, added ones come behind.
    changed = {column.place: column for column in (*changes.widened, *changes.added)}
    return [changed.pop(column.place, column) for column in columns] + list(changed.values())


def check_output(name: str, path: str, oid: int, source: str, made: Iterable[CommitId]) -> None:
    """Refuse a table in which other sources have another output: their mirror, and not their history.

    Args:
        oid: what stands for the output that the source would write there.
        made: the commits that have made the table what it is.

    Raises:
        ConfigError: saying so.
    """
    output = output_of(oid)
    for commit in made:
        if commit.oid is None or commit.source is None or commit.source == source or output_of(commit.oid) is output:
            continue
        other = output_of(commit.oid).label
        raise ConfigError(
            f"the table is the {other} of the source {commit.source}, and the source {source} would write its "
            f"{output.label} to it",
            table=name,
            path=path,
            remedy="Have the same outputs and scd_type in all sources that share the table; or give it "
            "another name by destination_table",
        )


def check_own_columns(plan: TablePlan, table_columns: Iterable[TableColumn]) -> None:
    """Refuse, by a ConfigError, a table of other sources that lacks walreplay's own columns of this one's rows."""
    present = {name for column in table_columns for name in (column.name, column.within)}
    fields = own_columns(plan.metadata, plan.epochs[-1].shape).fields
    missing = [field.name for field in fields if field.name not in present]
    if missing:
        raise ConfigError(
            f"the table that other sources have made lacks what the source's rows would have ({', '.join(missing)})",
            table=plan.name,
            path=plan.table.text,
            remedy="Name the metadata columns as when the table was made; or apply all sources to a new target",
        )


def column_conflict(
    plan: TablePlan, row_column: TableColumn, table_column: TableColumn, other: tuple[str, str] | None = None
) -> ConfigError:
    """Return the error for a column that two sources have otherwise.

    Args:
        table_column: as the table has it.
        other: another source that has the column, with PostgreSQL's name of its type there; None if it is not known.
    """
    share, name, kind = plan.metadata.share, row_column.text, row_column.kind
    assert share is not None
    whose = "another source" if other is None else f"the source {other[0]}"
    if table_column.name != row_column.name:
        return ConfigError(
            f"the column is called {name!r} in the source {share.source}, and {table_column.text!r} in {whose}: the "
            "table that they share cannot have both",
            table=plan.name,
            path=plan.table.text,
            remedy="Leave the column out by exclude_columns in one of them; or take the table out of shared_tables, "
            "and apply to a new target",
        )
    columns = (column for epoch in plan.epochs for column in epoch.shape.columns)
    postgres_name = {column.name: column.type.postgres_name for column in columns}.get(name)
    here = kind + ("" if postgres_name is None else f" ({postgres_name})")
    theirs = table_column.kind + ("" if other is None else f" ({other[1]})")
    return ConfigError(
        f"the column {name!r} is {here} in the source {share.source}, and {theirs} in {whose}: in the table that they "
        "share it cannot be both",
        table=plan.name,
        path=plan.table.text,
        remedy=f"Have {share.source} read it as the table has it, by type_overrides in its objects"
        + ("" if other is None else f" ({name}: {other[1]})")
        + ", what does not fit is rescued; or give it one type in all sources, and apply to a new target",
    )

"""How a mirror table's columns follow its source's, from one relation version to the next.

A Relation message has no column numbers, but PostgreSQL never reorders columns: those that survive keep their
order, and what is added stands behind them.  So a column that is found in front of one that used to precede it, or
behind one that was added, is another column of the same name: it was dropped and added again.  A name that is new
*between* survivors, where one of the same type has gone, is a rename; at the end nothing tells a rename from a drop
and an add, unless the configuration names it.

Each column has an id that is its own for the table's life, so that versions far apart can be put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import Final

from wal2delta.names import renamed_columns
from wal2delta.sink.convert import is_widening, keeps_values
from wal2delta.types.base import ColumnType

OWN: Final = ""
"""The source name of a column that is the mirror's own and stands behind the source's; PostgreSQL has no such name."""


class ChangeKind(str, Enum):
    """What can happen to a column."""

    ADDED = "added"
    DROPPED = "dropped"
    KEPT = "kept"
    """Dropped in the source, kept in the mirror."""
    RENAMED = "renamed"
    RETYPED = "retyped"
    REPLACED = "replaced"
    """Dropped and added again: the old values are gone."""


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of a table's columns."""

    kind: ChangeKind
    column: str
    detail: str = ""

    @property
    def text(self) -> str:
        """The change for people."""
        if self.kind is ChangeKind.KEPT:
            return f"column {self.column} dropped; its values are kept"
        if self.kind is ChangeKind.REPLACED:
            return f"column {self.column} dropped and added again; its old values are gone"
        return f"column {self.column} {self.kind.value}" + (f" {self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a relation version: its name there, and the one that it has in the mirror."""

    name: str
    target: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class MirrorColumn:
    """A column of a mirror table.

    Attributes:
        id: the column's own within the table; none is used again.
        source: its name in the source, and ``name`` the one in the mirror.
        dropped: the source has it no more.
    """

    id: int
    source: str
    name: str
    type: ColumnType
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class TableShape:
    """A mirror table's columns in their order, and the id that comes next."""

    columns: tuple[MirrorColumn, ...] = ()
    next_id: int = 0

    @property
    def present(self) -> tuple[MirrorColumn, ...]:
        """The columns that the source has."""
        return tuple(column for column in self.columns if not column.dropped)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says about changes of columns.

    Attributes:
        keep_dropped: dropped columns stay, with their values.
        renames: old names to new ones.
        infer_renames: a column that has another name in its place was renamed.
    """

    keep_dropped: bool = True
    renames: tuple[tuple[str, str], ...] = ()
    infer_renames: bool = True


@dataclass(frozen=True, slots=True)
class _Advance:
    """A table's shape behind a version, and the id of each of the version's columns."""

    shape: TableShape
    ids: tuple[int, ...]
    changes: tuple[ColumnChange, ...]


def _advance(shape: TableShape, columns: Sequence[SourceColumn], policy: Policy) -> _Advance:
    present = {column.source: column for column in shape.present}
    changes: list[ColumnChange] = []
    # The old name of each column that goes under a new one.
    renamed = renamed_columns(tuple(present), [column.name for column in columns], policy.renames)
    old_names = {new: old for old, new in renamed.items()}
    if policy.infer_renames:
        old_names |= _inferred(shape.present, columns, old_names)
    order = {column.source: number for number, column in enumerate(shape.present)}
    survivors: dict[str, MirrorColumn] = {}
    last, added = -1, False
    for column in columns:
        at = order.get(old_names.get(column.name, column.name), -1)
        # Behind a column that was added again stand only such as were added.
        if at < 0 or ((added or at < last) and column.name != OWN):
            added = added or at >= 0
            continue
        last = max(last, at)
        survivors[column.name] = shape.present[at]
    ids: dict[str, int] = {}
    kept: list[MirrorColumn] = []
    next_id = shape.next_id
    news: list[MirrorColumn] = []
    for column in columns:
        before = survivors.get(column.name)
        if before is None:
            again = any(one.source == column.name and one.id not in _ids(survivors) for one in shape.columns)
            kind = ChangeKind.REPLACED if again else ChangeKind.ADDED
            detail = "" if again else f"({column.type.postgres_name})"
            changes.append(ColumnChange(kind, column.target, detail))
            news.append(MirrorColumn(next_id, column.name, column.target, column.type))
            next_id += 1
            continue
        if before.name != column.target:
            changes.append(ColumnChange(ChangeKind.RENAMED, before.name, f"to {column.target}"))
        if not keeps_values(before.type, column.type):
            detail = f"from {before.type.postgres_name} to {column.type.postgres_name}"
            changes.append(ColumnChange(ChangeKind.RETYPED, column.target, detail))
        ids[column.name] = before.id
        survivors[column.name] = replace(before, source=column.name, name=column.target, type=column.type)
    taken = {column.target.casefold() for column in columns}
    by_id = {column.id: column for column in survivors.values()}
    for column_before in shape.columns:
        if column_before.id in by_id:
            kept.append(by_id[column_before.id])
        elif column_before.name.casefold() in taken:
            # Its name is another column's now.
            if not any(one.name == column_before.name and one.source == column_before.source for one in news):
                changes.append(ColumnChange(ChangeKind.DROPPED, column_before.name))
        elif policy.keep_dropped:
            if not column_before.dropped:
                changes.append(ColumnChange(ChangeKind.KEPT, column_before.name))
            kept.append(replace(column_before, dropped=True))
        elif column_before.dropped:
            # Was kept under another configuration.
            kept.append(column_before)
        else:
            changes.append(ColumnChange(ChangeKind.DROPPED, column_before.name))
    ids |= {column.source: column.id for column in news}
    return _Advance(TableShape((*kept, *news), next_id), tuple(ids[column.name] for column in columns), tuple(changes))


def _ids(columns: Mapping[str, MirrorColumn]) -> set[int]:
    return {column.id for column in columns.values()}


def same_type(one: ColumnType, other: ColumnType) -> bool:
    """Say whether values of both types are read and held alike."""
    return one.arrow == other.arrow and one.family == other.family


def _inferred(
    present: Sequence[MirrorColumn], columns: Sequence[SourceColumn], known: Mapping[str, str]
) -> dict[str, str]:
    """Give the renames that the columns' places prove: new name to old one."""
    order = {column.source: number for number, column in enumerate(present)}
    wanted = {column.name for column in columns}
    found: dict[str, str] = {}
    last = -1
    unknown: list[SourceColumn] = []
    for column in columns:
        at = order.get(known.get(column.name, column.name))
        if at is None:
            unknown.append(column)
            continue
        if at < last:
            # Added again, as all behind it.
            break
        gone = [one for one in present[last + 1 : at] if one.source not in wanted and one.source not in known.values()]
        if len(gone) == len(unknown) and all(
            one.type.postgres_name == other.type.postgres_name and same_type(one.type, other.type)
            for one, other in zip(gone, unknown, strict=True)
        ):
            found.update({new.name: old.source for old, new in zip(gone, unknown, strict=True)})
        unknown = []
        last = at
    return found


@dataclass(frozen=True, slots=True)
class Source:
    """Where a column of the table as it ends comes from.

    Attributes:
        column: the number of a version's column, or the name of a column of the table as it was; None: from nowhere.
        chain: the types that its values go through, the first being their own; one type where nothing is converted.
    """

    column: int | str | None
    chain: tuple[ColumnType, ...]


@dataclass(slots=True)
class Evolution:
    """A table's way through the relation versions that a run has used, one after the other."""

    before: TableShape | None
    policy: Policy
    shape: TableShape = field(default_factory=TableShape)
    changes: list[ColumnChange] = field(default_factory=list)
    _chains: dict[int, list[ColumnType]] = field(default_factory=dict)
    _versions: list[tuple[tuple[int, ...], dict[int, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.before is not None:
            self.shape = self.before
            self._chains = {column.id: [column.type] for column in self.before.columns}

    def take(self, columns: Sequence[SourceColumn]) -> None:
        """Go on to the next version."""
        step = _advance(self.shape, columns, self.policy)
        if self.shape.columns:
            self.changes.extend(step.changes)
        self.shape = step.shape
        for column in step.shape.columns:
            chain = self._chains.setdefault(column.id, [column.type])
            if not keeps_values(chain[-1], column.type):
                chain.append(column.type)
        self._versions.append((step.ids, {id_: len(self._chains[id_]) - 1 for id_ in step.ids}))

    def ids_of(self, columns: Sequence[SourceColumn]) -> tuple[int, ...]:
        """Give the ids that a version's columns would have, were it the next."""
        return _advance(self.shape, columns, self.policy).ids

    def of_version(self, step: int) -> tuple[Source, ...]:
        """Give the sources of the table's columns among those of the version that was taken so many steps ago."""
        ids, positions = self._versions[step]
        return tuple(
            Source(ids.index(column.id), tuple(self._chains[column.id][positions[column.id] :]))
            if column.id in ids
            else Source(None, (column.type,))
            for column in self.shape.columns
        )

    def of_table(self) -> tuple[Source, ...]:
        """Give the sources of the table's columns among those that it had before."""
        names = {column.id: column.name for column in (self.before.columns if self.before else ())}
        return tuple(
            Source(names.get(column.id), tuple(self._chains[column.id]) if column.id in names else (column.type,))
            for column in self.shape.columns
        )

    @property
    def rewrites_types(self) -> bool:
        """Whether old values are converted to a type that does not hold them as they are."""
        old = {column.id for column in (self.before.columns if self.before else ())}
        return any(not is_widening(one, other) for id_ in old for one, other in pairwise(self._chains[id_]))

    def number_of(self, step: int, column: int) -> int:
        """Give the place in the table of a version's column.

        Raises:
            KeyError: when a later version has replaced it.
        """
        id_ = self._versions[step][0][column]
        for number, one in enumerate(self.shape.columns):
            if one.id == id_:
                return number
        raise KeyError(column)

"""How a mirror table's columns follow its source's, from one relation version to the next.

A Relation message has no column numbers.  But PostgreSQL never reorders columns: those that survive keep their order,
and added ones come behind them.  Therefore:

- A column in front of one that used to precede it, or behind an added one, is another column of the same name: it was
  dropped and added again.
- A new name *between* survivors, where one of the same type has gone, is a rename.
- At the end nothing distinguishes a rename from a drop and an add, unless the configuration names the rename.  Nor can
  it be seen that the last columns were dropped and added again in their order.
- A new column between survivors where none has gone was added to the publication's column list.

If the source announces its tables (`walreplay.decode.announcements`), columns have numbers that are never used twice.
Then nothing is guessed from places.  Renames that the configuration names have precedence.  A column that is gone
and comes back under its number was left out by a column list: it keeps its values.

Each column has an id that is unique in the table's life, so that versions far apart can be compared.  `ColumnChange`
describes for the report what happens to a column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa

from walreplay.evolution.convert import is_widening, keeps_values, renamed_labels
from walreplay.names import fold, renamed_columns
from walreplay.types.base import ColumnType
from walreplay.types.families import STRING


class ChangeKind(str, Enum):
    """What can happen to a column."""

    ADDED = "added"
    DROPPED = "dropped"
    KEPT = "kept"
    """Dropped in the source, kept in the mirror."""
    UNLISTED = "unlisted"  # Left out by the publication's column list
    RELISTED = "relisted"
    RENAMED = "renamed"
    RETYPED = "retyped"
    RELABELLED = "relabelled"
    """Labels of its enum were renamed."""
    REPLACED = "replaced"  # Dropped and added again: the old values are gone


_OUTCOMES: Final = {
    ChangeKind.KEPT: "dropped; its values are kept",
    ChangeKind.UNLISTED: "is no longer published; its values are kept",
    ChangeKind.RELISTED: "is published again; its values were kept",
    ChangeKind.REPLACED: "dropped and added again; its old values are gone",
}


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of a table's columns."""

    kind: ChangeKind
    column: str
    detail: str = ""

    @property
    def text(self) -> str:
        """The change as a sentence for a report."""
        if self.kind is ChangeKind.RELABELLED:
            return f"labels of column {self.column} renamed: {self.detail}"
        outcome = _OUTCOMES.get(self.kind, self.kind.value + (f" {self.detail}" if self.detail else ""))
        return f"column {self.column} {outcome}"


TEXT: Final = ColumnType(pa.string(), STRING, "text")
"""How what older rows have in a column is written, whatever the column's type is."""

OWN: Final = ""
"""The source name of the mirror's own column, which follows the source's; PostgreSQL does not allow this name."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a relation version.

    Attributes:
        name: in the source.
        target: its name in the mirror table.
        comment: its comment in the mirror table (`walreplay.evolution.comments`).
        missing: what rows that are older than the column have in it, as PostgreSQL's text; None for NULL.
        number: ``attnum``, which is unique within the table's life; 0 if it is not known.
        first: its name when the table was announced first; empty if it was added since, or nothing is announced.
        is_said: the configuration says what is missing, and not the source.
        rewritten, described_number: see `walreplay.protocol.messages.Column`.
        sent: how its values are sent, where labels of its enum may be others than `type` has
            (`walreplay.evolution.convert.labels_as_sent`); None where they are not.
    """

    name: str
    target: str
    type: ColumnType
    comment: str = ""
    missing: str | None = None
    number: int = 0
    is_said: bool = False
    first: str = ""
    sent: ColumnType | None = None
    rewritten: int = 0
    described_number: int = 0


@dataclass(frozen=True, slots=True)
class MirrorColumn:
    """A column of a mirror table.

    Attributes:
        id: unique within the table; never reused.
        source: its name in the source.
        name: its name in the mirror table.
        dropped: the source no longer has the column.
        added: the table had rows before the column; in these it is NULL, unless it is known what they have.
        comment: the comment that walreplay wrote last; empty for none.
        filled: what the table's older rows were given when the column was added, as PostgreSQL's text; None for NULL.
        number: see `SourceColumn`; -1 if it was known, and is not any more.
        was: the names that it had in the source before.
        rewritten: as the version had it that was taken last.
        described_number: its number by a load's description; 0 if there is none, or rows of another version came since.
    """

    id: int
    source: str
    name: str
    type: ColumnType
    dropped: bool = False
    added: bool = False
    comment: str = ""
    filled: str | None = None
    number: int = 0
    was: tuple[str, ...] = ()
    rewritten: int = 0
    described_number: int = 0

    @property
    def known_number(self) -> int:
        """Its number by an announcement, or by a description if nothing was announced since; not above 0 for none."""
        return self.number or self.described_number


@dataclass(frozen=True, slots=True)
class TableShape:
    """A mirror table's columns in their order, and the next free id."""

    columns: tuple[MirrorColumn, ...] = ()
    next_id: int = 0

    @property
    def present(self) -> tuple[MirrorColumn, ...]:
        """The columns that the source still has."""
        return tuple(column for column in self.columns if not column.dropped)


@dataclass(frozen=True, slots=True)
class Policy:
    """The configuration's rules for changed columns.

    Attributes:
        keep_dropped: dropped columns stay, with their values.
        renames: pairs of an old and a new name.
        infer_renames: a column with another name in the same position counts as renamed.
    """

    keep_dropped: bool = True
    renames: tuple[tuple[str, str], ...] = ()
    infer_renames: bool = True


def converts(chain: Sequence[ColumnType]) -> bool:
    """Return whether a change through these types converts values."""
    return bool(conversions(chain))


def conversions(chain: Sequence[ColumnType]) -> list[tuple[ColumnType, ColumnType]]:
    """Return the changes of type (old, new) that convert values.

    A change that keeps all values is left out, and does not touch rescued texts.  By itself it would not change the
    table at all.  So it must not do so either when other changes follow in the same run.
    """
    return [(old, new) for old, new in pairwise(chain) if not keeps_values(old, new)]


class _Advance(NamedTuple):
    """A table's shape after a version, and the id of each of the version's columns."""

    shape: TableShape
    ids: tuple[int, ...]
    changes: tuple[ColumnChange, ...]


def _advance(
    shape: TableShape,
    columns: Sequence[SourceColumn],
    policy: Policy,
    unlisted: Collection[int] = (),
    *,
    anew: bool = False,
) -> _Advance:
    """Advance to the next version.

    Args:
        unlisted: see `walreplay.protocol.messages.Relation`.
        anew: the relation is another one than before, so the order of its columns says nothing about their past.
    """
    names = {column.name for column in columns}
    of_same_name = {column.source: column for column in shape.present if column.source in names}
    before = of_same_name if anew else _survivors(shape, columns, policy)  # another relation's places say nothing
    changes: list[ColumnChange] = []
    survivors: dict[int, MirrorColumn] = {}
    news: dict[str, MirrorColumn] = {}
    gone = [old for old in shape.columns if old.id not in {column.id for column in before.values()}]
    for column in columns:
        old = before.get(column.name)
        if old is not None:
            survivors[old.id] = _gone_on(old, column)
            changes += _changes_of(old, column)
            continue
        # A column of this name is gone: it was dropped and added again.
        again = any(old_column.source == column.name for old_column in gone)
        detail = "" if again else f"({column.type.postgres_name})"
        changes.append(ColumnChange(ChangeKind.REPLACED if again else ChangeKind.ADDED, column.target, detail))
        news[column.name] = _new_column(shape, len(news), column, anew=anew)
    taken = {fold(column.target) for column in columns}  # Delta ignores the case of names
    kept: dict[int, MirrorColumn] = {}
    for old_column in gone:
        if fold(old_column.name) in taken:
            # Another column has its name now.  If that is a new one, it is already reported as a replacement.
            if all(old_column.source != column.source for column in news.values()):
                changes.append(ColumnChange(ChangeKind.DROPPED, old_column.name))
        elif old_column.dropped or policy.keep_dropped or old_column.known_number in unlisted:
            # Values that were kept before stay, whatever is configured now.
            if not old_column.dropped:
                is_unlisted = old_column.known_number in unlisted
                changes.append(ColumnChange(ChangeKind.UNLISTED if is_unlisted else ChangeKind.KEPT, old_column.name))
            # Another relation's numbers say nothing of its own.
            number = 0 if anew else old_column.known_number
            kept[old_column.id] = replace(old_column, dropped=True, number=number, described_number=0)
        else:
            changes.append(ColumnChange(ChangeKind.DROPPED, old_column.name))
    ids = tuple(news[column.name].id if column.name in news else before[column.name].id for column in columns)
    by_id = {**survivors, **{column.id: column for column in news.values()}, **kept}
    order = _order([*ids, *kept] if anew else [column.id for column in shape.columns if column.id in by_id], ids)
    # The mirror's own column stands behind the source's.
    order.sort(key=lambda id_: by_id[id_].source == OWN)
    after = TableShape(tuple(by_id[id_] for id_ in order), shape.next_id + len(news))
    return _Advance(after, ids, tuple(changes))


def _new_column(shape: TableShape, nth: int, column: SourceColumn, *, anew: bool) -> MirrorColumn:
    has_older_rows = bool(shape.columns) and not anew
    return MirrorColumn(
        shape.next_id + nth,
        column.name,
        column.target,
        column.type,
        added=has_older_rows,
        comment=column.comment,
        filled=column.missing if has_older_rows and is_added(shape, column) else None,
        number=column.number,
        rewritten=column.rewritten,
        described_number=column.described_number,
    )


def _gone_on(old: MirrorColumn, column: SourceColumn) -> MirrorColumn:
    was = tuple(dict.fromkeys((*old.was, old.source))) if column.name != old.source else old.was
    return replace(
        old,
        source=column.name,
        name=column.target,
        type=column.type,
        dropped=False,
        # A column that was made without a comment gets none: it would take a statement for each column.
        comment=column.comment if old.comment else "",
        was=was,
        # A load brings all rows anew, under the numbers of its description.
        number=column.number or (-1 if old.number and not column.described_number else 0),
        described_number=column.described_number,
        rewritten=max(old.rewritten, column.rewritten),
    )


def is_added(shape: TableShape, column: SourceColumn) -> bool:
    """Return whether a column is newer than a table's rows, so far as is known: it may only be newly published."""
    # Numbers rise with each column that PostgreSQL adds.
    return column.is_said or column.number > max(older.known_number for older in shape.columns)


def _changes_of(old: MirrorColumn, column: SourceColumn) -> Iterator[ColumnChange]:
    if old.dropped:
        yield ColumnChange(ChangeKind.RELISTED, column.target)
    if old.name != column.target:
        yield ColumnChange(ChangeKind.RENAMED, old.name, f"to {column.target}")
    renamed = renamed_labels(old.type, column.type)
    if renamed:
        yield ColumnChange(ChangeKind.RELABELLED, column.target, f"{len(renamed):,}")
    elif not keeps_values(old.type, column.type):
        detail = f"from {old.type.postgres_name} to {column.type.postgres_name}"
        yield ColumnChange(ChangeKind.RETYPED, column.target, detail)


def _order(table: Sequence[int], version: Sequence[int]) -> list[int]:
    """Put each new column directly before the known column that follows it in the version, or else at the end."""
    order = list(table)
    place = len(order)  # behind all, unless a known column follows
    for id_ in reversed(version):
        if id_ in table:
            place = order.index(id_)
        else:
            order.insert(place, id_)
    return order


def _survivors(shape: TableShape, columns: Sequence[SourceColumn], policy: Policy) -> dict[str, MirrorColumn]:
    """Return the columns that continue, by their names in the new version."""
    present = shape.present
    renamed = renamed_columns(
        [column.source for column in present], [column.name for column in columns], policy.renames
    )
    old_names = {new: old for old, new in renamed.items()}
    by_source = {column.source: column for column in present}
    announced = by_announcement(present, columns)
    if announced is not None:
        configured = {new: by_source[old] for new, old in old_names.items() if old in by_source}
        taken = {column.id for column in configured.values()}
        unlisted = {column.number: column for column in shape.columns if column.dropped and column.number > 0}
        # A column list had left them out.
        announced |= {column.name: unlisted[column.number] for column in columns if column.number in unlisted}
        others = {name: old for name, old in announced.items() if name not in configured and old.id not in taken}
        continued = others | configured
        return {column.name: continued[column.name] for column in columns if column.name in continued}
    order = {column.source: number for number, column in enumerate(present)}
    positions: dict[str, int] = {}
    last, added = -1, False
    for column in columns:
        position = order.get(old_names.get(column.name, column.name))
        if column.name == OWN:
            # The mirror's own column; its position says nothing.
            if position is not None:
                positions[OWN] = position
        elif position is not None and position > last and not added:
            positions[column.name] = last = position  # in its old order: a survivor
        elif position is not None:
            # This column was dropped and added again, so all that follow it were added, too.
            added = True
    if policy.infer_renames:
        positions = _by_places(present, columns, positions)
    return {name: present[position] for name, position in positions.items()}


def by_announcement(present: Sequence[MirrorColumn], columns: Sequence[SourceColumn]) -> dict[str, MirrorColumn] | None:
    """Return the columns that continue, as far as announcements tell; None if they do not.

    If all rows are older than the table's first announcement, that has the names that the rows came with, in order.
    """
    mirror_own = {column.source: column for column in present if column.source == OWN}
    olds = [column for column in present if column.source != OWN]
    news = [column for column in columns if column.name != OWN]
    if not all(column.number > 0 for column in news):  # a version that was not announced
        return None
    if all(column.known_number > 0 for column in olds):
        numbers = {column.known_number: column for column in olds}
        return {column.name: numbers[column.number] for column in news if column.number in numbers} | mirror_own
    names = {column.source: column for column in olds}
    firsts = {column.first: column.name for column in news if column.first}
    still_named = [name for name in names if name in firsts]
    # The first announcement must fit all that the table has.
    if not firsts or any(column.number for column in olds) or still_named != list(firsts):
        return None
    return {name: names[first] for first, name in firsts.items()} | mirror_own


def _by_places(
    present: Sequence[MirrorColumn], columns: Sequence[SourceColumn], survivors: Mapping[str, int]
) -> dict[str, int]:
    """Add the renames that positions prove; return the number of each continued column by its new name.

    A column in front of a surviving one is at least as old as that one, so it was not added but renamed.
    """
    own_position = survivors.get(OWN)
    olds = [kind.type for kind in present if kind.source != OWN]
    news = [column for column in columns if column.name != OWN]

    def alike(old: slice, new: slice) -> bool:
        pairs = list(zip(olds[old], (column.type for column in news[new]), strict=False))
        count = old.stop - old.start
        return count == new.stop - new.start and all(
            (before.postgres_name, before.arrow, before.family) == (after.postgres_name, after.arrow, after.family)
            for before, after in pairs
        )

    # The surviving columns, (number in the version, number in the table), between marks for the beginning and the end.
    anchors = [(-1, -1)]
    anchors += [(number, survivors[column.name]) for number, column in enumerate(news) if column.name in survivors]
    anchors.append((len(news), len(olds)))
    anchor = 0
    while anchor < len(anchors) - 2:
        new, old = (slice(anchors[anchor][side] + 1, anchors[anchor + 1][side]) for side in (0, 1))
        span = (anchor, anchor + 1)
        if new.stop - new.start > old.stop - old.start:
            # More columns than there were: a name has passed to another column (a to a_old, then b to a).
            span = min(
                (
                    (left, right)
                    for left in range(anchor + 1)
                    for right in range(anchor + 1, len(anchors))
                    if alike(
                        slice(anchors[left][1] + 1, anchors[right][1]), slice(anchors[left][0] + 1, anchors[right][0])
                    )
                ),
                key=lambda ends: ends[1] - ends[0],
                default=span,
            )
        (new_left, old_left), (new_right, old_right) = anchors[span[0]], anchors[span[1]]
        if new_right - new_left > 1 and alike(slice(old_left + 1, old_right), slice(new_left + 1, new_right)):
            within = [(new_left + n, old_left + n) for n in range(1, new_right - new_left)]
            anchors[span[0] + 1 : span[1]] = within
            anchor = span[0] + len(within)
        anchor += 1
    positions = {news[new].name: old for new, old in anchors[1:-1]}
    return positions if own_position is None else {**positions, OWN: own_position}


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where the values of a column of the final table come from.

    Attributes:
        column: the number of a column in a version, or the name of a column in the table before the run; None if
            there is none, so that the column is NULL.
        chain: the types that the values go through, their own first; see `conversions`.
        fill: the rows are older than the column, and have this text in it, whose type (text) is the chain's first.
    """

    column: int | str | None
    chain: tuple[ColumnType, ...]
    fill: str | None = None


class _Taken(NamedTuple):
    """A version: its columns' ids, the numbers of their types in the columns' chains, and how they are sent."""

    ids: tuple[int, ...]
    positions: dict[int, int]
    sent: dict[int, tuple[ColumnType, ...]]


@dataclass(slots=True)
class Evolution:
    """The changes of a table's columns through the relation versions of a run, in order.

    Attributes:
        before: the table's columns before the run; None if there is no table yet.
        anew: the first version belongs to another relation, which takes over the table with its rows.  Its columns are
            matched by name.
        shape: the table's columns after the last version.
        changes: all changes so far, for the report.
    """

    before: TableShape | None
    policy: Policy
    anew: bool = False
    shape: TableShape = field(default_factory=TableShape)
    changes: list[ColumnChange] = field(default_factory=list)
    _chains: dict[int, list[ColumnType]] = field(default_factory=dict)
    _fills: dict[int, tuple[int, str, tuple[ColumnType, ...]]] = field(default_factory=dict)
    """The step in which a column was added, what older rows have in it, and how that is sent, by the column's id."""
    _versions: list[_Taken] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.before is not None:
            self.shape = self.before
            self._chains = {column.id: [column.type] for column in self.before.columns}

    def take(self, columns: Sequence[SourceColumn], unlisted: Collection[int] = ()) -> None:
        """Advance to the next version; ``unlisted``: see `walreplay.protocol.messages.Relation`."""
        step = self._next(columns, unlisted)
        if self.shape.columns:  # a new table's columns are no changes
            self.changes.extend(step.changes)
        self.shape = step.shape
        sent: dict[int, tuple[ColumnType, ...]] = {
            id_: () if column.sent is None else (column.sent,) for id_, column in zip(step.ids, columns, strict=True)
        }
        for column in step.shape.columns:
            if column.id not in self._chains and column.filled is not None:
                self._fills[column.id] = len(self._versions), column.filled, sent[column.id]
            chain = self._chains.setdefault(column.id, [column.type])
            if chain[-1] != column.type:  # values go through each type, as in the source
                chain.append(column.type)
        self._versions.append(_Taken(step.ids, {id_: len(self._chains[id_]) - 1 for id_ in step.ids}, sent))

    def ids_of(self, columns: Sequence[SourceColumn]) -> tuple[int, ...]:
        """Return the ids that a version's columns would have if it were next."""
        return self._next(columns).ids

    def _next(self, columns: Sequence[SourceColumn], unlisted: Collection[int] = ()) -> _Advance:
        return _advance(self.shape, columns, self.policy, unlisted, anew=self.anew and not self._versions)

    def of_version(self, step: int) -> tuple[ValueSource, ...]:
        """Return for each of the table's columns where rows of a version, by its number from 0, have its values."""
        taken = self._versions[step]
        return tuple(
            ValueSource(
                taken.ids.index(column.id),
                (*taken.sent[column.id], *self._chains[column.id][taken.positions[column.id] :]),
            )
            if column.id in taken.positions
            else self._without(column, step)
            for column in self.shape.columns
        )

    def _without(self, column: MirrorColumn, step: int) -> ValueSource:
        """Return what rows of a version, or of the table before the run (-1), have in a column that they lack."""
        added, text, sent = self._fills.get(column.id, (step, "", ()))
        if step >= added:  # nothing is filled, or the rows are newer than the column
            return ValueSource(None, (column.type,))
        return ValueSource(None, (TEXT, *sent, *self._chains[column.id]), text)

    def of_table(self) -> tuple[ValueSource, ...]:
        """Return for each of the table's columns where the rows that it had before the run have its values."""
        names = {column.id: column.name for column in (self.before.columns if self.before else ())}
        return tuple(
            ValueSource(names[column.id], tuple(self._chains[column.id]))
            if column.id in names
            else self._without(column, -1)
            for column in self.shape.columns
        )

    @property
    def fills(self) -> bool:
        """Whether rows that the table had before the run get a value in a column that is added."""
        return self.before is not None and any(source.fill is not None for source in self.of_table())

    @property
    def rewritten(self) -> tuple[MirrorColumn, ...]:
        """The columns whose old values are converted in a way that needs the table to be rewritten."""
        return tuple(
            column
            for source, column in zip(self.of_table(), self.shape.columns, strict=True)
            if source.fill is None and any(not is_widening(old, new) for old, new in conversions(source.chain))
        )

    def number_of(self, step: int, column: int) -> int:
        """Return the number, in the table, of a version's column.

        Raises:
            KeyError: a later version has dropped or replaced the column.
        """
        numbers = {table_column.id: number for number, table_column in enumerate(self.shape.columns)}
        return numbers[self._versions[step].ids[column]]

"""A table's columns, or an enum's labels, as announced, and what follows from one announcement to the next.

Rows from before a table's first announcement have its columns by the names of the Relation message then.  Where these
differ from the announced ones, each is found by its number if the table had as many columns as it has numbers; else it
is not known (`LayoutColumn.first`).

Where a table is rewritten, it is announced before, too, with the reason.  Then PostgreSQL still has what older rows get
in the columns that are added with a constant.  Values that are made by an expression or by most casts, that differ from
row to row, or that are too long to be announced, are not known (`LayoutColumn.rewritten`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from walreplay.decode.casts import casts_exactly
from walreplay.protocol import messages as m

_MOST_TEXTS: Final = 16
"""So many texts of a label that is renamed again and again are kept: the first, and the last ones."""

_BY_DEFAULT: Final = 2
"""Columns are added, or generated anew, with values that may differ from row to row."""
_BY_TYPE: Final = 4


@dataclass(frozen=True, slots=True)
class LayoutColumn:
    """A column: its number, name and type, and what rows that are older than it have in it (None: NULL).

    Attributes:
        first, rewritten: see `walreplay.protocol.messages.Column`.
        comment: what people have it say; empty for nothing.
        is_generated: its values follow from other columns, and are stored.
        is_written: the transaction of the announcement has made or changed it.
        is_unknown: if it is new, older rows have something else than NULL in it, which is not announced.
    """

    number: int
    name: str
    type_oid: int
    missing: str | None = None
    first: str = ""
    comment: str = ""
    typmod: int = -1
    is_generated: bool = False
    is_written: bool = False
    is_unknown: bool = False
    rewritten: int = 0

    @property
    def type(self) -> tuple[int, int]:
        """The type's oid, and its modifier."""
        return self.type_oid, self.typmod


@dataclass(frozen=True, slots=True)
class EnumLabels:
    """What an announcement has of an enum.

    Attributes:
        array: the oid of the type of its arrays.
        name: its schema and name.
        labels: oid and text of each.
        renamed: those that have had other texts since the enum was announced first, or have a text that another one
            had, in that order: the oid, and all texts, the present one last.
    """

    array: int
    name: tuple[str, str]
    labels: tuple[tuple[int, str], ...]
    renamed: tuple[tuple[int, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's columns, as an announcement has them; or an enum.

    Attributes:
        oid: the table's; the type's, if it is an enum.
        lsn: the announcement's own.
        count: how many columns the table has had, with those that were dropped.
        columns: in the order of their numbers.
        xids: the transactions, and subtransactions, that have changed them just then.
        comment: what people have the table say; empty for nothing.
        enum: the labels, if it is an enum, which has no columns.
        name: schema and name, for people.
        parent: the table of which it is a partition; 0 if it is none.
        is_attached: it became one just then.
        is_empty: it had no rows.
        is_dropped: the table is gone.
        is_unlogged: its rows are not sent.
        reason: why it is rewritten behind this, by bits (`_BY_DEFAULT`, `_BY_TYPE`); 0 if it is not.
        by_expression: values of columns may be made by an expression then, and not by a cast alone.
    """

    oid: int
    lsn: int
    count: int
    columns: tuple[LayoutColumn, ...]
    xids: tuple[int, ...] = ()
    comment: str = ""
    enum: EnumLabels | None = None
    name: str = ""
    parent: int = 0
    is_attached: bool = False
    is_empty: bool = False
    is_dropped: bool = False
    is_unlogged: bool = False
    reason: int = 0
    by_expression: bool = False


def following(layout: Layout, known: Layout | None, shown: m.Relation | None) -> Layout:
    """Give an announcement with what is known of the columns from those before it.

    What older rows have is kept, where the source has forgotten it: it has written all of its own rows anew since.

    Args:
        shown: the table's newest Relation message.
    """
    if layout.enum is not None:
        before_ = None if known is None else known.enum
        return replace(layout, enum=layout.enum if before_ is None else _with_renamed(layout.enum, before_))
    if known is None:
        firsts = _firsts(layout, shown)
        columns = [
            replace(one, first=firsts.get(one.number, ""), rewritten=layout.lsn if _is_in_doubt(layout, one) else 0)
            for one in layout.columns
        ]
        return replace(layout, columns=tuple(columns))
    before = {one.number: one for one in known.columns}
    columns = []
    for one in layout.columns:
        old = before.get(one.number)
        missing, first, rewritten = one.missing, "", 0
        if old is not None:
            first, rewritten = old.first, old.rewritten
            if missing is None and casts_exactly(old.type, one.type):
                missing = old.missing
        if _loses_values(layout, one, old):
            missing, rewritten = None, layout.lsn
        columns.append(replace(one, missing=missing, first=first, rewritten=rewritten))
    return replace(layout, columns=tuple(columns))


def _firsts(layout: Layout, shown: m.Relation | None) -> dict[int, str]:
    """Give the names by which rows from before a table's first announcement have its columns, by the numbers."""
    names = {one.name: one.number for one in layout.columns}
    if shown is None:
        return {number: name for name, number in names.items()}
    before = [column.name for column in shown.columns]
    if len(before) == layout.count:
        # The table has never had others, so these had the numbers from 1 on.
        return {one.number: before[one.number - 1] for one in layout.columns}
    kept = [names[name] for name in before if name in names]
    # One that is new may be one that is gone, under another name; and places do not change.
    is_clear = kept == sorted(kept) and (len(kept) == len(before) or len(kept) == len(names))
    return {number: name for name, number in names.items()} if is_clear else {}


def _is_in_doubt(layout: Layout, column: LayoutColumn) -> bool:
    """Say whether the statement that announces a table first may have changed what its rows have in a column."""
    if layout.is_empty or column.missing is not None or not column.is_written:
        return False
    # Where columns are gone, it may be a new one under the name of another.
    return bool(layout.reason & (_BY_DEFAULT | _BY_TYPE)) or column.is_unknown or len(layout.columns) < layout.count


def _loses_values(layout: Layout, column: LayoutColumn, old: LayoutColumn | None) -> bool:
    """Say whether what rows that are older than an announcement have in a column is not known from there on.

    Args:
        old: the column as it was announced before; None if it is new.
    """
    if layout.is_empty:
        return False
    if old is None:
        return column.is_unknown
    reason = layout.reason if column.is_written else 0
    if old.is_generated != column.is_generated or (reason & _BY_DEFAULT and column.is_generated):
        return True
    if reason & _BY_TYPE and layout.by_expression:
        return True
    return not casts_exactly(old.type, column.type)


def _with_renamed(enum: EnumLabels, known: EnumLabels) -> EnumLabels:
    """Give an enum with the labels that were renamed, now or before.

    A rename of the type changes no label.  Where both differ, it is another type that has the oid now.
    """
    before = dict(known.labels)
    changed = {oid for oid, text in enum.labels if before.get(oid, text) != text}
    if changed and enum.name != known.name:
        return enum
    renamed = dict(known.renamed)
    former = {text for _, texts in known.renamed for text in texts} | {before[oid] for oid in changed}
    for oid, text in enum.labels:
        if oid in changed:
            first, *rest = *renamed.get(oid, (before[oid],)), text
            renamed[oid] = (first, *rest[1 - _MOST_TEXTS :])
        elif oid not in before and text in former:
            # Rows that have it mean this one from here on.
            renamed[oid] = (text,)
    return replace(enum, renamed=tuple(renamed.items()))


__all__ = ["EnumLabels", "Layout", "LayoutColumn", "following"]

"""What the source says of its tables beside the rows: the messages of ``announce.sql``.

A Relation message has its columns' names and types only.  An announcement has their numbers too (``attnum``), which
PostgreSQL never gives twice in a table, and what older rows have in columns that were added (`Layout`).  It stands in
the stream where the table was changed, and in front of the next Relation message of the table.  So a Relation message
whose columns the newest announcement has, under the same names and types and in their order, is told its columns'
numbers (`Layouts.told`).  Any other is left as it is: it goes by what the stream shows.

Of several announcements of a table that with the highest LSN counts, so that copies that are sent again change nothing.
One that has fewer columns than were announced before, dropped ones included, is of an older view and does not count.

An enum's announcement has its labels with their oids, which stay when a label is renamed.  Of those that were, the
columns of that type are told all texts that they have had (`Layouts.labelled`).  Nothing is sent in front of the rows
that have the new text, so what is in force is told anew where the announcement stands.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from walreplay.protocol import messages as m

MARK: Final = b'{"walreplay"'
"""Each announcement begins so."""

_MOST_BYTES: Final = 4 << 20
_MOST_COLUMNS: Final = 1664
_MOST_OID: Final = (1 << 32) - 1
_MOST_LABELS: Final = 1 << 16
_MOST_TEXTS: Final = 16
"""So many texts of a label that is renamed again and again are kept: the first, and the last ones."""

_MOST_COMMENT: Final = 4096
"""Of a longer comment so many characters are kept: the ledger has them with each run's end."""


@dataclass(frozen=True, slots=True)
class LayoutColumn:
    """A column: its number, name and type, and what rows that are older than it have in it (None: NULL).

    Attributes:
        first: the name that it had when the table was announced first; empty if it was added later.
        comment: what people have it say; empty for nothing.
    """

    number: int
    name: str
    type_oid: int
    missing: str | None = None
    first: str = ""
    comment: str = ""


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


@dataclass(frozen=True, slots=True)
class Moved:
    """A table with rows that became a partition, or is none any more: of these rows nothing is sent.

    Attributes:
        what: attached, detached or dropped.
        name: the partition's.
        parent: the table of which it is one now, or was.
        lsn: the announcement's.
    """

    what: str
    name: str
    parent: int
    lsn: int


def is_announcement(message: m.Message) -> bool:
    """Say whether a message may be an announcement, whatever its prefix is."""
    return message.transactional and message.content.startswith(MARK) and len(message.content) <= _MOST_BYTES


def layout_of(message: m.Message) -> Layout | None:
    """Read an announcement of a table or an enum; None for one of something else.

    Raises:
        ValueError: it is none; or KeyError, TypeError, AttributeError.
    """
    try:
        values = json.loads(message.content.decode("utf-8"))
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(values, dict) or values.get("walreplay") != 1:
        raise ValueError("of another version")
    xids = tuple(_number(xid, _MOST_OID) for xid in _list(values.get("xids") or []))
    if values.get("type") is not None:
        return Layout(_number(values["type"], _MOST_OID), message.lsn, 0, (), xids, enum=_enum(values))
    if values.get("oid") is None or ("columns" not in values and values.get("dropped") is not True):
        return None
    oid = _number(values["oid"], _MOST_OID)
    if values.get("dropped") is True:
        return Layout(oid, message.lsn, 0, (), xids, is_dropped=True)
    columns = tuple(_columns(values["columns"] or ()))
    numbers, names = [column.number for column in columns], {column.name for column in columns}
    count = _number(values["natts"], _MOST_COLUMNS)
    if numbers != sorted(set(numbers)) or len(names) < len(columns) or (numbers and numbers[-1] > count):
        raise ValueError("columns that cannot be")
    parent = values.get("parent")
    return Layout(
        oid,
        message.lsn,
        count,
        columns,
        xids,
        _comment(values),
        name=".".join(filter(None, (_text(values.get(part, "")) for part in ("schema", "table")))),
        parent=_number(parent, _MOST_OID) if parent is not None and values.get("is_partition") is True else 0,
        is_attached=values.get("attached") is True,
        is_empty=values.get("empty") is True,
    )


def _columns(values: Any) -> Iterator[LayoutColumn]:
    if len(_list(values)) > _MOST_COLUMNS:
        raise ValueError("too many columns")
    for one in values:
        missing = one.get("missing")
        name = one["name"]
        if not isinstance(name, str) or not name or not isinstance(missing, str | None):
            raise ValueError("a column without a name")
        number = _number(one["n"], _MOST_COLUMNS)
        if number < 1:
            raise ValueError("a column without a number")
        yield LayoutColumn(number, name, _number(one["type"], _MOST_OID), missing, comment=_comment(one))


def _enum(values: Any) -> EnumLabels:
    labels = [(_number(oid, _MOST_OID), _text(text)) for oid, text in _list(values["labels"] or ())]
    if len(labels) > _MOST_LABELS or len(dict(labels)) < len(labels) or len({text for _, text in labels}) < len(labels):
        raise ValueError("labels that cannot be")
    name = _text(values["schema"]), _text(values["name"])
    return EnumLabels(_number(values["array"], _MOST_OID), name, tuple(labels))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    # JSON may have halves of characters, which no label has.
    value.encode()
    return value


def _comment(values: Any) -> str:
    comment = values.get("comment")
    if not isinstance(comment, str | None):
        raise ValueError("a comment that is no text")
    comment = comment or ""
    # JSON may have halves of characters, which no file can.
    comment = comment.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
    return comment if len(comment) <= _MOST_COMMENT else f"{comment[: _MOST_COMMENT - 1]}…"


def _list(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError("no list")
    return value


def _number(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError("a number that cannot be")
    return value


class Layouts:
    """The newest announcement of each table, and of each enum.

    Args:
        prefix: the announcements' prefix; None reads none.
        known: those that another one has given (`of`, `all`).

    Attributes:
        unread: how many could not be read.
        moved: what became of partitions, in order.
    """

    def __init__(self, prefix: str | None = None, known: Iterable[Layout] = ()) -> None:
        self.prefix = prefix
        self.unread = 0
        self.moved: list[Moved] = []
        self._by_oid: dict[int, Layout] = {}
        self._enums: dict[int, Layout] = {}
        self._by_type: dict[int, EnumLabels] = {}
        """The enums by the types that have their labels: themselves, and their arrays."""
        for layout in known:
            self._put(layout)

    def _put(self, layout: Layout) -> None:
        if layout.enum is None:
            self._by_oid[layout.oid] = layout
        else:
            self._enums[layout.oid] = layout
            self._by_type[layout.oid] = self._by_type[layout.enum.array] = layout.enum

    def add(self, layouts: Iterable[Layout], aborted: Collection[int] = ()) -> None:
        """Take announcements in their order.

        Args:
            aborted: the subtransactions that have rolled back; what they announced is left out.
        """
        for layout in layouts:
            known = (self._by_oid if layout.enum is None else self._enums).get(layout.oid)
            if set(layout.xids) & set(aborted):
                continue
            if layout.is_dropped:
                if known is not None and layout.lsn > known.lsn:
                    self._note_moved(layout, known)
                    self._put(replace(known, lsn=layout.lsn, parent=0, is_dropped=True))
            elif known is None or (layout.lsn > known.lsn and layout.count >= known.count):
                self._note_moved(layout, known)
                self._put(_following(layout, known))

    def _note_moved(self, layout: Layout, known: Layout | None) -> None:
        before = 0 if known is None else known.parent
        if layout.parent == before or layout.is_empty:
            return
        if before:
            what = "dropped" if layout.is_dropped else "detached"
            self.moved.append(Moved(what, layout.name or (known.name if known else ""), before, layout.lsn))
        if layout.parent and layout.is_attached:
            self.moved.append(Moved("attached", layout.name, layout.parent, layout.lsn))

    def ancestors(self, oid: int) -> tuple[int, ...]:
        """Give a table, the one of which it is a partition, and so on up to the root."""
        found = [oid]
        while (known := self._by_oid.get(found[-1])) is not None and known.parent and known.parent not in found:
            found.append(known.parent)
        return tuple(found)

    def is_dropped(self, oid: int) -> bool:
        """Say whether a table is announced to be gone."""
        known = self._by_oid.get(oid)
        return known is not None and known.is_dropped

    def take(self, message: m.Message, aborted: Collection[int] = ()) -> tuple[Layout, ...]:
        """Read a message and take what it announces; give that: one announcement, or none.

        Behind an enum's, what is in force is to be told anew (`labelled`).

        Args:
            aborted: see `add`.
        """
        layout = self.read(message)
        found = () if layout is None else (layout,)
        self.add(found, aborted)
        return found

    def read(self, message: m.Message) -> Layout | None:
        """Give a message's announcement of a table or an enum; None if it is none, or has another prefix."""
        if message.prefix != self.prefix or not is_announcement(message):
            return None
        try:
            return layout_of(message)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.unread += 1
            return None

    def of(self, oids: Iterable[int], relations: Iterable[m.Relation] = ()) -> tuple[Layout, ...]:
        """Give the announcements of some tables, and those of the enums that relations' columns have.

        Args:
            relations: the tables' versions, whose columns may have enums.
        """
        tables = [self._by_oid[oid] for oid in dict.fromkeys(oids) if oid in self._by_oid]
        if not self._enums:
            return tuple(tables)
        types = {column.type_oid for relation in relations for column in relation.columns}
        found = [one for one in self._enums.values() if one.oid in types or (one.enum and one.enum.array in types)]
        return (*tables, *found)

    def all(self) -> tuple[Layout, ...]:
        """Give the announcements of all tables and enums."""
        return (*self._by_oid.values(), *self._enums.values())

    def enum_of(self, type_oid: int) -> EnumLabels | None:
        """Give the enum that a type is, or is an array of; None if none is known."""
        return self._by_type.get(type_oid)

    def told(self, relation: m.Relation) -> m.Relation:
        """Give a Relation message with what is announced of its columns, if that is of the same columns."""
        return self.labelled(self._numbered(relation))

    def labelled(self, relation: m.Relation) -> m.Relation:
        """Give a relation's version with the labels of enums that are in force; itself, if they are as it has them."""
        if not self._by_type:
            return relation
        columns = []
        for column in relation.columns:
            enum = self._by_type.get(column.type_oid)
            differs = enum is not None and enum.renamed != column.labels
            columns.append(replace(column, labels=enum.renamed) if enum is not None and differs else column)
        changed = any(one is not other for one, other in zip(columns, relation.columns, strict=True))
        return replace(relation, columns=tuple(columns)) if changed else relation

    def _numbered(self, relation: m.Relation) -> m.Relation:
        layout = self._by_oid.get(relation.oid)
        if layout is None:
            return relation
        by_name = {column.name: column for column in layout.columns}
        found = [by_name.get(column.name) for column in relation.columns]
        last, columns = 0, []
        for known, column in zip(found, relation.columns, strict=True):
            if known is None or known.type_oid != column.type_oid or known.number <= last:
                return relation
            last = known.number
            columns.append(replace(column, number=known.number, missing=known.missing, first=known.first))
        return replace(relation, columns=tuple(columns))


def _following(layout: Layout, known: Layout | None) -> Layout:
    """Give an announcement with what is known of the columns from those before it.

    What older rows have is kept, where the source has forgotten it: it has written all of its own rows anew since.
    """
    if layout.enum is not None:
        before_ = None if known is None else known.enum
        return replace(layout, enum=layout.enum if before_ is None else _with_renamed(layout.enum, before_))
    if known is None:
        return replace(layout, columns=tuple(replace(one, first=one.name) for one in layout.columns))
    before = {one.number: one for one in known.columns}
    columns = []
    for one in layout.columns:
        old = before.get(one.number)
        missing, first = one.missing, ""
        if old is not None:
            first = old.first
            if missing is None and one.type_oid == old.type_oid:
                missing = old.missing
        columns.append(replace(one, missing=missing, first=first))
    return replace(layout, columns=tuple(columns))


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


__all__ = ["EnumLabels", "Layout", "LayoutColumn", "Layouts", "Moved", "is_announcement", "layout_of"]

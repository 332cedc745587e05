"""What the source announces of its tables beside the rows (the messages of ``announce.sql``), and what follows from it.

A Relation message has its columns' names and types only.  An announcement also has their numbers (``attnum``), which
PostgreSQL never uses twice in a table, and the values that older rows have in added columns (`Layout`).  It is sent
where the table is changed, and before the next Relation message of the table.  A Relation message whose columns agree
with the newest announcement in name, type and order gets the columns' numbers (`Layouts.annotated`).  Of several
announcements of a table the one with the highest LSN counts, so copies change nothing.

An enum's announcement has its labels with their oids, which a rename keeps.  Columns of that type then get all texts
that a label has had (`Layouts.labelled`).  The versions in force change where the announcement lies in the stream.

- Rows from before a table's first announcement have their columns by the names of the Relation message then.  Where
  these differ from the announced ones, a column is found by its number if the table had as many columns as it has
  numbers; otherwise it is not known (`LayoutColumn.first`).
- A rewritten table is announced before the rewrite, too, with the reason.  PostgreSQL then still has what older rows
  get in columns that are added with a constant.  Values made by an expression or by most casts, values that differ
  from row to row or are too long to be announced are not known (`LayoutColumn.rewritten`).
- A change of type without USING applies PostgreSQL's assignment cast.  `casts_exactly` has those whose results follow
  from the old values' texts under any settings; most others round, cut off, or depend on settings.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from walreplay.protocol import messages as m
from walreplay.types.numbers import MAX_PRECISION, precision_and_scale

_INT8, _INT2, _INT4 = 20, 21, 23  # pg_type.dat: the same on all servers
_TEXT, _VARCHAR, _NUMERIC = 25, 1043, 1700
_FLOAT4, _FLOAT8 = 700, 701
_DATE, _TIMESTAMP = 1082, 1114
_JSON, _JSONB, _UUID = 114, 3802, 2950

_INTEGERS: Final = (_INT2, _INT4, _INT8)

_EXACT: Final = frozenset(
    {(old, new) for old in _INTEGERS for new in _INTEGERS}
    | {(old, new) for old in (*_INTEGERS, _NUMERIC, _VARCHAR, _JSON, _JSONB, _UUID) for new in (_TEXT, _VARCHAR)}
    | {(_TEXT, _VARCHAR), (_FLOAT4, _FLOAT8), (_INT2, _FLOAT8), (_INT4, _FLOAT8), (_DATE, _TIMESTAMP)}
    | {(old, _NUMERIC) for old in _INTEGERS}
)
"""Pairs (old, new) whose cast gives the same value, or fails, where the new type has no modifier."""

_GROWING: Final = frozenset({_VARCHAR, 1083, _TIMESTAMP, 1184, 1266, 1562})
"""A greater modifier keeps all values.  1083 is time, 1184 timestamptz, 1266 timetz, 1562 varbit."""


def casts_exactly(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Return whether the cast of all values from one type to another keeps them.

    Args:
        old, new: the type's oid, and its modifier, -1 for none.
    """
    if old == new:
        return True
    (old_type, old_modifier), (new_type, new_modifier) = old, new
    modifiers = precision_and_scale(new_modifier) if new_type == _NUMERIC else None
    if modifiers is not None:
        # The cast rounds to the scale, or fails where there are too few digits in front of it.
        digits, scale = modifiers
        old_scale = 0 if old_type in _INTEGERS else (precision_and_scale(old_modifier) or (0, -1))[1]
        kept = (old_type in _INTEGERS or old_type == _NUMERIC) and 0 <= old_scale <= scale
        # More digits are texts in the mirror, which have another scale then.
        return kept and scale <= digits <= MAX_PRECISION
    if old_type == new_type and (new_modifier < 0 or (old_type in _GROWING and 0 <= old_modifier <= new_modifier)):
        return True
    # Of a longer text the cast cuts blanks off.
    return new_modifier < 0 and (old_type, new_type) in _EXACT


# What is announced of a table or an enum

_MOST_TEXTS: Final = 16  # Of a label that is renamed again and again, the first text and the last ones are kept

_BY_DEFAULT: Final = 2  # Columns are added, or generated anew, with values that may differ from row to row
_BY_TYPE: Final = 4


@dataclass(frozen=True, slots=True)
class LayoutColumn:
    """A column: its number, name and type, and what rows that are older than it have in it (None: NULL).

    Attributes:
        first, rewritten: see `walreplay.protocol.messages.Column`.
        comment: COMMENT ON it; empty for none.
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
        renamed: oid and all texts, the present one last, of those that had others, or have a text that another one had.
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
        comment: COMMENT ON the table; empty for none.
        enum: the labels, if it is an enum, which has no columns.
        name: schema and name, for people.
        parent: the table of which it is a partition; 0 if it is none.
        is_attached: it became one just then.
        is_empty: it had no rows.
        is_dropped: the table is gone.
        formers: how many tables of this oid were announced to be gone.
        is_unlogged: its rows are not sent.
        reason: why it is rewritten behind this, by bits (`_BY_DEFAULT`, `_BY_TYPE`); 0 if it is not.
        by_expression: values of columns may be made by an expression then, and not by a cast alone.
        names: all names that each column has had, by its number, the oldest first; also those of dropped columns.
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
    formers: int = 0
    is_unlogged: bool = False
    reason: int = 0
    by_expression: bool = False
    names: tuple[tuple[int, tuple[str, ...]], ...] = ()


def following(layout: Layout, earlier: Layout | None, relation: m.Relation | None) -> Layout:
    """Return an announcement with what is known of the columns from those before it.

    Args:
        relation: the table's newest Relation message.
    """
    if layout.enum is not None:
        earlier_enum = None if earlier is None else earlier.enum
        return replace(layout, enum=layout.enum if earlier_enum is None else _with_renamed(layout.enum, earlier_enum))
    if earlier is None:
        firsts = _firsts(layout, relation)
        columns = [
            replace(column, first=firsts.get(column.number, ""), rewritten=layout.lsn * _is_in_doubt(layout, column))
            for column in layout.columns
        ]
        names = _all_names(columns, {number: (first,) for number, first in firsts.items()})
        return replace(layout, columns=tuple(columns), names=names)
    earlier_columns = {column.number: column for column in earlier.columns}
    columns = []
    for column in layout.columns:
        earlier_column = earlier_columns.get(column.number)
        missing, first, rewritten = column.missing, "", 0
        if earlier_column is not None:
            first, rewritten = earlier_column.first, earlier_column.rewritten
            # A rewrite fills in the missing value and clears it (attmissingval); the mirror's older rows still need it.
            if missing is None and casts_exactly(earlier_column.type, column.type):
                missing = earlier_column.missing
        if _loses_values(layout, column, earlier_column):
            missing, rewritten = None, layout.lsn  # from here on, what older rows have is not known
        columns.append(replace(column, missing=missing, first=first, rewritten=rewritten))
    return replace(layout, columns=tuple(columns), names=_all_names(columns, dict(earlier.names)))


def _all_names(
    columns: Iterable[LayoutColumn], old_names: dict[int, tuple[str, ...]]
) -> tuple[tuple[int, tuple[str, ...]], ...]:
    names = {
        column.number: tuple(dict.fromkeys((*old_names.get(column.number, ()), column.name))) for column in columns
    }
    return tuple((old_names | names).items())


def _firsts(layout: Layout, relation: m.Relation | None) -> dict[int, str]:
    """Return the names by which rows from before a table's first announcement have its columns, by the numbers."""
    names = {column.name: column.number for column in layout.columns}
    if relation is None:
        return {number: name for name, number in names.items()}
    old_names = [column.name for column in relation.columns]
    if len(old_names) == layout.count:
        # The table has never had others, so these had the numbers from 1 on.
        return {column.number: old_names[column.number - 1] for column in layout.columns}
    kept = [names[name] for name in old_names if name in names]
    # One that is new may be one that is gone, under another name; and places do not change.
    is_clear = kept == sorted(kept) and (len(kept) == len(old_names) or len(kept) == len(names))
    return {number: name for name, number in names.items()} if is_clear else {}


def _is_in_doubt(layout: Layout, column: LayoutColumn) -> bool:
    """Return whether the statement that announces a table first may have changed what its rows have in a column."""
    if layout.is_empty or column.missing is not None or not column.is_written:
        return False
    # Where columns are gone, it may be a new one under the name of another.
    return bool(layout.reason & (_BY_DEFAULT | _BY_TYPE)) or column.is_unknown or len(layout.columns) < layout.count


def _loses_values(layout: Layout, column: LayoutColumn, old: LayoutColumn | None) -> bool:
    """Return whether what rows that are older than an announcement have in a column is not known from there on.

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


def _with_renamed(enum: EnumLabels, earlier: EnumLabels) -> EnumLabels:
    """Return an enum with the labels that were renamed, now or before.

    A rename of the type changes no label.  Where both differ, or no label is left, another type has the oid now.
    """
    earlier_labels = dict(earlier.labels)
    if earlier_labels.keys().isdisjoint(dict(enum.labels)):
        return enum
    changed = {oid for oid, text in enum.labels if earlier_labels.get(oid, text) != text}
    if changed and enum.name != earlier.name:
        return enum
    renamed = dict(earlier.renamed)
    former = {text for _, texts in earlier.renamed for text in texts} | {earlier_labels[oid] for oid in changed}
    for oid, text in enum.labels:
        if oid in changed:
            first, *rest = *renamed.get(oid, (earlier_labels[oid],)), text
            renamed[oid] = (first, *rest[1 - _MOST_TEXTS :])
        elif oid not in earlier_labels and text in former:
            # Rows that have it mean this one from here on.
            renamed[oid] = (text,)
    return replace(enum, renamed=tuple(renamed.items()))


MARK: Final = b'{"walreplay"'  # Each announcement begins so

_MOST_BYTES: Final = 4 << 20
_MOST_OID: Final = (1 << 32) - 1
_MOST_LABELS: Final = 1 << 16
_MOST_REASON: Final = (1 << 16) - 1
_MOST_COMMENT: Final = 4096  # Of a longer comment so many characters are kept: the ledger has them with each run's end


@dataclass(frozen=True, slots=True)
class Moved:
    """What has changed rows of a table without sending them.

    Attributes:
        what: attached, detached or dropped, of a partition with rows; relabelled, of an enum that was changed before it
            was announced; unlogged or logged, of the table itself.
        name: the partition's or the enum's, or the table's.
        parent: the table of which it is a partition now, or was; that has the enum's values; or itself.
        lsn: the announcement's.
    """

    what: str
    name: str
    parent: int
    lsn: int


def is_announcement(message: m.Message) -> bool:
    """Return whether a message may be an announcement, whatever its prefix is."""
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
    if not isinstance(values, dict) or values.get("walreplay") != 1:  # the version of what announce.sql sends
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
    count = _number(values["natts"], m.MAX_COLUMNS)
    # pg_attribute has each number and each name once; numbers of dropped columns are missing.
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
        # Tables that inherit have parents, too, and are no partitions.
        parent=_number(parent, _MOST_OID) if parent is not None and values.get("is_partition") is True else 0,
        is_attached=values.get("attached") is True,
        is_empty=values.get("empty") is True,
        is_unlogged=values.get("unlogged") is True,
        reason=_number(values.get("rewritten") or 0, _MOST_REASON),
        by_expression=bool(values.get("rewritten")) and values.get("by_expression") is not False,
    )


def _columns(columns: Any) -> Iterator[LayoutColumn]:
    if len(_list(columns)) > m.MAX_COLUMNS:
        raise ValueError("too many columns")
    for column in columns:
        missing = column.get("missing")
        name = column["name"]
        if not isinstance(name, str) or not name or not isinstance(missing, str | None):
            raise ValueError("a column without a name")
        number = _number(column["n"], m.MAX_COLUMNS)
        if number < 1:
            raise ValueError("a column without a number")
        yield LayoutColumn(
            number,
            name,
            _number(column["type"], _MOST_OID),
            missing,
            comment=_comment(column),
            typmod=_number(column.get("typmod", -1) + 1, _MOST_OID) - 1,  # -1: no modifier
            is_generated=column.get("generated") == "s",  # stored; what is virtual is not sent
            is_written=column.get("written") is True,
            is_unknown=column.get("unknown") is True,
        )


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


def _number(value: Any, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:  # true is an int
        raise ValueError("a number that cannot be")
    return value


class Layouts:
    """The newest announcement of each table, and of each enum.

    Args:
        prefix: the announcements' prefix; None reads none.
        layouts: announcements that another object has returned (`of`, `all`).
        shown: the tables' newest Relation messages.

    Attributes:
        unread: how many could not be read.
        unasked: the prefixes of messages that look like announcements, and have another prefix.
        moved: what became of rows that are not sent, in order.
        shown: the newest Relation message of each table, by its oid.
    """

    def __init__(
        self, prefix: str | None = None, layouts: Iterable[Layout] = (), shown: Iterable[m.Relation] = ()
    ) -> None:
        self.prefix = prefix
        self.unread = 0
        self.unasked: set[str] = set()
        self.moved: list[Moved] = []
        self.shown = {relation.oid: relation for relation in shown}
        self._by_oid: dict[int, Layout] = {}
        self._enums: dict[int, Layout] = {}
        self._by_type: dict[int, EnumLabels] = {}  # by the types that have their labels: enums, and their arrays
        for layout in layouts:
            self._put(layout)

    def _put(self, layout: Layout) -> None:
        if layout.enum is None:
            self._by_oid[layout.oid] = layout
        else:
            self._enums[layout.oid] = layout
            self._by_type[layout.oid] = self._by_type[layout.enum.array] = layout.enum

    def add(self, layouts: Iterable[Layout], aborted: Collection[int] = ()) -> None:
        """Take announcements in their order, without those of subtransactions that have rolled back (`aborted`)."""
        for layout in layouts:
            earlier = (self._by_oid if layout.enum is None else self._enums).get(layout.oid)
            if set(layout.xids) & set(aborted):
                continue
            is_newer = earlier is None or layout.lsn > earlier.lsn  # a copy that is sent again has its first LSN
            if layout.is_dropped:
                if earlier is not None and is_newer:
                    self._note_moved(layout, earlier)
                # It does not say which subtransaction has dropped the table: that may be one that has rolled back.
                if not aborted and is_newer:
                    formers = 1 if earlier is None else earlier.formers + 1
                    self._put(replace(earlier or layout, lsn=layout.lsn, parent=0, is_dropped=True, formers=formers))
                    self.shown.pop(layout.oid, None)
            # With fewer columns than before, dropped ones included, it is an older view of the table.
            elif is_newer and (earlier is None or earlier.is_dropped or layout.count >= earlier.count):
                relation = self.shown.get(layout.oid)
                if earlier is not None and earlier.is_dropped:
                    # What is known of a table that has ended says nothing of another one that has its oid now.
                    layout, earlier, relation = replace(layout, formers=earlier.formers), None, None
                self._note_moved(layout, earlier)
                self._note_unsent(layout, earlier)
                self._put(following(layout, earlier, relation))

    def _note_unsent(self, layout: Layout, earlier: Layout | None) -> None:
        enum = layout.enum
        if enum is not None:
            # What was announced by somebody who has not changed it is taken to have been so before.
            types = {layout.oid, enum.array} if earlier is None and layout.xids else set()
            for relation in self.shown.values() if types else ():
                if any(column.type_oid in types for column in relation.columns):
                    self.moved.append(Moved("relabelled", ".".join(enum.name), relation.oid, layout.lsn))
        elif layout.is_unlogged != (earlier is not None and earlier.is_unlogged):
            kind = "unlogged" if layout.is_unlogged else "logged"
            # A table that was never sent lacks rows only if it has some, and is logged now.
            if layout.oid in self.shown or not (layout.is_unlogged or layout.is_empty):
                self.moved.append(Moved(kind, layout.name, layout.oid, layout.lsn))

    def _note_moved(self, layout: Layout, earlier: Layout | None) -> None:
        parent_before = 0 if earlier is None else earlier.parent
        if layout.parent == parent_before or layout.is_empty:  # an empty partition moves no rows
            return
        if parent_before:
            kind = "dropped" if layout.is_dropped else "detached"
            self.moved.append(Moved(kind, layout.name or (earlier.name if earlier else ""), parent_before, layout.lsn))
        if layout.parent and layout.is_attached:
            self.moved.append(Moved("attached", layout.name, layout.parent, layout.lsn))

    def ancestors(self, oid: int) -> tuple[int, ...]:
        """Return a table, the one of which it is a partition, and so on up to the root."""
        oids = [oid]
        while (layout := self._by_oid.get(oids[-1])) is not None and layout.parent and layout.parent not in oids:
            oids.append(layout.parent)
        return tuple(oids)

    def is_dropped(self, oid: int) -> bool:
        """Return whether a table is announced to be gone."""
        layout = self._by_oid.get(oid)
        return layout is not None and layout.is_dropped

    def take(self, message: m.Message, aborted: Collection[int] = ()) -> tuple[Layout, ...]:
        """Read a message and take what it announces; return that.  Behind an enum, relations are `labelled` again."""
        layout = self.read(message)
        layouts = () if layout is None else (layout,)
        self.add(layouts, aborted)
        return layouts

    def read(self, message: m.Message) -> Layout | None:
        """Return a message's announcement of a table or an enum; None if it is none, or has another prefix."""
        if not is_announcement(message):
            return None
        if message.prefix != self.prefix:
            self.unasked.add(message.prefix)
            return None
        try:
            return layout_of(message)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.unread += 1
            return None

    def of(self, oids: Iterable[int], relations: Iterable[m.Relation] = ()) -> tuple[Layout, ...]:
        """Return the announcements of some tables, and those of the enums that columns of `relations` have."""
        tables = [self._by_oid[oid] for oid in dict.fromkeys(oids) if oid in self._by_oid]
        if not self._enums:
            return tuple(tables)
        types = {column.type_oid for relation in relations for column in relation.columns}
        enums = [enum for enum in self._enums.values() if enum.oid in types or (enum.enum and enum.enum.array in types)]
        return (*tables, *enums)

    def all(self) -> tuple[Layout, ...]:
        """Return the announcements of all tables and enums."""
        return (*self._by_oid.values(), *self._enums.values())

    def enum_of(self, type_oid: int) -> EnumLabels | None:
        """Return the enum that a type is, or is an array of; None if none is known."""
        return self._by_type.get(type_oid)

    def annotated(self, relation: m.Relation) -> m.Relation:
        """Return a Relation message with what is announced of its columns, if that is of the same columns."""
        annotated = self.labelled(self.succeeding(self._numbered(relation)))
        if self.prefix is not None:
            self.shown[relation.oid] = annotated
        return annotated

    def succeeding(self, relation: m.Relation) -> m.Relation:
        """Return a relation's version with the number of tables that had its oid and have ended."""
        layout = self._by_oid.get(relation.oid)
        return relation if layout is None else replace(relation, formers=layout.formers)

    def labelled(self, relation: m.Relation) -> m.Relation:
        """Return a relation's version with the enums' labels that are in force; itself, if they are as it has them."""
        if not self._by_type:
            return relation
        columns = []
        for column in relation.columns:
            enum = self._by_type.get(column.type_oid)
            differs = enum is not None and enum.renamed != column.labels
            columns.append(replace(column, labels=enum.renamed) if enum is not None and differs else column)
        # Callers compare by identity, so an equal relation must be the same object.
        changed = any(column is not sent for column, sent in zip(columns, relation.columns, strict=True))
        return replace(relation, columns=tuple(columns)) if changed else relation

    def _numbered(self, relation: m.Relation) -> m.Relation:
        layout = self._by_oid.get(relation.oid)
        if layout is None or layout.is_dropped:
            return relation
        by_name = {column.name: column for column in layout.columns}
        announced = [by_name.get(column.name) for column in relation.columns]
        last_number, columns = 0, []
        for counterpart, column in zip(announced, relation.columns, strict=True):
            # Columns are sent in the order of their numbers; in another order the names are of other columns.
            if counterpart is None or counterpart.type_oid != column.type_oid or counterpart.number <= last_number:
                return relation
            last_number = counterpart.number
            numbered = replace(column, number=counterpart.number, missing=counterpart.missing, first=counterpart.first)
            columns.append(replace(numbered, rewritten=counterpart.rewritten))
        numbers = {column.number for column in columns}
        unlisted = tuple(column.number for column in layout.columns if column.number not in numbers)
        return replace(relation, columns=tuple(columns), unlisted=unlisted)

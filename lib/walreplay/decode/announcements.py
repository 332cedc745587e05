"""What the source says of its tables beside the rows: the messages of ``announce.sql``.

A Relation message has its columns' names and types only.  An announcement has their numbers too (``attnum``), which
PostgreSQL never gives twice in a table, and what older rows have in columns that were added (`Layout`).  It stands in
the stream where the table was changed, and in front of the next Relation message of the table.  So a Relation message
whose columns the newest announcement has, under the same names and types and in their order, is told its columns'
numbers (`Layouts.told`).  Any other is left as it is: it goes by what the stream shows.

Of several announcements of a table that with the highest LSN counts, so that copies that are sent again change nothing.
One that has fewer columns than were announced before, dropped ones included, is of an older view and does not count.
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
class Layout:
    """A table's columns, as an announcement has them.

    Attributes:
        lsn: the announcement's own.
        count: how many columns the table has had, with those that were dropped.
        columns: in the order of their numbers.
        xids: the transactions, and subtransactions, that have changed them just then.
        comment: what people have the table say; empty for nothing.
    """

    oid: int
    lsn: int
    count: int
    columns: tuple[LayoutColumn, ...]
    xids: tuple[int, ...] = ()
    comment: str = ""


def is_announcement(message: m.Message) -> bool:
    """Say whether a message may be an announcement, whatever its prefix is."""
    return message.transactional and message.content.startswith(MARK) and len(message.content) <= _MOST_BYTES


def layout_of(message: m.Message) -> Layout | None:
    """Read an announcement of a table; None for one of something else, such as an enum.

    Raises:
        ValueError: it is none; or KeyError, TypeError, AttributeError.
    """
    try:
        values = json.loads(message.content.decode("utf-8"))
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(values, dict) or values.get("walreplay") != 1:
        raise ValueError("of another version")
    if "columns" not in values or values.get("oid") is None:
        return None
    columns = tuple(_columns(values["columns"] or ()))
    numbers, names = [column.number for column in columns], {column.name for column in columns}
    count = _number(values["natts"], _MOST_COLUMNS)
    if numbers != sorted(set(numbers)) or len(names) < len(columns) or (numbers and numbers[-1] > count):
        raise ValueError("columns that cannot be")
    xids = tuple(_number(xid, _MOST_OID) for xid in _list(values.get("xids") or []))
    return Layout(_number(values["oid"], _MOST_OID), message.lsn, count, columns, xids, _comment(values))


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
    """The newest announcement of each table, by its oid.

    Args:
        prefix: the announcements' prefix; None reads none.
        known: those that another one has given (`of`, `all`).

    Attributes:
        unread: how many could not be read.
    """

    def __init__(self, prefix: str | None = None, known: Iterable[Layout] = ()) -> None:
        self.prefix = prefix
        self.unread = 0
        self._by_oid = {layout.oid: layout for layout in known}

    def add(self, layouts: Iterable[Layout], aborted: Collection[int] = ()) -> None:
        """Take announcements in their order.

        Args:
            aborted: the subtransactions that have rolled back; what they announced is left out.
        """
        for layout in layouts:
            known = self._by_oid.get(layout.oid)
            if set(layout.xids) & set(aborted):
                continue
            if known is None or (layout.lsn > known.lsn and layout.count >= known.count):
                self._by_oid[layout.oid] = _following(layout, known)

    def take(self, message: m.Message, aborted: Collection[int] = ()) -> tuple[Layout, ...]:
        """Read a message and take what it announces; give that: one announcement, or none.

        Args:
            aborted: see `add`.
        """
        layout = self.read(message)
        found = () if layout is None else (layout,)
        self.add(found, aborted)
        return found

    def read(self, message: m.Message) -> Layout | None:
        """Give a message's announcement of a table; None if it is none, or has another prefix."""
        if message.prefix != self.prefix or not is_announcement(message):
            return None
        try:
            return layout_of(message)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.unread += 1
            return None

    def of(self, oids: Iterable[int]) -> tuple[Layout, ...]:
        """Give the announcements of some tables."""
        return tuple(self._by_oid[oid] for oid in dict.fromkeys(oids) if oid in self._by_oid)

    def all(self) -> tuple[Layout, ...]:
        """Give the announcements of all tables."""
        return tuple(self._by_oid.values())

    def told(self, relation: m.Relation) -> m.Relation:
        """Give a Relation message with what is announced of its columns, if that is of the same columns."""
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


__all__ = ["Layout", "LayoutColumn", "Layouts", "is_announcement", "layout_of"]

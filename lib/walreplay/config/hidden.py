"""Columns that are left out or masked, under every name that they have had, or get.

It is known by announcements, and by ``rename_columns``, which columns are the same.  Where it is not known whether a
hidden column and one that is seen are, the version of the relation is refused (`check_renamed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from walreplay.config.model import TableSettings
from walreplay.errors import ConfigError
from walreplay.protocol.messages import Column, Relation

HIDING: Final = ("include_columns", "exclude_columns", "column_mask_hash")


def attnum(column: Column) -> int:
    """Return a column's number, as it is announced or described; 0 if it is not known."""
    return column.number or column.described_number


class HiddenColumns:
    """What of a table's columns is hidden.

    Args:
        versions: of its relation, in the stream's order.
        announced: all names that a column has had, by its number.
    """

    def __init__(
        self, table: TableSettings, versions: Sequence[Relation], announced: Mapping[int, Sequence[str]]
    ) -> None:
        self.table = table
        columns = [column for version in versions for column in version.columns]
        # What is older than the first announcement has the names by which that finds the columns.
        self._firsts = {column.first: column.number for column in columns if column.first}
        self._names = {number: set(names) for number, names in announced.items()}
        for column in columns:
            # 0 is no column's number: names_of does not ask for it.
            self._names.setdefault(self._number(column), set()).add(column.name)
        self.ever = dict.fromkeys(
            [column.name for column in columns] + [name for names in announced.values() for name in names]
        )

    def _number(self, column: Column) -> int:
        return attnum(column) or self._firsts.get(column.name, 0)

    def names_of(self, column: Column) -> set[str]:
        """Return the names of a column, but for those that ``rename_columns`` has."""
        number = self._number(column)
        return self._names[number] if number else {column.name}

    def hidden_by(self, column: Column) -> str | None:
        """Return the key of the configuration that a column is left out or masked by; None for one that is seen."""
        names, includes = self.names_of(column), self.table.include_columns is not None
        # What is listed to be seen is meant by the name that it has.
        if not all(map(self.table.wants_column, [column.name] if includes else names)):
            return "include_columns" if includes else "exclude_columns"
        return "column_mask_hash" if any(map(self.table.masks_column, names)) else None

    def wants(self, column: Column) -> bool:
        """Return whether a column is wanted, masked or not."""
        return self.hidden_by(column) in (None, "column_mask_hash")

    def shows(self, old: Column, new: Column, seen: Container[str]) -> bool:
        """Return whether only one of two columns is hidden, though they may be one; ``seen``: names that there were."""
        hidden_by, names = [self.hidden_by(column) for column in (old, new)], {old.name, new.name}
        if len(names) < 2 or hidden_by.count(None) != 1 or not names.isdisjoint(self.table.not_renamed or ()):
            return False
        # A name that is listed to be seen may not pass to a hidden column.
        return "include_columns" not in hidden_by or (hidden_by[1] is None and new.name in seen)


def check_renamed(
    columns: HiddenColumns, relation: Relation, earlier: Sequence[Relation], known_names: Iterable[str]
) -> None:
    """Refuse a version in which a hidden column may have got the name of one that is seen, or the other way round.

    Raises:
        ConfigError: naming both.
    """
    if not earlier or not any(getattr(columns.table, key) for key in HIDING):
        return
    seen = {column.name for version in earlier for column in version.columns}.union(known_names)
    now, perhaps = {column.name for column in relation.columns}, list(_perhaps_same(earlier[-1], relation))
    # A hidden column in the place of a hidden one that is gone needs no other explanation.
    hidden = [(old, new) for old, new, in_place in perhaps if in_place and old.name not in now]
    explained = {new.name for old, new in hidden if columns.hidden_by(old) and columns.hidden_by(new)}
    for old, new, _ in perhaps:
        if new.name in explained or not columns.shows(old, new, seen):
            continue
        before = columns.hidden_by(old)
        key = before or columns.hidden_by(new)
        lacking = new if before and key != "include_columns" else old
        raise ConfigError(
            f"{old.name!r} may have been renamed to {new.name!r}, and {key} hides only one of them",
            table=relation.qualified_name,
            remedy=f"Nothing was applied; add {lacking.name!r} to {key}, too, if they are one column; or add "
            f"{new.name!r} to not_renamed, if they are two",
        )


def _perhaps_same(before: Relation, after: Relation) -> Iterator[tuple[Column, Column, bool]]:
    """Yield the columns of two versions that are the same, old and new, or may be; and whether they are in one place.

    PostgreSQL keeps the order of columns, and adds new ones at the end.  So names that keep their order divide the
    others; and of these, the first new one may be any of the old ones, the next one any but the first, and so on.
    """
    is_unnumbered = not any(attnum(column) for column in before.columns)
    firsts = {column.first: column.number for column in after.columns if is_unnumbered}
    olds = {attnum(column) or firsts.get(column.name, 0): column for column in before.columns}
    if 0 not in olds and [*olds] == sorted(olds) and all(attnum(column) for column in after.columns):
        # Numbers say which column is which.
        yield from ((olds[attnum(column)], column, True) for column in after.columns if attnum(column) in olds)
        return
    places = {column.name: n for n, column in enumerate(after.columns)}
    common = [(n, places[column.name]) for n, column in enumerate(before.columns) if column.name in places]
    order = [new for _, new in common]
    firm, last = set[str](), (-1, -1)
    for n, (old, new) in enumerate(common):
        # In front of a column there are never more than there were.
        if max([-1, *order[:n]]) < new <= min(order[n:]) and new - last[1] <= old - last[0]:
            firm.add(after.columns[new].name)
            last = old, new

    def between(columns: Sequence[Column]) -> Iterator[tuple[int, int, Column]]:
        gap, place = 0, 0
        for column in columns:
            gap, place = (gap + 1, 0) if column.name in firm else (gap, place + 1)
            if place:
                yield gap, place, column

    olds_between, news_between = list(between(before.columns)), list(between(after.columns))
    counts = [Counter(gap for gap, _, _ in each) for each in (olds_between, news_between)]
    for gap, place, old_column in olds_between:
        is_alike = counts[0][gap] == counts[1][gap]
        for other, limit, column in news_between:
            # An old column may only have moved to the front, as others were dropped.
            if other == gap and limit <= place:
                yield old_column, column, is_alike and limit == place

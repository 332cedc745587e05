"""Which columns' changes begin versions in a history, by the columns that its table has."""

from __future__ import annotations

from collections.abc import Iterator

from walreplay.selection import Tracked
from walreplay.settings import same_columns
from walreplay.sink.evolution import TableShape


def watched_columns(tracked: Tracked | None, shape: TableShape) -> tuple[int, ...] | None:
    """Give the numbers of the table's columns whose changes begin versions; None if each change begins one."""
    if tracked is None:
        return None
    listed = {number for name in tracked.names for number in _columns_of(name, tracked, shape)}
    if tracked.of_all_tables and tracked.names and not listed:
        # It is about other tables.
        return None
    return tuple(number for number in range(len(shape.columns)) if (number in listed) != tracked.excepted)


def told_of_tracking(tracked: Tracked | None, shape: TableShape, *, has_key: bool) -> Iterator[str]:
    """Tell of what is listed and comes to nothing."""
    if tracked is None or watched_columns(tracked, shape) is None:
        return
    if not has_key:
        yield f"{tracked.key} says nothing here: no key tells the table's rows apart, so each change begins a version"
        return
    for name in () if tracked.of_all_tables else tracked.names:
        if all(shape.columns[number].dropped for number in _columns_of(name, tracked, shape)):
            yield f"{tracked.key} names {name!r}, which the table does not have now"


def _columns_of(name: str, tracked: Tracked, shape: TableShape) -> list[int]:
    """Give the numbers of the columns that have a name now, or else of those that had it."""
    same = same_columns(name, tracked.renames)
    now = [number for number, column in enumerate(shape.columns) if column.source in same]
    return now or [number for number, column in enumerate(shape.columns) if same & {*column.was}]


__all__ = ["told_of_tracking", "watched_columns"]

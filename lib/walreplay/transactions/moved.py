"""Rows of a table that are others from some place on and are not sent: of partitions, enums and unlogged tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from walreplay.decode.announcements import Layouts, Moved
from walreplay.lsn import format_lsn
from walreplay.transactions.versions import Versions

_MOST_TOLD: Final = 4

_ROWS: Final = {
    "attached": "a partition was attached, {}: the rows that it had before are not in the mirror",
    "detached": "a partition was detached, {}: the rows that it had stay in the mirror",
    "dropped": "a partition was dropped, {}: the rows that it had stay in the mirror",
    "relabelled": "an enum was changed before it was announced, {}: older rows may have labels that were renamed. "
    "Announce all enums for each new slot, once it is there (SELECT walreplay.announce_all())",
    "unlogged": "the table was set unlogged, {}: its changes are not sent from there on",
    "logged": "the table was unlogged until {}: the rows that it had then are not in the mirror",
}


def warnings_of_moved(moved: Sequence[Moved], layouts: Layouts, versions: Versions) -> Iterator[str]:
    """Tell of each table, or root that changes are published under, what has become of its rows.

    Args:
        moved: what was announced and has committed.
        layouts: what is announced by now.
        versions: the relation versions in force.
    """
    told: dict[tuple[str, str], list[Moved]] = {}
    for one in moved:
        above = layouts.ancestors(one.parent)
        # Where partitions are published as themselves, nothing names a root, and their rows stay where they are.
        known = [version for oid in above if (version := versions.known(oid)) is not None]
        if any(map(layouts.is_dropped, above)):
            continue
        if known:
            told.setdefault((known[-1].relation.qualified_name, one.what), []).append(one)
        elif one.what == "logged":
            told.setdefault((one.name, one.what), []).append(one)
    for (root, what), found in told.items():
        names = ", ".join(f"{one.name} (LSN {format_lsn(one.lsn)})" for one in found[:_MOST_TOLD])
        more = f" and {len(found) - _MOST_TOLD:,} more" if len(found) > _MOST_TOLD else ""
        yield f"{root}: {_ROWS[what].format(names + more)}. Load the table's rows anew (walreplay load --replace)"


__all__ = ["warnings_of_moved"]

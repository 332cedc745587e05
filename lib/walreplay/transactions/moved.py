"""Partitions that are attached, detached or dropped: their roots' rows are others then, and nothing of it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from walreplay.decode.announcements import Layouts, Moved
from walreplay.lsn import format_lsn
from walreplay.transactions.versions import Versions

_MOST_TOLD: Final = 4

_ROWS: Final = {
    "attached": "the rows that it had before are not in the mirror",
    "detached": "the rows that it had stay in the mirror",
    "dropped": "the rows that it had stay in the mirror",
}


def warnings_of_moved(moved: Sequence[Moved], layouts: Layouts, versions: Versions) -> Iterator[str]:
    """Tell of each root that changes are published under what became of its partitions.

    Args:
        moved: what was announced of partitions and has committed.
        layouts: what is announced by now.
        versions: the relation versions in force.
    """
    told: dict[tuple[str, str], list[Moved]] = {}
    for one in moved:
        above = layouts.ancestors(one.parent)
        # Where partitions are published as themselves, nothing names a root, and their rows stay where they are.
        known = [version for oid in above if (version := versions.known(oid)) is not None]
        if known and not any(map(layouts.is_dropped, above)):
            told.setdefault((known[-1].relation.qualified_name, one.what), []).append(one)
    for (root, what), found in told.items():
        names = ", ".join(f"{one.name} (LSN {format_lsn(one.lsn)})" for one in found[:_MOST_TOLD])
        more = f" and {len(found) - _MOST_TOLD:,} more" if len(found) > _MOST_TOLD else ""
        yield (
            f"{root}: a partition was {what}, {names}{more}: {_ROWS[what]}. Load the table's rows anew "
            "(walreplay load --replace)"
        )


__all__ = ["warnings_of_moved"]

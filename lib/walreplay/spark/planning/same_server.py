"""Whether tables that were all created again since the last run still belong to the same server.

After `pgbench -i`, or when a dump is restored, every table has a new oid.  The same is true on another server, and the
stream does not name its server.  Another server shows only by what one server cannot have done:

- LSNs rise.  Captures whose LSNs fall are refused long before.
- Transaction ids rise, by a counter that wraps around.  A transaction with an id older than one that has committed was
  already running when that one began to write.  One or a few may have been; but not all of a run, if they are many or
  much older.
- The clock does not go back by hours.

This is checked only if it is in doubt: a table's name has passed to a new oid, and no table is used as the ledger knows
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from walreplay.errors import OrderError
from walreplay.outputs import source_oid
from walreplay.spark.planning.placement import Placement, Wanted
from walreplay.transactions.followed import Followed
from walreplay.visible import listed

_MANY: Final = 3
_NAMED: Final = 3


def is_in_doubt(placement: Placement) -> bool:
    """Say whether a run may come from another server, and the configuration does not say otherwise."""
    return not placement.recognised and any(not one.said for one in placement.remade)


def check_followed(placement: Placement, followed: Followed, tables: int) -> None:
    """Refuse a run that must come from another server.

    Args:
        tables: how many the target has.

    Raises:
        OrderError: saying why.
    """
    contradiction = followed.contradiction
    if contradiction is not None:
        raise OrderError(
            f"{_told(placement, tables)} have new oids, no table is heard of as it was, and {contradiction}: the "
            "captures are of another server, or of a restored one",
            remedy="Nothing was applied. Apply the captures of another server to another target; if the tables were "
            "really made anew, say so by on_recreate: replace (their old rows are set aside) or keep",
        )


def warnings_of(placement: Placement, tables: int) -> Iterator[str]:
    """Warn that most of a target's tables were created again."""
    remade = _sources(placement)
    if len(remade) < _MANY or 2 * len(remade) <= tables:
        return
    kept = sum(one.on_recreate == "keep" for one in remade)
    rows = (
        "are kept" if kept == len(remade) else "are set aside, in the ledger" if not kept else "are set aside or kept"
    )
    yield (
        f"{_told(placement, tables)} were dropped and created again, or other ones took their names; their old rows "
        f"{rows}. If these are captures of another server, they belong to another target"
    )


def _sources(placement: Placement) -> list[Wanted]:
    """Give one table of each relation whose tables were made again."""
    found: dict[int, Wanted] = {}
    for one in sorted(placement.remade, key=lambda one: one.oid):
        found.setdefault(source_oid(one.oid), one)
    return list(found.values())


def _told(placement: Placement, tables: int) -> str:
    names = sorted(one.name for one in _sources(placement))
    return f"{len(names)} of {tables} tables ({listed(names, _NAMED)})"


__all__ = ["check_followed", "is_in_doubt", "warnings_of"]

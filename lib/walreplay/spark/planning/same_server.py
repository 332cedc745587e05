"""Whether the tables that were made anew since the last run may be the same server's.

`pgbench -i`, a restored dump and a rebuilt schema give every table a new oid, and so does another server.  The stream
names no server.  What shows that it is another one is what one server cannot have done.  Its LSNs rise: captures whose
LSNs fall are refused long before.  So do its transaction ids, by a counter that wraps around: a transaction with an id
before that of one which has committed already was under way when that one began to write.  One may have been, and a
few; but not all that a run brings, where they are many or lie far back.  And its clock does not go back by hours.

That is looked at only where it is in doubt: a table's name has passed to a new oid, and no table is used as the
ledger knows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from walreplay.errors import OrderError
from walreplay.spark.planning.placement import Placement
from walreplay.transactions.followed import Followed

_MANY: Final = 3
_NAMED: Final = 3


def is_in_doubt(placement: Placement) -> bool:
    """Say whether a run may be of another server, and nobody has said that its tables were made anew."""
    return not placement.recognised and any(not one.said for one in placement.remade)


def check_followed(placement: Placement, followed: Followed, tables: int) -> None:
    """Refuse a run that must be of another server.

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
    """Say that most of a target's tables were made anew."""
    remade = placement.remade
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


def _told(placement: Placement, tables: int) -> str:
    names = sorted(one.name for one in placement.remade)
    more = ", …" if len(names) > _NAMED else ""
    return f"{len(names)} of {tables} tables ({', '.join(names[:_NAMED])}{more})"


__all__ = ["check_followed", "is_in_doubt", "warnings_of"]

"""The last truncate of each relation, as far as it is known whether it commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from walreplay.decode.place import Place
from walreplay.decode.summary import Summary, TruncateAt
from walreplay.transactions.plan import TruncatePosition


class Truncates:
    """Each relation's last truncates of two transactions: the last one may be open where the captures end."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[TruncateAt, ...]] = {}

    def note(self, at: TruncateAt) -> None:
        """Take up a truncate."""
        last: dict[int, TruncateAt] = {}
        for known in (*self._last.get(at.oid, ()), at):
            lsn = -1 if known.lsn is None else known.lsn
            if lsn not in last or last[lsn].ordinal < known.ordinal:
                last[lsn] = known
        self._last[at.oid] = tuple(last[lsn] for lsn in sorted(last)[-2:])

    def take(self, summary: Summary, before: Place, wants_origin: Callable[[str | None], bool]) -> None:
        """Take up the truncates of a part's ordinary transactions.

        Args:
            before: the place at the part's start.
            wants_origin: says whether transactions of an origin count.
        """
        for truncate in summary.truncates:
            at = _position_of(truncate, before)
            if wants_origin(at.origin):
                self.note(at)

    def forget(self, lsn: int) -> None:
        """Forget those of a transaction that has not ended, and comes again from its start."""
        for oid, known in self._last.items():
            self._last[oid] = tuple(at for at in known if at.lsn != lsn)

    def committed(self, after_lsn: int, upto_lsn: int) -> Iterator[TruncatePosition]:
        """Give the last truncate of each relation that has any, of the transactions between two commit LSNs."""
        for known in self._last.values():
            at = max(
                (at for at in known if at.lsn is not None and after_lsn < at.lsn <= upto_lsn),
                key=lambda at: (at.lsn, at.ordinal),
                default=None,
            )
            if at is not None and at.lsn is not None:
                yield TruncatePosition(at.oid, at.lsn, at.ordinal)


def _position_of(truncate: TruncateAt, place: Place) -> TruncateAt:
    """Give a truncate's place in its transaction, where that began before the stretch."""
    open_ = place.transaction
    if truncate.lsn is not None or open_ is None:
        return truncate
    return TruncateAt(truncate.oid, open_.final_lsn, open_.ordinal + truncate.ordinal, open_.origin)


__all__ = ["Truncates"]

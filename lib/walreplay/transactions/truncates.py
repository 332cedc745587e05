"""The last committed truncate of each relation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from walreplay.decode.place import Place
from walreplay.decode.summary import Summary, TruncateAt
from walreplay.transactions.plan import TruncatePosition


class Truncates:
    """The last truncate of each relation in its last two transactions that truncate it.

    Two are needed because the last transaction may be open where the captures end.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[TruncateAt, ...]] = {}

    def note(self, at: TruncateAt) -> None:
        """Add a truncate."""
        last: dict[int, TruncateAt] = {}
        for known in (*self._last.get(at.oid, ()), at):
            lsn = -1 if known.lsn is None else known.lsn
            if lsn not in last or last[lsn].ordinal < known.ordinal:
                last[lsn] = known
        self._last[at.oid] = tuple(last[lsn] for lsn in sorted(last)[-2:])

    def take(self, summary: Summary, before: Place, wants_origin: Callable[[str | None], bool]) -> None:
        """Add the truncates of a part's ordinary transactions.

        Args:
            before: the place at the part's start.
            wants_origin: says whether transactions of an origin count.
        """
        for truncate in summary.truncates:
            at = _position_of(truncate, before)
            if wants_origin(at.origin):
                self.note(at)

    def forget(self, lsn: int) -> None:
        """Remove the truncates of a transaction that has not ended and will be read again from its start."""
        for oid, known in self._last.items():
            self._last[oid] = tuple(at for at in known if at.lsn != lsn)

    def committed(self, after_lsn: int, upto_lsn: int) -> Iterator[TruncatePosition]:
        """Give each relation's last truncate in transactions above one commit LSN and up to another."""
        for known in self._last.values():
            at = max(
                (at for at in known if at.lsn is not None and after_lsn < at.lsn <= upto_lsn),
                key=lambda at: (at.lsn, at.ordinal),
                default=None,
            )
            if at is not None and at.lsn is not None:
                yield TruncatePosition(at.oid, at.lsn, at.ordinal)


def _position_of(truncate: TruncateAt, place: Place) -> TruncateAt:
    """Give a truncate with its LSN and its ordinal in the transaction, even if that began before the stretch."""
    open_ = place.transaction
    if truncate.lsn is not None or open_ is None:
        return truncate
    return TruncateAt(truncate.oid, open_.final_lsn, open_.ordinal + truncate.ordinal, open_.origin)


__all__ = ["Truncates"]

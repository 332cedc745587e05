"""What has become of a transaction whose rows came before it was decided."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fate:
    """How to decode a part of a streamed or prepared transaction, which is known to have committed.

    Attributes:
        ordinal: the ordinal of the part's first remaining row change.
        aborted: the subtransactions that have rolled back, sorted.
        applied: its rows are given.  Otherwise they are only compared with those of the first copy, or left out.
        session: the number of the session in which it has committed.
        resent: it is a copy of a transaction that is known already.
    """

    xid: int
    gid: str | None
    commit_lsn: int
    commit_time: int
    ordinal: int
    aborted: tuple[int, ...]
    applied: bool
    session: int = 0
    origin: str | None = None
    resent: bool = False


__all__ = ["Fate"]

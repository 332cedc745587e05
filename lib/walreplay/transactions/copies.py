"""Transactions that come again: whether the copies agree.

A transaction is its commit LSN, xid and commit time.  Copies have to agree in these, in how many row changes they
have, and in the changes' digests (`decode.walk`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from walreplay.decode.decoder import Recorded
from walreplay.errors import OrderError
from walreplay.lsn import format_lsn
from walreplay.transactions.plan import DecidedTransaction


@dataclass(slots=True)
class _Copy:
    commit_time: int
    xid: int
    rows: int
    digest: int
    path: str
    at: int
    complete: bool = True


class Copies:
    """The copies of all transactions of some files, for those that are decoded without a ledger.

    Args:
        decided: the streamed and prepared ones.
        after_lsn: up to there an earlier run has read; the first copies are not among these files.
    """

    def __init__(self, decided: Iterable[DecidedTransaction], after_lsn: int) -> None:
        self._after_lsn = after_lsn
        self._found: dict[int, dict[int, _Copy]] = {}
        for item in decided:
            copies = self._found.setdefault(item.commit_lsn, {})
            copies[item.session] = _Copy(
                item.commit_time, item.xid, 0, 0, item.path, item.offset, complete=item.complete
            )

    def add(self, recorded: Iterable[Recorded]) -> None:
        """Add what was decoded."""
        for item in recorded:
            records = item.records
            columns = zip(
                records.lsn.tolist(),
                records.commit_ts.tolist(),
                records.xid.tolist(),
                records.rows.tolist(),
                records.digest.tolist(),
                records.at.tolist(),
                strict=True,
            )
            for lsn, time, xid, rows, digest, at in columns:
                copies = self._found.setdefault(lsn, {})
                copy = copies.setdefault(item.session, _Copy(time, xid, 0, 0, item.path, at))
                copy.rows += rows
                copy.digest ^= digest

    def check(self) -> None:
        """Refuse copies that differ, and transactions that come late.

        Raises:
            OrderError: naming the transaction and its file.
        """
        high = -1
        for session, lsn, copy in sorted(
            ((session, lsn, copy) for lsn, copies in self._found.items() for session, copy in copies.items()),
            key=lambda item: item[:2],
        ):
            first = min(self._found[lsn])
            if session == first:
                if self._after_lsn < lsn < high and copy.rows:
                    raise unknown(lsn, copy.xid, copy.path, copy.at)
                high = max(high, lsn)
                continue
            known = self._found[lsn][first]
            same = (copy.xid, copy.commit_time) == (known.xid, known.commit_time)
            if copy.complete and known.complete:
                same = same and (copy.rows, copy.digest) == (known.rows, known.digest)
            if not same:
                raise differing(lsn, copy.xid, copy.path, copy.at)


def unknown(lsn: int, xid: int, path: str, at: int) -> OrderError:
    """Make the error for a transaction below what is applied that is not known."""
    return OrderError(
        f"transaction {xid} (commit LSN {format_lsn(lsn)}) lies below what was read before, but was not among it: "
        "the file came late, or it is of another slot, another server or another timeline",
        path=path,
        offset=max(at, 0),
        remedy="Keep the files of one slot in one folder, named so that they sort by time; what came late can be "
        "applied to a new target together with all else",
    )


def differing(lsn: int, xid: int, path: str, at: int) -> OrderError:
    """Make the error for a transaction that has come again as another."""
    return OrderError(
        f"transaction {xid} (commit LSN {format_lsn(lsn)}) comes again, but differs from its first copy: "
        "the file is of another slot or timeline, or was recorded with other settings, or is damaged",
        path=path,
        offset=max(at, 0),
        remedy="Keep the files of one slot and one set of plugin options in one folder",
    )

"""Compare copies of transactions, which a server sends again after a reconnect.

Copies have the same commit LSN.  They have to agree in xid and commit time, in the number of their row changes, and in
the changes' digests (`decode.walk`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from walreplay.decode.recorded import Recorded
from walreplay.errors import OrderError
from walreplay.lsn import format_lsn
from walreplay.transactions.plan import DecidedTransaction


def check_copies(decided: Iterable[DecidedTransaction], after_lsn: int, recorded: Iterable[Recorded]) -> None:
    """Refuse copies that differ, and transactions that come too late, in files that are decoded without a ledger.

    Args:
        decided: the streamed and prepared transactions that have committed.
        after_lsn: transactions up to this commit LSN are in files that are not read here.
        recorded: what was recorded of all transactions during the decode.

    Raises:
        OrderError: naming the transaction and its file.
    """
    found: dict[int, dict[int, _Copy]] = {}
    for one in decided:
        copies = found.setdefault(one.commit_lsn, {})
        copies[one.session] = _Copy(one.commit_time, one.xid, 0, 0, one.path, one.offset, complete=one.complete)
    for item in recorded:
        _add(found, item)
    high = -1
    for session, lsn, copy in sorted(
        ((session, lsn, copy) for lsn, copies in found.items() for session, copy in copies.items()),
        key=lambda item: item[:2],
    ):
        first = min(found[lsn])
        if session == first:
            if after_lsn < lsn < high and copy.rows:
                raise unknown(lsn, copy.xid, copy.path, copy.at)
            high = max(high, lsn)
            continue
        known = found[lsn][first]
        same = (copy.xid, copy.commit_time) == (known.xid, known.commit_time)
        if copy.complete and known.complete:
            same = same and (copy.rows, copy.digest) == (known.rows, known.digest)
        if not same:
            raise differing(lsn, copy.xid, copy.path, copy.at)


@dataclass(slots=True)
class _Copy:
    commit_time: int
    xid: int
    rows: int
    digest: int
    path: str
    at: int
    complete: bool = True


def _add(found: dict[int, dict[int, _Copy]], item: Recorded) -> None:
    """Add recorded transactions to the copies found so far, which are sorted by commit LSN and session."""
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
        copies = found.setdefault(lsn, {})
        copy = copies.setdefault(item.session, _Copy(time, xid, 0, 0, item.path, at))
        copy.rows += rows
        copy.digest ^= digest


def unknown(lsn: int, xid: int, path: str, at: int) -> OrderError:
    """Make the error for a transaction that is new, but has a commit LSN up to which all was applied already."""
    return OrderError(
        f"transaction {xid} (commit LSN {format_lsn(lsn)}) lies below what was read before, but was not among it: "
        "the file came late, or it is of another slot, another server or another timeline",
        path=path,
        offset=max(at, 0),
        remedy="Keep the files of one slot in one folder, named so that they sort by time; what came late can be "
        "applied to a new target together with all else",
    )


def differing(lsn: int, xid: int, path: str, at: int) -> OrderError:
    """Make the error for a copy of a transaction that differs from the first one."""
    return OrderError(
        f"transaction {xid} (commit LSN {format_lsn(lsn)}) comes again, but differs from its first copy: "
        "the file is of another slot or timeline, or was recorded with other settings, or is damaged",
        path=path,
        offset=max(at, 0),
        remedy="Keep the files of one slot and one set of plugin options in one folder",
    )


def lost(count: int, lsn: int, xid: int, path: str, at: int) -> str:
    """Make the warning of transactions that do not come again though those around them do.

    Args:
        count: how many; the first of them has the commit LSN and the xid.
        path, at: where the session begins that lacks them.
    """
    more = f" and {count - 1:,} more" if count > 1 else ""
    return (
        f"{path}, offset {max(at, 0):,}: what is sent again from here on lacks the transaction {xid} (commit LSN "
        f"{format_lsn(lsn)}){more}, which came before: the server has lost {'them' if more else 'it'} (a standby that "
        "was behind has taken its place), or other publications or options are asked for. In the first case load the "
        "tables' rows anew (walreplay load --replace)"
    )

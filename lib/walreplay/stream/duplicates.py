"""Bytes or transactions that come twice, and captures of another server.

A server sends transactions again after a reconnect, in a session of its own.  Copies have the same commit LSN, and have
to agree in xid and commit time, in the number of their row changes, and in the changes' digests (`agree`).

In one session the same bytes come once: a second file with them (`DuplicateFiles`), left by a recorder that connects
again, or by a copy by mistake, would bring its rows twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from typing import Final

from walreplay.decode.decoder import Recorded
from walreplay.decode.kernels.rows import BINARY_VALUES, SHAPE, TEXT_VALUES
from walreplay.decode.proof import Proof
from walreplay.decode.summary import Block, Body, FileScan, Part, Summary
from walreplay.decode.walk import Place
from walreplay.errors import CaptureError, OrderError
from walreplay.lsn import format_lsn
from walreplay.stream.plan import DecidedTransaction, Deferred


def check_copies(decided: Iterable[DecidedTransaction], after_lsn: int, recorded: Iterable[Recorded]) -> None:
    """Refuse copies that differ, and transactions that come too late, in files that are decoded without a ledger.

    Args:
        decided: the streamed and prepared transactions that have committed.
        after_lsn: transactions up to this commit LSN are in files that are not read here.
        recorded: what was recorded of all transactions during the decode.

    Raises:
        OrderError: naming the transaction and its file.
    """
    copies_by_lsn: dict[int, dict[int, _Copy]] = {}
    for commit in decided:
        copy = _Copy(commit.commit_time, commit.xid, 0, 0, commit.path, commit.offset, commit.complete)
        copies_by_lsn.setdefault(commit.commit_lsn, {})[commit.session] = copy
    for records in recorded:
        _add(copies_by_lsn, records)  # counts and digests are only in the records
    high = -1
    for session, lsn, copy in sorted(  # as they were sent: LSNs rise in each session
        ((session, lsn, copy) for lsn, copies in copies_by_lsn.items() for session, copy in copies.items()),
        key=lambda entry: entry[:2],
    ):
        first_session = min(copies_by_lsn[lsn])
        if session == first_session:
            # A slot sends in commit order, so this one came late; nothing is lost by one without rows.
            if after_lsn < lsn < high and copy.rows:
                raise unknown(lsn, copy.xid, copy.path, copy.offset)
            high = max(high, lsn)
            continue
        first_copy = copies_by_lsn[lsn][first_session]
        is_same = (copy.xid, copy.commit_time) == (first_copy.xid, first_copy.commit_time)
        if copy.complete and first_copy.complete:  # a Commit Prepared may come again without its rows
            is_same = is_same and copy.rows == first_copy.rows and agree(copy.digest, first_copy.digest)
        if not is_same:
            raise differing(lsn, copy.xid, copy.path, copy.offset)


@dataclass(slots=True)
class _Copy:
    commit_time: int
    xid: int
    rows: int
    digest: int
    path: str
    offset: int
    complete: bool = True


def _add(copies_by_lsn: dict[int, dict[int, _Copy]], recorded: Recorded) -> None:
    """Add recorded transactions to the copies found so far, which are sorted by commit LSN and session."""
    for lsn, time, xid, rows, digest, _, offset in recorded.records.tolist():
        copies = copies_by_lsn.setdefault(lsn, {})
        copy = copies.setdefault(recorded.session, _Copy(time, xid, 0, 0, recorded.path, offset))
        copy.rows += rows
        copy.digest ^= digest  # a transaction may have several records, in any order


_OF_FORMATS: Final = (TEXT_VALUES, BINARY_VALUES)


def agree(digest: int, other: int) -> bool:
    """Return whether copies with these digests may be of one transaction, each sent under settings of its own.

    Values are compared if both copies have them in the same format.
    """
    differs = digest ^ other
    # A part that is 0 has no values of its format: that session had them sent in the other one.
    return not differs & SHAPE and not any(differs & part and digest & part and other & part for part in _OF_FORMATS)


def verdict_in_sql(copy: str, late: str) -> str:
    """Write in SQL what `check_copies` asks: a key of `VERDICTS`, NULL where nothing is wrong.

    Args:
        copy: what stands in front of a copy's columns; those of its first copy are fields of ``first``.
        late: whether a first copy has a commit LSN up to which all was there already.
    """
    digest, other = f"{copy}digest", "first.digest"
    of_formats = (  # 0 IN (…): both are equal, or one has no values of this format
        f"0L IN (({digest} ^ {other}) & {part}L, {digest} & {part}L, {other} & {part}L)" for part in _OF_FORMATS
    )
    agree = " AND ".join((f"({digest} ^ {other}) & {SHAPE}L = 0L", *of_formats))
    # A copy that is not complete has a part of the changes, and no digest of all.
    same = (
        f"{copy}xid = first.xid AND {copy}commit_ts = first.commit_ts AND "
        f"(NOT {copy}complete OR NOT first.complete OR ({copy}changes = first.changes AND {agree}))"
    )
    return (
        f"CASE WHEN {copy}session = first.session THEN CASE WHEN {late} AND {copy}changes > 0 THEN 'unknown' END "
        f"WHEN NOT ({same}) THEN 'differs' END"
    )


def unknown(lsn: int, xid: int, path: str, offset: int) -> OrderError:
    """Make the error for a transaction that is new, but has a commit LSN up to which all was applied already."""
    return OrderError(
        f"transaction {xid} (commit LSN {format_lsn(lsn)}) lies below what was read before, but was not among it: "
        "the file came late, or it is of another slot, another server or another timeline",
        path=path,
        offset=max(offset, 0),
        remedy="Keep the files of one slot in one folder, named so that they sort by time; what came late can be "
        "applied to a new target together with all else",
    )


def differing(lsn: int, xid: int, path: str, offset: int) -> OrderError:
    """Make the error for a copy of a transaction that differs from the first one."""
    return OrderError(
        f"transaction {xid} (commit LSN {format_lsn(lsn)}) comes again, but differs from its first copy: "
        "the file is of another slot, timeline or set of publications, or one of the copies is damaged",
        path=path,
        offset=max(offset, 0),
        remedy="Restore what is damaged; or move the files of the other slot, or with the other publications, to a "
        "folder of their own, and apply them to a target of their own",
    )


VERDICTS: Final = {"unknown": unknown, "differs": differing}


def lost(count: int, lsn: int, xid: int, path: str, offset: int) -> str:
    """Make the warning of transactions that do not come again though those around them do.

    Args:
        count: how many; the first of them has the commit LSN and the xid.
        path, offset: where the session begins that lacks them.
    """
    others = f" and {count - 1:,} more" if count > 1 else ""
    return (
        f"{path}, offset {max(offset, 0):,}: what is sent again from here on lacks the transaction {xid} (commit LSN "
        f"{format_lsn(lsn)}){others}, which came before: the server has lost {'them' if others else 'it'} (a standby "
        "that was behind has taken its place), or other publications or options are asked for. In the first case load "
        "the tables' rows anew (docs/starting.md: walreplay load --replace --from COPY)"
    )


XIDS: Final = 1 << 32
"""Transaction ids are counted modulo this; an id is later than another if it is less than half of this ahead of it."""

_UNDER_WAY: Final = 2
"""So few transactions can all have begun before the last run's last one, and therefore have earlier ids."""

_FAR: Final = 1 << 20
"""An id that lies so far back cannot be a long transaction's: so busy a server would have sent others with it."""

_CLOCK: Final = timedelta(hours=1)  # A server's clock is not set back by more than this


@dataclass(frozen=True, slots=True)
class Followed:
    """A run's transactions compared with the last one in the ledger.

    Attributes:
        transactions: their number, without prepared ones, whose ids may be old.
        newest: the newest id minus the last transaction's, below 0 if it is older.
        later: the newest commit time minus the last transaction's; None if some commit times come from an origin.
    """

    transactions: int
    newest: int
    later: timedelta | None

    @property
    def contradiction(self) -> str | None:
        """Why both cannot come from one server, for an error; None if they can."""
        if self.transactions and self.later is not None and self.later < -_CLOCK:
            return f"all its transactions have committed {-self.later} or more before the last run's last one"
        if self.newest < 0 and (self.transactions > _UNDER_WAY or self.newest < -_FAR):
            return f"the transaction ids of all its {self.transactions:,} transactions lie before that of the last run"
        return None


_LEAST: Final = 64  # Shorter files may be equal by chance


class DuplicateFileError(OrderError):
    """The same bytes lie under two names."""


class DuplicateFiles:
    """The files of a stream, by what is in them, each with the session that it ends in.

    Attributes:
        indexed: those that an index tells of.
    """

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], tuple[str, int]] = {}
        self.indexed: Mapping[Proof, tuple[str, int]] = {}

    def check(
        self, scan: FileScan, parts: tuple[Part, ...], place: Place | None, tail: int, streams: Mapping[int, Deferred]
    ) -> None:
        """Check that the session that a file continues has not had the same bytes.

        Args:
            parts: of the file, as they are joined.
            place: where the file before it ends.
            tail: how many bytes were left of the files before.
            streams: the streamed transactions that are open there, by xid.

        Raises:
            DuplicateFileError: it has.
        """
        earlier = self._earlier(scan)
        if earlier is None:
            return
        session = 0 if place is None else place.session
        for part, behind in zip_longest(parts, parts[1:]):
            session += part.new_session
            if part.data is not None and part.base + part.summary.stop <= tail:  # it ends in front of this file
                # It is of the files before.
                continue
            # What stands in front of a session that only a commit LSN shows may belong to it already.
            loses_rows = bool(part.summary.counts or part.summary.messages) and not _begins_anew(part.summary, streams)
            if loses_rows and not (behind is not None and behind.shown_by_lsn_only):
                break
        else:
            # Nothing, as idle writers leave it, or the middle of a message, whose length proves enough.
            return
        if session <= earlier[1]:  # a later session may have the same bytes: a server repeats what was not confirmed
            raise _duplicate(scan.path, earlier[0])

    def add(self, scan: FileScan, place: Place | None) -> None:
        """Add a file that was joined, and the place where it ends."""
        self._files[scan.length, scan.fingerprint] = scan.path, 0 if place is None else place.session

    def explain(self, scan: FileScan, error: CaptureError) -> None:
        """Explain why a file does not continue the stream, if its bytes are known.

        Raises:
            DuplicateFileError: they are.
        """
        earlier = self._earlier(scan)
        if earlier is not None:
            raise _duplicate(scan.path, earlier[0]) from error

    def _earlier(self, scan: FileScan) -> tuple[str, int] | None:
        """Return another file with a file's bytes, and its session."""
        earlier = self._files.get((scan.length, scan.fingerprint))
        earlier = earlier or self.indexed.get(Proof(scan.length, scan.checksum))
        return None if earlier is None or earlier[0] == scan.path or scan.length < _LEAST else earlier


def _begins_anew(summary: Summary, streams: Mapping[int, Deferred]) -> bool:
    """Return whether all that is not yet decided begins in the file, with no fewer rows than are known of it."""
    blocks = [item for item in summary.items if isinstance(item, Block)]
    begun, rows = {block.xid for block in blocks if block.first}, Counter[int]()  # a first block begins it again
    for item in summary.items:
        if isinstance(item, Block):
            rows[item.xid] += item.rows.total
        elif not (isinstance(item, Body) and item.begins and item.complete):
            return False
    rows_before = {xid: streams[xid].rows.total for xid in rows if xid in streams}
    return bool(summary.items) and begun == rows.keys() and all(rows_before[xid] <= rows[xid] for xid in rows_before)


def _duplicate(path: str, other: str) -> DuplicateFileError:
    return DuplicateFileError(
        f"the file holds the same bytes as {other}",
        path=path,
        remedy="Remove one of them, or leave it out by `file_pattern`; if the server has sent both (a transaction of "
        "equal rows), join them to one file",
    )

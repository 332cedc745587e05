"""What the walk's kernels work on: the words of its state, and the addresses of its arrays.

Python (`walreplay.decode.walk`) makes the arrays, and reads and writes the state's words by the same numbers.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import helper
from walreplay.decode.kernels.programs import get, put

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Indices into the state vector that the kernel keeps between calls.
(
    POS,  # the offset of the next frame
    STREAM,  # 1 inside a streamed block
    TXN,  # IDLE, OPEN or UNKNOWN_HEAD
    LSN,  # the open transaction's commit LSN
    COMMIT_TS,  # and its time, in microseconds since 2000-01-01
    XID,
    ORDINAL,  # of its next row change
    CHANGES,  # how many rows are in the tile's arrays
    CELLS,  # how many cells: the number of the next one
    MESSAGE,  # where the message begins, behind its frame's header
    LIMIT,  # where its frame ends, or the buffer
    ARGUMENT,  # the oid that has no slot (`NEW_RELATION`)
    TRANSACTIONS,  # how many have ended in a Commit
    MESSAGES,  # how many were walked, without keepalives
    UNCHANGED_CELLS,  # 0 if the tile has none; a row that is walked again is counted again
    LAST_LSN,  # of the session's last commit of any kind
    LAST_COMMIT_TS,
    BEGIN_AT,  # the offset of the open transaction's Begin
    KEEPALIVES,
    FIRST_LSN,  # of the first Commit behind its Begin
    FIRST_COMMIT_TS,
    SKIP,
    HIGH_LSN,
    RESENT,
    PREVIOUS,
    RUN_COUNT,  # how many runs of rows with one xid are counted
    RECORDING,
    RECORDS,  # how many records are filled
    ROWS,
    DIGEST,
    ORIGIN,
    SKIP_LOCAL,
    CLOSED,
    TOP_TIME,
    STOP_LSN,
    STOP_TIME,
    ROW_XID,  # of the last row in a streamed block that was walked singly; the kernel forgets it when it returns
    ROW_ABORTED,  # whether its subtransaction is among those whose rows are left out
) = range(38)
STATE_SIZE: Final = 38
"""The number of words.  Some need an explanation:

- `SKIP`: rows are walked over, but not given (`LEFT_OUT`), or not even counted (`NOT_COUNTED`), because they are copies
  or are decoded where they commit.  `SKIP_LOCAL`: rows of transactions without an origin are left out.
- `HIGH_LSN`: transactions up to this commit LSN are known already; `RESENT`: how many of these have ended.
- `PREVIOUS`: where the last whole message begins.
- `ROWS`, `DIGEST`, `ORIGIN`: of the open transaction, as far as it lies in these bytes.  If `RECORDING` is set, they
  are recorded when it ends.
- `CLOSED`: a session ends with the bytes, so that the last newline may be missing.
- `TOP_TIME`: the greatest commit time so far.
- `STOP_LSN`, `STOP_TIME`: the walk stops in front of a transaction whose commit LSN or time is greater.
"""

# Values of state[TXN].
IDLE: Final = 0
OPEN: Final = 1
UNKNOWN_HEAD: Final = 2
"""The walk's start was guessed: it may lie in a transaction, until a message says so or says not."""

# Values of state[SKIP] beside 0.
LEFT_OUT, NOT_COUNTED = 1, 2

NO_LSN: Final = -1
NO_OFFSET: Final = -1
NO_COMMIT_TIME: Final = np.iinfo(np.int64).min
NO_STOP: Final = np.iinfo(np.int64).max

INSERT, UPDATE, DELETE, TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
KEY, OLD = ord("K"), ord("O")

RECORD_LSN, RECORD_COMMIT_TS, RECORD_XID, RECORD_ROWS, RECORD_DIGEST, RECORD_ORIGIN, RECORD_BEGIN = range(7)
RECORD_WORDS: Final = 7  # The words of a `walreplay.decode.walk.RECORD`

# What is made of the rows: nothing (a scan finds boundaries and counts), or one of these.
ARRAYS: Final = 1
COLUMNS: Final = 2


class WalkArrays(NamedTuple):
    """The arrays of a `walreplay.decode.walk.WalkKernel`."""

    state: NDArray[np.int64]
    oids: NDArray[np.int64]
    slots: NDArray[np.int32]
    layouts: NDArray[np.int64]
    counts: NDArray[np.int64]
    offset: NDArray[np.int32]
    length: NDArray[np.int32]
    rows: NDArray[np.int64]  # of the tile, each with the words of `kernels.programs.ROW_KIND` and those behind it
    aborted: NDArray[np.int64]  # the sorted xids of subtransactions whose rows are left out
    runs: NDArray[np.int64]  # of rows in a streamed block with one xid: the xids, then the numbers of rows
    records: NDArray[np.int64]  # of transactions that have ended


class CellAddresses(NamedTuple):
    """The addresses of a tile's cells."""

    offsets: int
    lengths: int


class WalkedBuffer(NamedTuple):
    """What stays the same throughout a call of the walk; all addresses are numbers."""

    base: int
    last: int  # from this address on there are fewer than 32 bytes to read, so that texts are copied otherwise
    end: int
    tile_end: int
    framing: int
    output: int  # 0, ARRAYS or COLUMNS
    state: int
    marks: int  # of the `walreplay.decode.placing.Placer`
    cells: CellAddresses
    cell_limit: int  # so many leave room for another row
    # What is known of relations: the newest slot of each oid, and what each slot has.
    oids: int
    slots: int
    bucket_mask: int  # the hash table's size is a power of two
    layouts: int  # two words a slot: the number of its columns, and the address of those that depend on settings
    counts: int  # four words a slot: inserts, updates, deletes and truncates
    # What the walk writes beside columns, and how much of each there is room for.
    rows: int
    row_limit: int
    records: int
    record_limit: int
    runs: int
    run_limit: int
    aborted: int
    aborted_count: int


class WalkedTransaction(NamedTuple):
    """What the rows of a transaction have in common."""

    lsn: int
    commit_ts: int
    xid: int


class WalkedRow(NamedTuple):
    """What is known of a row beside its values."""

    tag: int
    ordinal: int
    first_cell: int
    source: int  # as `walreplay.decode.change_batch` reads it: the origin's number above, the message's offset below


class RowBytes(NamedTuple):
    """Where a row change lies: the offsets of its message and of its oid, and its end."""

    message: int
    oid: int
    end: int


class RowTuples(NamedTuple):
    """Where a row's cells lie: its old and its new tuple's first one (-1 for none), and the one behind them.

    `end` is the last tuple's end, or minus an outcome.
    """

    end: int
    old_cell: int
    new_cell: int
    next_cell: int


@helper
def add_to(state, word, count):
    """Add to a word of the state."""
    put(state, word, get(state, word) + count)

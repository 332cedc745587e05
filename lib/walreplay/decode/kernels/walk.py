"""The kernel of the walk: messages, rows and cells one behind the other.

What goes in and out is described where it is made, in `walreplay.decode.walk`; the result is an `Outcome`.  The state's
words are those of `walreplay.decode.kernels.walk_words`.

The walk's state (`frames`: IDLE, OPEN, or UNKNOWN_HEAD behind a guessed start), the next message, and what follows:

====================  =======================  ===============================================================
the walk is           the message is           then
====================  =======================  ===============================================================
IDLE, UNKNOWN_HEAD    Begin                    OPEN; else NOT_AFTER_LAST (its LSN is not above the last commit's),
                                               NO_TIME, or BEHIND (above `STOP_LSN` or `STOP_TIME`)
OPEN, in a stream     Begin                    BEGIN_INSIDE; likewise behind a guessed start, once rows have come
OPEN                  Commit                   IDLE; else COMMIT_MISMATCH (LSN and time are not its Begin's)
UNKNOWN_HEAD          Commit                   HEAD_COMMIT: Python takes it, and the walk is IDLE
IDLE, in a stream     Commit                   OUTSIDE_TRANSACTION
OPEN, UNKNOWN_HEAD    Insert, Update, Delete   the same, a row further
in a stream           Insert, Update, Delete   the same; each brings the xid of its subtransaction
IDLE, in no stream    Insert, Update, Delete   OUTSIDE_TRANSACTION
any                   any other                EVENT: Python takes it (`walreplay.decode.stream`)
====================  =======================  ===============================================================

The messages are those of PostgreSQL's documentation, "Logical Replication Message Formats" (`protocol.messages`).

Three things can be made of the rows (`output`): nothing, which is a scan; arrays that say where they lie (`ARRAYS`:
where some rows are left out, and behind a Truncate until its tile is taken); or values in their columns (`COLUMNS`, by
`walreplay.decode.kernels.place`).  If a row cannot be placed, the walk returns `NOT_PLACED`:
Python makes a program or room, or completes pending rows, and the next walk begins with the same row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64, given, out, record
from walreplay.decode.kernels import frames, programs
from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.base import (
    address_of,
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    load_int32,
    load_int64,
    store_32,
)
from walreplay.decode.kernels.binary import BINARY
from walreplay.decode.kernels.frames import Outcome
from walreplay.decode.kernels.place import forget_tried, may_place, note_old_tuple, place_cells, take_row
from walreplay.decode.kernels.programs import Refusal, get, put
from walreplay.decode.kernels.rows import (
    count_row,
    digest_of,
    layout_of,
    place_rows_ahead,
    skip_rows_ahead,
    slot_of,
    walk_tuple,
)
from walreplay.protocol.messages import MAX_COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray


@helper
def _walk(walk):  # type: ignore[no-untyped-def]
    """Walk until Python has something to do; return the `Outcome`."""
    base = walk.base
    put(walk.state, words.ROW_XID, np.int64(-1))  # Python may have taken the runs: the next row begins one
    outcome = np.int64(Outcome.GO_ON)
    while outcome == Outcome.GO_ON:
        outcome = _reason_to_stop(walk)
        if outcome != Outcome.GO_ON:
            break
        payload = frames.message_at(base, get(walk.state, words.POS), walk.end, walk.framing)
        if payload.outcome == Outcome.KEEPALIVE:
            _step_to(walk, payload.end + frames.trailer_size(walk.framing))
            words.add_to(walk.state, words.KEEPALIVES, 1)
            continue
        put(walk.state, words.MESSAGE, payload.start)
        put(walk.state, words.LIMIT, payload.end)
        outcome = payload.outcome
        if outcome != Outcome.GO_ON:  # an `EVENT` is a pgcopy header or trailer, over which Python steps
            break
        tag = load_byte(base + payload.start)
        if tag == 73 or tag == 85 or tag == 68:  # I U D
            if _take_rows_ahead(walk) == 0:
                outcome = _take_row(walk, payload, tag)
        elif tag == 66:  # B
            outcome = _take_begin(walk, payload)
        elif tag == 67:  # C
            outcome = _take_commit(walk, payload)
        else:
            outcome = np.int64(Outcome.EVENT)
        if outcome == Outcome.INCOMPLETE and walk.framing & frames.SIZED:
            # The frame is there as a whole: more bytes will not mend a message that does not fit in it.
            outcome = np.int64(Outcome.OVERRUN)
    if walk.output == words.COLUMNS:
        # The values of a row that was not taken are looked at again when it is.
        forget_tried(walk.marks)
    return outcome


@helper
def _reason_to_stop(walk):  # type: ignore[no-untyped-def]
    """Return why no message can be taken now, `DONE`, `TILE` or `RUNS`; or `GO_ON`."""
    pos = get(walk.state, words.POS)
    if pos >= walk.end:
        return np.int64(Outcome.DONE)
    if pos >= walk.tile_end:
        return np.int64(Outcome.TILE)
    if walk.output != 0:  # a scan makes no records either
        # A tile of very short rows may have more than the arrays hold.
        if get(walk.state, words.CELLS) > walk.cell_limit or get(walk.state, words.RECORDS) >= walk.record_limit:
            return np.int64(Outcome.TILE)
        if walk.output == words.ARRAYS and get(walk.state, words.CHANGES) >= walk.row_limit:
            return np.int64(Outcome.TILE)
    if _counts_xids(walk) and get(walk.state, words.RUN_COUNT) >= walk.run_limit:
        return np.int64(Outcome.RUNS)
    return np.int64(Outcome.GO_ON)


@helper
def _counts_xids(walk):  # type: ignore[no-untyped-def]
    """Return whether rows are counted by xid: only a scan does, a decode is given the xids that have aborted."""
    return walk.output == 0 and get(walk.state, words.STREAM) != 0


@helper
def _step_to(walk, pos):  # type: ignore[no-untyped-def]
    put(walk.state, words.PREVIOUS, get(walk.state, words.POS))
    put(walk.state, words.POS, pos)


@helper
def _take_rows_ahead(walk):  # type: ignore[no-untyped-def]
    """Take the ordinary rows that come next, and return how many they are."""
    in_stream = get(walk.state, words.STREAM) != 0
    is_open = get(walk.state, words.TXN) != words.IDLE
    if walk.output == words.COLUMNS:
        may_be_placed = walk.aborted_count == 0 if in_stream else is_open
        if may_be_placed and get(walk.state, words.SKIP) == 0:
            return place_rows_ahead(walk)
    elif walk.output == 0:
        # The first row of each xid is walked singly: it begins a new run, which the walk counts.
        is_same_xid = get(walk.state, words.ROW_XID) >= 0 and get(walk.state, words.ROW_ABORTED) == 0
        if is_same_xid if in_stream else is_open:
            count = skip_rows_ahead(walk)
            if in_stream and count > 0:
                _count_run(walk, count)
            return count
    return np.int64(0)


@helper
def _count_run(walk, count):  # type: ignore[no-untyped-def]
    """Count rows for the last run: the runs' xids come first, then their numbers of rows."""
    words.add_to(walk.runs, walk.run_limit + get(walk.state, words.RUN_COUNT) - 1, count)


@helper
def _take_row(walk, payload, tag):  # type: ignore[no-untyped-def]
    """Take a row change: find its relation and its cells, then place it, or write it to the tile's rows."""
    base, message = walk.base, payload.start
    in_stream = get(walk.state, words.STREAM) != 0
    oid_offset = message + 1
    xid = get(walk.state, words.XID)  # it tells runs of streamed rows; rows are given that of their transaction
    if in_stream:
        if oid_offset + 4 > payload.end:
            return np.int64(Outcome.INCOMPLETE)
        xid = load_big_32(base + oid_offset)
        oid_offset += 4
    elif get(walk.state, words.TXN) == words.IDLE:
        return np.int64(Outcome.OUTSIDE_TRANSACTION)
    if oid_offset + 5 > payload.end:
        return np.int64(Outcome.INCOMPLETE)
    oid = load_big_32(base + oid_offset)
    slot = slot_of(walk, oid)
    if slot < 0:
        put(walk.state, words.ARGUMENT, oid)
        return np.int64(Outcome.NEW_RELATION)
    begins_run = in_stream and xid != get(walk.state, words.ROW_XID)
    if begins_run:
        put(walk.state, words.ROW_XID, xid)
        put(walk.state, words.ROW_ABORTED, np.int64(_is_among(walk.aborted, walk.aborted_count, xid)))
    is_aborted = in_stream and get(walk.state, words.ROW_ABORTED) != 0
    program = np.int64(programs.NOT_WANTED)
    if walk.output == words.COLUMNS and get(walk.state, words.SKIP) == 0 and not is_aborted:
        program = get(get(walk.marks, programs.SLOT_PROGRAMS), slot)
        if program != programs.NOT_WANTED:
            refusal = may_place(program, walk.marks)  # of a slot that is `UNSEEN`, too
            if refusal != Refusal.DONE:
                return _refuse(walk, slot, refusal)
    layout = layout_of(walk, slot)
    tuples = _walk_tuples(walk, tag, oid_offset + 4, payload.end, load_int64(layout))
    if tuples.end < 0:
        return -tuples.end
    following = frames.frame_end(base, tuples.end, payload.end, walk.framing, False)
    if following < 0:
        return -following
    # It is whole: take it.
    if _counts_xids(walk):
        if begins_run:
            run = get(walk.state, words.RUN_COUNT)
            put(walk.runs, run, xid)
            put(walk.runs, walk.run_limit + run, np.int64(0))
            put(walk.state, words.RUN_COUNT, run + 1)
        _count_run(walk, 1)
    if not is_aborted:  # ordinals number the rows that remain
        refusal = _use_row(walk, words.RowBytes(message, oid_offset, tuples.end), tuples, tag, slot, program)
        if refusal != Refusal.DONE:
            return _refuse(walk, slot, refusal)
    words.add_to(walk.state, words.MESSAGES, 1)
    _step_to(walk, following)
    return np.int64(Outcome.GO_ON)


@helper
def _is_among(xids, count, xid):  # type: ignore[no-untyped-def]
    """Return whether an xid is among sorted ones, of which the address is given."""
    low, high = np.int64(0), count
    while low < high:
        middle = (low + high) >> 1
        if get(xids, middle) < xid:
            low = middle + 1
        else:
            high = middle
    return low < count and get(xids, low) == xid


@helper
def _refuse(walk, slot, refusal):  # type: ignore[no-untyped-def]
    put(walk.marks, programs.LEFT, np.int64(refusal))
    put(walk.marks, programs.LEFT_SLOT, slot)
    return np.int64(Outcome.NOT_PLACED)


@helper
def _walk_tuples(walk, tag, cursor, payload_end, columns):  # type: ignore[no-untyped-def]
    """Walk a row's tuples, of which the first one's letter is at `cursor`."""
    letter = load_byte(walk.base + cursor)
    cursor += 1
    old_cell = np.int64(-1)
    new_cell = np.int64(-1)
    next_cell = get(walk.state, words.CELLS)
    if tag != 73 and (letter == 75 or letter == 79):  # an update or a delete with K or O
        old_cell = next_cell
        old_end = walk_tuple(walk, cursor, payload_end, columns, next_cell)
        if old_end < 0:
            return words.RowTuples(old_end, old_cell, new_cell, next_cell)
        next_cell += load_big_16(walk.base + cursor)
        cursor = old_end
        if tag == 85:
            if cursor >= payload_end:
                return words.RowTuples(np.int64(-Outcome.INCOMPLETE), old_cell, new_cell, next_cell)
            letter = load_byte(walk.base + cursor)
            cursor += 1
    if tag == 68:
        return words.RowTuples(
            cursor if old_cell >= 0 else np.int64(-Outcome.BAD_TUPLE_TAG), old_cell, new_cell, next_cell
        )
    if letter != 78:  # N
        return words.RowTuples(np.int64(-Outcome.BAD_TUPLE_TAG), old_cell, new_cell, next_cell)
    new_cell = next_cell
    new_end = walk_tuple(walk, cursor, payload_end, columns, next_cell)
    if new_end >= 0:
        next_cell += load_big_16(walk.base + cursor)
    return words.RowTuples(new_end, old_cell, new_cell, next_cell)


@helper
def _use_row(walk, row, tuples, tag, slot, program):  # type: ignore[no-untyped-def]
    """Place or write a row, if its transaction's rows are wanted, and count it; return a `Refusal`."""
    skip = get(walk.state, words.SKIP)
    ordinal = get(walk.state, words.ORDINAL)
    is_recording = get(walk.state, words.RECORDING) != 0
    digest = np.int64(0)
    if is_recording:
        # Before `_fill_unchanged`: what was sent is digested.
        row_cell = get(walk.state, words.CELLS)
        layout, cell_count = layout_of(walk, slot), tuples.next_cell - row_cell
        digest = digest_of(walk.base, walk.cells, row, layout, ordinal, row_cell, cell_count)
    if walk.output != 0 and skip == 0:
        if tag == 85 and tuples.old_cell >= 0:
            _fill_unchanged(walk.cells, tuples)
        lsn, commit_ts = get(walk.state, words.LSN), get(walk.state, words.COMMIT_TS)
        transaction = words.WalkedTransaction(lsn, commit_ts, get(walk.state, words.XID))
        first_cell = tuples.new_cell if tuples.new_cell >= 0 else tuples.old_cell
        change = words.WalkedRow(tag, ordinal, first_cell, get(walk.state, words.ORIGIN) << 32 | row.message)
        if program != programs.NOT_WANTED:
            refusal = place_cells(walk.base, walk.last, program, first_cell, walk.cells, walk.marks)
            if refusal != Refusal.DONE:
                return refusal
            if tuples.new_cell >= 0 and tuples.old_cell >= 0:
                note_old_tuple(program, tuples.old_cell)
            take_row(walk.marks, program, slot, transaction, change)
            put(walk.state, words.CELLS, tuples.next_cell)
        elif walk.output == words.ARRAYS:
            _write_row(walk, tuples, slot, transaction, change)
            put(walk.state, words.CELLS, tuples.next_cell)
    if is_recording:
        words.add_to(walk.state, words.ROWS, 1)
        put(walk.state, words.DIGEST, get(walk.state, words.DIGEST) ^ digest)
    # A scan counts them all; of what was counted before, or will be, nothing says how its relations are used.
    if walk.output == 0 or skip != words.NOT_COUNTED:
        count_row(walk, row.message, slot)
    put(walk.state, words.ORDINAL, ordinal + 1)
    return Refusal.DONE


@helper
def _fill_unchanged(cells, tuples):  # type: ignore[no-untyped-def]
    """Let an update's cells that are unchanged TOAST be those of its old tuple, where that has a value."""
    for i in range(tuples.next_cell - tuples.new_cell):
        new_cell, old_cell = 4 * (tuples.new_cell + i), 4 * (tuples.old_cell + i)
        if load_int32(cells.lengths + new_cell) == -2:
            old_length = load_int32(cells.lengths + old_cell)
            if old_length >= 0 or old_length <= BINARY:
                store_32(cells.lengths + new_cell, old_length)
                store_32(cells.offsets + new_cell, load_int32(cells.offsets + old_cell))


@helper
def _write_row(walk, tuples, slot, transaction, change):  # type: ignore[no-untyped-def]
    row_count = get(walk.state, words.CHANGES)
    row = walk.rows + programs.ROW_BYTES * row_count
    put(row, programs.ROW_KIND, change.tag)
    put(row, programs.ROW_SLOT, slot)
    put(row, programs.ROW_LSN, transaction.lsn)
    put(row, programs.ROW_COMMIT_TS, transaction.commit_ts)
    put(row, programs.ROW_XID, transaction.xid)
    put(row, programs.ROW_ORDINAL, change.ordinal)
    put(row, programs.ROW_PLACE, change.source)
    put(row, programs.ROW_NEW, tuples.new_cell)
    put(row, programs.ROW_OLD, tuples.old_cell)
    put(walk.state, words.CHANGES, row_count + 1)


@helper
def _take_begin(walk, payload):  # type: ignore[no-untyped-def]
    message_end = payload.start + 21
    if message_end > payload.end:
        return np.int64(Outcome.INCOMPLETE)
    txn = get(walk.state, words.TXN)
    # Behind a guessed start, rows without a Begin show that a transaction is open.
    is_inside = txn == words.OPEN or (txn == words.UNKNOWN_HEAD and get(walk.state, words.ORDINAL) > 0)
    if is_inside or get(walk.state, words.STREAM) != 0:
        return np.int64(Outcome.BEGIN_INSIDE)
    following = frames.frame_end(walk.base, message_end, payload.end, walk.framing, False)
    if following < 0:
        return -following
    begin = walk.base + payload.start
    outcome = frames.outcome_of_begin(begin, walk.state)
    if outcome != Outcome.GO_ON:
        return outcome
    lsn = load_big_64(begin + 1)
    # A copy's rows are not counted again.  Rows without an origin may be left out; an Origin message may still follow.
    left_out = np.int64(words.LEFT_OUT) if get(walk.state, words.SKIP_LOCAL) != 0 else np.int64(0)
    skip = np.int64(words.NOT_COUNTED) if lsn <= get(walk.state, words.HIGH_LSN) else left_out
    put(walk.state, words.SKIP, skip)
    put(walk.state, words.TXN, np.int64(words.OPEN))
    put(walk.state, words.LSN, lsn)
    put(walk.state, words.COMMIT_TS, load_big_64(begin + 9))
    put(walk.state, words.XID, load_big_32(begin + 17))
    put(walk.state, words.ORDINAL, np.int64(0))
    put(walk.state, words.ROWS, np.int64(0))
    put(walk.state, words.DIGEST, np.int64(0))
    put(walk.state, words.ORIGIN, np.int64(0))
    put(walk.state, words.BEGIN_AT, get(walk.state, words.POS))
    words.add_to(walk.state, words.MESSAGES, 1)
    _step_to(walk, following)
    return np.int64(Outcome.GO_ON)


@helper
def _take_commit(walk, payload):  # type: ignore[no-untyped-def]
    message_end = payload.start + 26
    if message_end > payload.end:
        return np.int64(Outcome.INCOMPLETE)
    if get(walk.state, words.STREAM) != 0 or get(walk.state, words.TXN) == words.IDLE:
        return np.int64(Outcome.OUTSIDE_TRANSACTION)
    ends_session = get(walk.state, words.CLOSED) != 0
    following = frames.frame_end(walk.base, message_end, payload.end, walk.framing, ends_session)
    if following < 0:
        return -following
    lsn, commit_ts = get(walk.state, words.LSN), get(walk.state, words.COMMIT_TS)
    if lsn == words.NO_LSN:  # the start was guessed, and its Begin lies before it
        return np.int64(Outcome.HEAD_COMMIT)
    commit = walk.base + payload.start
    flags = load_byte(commit + 1)  # unused so far
    if flags != 0 or load_big_64(commit + 2) != lsn or load_big_64(commit + 18) != commit_ts:
        return np.int64(Outcome.COMMIT_MISMATCH)
    if get(walk.state, words.RECORDING) != 0:
        _add_record(walk)
    put(walk.state, words.TXN, np.int64(words.IDLE))
    words.add_to(walk.state, words.TRANSACTIONS, 1)
    put(walk.state, words.LAST_LSN, lsn)
    put(walk.state, words.LAST_COMMIT_TS, commit_ts)
    if lsn <= get(walk.state, words.HIGH_LSN):
        words.add_to(walk.state, words.RESENT, 1)
    else:
        put(walk.state, words.HIGH_LSN, lsn)
    if get(walk.state, words.FIRST_LSN) == words.NO_LSN:
        put(walk.state, words.FIRST_LSN, lsn)
        put(walk.state, words.FIRST_COMMIT_TS, commit_ts)
    words.add_to(walk.state, words.MESSAGES, 1)
    _step_to(walk, following)
    return np.int64(Outcome.GO_ON)


@helper
def _add_record(walk):  # type: ignore[no-untyped-def]
    """Record the transaction that ends here."""
    count = get(walk.state, words.RECORDS)
    record = walk.records + 8 * words.RECORD_WORDS * count
    put(record, words.RECORD_LSN, get(walk.state, words.LSN))
    put(record, words.RECORD_COMMIT_TS, get(walk.state, words.COMMIT_TS))
    put(record, words.RECORD_XID, get(walk.state, words.XID))
    put(record, words.RECORD_ROWS, get(walk.state, words.ROWS))
    put(record, words.RECORD_DIGEST, get(walk.state, words.DIGEST))
    put(record, words.RECORD_ORIGIN, get(walk.state, words.ORIGIN))
    put(record, words.RECORD_BEGIN, get(walk.state, words.BEGIN_AT))
    put(walk.state, words.RECORDS, count + 1)


@helper
def _walk_buffer(buffer, framing, output, arrays, marks):  # type: ignore[no-untyped-def]
    buf, end, tile_end, _ = buffer
    st, oids, slots, layouts, counts, offset, length, rows, aborted, runs, records = arrays
    base = address_of(buf)
    walk = words.WalkedBuffer(
        base,
        base + buf.size - 32,
        end,
        tile_end,
        framing,
        output,
        address_of(st),
        address_of(marks),
        words.CellAddresses(address_of(offset), address_of(length)),
        offset.shape[0] - 2 * MAX_COLUMNS,  # room for the old and the new tuple of one more row
        address_of(oids),
        address_of(slots),
        oids.shape[0] - 1,
        address_of(layouts),
        address_of(counts),
        address_of(rows),
        rows.shape[0],
        address_of(records),
        records.shape[0],
        address_of(runs),
        runs.shape[1],
        address_of(aborted),
        aborted.shape[0],
    )
    return _walk(walk)


class FramedBuffer(NamedTuple):
    """The bytes, up to where they are read and up to where the tile goes, and the framing's code."""

    buf: NDArray[np.uint8]
    end: int
    tile_end: int
    framing: int


@kernel(
    record(FramedBuffer, BYTES, INT64, INT64, INT64),
    INT64,
    record(
        words.WalkArrays,
        out("int64"),
        *(given("int64"), given("int32"), given("int64", ndim=2), out("int64", ndim=2)),
        *(out("int32"), out("int32"), out("int64", ndim=2)),
        *(given("int64"), out("int64", ndim=2), out("int64", ndim=2)),
    ),
    out("int64"),
)
def walk_messages(buffer, output, arrays, marks):  # type: ignore[no-untyped-def]
    """Walk a buffer from ``state[POS]`` on; see `walreplay.decode.walk` for what the state and the arrays are."""
    framing = buffer.framing
    # Each is compiled for itself: what stays the same throughout is not asked for every message.
    if output == words.COLUMNS:
        if framing == frames.RAW:
            return _walk_buffer(buffer, frames.RAW, words.COLUMNS, arrays, marks)
        return _walk_buffer(buffer, framing, words.COLUMNS, arrays, marks)
    if output == words.ARRAYS:
        return _walk_buffer(buffer, framing, words.ARRAYS, arrays, marks)
    if framing == frames.RAW:
        return _walk_buffer(buffer, frames.RAW, 0, arrays, marks)
    return _walk_buffer(buffer, framing, 0, arrays, marks)

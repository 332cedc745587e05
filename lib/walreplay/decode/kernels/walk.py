"""The kernel of the walk: messages, rows and cells one behind the other.

What goes in and out is described where it is made, in `walreplay.decode.walk`: the state's words by their numbers
there (`POS` is ``st[0]``, and so on), and an `Outcome` as the result.

The walk's state (`frames`: IDLE, OPEN, or UNKNOWN_HEAD behind a guessed start), the next message, and what follows:

====================  =======================  ===============================================================
the walk is           the message is           then
====================  =======================  ===============================================================
IDLE, UNKNOWN_HEAD    Begin                    OPEN, if its LSN is behind the last commit's: NOT_AFTER_LAST; and not
                                               where the walk is to stop: BEHIND
OPEN, in a stream     Begin                    BEGIN_INSIDE; likewise behind a guessed start, once rows have come
OPEN                  Commit                   IDLE, if LSN and time are its Begin's: COMMIT_MISMATCH
UNKNOWN_HEAD          Commit                   HEAD_COMMIT: Python takes it, and the walk is IDLE
IDLE, in a stream     Commit                   OUTSIDE_TRANSACTION
OPEN, UNKNOWN_HEAD    Insert, Update, Delete   the same, a row further
in a stream           Insert, Update, Delete   the same; each brings the xid of its subtransaction
IDLE                  Insert, Update, Delete   OUTSIDE_TRANSACTION
any                   any other                EVENT: Python takes it (`walreplay.decode.stream`)
====================  =======================  ===============================================================

The messages are those of PostgreSQL's documentation, "Logical Replication Message Formats" (`protocol.messages`).

Three things can be made of the rows (`want`): nothing, arrays that say where they lie (`ARRAYS`), or values in their
columns (`COLUMNS`, by `walreplay.decode.kernels.place`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64, given, out
from walreplay.decode.kernels import programs as words
from walreplay.decode.kernels.base import address_of, load_big_16, load_big_32, load_big_64, load_byte, load_int64
from walreplay.decode.kernels.frames import (
    BAD_FRAME,
    BAD_TUPLE_TAG,
    BEGIN_INSIDE,
    COMMIT_MISMATCH,
    DONE,
    EVENT,
    HEAD_COMMIT,
    IDLE,
    INCOMPLETE,
    LENGTH,
    NEW_RELATION,
    NO_NEWLINE,
    NOT_PLACED,
    OPEN,
    OUTSIDE_TRANSACTION,
    OVERRUN,
    PGCOPY,
    RUNS,
    TILE,
    UNDERRUN,
    UNKNOWN_HEAD,
    WALSENDER,
    copy_row_fits,
    copy_row_head,
    header_size,
    length_at,
    outcome_of_begin,
)
from walreplay.decode.kernels.place import forget_tried, may_place, note_before, place_cells, take_row
from walreplay.decode.kernels.programs import get, put
from walreplay.decode.kernels.rows import count_row, digest_of, place_rows_ahead, skip_rows_ahead, slot_of, walk_tuple
from walreplay.protocol.messages import MAX_COLUMNS

ARRAYS: Final = 1
COLUMNS: Final = 2


@helper
def _walk_buffer(buf, end, tile_end, framing, want, arrays):  # type: ignore[no-untyped-def]
    st, hash_oids, hash_slots, slot_columns, slot_counts, aborted = arrays[:6]
    offset, length, changed, runs, records, programs, touched, misses, marks = arrays[6:]
    base = address_of(buf)
    last = base + buf.size - 32
    unchanged = address_of(st) + 14 * 8
    program_of, touching = address_of(programs), address_of(touched)
    missing, marking = address_of(misses), address_of(marks)
    offsets, lengths, arranged = address_of(offset), address_of(length), address_of(changed)
    counts, columns_of = address_of(slot_counts), address_of(slot_columns)
    known_oids, known_slots = address_of(hash_oids), address_of(hash_slots)
    pos = st[0]
    # What is used for every message lies in registers: the compiler cannot know that no array overlaps the state.
    txn = st[2]
    lsn = st[3]
    commit_ts = st[4]
    txn_xid = st[5]
    ordinal = st[6]
    message = st[9]
    limit = st[10]
    transactions = st[12]
    messages = st[13]
    last_lsn = st[15]
    last_ts = st[16]
    begin_at = st[17]
    keepalives = st[18]
    first_lsn = st[19]
    first_ts = st[20]
    skip = st[21]
    high_lsn = st[22]
    resent = st[23]
    previous = st[24]
    run_count = st[25]
    record_count = st[27]
    rows = st[28]
    digest = st[29]
    origin = st[30]
    in_stream = st[1]
    changes = st[7]
    cells = st[8]
    max_changes = changed.shape[0]
    most_records = records.shape[0]
    max_cells = offset.shape[0] - 2 * MAX_COLUMNS
    mask = hash_oids.shape[0] - 1
    relations = known_oids, known_slots, mask, columns_of, counts
    outputs = program_of, touching, missing, marking, offsets, lengths, unchanged
    last_oid = np.int64(-1)
    last_slot = np.int64(-1)
    expected = np.int64(-1)
    outcome = DONE
    counting = in_stream != 0 and want == 0
    recording = st[26] != 0
    last_xid = np.int64(-1)
    dropped = is_new_run = False
    of_row = np.int64(0)
    program = np.int64(words.NO_PROGRAM)
    q = np.int64(0)
    while True:
        inside = False
        if pos >= end:
            outcome = DONE
            break
        if pos >= tile_end or (
            want != 0
            and ((want == ARRAYS and changes >= max_changes) or cells > max_cells or record_count >= most_records)
        ):
            outcome = TILE
            break
        if counting and run_count >= runs.shape[1]:
            outcome = RUNS
            break
        # The frame: where the message begins, and how far it may go.
        if framing <= 1:
            a = pos
            lim = end
        elif framing == 2:
            if load_byte(base + pos) != 100:
                outcome = BAD_FRAME
                break
            if pos + 6 > end:
                outcome = INCOMPLETE
                break
            size = load_big_32(base + pos + 1)
            kind = load_byte(base + pos + 5)
            if size > 0x7FFFFFFF or (kind == 119 and size < 4 + 25 + 1) or (kind == 107 and size != 4 + 18):
                outcome = BAD_FRAME
                break
            if kind != 119 and kind != 107:
                outcome = BAD_FRAME
                break
            if pos + 1 + size > end:
                outcome = INCOMPLETE
                break
            if kind == 107:
                if load_byte(base + pos + 22) > 1:  # whether a reply is asked for
                    outcome = BAD_FRAME
                    break
                previous = pos
                pos += 1 + size
                keepalives += 1
                continue
            a = pos + 30
            lim = pos + 1 + size
        elif framing == PGCOPY:
            if load_byte(base + pos) == 80:  # the P of PGCOPY: a header, at the start or where files were concatenated
                outcome = EVENT
                message = pos
                limit = end
                break
            if pos + 2 > end:
                outcome = INCOMPLETE
                break
            fields = load_big_16(base + pos)
            if fields == 0xFFFF:
                outcome = EVENT
                message = pos
                limit = end
                break
            head = copy_row_head(base, pos)
            if head == 0:
                outcome = BAD_FRAME
                break
            if pos + head > end:
                outcome = INCOMPLETE
                break
            size = load_big_32(base + pos + head - 4)
            if not copy_row_fits(base, pos, head) or size > 0x7FFFFFFF or size < 1:
                outcome = BAD_FRAME
                break
            a = pos + head
            lim = a + size
            if lim > end:
                outcome = INCOMPLETE
                break
        else:
            a = pos
            lim = end
            if framing >= LENGTH:
                a = pos + header_size(framing)
                if a >= end:
                    outcome = INCOMPLETE
                    break
                size = length_at(base, pos, framing)
                if size < 1 or size > 0x7FFFFFFF:
                    outcome = BAD_FRAME
                    break
                lim = a + size
                if lim > end:
                    outcome = INCOMPLETE
                    break
            # What a walsender has sent, behind the length or alone.
            kind = load_byte(base + a)
            if kind == 107:
                if a + 18 > lim:
                    outcome = INCOMPLETE if framing == WALSENDER else BAD_FRAME
                    break
                if load_byte(base + a + 17) > 1 or (framing >= LENGTH and a + 18 != lim):
                    outcome = BAD_FRAME
                    break
                previous = pos
                pos = a + 18
                keepalives += 1
                continue
            if kind == 119:
                if a + 26 > lim:
                    outcome = INCOMPLETE if framing == WALSENDER else BAD_FRAME
                    break
                a += 25
            elif framing == WALSENDER:
                outcome = BAD_FRAME
                break
        # The message.
        inside = framing >= 2 and framing != WALSENDER
        tag = load_byte(base + a)
        p = a + 1
        message = a
        limit = lim
        if tag == 73 or tag == 85 or tag == 68:  # I U D
            if want == COLUMNS and skip == 0 and (aborted.shape[0] == 0 if in_stream else txn != IDLE):
                first_ordinal = ordinal
                frames = pos, tile_end, end, framing, 4 if in_stream else 0
                of_all = lsn, commit_ts, txn_xid, origin << 32
                so_far = previous, cells, ordinal, digest
                pos, previous, cells, ordinal, digest = place_rows_ahead(
                    base, last, frames, relations, outputs, max_cells, of_all, recording, so_far
                )
                count = ordinal - first_ordinal
                if count > 0:
                    if recording:
                        rows += count
                    messages += count
                    continue
            # A row of another xid than the one before begins a new run, which the walk counts.
            if want == 0 and ((last_xid >= 0 and not dropped) if in_stream else txn != IDLE):
                frames = pos, tile_end, end, framing, 4 if in_stream else 0
                pos, previous, count = skip_rows_ahead(base, frames, last_xid, relations, previous)
                if count > 0:
                    ordinal += count
                    messages += count
                    if counting:
                        runs[1, run_count - 1] += count
                    continue
            if in_stream:
                if p + 4 > lim:
                    outcome = INCOMPLETE
                    break
                xid = load_big_32(base + p)
                p += 4
            else:
                xid = txn_xid
                if txn == IDLE:
                    outcome = OUTSIDE_TRANSACTION
                    break
            if p + 5 > lim:
                outcome = INCOMPLETE
                break
            oid = load_big_32(base + p)
            if oid != last_oid:
                found_slot = slot_of(known_oids, known_slots, mask, oid)
                if found_slot < 0:
                    st[11] = oid
                    outcome = NEW_RELATION
                    break
                last_oid = oid
                last_slot = found_slot
                expected = load_int64(columns_of + 16 * last_slot)
            if in_stream and xid != last_xid:
                last_xid = xid
                dropped = False
                if aborted.shape[0] > 0:
                    found = np.searchsorted(aborted, xid)
                    dropped = found < aborted.shape[0] and aborted[found] == xid
                is_new_run = True
            part = load_byte(base + p + 4)
            row_at = p
            p += 5
            new_first = np.int64(-1)
            old_first = np.int64(-1)
            at = cells
            is_placed = False
            if want == COLUMNS and skip == 0 and not dropped:
                program = load_int64(program_of + 8 * last_slot)
                is_placed = program != words.NO_PROGRAM
                if is_placed:
                    left = may_place(program, marking)
                    if left != words.DONE:
                        put(marking, words.LEFT, np.int64(left))
                        outcome = NOT_PLACED
                        break
            if tag != 73 and (part == 75 or part == 79):
                old_first = at
                q = walk_tuple(base, p, lim, offsets + 4 * at, lengths + 4 * at, want != 0, expected, unchanged)
                if q < 0:
                    outcome = -q
                    break
                at += load_big_16(base + p)
                p = q
                if tag == 85:
                    if p >= lim:
                        outcome = INCOMPLETE
                        break
                    part = load_byte(base + p)
                    p += 1
            if tag != 68:
                if part != 78:
                    outcome = BAD_TUPLE_TAG
                    break
                new_first = at
                q = walk_tuple(base, p, lim, offsets + 4 * at, lengths + 4 * at, want != 0, expected, unchanged)
                if q < 0:
                    outcome = -q
                    break
                columns = load_big_16(base + p)
                at += columns
                p = q
            elif old_first < 0:
                outcome = BAD_TUPLE_TAG
                break
        elif tag == 66:  # B
            if p + 20 > lim:
                outcome = INCOMPLETE
                break
            if in_stream or txn == OPEN or (txn == UNKNOWN_HEAD and ordinal > 0):
                outcome = BEGIN_INSIDE
                break
            p += 20
        elif tag == 67:  # C
            if p + 25 > lim:
                outcome = INCOMPLETE
                break
            if in_stream or txn == IDLE:
                outcome = OUTSIDE_TRANSACTION
                break
            p += 25
        else:
            outcome = EVENT
            break
        # Its end.
        if framing == 0 or framing == WALSENDER:
            following = p
        elif framing == 1:
            following = p + 1
            if p >= end:
                if tag != 67 or st[32] == 0:
                    outcome = INCOMPLETE
                    break
                # A consumer that ends between a Commit and its newline has all of the transaction.
                following = p
            elif load_byte(base + p) != 10:
                outcome = NO_NEWLINE
                break
        else:
            if p != lim:
                outcome = UNDERRUN
                break
            following = p
        # It is whole: take it.
        if tag == 66:
            outcome = outcome_of_begin(base + a, last_lsn, address_of(st))
            if outcome != DONE:
                break
            final_lsn = load_big_64(base + a + 1)
            # A transaction that is known already is walked, and given no more.
            skip = 0 if final_lsn > high_lsn and st[31] == 0 else 2 if final_lsn <= high_lsn else 1
            rows = 0
            digest = 0
            origin = 0
            txn = OPEN
            lsn = final_lsn
            commit_ts = load_big_64(base + a + 9)
            txn_xid = load_big_32(base + a + 17)
            ordinal = 0
            begin_at = pos
        elif tag == 67:
            final_lsn = load_big_64(base + a + 2)
            if lsn == -1:
                outcome = HEAD_COMMIT
                break
            if load_byte(base + a + 1) != 0 or final_lsn != lsn or load_big_64(base + a + 18) != commit_ts:
                outcome = COMMIT_MISMATCH
                break
            if recording:
                record = record_count
                records[record, 0] = final_lsn
                records[record, 1] = commit_ts
                records[record, 2] = txn_xid
                records[record, 3] = rows
                records[record, 4] = digest
                records[record, 5] = origin
                records[record, 6] = begin_at
                record_count = record + 1
            txn = IDLE
            transactions += 1
            last_lsn = final_lsn
            last_ts = commit_ts
            if final_lsn <= high_lsn:
                resent += 1
            else:
                high_lsn = final_lsn
            if first_lsn == -1:
                first_lsn = final_lsn
                first_ts = commit_ts
        else:
            if counting:
                if is_new_run:
                    runs[0, run_count] = xid
                    runs[1, run_count] = 0
                    run_count += 1
                    is_new_run = False
                runs[1, run_count - 1] += 1
            if dropped:
                messages += 1
                previous = pos
                pos = following
                continue
            if recording:
                varying = load_int64(columns_of + 16 * last_slot + 8)
                of_cells = at - cells, offsets + 4 * cells, lengths + 4 * cells
                of_row = digest_of(base, a, row_at, p, ordinal, expected, varying, *of_cells)
            if want != 0 and skip == 0:
                place = origin << 32 | a
                if tag == 85 and old_first >= 0:
                    for i in range(columns):
                        if length[new_first + i] == -2:
                            was = length[old_first + i]
                            if was >= 0 or was <= -3:
                                length[new_first + i] = was
                                offset[new_first + i] = offset[old_first + i]
                if is_placed:
                    first = np.int64(new_first if new_first >= 0 else old_first)
                    row = get(program, words.ROWS)
                    left = place_cells(base, last, program, row, first, offsets, lengths, missing, marking)
                    if left != words.DONE:
                        put(marking, words.LEFT, np.int64(left))
                        outcome = NOT_PLACED
                        break
                    if new_first >= 0 and old_first >= 0:
                        note_before(program, row, np.int64(old_first))
                    take_row(program, last_slot, touching, marking, tag, lsn, commit_ts, txn_xid, ordinal, first, place)
                    cells = at
                elif want == ARRAYS:
                    to = arranged + words.ROW_BYTES * changes
                    put(to, words.ROW_KIND, tag)
                    put(to, words.ROW_SLOT, last_slot)
                    put(to, words.ROW_LSN, lsn)
                    put(to, words.ROW_COMMIT_TS, commit_ts)
                    put(to, words.ROW_XID, txn_xid)
                    put(to, words.ROW_ORDINAL, ordinal)
                    put(to, words.ROW_PLACE, place)
                    put(to, words.ROW_NEW, new_first)
                    put(to, words.ROW_OLD, old_first)
                    changes += 1
                    cells = at
            if recording:
                rows += 1
                digest ^= of_row
            # A scan counts them all; of what was counted before, or will be, nothing says how its relations are used.
            if want == 0 or skip != 2:
                count_row(base, a, counts, last_slot)
            ordinal += 1
        messages += 1
        previous = pos
        pos = following
    st[0] = pos
    st[2] = txn
    st[3] = lsn
    st[4] = commit_ts
    st[5] = txn_xid
    st[6] = ordinal
    st[9] = message
    st[10] = limit
    st[12] = transactions
    st[13] = messages
    st[15] = last_lsn
    st[16] = last_ts
    st[17] = begin_at
    st[18] = keepalives
    st[19] = first_lsn
    st[20] = first_ts
    st[21] = skip
    st[22] = high_lsn
    st[23] = resent
    st[24] = previous
    st[25] = run_count
    st[27] = record_count
    st[28] = rows
    st[29] = digest
    st[30] = origin
    st[7] = changes
    st[8] = cells
    if want == COLUMNS:
        forget_tried(marking)
        put(marking, words.LEFT_SLOT, last_slot)
    if outcome == INCOMPLETE and inside:
        # The frame is there as a whole: more bytes will not mend a message that does not fit in it.
        outcome = OVERRUN
    return outcome


@kernel(
    BYTES,
    *(INT64,) * 4,
    out("int64"),
    *(given("int64"), given("int32"), given("int64", ndim=2), out("int64", ndim=2)),
    *(out("int32"), out("int32"), out("int64", ndim=2)),
    *(given("int64"), out("int64", ndim=2), out("int64", ndim=2)),
    *(given("int64"), out("int32"), out("int64"), out("int64")),
)
def walk_messages(  # type: ignore[no-untyped-def]
    buf,
    end,
    tile_end,
    framing,
    want,
    st,
    hash_oids,
    hash_slots,
    slot_columns,
    slot_counts,
    offset,
    length,
    changed,
    aborted,
    runs,
    records,
    programs,
    touched,
    misses,
    marks,
):
    """Walk a buffer from ``st[0]`` on; see `walreplay.decode.walk` for what the state and the arrays are."""
    known = (st, hash_oids, hash_slots, slot_columns, slot_counts, aborted)
    arrays = (*known, offset, length, changed, runs, records, programs, touched, misses, marks)
    # Each is compiled for itself: what stays the same throughout is not asked for every message.
    if want == COLUMNS:
        if framing == 0:
            return _walk_buffer(buf, end, tile_end, 0, COLUMNS, arrays)
        return _walk_buffer(buf, end, tile_end, framing, COLUMNS, arrays)
    if want == ARRAYS:
        return _walk_buffer(buf, end, tile_end, framing, ARRAYS, arrays)
    if framing == 0:
        return _walk_buffer(buf, end, tile_end, 0, 0, arrays)
    return _walk_buffer(buf, end, tile_end, framing, 0, arrays)

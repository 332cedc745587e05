"""Rows of a tile to the columns of their relations, in one pass: what is common is converted, the rest is listed.

Each relation version has a *program*, an array of words: where its columns lie, how many rows they have, and what is
to be done for each of its columns that the kernel converts by itself.  These are integers, and text that is taken as
it was sent.  The builders (`wal2delta.decode.columns`) own the memory, make more of it, and read what the kernel
leaves: the other columns, and single values in another form.

Invariants
----------
- Rows are placed in the tile's order, and a row as a whole or not at all: whatever the kernel comes back for, it is
  called again with the row to go on from.
- What was placed since the last time is *pending* until Python has seen to it, if anything is left to do: the
  number of each such row's first cell stands in ``FIRSTS``.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from wal2delta.decode.kernel import helper, kernel
from wal2delta.decode.kernels_base import (
    BAD_DIGITS,
    address_of,
    copy_bytes,
    digits,
    digits_of_word,
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    load_int32,
    load_int64,
    load_word,
    store_8,
    store_16,
    store_32,
    store_64,
    store_word,
)
from wal2delta.decode.kernels_text import HAS_HIGH, HAS_NUL
from wal2delta.decode.parameters import BYTES, CELLS, INT64, given, out
from wal2delta.lsn import POSTGRES_EPOCH_UNIX_MICROS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wal2delta.decode.walk import Tile

INT16: Final = 1
INT32: Final = 2
INT64_: Final = 3
TEXT: Final = 4

LEAST_PENDING: Final = 256
MOST_PENDING: Final = 4096
"""So many rows of a relation may be pending: few at first, as there may be thousands of relations."""

MISSES: Final = 4096
"""So many values may be listed; a row of the most columns that there can be fits."""

NO_PROGRAM: Final = 0
"""The slot's rows are left out."""
UNSEEN: Final = -1
"""Nothing is known of the slot yet."""

(
    ROWS,
    ROOM,
    PENDING,
    PENDING_ROOM,
    BEFORES,
    HAS_UNCHANGED,
    NEEDS_CARE,
    HAS_MISSES,
    TOUCHED,
    OP,
    LSN,
    COMMIT_TS,
    XID,
    ORDINAL,
    FIRSTS,
    BEFORE_FIRSTS,
    BEFORE_ROWS,
    COLUMNS,
    HEAD,
) = range(19)
"""A program's words in front of those of its columns:

- `NEEDS_CARE`: some columns are not the kernel's.
- `OP` to `ORDINAL`, `FIRSTS` to `BEFORE_ROWS`: addresses.  `COLUMNS`: how many columns follow.
"""

(KIND, NUMBER, VALUES, VALID, LOW, HIGH, DATA, CAPACITY, FLAGS, COLUMN) = range(10)
"""A column's words: what it is, which cell it has, addresses, an integer's limits, and of text the data's address and
size, and what was found in it (`FLAGS`)."""

_WORD: Final = 8
_SLACK: Final = 16


class Left(IntEnum):
    """Why the kernel came back."""

    DONE = 0
    NEW = 1
    """A row's slot was never seen."""
    ROOM = 2
    """The slot's columns are full."""
    CARE = 3
    """Too much of the slot's, or in all, is pending."""
    TEXT_ROOM = 4
    """A text column of the slot has not so much room."""


class Placing(NamedTuple):
    """How the kernel converts a column.

    Attributes:
        kind: `INT16` to `TEXT`.
        low, high: an integer's limits.
    """

    kind: int
    low: int = 0
    high: int = 0


@helper
def _get(program, word):
    return load_int64(program + word * 8)


@helper
def _set(program, word, value):
    store_64(program + word * 8, value)


@helper
def _place_integer(base, column, kind, row, start, size):
    """Convert one integer; False where it is in another form."""
    value = np.int64(0)
    good = False
    if size > 0:
        negative = np.int64(load_byte(base + start) == 45)
        count = size - negative
        end = start + size
        magnitude = BAD_DIGITS
        if 1 <= count <= 8:
            # In front of a tuple's value there are 8 bytes at least.
            magnitude = digits_of_word(base + end, count)
        elif 8 < count <= 19:
            magnitude = digits(base, end - count, count)
        # The smallest bigint alone is left to the exact reader.
        if magnitude <= np.uint64(0x7FFFFFFFFFFFFFFF):
            value = (np.int64(magnitude) ^ -negative) + negative
            # Eight digits fit all but a smallint.
            good = (kind != INT16 and count <= 8) or _get(column, LOW) <= value <= _get(column, HIGH)
    elif size < 0:
        count = -3 - size
        if kind == INT16 and count == 2:
            value = np.int64(np.int16(load_big_16(base + start)))
            good = True
        elif kind == INT32 and count == 4:
            value = np.int64(np.int32(load_big_32(base + start)))
            good = True
        elif kind == INT64_ and count == 8:
            value = load_big_64(base + start)
            good = True
    if not good:
        value = np.int64(0)
    values = _get(column, VALUES)
    if kind == INT32:
        store_32(values + 4 * row, value)
    elif kind == INT64_:
        store_64(values + 8 * row, value)
    else:
        store_16(values + 2 * row, value)
    store_8(_get(column, VALID) + row, 1 if good else 0)
    return good


@helper
def _place_nothing(column, kind, row):
    """Write a NULL."""
    values = _get(column, VALUES)
    if kind == TEXT:
        store_32(values + 4 * row + 4, np.int64(load_int32(values + 4 * row)))
    elif kind == INT32:
        store_32(values + 4 * row, np.int64(0))
    elif kind == INT64_:
        store_64(values + 8 * row, np.int64(0))
    else:
        store_16(values + 2 * row, np.int64(0))
    store_8(_get(column, VALID) + row, 0)


@helper
def _text_flags(start, end):
    """Tell whether there is a NUL (`HAS_NUL`), or a byte outside of ASCII (`HAS_HIGH`), between two addresses."""
    high = np.uint64(0)
    zero = np.uint64(0)
    at = start
    while at + 8 <= end:
        word = load_word(at)
        high |= word
        zero |= (word - np.uint64(0x0101010101010101)) & ~word
        at += 8
    while at < end:
        word = np.uint64(load_byte(at))
        high |= word
        if word == np.uint64(0):
            zero |= np.uint64(0x80)
        at += 1
    found = np.int64(0)
    if zero & np.uint64(0x8080808080808080):
        found |= HAS_NUL
    if high & np.uint64(0x8080808080808080):
        found |= HAS_HIGH
    return found


@helper
def _look(program):
    """Look at the text that is pending; True where Python has to see to what is pending, else it is done with."""
    care = (
        _get(program, NEEDS_CARE) != 0
        or _get(program, BEFORES) != 0
        or _get(program, HAS_UNCHANGED) != 0
        or _get(program, HAS_MISSES) != 0
    )
    rows = _get(program, ROWS)
    since = rows - _get(program, PENDING)
    column = program + HEAD * _WORD
    for _ in range(_get(program, COLUMNS)):
        if _get(column, KIND) == TEXT:
            ends = _get(column, VALUES)
            data = _get(column, DATA)
            first = np.int64(load_int32(ends + 4 * since))
            last = np.int64(load_int32(ends + 4 * rows))
            flags = _text_flags(data + first, data + last)
            if flags != 0:
                _set(column, FLAGS, flags)
                care = True
        column += COLUMN * _WORD
    if not care:
        _set(program, PENDING, np.int64(0))
    return care


@kernel(
    BYTES,
    INT64,
    given("uint8"),
    CELLS,
    given("int64"),
    given("int64"),
    given("int64"),
    given("int64"),
    CELLS,
    CELLS,
    CELLS,
    CELLS,
    given("uint8"),
    given("int64"),
    out("int32"),
    out("int64"),
    out("int64"),
)
def place(
    buf,
    change,
    kind,
    slot,
    lsn,
    commit_ts,
    xid,
    ordinal,
    new,
    old,
    offset,
    length,
    kept,
    programs,
    touched,
    misses,
    marks,
):
    """Place a tile's rows from `change` on.

    `kept` says which rows are wanted (empty: all), `programs` has the address of each slot's program.  `touched`
    gets the slots that Python has to see to, `misses` four words for each value that is in another form: slot,
    column among those of the program, row, first cell.  `marks` gets the change to go on with, how many are touched
    and missed, and the slot, column and bytes that are in want.  Returns a `Left`.
    """
    base = address_of(buf)
    last_word = buf.size - 16
    touching = np.int64(0)
    missed = np.int64(0)
    left = np.int64(0)
    all_kept = kept.size == 0
    while change < kind.size:
        of = np.uint64(slot[change])
        program = programs[of]
        if program == NO_PROGRAM or not (all_kept or kept[change]):
            change += 1
            continue
        if program == UNSEEN:
            left = np.int64(1)
            marks[3] = np.int64(of)
            break
        row = _get(program, ROWS)
        pending = _get(program, PENDING)
        if row >= _get(program, ROOM):
            left = np.int64(2)
            marks[3] = np.int64(of)
            break
        if pending >= _get(program, PENDING_ROOM) or missed + _get(program, COLUMNS) > MISSES:
            left = np.int64(3)
            marks[3] = np.int64(of)
            break
        if _get(program, TOUCHED) == 0:
            _set(program, TOUCHED, np.int64(1))
            touched[touching] = np.int32(of)
            touching += 1
        own = new[change]
        before = old[change]
        first = np.int64(own if own >= 0 else before)
        column = program + HEAD * _WORD
        missed_before = missed
        for number in range(_get(program, COLUMNS)):
            what = _get(column, KIND)
            size = np.int64(-1)
            start = np.int64(0)
            if first >= 0:
                cell = np.uint64(first + _get(column, NUMBER))
                size = np.int64(length[cell])
                start = np.int64(offset[cell])
            if size == -1 or size == -2:
                _place_nothing(column, what, row)
                if size == -2:
                    _set(program, HAS_UNCHANGED, np.int64(1))
            elif what == TEXT:
                count = size if size >= 0 else -3 - size
                ends = _get(column, VALUES)
                position = np.int64(load_int32(ends + 4 * row))
                if position + count + _SLACK > _get(column, CAPACITY):
                    left = np.int64(4)
                    marks[3] = np.int64(of)
                    marks[4] = np.int64(number)
                    marks[5] = count + _SLACK
                    break
                target = _get(column, DATA) + position
                if count <= 16 and start <= last_word:
                    # Two words overwrite what is not used yet, and cost less than a call of memcpy.
                    store_word(target, load_word(base + start))
                    store_word(target + 8, load_word(base + start + 8))
                else:
                    copy_bytes(target, base + start, count)
                store_32(ends + 4 * row + 4, position + count)
                store_8(_get(column, VALID) + row, 1)
            elif not _place_integer(base, column, what, row, start, size):
                misses[4 * missed] = np.int64(of)
                misses[4 * missed + 1] = np.int64(number)
                misses[4 * missed + 2] = row
                misses[4 * missed + 3] = first
                missed += 1
            column += COLUMN * _WORD
        if left != 0:
            missed = missed_before
            break
        if missed != missed_before:
            _set(program, HAS_MISSES, np.int64(1))
        letter = np.int64(kind[change]) + 32
        store_8(_get(program, OP) + row, 99 if letter == 105 else letter)  # an insert is a c, for create
        store_64(_get(program, LSN) + 8 * row, lsn[change])
        store_64(_get(program, COMMIT_TS) + 8 * row, commit_ts[change] + POSTGRES_EPOCH_UNIX_MICROS)
        store_64(_get(program, XID) + 8 * row, xid[change])
        store_64(_get(program, ORDINAL) + 8 * row, ordinal[change])
        store_32(_get(program, FIRSTS) + 4 * pending, first)
        if own >= 0 and before >= 0:
            befores = _get(program, BEFORES)
            store_32(_get(program, BEFORE_FIRSTS) + 4 * befores, np.int64(before))
            store_64(_get(program, BEFORE_ROWS) + 8 * befores, row)
            _set(program, BEFORES, befores + 1)
        _set(program, ROWS, row + 1)
        _set(program, PENDING, pending + 1)
        change += 1
    # Of what was touched, what needs nothing more is done with.
    care = np.int64(0)
    for at in range(touching):
        of = np.uint64(touched[at])
        program = programs[of]
        _set(program, TOUCHED, np.int64(0))
        if _look(program):
            touched[care] = np.int32(of)
            care += 1
    marks[0] = change
    marks[1] = care
    marks[2] = missed
    return left


class Marks:
    """What a call of the kernel leaves behind."""

    def __init__(self) -> None:
        self.marks = np.zeros(6, np.int64)
        self.touched = np.zeros(16, np.int32)
        self.misses = np.zeros(4 * MISSES, np.int64)

    def place(
        self, buf: NDArray[np.uint8], tile: Tile, change: int, kept: NDArray[np.uint8], programs: NDArray[np.int64]
    ) -> Left:
        """Run the kernel from a change on."""
        if len(self.touched) < len(programs):
            self.touched = np.zeros(len(programs), np.int32)
        return Left(
            place(
                buf,
                change,
                tile.kind,
                tile.slot,
                tile.lsn,
                tile.commit_ts,
                tile.xid,
                tile.ordinal,
                tile.new,
                tile.old,
                tile.offset,
                tile.length,
                kept,
                programs,
                self.touched,
                self.misses,
                self.marks,
            )
        )

    @property
    def next(self) -> int:
        """The change to go on with."""
        return int(self.marks[0])

    @property
    def slots(self) -> list[int]:
        """The slots that have to be seen to."""
        return self.touched[: self.marks[1]].tolist()  # type: ignore[no-any-return]

    @property
    def missed(self) -> NDArray[np.int64]:
        """Slot, column, row and first cell of each value in another form."""
        return self.misses[: 4 * self.marks[2]].reshape(-1, 4)

    @property
    def wanting(self) -> tuple[int, int, int]:
        """The slot, and of a text column its number among the program's and how many bytes it needs."""
        slot, column, count = self.marks[3:6].tolist()
        return slot, column, count

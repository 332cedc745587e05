"""The words that kernels and builders share: what is to be done for a relation's columns, and what was left.

`walreplay.decode.placing` says what they mean.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from enum import IntEnum
from typing import Final

from walreplay.decode.compile.kernel import helper
from walreplay.decode.kernels.base import load_int64, store_64

(
    OTHER,
    TEXT,
    BYTES,
    INT32,
    FLOAT32,
    DATE,
    INT64_,
    FLOAT64,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNSIGNED,
    INT16,
    BOOLEAN,
    DECIMAL,
) = range(14)
"""What a column is.

`OTHER` is left to its builder.  `UNSIGNED` is oid and its like.  `INT32` to `DATE` have 4 bytes, `INT64_` to `UNSIGNED`
8.
"""

(
    ROWS,
    LIMIT,
    SETTLED,
    ROOM,
    PENDING_ROOM,
    BEFORES,
    HAS_UNCHANGED,
    NEEDS_CARE,
    HAS_MISSES,
    OP,
    LSN,
    COMMIT_TS,
    XID,
    ORDINAL,
    PLACES,
    FIRSTS,
    BEFORE_FIRSTS,
    BEFORE_ROWS,
    COLUMNS,
    HEAD,
) = range(20)

(KIND, VALUES, VALID, LOW, HIGH, DATA, CAPACITY, FLAGS, COLUMN) = range(9)

(CHANGE, MISSED, LEFT_SLOT, LEFT_COLUMN, LEFT_BYTES, TRIED, LEFT, TOUCHED) = range(8)
(SLOT_PROGRAMS, TOUCHED_SLOTS, MISSED_VALUES, MARKS) = range(8, 12)

ROW_KIND, ROW_SLOT, ROW_LSN, ROW_COMMIT_TS, ROW_XID = range(5)
ROW_ORDINAL, ROW_PLACE, ROW_NEW, ROW_OLD, ROW_WORDS = range(5, 10)
ROW_BYTES: Final = 8 * ROW_WORDS
"""The words of a row in a `walreplay.decode.placing.Tile`."""

NOT_WANTED: Final = 0  # The slot's rows are left out

UNSEEN: Final = -1  # Nothing is known of the slot yet

MISSES: Final = 4096  # So many values may be listed

MISS_WORDS: Final = 4


class Refusal(IntEnum):
    """Why a kernel did not place a row."""

    DONE = 0  # All rows are placed
    NEW = 1  # The row's slot has no program yet
    ROOM = 2  # The slot's columns have no room for another row
    CARE = 3  # Too many rows are pending, of this slot or in all
    TEXT_ROOM = 4  # A text column of the slot has too little room
    NOT_TEXT = 5  # A text or a bytea is in another form than the kernels read


PLACED: Final = 0
MISSED_VALUE: Final = 1
NO_ROOM: Final = 2
NO_TEXT: Final = 3
"""What becomes of a value: from `NO_ROOM` on, its row cannot be placed now.

`NO_TEXT`: the column is left to its builder, as its bytes or text follow each other and nothing can come between.
"""


@helper
def get(program, word):
    """Read a word of a program."""
    return load_int64(program + word * WORD)


@helper
def put(program, word, value):
    """Write a word of a program."""
    store_64(program + word * WORD, value)


WORD: Final = 8

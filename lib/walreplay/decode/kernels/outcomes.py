"""Why the walk comes back, and how it stands to transactions: numbers that kernels and Python share."""

from __future__ import annotations

from typing import Final

IDLE: Final = 0
OPEN: Final = 1
UNKNOWN_HEAD: Final = 2
"""The walk's start was guessed: it may lie in a transaction, until a message says so or says not."""

DONE: Final = 0
TILE: Final = 1
"""The tile is walked, or its arrays are full."""
INCOMPLETE: Final = 2
"""The bytes end inside of the message at ``state[POS]``."""
EVENT: Final = 3
"""A message for Python stands at ``state[MESSAGE]``, up to ``state[LIMIT]`` at most."""
NEW_RELATION: Final = 4
"""A row names the relation ``state[ARGUMENT]``, which has no slot."""
HEAD_COMMIT: Final = 5
"""The Commit of a transaction whose Begin lies before the bytes; its place is ``state[MESSAGE]``."""
RUNS: Final = 6
"""The arrays that count a streamed block's rows by xid are full."""
BAD_TUPLE_TAG: Final = 11
BAD_CELL: Final = 12
BAD_LENGTH: Final = 13
BAD_COLUMN_COUNT: Final = 14
BAD_FRAME: Final = 15
OVERRUN: Final = 16
UNDERRUN: Final = 17
NO_NEWLINE: Final = 18
OUTSIDE_TRANSACTION: Final = 19
BEGIN_INSIDE: Final = 20
COMMIT_MISMATCH: Final = 21
NOT_AFTER_LAST: Final = 22
NUL_IN_TEXT: Final = 23
NOT_PLACED: Final = 24
"""The row at ``state[POS]`` cannot be placed yet; the placer knows why."""
NO_TIME: Final = 25
BEHIND: Final = 26
"""The transaction that begins at ``state[POS]`` commits behind where the walk is to stop."""

HAS_NUL: Final = 1
HAS_HIGH: Final = 2
"""What is found in the bytes of texts: a NUL, and one that is none of ASCII."""

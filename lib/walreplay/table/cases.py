"""What becomes of an epoch's rows: *what is there* and *what comes* make one case, which says what is committed.

`CASES` has them all.  `walreplay.writing.update` has a function for what each kind of commit needs before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from walreplay.report import Action


class Present(Enum):
    """What is there for a source's rows, before those of an epoch come."""

    NOTHING = "no table"
    GONE = "no table, though the ledger has one"
    OTHERS = "a table of other sources, without rows of this one"
    BEGUN = "a table that an interrupted run may have begun, or a shared one with rows that the ledger does not know"
    UNKNOWN = "a table that the ledger does not know"
    KNOWN = "the table as the ledger's last run, or the epoch before, has left it"


class Incoming(Enum):
    """What an epoch brings."""

    TRUNCATED = "a truncate that deletes all rows, and what has come behind it"
    ADDED = "rows that change no other row"
    COLUMNS = "no rows: only the columns change"
    CHANGED = "rows in place of others, or of nothing; or a truncate that ends versions"


class CommitKind(Enum):
    """The commit of an epoch."""

    REFUSED = "none: an error"
    CREATE = "the table begins with the rows"
    APPEND = "the rows are added"
    OVERWRITE = "the rows replace those of the source; a table of one source gets its columns, too"
    EMPTY = "it has no rows, and shows that the epoch was applied"
    MERGE = "rows are changed, deleted and added"


@dataclass(frozen=True, slots=True)
class EpochCase:
    """What becomes of an epoch's rows.

    Attributes:
        action: for the report.
        fresh: the table has no row that the epoch's rows could change.
    """

    commit: CommitKind
    action: Action
    fresh: bool = False


_REFUSED: Final = EpochCase(CommitKind.REFUSED, "unchanged")
_CREATED: Final = EpochCase(CommitKind.CREATE, "created", fresh=True)
_APPENDED: Final = EpochCase(CommitKind.APPEND, "appended")
_OVERWRITTEN: Final = EpochCase(CommitKind.OVERWRITE, "overwritten", fresh=True)
_BEGUN: Final = EpochCase(CommitKind.OVERWRITE, "created", fresh=True)
_JOINED: Final = EpochCase(CommitKind.APPEND, "created", fresh=True)
_EMPTY: Final = EpochCase(CommitKind.EMPTY, "merged")
_MERGED: Final = EpochCase(CommitKind.MERGE, "merged")

CASES: Final[Mapping[Present, Mapping[Incoming, EpochCase]]] = MappingProxyType(
    {
        present: dict(zip(Incoming, cases, strict=True))
        for present, *cases in (
            #                TRUNCATED     ADDED         COLUMNS       CHANGED
            (Present.NOTHING, _CREATED, _CREATED, _CREATED, _CREATED),
            # Without its rows from before, it would look like a whole table; behind a truncate it is one.
            (Present.GONE, _CREATED, _REFUSED, _REFUSED, _REFUSED),
            (Present.OTHERS, _JOINED, _JOINED, _JOINED, _JOINED),
            (Present.BEGUN, _BEGUN, _BEGUN, _BEGUN, _BEGUN),
            (Present.UNKNOWN, _OVERWRITTEN, _OVERWRITTEN, _OVERWRITTEN, _OVERWRITTEN),
            (Present.KNOWN, _OVERWRITTEN, _APPENDED, _EMPTY, _MERGED),
        )
    }
)
"""By what is there, then by what comes."""

ACTIONS: Final[tuple[Action, ...]] = ("unchanged", "appended", "merged", "overwritten", "created")
"""What commits of several epochs are together: the last of theirs."""

"""What an audit has found, as plain values for people, notebooks and schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from walreplay.errors import FramingChange, NotACapture, OrderError, UnknownRelation, WalReplayError
from walreplay.lsn import format_lsn
from walreplay.spark.index.facts import Open
from walreplay.transactions.twins import TwinError

ProblemKind: TypeAlias = Literal["damaged", "gap", "foreign", "twin", "copy"]
Base: TypeAlias = Literal["not needed", "missing", "unknown"]

_EXPLAINED: Final = "(gaps are allowed)"
"""How warnings end that tell of what is a problem here."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Files in which nothing is missing, as far as their bytes and their numbers can tell.

    Attributes:
        first_lsn, last_lsn: the least and the greatest commit LSN, and when these transactions committed.
        transactions: without those that come again.
    """

    first_file: str
    last_file: str
    files: int
    transactions: int
    first_lsn: int | None
    last_lsn: int | None
    first_commit_ts: datetime | None
    last_commit_ts: datetime | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is damaged or missing.

    Attributes:
        kind: ``damaged``: bytes that cannot be read; ``gap``: something is missing in front of the place; ``foreign``:
            a file that does not belong to the archive; ``twin``: a file that is there under two names; ``copy``: a
            transaction that comes again as another one.
        file: where, with the ``offset`` in the decompressed bytes.
        files: how many files that follow one another have the same.
    """

    kind: ProblemKind
    file: str | None
    offset: int | None
    table: str | None
    problem: str
    remedy: str | None
    files: int = 1

    @classmethod
    def of(cls, error: WalReplayError, *, copy: bool = False) -> Problem:
        """Make one of an error."""
        kind: ProblemKind = "gap" if isinstance(error, (OrderError, UnknownRelation)) else "damaged"
        if isinstance(error, TwinError):
            kind = "twin"
        elif isinstance(error, (NotACapture, FramingChange)):
            kind = "foreign"
        elif copy and kind == "gap":
            kind = "copy"
        return cls(kind, error.path, error.offset, error.table, error.problem, error.remedy)


@dataclass(frozen=True, slots=True)
class NumberHole:
    """Numbers that the files leave out."""

    before: str
    after: str
    missing: int
    example: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """Transactions in a file that have come before; this is no fault."""

    file: str
    transactions: int
    first_lsn: int
    last_lsn: int


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes in a file of a message whose rest never came, as its session ended there; this is no fault."""

    file: str
    bytes: int


@dataclass(frozen=True, slots=True)
class TableAudit:
    """A relation and its row changes, whatever became of their transactions, copies included.

    Attributes:
        name: ``schema.table``, as it was called last; None where no file has announced it.
        first_file, last_file: between which it has changes.
        base: whether rows may have been there before the archive began: ``not needed``, as the table was truncated at
            ``truncated_lsn``; ``missing``, as the first file with changes of it updates or deletes rows and inserts
            none; ``unknown``, as nothing proves either.
        decoded_rows, decoded_bytes: row changes of committed transactions, and what they take in Arrow; None where
            nothing was decoded.
        rescued: how many values their columns' types cannot hold, by column.
    """

    oid: int
    name: str | None
    inserts: int
    updates: int
    deletes: int
    truncates: int
    first_file: str
    last_file: str
    base: Base
    truncated_lsn: int | None
    decoded_rows: int | None = None
    decoded_bytes: int | None = None
    rescued: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an archive holds, and what is wrong with it.

    Attributes:
        files_read: all that were listed; those that cannot be read are among the problems.
        transactions: that commit in the archive; ``resent`` of them have come before, and are not counted.
        problems: what is damaged or missing, in the files' order.
        copies_compared: the transactions that come again were compared with their first copies.
        values_counted: all was decoded (``values``).
        open: transactions that have not ended where the archive does, and ``unfinished_bytes`` of a message.
        index: where the index is that was named; None for none.  ``as_indexed`` files have the bytes that it has a
            checksum of.
    """

    captures: str
    files: int
    capture_bytes: int
    files_read: int
    transactions: int
    resent: int
    changes: int
    sessions: int
    coverage: tuple[Stretch, ...]
    problems: tuple[Problem, ...]
    holes: tuple[NumberHole, ...]
    overlaps: tuple[Overlap, ...]
    torn: tuple[Torn, ...]
    tables: tuple[TableAudit, ...]
    open: tuple[Open, ...]
    unfinished_bytes: int
    copies_compared: bool
    values_counted: bool
    warnings: tuple[str, ...]
    seconds: float
    index: str | None = None
    as_indexed: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged or missing, as far as it can be told."""
        return not self.problems and not self.holes

    def to_dict(self) -> dict[str, Any]:
        """Give the report as values for JSON; LSNs as ``X/X``, times in ISO form."""
        return {"whole": self.is_whole, **_plain(self)}


def own_warnings(warnings: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out the warnings that tell of problems."""
    return tuple(dict.fromkeys(text for text in warnings if not text.endswith(_EXPLAINED)))


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("lsn"):
        return format_lsn(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    slots = getattr(type(value), "__slots__", None)
    return value if slots is None else {name: _plain(getattr(value, name), name) for name in slots}


__all__ = [
    "AuditReport",
    "NumberHole",
    "Overlap",
    "Problem",
    "Stretch",
    "TableAudit",
    "Torn",
    "own_warnings",
]

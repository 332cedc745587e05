"""The messages of pgoutput, protocol versions 1 to 4: one immutable class each, and the structs of their fixed parts.

Fields are in the order of the wire and are named after PostgreSQL's chapter "Logical Replication Message Formats".
LSNs (64 bits), OIDs and xids (32 bits) are unsigned integers; times are microseconds since 2000-01-01 00:00 UTC.  The
structs lie on the wire behind the tag: all integers are big-endian.

Between Stream Start and Stream Stop most messages begin with the xid of the (sub)transaction that they belong to;
elsewhere the same messages have none and their ``xid`` is None.  Origin never has one.

No `repr` shows a value of a row: messages end up in logs and tracebacks, rows must not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import ClassVar, Final, NamedTuple, TypeAlias

REPLICA_IDENTITIES: Final = "dnfi"  # ``pg_class.relreplident``: default (the primary key), nothing, full, index

MAX_COLUMNS: Final = 1664  # PostgreSQL's MaxTupleAttributeNumber: no tuple has more cells

TRUNCATE_CASCADE: Final = 1
TRUNCATE_RESTART_IDENTITY: Final = 2


def _qualified(namespace: str, name: str) -> str:
    """Join the parts of a name; pgoutput sends pg_catalog as the empty string."""
    return f"{namespace or 'pg_catalog'}.{name}"


# Parts of messages.


@dataclass(frozen=True, slots=True, repr=False)
class Cell:
    """One column's value in a tuple.

    Attributes:
        kind: ``n`` null, ``u`` unchanged TOAST (the value is not sent), ``t`` text, ``b`` binary format.
        value: the bytes as sent; None for ``n`` and ``u``.
    """

    kind: str
    value: bytes | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("n", "u", "t", "b"):
            raise ValueError("a cell is of kind n, u, t or b")
        if (self.value is None) != (self.kind in ("n", "u")):
            raise ValueError("a cell has a value exactly when it is of kind t or b")

    def __repr__(self) -> str:
        size = "" if self.value is None else f", <{len(self.value)} bytes>"
        return f"Cell({self.kind!r}{size})"


NULL_CELL: Final = Cell("n")
UNCHANGED_CELL: Final = Cell("u")


@dataclass(frozen=True, slots=True)
class TupleData:
    """A row, one cell for each column of its relation."""

    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation.

    Attributes:
        type_oid: for a domain the domain's own OID; a Type message then names its base type.
        typmod: ``atttypmod``; -1 for none.
        key: part of the replica identity (every column is, under replica identity full).
        number: ``attnum``; 0 where no announcement tells it (`walreplay.decode.announcements`).
        missing: what rows that are older than the column have in it, if that was announced with the number.
        first: the name by which rows from before the table's first announcement have it; empty if they have not, or it
            is not known.  It follows from messages that not all readers of the stream have, so it is not compared.
        rewritten: the LSN of the newest announcement behind which it is not known what older rows have in it; 0 for
            none.
        labels: of an enum's labels, those that have had other texts: its oid, and the texts, the present one last.
        described_number: ``attnum``, where the description of a base load tells it; 0 in the stream.
        described_labels: likewise all labels of an enum: oid and text of each.
    """

    name: str
    type_oid: int
    typmod: int
    key: bool
    number: int = 0
    missing: str | None = field(default=None, repr=False)
    first: str = field(default="", compare=False)
    rewritten: int = 0
    labels: tuple[tuple[int, tuple[str, ...]], ...] = field(default=(), repr=False)
    described_number: int = 0
    described_labels: tuple[tuple[int, str], ...] = field(default=(), repr=False)


class _Tagged:
    """A message: on the wire it begins with its class's tag."""

    __slots__ = ()

    tag: ClassVar[str]

    def __init_subclass__(cls, tag: str = "") -> None:
        if tag:  # a class with slots is made a second time, and has its tag already
            cls.tag = tag


# Transactions.


@dataclass(frozen=True, slots=True)
class Begin(_Tagged, tag="B"):
    """A transaction begins; it has committed at ``final_lsn``."""

    final_lsn: int
    commit_time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit(_Tagged, tag="C"):
    """The transaction that `Begin` opened is complete."""

    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class Origin(_Tagged, tag="O"):
    """The open transaction, or streamed block, was replayed from another server."""

    origin_lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class Message(_Tagged, tag="M"):
    """What ``pg_logical_emit_message`` wrote."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes = field(repr=False)
    xid: int | None = None


# Schema.


@dataclass(frozen=True, slots=True)
class Relation(_Tagged, tag="R"):
    """A relation's name and columns, as the row changes that follow have them.

    Attributes:
        namespace: empty for pg_catalog, as on the wire.
        replica_identity: one of `REPLICA_IDENTITIES`.
        formers: how many tables that had the oid before are announced to be dropped (`walreplay.table.identities`).
        unlisted: the ``attnum`` of columns that are announced, and not sent: a column list leaves them out.
    """

    oid: int
    namespace: str
    name: str
    replica_identity: str
    columns: tuple[Column, ...]
    xid: int | None = None
    unlisted: tuple[int, ...] = ()
    formers: int = 0

    @property
    def qualified_name(self) -> str:
        """The name as ``schema.table``."""
        return _qualified(self.namespace, self.name)

    @property
    def identity(self) -> tuple[str, ...]:
        """The replica identity, then the names of its columns; none where the whole row identifies itself."""
        key = () if self.replica_identity == "f" else (column.name for column in self.columns if column.key)
        return (self.replica_identity, *key)

    @property
    def shape(self) -> tuple[tuple[str, int, int], ...]:
        """Each column's name, type and type modifier: what the versions of one table's relation have in common."""
        return tuple((column.name, column.type_oid, column.typmod) for column in self.columns)


@dataclass(frozen=True, slots=True)
class Type(_Tagged, tag="Y"):
    """A type that is not built in; for a domain, the name of its base type."""

    oid: int
    namespace: str
    name: str
    xid: int | None = None

    @property
    def qualified_name(self) -> str:
        """The name as ``schema.type``."""
        return _qualified(self.namespace, self.name)


# Row changes.


@dataclass(frozen=True, slots=True)
class Insert(_Tagged, tag="I"):
    """A row is new."""

    relation_oid: int
    new: TupleData
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Update(_Tagged, tag="U"):
    """A row has changed.

    Attributes:
        old: the whole row before (replica identity full).
        key: the key before, all other columns ``n`` (only when the key changed or is stored out of line).
    """

    relation_oid: int
    new: TupleData
    old: TupleData | None = None
    key: TupleData | None = None
    xid: int | None = None

    def __post_init__(self) -> None:
        if self.old is not None and self.key is not None:
            raise ValueError("an Update has an old tuple or a key, not both")


@dataclass(frozen=True, slots=True)
class Delete(_Tagged, tag="D"):
    """A row is gone.

    Attributes:
        old: the whole row (replica identity full).
        key: its key alone, all other columns ``n``.  Exactly one of the two is set.
    """

    relation_oid: int
    old: TupleData | None = None
    key: TupleData | None = None
    xid: int | None = None

    def __post_init__(self) -> None:
        if (self.old is None) == (self.key is None):
            raise ValueError("a Delete has either an old tuple or a key")


@dataclass(frozen=True, slots=True)
class Truncate(_Tagged, tag="T"):
    """Relations were emptied; ``options`` are the ``TRUNCATE_*`` bits."""

    relation_oids: tuple[int, ...]
    options: int
    xid: int | None = None


# Streamed transactions (version 2): sent in blocks before their end is known.


@dataclass(frozen=True, slots=True)
class StreamStart(_Tagged, tag="S"):
    """A block of a streamed transaction begins; up to `StreamStop` messages carry an xid."""

    xid: int
    first_segment: bool


@dataclass(frozen=True, slots=True)
class StreamStop(_Tagged, tag="E"):
    """The block ends, the transaction stays open."""


@dataclass(frozen=True, slots=True)
class StreamCommit(_Tagged, tag="c"):
    """A streamed transaction has committed."""

    xid: int
    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class StreamAbort(_Tagged, tag="A"):
    """A streamed transaction (``subxid == xid``) or one of its subtransactions has rolled back.

    ``abort_lsn`` and ``abort_time`` are sent with ``streaming 'parallel'`` only (version 4), and may be zero.
    """

    xid: int
    subxid: int
    abort_lsn: int | None = None
    abort_time: int | None = None

    def __post_init__(self) -> None:
        if (self.abort_lsn is None) != (self.abort_time is None):
            raise ValueError("a Stream Abort has both an LSN and a time, or neither")


# Two-phase commit (version 3).


@dataclass(frozen=True, slots=True)
class BeginPrepare(_Tagged, tag="b"):
    """A transaction begins that ends in `Prepare`."""

    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class Prepare(_Tagged, tag="P"):
    """The transaction that `BeginPrepare` opened is prepared: complete, but not yet committed."""

    flags: int
    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class CommitPrepared(_Tagged, tag="K"):
    """A prepared transaction has committed."""

    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class RollbackPrepared(_Tagged, tag="r"):
    """A prepared transaction has rolled back; ``prepare_end_lsn`` is the ``end_lsn`` of its Prepare."""

    flags: int
    prepare_end_lsn: int
    rollback_end_lsn: int
    prepare_time: int
    rollback_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class StreamPrepare(_Tagged, tag="p"):
    """A streamed transaction is prepared."""

    flags: int
    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str


RowChange: TypeAlias = Insert | Update | Delete
Decision: TypeAlias = StreamCommit | StreamAbort | StreamPrepare | Prepare | CommitPrepared | RollbackPrepared
"""A message that decides on a streamed or prepared transaction; a Prepare only if no Begin Prepare precedes it."""
_Beginning: TypeAlias = Begin | StreamStart | BeginPrepare
_Inner: TypeAlias = Origin | Message | Relation | Type | RowChange | Truncate

AnyMessage: TypeAlias = _Beginning | _Inner | Commit | StreamStop | Decision


UINT8: Final = Struct("!B")
INT16: Final = Struct("!h")
INT32: Final = Struct("!i")
UINT32: Final = Struct("!I")

MESSAGE: Final = Struct("!BQ")  # flags, lsn; prefix, length, content follow
RELATION_END: Final = Struct("!Bh")  # replica_identity, number of columns; oid, namespace, name precede
COLUMN_END: Final = Struct("!Ii")  # type_oid, typmod; flags and name precede
TRUNCATE: Final = Struct("!iB")  # number of relations, options; the OIDs follow
STREAM_ABORT: Final = Struct("!II")  # xid, subxid
STREAM_ABORT_PARALLEL: Final = Struct("!Qq")  # abort_lsn, abort_time: behind STREAM_ABORT, version 4 only


class MessageLayout(NamedTuple):
    """A message of numbers, its fields in their order, and perhaps of one text behind them.

    Attributes:
        numbers: how they lie on the wire.
        label: what errors call the numbers; ``text`` is the text's field.
    """

    numbers: Struct
    label: str
    text: str = ""


_PREPARE: Final = MessageLayout(Struct("!BQQqI"), "flags, LSNs, time and xid", "gid")

LAYOUTS: Final[dict[type[AnyMessage], MessageLayout]] = {
    Begin: MessageLayout(Struct("!QqI"), "LSN, time and xid"),
    Commit: MessageLayout(Struct("!BQQq"), "flags, LSNs and time"),
    Origin: MessageLayout(Struct("!Q"), "LSN", "name"),
    StreamStart: MessageLayout(Struct("!IB"), "xid and first-segment flag"),
    StreamStop: MessageLayout(Struct(""), ""),
    StreamCommit: MessageLayout(Struct("!IBQQq"), "xid, flags, LSNs and time"),
    BeginPrepare: MessageLayout(Struct("!QQqI"), "LSNs, time and xid", "gid"),
    Prepare: _PREPARE,
    CommitPrepared: _PREPARE,
    RollbackPrepared: MessageLayout(Struct("!BQQqqI"), "flags, LSNs, times and xid", "gid"),
    StreamPrepare: _PREPARE,
}
"""All messages but those that may carry an xid, or whose length differs otherwise: how each is read."""

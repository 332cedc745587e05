"""Recorded sessions that break anywhere, and what a server sends to the consumer that comes back.

A session is taken apart into what its server would send again as a whole: transactions, segments of streamed ones and
what decides on them.  Nothing up to the confirmed LSN comes again, and relations are announced anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from struct import pack
from typing import Final, TypeVar

from support.framings import Form, Keepalive, frame
from support.wire import encode
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import is_streaming_after, read_stream

_TEXTS: Final = (25, 1043)
_INTEGERS: Final = {21: ">h", 23: ">i", 20: ">q"}

Row = TypeVar("Row", m.Insert, m.Update, m.Delete)


@dataclass(frozen=True)
class Unit:
    """Messages that a server sends one behind the other, or not at all.

    Attributes:
        lsn: once so much is confirmed, they do not come again; None for what always does.
        commits: what is committed with them.
    """

    messages: tuple[m.AnyMessage, ...]
    lsn: int | None
    commits: int | None = None


def units(messages: Iterable[m.AnyMessage]) -> list[Unit]:
    """Take a whole session apart."""
    found: list[list[m.AnyMessage]] = []
    ends: dict[int, int] = {}
    part: list[m.AnyMessage] = []
    for message in messages:
        part.append(message)
        if isinstance(message, m.StreamCommit):
            ends[message.xid] = message.commit_lsn
        elif isinstance(message, m.StreamPrepare):
            ends[message.xid] = message.prepare_lsn
        opens = isinstance(part[0], (m.Begin, m.BeginPrepare, m.StreamStart))
        if not opens or isinstance(message, (m.Commit, m.Prepare, m.StreamStop)):
            found.append(part)
            part = []
    return [_unit(part, ends) for part in found]


def _unit(part: list[m.AnyMessage], ends: dict[int, int]) -> Unit:
    first, last = part[0], part[-1]
    if isinstance(last, (m.Commit, m.CommitPrepared)):
        return Unit(tuple(part), last.commit_lsn, last.commit_lsn)
    if isinstance(last, m.StreamCommit):
        return Unit(tuple(part), last.commit_lsn, last.commit_lsn)
    if isinstance(last, (m.Prepare, m.StreamPrepare)):
        return Unit(tuple(part), last.prepare_lsn)
    if isinstance(last, m.RollbackPrepared):
        return Unit(tuple(part), last.rollback_end_lsn)
    if isinstance(first, (m.StreamStart, m.StreamAbort)):
        return Unit(tuple(part), ends.get(first.xid))
    return Unit(tuple(part), first.lsn if isinstance(first, m.Message) else None)


def sent(parts: Sequence[Unit], confirmed: int) -> Iterator[m.AnyMessage]:
    """Yield the messages of the session that begins behind the confirmed LSN."""
    known: dict[int, m.Relation] = {}
    types: dict[int, m.Type] = {}
    announced: dict[int, m.Relation] = {}
    for unit in parts:
        comes = unit.lsn is None or unit.lsn > confirmed
        streamed = isinstance(unit.messages[0], m.StreamStart)
        for message in unit.messages:
            if isinstance(message, m.Type):
                types[message.oid] = replace(message, xid=None)
            if isinstance(message, m.Relation):
                known[message.oid] = replace(message, xid=None)
                if comes and not streamed:
                    announced[message.oid] = message
            if not comes:
                continue
            for oid in () if streamed else _named(message):
                if oid in known and announced.get(oid) != known[oid]:
                    announced[oid] = known[oid]
                    # Those of its columns, and of what these are made of.
                    yield from types.values()
                    yield known[oid]
            yield message


def _named(message: m.AnyMessage) -> tuple[int, ...]:
    if isinstance(message, (m.Insert, m.Update, m.Delete)):
        return (message.relation_oid,)
    return message.relation_oids if isinstance(message, m.Truncate) else ()


def in_binary(messages: Iterable[m.AnyMessage]) -> Iterator[m.AnyMessage]:
    """Have texts and integers sent in binary format."""
    relations: dict[int, m.Relation] = {}
    for message in messages:
        if isinstance(message, m.Relation):
            relations[message.oid] = message
        if isinstance(message, (m.Insert, m.Update, m.Delete)):
            relation = relations[message.relation_oid]
            tuples = {name: getattr(message, name) for name in ("new", "old", "key") if getattr(message, name, None)}
            yield replace(message, **{name: _binary_tuple(values, relation) for name, values in tuples.items()})
        else:
            yield message


def _binary_tuple(values: m.TupleData, relation: m.Relation) -> m.TupleData:
    return m.TupleData(
        tuple(_binary_cell(cell, column.type_oid) for cell, column in zip(values.cells, relation.columns, strict=True))
    )


def _binary_cell(cell: m.Cell, oid: int) -> m.Cell:
    if cell.kind != "t" or cell.value is None or not (oid in _TEXTS or oid in _INTEGERS):
        return cell
    return m.Cell("b", cell.value if oid in _TEXTS else pack(_INTEGERS[oid], int(cell.value)))


def with_aborts_of_nothing(parts: Sequence[Unit], *, parallel: bool) -> list[Unit]:
    """Have aborts come of transactions that were gone before they were streamed, as PostgreSQL 18 sends them."""
    found: list[Unit] = []
    for number, unit in enumerate(parts):
        found.append(unit)
        if number % 3 == 0 and unit.commits is not None:
            where = (unit.commits + 8, 800_000_000_000_000) if parallel else ()
            xid = 900_000 + number
            found.append(Unit((m.StreamAbort(xid, xid + 1, *where),), None))
    return found


def framed(messages: Iterable[m.AnyMessage], framing: Framing) -> bytes:
    """Put a session into bytes; as a walsender does it, where that is the framing: with LSNs, times and keepalives."""
    if framing is not Framing.COPYDATA:
        return frame(list(messages), framing)
    form, lsn, time = Form(framing), 0x1BD_1CC0, 800_000_000_000_000
    data = bytearray(form.wrap_keepalive(Keepalive(lsn, time, False)))
    for number, message in enumerate(messages):
        lsn, time = lsn + 24, time + 977
        data += form.wrap(encode(message), lsn=lsn, time=time)
        if number % 11 == 10:
            data += form.wrap_keepalive(Keepalive(lsn, time, False))
    return bytes(data)


@dataclass(frozen=True)
class Wire:
    """A session's bytes.

    Attributes:
        own: for each message, the offsets of the bytes in front of it that are the framing's own.
        ends: behind each message: its end, and the highest commit LSN so far.
    """

    data: bytes
    own: list[range]
    ends: list[tuple[int, int]]

    @classmethod
    def of(cls, messages: Sequence[m.AnyMessage], framing: Framing) -> Wire:
        data = framed(messages, framing)
        own, ends, end, high, streaming = [], [], 0, -1, False
        for at, message in read_stream(data, framing=framing):
            own.append(range(end, at))
            end = at + len(encode(message))
            if isinstance(message, (m.Commit, m.StreamCommit, m.CommitPrepared)):
                high = max(high, message.commit_lsn)
            ends.append((end, high))
            streaming = is_streaming_after(message, streaming)
        own.append(range(end, len(data)))
        return cls(data, own, ends)

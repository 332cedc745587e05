"""Replays messages row by row into plain lists: what a capture means, with nothing done for speed.

It is written from the protocol's documents alone, on top of the scalar reader, to show that the truth and the
live harness are right, and to give what the truth's CSV does not have: the commit that wrote a row last.
Ordinary transactions and text values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from wal2delta.errors import TruncatedMessage
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing
from wal2delta.protocol.reader import read_stream

Value = str | None
_UNKNOWN = object()


@dataclass(slots=True)
class ReplayedRow:
    """A row and the transaction that wrote it last (commit time in µs since 2000-01-01)."""

    values: list[Value]
    commit_lsn: int
    commit_time: int


@dataclass(slots=True)
class ReplayedTable:
    """A relation's rows, in no order that means anything."""

    relation: m.Relation
    rows: list[ReplayedRow] = field(default_factory=list)

    @property
    def key(self) -> list[int]:
        """The places of the replica identity's columns."""
        return [place for place, column in enumerate(self.relation.columns) if column.key]


def replay(streams: Iterable[bytes], framing: Framing) -> dict[str, ReplayedTable]:
    """Apply whole sessions, one after the other; give the tables by ``schema.table``.

    Only committed transactions count, each once, however often the sessions repeat it.
    """
    tables: dict[int, ReplayedTable] = {}
    applied: set[tuple[int, int, int]] = set()
    for stream in streams:
        begin: m.Begin | None = None
        changes: list[m.RowChange | m.Truncate] = []
        for message in _until_torn(stream, framing):
            if isinstance(message, m.Begin):
                begin, changes = message, []
            elif isinstance(message, m.Commit):
                assert begin is not None
                assert begin.final_lsn == message.commit_lsn
                identity = (message.commit_lsn, begin.xid, message.commit_time)
                if identity not in applied:
                    applied.add(identity)
                    for change in changes:
                        _apply(tables, change, message)
                begin = None
            elif isinstance(message, m.Relation):
                _announce(tables, message)
            elif isinstance(message, m.Insert | m.Update | m.Delete | m.Truncate):
                assert begin is not None
                changes.append(message)
            elif not isinstance(message, m.Origin | m.Message | m.Type):
                raise NotImplementedError(type(message).__name__)
    return {table.relation.qualified_name: table for table in tables.values()}


def _until_torn(stream: bytes, framing: Framing) -> Iterable[m.AnyMessage]:
    """A session may end inside a message; what is whole before it counts."""
    try:
        for _, message in read_stream(stream, framing=framing):
            yield message
    except TruncatedMessage:
        return


def _announce(tables: dict[int, ReplayedTable], relation: m.Relation) -> None:
    known = tables.get(relation.oid)
    if known is None:
        tables[relation.oid] = ReplayedTable(relation)
    elif [c.name for c in known.relation.columns] != [c.name for c in relation.columns]:
        raise NotImplementedError("a relation that changes its columns")
    else:
        known.relation = relation


def _apply(tables: dict[int, ReplayedTable], change: m.RowChange | m.Truncate, commit: m.Commit) -> None:
    if isinstance(change, m.Truncate):
        for oid in change.relation_oids:
            tables[oid].rows.clear()
        return
    table = tables[change.relation_oid]
    if isinstance(change, m.Insert):
        place, known = len(table.rows), None
    else:
        place = _find(table, change)
        known = table.rows[place].values
    if isinstance(change, m.Delete):
        del table.rows[place]
        return
    values = [
        _text(cell, None if known is None else known[i], hidden=known is None)
        for i, cell in enumerate(change.new.cells)
    ]
    table.rows[place : place + 1] = [ReplayedRow(values, commit.commit_lsn, commit.commit_time)]


def _text(cell: m.Cell, known: Value, *, hidden: bool = False) -> Value:
    if cell.kind == "t":
        assert cell.value is not None
        return cell.value.decode()
    if cell.kind == "u" and not hidden:
        return known
    if cell.kind == "n":
        return None
    raise NotImplementedError(f"a cell of kind {cell.kind}")


def _find(table: ReplayedTable, change: m.Update | m.Delete) -> int:
    """Find the row that a change is about: by its whole old image, or by its key."""
    if change.old is not None:
        places: Sequence[int] = range(len(table.relation.columns))
        image = [_text(cell, None) for cell in change.old.cells]
    else:
        places = table.key
        cells = change.key.cells if change.key is not None else change.new.cells  # type: ignore[union-attr]
        image = [_text(cells[place], None, hidden=True) for place in places]
    for place, row in enumerate(table.rows):
        if [row.values[i] for i in places] == image:
            return place
    raise AssertionError(f"{table.relation.qualified_name}: a change names a row that is not there")

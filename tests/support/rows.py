"""Row changes as plain values, by the walk and by the scalar reader, to be held against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from walreplay.decode.kernels import binary
from walreplay.decode.placing import Tile
from walreplay.decode.stream import StreamWalker
from walreplay.decode.walk import Place
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

Values = tuple[tuple[str, bytes | None], ...] | None
Row = tuple[str, int, int, int, int, int, Values, Values]
"""Kind, relation, commit LSN, commit time, xid, ordinal, new tuple, old tuple or key."""


class _AnyRelation(StreamWalker):
    def on_unknown_relation(self, oid: int, offset: int) -> int:
        return -1


def rows_by_walk(data: bytes, framing: Framing, tile_bytes: int) -> list[Row]:
    """Walk a whole stream in tiles."""
    rows, end = walked(data, framing, tile_bytes)
    assert end == len(data)
    return rows


def walked(data: bytes, framing: Framing, tile_bytes: int) -> tuple[list[Row], int]:
    """Walk a stream in tiles, and return where what is whole in it ends, too."""
    walker = _AnyRelation(framing, place=Place(framing), relations={}, tile_bytes=tile_bytes)
    rows: list[Row] = []
    columns: dict[int, int] = {}
    for tile in walker.walk(data):
        for number, slot, lsn, time, xid, ordinal, _, *firsts in tile.rows.tolist():
            relation = walker.slot_relations[slot]
            oid = walker.kernel.slots.oids[slot]
            columns[slot] = len(relation.columns) if relation is not None else -1
            new, old = (
                None if first < 0 else tuple(_cell(data, tile, first + c) for c in range(columns[slot]))
                for first in firsts
            )
            kind, place = chr(number), (lsn, time, xid, ordinal)
            rows.append((kind, oid, *place, new, old))
    return rows, walker.position


def _cell(data: bytes, tile: Tile, number: int) -> tuple[str, bytes | None]:
    offset, length = int(tile.offset[number]), int(tile.length[number])
    if length >= 0:
        return ("t", data[offset : offset + length])
    if length <= binary.BINARY:
        return ("b", data[offset : offset + binary.BINARY - length])
    return ("n" if length == binary.NULL else "u", None)


def rows_by_reader(data: bytes, framing: Framing) -> Iterator[Row]:
    """Read a whole stream message by message, in the plainest way there is."""
    yield from rows_of(message for _, message in read_stream(data, framing=framing))


def rows_of(messages: Iterable[m.AnyMessage]) -> Iterator[Row]:
    """Return the row changes among messages."""
    begin, ordinal = m.Begin(0, 0, 0), 0
    for message in messages:
        if isinstance(message, m.Begin):
            begin, ordinal = message, 0
            continue
        place = (begin.final_lsn, begin.commit_time, begin.xid, ordinal)
        if isinstance(message, m.Insert):
            yield ("I", message.relation_oid, *place, _values(message.new), None)
        elif isinstance(message, m.Update):
            old = message.old or message.key
            new = _values(message.new)
            if old is not None and new is not None:
                # What is unchanged but stands in the old tuple is known.
                new = tuple(
                    (was.kind, was.value) if now[0] == "u" and was.kind in "tb" else now
                    for now, was in zip(new, old.cells, strict=True)
                )
            yield ("U", message.relation_oid, *place, new, _values(old))
        elif isinstance(message, m.Delete):
            yield ("D", message.relation_oid, *place, None, _values(message.old or message.key))
        elif isinstance(message, m.Truncate):
            for oid in message.relation_oids:
                yield ("T", oid, *place, None, None)
        else:
            continue
        ordinal += 1


def _values(tuple_: m.TupleData | None) -> Values:
    return None if tuple_ is None else tuple((cell.kind, cell.value) for cell in tuple_.cells)

"""Rows of tiles to Arrow columns, kept together per relation version.

A tile is converted while it lies in the cache, but appended to larger builders, so that a batch has a hundred
thousand rows and not a tile's few thousand.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from wal2delta.decode import walk
from wal2delta.decode.columns import ColumnBuilder, make_builder
from wal2delta.decode.stream import Place, StreamWalker
from wal2delta.decode.walk import Tile
from wal2delta.errors import ValueFormatError
from wal2delta.lsn import POSTGRES_EPOCH_UNIX_MICROS
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing
from wal2delta.types import ColumnType, resolve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wal2delta.types import Rescued

TILE_BYTES: Final = 1 << 20
BATCH_ROWS: Final = 1 << 17
BATCH_BYTES: Final = 64 << 20

OP: Final = "__op"
COMMIT_LSN: Final = "__commit_lsn"
COMMIT_TS: Final = "__commit_ts"
XID: Final = "__xid"
ORDINAL: Final = "__ordinal"
ROW: Final = "__row"
RESCUED: Final = "_rescued_data"

TIMESTAMP: Final = pa.timestamp("us", "UTC")

_OP_OF_KIND: Final = np.zeros(256, np.int8)
_OP_OF_KIND[[walk.INSERT, walk.UPDATE, walk.DELETE, walk.TRUNCATE]] = [0, 1, 2, 3]


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Row changes of one relation version, in stream order.

    Attributes:
        relation: the version; ``relation.columns`` are the typed columns of ``data``, in their order.
        data: ``__op`` (c, u, d, t: insert, update, delete, truncate), ``__commit_lsn`` (int64), ``__commit_ts``
            (timestamp[us, UTC]), ``__xid``, ``__ordinal`` (int64; the change's number in its transaction), then
            the relation's columns.  A delete has what was sent of the old row (its key, or all of it), a truncate
            only NULLs.
        unchanged: for each column that has any, which rows hold unchanged TOAST: NULL in ``data``, but not NULL
            in the table.
        before: old tuples of updates, where they were sent: ``__row`` (the row in ``data``), then the relation's
            columns; under replica identity full the whole old row, else its key.  None when there are none.
        rescued: for each row, a JSON object of the values that their columns' types cannot hold, as PostgreSQL's
            text, or NULL.  None when there are none; likewise ``before_rescued``.
    """

    relation: m.Relation
    data: pa.RecordBatch
    unchanged: Mapping[str, pa.Array] = field(default_factory=dict)
    before: pa.RecordBatch | None = None
    rescued: pa.Array | None = None
    before_rescued: pa.Array | None = None


@cache
def _ops() -> pa.Array:
    # Not made at import: the first pa.array imports pandas where there is one, which takes as long as all else.
    return pa.array(["c", "u", "d", "t"])


def column_types(relation: m.Relation, types: Mapping[int, m.Type]) -> list[ColumnType]:
    """Give the types of a relation's columns, its domains and enums told by the Type messages."""
    names = {oid: (type_.namespace, type_.name) for oid, type_ in types.items()}
    return [resolve(column.type_oid, column.typmod, names) for column in relation.columns]


class _Columns:
    """The column builders of one kind of tuple, and what they could not hold."""

    def __init__(self, relation: m.Relation, types: list[ColumnType]) -> None:
        self.relation = relation
        self.builders: list[ColumnBuilder] = [make_builder(type_) for type_ in types]
        self.rescued: dict[int, dict[str, str]] = {}
        self.rows = 0

    def append(self, buf: NDArray[np.uint8], tile: Tile, first: NDArray[np.int32]) -> None:
        for number, builder in enumerate(self.builders):
            try:
                bad: list[Rescued] | None = builder.append(buf, tile.offset, tile.length, first, number)
            except ValueFormatError as error:
                error.table = f"{self.relation.qualified_name}.{self.relation.columns[number].name}"
                raise
            if bad:
                name = self.relation.columns[number].name
                for value in bad:
                    self.rescued.setdefault(self.rows + value.row, {})[name] = value.text
        self.rows += len(first)

    @property
    def nbytes(self) -> int:
        return sum(builder.nbytes for builder in self.builders)

    def finish(self) -> tuple[list[pa.Array], pa.Array | None]:
        arrays = [builder.finish() for builder in self.builders]
        rescued = None
        if self.rescued:
            texts: list[str | None] = [None] * self.rows
            for row, values in self.rescued.items():
                texts[row] = json.dumps(values, ensure_ascii=False)
            rescued = pa.array(texts, pa.string())
        self.rescued, self.rows = {}, 0
        return arrays, rescued


class _RelationRows:
    """The rows of one relation version that are gathered for the next batch."""

    def __init__(self, relation: m.Relation, types: list[ColumnType]) -> None:
        self.relation = relation
        self.types = types
        self.columns = _Columns(relation, types)
        self._before: _Columns | None = None
        self._before_rows: list[NDArray[np.int64]] = []
        self._meta: list[tuple[NDArray[Any], ...]] = []
        self._unchanged: dict[int, list[tuple[int, NDArray[np.bool_]]]] = {}

    @property
    def rows(self) -> int:
        return self.columns.rows

    @property
    def full(self) -> bool:
        return self.rows >= BATCH_ROWS or self.columns.nbytes >= BATCH_BYTES

    def append(self, buf: NDArray[np.uint8], tile: Tile, at: NDArray[np.intp] | slice) -> None:
        kind, new, old = tile.kind[at], tile.new[at], tile.old[at]
        first = np.where(new >= 0, new, old)
        start = self.rows
        if tile.has_unchanged:
            self._note_unchanged(tile, new, start)
        self.columns.append(buf, tile, first)
        with_old = np.nonzero((new >= 0) & (old >= 0))[0]
        if len(with_old):
            if self._before is None:
                self._before = _Columns(self.relation, self.types)
            self._before.append(buf, tile, old[with_old])
            self._before_rows.append(start + with_old)
        meta = (_OP_OF_KIND[kind], tile.lsn[at], tile.commit_ts[at], tile.xid[at], tile.ordinal[at])
        # Where a slice selects the rows, these are views of arrays that the next tile overwrites.
        self._meta.append(tuple(np.array(values) for values in meta))

    def _note_unchanged(self, tile: Tile, new: NDArray[np.int32], start: int) -> None:
        rows = np.nonzero(new >= 0)[0]
        for number in range(len(self.relation.columns)):
            mask = np.zeros(len(new), np.bool_)
            mask[rows] = tile.length[new[rows] + number] == walk.UNCHANGED
            if mask.any():
                self._unchanged.setdefault(number, []).append((start, mask))

    def finish(self) -> ChangeBatch:
        rows = self.rows
        op, lsn, commit_ts, xid, ordinal = (np.concatenate(parts) for parts in zip(*self._meta, strict=True))
        arrays, rescued = self.columns.finish()
        names = [column.name for column in self.relation.columns]
        data = pa.RecordBatch.from_arrays(
            [
                _ops().take(pa.array(op)),
                pa.array(lsn),
                pa.array(commit_ts + POSTGRES_EPOCH_UNIX_MICROS).cast(TIMESTAMP),
                pa.array(xid),
                pa.array(ordinal),
                *arrays,
            ],
            names=[OP, COMMIT_LSN, COMMIT_TS, XID, ORDINAL, *names],
        )
        unchanged = {}
        for number, masks in self._unchanged.items():
            whole = np.zeros(rows, np.bool_)
            for start, mask in masks:
                whole[start : start + len(mask)] = mask
            unchanged[names[number]] = pa.array(whole)
        before = before_rescued = None
        if self._before is not None:
            before_arrays, before_rescued = self._before.finish()
            before = pa.RecordBatch.from_arrays(
                [pa.array(np.concatenate(self._before_rows)), *before_arrays], names=[ROW, *names]
            )
        self._before, self._before_rows, self._meta, self._unchanged = None, [], [], {}
        return ChangeBatch(self.relation, data, unchanged, before, rescued, before_rescued)


class Decoder(StreamWalker):
    """Decode one file's committed row changes.

    Args:
        after_lsn: transactions up to this commit LSN are left out, they are applied already.
        upto_lsn: so are those behind this one, which are not whole yet.
        wanted: the relation versions whose rows are wanted; None wants all.
        truncates: the run's last truncate of a relation, (commit LSN, ordinal); rows before it are left out, as
            are truncates themselves.  None keeps everything.
    """

    def __init__(
        self,
        framing: Framing,
        *,
        place: Place,
        relations: Mapping[int, m.Relation],
        types: Mapping[int, m.Type],
        after_lsn: int,
        upto_lsn: int,
        wanted: Collection[m.Relation] | None = None,
        truncates: Mapping[int, tuple[int, int]] | None = None,
        tile_bytes: int = TILE_BYTES,
    ) -> None:
        super().__init__(framing, place=place, relations=relations, tile_bytes=tile_bytes)
        self._types = dict(types)
        self._after, self._upto = after_lsn, upto_lsn
        self._wanted = wanted
        self._truncates = truncates
        self._rows: dict[int, _RelationRows] = {}
        self._newest: dict[int, int] = {}
        """The slot of the version of each relation (by oid) that rows came of last."""

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Learn the types that relations will use."""
        if isinstance(message, m.Type):
            self._types[message.oid] = message

    def decode(self, data: bytes | memoryview, start: int = 0, stop_at: int | None = None) -> Iterator[ChangeBatch]:
        """Walk a buffer's whole messages and give the batches that are full; `rest` gives the others."""
        buf = np.frombuffer(data, np.uint8)
        for tile in self.walk(data, start, stop_at):
            yield from self._convert(buf, tile)

    def rest(self) -> Iterator[ChangeBatch]:
        """Give the batches that are not full, in the order of their relation versions."""
        for slot in sorted(self._rows):
            if self._rows[slot].rows:
                yield self._rows[slot].finish()

    def _convert(self, buf: NDArray[np.uint8], tile: Tile) -> Iterator[ChangeBatch]:
        slots = tile.slot
        wanted: NDArray[np.bool_] | None = None
        if tile.lsn[0] <= self._after or tile.lsn[-1] > self._upto:
            wanted = (tile.lsn > self._after) & (tile.lsn <= self._upto)
        low, high = int(slots.min()), int(slots.max())
        for slot in range(low, high + 1) if high - low < 16 else np.unique(slots).tolist():
            relation = self.slot_relations[slot]
            if relation is None or (self._wanted is not None and relation not in self._wanted):
                continue
            chosen: NDArray[np.bool_] | None = None if low == high else slots == slot
            if wanted is not None:
                chosen = wanted if chosen is None else chosen & wanted
            truncated = self._truncates.get(relation.oid) if self._truncates else None
            if truncated is not None:
                lsn, ordinal = truncated
                later = (tile.lsn > lsn) | ((tile.lsn == lsn) & (tile.ordinal > ordinal))
                chosen = later if chosen is None else chosen & later
            at: NDArray[np.intp] | slice = slice(None) if chosen is None else np.nonzero(chosen)[0]
            if not isinstance(at, slice) and not len(at):
                continue
            rows = self._rows.get(slot)
            if rows is None:
                # Rows of the relation's version before come first.
                before = self._rows.pop(self._newest.get(relation.oid, -1), None)
                if before is not None and before.rows:
                    yield before.finish()
                self._newest[relation.oid] = slot
                rows = self._rows[slot] = _RelationRows(relation, column_types(relation, self._types))
            rows.append(buf, tile, at)
            if rows.full:
                yield rows.finish()

"""Gather the rows of a relation version for its next batch, from messages (`RelationRows`) or from COPY (`CopiedRows`).

A tile is converted while it is in the processor's cache, but its rows are appended to larger builders.  So a batch
has a hundred thousand rows, not a tile's few thousand.  A row of COPY, or of something like it, becomes an insert as
of one LSN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from walreplay.decode import placing
from walreplay.decode.change_batch import (
    METADATA_NAMES,
    ROW,
    TIMESTAMP,
    ChangeBatch,
    RowPlaces,
    WalkedBytes,
    field_names,
    rescued_array,
    spread,
)
from walreplay.decode.columns.base import MOST_GROWTH, ColumnBuilder
from walreplay.decode.columns.make import make_builder
from walreplay.decode.columns.variable import VariableBuilder
from walreplay.decode.kernels import programs
from walreplay.decode.kernels.binary import UNCHANGED
from walreplay.decode.placing import Tile, empty
from walreplay.errors import ValueFormatError
from walreplay.protocol import messages as m
from walreplay.types.base import ColumnType
from walreplay.types.canonical import canonical_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from walreplay.types.base import Rescued


BATCH_ROWS: Final = 1 << 17

BATCH_BYTES: Final = 64 << 20


class TupleColumns:
    """The column builders for one kind of tuple (new or old), and the values that they could not hold."""

    def __init__(
        self, relation: m.Relation, types: Sequence[ColumnType], names: Mapping[int, tuple[str, str]], codec: str
    ) -> None:
        self.relation = relation
        self.builders: list[ColumnBuilder] = [make_builder(type_, names, codec=codec) for type_ in types]
        self.rescued: dict[int, dict[str, str]] = {}
        self.rows = 0

    def add_rows(
        self,
        buf: NDArray[np.uint8],
        offset: NDArray[np.int32],
        length: NDArray[np.int32],
        first_cells: NDArray[np.int32],
        builders: Sequence[tuple[int, ColumnBuilder]] | None = None,
    ) -> None:
        """Append rows to all columns, or to some; see `ColumnBuilder.add_rows`."""
        for number, builder in enumerate(self.builders) if builders is None else builders:
            try:
                rescued = builder.add_rows(buf, offset, length, first_cells, number)
            except ValueFormatError as error:
                self._name(error, number)
                raise
            if rescued:
                self._keep(number, builder.rows - len(first_cells), rescued)
        if builders is None:
            self.rows += len(first_cells)

    def finish_placed(
        self,
        buf: NDArray[np.uint8],
        tile: Tile,
        first_cells: NDArray[np.int32],
        number: int,
        start: int,
        missed: NDArray[np.int32],
        flags: int,
    ) -> None:
        """Complete a column that the kernel has placed, for the rows from `start` on.

        Args:
            first_cells: the number of each row's first cell.
            missed: which of the rows have a value in another form than the kernel reads.
            flags: what the kernel has found in the text.
        """
        builder = self.builders[number]
        try:
            rescued = builder.finish_placed(
                builder.tile(buf, tile.offset, tile.length, first_cells, number), missed, flags
            )
        except ValueFormatError as error:
            self._name(error, number)
            raise
        if rescued:
            self._keep(number, start, rescued)

    def _name(self, error: ValueFormatError, number: int) -> None:
        error.table = f"{self.relation.qualified_name}.{self.relation.columns[number].name}"

    def _keep(self, number: int, start: int, rescued: Sequence[Rescued]) -> None:
        """Keep values that a column cannot hold, for its rescued texts; their rows count from `start`."""
        name, type_oid = self.relation.columns[number].name, self.builders[number].column_type.oid
        for value in rescued:
            self.rescued.setdefault(start + value.row, {})[name] = canonical_text(value.text, type_oid)

    @property
    def nbytes(self) -> int:
        """The size of what is collected, about as it will be in Arrow."""
        return sum(builder.nbytes for builder in self.builders)

    def finish(self) -> tuple[list[pa.Array], pa.Array | None]:
        """Return the columns and what they could not hold, and begin anew."""
        arrays = [builder.finish() for builder in self.builders]
        rescued = None
        if self.rescued:
            rescued = spread(rescued_array(self.rescued.values()), list(self.rescued), self.rows)
        self.rescued, self.rows = {}, 0
        return arrays, rescued


_MIN_ROWS: Final = 16
"""The first room for rows: small, because there may be thousands of relations and of versions of each."""

_COUNTED: Final = np.arange(BATCH_ROWS + 1, dtype=np.int32)
"""Arrow's offsets for the operations, which have one character each.  All batches share them."""
_COUNTED.setflags(write=False)


class _Metadata:
    """The metadata columns of the rows, in arrays that grow."""

    def __init__(self) -> None:
        self._make(0)

    def _make(self, capacity: int) -> None:
        # LSN, commit time, xid, ordinal
        self._op, self._words = empty(capacity, np.uint8), [empty(capacity, np.int64) for _ in range(4)]

    def reserve(self, capacity: int, rows: int) -> None:
        """Make room for `capacity` rows; the first `rows` are kept."""
        op, words = self._op, self._words
        self._make(capacity)
        self._op[:rows] = op[:rows]
        for new, old in zip(self._words, words, strict=True):
            new[:rows] = old[:rows]

    def addresses(self) -> list[int]:
        """Return the addresses of the columns."""
        return [array.ctypes.data for array in (self._op, *self._words)]

    def deleted(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return which rows are deletes."""
        is_delete: NDArray[np.bool_] = self._op[start:stop] == ord("d")
        return is_delete

    def finish(self, rows: int) -> list[pa.Array]:
        """Return the columns without a copy, and begin with no rows."""
        op, words = self._op, self._words
        types = (pa.int64(), TIMESTAMP, pa.int64(), pa.int64())
        columns = [
            pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(values[:rows])])
            for type_, values in zip(types, words, strict=True)
        ]
        ends = pa.py_buffer(_COUNTED[: rows + 1])
        self._make(len(op))  # Arrow has the old arrays
        return [pa.Array.from_buffers(pa.string(), rows, [None, ends, pa.py_buffer(op[:rows])]), *columns]


class RelationRows:
    """The rows of one relation version that are gathered for the next batch.

    Attributes:
        program: the relation version's program for the kernels (`walreplay.decode.placing`).
        slots: the numbers of the walk's slots that have this relation version.

    Args:
        places: for where each row comes from, if somebody wants to know.
    """

    def __init__(
        self,
        relation: m.Relation,
        types: Sequence[ColumnType],
        names: Mapping[int, tuple[str, str]],
        codec: str,
        places: RowPlaces | None = None,
    ) -> None:
        self.relation = relation
        self._places = places
        self.field_names = field_names(relation)
        self.types = types
        self.names = names
        self.codec = codec
        self.slots: list[int] = []
        self.columns = TupleColumns(relation, types, names, codec)
        builders = list(enumerate(self.columns.builders))
        # The kernel writes the columns of common types, and their builders complete them; the others are the builders'.
        self._placed = [(number, builder) for number, builder in builders if builder.is_placed]
        self._others = [(number, builder) for number, builder in builders if not builder.is_placed]
        self._before: TupleColumns | None = None
        self._before_rows: list[NDArray[np.int64]] = []
        self._metadata = _Metadata()
        self._unchanged: dict[int, list[tuple[int, NDArray[np.bool_]]]] = {}
        self.program = np.zeros(programs.HEAD + len(builders) * programs.COLUMN, np.int64)
        self.program[programs.NEEDS_CARE] = bool(self._others)
        self.program[programs.COLUMNS] = len(builders)
        self._capacity = 0
        self._make_pending(placing.LEAST_PENDING)
        self.reserve(_MIN_ROWS)

    @property
    def rows(self) -> int:
        """The number of gathered rows."""
        return int(self.program[programs.ROWS])

    @property
    def full(self) -> bool:
        """Whether there are enough rows for a batch."""
        self._update_builders()
        return self.rows >= BATCH_ROWS or self.columns.nbytes >= BATCH_BYTES

    def reserve(self, capacity: int) -> None:
        """Make room for so many rows at least."""
        self._update_builders()
        self._withhold_room()
        rows = self.rows
        self._metadata.reserve(capacity, rows)
        if self._places is not None:
            self._places.reserve(capacity, rows)
        for _, builder in self._placed:
            builder.reserve(capacity)
        self._capacity = capacity
        self._update_program()

    def set_source(self, stretch: WalkedBytes) -> None:
        """Note which bytes the next rows come from."""
        if self._places is not None:
            self._places.enter(self.rows, stretch)

    def grow(self, share: float) -> None:
        """Make room for more rows.

        Args:
            share: the share of the bytes that was walked.  The rest is assumed to have rows at the same rate.
        """
        ahead = min(round(self.rows / share), MOST_GROWTH * self._capacity)
        self.reserve(min(max(2 * self._capacity, ahead), BATCH_ROWS))

    def allow_more_pending(self) -> None:
        """Allow more pending rows; to be called when there are none."""
        room = int(self.program[programs.PENDING_ROOM])
        if room < placing.MOST_PENDING:
            self._make_pending(2 * room)
            self._update_program()

    def _make_pending(self, room: int) -> None:
        # First cells of new tuples, and of old ones; the rows of these.
        self._firsts, self._pending_before = np.zeros((2, room), np.int32), np.zeros(room, np.int64)
        self.program[programs.PENDING_ROOM] = room

    def make_room(self, column: int, byte_count: int, share: float) -> None:
        """Make room for `byte_count` more bytes in a column of text; for ``share`` see `grow`."""
        self._update_builders()
        builder = self.columns.builders[column]
        assert isinstance(builder, VariableBuilder)
        builder.make_room(byte_count, share)
        self._update_program()

    def convert_in_builder(self, column: int) -> None:
        """Stop placing a column; from here on its builder converts it."""
        self._update_builders()
        builder = self.columns.builders[column]
        builder.is_placed = False
        self._placed.remove((column, builder))
        self._others.append((column, builder))
        self.program[programs.NEEDS_CARE] = True
        self.program[programs.HEAD + column * programs.COLUMN + programs.KIND] = programs.OTHER

    def _update_builders(self) -> None:
        """Set the builders' number of rows to that of the placed rows."""
        rows = self.rows
        for _, builder in self._placed:
            builder.rows = rows
        self.columns.rows = rows

    def _withhold_room(self) -> None:
        """Let the kernels write nothing before `_update_program`: until then there may be addresses of freed memory."""
        self.program[[programs.ROOM, programs.LIMIT]] = 0

    def _update_program(self) -> None:
        """Write the addresses and sizes of the outputs into the program."""
        program = self.program
        program[programs.ROOM] = self._capacity
        program[programs.LIMIT] = min(self._capacity, program[programs.SETTLED] + program[programs.PENDING_ROOM])
        program[programs.OP : programs.ORDINAL + 1] = self._metadata.addresses()
        program[programs.PLACES] = 0 if self._places is None else self._places.address
        program[programs.FIRSTS] = self._firsts[0].ctypes.data
        program[programs.BEFORE_FIRSTS] = self._firsts[1].ctypes.data
        program[programs.BEFORE_ROWS] = self._pending_before.ctypes.data
        for number, builder in self._placed:
            word = programs.HEAD + number * programs.COLUMN
            program[word : word + programs.COLUMN] = builder.program

    def complete_pending(self, buf: NDArray[np.uint8], tile: Tile, missed: NDArray[np.int64]) -> None:
        """Complete the pending rows: convert what the kernels have left.

        Args:
            missed: column, row and first cell of each value in another form than the kernels read.
        """
        program = self.program
        start, rows = int(program[programs.SETTLED]), self.rows
        first_cells = self._firsts[0][: rows - start]
        self.columns.add_rows(buf, tile.offset, tile.length, first_cells, self._others)
        for number, builder in self._placed:
            flags = programs.HEAD + number * programs.COLUMN + programs.FLAGS
            missed_rows = missed[missed[:, 0] == number, 1] if len(missed) else missed[:, 1]
            # Without flags and misses, the kernel has written whole values, and nothing is left to do.
            if program[flags] or len(missed_rows):
                builder.rows = start
                self.columns.finish_placed(
                    buf, tile, first_cells, number, start, (missed_rows - start).astype(np.int32), int(program[flags])
                )
                program[flags] = 0
        if tile.has_unchanged:
            self._note_unchanged(tile, first_cells, start)
        old_tuple_count = int(program[programs.BEFORES])
        if old_tuple_count:
            if self._before is None:
                self._before = TupleColumns(self.relation, self.types, self.names, self.codec)
            self._before.add_rows(buf, tile.offset, tile.length, self._firsts[1][:old_tuple_count])
            self._before_rows.append(self._pending_before[:old_tuple_count].copy())
        self._settle(rows)

    def _note_unchanged(self, tile: Tile, first_cells: NDArray[np.int32], start: int) -> None:
        # Truncates have no cells.  A delete's cells are of the old row: none is unchanged in the table.
        rows = np.nonzero((first_cells >= 0) & ~self._metadata.deleted(start, start + len(first_cells)))[0]
        for number in range(len(self.relation.columns)):
            mask = np.zeros(len(first_cells), np.bool_)
            mask[rows] = tile.length[first_cells[rows] + number] == UNCHANGED
            if mask.any():
                self._unchanged.setdefault(number, []).append((start, mask))

    def drop_pending(self) -> None:
        """Discard the pending rows."""
        self._settle(int(self.program[programs.SETTLED]))

    def _settle(self, rows: int) -> None:
        """Set the number of rows; none are pending then."""
        program = self.program
        program[[programs.ROWS, programs.SETTLED]] = rows
        program[[programs.BEFORES, programs.HAS_UNCHANGED, programs.HAS_MISSES]] = 0
        program[programs.LIMIT] = min(program[programs.ROOM], rows + program[programs.PENDING_ROOM])

    def finish(self) -> ChangeBatch:
        """Return the batch, and begin the next one."""
        self.drop_pending()
        self._update_builders()
        self._withhold_room()
        rows = self.rows
        arrays, rescued = self.columns.finish()
        names = [column.name for column in self.relation.columns]
        data = pa.RecordBatch.from_arrays(
            [*self._metadata.finish(rows), *arrays], names=[*METADATA_NAMES, *self.field_names]
        )
        unchanged = {}
        for number, masks in self._unchanged.items():
            is_unchanged = np.zeros(rows, np.bool_)  # tiles without any are not in the list
            for start, mask in masks:
                is_unchanged[start : start + len(mask)] = mask
            unchanged[names[number]] = pa.array(is_unchanged)
        before = before_rescued = None
        if self._before is not None:
            before_arrays, before_rescued = self._before.finish()
            before = pa.RecordBatch.from_arrays(
                [pa.array(np.concatenate(self._before_rows)), *before_arrays], names=[ROW, *self.field_names]
            )
        self._before, self._before_rows, self._unchanged = None, [], {}
        places = None if self._places is None else self._places.finish(rows)
        self._settle(0)
        self._update_program()
        return ChangeBatch(self.relation, data, unchanged, before, rescued, before_rescued, places)


class Cells(NamedTuple):
    """Rows that were taken apart.

    Attributes:
        buf: the bytes that the cells lie in.
        offset, length: int32, row by row; lengths as in a tile: -1 for NULL, -3 and below for binary format.
        rows: how many there are.
        base: where ``buf`` begins in the file.
    """

    buf: NDArray[np.uint8]
    offset: NDArray[np.int32]
    length: NDArray[np.int32]
    rows: int
    base: int


class CopiedRows:
    """Gathers the rows of one relation version.

    Args:
        types: of the relation's columns.
        names: of types by oid, from Type messages.
        codec: what text is in; from `walreplay.types.text.codec_of`.
        order: which of the cells' columns each of the relation's is; None if they are the same, and no more.
        lsn: the commit LSN that all rows get.
    """

    def __init__(
        self,
        relation: m.Relation,
        types: Sequence[ColumnType],
        names: Mapping[int, tuple[str, str]],
        codec: str,
        order: Sequence[int] | None,
        lsn: int,
    ) -> None:
        self.relation = relation
        self._columns = TupleColumns(relation, types, names, codec)
        self._order = None if order is None else np.array(order, np.int64)
        self._lsn = lsn

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._columns.rows

    @property
    def full(self) -> bool:
        """Whether they are enough for a batch."""
        return self.rows >= BATCH_ROWS or self._columns.nbytes >= BATCH_BYTES

    def take(self, cells: Cells) -> None:
        """Append rows.

        Raises:
            ValueFormatError: a value is not in its type's form; its offset is the cell's in the file.
        """
        offset, length, count = cells.offset, cells.length, len(self.relation.columns)
        if self._order is not None:
            width = len(offset) // cells.rows if cells.rows else 0
            # Kernels find a row's cells one behind the other.
            offset = np.ascontiguousarray(offset.reshape(-1, width)[:, self._order]).reshape(-1)
            length = np.ascontiguousarray(length.reshape(-1, width)[:, self._order]).reshape(-1)
        first_cells = np.arange(cells.rows, dtype=np.int32) * np.int32(count)
        try:
            self._columns.add_rows(cells.buf, offset, length, first_cells)
        except ValueFormatError as error:
            if error.offset is not None:
                error.offset += cells.base  # from the buffer's to the file's
            raise

    def finish(self) -> ChangeBatch:
        """Return the batch, and begin anew.  When the rows were committed is not known: their commit time is NULL."""
        rows = self.rows
        return inserts_of(self.relation, *self._columns.finish(), rows, self._lsn)


def inserts_of(
    relation: m.Relation, columns: Sequence[pa.Array], rescued: pa.Array | None, rows: int, lsn: int
) -> ChangeBatch:
    """Return rows as inserts of a relation version, as of an LSN."""
    metadata = [
        pa.repeat("c", rows),  # "create": an insert
        pa.array(np.full(rows, lsn, np.int64)),
        pa.nulls(rows, TIMESTAMP),  # COPY has no commit time, xid or ordinal
        pa.array(np.zeros(rows, np.int64)),
        pa.array(np.zeros(rows, np.int64)),
    ]
    data = pa.RecordBatch.from_arrays([*metadata, *columns], names=[*METADATA_NAMES, *field_names(relation)])
    return ChangeBatch(relation, data, rescued=rescued)

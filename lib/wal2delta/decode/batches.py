"""Rows of tiles to Arrow columns, kept together per relation version.

A tile is converted while it lies in the cache, but appended to larger builders, so that a batch has a hundred
thousand rows and not a tile's few thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from wal2delta.decode import kernels_place as words
from wal2delta.decode import placing, walk
from wal2delta.decode.columns import ColumnBuilder, make_builder
from wal2delta.decode.columns.base import MOST_GROWTH
from wal2delta.decode.columns.variable import TextBuilder
from wal2delta.decode.memory import empty
from wal2delta.decode.placing import Left, Placer
from wal2delta.decode.rescued import rescued_array, spread
from wal2delta.decode.stream import Place, StreamWalker, outside
from wal2delta.decode.uses import Uses
from wal2delta.decode.walk import Records, Tile
from wal2delta.errors import ValueFormatError
from wal2delta.names import free_names
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing
from wal2delta.types import ColumnType, resolve
from wal2delta.types.by_value import rescued_text
from wal2delta.types.options import DEFAULT_OPTIONS, TypeOptions
from wal2delta.types.text import UTF8

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wal2delta.types import Rescued

TILE_BYTES: Final = 1 << 20
BATCH_ROWS: Final = 1 << 17
BATCH_BYTES: Final = 64 << 20
MOST_RELATIONS: Final = 8192
"""The rows of so many relation versions are gathered side by side: each takes memory, however few rows it has."""
MOST_NAMES: Final = 1 << 20
"""So many names of types are kept for them, where versions know other ones."""

OP: Final = "__op"
COMMIT_LSN: Final = "__commit_lsn"
COMMIT_TS: Final = "__commit_ts"
XID: Final = "__xid"
ORDINAL: Final = "__ordinal"
ROW: Final = "__row"

METADATA_NAMES: Final = (OP, COMMIT_LSN, COMMIT_TS, XID, ORDINAL)

METADATA_COLUMNS: Final = len(METADATA_NAMES)
"""`ChangeBatch.data` begins with so many: operation, commit LSN and time, xid and ordinal."""

TIMESTAMP: Final = pa.timestamp("us", "UTC")

_KIND_OF_OP: Final = {"c": walk.INSERT, "u": walk.UPDATE, "d": walk.DELETE, "t": walk.TRUNCATE}


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Row changes of one relation version, in stream order.

    Attributes:
        relation: the version; ``relation.columns`` are the typed columns of ``data``, in their order.
        data: ``__op`` (c, u, d, t: insert, update, delete, truncate), ``__commit_lsn`` (int64), ``__commit_ts``
            (timestamp[us, UTC]), ``__xid``, ``__ordinal`` (int64; the change's number in its transaction), then
            the relation's columns, under the names that `field_names` gives.  A delete has what was sent of the old
            row (its key, or all of it), a truncate only NULLs.
        unchanged: for each column that has any (by the name that it has in the relation), which rows hold unchanged
            TOAST: NULL in ``data``, but not NULL in the table.
        before: old tuples of updates, where they were sent: ``__row`` (the row in ``data``), then the relation's
            columns; under replica identity full the whole old row, else its key.  None when there are none.
        rescued: for each row, a JSON object of the values that their columns' types cannot hold, as PostgreSQL's
            text, or NULL; names are the relation's.  None when there are none; likewise ``before_rescued``.
    """

    relation: m.Relation
    data: pa.RecordBatch
    unchanged: Mapping[str, pa.Array] = field(default_factory=dict)
    before: pa.RecordBatch | None = None
    rescued: pa.Array | None = None
    before_rescued: pa.Array | None = None

    # By place: the relation may have columns of any names.

    @property
    def ops(self) -> pa.Array:
        """The operations, ``__op``."""
        return self.data.column(0)

    @property
    def commit_lsns(self) -> pa.Array:
        """The commit LSNs, ``__commit_lsn``."""
        return self.data.column(1)

    @property
    def commit_times(self) -> pa.Array:
        """The commit times, ``__commit_ts``."""
        return self.data.column(2)

    @property
    def columns(self) -> list[pa.Array]:
        """The relation's columns, in their order."""
        return list(self.data.columns[METADATA_COLUMNS:])

    @property
    def before_rows(self) -> pa.Array:
        """The rows that have old tuples, ``__row``; to be asked where there is ``before``."""
        assert self.before is not None
        return self.before.column(0)

    @property
    def before_columns(self) -> list[pa.Array]:
        """The relation's columns of the old tuples, in their order; to be asked where there is ``before``."""
        assert self.before is not None
        return list(self.before.columns[1:])

    def slice(self, start: int, stop: int) -> ChangeBatch:
        """Give some of the rows; they are not copied."""
        if start == 0 and stop == self.data.num_rows:
            return self
        count = stop - start
        unchanged = {name: mask.slice(start, count) for name, mask in self.unchanged.items()}
        before = before_rescued = None
        if self.before is not None:
            rows = self.before_rows.to_numpy()
            first, last = np.searchsorted(rows, [start, stop]).tolist()
            if first < last:
                columns = self.before.slice(first, last - first).columns
                own = pa.array(rows[first:last] - start)
                before = pa.RecordBatch.from_arrays([own, *columns[1:]], names=self.before.schema.names)
                before_rescued = _if_any(self.before_rescued, first, last)
        return ChangeBatch(
            self.relation,
            self.data.slice(start, count),
            {name: mask for name, mask in unchanged.items() if mask.true_count},
            before,
            _if_any(self.rescued, start, stop),
            before_rescued,
        )


def field_names(relation: m.Relation) -> list[str]:
    """Give the names that a relation's columns have in `ChangeBatch.data` and ``before``: their own.

    But one that is called like a column of ours gets a suffix, ``__2`` or the first number behind it that is free, as
    in a mirror table (`wal2delta.names`).  Arrow tells upper from lower case.
    """
    return free_names((column.name for column in relation.columns), {*METADATA_NAMES, ROW})


def _if_any(values: pa.Array | None, start: int, stop: int) -> pa.Array | None:
    """Give some of the values, if one of them is not NULL."""
    found = None if values is None else values.slice(start, stop - start)
    return None if found is None or found.null_count == len(found) else found


def column_types(
    relation: m.Relation, types: Mapping[int, m.Type], options: TypeOptions = DEFAULT_OPTIONS
) -> list[ColumnType]:
    """Give the types of a relation's columns, its domains and enums told by the Type messages.

    Args:
        options: what the configuration says of the table.
    """
    return _column_types(relation, type_names(types), options)


def _column_types(
    relation: m.Relation, names: Mapping[int, tuple[str, str]], options: TypeOptions = DEFAULT_OPTIONS
) -> list[ColumnType]:
    return [
        resolve(column.type_oid, column.typmod, names, options=options, override=options.override_of(column.name))
        for column in relation.columns
    ]


def type_names(types: Mapping[int, m.Type]) -> dict[int, tuple[str, str]]:
    """Give the (namespace, name) that Type messages announced, by oid."""
    return {oid: (type_.namespace, type_.name) for oid, type_ in types.items()}


class _Columns:
    """The column builders of one kind of tuple, and what they could not hold."""

    def __init__(
        self, relation: m.Relation, types: Sequence[ColumnType], names: Mapping[int, tuple[str, str]], codec: str
    ) -> None:
        self.relation = relation
        self.builders: list[ColumnBuilder] = [make_builder(type_, names, codec=codec) for type_ in types]
        self.rescued: dict[int, dict[str, str]] = {}
        self.rows = 0

    def append(
        self,
        buf: NDArray[np.uint8],
        tile: Tile,
        first: NDArray[np.int32],
        builders: Sequence[tuple[int, ColumnBuilder]] | None = None,
    ) -> None:
        """Append rows to all columns, or to some."""
        for number, builder in enumerate(self.builders) if builders is None else builders:
            try:
                bad = builder.append(buf, tile.offset, tile.length, first, number)
            except ValueFormatError as error:
                self._name(error, number)
                raise
            if bad:
                self._keep(number, builder.rows - len(first), bad)
        if builders is None:
            self.rows += len(first)

    def finish_placed(
        self,
        buf: NDArray[np.uint8],
        tile: Tile,
        first: NDArray[np.int32],
        number: int,
        start: int,
        missed: NDArray[np.int32],
        flags: int,
    ) -> None:
        """See to what is left of the rows from `start` on, whose column was placed."""
        builder = self.builders[number]
        try:
            bad = builder.finish_placed(builder.tile(buf, tile.offset, tile.length, first, number), missed, flags)
        except ValueFormatError as error:
            self._name(error, number)
            raise
        if bad:
            self._keep(number, start, bad)

    def _name(self, error: ValueFormatError, number: int) -> None:
        error.table = f"{self.relation.qualified_name}.{self.relation.columns[number].name}"

    def _keep(self, number: int, start: int, bad: Sequence[Rescued]) -> None:
        """Keep the values that a column cannot hold, of rows from `start` on."""
        name, column_type = self.relation.columns[number].name, self.builders[number].column_type
        for value in bad:
            self.rescued.setdefault(start + value.row, {})[name] = rescued_text(value.text, column_type)

    @property
    def nbytes(self) -> int:
        return sum(builder.nbytes for builder in self.builders)

    def finish(self) -> tuple[list[pa.Array], pa.Array | None]:
        arrays = [builder.finish() for builder in self.builders]
        rescued = None
        if self.rescued:
            rescued = spread(rescued_array(self.rescued.values()), list(self.rescued), self.rows)
        self.rescued, self.rows = {}, 0
        return arrays, rescued


_MIN_ROWS: Final = 16
"""For so many rows there is room at first: there may be thousands of relations, and of versions of each."""

_LEAST_SHARE: Final = 1 / 32
"""From how much of the bytes on what they have held says how much the others will."""

_COUNTED: Final = np.arange(BATCH_ROWS + 1, dtype=np.int32)
"""Where operations end: each is one character.  All batches share it."""
_COUNTED.setflags(write=False)


class _Metadata:
    """What is known of each row beside its values, in arrays that grow."""

    def __init__(self) -> None:
        self._make(0)

    def _make(self, capacity: int) -> None:
        self._op = empty(capacity, np.uint8)
        self._words = [empty(capacity, np.int64) for _ in range(4)]  # LSN, commit time, xid, ordinal

    def reserve(self, capacity: int, rows: int) -> None:
        """Make room for so many rows, and keep the first ones."""
        op, words = self._op, self._words
        self._make(capacity)
        self._op[:rows] = op[:rows]
        for new, old in zip(self._words, words, strict=True):
            new[:rows] = old[:rows]

    def addresses(self) -> list[int]:
        """Give where the columns lie."""
        return [array.ctypes.data for array in (self._op, *self._words)]

    def deleted(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Say which rows are deletes."""
        is_delete: NDArray[np.bool_] = self._op[start:stop] == ord("d")
        return is_delete

    def finish(self, rows: int) -> list[pa.Array]:
        """Give the columns, without a copy, and begin anew."""
        op, words = self._op, self._words
        types = (pa.int64(), TIMESTAMP, pa.int64(), pa.int64())
        columns = [
            pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(values[:rows])])
            for type_, values in zip(types, words, strict=True)
        ]
        ends = pa.py_buffer(_COUNTED[: rows + 1])
        self._make(len(op))
        return [pa.Array.from_buffers(pa.string(), rows, [None, ends, pa.py_buffer(op[:rows])]), *columns]


class _RelationRows:
    """The rows of one relation version that are gathered for the next batch.

    Attributes:
        program: what `wal2delta.decode.placing` goes by.
        slots: those of the walk's slots whose rows they are.
    """

    def __init__(
        self, relation: m.Relation, types: Sequence[ColumnType], names: Mapping[int, tuple[str, str]], codec: str
    ) -> None:
        self.relation = relation
        self.field_names = field_names(relation)
        self.types = types
        self.names = names
        self.codec = codec
        self.slots: list[int] = []
        self.columns = _Columns(relation, types, names, codec)
        builders = list(enumerate(self.columns.builders))
        self._placed = [(number, builder) for number, builder in builders if builder.placing is not None]
        self._others = [(number, builder) for number, builder in builders if builder.placing is None]
        self._before: _Columns | None = None
        self._before_rows: list[NDArray[np.int64]] = []
        self._metadata = _Metadata()
        self._unchanged: dict[int, list[tuple[int, NDArray[np.bool_]]]] = {}
        self.program = np.zeros(words.HEAD + len(builders) * words.COLUMN, np.int64)
        self.program[words.NEEDS_CARE] = bool(self._others)
        self.program[words.COLUMNS] = len(builders)
        self._capacity = 0
        self._make_pending(placing.LEAST_PENDING)
        self.reserve(_MIN_ROWS)

    @property
    def rows(self) -> int:
        return int(self.program[words.ROWS])

    @property
    def full(self) -> bool:
        self._count()
        return self.rows >= BATCH_ROWS or self.columns.nbytes >= BATCH_BYTES

    def reserve(self, capacity: int) -> None:
        """Make room for so many rows at least."""
        self._count()
        rows = self.rows
        self._metadata.reserve(capacity, rows)
        for _, builder in self._placed:
            builder.reserve(capacity)
        self._capacity = capacity
        self._tell()

    def grow(self, share: float) -> None:
        """Make room for more rows.

        Args:
            share: of the bytes that are walked; what follows is taken to have as many for each.
        """
        ahead = min(round(self.rows / share), MOST_GROWTH * self._capacity)
        self.reserve(min(max(2 * self._capacity, ahead), BATCH_ROWS))

    def widen(self) -> None:
        """Let more rows be pending, when none are."""
        room = int(self.program[words.PENDING_ROOM])
        if room < placing.MOST_PENDING:
            self._make_pending(2 * room)
            self._tell()

    def _make_pending(self, room: int) -> None:
        self._firsts = np.zeros((2, room), np.int32)
        self._pending_before = np.zeros(room, np.int64)
        self.program[words.PENDING_ROOM] = room

    def make_room(self, column: int, more: int, share: float) -> None:
        """Make room for so many bytes more in a column of text; see `grow`."""
        self._count()
        builder = self.columns.builders[column]
        assert isinstance(builder, TextBuilder)
        builder.make_room(more, share)
        self._tell()

    def leave(self, column: int) -> None:
        """Leave a column to its builder from here on."""
        self._count()
        builder = self.columns.builders[column]
        builder.placing = None
        self._placed.remove((column, builder))
        self._others.append((column, builder))
        self.program[words.NEEDS_CARE] = True
        self.program[words.HEAD + column * words.COLUMN + words.KIND] = words.OTHER

    def _count(self) -> None:
        """Let the builders know of the rows that were placed."""
        rows = self.rows
        for _, builder in self._placed:
            builder.rows = rows
        self.columns.rows = rows

    def _tell(self) -> None:
        """Tell the kernel where the outputs lie."""
        program = self.program
        program[words.ROOM] = self._capacity
        program[words.LIMIT] = min(self._capacity, program[words.SETTLED] + program[words.PENDING_ROOM])
        program[words.OP : words.ORDINAL + 1] = self._metadata.addresses()
        program[words.FIRSTS] = self._firsts[0].ctypes.data
        program[words.BEFORE_FIRSTS] = self._firsts[1].ctypes.data
        program[words.BEFORE_ROWS] = self._pending_before.ctypes.data
        for number, builder in self._placed:
            how = builder.placing
            assert how is not None
            at = words.HEAD + number * words.COLUMN
            values, valid, data, size = builder.addresses()
            program[at : at + words.COLUMN] = (how.kind, values, valid, how.low, how.high, data, size, 0)

    def see_to(self, buf: NDArray[np.uint8], tile: Tile, missed: NDArray[np.int64]) -> None:
        """See to the pending rows.

        Args:
            missed: column, row and first cell of each value in another form.
        """
        program = self.program
        start, rows = int(program[words.SETTLED]), self.rows
        first = self._firsts[0][: rows - start]
        self.columns.append(buf, tile, first, self._others)
        for number, builder in self._placed:
            flags = words.HEAD + number * words.COLUMN + words.FLAGS
            bad = missed[missed[:, 0] == number, 1] if len(missed) else missed[:, 1]
            if program[flags] or len(bad):
                builder.rows = start
                self.columns.finish_placed(
                    buf, tile, first, number, start, (bad - start).astype(np.int32), int(program[flags])
                )
                program[flags] = 0
        if tile.has_unchanged:
            self._note_unchanged(tile, first, start)
        befores = int(program[words.BEFORES])
        if befores:
            if self._before is None:
                self._before = _Columns(self.relation, self.types, self.names, self.codec)
            self._before.append(buf, tile, self._firsts[1][:befores])
            self._before_rows.append(self._pending_before[:befores].copy())
        self._settle(rows)

    def _note_unchanged(self, tile: Tile, first: NDArray[np.int32], start: int) -> None:
        rows = np.nonzero((first >= 0) & ~self._metadata.deleted(start, start + len(first)))[0]
        for number in range(len(self.relation.columns)):
            mask = np.zeros(len(first), np.bool_)
            mask[rows] = tile.length[first[rows] + number] == walk.UNCHANGED
            if mask.any():
                self._unchanged.setdefault(number, []).append((start, mask))

    def drop_pending(self) -> None:
        """Forget the rows that nobody has seen to."""
        self._settle(int(self.program[words.SETTLED]))

    def _settle(self, rows: int) -> None:
        """Have so many rows, and none pending."""
        program = self.program
        program[[words.ROWS, words.SETTLED]] = rows
        program[[words.BEFORES, words.HAS_UNCHANGED, words.HAS_MISSES]] = 0
        program[words.LIMIT] = min(program[words.ROOM], rows + program[words.PENDING_ROOM])

    def finish(self) -> ChangeBatch:
        self.drop_pending()
        self._count()
        rows = self.rows
        arrays, rescued = self.columns.finish()
        names = [column.name for column in self.relation.columns]
        data = pa.RecordBatch.from_arrays(
            [*self._metadata.finish(rows), *arrays], names=[*METADATA_NAMES, *self.field_names]
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
                [pa.array(np.concatenate(self._before_rows)), *before_arrays], names=[ROW, *self.field_names]
            )
        self._before, self._before_rows, self._unchanged = None, [], {}
        self._settle(0)
        self._tell()
        return ChangeBatch(self.relation, data, unchanged, before, rescued, before_rescued)


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a part of a streamed or prepared transaction that has committed.

    Attributes:
        ordinal: of the part's first row change that remains.
        aborted: the subtransactions that have rolled back, sorted.
        applied: its rows are given; else they are only compared with those of the first copy, or left out.
        resent: it is a copy of one that is known.
    """

    xid: int
    gid: str | None
    commit_lsn: int
    commit_time: int
    ordinal: int
    aborted: tuple[int, ...]
    applied: bool
    session: int = 0
    origin: str | None = None
    resent: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """Transactions, or parts of such, that were decoded.

    Attributes:
        path: where their Begins lie, at the records' ``at``.
        session: which session they were sent in.
        origins: what the records' numbers of origins mean.
        ended: they end in these bytes; those with a Begin here are whole.
    """

    records: Records
    path: str
    session: int
    origins: tuple[str | None, ...]
    ended: bool = True


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A logical message that holds; ``commit_lsn`` and what follows are None where it belongs to no transaction."""

    lsn: int
    prefix: str
    content: bytes = field(repr=False)
    commit_lsn: int | None = None
    commit_time: int | None = None
    xid: int | None = None
    ordinal: int | None = None


def _all_origins(origin: str | None) -> bool:
    return True


class Decoder(StreamWalker):
    """Decode committed row changes, stretch by stretch in commit order.

    Rows of one relation version are kept together across stretches; `rest` gives those that do not fill a batch.

    Args:
        wanted: the relation versions whose rows are wanted; None wants all.
        truncates: the run's last truncate of a relation, (commit LSN, ordinal); rows before it are left out, as
            are truncates themselves.  None keeps everything.
        wants_origin: says whether transactions of an origin are given.
        recording: gather what the ledger keeps of transactions and of logical messages (`take_recorded`), and which
            relations were used (`take_uses`).
        column_types: of each relation version's columns, where they are not those that its type oids mean.
        skipped: the operations (of `ChangeBatch.data`) that are left out.
        codec: what text and names are in; from `wal2delta.types.text.codec_of`.
    """

    def __init__(
        self,
        framing: Framing,
        *,
        wanted: Collection[m.Relation] | None = None,
        truncates: Mapping[int, tuple[int, int]] | None = None,
        wants_origin: Callable[[str | None], bool] = _all_origins,
        recording: bool = False,
        column_types: Mapping[m.Relation, Sequence[ColumnType]] | None = None,
        skipped: Collection[str] = (),
        tile_bytes: int = TILE_BYTES,
        codec: str = UTF8,
    ) -> None:
        self._codec = codec
        self._column_types = column_types or {}
        self._skipped = np.array([_KIND_OF_OP[op] for op in sorted(skipped)], np.uint8)
        self._truncated: dict[m.Relation, None] = {}
        self._types: dict[int, m.Type] = {}
        self._new_types: dict[int, m.Type] = {}
        self._type_names: dict[int, tuple[str, str]] = {}
        self._names_kept = 0
        self._wanted = wanted
        self._truncates = truncates
        self._wants_origin = wants_origin
        self._recording = recording
        self._fate: Fate | None = None
        self._given: dict[int, m.Relation] = {}
        self._rows: dict[m.Relation, _RelationRows] = {}
        self._newest: dict[int, m.Relation] = {}
        """The version of each relation (by oid) that rows came of last."""
        self._recorded: list[Recorded] = []
        self._messages: list[LogicalMessage] = []
        self._placer = Placer()
        self._slot_rows: dict[int, _RelationRows] = {}
        self._uses = Uses(wanted)
        super().__init__(framing, place=Place(framing), relations={}, tile_bytes=tile_bytes, codec=codec)

    def decode(
        self,
        data: bytes | memoryview,
        start: int,
        stop: int,
        *,
        place: Place,
        relations: Mapping[int, m.Relation],
        types: Mapping[int, m.Type],
        fate: Fate | None = None,
        path: str = "",
        base: int = 0,
        before: tuple[str, int] = ("", 0),
    ) -> Iterator[ChangeBatch]:
        """Walk a stretch's whole messages and give the batches that are full; `rest` gives the others.

        Args:
            place: the place in the stream at ``start``.
            relations, types: the versions in force there.
            fate: the stretch is a part of one streamed or prepared transaction; else it is the ordinary transactions
                that count.
            path: the file, for what is recorded.
            base: where ``data`` begins in it; in front of it below zero, and then in another file, which ``before``
                names with its offset there.
        """
        self._fate, self._given = fate, dict(relations)
        if self._types != types:
            self._types, self._new_types, self._type_names = dict(types), dict(types), {}
        self.start(place, relations)
        self.closed = self.ends_session = True
        view = memoryview(data)[:stop]
        buf = np.frombuffer(view, np.uint8)
        self._path, self._base, self._before = path, base, before
        for tile in self.walk(view, start):
            yield from self.convert(buf, tile)
        self._uses.settle(self.kernel.slots)
        self.on_records()
        self._record_open()

    def rest(self) -> Iterator[ChangeBatch]:
        """Give the batches that are not full."""
        while self._rows:
            # Each is let go of before the next one's batch is made: there may be thousands.
            yield from self._end_rows(next(iter(self._rows)))

    def _end_rows(self, relation: m.Relation) -> Iterator[ChangeBatch]:
        """Give what is gathered of a relation version, and let go of it; its slots are begun anew if rows come."""
        rows = self._rows.pop(relation)
        for slot in rows.slots:
            self._placer.programs[slot] = words.UNSEEN
            del self._slot_rows[slot]
        if rows.rows:
            yield rows.finish()

    def take_recorded(self) -> tuple[list[Recorded], list[LogicalMessage]]:
        """Give what was recorded since the last call."""
        taken = self._recorded, self._messages
        self._recorded, self._messages = [], []
        return taken

    def take_truncated(self) -> list[m.Relation]:
        """Give the relation versions that were used up to the run's last truncates, in order, since the last call.

        A table goes through them, too, though none of their rows are left.
        """
        taken = list(self._truncated)
        self._truncated.clear()
        return taken

    def take_uses(self) -> list[m.Relation]:
        """Give the relation versions that were used, in order, since the last call; see `wal2delta.decode.uses`."""
        return self._uses.take()

    # How a stretch is taken: as ordinary transactions, or as a part of one that has its fate.

    def start(self, place: Place | None, relations: Mapping[int, m.Relation], *, streaming: bool = False) -> None:
        """Go to another place."""
        self._uses.start()
        super().start(place, relations, streaming=streaming)
        has_any = self._placer.has_any
        for rows in self._slot_rows.values():
            if has_any:
                rows.drop_pending()
            rows.slots.clear()
        self._placer.reset()
        self._slot_rows = {}
        # Where only some rows are wanted, the arrays tell which.
        self.kernel.placer = None if len(self._skipped) or self._truncates else self._placer
        state, fate = self.kernel.state, self._fate
        state[walk.RECORDING] = self._recording
        if fate is None:
            state[walk.SKIP_LOCAL] = not self._wants_origin(None)
            self._hide_inner()
            return
        self.kernel.aborted = np.array(fate.aborted, np.int64)
        self._follow(fate)
        state[walk.ORDINAL] = fate.ordinal
        state[walk.SKIP] = 0 if fate.applied else walk.KNOWN if fate.resent else walk.LEFT_OUT
        state[walk.ORIGIN] = self.origin_number(fate.origin)

    def _follow(self, fate: Fate) -> None:
        state = self.kernel.state
        state[walk.LSN], state[walk.COMMIT_TS], state[walk.XID] = fate.commit_lsn, fate.commit_time, fate.xid

    def _hide_inner(self) -> None:
        """Leave out what is streamed or prepared: it is decoded where it commits."""
        inner = self._inner is not None
        state = self.kernel.state
        if inner or state[walk.TXN] == walk.IDLE:
            state[walk.SKIP] = walk.KNOWN if inner else 0
        state[walk.RECORDING] = self._recording and not inner

    def _open(self, lsn: int, time: int, xid: int, ordinal: int) -> None:
        if self._fate is None:
            super()._open(lsn, time, xid, ordinal)
        else:
            self.kernel.state[walk.TXN] = walk.OPEN

    def _set_origin(self, name: str | None) -> None:
        state = self.kernel.state
        if self._fate is not None or self._inner is not None:
            return
        super()._set_origin(name)
        left_out = 0 if self._wants_origin(name) else walk.LEFT_OUT
        state[walk.SKIP] = walk.KNOWN if state[walk.LSN] <= state[walk.HIGH_LSN] else left_out

    def inner_relations(self, xid: int) -> Mapping[int, m.Relation]:
        """Give what the streamed or prepared transaction knows; where its rows are left out, nothing is needed."""
        return {} if self._fate is None else self._given

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        """Take any columns for rows that are left out."""
        if self._fate is None and self._inner is not None:
            return -1
        return super().on_unknown_relation(oid, offset)

    def on_stream_commit(self, xid: int) -> None:
        """Keep to the versions that are known: what follows is another stretch, which is given its own."""

    def _enter(self, relations: Mapping[int, m.Relation]) -> None:
        if self._fate is not None:
            self._uses.enter(self.kernel.slots)
        super()._enter(relations)

    def _leave(self, *, keep: bool) -> None:
        if self._fate is not None and self._inner is not None:
            self._given = dict(self._inner)
            self._uses.leave(self.kernel.slots)
        super()._leave(keep=keep)
        if keep and self._recording:
            for oid in self._inner_slots:
                self.kernel.slots.hide(oid)

    def on_named(self, slot: int) -> None:
        """Learn that a relation version is used."""
        relation = self.slot_relations[slot]
        hidden = self._fate is None and self._inner is not None
        if self._recording and relation is not None and not hidden:
            self._uses.named(slot, relation, self.kernel.slots)

    def _take_relation(self, message: m.Relation, offset: int) -> None:
        if self._recording:
            self._uses.announced(outside(message), self.kernel.slots)
        super()._take_relation(message, offset)
        if self._recording:
            self.kernel.slots.hide(message.oid)

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Learn the types that relations will use, and take logical messages."""
        hidden = self._fate is None and self._inner is not None
        if isinstance(message, m.Type) and not hidden:
            if self._types.get(message.oid) != message:
                self._types[message.oid] = message
                self._new_types[message.oid] = message
        elif isinstance(message, m.Message):
            self._take_message(message, hidden)
        elif self._fate is None:
            self._hide_inner()

    def _take_message(self, message: m.Message, hidden: bool) -> None:
        state = self.kernel.state
        if not message.transactional:
            if self.news and self._fate is None:
                self._messages.append(LogicalMessage(message.lsn, message.prefix, message.content))
        elif not hidden and not state[walk.SKIP] and not self._is_aborted(message.xid):
            self._messages.append(
                LogicalMessage(
                    message.lsn,
                    message.prefix,
                    message.content,
                    int(state[walk.LSN]),
                    int(state[walk.COMMIT_TS]),
                    int(state[walk.XID]),
                    int(state[walk.ORDINAL]),
                )
            )

    # What is recorded.

    def on_records(self) -> None:
        """Keep the records of the transactions that have ended."""
        records = self.kernel.take_records()
        if records is not None:
            self._record(records, self._session, ended=True)

    def _record_open(self) -> None:
        """Record the part of a transaction that does not end in the stretch."""
        state, fate = self.kernel.state, self._fate
        if not self._recording or (fate is None and (state[walk.TXN] != walk.OPEN or self.gid is not None)):
            return
        values = [walk.LSN, walk.COMMIT_TS, walk.XID, walk.ROWS, walk.DIGEST, walk.ORIGIN]
        at = walk.NO_OFFSET if fate is not None else int(state[walk.BEGIN_AT])
        lsn, commit_ts, xid, rows, digest, origin = (state[[index]].copy() for index in values)
        records = Records(lsn, commit_ts, xid, rows, digest, origin, np.array([at]))
        session = self._session if fate is None else fate.session
        self._record(records, session, ended=False)

    def _record(self, records: Records, session: int, *, ended: bool) -> None:
        """Keep records, and where their Begins lie: that of the first may lie in the file before."""
        has_begin = records.at >= 0
        in_front = has_begin & (records.at + self._base < 0)
        for chosen, path, base in ((~in_front, self._path, self._base), (in_front, *self._before)):
            if chosen.any():
                found = records if chosen.all() else records.where(chosen)
                found.at[found.at >= 0] += base
                self._recorded.append(Recorded(found, path, session, tuple(self.origins), ended))

    # Rows to columns.

    def convert(self, buf: NDArray[np.uint8], tile: Tile) -> Iterator[ChangeBatch]:
        """Take a tile's rows; give the batches that they fill."""
        placer = self._placer
        yield from self._settle(buf, tile)
        if not tile.changes:
            return
        placer.extend(len(self.slot_relations))
        placer.begin()
        kept, is_done = self._kept(tile), False
        while not is_done:
            placer.place(buf, tile, kept)
            is_done = not placer.has_left
            yield from self._settle(buf, tile)

    def _settle(self, buf: NDArray[np.uint8], tile: Tile) -> Iterator[ChangeBatch]:
        """See to the rows that were placed, and to what the next one needs."""
        placer = self._placer
        slots, missed = placer.settle()
        for slot in slots:
            rows = self._slot_rows[slot]
            rows.see_to(buf, tile, missed[missed[:, 0] == rows.program.ctypes.data, 1:])
            if rows.full:
                yield rows.finish()
        left = placer.take_left()
        if left is Left.DONE:
            return
        slot, column, more_bytes = placer.wanting
        if left is Left.NEW:
            yield from self._begin_slot(slot)
            return
        rows = self._slot_rows[slot]
        if left is Left.CARE:
            rows.widen()
        elif left is Left.NOT_TEXT:
            rows.leave(column)
        elif rows.full:
            yield rows.finish()
        elif left is Left.ROOM:
            rows.grow(self._share)
        else:
            rows.make_room(column, more_bytes, self._share)

    @property
    def _share(self) -> float:
        """Give how much of the bytes is walked; 1 where it is too little to go by."""
        share = float(self.kernel.state[walk.POS]) / len(self._view)
        return share if share > _LEAST_SHARE else 1

    def _begin_slot(self, slot: int) -> Iterator[ChangeBatch]:
        """Have a slot's rows placed from here on, if they are wanted."""
        relation = self.slot_relations[slot]
        if relation is None or (self._wanted is not None and relation not in self._wanted):
            self._placer.programs[slot] = words.NO_PROGRAM
            return
        rows = self._rows.get(relation)
        if rows is None:
            # Rows of the relation's version before come first.
            newest = self._newest.get(relation.oid)
            if newest in self._rows:
                yield from self._end_rows(newest)
            elif len(self._rows) >= MOST_RELATIONS:
                yield from self._end_rows(next(iter(self._rows)))
            names = self._names()
            if self._names_kept > MOST_NAMES:
                yield from self.rest()
                self._names_kept = len(names)
            self._newest[relation.oid] = relation
            types = self._column_types.get(relation) or _column_types(relation, names)
            rows = self._rows[relation] = _RelationRows(relation, types, names, self._codec)
        self._slot_rows[slot] = rows
        rows.slots.append(slot)
        self._placer.programs[slot] = rows.program.ctypes.data

    def _names(self) -> dict[int, tuple[str, str]]:
        """Give the names of the types that are known here; relations share them until there are others."""
        if self._new_types:
            self._type_names = self._type_names | type_names(self._new_types)
            self._names_kept += len(self._type_names)
            self._new_types = {}
        return self._type_names

    def _kept(self, tile: Tile) -> NDArray[np.uint8]:
        """Say which rows are wanted; empty for all."""
        if not len(self._skipped) and not self._truncates:
            return _ALL
        kept = ~np.isin(tile.kind, self._skipped)
        for slot in np.unique(tile.slot[kept]).tolist() if self._truncates else ():
            relation = self.slot_relations[slot]
            truncated = None if relation is None else (self._truncates or {}).get(relation.oid)
            if relation is None or truncated is None or (self._wanted is not None and relation not in self._wanted):
                continue
            lsn, ordinal = truncated
            gone = kept & (tile.slot == slot)
            gone &= (tile.lsn < lsn) | ((tile.lsn == lsn) & (tile.ordinal <= ordinal))
            if gone.any():
                # At the end, also where it was there: a version may come back.
                self._truncated.pop(relation, None)
                self._truncated[relation] = None
                kept &= ~gone
        return kept.view(np.uint8)


_ALL: Final = np.zeros(0, np.uint8)

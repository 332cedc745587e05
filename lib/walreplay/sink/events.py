"""A table's row changes as events, in commit order: the input and output of a fold.

Events are made per file (`intake`), folded there (`merge`), divided by key (`routes`), sent to the task that folds the
key's events of all files, and turned into rows to merge.  Columns go by number, because names are the source's and may
be anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from walreplay.sink.by_value import by_value
from walreplay.sink.fold import MOVE, UPDATE
from walreplay.sink.identity import contiguous, hash_rows, rescued_of
from walreplay.sink.slots import Hashes
from walreplay.types.by_value import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARTITIONS_REMEDY: Final = (
    "Give all partitions the same REPLICA IDENTITY, which names one row of the whole table: each by an ALTER TABLE of "
    "its own, as that of the root does not reach them. Have the recorder connect anew, and leave the table out by "
    "table_exclude_list up to there"
)
"""What to do if old rows of a partitioned table do not identify their rows."""

REMOVE: Final = 4
"""A row with exactly this image is removed."""
ADD: Final = 5
"""A row with this image is added."""


class Mode(str, Enum):
    """What identifies a table's rows."""

    KEYED = "keyed"
    MULTISET = "multiset"
    """Replica identity full without a key: equal rows are counted."""
    APPEND = "append"
    """Nothing identifies rows: they can only be inserted."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A table's row identity.

    Attributes:
        key: the numbers of the key columns.
        evicts: whole old rows are not relied on, although replica identity full sends them: a row that takes a key
            replaces the row that has it.  For settings that leave out some kinds of changes.
        claims: a row that takes a key states that the key is free, because no index says that it is unique.
        obstacle: why rows cannot be identified, so that they can only be inserted.
        forms: of columns (by number) whose texts depend on the sender's settings: they are compared by value.
    """

    mode: Mode
    key: tuple[int, ...] = ()
    evicts: bool = False
    claims: bool = False
    obstacle: str | None = None
    forms: tuple[tuple[int, Form], ...] = ()

    def compared(self, columns: Sequence[Any], numbers: Sequence[int] | None = None) -> list[pa.Array]:
        """Give columns as they are compared.

        Args:
            numbers: of the columns; None for all in their order.
        """
        forms = dict(self.forms)
        return [
            by_value(column, forms.get(number))
            for number, column in zip(range(len(columns)) if numbers is None else numbers, columns, strict=True)
        ]

    def renumbered(self, numbers: Mapping[int, int | None], key: tuple[int, ...]) -> Identity:
        """Give the same identity for other columns, by the new numbers of those that are left."""
        forms = ((numbers.get(number), form) for number, form in self.forms)
        return replace(self, key=key, forms=tuple((number, form) for number, form in forms if number is not None))


OPERATIONS: Final = ("c", "u", "d", "r")
"""Kinds of changes as `Marks` number them: a row is inserted, updated, deleted, or loaded as part of a base."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What a history says of the change behind each event; all arrays have one entry per event.

    Attributes:
        ordinal: its place in its transaction.
        operation: the number of its kind in `OPERATIONS`.
        top: its time: the greatest commit time up to its transaction, in microseconds since 1970.
    """

    ordinal: NDArray[np.int64]
    operation: NDArray[np.uint8]
    top: NDArray[np.int64]

    def at(self, at: slice | NDArray[Any]) -> Marks:
        """Give the marks of some of the events, perhaps in another order."""
        return Marks(self.ordinal[at], self.operation[at], self.top[at])

    @classmethod
    def joined(cls, parts: Sequence[Marks]) -> Marks:
        """Put marks one behind the other."""
        return cls(
            np.concatenate([part.ordinal for part in parts]),
            np.concatenate([part.operation for part in parts]),
            np.concatenate([part.top for part in parts]),
        )


@dataclass(slots=True)
class Events:
    """Row changes of one table, in commit order.

    Attributes:
        columns: the table's columns, by number.
        lsn, ts: commit LSN and commit time of each.
        rescued: JSON of the values that the columns cannot hold, or NULL.
        action: `fold.INSERT`, `UPDATE`, `DELETE` or `MOVE`, or `REMOVE` or `ADD` (whose columns outside of the key
            may be NULL for a `REMOVE`); in a multiset the rows that come (+n) or go (-n).
        expected: `fold.EXPECTED`, `fold.CLAIMED` or 0, see there; in a multiset how many equal rows should be there
            before the event.
        unchanged: for each column (by number) that has any: which events do not bring its value.
        image: where there are `REMOVE` or `ADD`: the hashes of the whole rows.
        old_key, old_rescued: where there are `MOVE`s: the key columns before.
        position: where there are `MOVE`s, and the events of a file are parted: each one's place among them.
        marks: for a history; otherwise None.
    """

    columns: list[pa.Array]
    lsn: pa.Array
    ts: pa.Array
    rescued: pa.Array
    action: NDArray[np.int64]
    expected: NDArray[Any]
    unchanged: dict[int, NDArray[np.uint8]]
    image: Hashes | None = None
    old_key: list[pa.Array] | None = None
    old_rescued: pa.Array | None = None
    position: NDArray[np.int64] | None = None
    marks: Marks | None = None

    @property
    def rows(self) -> int:
        """The number of events."""
        return len(self.action)

    @property
    def has_moves(self) -> bool:
        """Whether some change of a key has to be followed."""
        return self.old_key is not None

    def leaves_alone(self) -> NDArray[np.uint8]:
        """Say which events keep the values of a column that they do not bring: those that change a row.

        For added and removed rows this is known once their transactions are `merge.settled`.
        """
        return np.isin(self.action, (UPDATE, MOVE)).astype(np.uint8)

    def slice(self, start: int, stop: int) -> Events:
        """Give consecutive events, without copying them."""
        at, count = slice(start, stop), stop - start
        return Events(
            columns=[column.slice(start, count) for column in self.columns],
            lsn=self.lsn.slice(start, count),
            ts=self.ts.slice(start, count),
            rescued=self.rescued.slice(start, count),
            action=self.action[at],
            expected=self.expected[at],
            unchanged={number: mask[at] for number, mask in self.unchanged.items()},
            image=None if self.image is None else (self.image[0][at], self.image[1][at]),
            old_key=None if self.old_key is None else [column.slice(start, count) for column in self.old_key],
            old_rescued=None if self.old_rescued is None else self.old_rescued.slice(start, count),
            position=None if self.position is None else self.position[at],
            marks=None if self.marks is None else self.marks.at(at),
        )

    def take(self, at: NDArray[Any]) -> Events:
        """Give some of the events, perhaps in another order."""
        index = pa.array(at)
        return Events(
            columns=[column.take(index) for column in self.columns],
            lsn=self.lsn.take(index),
            ts=self.ts.take(index),
            rescued=self.rescued.take(index),
            action=self.action[at],
            expected=self.expected[at],
            unchanged={number: mask[at] for number, mask in self.unchanged.items()},
            image=None if self.image is None else (self.image[0][at], self.image[1][at]),
            old_key=None if self.old_key is None else [column.take(index) for column in self.old_key],
            old_rescued=None if self.old_rescued is None else self.old_rescued.take(index),
            position=None if self.position is None else self.position[at],
            marks=None if self.marks is None else self.marks.at(at),
        )


_WIDE: Final = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_NARROW: Final = {wide: kind for kind, wide in _WIDE.items()}

_LITTLE: Final = 8 << 10
"""Bytes that are written sooner than their compression has begun: LZ4 takes 20 µs a column for that."""

MOST_BYTES: Final = 2**31 - 1
"""So many bytes a column of strings can hold; what is longer has large offsets."""


def narrow(kind: pa.DataType) -> pa.DataType:
    """Give a column's own type, whether it has large offsets or not."""
    return _NARROW.get(kind, kind)


def join_arrays(arrays: Sequence[Any]) -> pa.Array:
    """Put columns of one type, with large offsets or not, one behind the other."""
    arrays = [contiguous(array) for array in arrays]
    kind = narrow(arrays[0].type)
    if kind in _WIDE and (
        any(array.type != kind for array in arrays) or sum(array.nbytes for array in arrays) > MOST_BYTES
    ):
        arrays = [array.cast(_WIDE[kind]) for array in arrays]
    return pa.concat_arrays(arrays)


def concat(parts: Sequence[Events]) -> Events:
    """Put events one behind the other."""
    if len(parts) == 1:
        return parts[0]

    def masks(part: Events, number: int) -> NDArray[np.uint8]:
        return part.unchanged.get(number, np.zeros(part.rows, np.uint8))

    def image(part: Events, half: int) -> NDArray[np.uint64]:
        return np.zeros(part.rows, np.uint64) if part.image is None else part.image[half]

    first = parts[0]
    numbers = sorted({number for part in parts for number in part.unchanged})
    old_key = old_rescued = images = position = None
    template = next((part.old_key for part in parts if part.old_key is not None), None)
    if template is not None:
        old_key = [
            join_arrays(
                [part.old_key[k] if part.old_key is not None else pa.nulls(part.rows, column.type) for part in parts]
            )
            for k, column in enumerate(template)
        ]
        old_rescued = join_arrays(
            [part.old_rescued if part.old_rescued is not None else pa.nulls(part.rows, pa.string()) for part in parts]
        )
    if any(part.image is not None for part in parts):
        images = (
            np.concatenate([image(part, 0) for part in parts]),
            np.concatenate([image(part, 1) for part in parts]),
        )
    positions = [part.position for part in parts if part.position is not None]
    if len(positions) == len(parts):
        position = np.concatenate(positions)
    marks = [part.marks for part in parts if part.marks is not None]
    return Events(
        columns=[join_arrays([part.columns[n] for part in parts]) for n in range(len(first.columns))],
        lsn=join_arrays([part.lsn for part in parts]),
        ts=join_arrays([part.ts for part in parts]),
        rescued=join_arrays([part.rescued for part in parts]),
        action=np.concatenate([part.action for part in parts]),
        expected=np.concatenate([part.expected for part in parts]),
        unchanged={number: np.concatenate([masks(part, number) for part in parts]) for number in numbers},
        image=images,
        old_key=old_key,
        old_rescued=old_rescued,
        position=position,
        marks=Marks.joined(marks) if len(marks) == len(parts) else None,
    )


def rejoin(parts: Sequence[Events]) -> Events:
    """Join the parts of one file's events, which may come in any order; see `Events.position`."""
    whole = concat(parts)
    if whole.position is None or len(parts) == 1:
        return whole
    return whole.take(np.argsort(whole.position, kind="stable"))


def interleave(parts: Sequence[tuple[Events, NDArray[np.int64]]]) -> Events:
    """Join events by the positions that are given with them."""
    order = np.argsort(np.concatenate([position for _, position in parts]), kind="stable")
    return concat([events for events, _ in parts]).take(order)


def key_hashes(events: Events, identity: Identity, names: Sequence[str]) -> Hashes:
    """Give the hashes of the events' row identities: the key, or in a multiset the whole row."""
    if identity.mode is not Mode.KEYED:
        return image_hashes(events, identity)
    rescued = rescued_of(events.rescued, [names[number] for number in identity.key])
    columns = identity.compared([events.columns[number] for number in identity.key], identity.key)
    return hash_rows(columns, events.rows, rescued)


def bucket_of(key: NDArray[np.uint64], buckets: int) -> NDArray[np.uint16]:
    """Give each row identity's bucket, by the first half of its hash."""
    bucket: NDArray[np.uint16] = (key % np.uint64(buckets)).astype(np.uint16)
    return bucket


def image_hashes(events: Events, identity: Identity) -> Hashes:
    """Give the hashes of whole rows; an unknown value counts as NULL."""
    return hash_rows(identity.compared(events.columns), events.rows, events.rescued)


# How events travel between tasks: one Arrow IPC stream, columns by number, so that no name can collide.
_ARROW: Final = ("lsn", "ts", "rescued", "old_rescued")
_MARKS: Final = ("ordinal", "operation", "top")
_NUMPY: Final = ("action", "expected", "position", "image_0", "image_1", *_MARKS)


def to_ipc(events: Events) -> pa.Buffer:
    """Write events as a compressed Arrow IPC stream."""
    arrays: dict[str, Any] = {f"c{n}": column for n, column in enumerate(events.columns)}
    arrays |= {"lsn": events.lsn, "ts": events.ts, "rescued": events.rescued}
    arrays |= {"action": events.action, "expected": events.expected}
    arrays |= {f"u{number}": mask for number, mask in sorted(events.unchanged.items())}
    if events.old_key is not None:
        arrays |= {f"o{k}": column for k, column in enumerate(events.old_key)}
        arrays["old_rescued"] = events.old_rescued
    if events.position is not None:
        arrays["position"] = events.position
    if events.image is not None:
        arrays["image_0"], arrays["image_1"] = events.image
    if events.marks is not None:
        arrays |= {name: getattr(events.marks, name) for name in _MARKS}
    columns = [pa.array(array) if isinstance(array, np.ndarray) else contiguous(array) for array in arrays.values()]
    return batch_to_ipc(pa.RecordBatch.from_arrays(columns, names=list(arrays)))


def from_ipc(data: pa.Buffer | bytes) -> Events:
    """Read what `to_ipc` wrote."""
    batch = batch_from_ipc(data)
    columns, unchanged, old_key = [], {}, []
    arrow: dict[str, pa.Array] = {}
    numpy: dict[str, Any] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name in _ARROW:
            arrow[name] = array
        elif name in _NUMPY:
            numpy[name] = array.to_numpy()
        elif name[0] == "c":
            columns.append(array)
        elif name[0] == "u":
            unchanged[int(name[1:])] = array.to_numpy()
        else:
            old_key.append(array)
    return Events(
        columns=columns,
        lsn=arrow["lsn"],
        ts=arrow["ts"],
        rescued=arrow["rescued"],
        action=numpy["action"],
        expected=numpy["expected"],
        unchanged=unchanged,
        image=(numpy["image_0"], numpy["image_1"]) if "image_0" in numpy else None,
        old_key=old_key or None,
        old_rescued=arrow.get("old_rescued"),
        position=numpy.get("position"),
        marks=Marks(*(numpy[name] for name in _MARKS)) if _MARKS[0] in numpy else None,
    )


def batch_to_ipc(batch: pa.RecordBatch) -> pa.Buffer:
    """Write one batch as an Arrow IPC stream; it is compressed unless it is small."""
    sink = pa.BufferOutputStream()
    write_ipc(sink, batch)
    return sink.getvalue()


def write_ipc(sink: pa.BufferOutputStream, batch: pa.RecordBatch) -> None:
    """Write one batch as `batch_to_ipc` does, behind what was written before."""
    options = pa.ipc.IpcWriteOptions(compression="lz4" if batch.nbytes > _LITTLE else None)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def batch_from_ipc(data: pa.Buffer | bytes) -> pa.RecordBatch:
    """Read what `batch_to_ipc` wrote."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()

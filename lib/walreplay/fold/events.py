"""A table's row changes as events, in commit order: the input and output of a fold.

Decoded rows become events per file (`events_of`) and are folded there (`net_changes`), divided by key, sent to the task
that folds the key's events of all files, and turned into rows to merge.  Columns go by number, because names are the
source's and may be anything.

Soft deletes: a deleted row stays in the table, and a column marks it as deleted.  For the fold, a soft delete is an
update that leaves all other columns unchanged, so later changes of the row work as after any update.  A row that takes
another key is not deleted, so key changes have to be followed (``follow`` of `events_of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.change_batch import ChangeBatch, read_rescued, rescued_of
from walreplay.errors import CaptureError
from walreplay.fold.batches import batch_from_ipc, batch_to_ipc, contiguous, join_arrays, named, numbered
from walreplay.fold.identity import Hashes, hash_rows
from walreplay.fold.reducing import CLAIMED, DELETE, EXPECTED, INSERT, MOVE, UPDATE, KeyEvents

if TYPE_CHECKING:
    from numpy.typing import NDArray


PARTITIONS_REMEDY: Final = (
    "Give all partitions the same REPLICA IDENTITY, which names one row of the whole table: each by an ALTER TABLE of "
    "its own, as that of the root does not reach them. Have the recorder connect anew, and leave the table out by "
    "table_exclude_list up to there"
)
"""What to do if old rows of a partitioned table do not identify their rows."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Why a key that a row takes has to be free: the beginning of the error's text if it is not, and the remedy."""

    problem: str
    remedy: str


IN_PARTITIONS: Final = Claim(
    "the replica identity of the table's partitions is not unique in the whole table", PARTITIONS_REMEDY
)

REMOVE: Final = 4  # A row with exactly this image is removed
ADD: Final = 5  # A row with this image is added


class Mode(str, Enum):
    """What identifies a table's rows."""

    KEYED = "keyed"
    MULTISET = "multiset"
    """Replica identity full without a key: equal rows are counted."""
    APPEND = "append"  # Nothing identifies rows: they can only be inserted


@dataclass(frozen=True, slots=True)
class Identity:
    """A table's row identity.

    Attributes:
        key: the numbers of the key columns.
        evicts: whole old rows are not relied on, although replica identity full sends them: a row that takes a key
            replaces the row that has it.  For settings that leave out some kinds of changes.
        claims: a row that takes a key states that the key is free, and why that is not sure; None where it is.
        obstacle: why rows cannot be identified, so that they can only be inserted.
    """

    mode: Mode
    key: tuple[int, ...] = ()
    evicts: bool = False
    claims: Claim | None = None
    obstacle: str | None = None


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

    @classmethod
    def of(cls, changes: ChangeBatch) -> Marks:
        """Return the marks of decoded changes, without their times (0): these need all transactions of the unit."""
        ordinal = changes.ordinals.to_numpy(zero_copy_only=False)
        operation = pc.index_in(changes.ops, pa.array(OPERATIONS)).to_numpy(zero_copy_only=False)
        return cls(ordinal, operation.astype(np.uint8), np.zeros(len(ordinal), np.int64))

    def take(self, indices: slice | NDArray[Any]) -> Marks:
        """Return the marks of some of the events, perhaps in another order."""
        return Marks(self.ordinal[indices], self.operation[indices], self.top[indices])


@dataclass(slots=True)
class Events:
    """Row changes of one table, in commit order.

    Attributes:
        columns: the table's columns, by number.
        lsn, ts: commit LSN and commit time of each.
        rescued: JSON of the values that the columns cannot hold, or NULL.
        action: `INSERT`, `UPDATE`, `DELETE` or `MOVE`, or `REMOVE` or `ADD` (whose columns outside of the key
            may be NULL for a `REMOVE`); in a multiset the rows that come (+n) or go (-n).
        expected: `EXPECTED`, `CLAIMED` or 0, see there; in a multiset how many equal rows should be there
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
        """Return which events keep the values of a column that they do not bring: those that change a row.

        For added and removed rows this is known once their transactions are `net_changes.settled`.
        """
        return np.isin(self.action, (UPDATE, MOVE)).astype(np.uint8)  # a new row has no values to keep

    @property
    def lsns(self) -> NDArray[np.int64]:
        """The commit LSNs."""
        return np.asarray(contiguous(self.lsn).to_numpy(zero_copy_only=False))

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Whether some value of each event is not brought."""
        unknown = np.zeros(self.rows, np.bool_)
        for mask in self.unchanged.values():
            unknown |= mask == 1
        return unknown

    @property
    def by_name(self) -> dict[str, Any]:
        """All columns, of Arrow and of numpy, by names without the source's, so that none can collide; see `of`."""
        columns = numbered("c", self.columns) | {"lsn": self.lsn, "ts": self.ts, "rescued": self.rescued}
        columns |= {"action": self.action, "expected": self.expected}
        columns |= {f"u{number}": mask for number, mask in sorted(self.unchanged.items())}
        if self.old_key is not None:
            columns |= numbered("o", self.old_key) | {"old_rescued": self.old_rescued}
        if self.position is not None:
            columns["position"] = self.position
        if self.image is not None:
            columns |= dict(zip(_IMAGE, self.image, strict=True))
        if self.marks is not None:
            columns |= {name: getattr(self.marks, name) for name in _MARKS}
        return columns

    @classmethod
    def of(cls, by_name: Mapping[str, Any]) -> Events:
        """Make events of such columns."""
        numbers = {letter: dict[int, Any]() for letter in "cuo"}
        for name, column in by_name.items():
            if name[1:].isdigit():
                numbers[name[0]][int(name[1:])] = column
        single: dict[str, Any] = {
            name: by_name.get(name) for name in ("lsn", "ts", "rescued", "action", "expected", *_OPTIONAL)
        }
        return cls(
            columns=list(numbers["c"].values()),
            unchanged=numbers["u"],
            image=(by_name[_IMAGE[0]], by_name[_IMAGE[1]]) if _IMAGE[0] in by_name else None,
            old_key=list(numbers["o"].values()) or None,
            marks=Marks(*(by_name[name] for name in _MARKS)) if _MARKS[0] in by_name else None,
            **single,
        )

    def slice(self, start: int, stop: int) -> Events:
        """Return consecutive events, without copying them."""
        return Events.of({name: column[start:stop] for name, column in self.by_name.items()})

    def take(self, indices: NDArray[Any]) -> Events:
        """Return some of the events, perhaps in another order."""
        index, columns = pa.array(indices), self.by_name.items()
        return Events.of({name: item[indices] if _is_numpy(name) else item.take(index) for name, item in columns})


_MARKS: Final = ("ordinal", "operation", "top")
_IMAGE: Final = ("image_0", "image_1")
_OPTIONAL: Final = ("old_rescued", "position")
_IN_ALL: Final = ("position", *_MARKS)
"""Columns that are left out where a part has none: its events are in order already, and have no marks."""


def _is_numpy(name: str) -> bool:
    """Return whether a column of `Events.by_name` is one of numpy's."""
    return name in ("action", "expected", *_IN_ALL, *_IMAGE) or (name[0] == "u" and name[1:].isdigit())


def concat(parts: Sequence[Events]) -> Events:
    """Put events one behind the other."""
    if len(parts) == 1:
        return parts[0]
    columns_of_parts, joined = [part.by_name for part in parts], dict[str, Any]()
    for name in dict.fromkeys(name for columns in columns_of_parts for name in columns):
        given = [columns.get(name) for columns in columns_of_parts]
        kind = next(column for column in given if column is not None)  # of zeros and NULLs of the other parts
        if any(column is None for column in given) and name in _IN_ALL:
            continue
        pairs = zip(parts, given, strict=True)
        if _is_numpy(name):  # nobody reads an image of zeros
            joined[name] = np.concatenate([np.zeros(p.rows, kind.dtype) if a is None else a for p, a in pairs])
        else:
            joined[name] = join_arrays([pa.nulls(p.rows, kind.type) if a is None else a for p, a in pairs])
    return Events.of(joined)


def rejoin(parts: Sequence[Events]) -> Events:
    """Join the parts of one file's events, which may come in any order; see `Events.position`."""
    whole = concat(parts)
    if whole.position is None or len(parts) == 1:
        return whole
    return whole.take(np.argsort(whole.position, kind="stable"))  # key changes need the order


def interleave(parts: Sequence[tuple[Events, NDArray[np.int64]]]) -> Events:
    """Join events by the positions that are given with them."""
    order = np.argsort(np.concatenate([position for _, position in parts]), kind="stable")
    return concat([events for events, _ in parts]).take(order)


def key_hashes(events: Events, identity: Identity, names: Sequence[str]) -> Hashes:
    """Return the hashes of the events' row identities: the key, or in a multiset the whole row."""
    if identity.mode is not Mode.KEYED:
        return image_hashes(events)
    rescued = rescued_of(events.rescued, [names[number] for number in identity.key])
    return hash_rows([events.columns[number] for number in identity.key], events.rows, rescued)


def old_key_hashes(events: Events) -> Hashes | None:
    """Return the hashes of the keys before; None where no change of a key has to be followed."""
    if events.old_key is None:
        return None
    return hash_rows(events.old_key, events.rows, events.old_rescued)


def key_events(events: Events, hashes: Hashes) -> KeyEvents:
    """Return what the kernels that follow keys read of events whose keys have these hashes."""
    unchanged = np.zeros((events.rows, len(events.unchanged)), np.uint8)
    for index, number in enumerate(sorted(events.unchanged)):
        unchanged[:, index] = events.unchanged[number]
    old_hashes = old_key_hashes(events) or hashes
    return KeyEvents(events.action.astype(np.uint8), events.expected, *hashes, *old_hashes, unchanged)


def bucket_of(key: NDArray[np.uint64], buckets: int) -> NDArray[np.uint16]:
    """Return each row identity's bucket, by the first half of its hash."""
    bucket: NDArray[np.uint16] = (key % np.uint64(buckets)).astype(np.uint16)  # at most 65,536 buckets
    return bucket


def image_hashes(events: Events) -> Hashes:
    """Return the hashes of whole rows; an unknown value counts as NULL."""
    return hash_rows(events.columns, events.rows, events.rescued)


def to_ipc(events: Events) -> pa.Buffer:
    """Write events as a compressed Arrow IPC stream."""
    return batch_to_ipc(named(events.by_name))


def from_ipc(data: pa.Buffer | bytes) -> Events:
    """Read what `to_ipc` wrote."""
    batch = batch_from_ipc(data)
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return Events.of({name: column.to_numpy() if _is_numpy(name) else column for name, column in columns})


def with_deleted_column(events: Events, identity: Identity, *, all_deleted: bool = False) -> Events:
    """Add the column that marks deleted rows after the others, and turn deletes into updates of it.

    Args:
        all_deleted: a truncate that comes later deletes what the events leave.
    """
    is_delete = events.action == DELETE
    unchanged = dict(events.unchanged)
    if is_delete.any():
        for number in range(len(events.columns)):
            if number not in identity.key:  # every delete brings its key
                unchanged[number] = np.where(is_delete, 1, unchanged.get(number, 0)).astype(np.uint8)
    return replace(
        events,
        columns=[*events.columns, pa.array(is_delete | all_deleted)],
        action=np.where(is_delete, UPDATE, events.action),
        unchanged=unchanged,
    )


def events_of(batch: ChangeBatch, identity: Identity, *, follow: bool = False, marks: Marks | None = None) -> Events:
    """Make events of decoded changes.  Truncates are not among them: the plan has those.

    If old rows are sent whole, an update is an image that is removed and one that is added.  Otherwise a key change
    whose new row is complete becomes a delete of the old key and an insert of the new one, which need not meet.  A key
    change that leaves values unchanged has to be followed (`MOVE`).

    Args:
        follow: every key change is followed: a delete means that the row is gone.
        marks: of each change, for a history.

    Raises:
        CaptureError: an update or delete lacks what identifies its row, or nothing identifies the table's rows.
    """
    kind = pc.index_in(batch.ops, pa.array(["c", "u", "d"])).to_numpy().astype(np.int64)
    rows = batch.data.num_rows
    numbers = {column.name: number for number, column in enumerate(batch.relation.columns)}
    unchanged = {
        numbers[name]: mask.to_numpy(zero_copy_only=False).astype(np.uint8) for name, mask in batch.unchanged.items()
    }
    events = Events(
        columns=batch.columns,
        lsn=batch.commit_lsns,
        ts=batch.commit_times,
        rescued=batch.rescued if batch.rescued is not None else pa.nulls(rows, pa.string()),
        action=kind,  # OPERATIONS and actions agree in their first three numbers
        expected=np.where(kind != INSERT, EXPECTED, _taken(identity)).astype(np.uint8),  # an insert may claim its key
        unchanged=unchanged,
        marks=marks,
    )
    if identity.mode is Mode.MULTISET:
        events = _as_images(events, batch, remove_action=-1, add_action=1)
        # Counts are added up.
        events.expected = events.expected.astype(np.int64)
        return events
    if identity.mode is Mode.APPEND:
        if ((kind == UPDATE) | (kind == DELETE)).any():  # nothing says which row is meant
            raise _not_told_apart(batch, identity)
        return events
    _check_key(events, batch, identity)
    # The image of an old row decides which of two rows with one key is meant.
    if batch.relation.replica_identity == "f" and not identity.evicts:
        events = _as_images(events, batch, remove_action=REMOVE, add_action=ADD)
        events.image = image_hashes(events)
        return events
    return events if batch.before is None else _with_key_changes(events, batch, identity, follow=follow)


def _check_key(events: Events, batch: ChangeBatch, identity: Identity) -> None:
    """Refuse changes that do not say which row they are about."""
    relation = batch.relation
    for number in identity.key:
        column = relation.columns[number]
        # Only under replica identity full do old rows have columns that are not flagged.
        hidden = relation.replica_identity != "f" and not column.key and (events.action != INSERT).any()
        if hidden or number in events.unchanged:
            raise CaptureError(
                "updates or deletes do not bring the key column's "
                + ("old value: it is not in the replica identity" if hidden else "unchanged TOAST value"),
                table=f"{relation.qualified_name}.{column.name}",
                remedy="Name other keys in the configuration, or set the source table's REPLICA IDENTITY to FULL "
                "and apply what is captured from then on",
            )
        if relation.replica_identity != "f" and column.key:
            values = batch.columns[number]
            if values.null_count:
                is_delete = pa.array(events.action == DELETE)
                _check_sent(values.filter(is_delete), batch.rescued, is_delete, batch, number)
            if batch.before is not None:
                _check_sent(batch.before_columns[number], batch.before_rescued, None, batch, number)


def _check_sent(
    values: pa.Array, rescued: pa.Array | None, is_chosen: pa.Array | None, batch: ChangeBatch, number: int
) -> None:
    """Refuse old rows that lack a column of the replica identity: such a column is never NULL."""
    if not values.null_count:
        return
    name = batch.relation.columns[number].name
    if rescued is not None:
        texts = rescued if is_chosen is None else rescued.filter(is_chosen)  # a value may be NULL because it is rescued
        null_rows = np.nonzero(values.is_null().to_numpy(zero_copy_only=False))[0]
        if all(name in row_texts for row_texts in read_rescued(texts.take(pa.array(null_rows)))):
            return
    raise CaptureError(
        "updates or deletes bring NULL for a column of the replica identity, which is never NULL",
        table=f"{batch.relation.qualified_name}.{name}",
        remedy=f"So does a partition whose replica identity is not its root's. {PARTITIONS_REMEDY}",
    )


def _not_told_apart(batch: ChangeBatch, identity: Identity) -> CaptureError:
    if identity.obstacle is not None:
        return CaptureError(
            "the table has updates or deletes, but its partitions send different columns of old rows "
            f"({identity.obstacle})",
            table=batch.relation.qualified_name,
            remedy=PARTITIONS_REMEDY,
        )
    return CaptureError(
        "the table has updates or deletes, but no key tells its rows apart",
        table=batch.relation.qualified_name,
        remedy="Name its key in the configuration: objects: - table: {source_schema, source_table, keys}",
    )


def _taken(identity: Identity) -> int:
    """Return whether a key that a row takes is expected to be free."""
    return CLAIMED if identity.claims and not identity.evicts else 0


def _as_images(events: Events, batch: ChangeBatch, *, remove_action: int, add_action: int) -> Events:
    """Divide changes into added and removed rows, with these actions."""
    kind = events.action
    position = np.arange(events.rows) * 2 + 1  # odd places: an update's old row comes directly in front of the new one
    added = replace(
        events,
        action=np.where(kind == DELETE, remove_action, add_action),
        expected=np.where(kind == DELETE, EXPECTED, 0).astype(np.uint8),
    )
    updates = np.nonzero(kind == UPDATE)[0]
    if not len(updates):
        return added
    before = batch.before
    if before is None or before.num_rows != len(updates):  # replica identity full sends one with every update
        raise CaptureError(
            "an update does not bring its old row, though the table's replica identity is full",
            table=batch.relation.qualified_name,
            remedy=f"So does a partition whose replica identity is not its root's. {PARTITIONS_REMEDY}",
        )
    index = pa.array(updates)
    removed = Events(
        columns=batch.before_columns,
        lsn=events.lsn.take(index),
        ts=events.ts.take(index),
        rescued=batch.before_rescued if batch.before_rescued is not None else pa.nulls(len(updates), pa.string()),
        action=np.full(len(updates), remove_action, np.int64),
        expected=np.full(len(updates), EXPECTED, np.uint8),
        unchanged={},
        marks=None if events.marks is None else events.marks.take(updates),
    )
    return interleave([(added, position), (removed, updates * 2)])


def _with_key_changes(events: Events, batch: ChangeBatch, identity: Identity, *, follow: bool) -> Events:
    """Separate updates that change the key from those that were only sent with their old row."""
    update_rows = batch.before_rows.to_numpy()
    names = [batch.relation.columns[number].name for number in identity.key]
    before = batch.before_columns
    old_key = [before[number] for number in identity.key]
    old_rescued = None if batch.before_rescued is None else rescued_of(batch.before_rescued, names)
    updates = events.take(update_rows)
    new_key = [updates.columns[number] for number in identity.key]
    new_rescued = rescued_of(updates.rescued, names)
    old_hash = hash_rows(old_key, len(update_rows), old_rescued)
    new_hash = hash_rows(new_key, len(update_rows), new_rescued)
    # PostgreSQL sends the old key if a key column changed, or had TOAST values: only hashes tell.
    changed = (old_hash[0] != new_hash[0]) | (old_hash[1] != new_hash[1])
    if not changed.any():
        return events
    needs_old_row = updates.unknown | follow  # with soft deletes a delete would leave a marked row behind
    action = events.action.copy()
    action[update_rows[changed & ~needs_old_row]] = INSERT
    action[update_rows[changed & needs_old_row]] = MOVE
    # A row that takes a key is not expected to find it there.
    expected = events.expected.copy()
    expected[update_rows[changed]] = _taken(identity)
    result = replace(events, action=action, expected=expected)
    if (changed & needs_old_row).any():
        moved = changed & needs_old_row
        index = np.full(events.rows, -1, np.int64)  # events that are no MOVE have no old key
        index[update_rows[moved]] = np.nonzero(moved)[0]
        where = pa.array(index, mask=index < 0)
        result.old_key = [column.take(where) for column in old_key]
        texts = old_rescued if old_rescued is not None else pa.nulls(len(update_rows), pa.string())
        result.old_rescued = texts.take(where)
    split = np.nonzero(changed & ~needs_old_row)[0]
    if not len(split):
        return result
    deletes = _deletes(events.take(update_rows[split]), identity, [column.take(pa.array(split)) for column in old_key])
    if old_rescued is not None:
        deletes.rescued = old_rescued.take(pa.array(split))
    return interleave([(result, np.arange(events.rows) * 2 + 1), (deletes, update_rows[split] * 2)])


def _deletes(events: Events, identity: Identity, key: list[pa.Array]) -> Events:
    """Return deletes of other keys at the events' positions."""
    columns: list[pa.Array] = [pa.nulls(events.rows, column.type) for column in events.columns]
    for number, column in zip(identity.key, key, strict=True):
        columns[number] = column
    return replace(
        events,
        columns=columns,
        rescued=pa.nulls(events.rows, pa.string()),
        action=np.full(events.rows, DELETE, np.int64),
        expected=np.full(events.rows, EXPECTED, np.uint8),
        unchanged={},
    )

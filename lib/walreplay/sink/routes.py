"""Choose the bucket of each event: its key's, or, if keys have changed, one bucket for all linked keys.

If a row takes another key and keeps values that were not sent, the two keys are linked: their events have to be folded
together.  Links are only 16 bytes each, so all of them can be brought to one place to find which keys belong together:

1. `split` divides a file's events by key, `links_of` gives its links.
2. `components` makes `Routes` of all files' links; `Routes.split` divides them as `split` does the events.
3. `route` divides each bucket's events again, by the routes of that bucket.  Events whose keys have no link stay where
   they are; a component comes together in the bucket of one of its keys.

Keys are identified by half of their hash.  If two keys share it, they merely come to the same bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import given, out
from walreplay.sink.events import Events, Identity, Mode, batch_from_ipc, batch_to_ipc, bucket_of, key_hashes
from walreplay.sink.fold import MOVE
from walreplay.sink.identity import hash_rows
from walreplay.sink.slots import TABLE, new_table, slot_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Routes:
    """The component of each linked key; or, from `links_of`, pairs of linked keys in any order.

    Attributes:
        key: half hashes of the linked keys, sorted.
        to: for each key, the least key of its component; or the key that it is linked to.
    """

    key: NDArray[np.uint64]
    to: NDArray[np.uint64]

    def of(self, key: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Give the least key of each key's component; a key without links is its own."""
        if not len(self.key):
            return key
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[at] == key, self.to[at], key)

    def split(self, buckets: int) -> list[tuple[int, Routes]]:
        """Divide the routes into the same buckets as the events of their keys; give each bucket's number and routes."""
        bucket = bucket_of(self.key, buckets)
        order = np.argsort(bucket, kind="stable")
        key, to = self.key[order], self.to[order]
        return [(number, Routes(key[start:stop], to[start:stop])) for number, start, stop in _runs(bucket[order])]

    def to_ipc(self) -> pa.Buffer:
        """Write them as an Arrow IPC stream."""
        return batch_to_ipc(pa.RecordBatch.from_arrays([pa.array(self.key), pa.array(self.to)], names=["key", "to"]))

    @classmethod
    def from_ipc(cls, data: pa.Buffer | bytes) -> Routes:
        """Read what `to_ipc` wrote."""
        batch = batch_from_ipc(data)
        return cls(batch.column("key").to_numpy(), batch.column("to").to_numpy())


NO_ROUTES = Routes(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def links_of(events: Events, identity: Identity, names: Sequence[str]) -> Routes | None:
    """Give the pairs of keys that the events link; None if there are none."""
    if events.old_key is None:
        return None
    moves = events.action == MOVE
    new = key_hashes(events, identity, names)[0][moves]
    old_key = identity.compared(events.old_key, identity.key)
    old = hash_rows(old_key, events.rows, events.old_rescued)[0][moves]
    return Routes(new, old)


@helper
def _root(parent, s):  # type: ignore[no-untyped-def]
    while parent[s] != s:
        parent[s] = parent[parent[s]]
        s = parent[s]
    return s


@kernel(given("uint64"), given("uint64"), given("uint64"), *TABLE, out("int32"))
def _components(one, other, zero, table, key, unused, parent):  # type: ignore[no-untyped-def]
    used = 0
    for i in range(one.shape[0]):
        a = slot_of(one, zero, i, table, key, unused, used)
        if a == used:
            parent[used] = used
            used += 1
        b = slot_of(other, zero, i, table, key, unused, used)
        if b == used:
            parent[used] = used
            used += 1
        a = _root(parent, a)
        b = _root(parent, b)
        # The least key stands for all, whatever the order of the links.
        if key[a] < key[b]:
            parent[b] = a
        else:
            parent[a] = b
    for s in range(used):
        parent[s] = _root(parent, s)
    return used


def components(links: Sequence[Routes]) -> Routes:
    """Find the components of all links.  This takes about 80 bytes of memory for each link."""
    if not links:
        return NO_ROUTES
    one, other = (np.concatenate([getattr(part, name) for part in links]) for name in ("key", "to"))
    capacity = 2 * len(one)
    key, unused, parent = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64), np.empty(capacity, np.int32)
    used = _components(one, other, np.zeros(len(one), np.uint64), new_table(capacity), key, unused, parent)
    order = np.argsort(key[:used])
    return Routes(key[:used][order], key[parent[:used]][order])


def _runs(bucket: NDArray[np.uint16]) -> list[tuple[int, int, int]]:
    """Give the runs of equal buckets in sorted events: bucket, start and stop of each."""
    numbers, starts = np.unique(bucket, return_index=True)
    stops = np.append(starts[1:], len(bucket)) if len(starts) else starts
    return list(zip(numbers.tolist(), starts.tolist(), stops.tolist(), strict=True))


def split(
    events: Events, identity: Identity, names: Sequence[str], buckets: int, turn: int = 0
) -> list[tuple[int, Events]]:
    """Divide events by row identity, so that all events of one row come to one task.

    A `MOVE` goes to the bucket of its new key.  If there are any, the parts keep their events' positions.

    Args:
        turn: the number of this call.  Events of tables to which rows are only added go to the buckets in turn.

    Returns:
        number and events of each bucket that has any.
    """
    if buckets == 1 or events.rows == 0:
        return [(0, events)]
    if identity.mode is Mode.APPEND:
        return [(turn % buckets, events)]
    if events.has_moves:
        events = replace(events, position=np.arange(events.rows))
    return route(events, identity, names, NO_ROUTES, buckets)


def route(
    events: Events, identity: Identity, names: Sequence[str], routes: Routes, buckets: int
) -> list[tuple[int, Events]]:
    """Divide a bucket's events again, so that those of linked keys come together; see `split`."""
    bucket = bucket_of(routes.of(key_hashes(events, identity, names)[0]), buckets)
    if not (bucket[1:] >= bucket[:-1]).all():
        order = np.argsort(bucket, kind="stable")
        events, bucket = events.take(order), bucket[order]
    return [(number, _trimmed(events.slice(start, stop))) for number, start, stop in _runs(bucket)]


def _trimmed(events: Events) -> Events:
    """Leave out old keys of parts without a `MOVE`, and masks of columns without unchanged values."""
    if events.has_moves and not (events.action == MOVE).any():
        events = replace(events, old_key=None, old_rescued=None)
    return replace(events, unchanged={number: mask for number, mask in events.unchanged.items() if mask.any()})

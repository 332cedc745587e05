"""Events in the plainest form, folded at once and by stages; and what merged rows do to a table.

A table is a dict from key to values; a value that nobody knows is None.  Keys and values are integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from walreplay.fold.events import ADD, REMOVE, Events, Identity, Mode, concat, from_ipc, image_hashes, rejoin, to_ipc
from walreplay.fold.net_changes import NO_ROUTES, Routes, components, fold_events, links_of, route, rows_to_merge, split
from walreplay.fold.reducing import DELETE, EXPECTED, MOVE, UPDATE
from walreplay.fold.reducing import INSERT as INSERT

NAMES: Final = ("key", "a", "b")
KEYED: Final = Identity(Mode.KEYED, (0,))

Values = tuple[int | None, int | None]
Rows = dict[int, Values]


@dataclass(frozen=True)
class Event:
    """One event; ``keeps`` says which of the two values it does not bring."""

    action: int
    key: int
    values: tuple[int, int] = (0, 0)
    keeps: tuple[bool, bool] = (False, False)
    old: int = 0
    lsn: int = 1


def build(events: Sequence[Event]) -> Events:
    """Make events of events."""

    def column(values: Iterable[int | None]) -> pa.Array:
        return pa.array(list(values), pa.int64())

    action = np.array([event.action for event in events], np.int64)
    named = np.isin(action, (UPDATE, DELETE, REMOVE))
    moves = bool((action == MOVE).any())
    olds = [event.old if event.action == MOVE else None for event in events]
    result = Events(
        columns=[
            column(event.key for event in events),
            *(
                column(None if event.keeps[n] or event.action == DELETE else event.values[n] for event in events)
                for n in range(2)
            ),
        ],
        lsn=column(event.lsn for event in events),
        ts=column(event.lsn for event in events).cast(pa.timestamp("us", "UTC")),
        rescued=pa.nulls(len(events), pa.string()),
        action=action,
        expected=np.where(named, EXPECTED, 0).astype(np.uint8),
        unchanged={
            n + 1: np.array([event.keeps[n] and event.action != DELETE for event in events], np.uint8)
            for n in range(2)
            if any(event.keeps[n] for event in events)
        },
        old_key=[column(olds)] if moves else None,
        old_rescued=pa.nulls(len(events), pa.string()) if moves else None,
    )
    if np.isin(action, (ADD, REMOVE)).any():
        result.image = image_hashes(result)
    return result


def rows_at_once(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Fold all events in one go."""
    return list(_rows(build(events)))


def rows_by_stages(
    events: Sequence[Event], cuts: Sequence[int], buckets: int, again: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Fold events file by file, part them, bring linked keys together, and fold each bucket.

    Args:
        cuts: the events that the second and each further file begins with.
        again: files (by number) whose fold is folded once more.
    """
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    files: list[Events] = []
    for number, (start, stop) in enumerate(pairwise(edges)):
        if start == stop:
            continue
        folded = fold_events(build(events[start:stop]), KEYED, NAMES, buckets=buckets)
        files.append(fold_events(folded, KEYED, NAMES, buckets=buckets) if number in again else folded)
    return [row for part in brought_together(files, KEYED, buckets) for row in _rows(part)]


def brought_together(files: Iterable[Events], identity: Identity, buckets: int) -> Iterator[Events]:
    """Bring the events of files to the buckets where they meet, as tasks do."""
    links: list[Routes] = []
    parts: dict[int, dict[int, list[Events]]] = {}
    for number, events in enumerate(files):
        found = links_of(events, identity, NAMES)
        if found is not None:
            links.append(Routes.from_ipc(found.to_ipc()))
        for bucket, part in split(events, identity, NAMES, buckets):
            parts.setdefault(bucket, {}).setdefault(number, []).append(from_ipc(to_ipc(part)))
    routes = dict(components(links).split(buckets))
    routed: dict[int, dict[int, list[Events]]] = {}
    for bucket, of_files in parts.items():
        # In another order than they were made in.
        for number in sorted(of_files, reverse=True):
            for part in of_files[number]:
                for to, moved in route(part, identity, NAMES, routes.get(bucket, NO_ROUTES), buckets):
                    routed.setdefault(to, {}).setdefault(number, []).append(from_ipc(to_ipc(moved)))
    for of_files in routed.values():
        yield concat([rejoin(of_files[number]) for number in sorted(of_files)])


def _rows(events: Events) -> Iterator[dict[str, Any]]:
    for batch in rows_to_merge(events, KEYED, NAMES, (1, 2), moves=True):
        yield from batch.to_pylist()


def merge(state: Rows, rows: Iterable[dict[str, Any]]) -> Rows:
    """Do to a table what the MERGE of these rows does."""
    result = dict(state)
    sources: set[int] = set()
    for row in rows:
        if row["matches"]:
            assert row["b0"] not in sources, "two rows match one of the target"
            sources.add(row["b0"])
            result.pop(row["b0"], None)
    for row in rows:
        if row["deleted"]:
            continue
        before: Values = state.get(row["b0"], (None, None)) if row["matches"] else (None, None)
        one, two = (before[n] if row[f"k{n + 1}"] else row[f"c{n + 1}"] for n in range(2))
        assert row["c0"] not in result, "two rows have one key"
        result[row["c0"]] = (one, two)
    return result


def comparable(rows: Iterable[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return what of merged rows has to be the same, in whatever way they were folded: the bases and the final rows.

    Which base goes on in a row that keeps nothing of it is all the same.
    """
    bases, finals = [], []
    for row in rows:
        if row["matches"]:
            bases.append(repr([row[name] for name in ("b0", "base_rescued", "expected", "claimed")]))
        if not row["deleted"]:
            values = [f"of {row['b0']}" if row[f"k{n}"] else row[f"c{n}"] for n in (1, 2)]
            finals.append(repr([row["c0"], *values, row["lsn"], row["rescued"], row["unknown"]]))
    return sorted(bases), sorted(finals)

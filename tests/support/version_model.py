"""Histories of events: what rows are, one event after the other; and what folded rows do to the versions of a table.

A key is an integer; the key 4, and values that 5 divides, are such that their columns cannot hold them: they are
rescued.  A value that nobody knows is None.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from support.event_model import (
    ADD,
    DELETE,
    INSERT,
    KEYED,
    MOVE,
    NAMES,
    REMOVE,
    UPDATE,
    Event,
    Rows,
    brought_together,
    build,
)
from support.row_states import RowStates, State
from walreplay.decode.change_batch import rescued_json
from walreplay.delta.data_files import FileColumn
from walreplay.delta.small_table import Before, Images, Keys, rewrite
from walreplay.fold.events import OPERATIONS, Events, Identity, Marks, Mode, image_hashes
from walreplay.fold.versions import Emptied, continue_bases, settled_versions, version_rows, version_schema
from walreplay.session.folders import MountedFolder

TRUNCATE: Final = -1
TRACKED: Final = (1, 2)
RESCUED_KEY: Final = 4


@dataclass(frozen=True)
class Change:
    """An event, or a truncate, with its place in its transaction and the letter of its kind."""

    event: Event
    ordinal: int
    op: str

    @property
    def lsn(self) -> int:
        return self.event.lsn

    @property
    def action(self) -> int:
        return self.event.action


def time_of(lsn: int) -> int:
    """Return a time that rises with the commit LSN."""
    return 1_000_000 + 7 * lsn


def ends_of(state: State) -> tuple[Any, Any]:
    """Return the commit LSN and the time at which a version ends."""
    return state.end, None if state.end is None else time_of(state.end)


def rows_of(states: Iterable[State]) -> list[str]:
    """Return versions in an order."""
    kept = ((*one.values, one.lsn, time_of(one.lsn), one.ordinal, one.op, *ends_of(one)) for one in states)
    return sorted(map(repr, kept))


def played(changes: Iterable[Change], *, keyed: bool = True) -> RowStates:
    """Play changes one by one.

    Args:
        keyed: rows are told apart by their keys; else by all of their values.
    """
    states = RowStates(itemgetter(0) if keyed else tuple)
    for change in changes:
        _play(states, change, keyed=keyed)
    return states


def _play(states: RowStates, change: Change, *, keyed: bool) -> None:
    event, lsn = change.event, change.lsn
    values: tuple[int | None, ...] = (event.key, *event.values)
    if event.action == TRUNCATE:
        states.empty(lsn)
        return
    if event.action in (DELETE, REMOVE):
        states.end(states.image(values), lsn)
        return
    former = None
    if keyed and event.action in (INSERT, MOVE):
        states.evict(event.key, lsn)
    if event.action in (UPDATE, MOVE):
        former = states.end(event.old if event.action == MOVE else event.key, lsn)
    for place, keeps in enumerate(event.keeps, start=1):
        if keeps:
            values = (*values[:place], former and former.values[place], *values[place + 1 :])
    states.begin(State(values, lsn, time_of(lsn), change.ordinal, change.op), former)


def state_after(rows: Rows, events: Iterable[Event]) -> Rows:
    """Return the rows that a table has behind events, each of which does what it says."""
    changes = [Change(Event(INSERT, key, values, lsn=0), 0, "c") for key, values in rows.items()]  # type: ignore[arg-type]
    changes += [Change(event, 0, "u") for event in events]
    return {one.values[0]: one.values[1:] for one in played(changes).rows}


@dataclass
class Copies:
    """A history of rows without a key, as folded rows change it; ``anew`` as in `Table`."""

    versions: list[State] = field(default_factory=list)
    missing: int = 0
    anew: int = 0

    def apply(self, changes: Sequence[Change], *, identity: Identity, buckets: int, cut: int) -> None:
        """Fold the changes of a run, and do what the rows say; see `Table.apply`."""
        emptied = emptied_of(changes)
        rows: list[dict[str, Any]] = []
        for events in staged([changes[:cut], changes[cut:]], identity, buckets):
            rows += fold(events, emptied, identity=identity)
        missing = self.missing
        images = Images((*range(len(NAMES)), _PLACE["rescued"])) if identity.mode is Mode.MULTISET else None
        anew = written_anew(self.versions, rows, emptied, images) if self.versions else None
        there: dict[Any, list[State]] = {}
        for version in sorted(self.versions, key=lambda one: (one.lsn, one.ordinal)):
            if version.end is None:
                there.setdefault(version.values, []).append(version)
        for row in sorted(
            (row for row in rows if not row["opens"]), key=lambda row: (row["closes_lsn"] or 0, row["ordinal"])
        ):
            found = there.get(_version(row, {}).values) if row["closes"] else None
            if found:
                closed = found.pop()
                closed.end = row["closes_lsn"]
            else:
                self.missing += row["expected"]
        for versions in there.values():
            for version in versions:
                version.end = int(emptied.lsn[0]) if len(emptied.lsn) else None
        self.versions += [_version(row, {}) for row in rows if row["opens"]]
        if anew is not None:
            assert anew == (rows_of(self.versions), self.missing - missing)
            self.anew += 1


@dataclass
class Table:
    """A history, as folded rows change it; ``anew`` is how often that was also done by writing files anew."""

    versions: list[State] = field(default_factory=list)
    missing: int = 0
    anew: int = 0

    def apply(
        self,
        changes: Sequence[Change],
        *,
        buckets: int = 1,
        cut: int = 0,
        watched: Sequence[int] | None = None,
        fresh: bool = False,
    ) -> None:
        """Fold the changes of a run, and do what the rows say.

        Args:
            cut: how many of the changes are in the first of two files.
            watched, fresh: see `version_rows`.
        """
        emptied = emptied_of(changes)
        bases = {version.values[0]: version for version in self.versions if version.end is None}
        assert not (fresh and bases)
        rows: list[dict[str, Any]] = []
        for events in staged([changes[:cut], changes[cut:]], KEYED, buckets):
            found = fold(events, emptied, watched=watched, fresh=fresh)
            rows += found if watched is None else _decided(found, bases, watched)
        anew = None
        if watched is None and self.versions:
            anew = written_anew(self.versions, rows, emptied, Keys((0,), TRACKED, claims=True))
        missing = self.missing
        self._merge(rows, bases, emptied)
        if anew is not None:
            assert anew == (rows_of(self.versions), self.missing - missing)
            self.anew += 1

    def _merge(self, rows: list[dict[str, Any]], bases: dict[int, State], emptied: Emptied) -> None:
        opened = [_version(row, bases) for row in rows if row["opens"]]
        touched: set[int] = set()
        for row in rows:
            assert not (row["opens"] and row["closes"])
            if row["opens"]:
                assert not row["expected"]
                assert not row["claimed"]
                continue
            key, replaces = _key(row["b0"], row["base_rescued"]), row.get("replaces", False)
            assert (row["closes"] or replaces) == (key is not None)
            if key is None or key not in bases:
                assert not replaces
                self.missing += row["expected"]
                continue
            assert key not in touched, "a base is closed twice"
            assert not row["claimed"], "a key that should be free has a row"
            touched.add(key)
            if replaces:
                bases[key].values = _version(row, bases).values
            bases[key].end = row["closes_lsn"]
            assert row["closes_at"] == ends_of(bases[key])[1]
        for key, base in bases.items():
            if key not in touched and len(emptied.lsn):
                base.end = int(emptied.lsn[0])
        self.versions += opened


def staged(files: Iterable[Sequence[Change]], identity: Identity, buckets: int) -> Iterator[Events]:
    """Bring the changes of files to the buckets where they meet."""
    built = (build_marked([one for one in changes if one.action != TRUNCATE], identity) for changes in files)
    return brought_together([events for events in built if events.rows], identity, buckets)


def emptied_of(changes: Iterable[Change]) -> Emptied:
    """Return the truncates among changes."""
    found = [change for change in changes if change.action == TRUNCATE]
    return Emptied(
        np.array([change.lsn for change in found], np.int64),
        np.array([change.ordinal for change in found], np.int64),
        np.array([time_of(change.lsn) for change in found], np.int64),
    )


def build_marked(changes: Sequence[Change], identity: Identity = KEYED) -> Events:
    """Make events of changes without truncates, with marks and rescued texts."""
    events = build([change.event for change in changes])
    events.marks = Marks(
        np.array([change.ordinal for change in changes], np.int64),
        np.array([OPERATIONS.index(change.op) for change in changes], np.uint8),
        np.array([time_of(change.lsn) for change in changes], np.int64),
    )
    texts: list[dict[str, str]] = [{} for _ in changes]
    for number, column in enumerate(events.columns):
        values = column.to_pylist()
        for text, value in zip(texts, values, strict=True):
            if value is not None and _is_rescued(number, value):
                text[NAMES[number]] = str(value)
        events.columns[number] = pa.array(
            [None if value is None or _is_rescued(number, value) else value for value in values], pa.int64()
        )
    events.rescued = pa.array([rescued_json(text) if text else None for text in texts], pa.string())
    if events.old_key is not None:
        olds = events.old_key[0].to_pylist()
        is_rescued = [old == RESCUED_KEY for old in olds]
        rescued = [rescued_json({"key": str(old)}) if hit else None for old, hit in zip(olds, is_rescued, strict=True)]
        events.old_key = [pa.array([None if h else o for o, h in zip(olds, is_rescued, strict=True)], pa.int64())]
        events.old_rescued = pa.array(rescued, pa.string())
    if identity.mode is not Mode.KEYED:
        events.action = np.where(events.action == REMOVE, -1, np.where(events.action == ADD, 1, events.action))
        events.expected, events.image = events.expected.astype(np.int64), None
    elif events.image is not None:
        events.image = image_hashes(events)
    return events


def _is_rescued(number: int, value: int) -> bool:
    return value == RESCUED_KEY if number == 0 else value % 5 == 0


def fold(
    events: Events,
    emptied: Emptied,
    *,
    identity: Identity = KEYED,
    watched: Sequence[int] | None = None,
    fresh: bool = False,
) -> list[dict[str, Any]]:
    """Return the rows of a bucket's events."""
    events = settled_versions(events, identity, NAMES, None, emptied)
    emptied = emptied.with_first() if fresh else emptied
    rows: list[dict[str, Any]] = []
    for batch in version_rows(events, emptied, identity, NAMES, TRACKED, watched=watched):
        rows += _dicts(batch)
    return rows


def _dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    times = {name: batch.column(name).cast(pa.int64()) for name in ("start_at", "end_at", "closes_at")}
    whole = batch.to_pydict() | {name: column.to_pylist() for name, column in times.items()}
    return [dict(zip(whole, values, strict=True)) for values in zip(*whole.values(), strict=True)]


def _decided(rows: list[dict[str, Any]], bases: dict[int, State], watched: Sequence[int]) -> list[dict[str, Any]]:
    """Join rows with their bases, and have it decided which versions go on with them."""
    joined, others = list[dict[str, Any]](), list[dict[str, Any]]()
    for row in rows:
        key = _key(row["b0"], row["base_rescued"])
        if key is None:
            assert not row["may_continue"]
            others.append(row)
            continue
        base = bases.get(key)
        texts, rescued = json.loads(row["rescued"] or "{}"), dict[str, str]()
        filled = dict(row) | {"key": key, "found": base is not None}
        for number in TRACKED:
            old = None if base is None else base.values[number]
            is_rescued = old is not None and _is_rescued(number, old)
            if number in watched:
                filled[f"o{number}"] = None if is_rescued else old
                rescued |= {NAMES[number]: str(old)} if is_rescued else {}
            if row[f"k{number}"]:
                texts |= {NAMES[number]: str(old)} if is_rescued else {}
                filled |= {f"c{number}": None if is_rescued else old, f"k{number}": False}
        filled |= {"rescued": rescued_json(texts) if texts else None}
        filled |= {"o_rescued": rescued_json(rescued) if rescued else None}
        joined.append(filled)
    joined.sort(key=lambda row: (row["key"], row["opens"], row["start_lsn"] or 0, row["ordinal"]))
    schema = version_schema((pa.int64(),) * 3, KEYED, TRACKED, watched=True)
    olds_of = [pa.field(f"o{number}", pa.int64()) for number in watched]
    schema = pa.schema([*schema, pa.field("found", pa.bool_()), pa.field("o_rescued", pa.string()), *olds_of])
    batches = pa.Table.from_pylist(joined, schema).to_batches(max_chunksize=3)
    for batch in continue_bases(batches, KEYED, NAMES, watched):
        others += _dicts(batch)
    return others


def _key(column: int | None, rescued: str | None) -> int | None:
    return column if rescued is None else int(json.loads(rescued)["key"])


def _version(row: dict[str, Any], bases: dict[int, State]) -> State:
    texts = json.loads(row["rescued"] or "{}")
    key = int(texts["key"]) if "key" in texts else row["c0"]
    assert key is not None
    values: list[int | None] = [key]
    for number in TRACKED:
        name = NAMES[number]
        if row.get(f"k{number}"):
            assert name not in texts
            assert row[f"c{number}"] is None
            at = _key(row["b0"], row["base_rescued"])
            assert at is not None
            base = bases.get(at)
            values.append(None if base is None else base.values[number])
        else:
            values.append(int(texts[name]) if name in texts else row[f"c{number}"])
    assert row["unknown"] <= (None in values)
    version = State(tuple(values), row["start_lsn"], 0, row["ordinal"], row["op"], row["end_lsn"])
    assert row["start_at"] == (time_of(version.lsn) if row["opens"] else None)
    assert row["end_at"] == (ends_of(version)[1] if row["opens"] else None)
    return version


# Histories in files, which are written anew where versions end.

_KINDS: Final = (pa.int64(),) * len(NAMES)
_STORED: Final = {
    **{f"c{number}": kind for number, kind in enumerate(_KINDS)},
    "rescued": pa.string(),
    "start_lsn": pa.int64(),
    "end_lsn": pa.int64(),
    "ordinal": pa.int64(),
    "start_at": pa.timestamp("us", "UTC"),
    "end_at": pa.timestamp("us", "UTC"),
    "op": pa.string(),
}
_PLACE: Final = {name: number for number, name in enumerate(_STORED)}


def _stored(version: State) -> dict[str, Any]:
    texts = dict[str, str]()
    values: dict[str, int | None] = {}
    for number, value in enumerate(version.values):
        hit = value is not None and _is_rescued(number, value)
        values[f"c{number}"] = None if hit else value
        texts |= {NAMES[number]: str(value)} if hit else {}
    end_lsn, end_at = ends_of(version)
    times = {"start_at": time_of(version.lsn), "end_at": end_at}
    own = {"start_lsn": version.lsn, "end_lsn": end_lsn, "ordinal": version.ordinal, "op": version.op}
    return {**values, "rescued": rescued_json(texts) if texts else None, **times, **own}


def written_anew(
    versions: Iterable[State], rows: Sequence[dict[str, Any]], emptied: Emptied, how: Keys | Images | None
) -> tuple[list[str], int] | None:
    """Store versions in files, and apply folded rows to these: give the versions, and how many were missing.

    None if that is left to a MERGE.
    """
    versions = list(map(replace, versions))
    columns = tuple(FileColumn(name, name, kind) for name, kind in _STORED.items())
    parts = [versions[start::3] for start in range(3) if versions[start::3]]
    first = (int(emptied.lsn[0]), int(emptied.top[0])) if len(emptied.lsn) else None
    identity = KEYED if isinstance(how, Keys) else Identity(Mode.MULTISET if how else Mode.APPEND)
    batch = pa.RecordBatch.from_pylist(list(rows), version_schema(_KINDS, identity, TRACKED))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.parquet") for number in range(len(parts))]
        for path, part in zip(paths, parts, strict=True):
            pq.write_table(pa.Table.from_pylist(list(map(_stored, part)), pa.schema(_STORED)), path)
        found = rewrite(
            Before(MountedFolder("/"), tuple(map(str, paths)), columns, tuple(_STORED), how, first),
            [batch],
        )
    if found is None:
        return None
    for number in found.replaced:
        assert any(version.end is None for version in parts[number]), "a file of ended versions is written anew"
    kept = [version for number, part in enumerate(parts) if number not in found.replaced for version in part]
    batches = list(found.batches())
    for row in pa.Table.from_batches(batches).to_pylist() if batches else []:
        one = dict(zip(_STORED, row.values(), strict=True))
        texts = {name: int(text) for name, text in json.loads(one["rescued"] or "{}").items()}
        values = tuple(texts.get(name, one[f"c{number}"]) for number, name in enumerate(NAMES))
        version = State(values, one["start_lsn"], 0, one["ordinal"], one["op"], one["end_lsn"])
        times = [None if one[name] is None else round(one[name].timestamp() * 1e6) for name in ("start_at", "end_at")]
        assert times == [time_of(version.lsn), ends_of(version)[1]]
        kept.append(version)
    assert found.counts["inserted"] == sum(row["opens"] for row in rows) == len(kept) - len(versions)
    return rows_of(kept), found.counts["without_base"] + found.counts["deletes_without_row"]

"""What a run does to each mirror table: where it lies, how its columns change, and in which steps its rows are merged.

A table's rows of one run may belong to several relation versions.  Those among which rows are told apart in the same
way are an *epoch*: its rows, given the shape that the table has at the epoch's end, are merged in one commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from wal2delta.errors import NotSupported, OrderError
from wal2delta.selection import MetadataNames
from wal2delta.settings import Settings
from wal2delta.sink.events import Identity, Mode
from wal2delta.sink.evolution import ChangeKind, Evolution, Policy, TableShape
from wal2delta.sink.projection import Projection
from wal2delta.spark.catalogue import Catalogue, Version, check_distinct
from wal2delta.spark.placement import Placement, Wanted, place
from wal2delta.spark.registry import MirrorEntry
from wal2delta.spark.staging import Staged
from wal2delta.spark.target import TableName, Target

_MAX_EPOCHS: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Epoch:
    """Rows that are merged in one commit.

    Attributes:
        start, stop: the staged rows' sequence numbers, ``stop`` None for the last epoch.
        evolution: from the table's columns before the epoch to those at its end.
        projections: how the rows of each relation version get the table's columns, by the sequence that it begins at.
        identity: in the table's columns.
        tracked: columns that some change leaves unchanged.
        converts_key: some key columns change their type, so that equal keys are not staged alike.
    """

    start: int
    stop: int | None
    evolution: Evolution
    projections: tuple[tuple[int, Projection, tuple[int, ...]], ...]
    identity: Identity
    configured: bool
    tracked: tuple[int, ...]
    moves: bool
    deletes: bool
    rows: int
    converts_key: bool

    @property
    def shape(self) -> TableShape:
        """The table's columns at the epoch's end."""
        return self.evolution.shape


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What a run does to one table.

    Attributes:
        number: what the staged rows call it.
        name: the source's name of it, when it was used last.
        table: where it lies once tables have moved.
        before: what the ledger knew of it; None for a new one.
        truncated: all rows that it held before the run are gone.
        rows: row changes.
    """

    number: int
    oid: int
    name: str
    table: TableName
    before: MirrorEntry | None
    epochs: tuple[Epoch, ...]
    metadata: MetadataNames
    soft_deletes: bool
    truncated: bool
    rows: int
    set_aside: bool
    notes: tuple[str, ...]

    @property
    def after(self) -> MirrorEntry:
        """What the ledger will know of it."""
        return MirrorEntry(self.oid, self.name, self.table, self.epochs[-1].shape, self.set_aside)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run does to its target's tables.

    Attributes:
        entries: the ledger's entries behind the run.
    """

    tables: tuple[TablePlan, ...]
    placement: Placement
    entries: tuple[MirrorEntry, ...]


def plan_tables(
    catalogue: Catalogue,
    staged: Mapping[int, Staged],
    truncated: Sequence[int],
    entries: Sequence[MirrorEntry],
    settings: Settings,
    target: Target,
) -> RunPlan:
    """Decide what becomes of each table that committed changes are for.

    Args:
        staged: what each table has, by its number.
        truncated: the oids of truncated relations.
        entries: what the ledger knows.

    Raises:
        NotSupported: for a change that the configuration forbids.
        OrderError: see `place`.
        ConfigError: two tables would be written to one place.
    """
    used: list[tuple[int, int, list[tuple[int, Version]]]] = []
    by_number = catalogue.by_number
    for number, found in staged.items():
        segments = [(start, by_number[version]) for start, version in found.segments]
        if segments:
            used.append((segments[-1][0], number, segments))
    # In the order in which the tables' names were used last: of two with one name, the later has it.
    used.sort(key=lambda item: item[0])
    wanted = []
    for _, number, segments in used:
        last = segments[-1][1]
        selection = last.selection
        table = target.table(selection.namespace, selection.name)
        wanted.append(Wanted(catalogue.oids[number], last.relation.qualified_name, table, selection.on_recreate))
    placement = place(entries, wanted, target)
    holders = {one.table: one.oid for one in wanted}
    check_distinct(
        [
            (one.name, one.table.path or one.table.text.casefold(), segments[-1][1])
            for one, (_, _, segments) in zip(wanted, used, strict=True)
            if holders[one.table] == one.oid
        ]
    )
    tables = []
    for one, (_, number, segments) in zip(wanted, used, strict=True):
        has_place = holders[one.table] == one.oid
        before = placement.before.get(one.oid)
        plan = _table(number, one, segments, staged[number], before, one.oid in truncated, settings)
        notes = (*placement.notes.get(one.oid, ()), *plan.notes)
        location = one.table if has_place else target.set_aside(one.oid)
        tables.append(replace(plan, table=location, set_aside=not has_place, notes=notes))
    after = {entry.oid: entry for entry in entries if entry.oid not in placement.replaced}
    after |= {entry.oid: entry for entry in placement.aside}
    after |= {plan.oid: plan.after for plan in tables}
    return RunPlan(tuple(tables), placement, tuple(after.values()))


def _table(
    number: int,
    wanted: Wanted,
    segments: Sequence[tuple[int, Version]],
    staged: Staged,
    before: MirrorEntry | None,
    truncated: bool,
    settings: Settings,
) -> TablePlan:
    last = segments[-1][1]
    selection = last.selection
    policy = Policy(
        keep_dropped=selection.on_drop_column == "keep",
        renames=selection.renames,
        infer_renames=settings.infer_renames,
    )
    shape = before.shape if before is not None else None
    epochs: list[Epoch] = []
    notes: list[str] = list(dict.fromkeys(note for _, version in segments for note in version.notes))
    rest = list(segments)
    while rest:
        evolution = Evolution(shape, policy)
        taken: list[tuple[int, Version]] = []
        identity: tuple[Mode, tuple[int, ...], bool] | None = None
        while rest:
            start, version = rest[0]
            ids = evolution.ids_of(version.columns)
            own = version.identity
            its = (own.mode, tuple(ids[k] for k in own.key), version.configured)
            if identity is not None and its != identity:
                break
            identity = its
            evolution.take(version.columns)
            taken.append((start, version))
            rest.pop(0)
        epochs.append(_epoch(taken, rest[0][0] if rest else None, evolution, staged))
        shape = evolution.shape
        notes += [change.text for change in evolution.changes]
        _check_types(evolution, selection.on_type_change, wanted.name)
    if len(epochs) > 1:
        notes.append(f"what tells its rows apart changed {len(epochs) - 1} times")
    if len(epochs) > _MAX_EPOCHS:
        raise NotSupported("what tells the table's rows apart changes too often in one run", table=wanted.name)
    return TablePlan(
        number=number,
        oid=wanted.oid,
        name=wanted.name,
        table=wanted.table,
        before=before,
        epochs=tuple(epochs),
        metadata=selection.metadata,
        soft_deletes=selection.soft_deletes,
        truncated=truncated,
        rows=sum(item.rows for item in staged.versions.values()),
        set_aside=False,
        notes=tuple(dict.fromkeys(notes)),
    )


def _check_types(evolution: Evolution, on_type_change: str, name: str) -> None:
    """Refuse a change of a column's type that rewrites the table, where the configuration says so."""
    if on_type_change != "stop" or not evolution.rewrites_types:
        return
    changes = ", ".join(change.text for change in evolution.changes if change.kind is ChangeKind.RETYPED)
    raise OrderError(
        f"{changes}, which rewrites the table",
        table=name,
        remedy="Nothing was applied; set on_type_change: rewrite to have the old values converted",
    )


def _epoch(taken: Sequence[tuple[int, Version]], stop: int | None, evolution: Evolution, staged: Staged) -> Epoch:
    names = [column.name for column in evolution.shape.columns]
    last_number, last = len(taken) - 1, taken[-1][1]
    key = tuple(evolution.number_of(last_number, k) for k in last.identity.key)
    identity = replace(last.identity, key=key)
    projections = []
    tracked: set[int] = set()
    for step, (start, version) in enumerate(taken):
        projection = Projection.of(evolution.of_version(step), version.names, names)
        projections.append((start, projection, version.identity.key))
        found = staged.versions[version.number]
        for number, source in enumerate(projection.numbers):
            if source is None:
                # Older than the column, or newer than its end: changes leave it alone.
                if identity.mode is Mode.KEYED:
                    tracked.add(number)
            elif source in found.tracked:
                tracked.add(number)
    versions = [
        staged.versions[version.number] for version in {version.number: version for _, version in taken}.values()
    ]
    return Epoch(
        start=taken[0][0],
        stop=stop,
        evolution=evolution,
        projections=tuple(projections),
        identity=identity,
        configured=last.configured,
        tracked=tuple(sorted(tracked)),
        moves=any(item.moves for item in versions),
        deletes=any(item.deletes for item in versions),
        rows=sum(item.rows for item in versions),
        converts_key=any(len(projection.chains[k]) > 1 for _, projection, _ in projections for k in key),
    )

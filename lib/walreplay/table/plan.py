"""The plan for each mirror table: where it lies, how its columns change, and in which commits its rows are merged.

The rows of a table in one run may belong to several relation versions.  Versions whose rows are identified in the same
way form an *epoch*.  Its rows get the columns that the table has at the epoch's end, and are merged in one commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from walreplay.config import Settings
from walreplay.config.selection import NO_LAYOUT, MetadataNames, TableLayout, Tracked
from walreplay.delta.target import TableName, Target
from walreplay.errors import NotSupported, OrderError
from walreplay.evolution.comments import table_comment
from walreplay.evolution.convert import is_widening
from walreplay.evolution.shapes import Evolution, Policy, TableShape, conversions, converts
from walreplay.fold.change_log import Projection
from walreplay.fold.events import Identity, Mode
from walreplay.lsn import format_lsn
from walreplay.names import RowKind, output_of, relation_of, source_oid
from walreplay.spark.staging import Staged
from walreplay.table import column_checks
from walreplay.table.certainty import ended, merged
from walreplay.table.placement import Placement, Switched, UsedRelation, place_tables
from walreplay.table.registry import ALWAYS, FROM, Doubt, Doubts, MirrorEntry
from walreplay.table.versions import Catalogue, Version, with_whole_keys
from walreplay.task_settings import Origins
from walreplay.types.families import may_be_rescued

_MAX_EPOCHS: Final = 1 << 14  # three commits each, behind 2**14 moves: 2**16 steps of a run (table_run)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The rows that are merged in one commit.

    Attributes:
        start, stop: sequence numbers of the staged rows; ``stop`` is None for the last epoch.
        evolution: from the table's columns before the epoch to those at its end.
        projections: how rows of each relation version get the table's columns, by the sequence that it begins at.
        identity: in the table's columns.
        tracked: columns that some change leaves unchanged.
        converts_key: equal keys of different versions may be staged differently.
        watched: of a history: the columns whose changes begin versions; None if each change begins one.
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
    watched: tuple[int, ...] | None = None

    @property
    def shape(self) -> TableShape:
        """The table's columns at the epoch's end."""
        return self.evolution.shape

    @property
    def identified_by(self) -> tuple[Mode, tuple[int, ...]]:
        """What identifies the epoch's rows: the mode, and the ids of the key's columns."""
        return self.identity.mode, tuple(self.shape.columns[number].id for number in self.identity.key)


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The plan for one table.

    Attributes:
        number: the table's number in the staged rows.
        name: the source's name of it, when it was used last.
        table: where it lies once tables have moved.
        before: what the ledger knew of it; None for a new one.
        truncated: all rows from before the run are deleted.
        rows: row changes.
        names: see `MirrorEntry`.
        layout: the properties and the clustering that it is to have.
        comment: what it is to say of itself, where nobody else has it say something.
        doubts: what of its older rows may be others in the source.
        uncertain: why, and at which LSNs, the table may differ from its source behind the run.
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
    names: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    layout: TableLayout = NO_LAYOUT
    comment: str = ""
    doubts: tuple[str, ...] = ()
    uncertain: Doubts = ()

    @property
    def changes_comment(self) -> bool:
        """The table is there, and is to say something else of itself."""
        return self.before is not None and self.before.comment != self.comment

    @property
    def after(self) -> MirrorEntry:
        """The ledger's entry for the table after the run."""
        # Its version and run are known once the commit was made (`left_at`).
        entry = MirrorEntry(self.oid, self.name, self.table, self.epochs[-1].shape, self.set_aside, self.names)
        # A relation that was made anew has none of the rows that were loaded.
        if self.before is not None and self.before.oid == self.oid:
            entry = replace(entry, base_lsn=self.before.base_lsn, verified=self.before.verified)
        entry = replace(entry, layout=self.layout, comment=self.comment, share=self.metadata.share)
        called = () if self.before is None else self.before.called
        return replace(entry, doubts=self.uncertain, called=called)


@dataclass(frozen=True, slots=True)
class Period:
    """What a run applies.

    Attributes:
        since: the commit LSN up to which everything was applied before it; ``upto``: the same behind it.
        known_oids: the relations that had been heard of before, by oid.
    """

    since: int = ALWAYS
    upto: int = ALWAYS
    known_oids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TablesPlan:
    """What a run does to its target's tables; ``entries`` are the ledger's behind the run."""

    tables: tuple[TablePlan, ...]
    placement: Placement
    entries: tuple[MirrorEntry, ...]

    @property
    def warnings(self) -> list[str]:
        """What of the tables' older rows may be others in the source."""
        return [f"{table.name}: {text}" for table in self.tables for text in table.doubts]

    @property
    def changes(self) -> int:
        """How many row changes the tables have taken; what is written to several counts once."""
        first = {relation_of(table.oid): table.rows for table in sorted(self.tables, key=lambda table: -table.oid)}
        return sum(first.values())


def plan_tables(
    catalogue: Catalogue,
    staged: Mapping[int, Staged],
    uses: Sequence[tuple[int, int | None]],
    truncated: Sequence[int],
    entries: Sequence[MirrorEntry],
    settings: Settings,
    target: Target,
    period: Period = Period(),
) -> TablesPlan:
    """Decide what becomes of each table that committed changes are for.

    Args:
        staged: what each table has, by its number.
        uses: the relation versions that are used, in commit order (see `Staging.uses`).
        truncated: the oids of truncated relations.
        entries: what the ledger knows.
        period: what the run applies.

    Raises:
        NotSupported: for a change that the configuration forbids.
        OrderError: see `place_tables`.
        ConfigError: two tables would be written to one place, or what cannot be changed for a table that is there has
            been.
    """
    versions = catalogue.by_number
    first = (rows.segments[0].version for rows in staged.values() if rows.segments)
    written = (versions[number] for number in first if number in versions)  # others are held since they were staged
    numbers = {version.oid: version.table for version in written}  # of tables that have rows in the run
    used = list(catalogue.used(uses))
    relations, placement = place_tables(catalogue, used, entries, numbers, target)
    switched = Switched.of(entries, relations, placement.before, catalogue.left_out)
    owners = _truncated(truncated, used)
    tables = []
    for relation in relations:
        if not relation.written:
            continue
        number = numbers[relation.oid]
        segments = [(segment.start, versions[segment.version]) for segment in staged[number].segments]
        has_place = relation.oid in placement.holders
        before = placement.before.get(relation.oid)
        # A load behind the truncate has filled the table again.
        is_truncated = relation.oid in owners and relation.oid not in catalogue.filled_since
        plan = _table(number, relation, segments, staged[number], before, is_truncated, settings)
        notes = (*placement.notes.get(relation.oid, ()), *switched.notes(relation.oid), *plan.notes)
        location = relation.table if has_place else target.set_aside(relation.oid)
        is_known = source_oid(relation.oid) in period.known_oids or relation_of(relation.oid) in catalogue.left_out
        is_late = relation.oid in switched.on or (before is None and is_known)
        new_doubts = _uncertain(plan, period, settings, is_late=is_late)
        # A truncate deletes the rows that were in doubt.
        doubts = () if before is None else ended(before.doubts, period.upto) if is_truncated else before.doubts
        uncertain = merged(*doubts, *new_doubts)
        tables.append(replace(plan, table=location, set_aside=not has_place, notes=notes, uncertain=uncertain))
    after = {entry.oid: entry for entry in entries if entry.oid not in placement.replaced}
    after |= {entry.oid: entry for entry in (*placement.aside, *placement.renamed)}
    after |= {plan.oid: plan.after for plan in tables}
    return TablesPlan(tuple(tables), placement, tuple(switched.off(after).values()))


def _truncated(oids: Iterable[int], used: Sequence[tuple[Version, int | None]]) -> set[int]:
    """Return the tables that truncates of relations, by oid, are for.

    Raises:
        OrderError: several tables have had the oid in the run: decoding leaves out what is older, whose ever it is.
    """
    truncated_tables = set[int]()
    for oid in oids:
        first: dict[int, tuple[str, int | None]] = {}
        for version, lsn in used:
            if version.relation.oid == oid:
                first.setdefault(version.source, (version.relation.qualified_name, lsn))
        if len(first) > 1:
            (name, _), (other, lsn), *_ = first.values()
            raise OrderError(
                f"{other} has the oid that {name} had, and one of them is truncated",
                table=other,
                remedy="Nothing was applied; run walreplay backfill with the same captures and target and --until-lsn "
                f"{format_lsn(max(0, (lsn or 0) - 1))}, then again without it",
            )
        truncated_tables |= first.keys()
    return truncated_tables


def _uncertain(plan: TablePlan, period: Period, settings: Settings, *, is_late: bool) -> Iterator[Doubt]:
    """Yield why a table may differ from its source behind the run."""
    output, first = output_of(plan.oid), period.since + 1
    if is_late:
        yield Doubt(ALWAYS, None, f"its {output.label} was switched on later than its source began")
    if not output.is_whole and first < settings.from_lsn:
        yield Doubt(ALWAYS, settings.from_lsn, FROM)
    if plan.before is not None and plan.before.oid != plan.oid:
        yield Doubt(first, None, "it goes on with the rows of another table that had its name (on_recreate: keep)")
    if output.rows is not RowKind.CURRENT:
        # A mirror's version has the columns of its time.
        changed = dict.fromkeys(change.column for epoch in plan.epochs for change in epoch.evolution.changes)
        if changed:
            yield Doubt(ALWAYS, period.upto, f"changed since: columns {', '.join(changed)}")
    shape, watched = plan.epochs[-1].shape, plan.epochs[-1].watched
    if output.rows is RowKind.VERSION and watched is not None:
        untracked = [column.name for n, column in enumerate(shape.columns) if n not in watched and not column.dropped]
        if untracked:
            text = "are not tracked: each version has the last values that they had in it"
            yield Doubt(ALWAYS, None, f"columns {', '.join(untracked)} {text}", lasting=True)
    if settings.skipped_operations or settings.origins != Origins():
        yield Doubt(first, None, "the configuration leaves out operations or origins", lasting=True)
    for column in shape.present:
        # Without a number it may only be newly published.
        if column.added and column.filled is None and column.known_number <= 0:
            yield Doubt(first, None, f"column {column.name} was added: what older rows have in it is not known")
    for text in plan.doubts:
        yield Doubt(first if output.rows is RowKind.CURRENT else ALWAYS, None, text)


def _table(
    number: int,
    relation: UsedRelation,
    segments: Sequence[tuple[int, Version]],
    staged: Staged,
    before: MirrorEntry | None,
    truncated: bool,
    settings: Settings,
) -> TablePlan:
    last = segments[-1][1]
    selection = last.selection
    notes: list[str] = list(dict.fromkeys(note for _, version in segments for note in version.notes))
    epochs: list[Epoch] = []
    doubts = dict.fromkeys(version.doubt for _, version in segments if version.doubt)
    for evolution, taken, end, doubted in _evolutions(relation, segments, before, settings):
        epochs.append(_epoch(taken, end, evolution, staged, selection.tracked))
        doubts.update(dict.fromkeys(doubted))
        notes += [change.text for change in evolution.changes]
        notes += column_checks.fill_notes(evolution)
        column_checks.check_lasting(evolution, relation.name, before, selection.metadata.share)
        # A truncate leaves no old values to convert, unless soft deletes keep the rows.
        if selection.on_type_change == "stop" and not (truncated and len(epochs) == 1 and not selection.soft_deletes):
            column_checks.check_types(evolution, relation.name)
    notes += column_checks.late_fills(last.columns, epochs[-1].shape)
    notes += column_checks.tracking_warnings(
        selection.tracked, epochs[-1].shape, has_key=last.identity.mode is Mode.KEYED
    )
    column_checks.check_clustering(selection.layout, epochs[-1].shape, selection.metadata, relation.name)
    changed = sum(epoch.identified_by != next_epoch.identified_by for epoch, next_epoch in pairwise(epochs))
    if changed:
        notes.append(f"what tells its rows apart changed {'once' if changed == 1 else f'{changed} times'}")
    if len(epochs) > _MAX_EPOCHS:
        raise NotSupported("what tells the table's rows apart changes too often in one run", table=relation.name)
    return TablePlan(
        number=number,
        oid=relation.oid,
        name=relation.name,
        table=relation.table,
        before=before,
        epochs=tuple(epochs),
        metadata=selection.metadata,
        soft_deletes=selection.soft_deletes,
        truncated=truncated,
        rows=sum(item.rows for item in staged.versions.values()),
        set_aside=False,
        # Of the newest version: an older one may have come back.
        names=max((version for _, version in segments), key=lambda version: version.number).selection.given,
        notes=tuple(dict.fromkeys(notes)),
        layout=selection.layout,
        comment=table_comment(last.relation, last.output, last.comment),
        doubts=tuple(doubts),
    )


def _evolutions(
    relation: UsedRelation, segments: Sequence[tuple[int, Version]], before: MirrorEntry | None, settings: Settings
) -> Iterator[tuple[Evolution, list[tuple[int, Version]], int | None, list[str]]]:
    """Divide a table's versions into epochs: in each one, its rows are told apart alike.

    Yields:
        what becomes of the columns, the epoch's versions with their beginnings, the next epoch's beginning, and the
        columns whose older rows may differ from the source's.
    """
    selection = segments[-1][1].selection
    policy = Policy(
        # Other sources may have the column still.
        keep_dropped=selection.on_drop_column == "keep" or selection.metadata.share is not None,
        renames=selection.renames,
        infer_renames=settings.infer_renames,
    )
    shape = before.shape if before is not None else None
    base_lsn = None if before is None else before.base_lsn
    announced = settings.announcements is not None
    rest = with_whole_keys(segments, shape)  # the versions that no epoch has yet
    # Its old rows are another relation's.
    anew = before is not None and before.oid != relation.oid
    while rest:
        evolution = Evolution(shape, policy, anew=anew)
        anew = False  # of the first epoch only
        taken: list[tuple[int, Version]] = []
        doubts: list[str] = []
        ids: tuple[int, ...] = ()
        while rest:
            start, version = rest[0]
            next_ids = evolution.ids_of(version.columns)
            if taken and not _identified_alike(taken[-1][1], ids, version, next_ids):
                break
            ids = next_ids
            if not evolution.anew or taken:  # that older rows are another table's is a doubt by itself
                doubts += column_checks.doubts_of(evolution.shape, version.columns, ids, base_lsn, announced=announced)
            evolution.take(version.columns, version.relation.unlisted)
            taken.append((start, version))
            rest.pop(0)
        yield evolution, taken, rest[0][0] if rest else None, doubts
        shape = evolution.shape


def _identified_alike(version: Version, ids: Sequence[int], following: Version, following_ids: Sequence[int]) -> bool:
    """Return whether the rows of two successive versions can be folded together, by the ids of their columns."""
    # A configured key may hold NULLs, and is matched otherwise.
    if (version.identity.mode, version.configured) != (following.identity.mode, following.configured):
        return False
    if version.identity.mode is Mode.MULTISET:
        # Whole rows are compared: a row with one list of columns never equals one with another list.
        return [(id_, column.target) for id_, column in zip(ids, version.columns, strict=True)] == [
            (id_, column.target) for id_, column in zip(following_ids, following.columns, strict=True)
        ] and not any(
            # A label that was renamed in between is staged as another text.
            converts((old.type, new.type)) or old.sent != new.sent
            for old, new in zip(version.columns, following.columns, strict=True)
        )
    # By ids: a renamed key column is the same one.
    return [ids[k] for k in version.identity.key] == [following_ids[k] for k in following.identity.key]


def _epoch(
    taken: Sequence[tuple[int, Version]], stop: int | None, evolution: Evolution, staged: Staged, tracks: Tracked | None
) -> Epoch:
    names = [column.name for column in evolution.shape.columns]
    rescues = taken[-1][1].selection.metadata.rescued_data is not None
    last_number, last = len(taken) - 1, taken[-1][1]
    key = tuple(evolution.number_of(last_number, k) for k in last.identity.key)
    identity = replace(last.identity, key=key)
    projections = []
    tracked: set[int] = set()
    for step, (start, version) in enumerate(taken):
        projection = Projection.of(evolution.of_version(step), version.names, names, rescues=rescues)
        projections.append((start, projection, version.identity.key))
        staged_version = staged.versions[version.number]
        for number, source in enumerate(projection.numbers):
            # Without one it is older than the column, or newer than its end: changes leave that alone.
            is_kept = identity.mode is Mode.KEYED if source is None else source in staged_version.tracked
            if is_kept:
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
        rows=sum(item.rows for item in versions),  # a version that comes back is counted once
        # Equal keys may be in several fold tasks by their hashes: then one task gets all rows.
        converts_key=any(_moves_keys(projection, k) for _, projection, _ in projections for k in key)
        or (identity.mode is Mode.MULTISET and any(_moves_rows(projection) for _, projection, _ in projections)),
        # Without a key every change ends one version and begins another.
        watched=column_checks.watched_columns(tracks, evolution.shape) if identity.mode is Mode.KEYED else None,
    )


def _moves_rows(projection: Projection) -> bool:
    """Return whether whole rows are hashed otherwise than they were staged: labels of their enums were renamed."""
    return any(
        number is not None and converts(chain)
        for number, chain in zip(projection.numbers, projection.chains, strict=True)
    )


def _moves_keys(projection: Projection, key: int) -> bool:
    """Return whether the values of a key's column are hashed otherwise than they were staged."""
    changes = conversions(projection.chains[key])
    if not all(is_widening(*pair) and all(pa.types.is_signed_integer(kind.arrow) for kind in pair) for pair in changes):
        return True
    # Rescued texts are hashed with their columns' names.
    number = projection.numbers[key]
    renamed = number is None or projection.before[number] != projection.after[key]
    return renamed and may_be_rescued(projection.chains[key][0])

"""Tables made beside a target (`walreplay.job.side_build`), and the target's tables that they stand for.

`rebuild` puts them in place, and `verify` compares alone.  Which relations they are made of, and with which base loads
they begin, follows from the target's ledger.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from walreplay.config import Settings
from walreplay.config.keys import HISTORY_COLUMNS, LOG_COLUMNS
from walreplay.config.model import Narrowed
from walreplay.config.selection import MetadataNames, key_columns, metadata_of
from walreplay.delta import statements as delta
from walreplay.errors import ConfigError, TargetError, listed
from walreplay.job.compare import TablePair, Verdict
from walreplay.job.context import RunContext
from walreplay.job.installing import remove_side
from walreplay.job.side_build import BaseStep, Side, SideBuild, side_name
from walreplay.job.source_check import check_unshared
from walreplay.ledger.runs import loads_of
from walreplay.ledger.state import FORMAT, PLANNED, Load, State, now
from walreplay.names import RowKind, output_of, source_oid
from walreplay.report import RunReport
from walreplay.session import steps
from walreplay.spark.captures import root_of
from walreplay.table.certainty import anew
from walreplay.table.registry import ARCHIVE, MirrorEntry, Verified


@dataclass(frozen=True, slots=True)
class MadeTables:
    """Tables as they are in a side target, up to the very LSN that the target is at.

    Attributes:
        state: of the target's ledger, under its lock; ``made`` is that of the side target.
        report: of the runs that have made them.
    """

    state: State
    side: Side
    made: State
    report: RunReport

    @property
    def counted(self) -> dict[str, Any]:
        """What was read, as a report has it."""
        return {name: getattr(self.report, name) for name in ("files", "capture_bytes", "transactions", "changes")}

    def pair(self, right: MirrorEntry, context: RunContext, *, of_source: bool = False) -> TablePair:
        """Return a table in the side target, one of ``made``, with the target's own; ``of_source``: see `TablePair`."""
        entry = {entry.oid: entry for entry in self.state.tables if not entry.is_unmade}.get(right.oid)
        metadata = metadata_of(context.settings, output_of(right.oid))
        # Where nothing identifies equal rows, the commits that wrote them last depend on where runs have ended.
        left_out = metadata.commit_columns if metadata.rows is RowKind.CURRENT else ()
        if metadata.rows is RowKind.CHANGE:
            left_out = (LOG_COLUMNS["file"],)  # an archive may have moved
        makers = None if entry is None or entry.share is None else context.sibling_ledgers.has_made
        key = self._key(right, context.settings, metadata)
        return TablePair(entry, right, metadata, key, left_out, makers, of_source)

    def noted(self, verdicts: Mapping[int, Verdict], against: str = ARCHIVE) -> State:
        """Return the target's state with what comparisons have shown of its tables, by their oids."""
        state, right = self.state, {entry.oid: entry for entry in self.made.tables}
        moment, lsn = now(), state.reached[0]

        def noted(entry: MirrorEntry) -> MirrorEntry:
            verdict = verdicts.get(entry.oid)
            if verdict is None:
                return entry
            if not verdict.why and against == ARCHIVE:
                # From now on it has only the doubts of its making; its older versions keep theirs.
                entry = replace(entry, doubts=anew(entry.doubts, right[entry.oid].doubts, lsn, state.run + 1))
            return replace(entry, verified=Verified(lsn, moment, against, verdict.has_right_rows))

        return replace(state, tables=tuple(map(noted, state.tables)), noted=state.noted + 1)

    def remove(self, context: RunContext) -> None:
        """Remove the side target."""
        with context.stage("clean up"):
            note = remove_side(context.session, self.side.target, [entry.table for entry in self.made.tables])
        context.warnings.extend([] if note is None else [note])

    def _key(self, right: MirrorEntry, settings: Settings, metadata: MetadataNames) -> tuple[str, ...]:
        """Return the columns by which a table's row is known; none if nothing but its values tells it from others."""
        if metadata.rows is RowKind.CHANGE:
            assert metadata.commit_lsn is not None
            return metadata.commit_lsn, LOG_COLUMNS["ordinal"]
        resume, source, names = self.made.resume, source_oid(right.oid), dict(right.names)
        relations = () if resume is None else resume.relations
        relation = next((relation for relation in relations if relation.oid == source), None)
        key = list(right.identity[1:])  # of a relation that only streamed, prepared transactions have announced
        if relation is not None:
            key = key_columns(relation, settings.keys_of(relation.namespace or "pg_catalog", relation.name))
        key = [names.get(column, column) for column in key]
        return (*key, HISTORY_COLUMNS["start_lsn"]) if key and metadata.rows is RowKind.VERSION else tuple(key)


@dataclass
class SideTables:
    """Tables of a target that are made beside it.

    Attributes:
        late_load: a load of rows that are older than what is applied; its tables are meant, whatever they are called.
        base_folder: where the files of the tables' base load are now; None for where they were.
        skips: nothing is put in place: shared tables are made, too, and those that cannot be made again are left out.
        skipped: these, by their relations' oids, with the reason.
        name: of the side target; None for one that says what is made there, and of what.
        lacking: the tables that are made without their base load, by oid: runs leave them out, and others may have
            their names by now.
    """

    context: RunContext
    captures: str
    narrowed: Narrowed
    late_load: BaseStep | None = None
    base_folder: str | None = None
    skips: bool = False
    skipped: dict[int, TargetError] = field(default_factory=dict)
    name: str | None = None
    lacking: dict[int, Load] = field(default_factory=dict)

    def make(self, state: State | None, side: Side) -> MadeTables:
        """Make the tables while runs of the target may come in between, then lock it, and catch up with these.

        Args:
            state: of the target's ledger, and ``side`` what `side` has returned for it.
        """
        assert state is not None
        made, report = self._build(side).make(state)
        steps.reached("side target made")
        locked = self.context.lock()
        if locked != state:
            # Another run has ended since; only what that run has applied is read for the side target now.
            side = self.side(locked)
            assert locked is not None
            made, report = self._build(side).make(locked)
            state = locked
        if not self.skips:
            check_unshared(made.tables)
        return MadeTables(state, side, made, report)

    def _build(self, side: Side) -> SideBuild:
        late_lsn = None if self.late_load is None else self.late_load.load.at_lsn
        return SideBuild(self.context, self.captures, side, late_lsn)

    # What is wanted

    def side(self, state: State | None) -> Side:
        """Return where the tables are made, after the target has been looked at.

        Raises:
            ConfigError: no table is called so.
            TargetError: nothing of the target, or one of the tables, cannot be made again.
        """
        target_state = self.check(state)
        names, parts = self._relation_names(target_state)
        self.skipped.clear()  # of a look before another run has come in between
        for entry in target_state.tables if self.skips else ():  # what holds a table may stop its making, too
            if entry.held and (entry.is_unmade or not entry.set_aside):
                self._skip([source_oid(entry.oid)], TargetError(entry.paused))
        self._skip_kept(names, parts)
        settings, outputs, late = self.context.settings, self.narrowed.outputs, self.late_load
        loads = self._base_loads(target_state, names) if late is None else (late,)
        oids = self._related_oids(names) - self.skipped.keys()
        name = self.name or side_name(
            settings,
            FORMAT,
            target_state.ledger,
            self.narrowed.tables,
            sorted(oids),
            None if outputs is None else sorted(output.value for output in outputs),
            settings.allow_gaps,
            [(step.load.at_lsn, step.load.after, sorted(step.only)) for step in loads],
        )
        begun = {entry.begins for entry in target_state.tables if source_oid(entry.oid) in oids and not entry.set_aside}
        # Tables that are whole begin with all changes, or with loaded rows.
        from_lsn = max(begun) if begun and min(begun) >= 0 else None
        narrowed = settings.narrowed(Narrowed(oids=frozenset(oids), outputs=outputs, from_lsn=from_lsn))
        return Side(name, self.context.target.side(name), narrowed, loads)

    def check(self, state: State | None) -> State:
        """Refuse a target of which nothing can be made again.

        Raises:
            TargetError: saying why.
        """
        context, where = self.context, self.context.target.text
        if state is None or (state.resume is None and state.phase != PLANNED):
            problem = "nothing of captures was applied to this target yet"
            raise TargetError(problem, path=where, remedy="Check --target; begin with walreplay apply")
        remedy = (
            f"Give its captures; or, if they were moved, name the source in the configuration: source: {state.source}"
        )
        state.check_source(context.settings.source or root_of(self.captures), where, remedy)
        if state.phase == PLANNED:
            raise TargetError(
                f"run {state.run} was interrupted, and has to be finished first",
                path=where,
                remedy="Run walreplay apply, with --accept-changed-tables if it refuses a table that is to be made "
                "again; then run this again",
            )
        if state.rebuild is not None or state.load is not None:
            what, how = ("rebuild", "apply") if state.load is None else ("load", "load again")
            problem = f"{what} {state.run} was interrupted meanwhile"
            raise TargetError(
                problem, path=where, remedy=f"Run walreplay {how}, which finishes it; then run this again"
            )
        if not self.skips:
            check_unshared([entry for entry in state.tables if self.wants(entry)])
        return state

    def wants(self, entry: MirrorEntry) -> bool:
        """Return whether a table is to be made again: of a late load those that have its rows, whatever their names."""
        oid, late = source_oid(entry.oid), self.late_load
        # By oid: a table that has taken a loaded table's name since would be made without its own base's rows.
        is_meant = self.narrowed.wants(entry.source_name) if late is None else oid in late.load.oids
        return is_meant and oid not in self.skipped

    def _skip(self, oids: Collection[int], error: TargetError) -> None:
        """Leave out the tables of relations, as they cannot be made again, or raise the error."""
        if oids and not self.skips:
            raise error
        self.skipped.update(dict.fromkeys(oids, error))

    def _base_loads(self, state: State, names: Mapping[int, set[str]]) -> tuple[BaseStep, ...]:
        """Return the base loads that the wanted tables begin with, in their order."""
        outputs, oids = self.narrowed.outputs, self._related_oids(names)
        self.lacking.clear()  # of a look before another run has come in between
        loaded_entries = [
            entry
            for entry in state.tables
            if entry.base_lsn is not None
            and (outputs is None or output_of(entry.oid) in outputs)
            # The entry of a table that runs leave out does not follow its names.
            and (any(map(self.narrowed.wants, names[source_oid(entry.oid)])) if entry.paused else self.wants(entry))
            and source_oid(entry.oid) not in self.skipped
            and (entry.paused or not entry.set_aside)
        ]
        loaded_oids = {source_oid(entry.oid) for entry in loaded_entries}
        new_names = {entry.source_name for entry in state.tables if entry.held and entry.is_unmade}
        placed = (entry for entry in loaded_entries if not entry.set_aside and self.wants(entry))
        named = {source_oid(entry.oid) for entry in placed if not entry.paused or entry.source_name not in new_names}
        if not loaded_entries and self.base_folder is not None:
            problem = "none of these tables has a base load"
            raise ConfigError(problem, path=self.context.target.text, remedy="Leave out --base")
        if not loaded_entries:
            return ()
        with self.context.stage("read ledger"):
            runs = delta.read(self.context.session, self.context.target.ledger("runs"))
            loads = [load for _, load in loads_of(runs, state)]
        versioned = {source_oid(entry.oid) for entry in loaded_entries if output_of(entry.oid).rows is RowKind.VERSION}
        needed_loads, resolved_oids, overwritten = list[tuple[Load, dict[int, str]]](), set[int](), set[int]()
        for load in reversed(loads):  # newest first: a late load ends what counts of older ones
            # A later load has overwritten the rows of a mirror; those of a history are versions that stay.
            unneeded = resolved_oids | (overwritten - versioned if load.files is None else set())
            load_tables = {oid: name for oid, name in load.tables if oid in oids and oid not in unneeded}
            overwritten |= load_tables.keys()
            if load.late:
                # A late load has made these tables anew, so they begin with it; older loads do not count.
                resolved_oids |= load_tables.keys()
            if load_tables and load.files is None:
                self.lacking.update(dict.fromkeys(load_tables.keys() & loaded_oids - named, load))
                lost = load_tables.keys() & (loaded_oids if self.skips else named)
                self._skip(lost, BaseStep.not_again(load, [load_tables[oid] for oid in lost], self.context.target.text))
                continue
            needed_loads.append((load, load_tables))
        # Loads between which nothing was applied keep their order: the sort is stable.
        needed_loads.reverse()
        needed_loads.sort(key=lambda needed: needed[0].after)
        base_steps = [
            BaseStep.again(load, self.base_folder, only)
            for load, load_tables in needed_loads
            if (only := frozenset(name for oid, name in load_tables.items() if oid not in self.skipped))
        ]
        if self.base_folder is not None and len(base_steps) > 1:
            raise ConfigError(
                f"the tables have {len(base_steps)} base loads, which lie in {len(base_steps)} folders",
                path=self.context.target.text,
                remedy="Make tables of one load at a time by --table; or bring the files back to where they were",
            )
        return tuple(base_steps)

    def _relation_names(self, state: State) -> tuple[dict[int, set[str]], dict[str, tuple[str, str]]]:
        """Return every name that a relation ever had, by oid, and the schema and the table of each name."""
        names, parts = dict[int, set[str]](), dict[str, tuple[str, str]]()
        table = self.context.target.ledger("runs")
        with self.context.stage("read ledger"):
            if delta.exists(self.context.session, table):
                rows = delta.read(self.context.session, table).where(f"run <= {state.run}")
                for row in rows.selectExpr("inline(relations)").select("oid", "namespace", "name").distinct().collect():
                    name = f"{row.namespace or 'pg_catalog'}.{row.name}"
                    names.setdefault(row.oid, set()).add(name)
                    parts[name] = (row.namespace or "pg_catalog", row.name)
        for entry in state.tables:
            names.setdefault(source_oid(entry.oid), set()).add(entry.source_name)
        for oid, name in () if self.late_load is None else self.late_load.load.tables:
            names.setdefault(oid, set()).add(name)
        return names, parts

    def _related_oids(self, names: Mapping[int, set[str]]) -> set[int]:
        """Return the relations (by oid) that the tables may be made of: all that ever had one of their names.

        The runs find out which of them has a name in the end, and which older rows it keeps.
        """
        named_oids = {oid for oid, relation_names in names.items() if any(map(self.narrowed.wants, relation_names))}
        oids = named_oids - self.skipped.keys()
        if named_oids and not oids:
            raise self.skipped[min(named_oids)]
        if not oids:
            all_names = sorted({name for relation_names in names.values() for name in relation_names})
            suggestions = difflib.get_close_matches((self.narrowed.tables or "").replace("\\", ""), all_names, 3)
            raise ConfigError(
                f"no table of the source was ever called {self.narrowed.tables}",
                path=self.context.target.text,
                remedy="--table is a regular expression over the whole of schema.table; there are "
                + listed(suggestions or all_names),
            )
        while True:
            # The closure: relations that share a name, directly or through others, may have passed rows on.
            shared_names = set().union(*(names[oid] for oid in oids))
            related_oids = {oid for oid, relation_names in names.items() if relation_names & shared_names} - oids
            if not related_oids:
                return oids
            oids |= related_oids

    def _skip_kept(self, names: Mapping[int, Iterable[str]], parts: Mapping[str, tuple[str, str]]) -> None:
        """Skip the relations of a name that passed from one to another if the new one may have kept the old one's rows.

        That depends on whether both changed in one run, and the runs of the side target end elsewhere.
        """
        settings = self.context.settings
        holder_counts = Counter(name for relation_names in names.values() for name in relation_names)
        for name, count in sorted(holder_counts.items()):
            if count < 2 or name not in parts or not self.narrowed.wants(name):  # one holder: nothing has passed
                continue
            if settings.options_of(*parts[name]).on_recreate == "keep":  # with replace the rows do not pass on
                error = TargetError(
                    "the table was dropped and created again, or another one had its name, and on_recreate is keep: "
                    "which of the old rows it has kept hangs on where the target's runs have ended",
                    table=name,
                    path=self.context.target.text,
                    remedy=f"Leave {name} out of --table; or set on_recreate: replace, which makes it without old rows",
                )
                self._skip([oid for oid, relation_names in names.items() if name in relation_names], error)

"""A base load: tables get the rows that the source had at an LSN, before what the captures have of them is applied.

In a history each row is a version that begins at that LSN.  Its time is the greatest commit time of all that was
applied before: no transaction behind the LSN is earlier on the axis.  If nothing was applied, it is 1970, as a stream's
first moments are those of the base.  An existing history goes on: its open versions end, and the rows begin.

The rows are written like captured rows: they are staged as inserts of one relation version, and the same writers bring
them to the tables, one Delta commit each.  The load is written to the ledger before any of its rows is read, and once
more before any table has them.  A load that was killed, or has failed, is finished by the next one, for the same tables
and LSN; until then, nothing else is applied.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from walreplay.decode.announcements import Layouts
from walreplay.decode.change_batch import type_names
from walreplay.decode.walk import Place
from walreplay.delta import statements as delta
from walreplay.delta.statements import sql_schema
from walreplay.errors import CaptureError, ConfigError, TargetError, listed
from walreplay.fold.events import Mode
from walreplay.job.context import RunContext
from walreplay.job.execution import RunTables, buckets_of, table_runs
from walreplay.job.source_check import shared_by, taken_by
from walreplay.job.standing import refuse_older
from walreplay.job.table_check import CheckedTable, TableChecks, highest_of
from walreplay.ledger.state import PLANNED, REBUILDING, Load, State
from walreplay.loading.description import HOW_TO_DESCRIBE, Description, write_description
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS, format_lsn
from walreplay.names import RowKind, output_of, relation_of, source_oid
from walreplay.protocol.framing import Framing
from walreplay.protocol.messages import Relation
from walreplay.report import RunReport, TableReport, timed
from walreplay.session import steps
from walreplay.spark.base_rows import BaseRows, BaseSource
from walreplay.spark.staging import EmptiedAt, Staged, StagedVersion, Staging, VersionSegment
from walreplay.spark.workers.load import COUNTED, LoadTask, count_keys
from walreplay.stream.plan import Plan, Resume
from walreplay.table.plan import Period, TablesPlan, plan_tables
from walreplay.table.registry import OFF, left_at
from walreplay.table.table_run import TableRun, run_of
from walreplay.table.versions import Catalogue

_NO_ROWS: Final = StagedVersion(0, (), moves=False, deletes=False, first=0, last=0)  # for planning before a row is read

# Of a target to which nothing was applied; a load's plan needs a place, and is never stored.
_NOWHERE: Final = Resume("", 0, 0, 0, False, "", 0, Place(Framing.RAW), (), ())


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """What a base load is to bring, under the target's lock.

    Attributes:
        state: the ledger's; None if nothing was ever applied or loaded.
        loaded: the relations whose rows are loaded.
    """

    state: State | None
    source: str
    description: Description
    plan: Plan
    catalogue: Catalogue
    loaded: frozenset[Relation]

    @property
    def applied(self) -> int:
        """The commit LSN up to which captures are applied; -1 for none."""
        return self.plan.upto_lsn

    @property
    def is_displaced(self) -> bool:
        """Whether a held table, or one set aside, lies not at the place of its name, which a load does not change."""
        names = {relation.oid: relation.qualified_name for relation in self.loaded}
        made = [entry for entry in (self.state.tables if self.state else ()) if not entry.is_unmade]
        return any(
            entry.set_aside or names[source_oid(entry.oid)] != entry.source_name
            if source_oid(entry.oid) in names
            else entry.source_name in names.values() and not entry.set_aside
            for entry in made
            if entry.held or (entry.paused and entry.set_aside)
        )


@dataclass
class BaseLoad:
    """Brings tables the rows of one base, as of one LSN.

    Attributes:
        base: where the rows are.
        lsn: the last commit LSN that is among them.
        described: the tables' columns; None if the captures or the base know them.
        source: the captures that the target belongs to, for a new target.
        anew: replace tables that exist, and forget a load that was interrupted.
        only: the tables of the base that are loaded; None for all that the configuration wants.
        top: when versions begin in histories, if that is known; see `Load`.
    """

    context: RunContext
    base: BaseSource
    lsn: int
    described: Description | None
    source: str | None
    anew: bool
    only: frozenset[str] | None = None
    top: int | None = None

    def run(self) -> RunReport:
        """Load into a target to which nothing behind the LSN was applied."""
        with self.context.at_work():
            return self.bring(self.begin(), time.monotonic())

    def begin(self) -> PlannedLoad:
        """Find out what there is to load, and acquire the target's lock."""
        context = self.context
        context.read()
        with context.stage("list"):
            self.base.open()
        state = context.lock()
        source = self._source(state)
        if state is not None and state.phase in (PLANNED, REBUILDING):
            raise TargetError(
                f"run {state.run} was interrupted, and has to be finished first",
                path=context.target.text,
                remedy="Run walreplay apply, and then load again",
            )
        description = self._description(state)
        plan = self._plan(state, description)
        catalogue = Catalogue.of(plan, context.settings, state.tables if state else ())
        context.warnings.extend(catalogue.warnings)
        return PlannedLoad(state, source, description, plan, catalogue, self._loaded_relations(plan, catalogue))

    def bring(self, begun: PlannedLoad, began: float) -> RunReport:
        """Load what was begun: stage the rows, write down that tables get them, bring them there, record the load."""
        interrupted = self._interrupted(begun)
        resumed = interrupted is not None and interrupted.writing
        rows = self.base.rows(begun.loaded, begun.description)  # nothing is read yet
        self.context.warnings.extend(self.base.warnings)
        noted_state, checked = self._write_load(begun, interrupted, rows, resumed=resumed)
        context, load = self.context, noted_state.load
        assert load is not None
        with context.staging() as staging:
            buckets = buckets_of(rows.size)
            staged = self._stage(begun, rows, staging, buckets, load.top)
            steps.reached("decoded")
            tables = self._tables(begun, staged)
            commit = delta.CommitId(noted_state.ledger, noted_state.run, noted_state.run_id)
            with context.stage("check"):
                runs = table_runs(context, tables, checked, staged, buckets, commit, resumed=resumed)
                self._check_unique(staging, runs)  # by Spark, on staged rows: no table has any yet
                # From now on, tables may have the load's commit.
                state = context.ledger.write(replace(noted_state, load=replace(load, writing=True)))
            steps.reached("plan written")
            runs = [_ending_versions(table_run, self.lsn, load.top) for table_run in runs]
            reports = RunTables(context).apply(runs, staging, [lambda: None])
            return self._record(state, tables, reports, begun.plan, rows, resumed=resumed, began=began)

    def _source(self, state: State | None) -> str:
        """Return the source that the target is made of."""
        if state is not None and self.source is not None:
            remedy = "Use another target, or leave out --captures"
            state.check_source(self.source, self.context.target.text, remedy)
        source = self.source if state is None or self.source is not None else state.source
        if source is None:
            raise ConfigError(
                "a new target has to know which captures it belongs to",
                path=self.context.target.text,
                remedy="Give --captures, the folder where they lie or will lie, or set source in the configuration",
            )
        return source

    def _description(self, state: State | None) -> Description:
        described = self.described or self.base.described()
        resume = None if state is None else state.resume
        if described is None:
            if resume is None:
                problem = "nothing says what the tables' columns are"
                raise ConfigError(problem, path=self.context.target.text, remedy=HOW_TO_DESCRIBE)
            # Without a description: what the captures have announced up to where they are applied.
            described = replace(Description.of(resume.relations, resume.types), by_captures=True)
        # The rows have the labels of enums as they are by now.
        layouts = Layouts(layouts=() if resume is None else resume.layouts)
        relations = (
            layouts.labelled(layouts.succeeding(relation)) for relation in chain(*described.relations.values())
        )
        return replace(described, relations=Description.of(relations, ()).relations)

    def _plan(self, state: State | None, description: Description) -> Plan:
        """Return a plan of no transactions, which names the relations whose rows are there."""
        names = self.base.tables(description)
        chosen_names = names if self.only is None else names & self.only
        relations = tuple(description.relation(name) for name in sorted(chosen_names))
        resume = state.resume if state is not None and state.resume is not None else _NOWHERE
        high = resume.place.high_lsn  # a load changes nothing of where the captures are
        return Plan(
            files=(),
            versions=relations,
            type_versions=description.types,
            after_lsn=high,
            upto_lsn=high,
            upto_commit_time=resume.place.high_commit_time,
            truncates=(),
            resume=resume,
            transactions=0,
            resent=0,
            announced=relations,
            before=(),
            types=description.types,
        )

    def _loaded_relations(self, plan: Plan, catalogue: Catalogue) -> frozenset[Relation]:
        """Return the relations that the configuration wants."""
        assigned = catalogue.assignments.items()
        mirrored = {relation for relation, to in assigned if any(output.is_whole for output in to.tables)}
        chosen = frozenset(relation for relation in plan.announced if relation in mirrored)
        left_out = sorted({relation.qualified_name for relation in plan.announced if relation not in mirrored})
        if not chosen:
            raise ConfigError(
                "the configuration wants none of the tables", path=self.base.origin, remedy="Check --config"
            )
        if left_out:
            self.context.warnings.append(f"the configuration leaves out {', '.join(left_out)}: not loaded")
        return chosen

    def _interrupted(self, begun: PlannedLoad) -> Load | None:
        """Return the interrupted load that this one finishes; None if there is none, or this one takes its place."""
        state, context = begun.state, self.context
        if state is None or state.load is None:
            return None
        earlier, oids = state.load, {relation.oid for relation in begun.loaded}
        if earlier.at_lsn == self.lsn and oids == earlier.oids:  # the same load: finish it
            context.warnings.append(f"load {state.run} was interrupted; it was finished")
            return earlier
        # Tables of the interrupted load that this one does not bring might keep its rows.
        missing = [name for oid, name in earlier.tables if oid not in oids]
        if not earlier.writing and not missing:
            context.warnings.append(
                f"load {state.run}, as of LSN {format_lsn(earlier.at_lsn)}, was interrupted before any table had its "
                "rows; this one took its place"
            )
            return None
        has_histories = any(begun.catalogue.assignments[relation].of(RowKind.VERSION) for relation in begun.loaded)
        if self.lsn < earlier.at_lsn and self.anew and earlier.writing and has_histories:
            raise TargetError(
                f"a load as of LSN {format_lsn(earlier.at_lsn)} was interrupted, and histories may have its rows",
                path=context.target.text,
                remedy="Load as of that LSN or a later one",
            )
        if not self.anew or missing:
            instead = (
                "with --replace, all of them as of another one" if earlier.writing else "load all of them together"
            )
            lacks = f", and these rows have none of {listed(missing)}" if missing else ""
            raise TargetError(
                f"a load of {earlier.names} as of LSN {format_lsn(earlier.at_lsn)} was interrupted{lacks}",
                path=context.target.text,
                remedy=f"Load these tables as of that LSN, which finishes it; or, {instead}"
                + ("" if earlier.writing else "; or forget it first: walreplay load --replace, without rows"),
            )
        return None

    def give_up_interrupted(self, begun: PlannedLoad) -> None:
        """Forget an interrupted load, which a rebuild cannot finish; refuse to if tables may have its rows."""
        self._interrupted(begun)
        state = begun.state
        if state is None or state.load is None:
            return
        if state.load.writing:
            raise self.context.ledger.interrupted(state.load)
        self.context.ledger.write(state.ended(state.tables))

    def _write_load(
        self, begun: PlannedLoad, interrupted: Load | None, rows: BaseRows, *, resumed: bool
    ) -> tuple[State, Sequence[CheckedTable]]:
        """Check the tables, and write the load down before a row of it is read; return the ledger's state, too."""
        context, state = self.context, begun.state
        unread = {  # stands for staged rows before they are read: each table has a version, without rows
            version.table: Staged({version.number: _NO_ROWS}, (VersionSegment(0, version.number),))
            for relation in begun.loaded
            for version in begun.catalogue.versions[relation]
            if version.output.is_whole
        }
        tables = self._tables(begun, unread)
        with context.stage("check"):
            self._check_tables(tables, resumed=resumed)
            checked = TableChecks(context, accepts=self.anew).check(tables, state, resumed=resumed)
            number = self._number(state, checked, interrupted)
            if resumed:
                assert state is not None
                return state, checked
            with context.sibling_ledgers.apart(taken_by(tables), shared_by(tables)) as places:
                load = self.load(begun) if interrupted is None else replace(self.load(begun), id=interrupted.id)
                sizes = {"files": rows.files, "bytes": rows.size or 0}
                noted_state = context.ledger.begin(state, number, places, load=load, source=begun.source, **sizes)
        steps.reached("load written down")
        return noted_state, checked

    def load(self, begun: PlannedLoad) -> Load:
        """Return the load, as the ledger is to know it."""
        names = tuple(sorted((item.oid, item.qualified_name) for item in begun.loaded))
        files = self.base.files(write_description(begun.loaded, begun.description))
        place, top, last = self.base.place, self.top, begun.plan.resume.top_time
        if top is None:  # versions begin with the last commit, or in 1970
            top = 0 if last is None else last + POSTGRES_EPOCH_UNIX_MICROS
        return Load(str(uuid.uuid4()), self.lsn, names, place, begun.applied, top, files)

    def _tables(self, begun: PlannedLoad, staged: Mapping[int, Staged]) -> TablesPlan:
        catalogue, entries = begun.catalogue, begun.state.tables if begun.state is not None else ()
        oids = {relation.oid for relation in begun.loaded}
        # All rows of a table that runs have left out come anew, but those of a change log.
        left_out = {entry.oid for entry in entries if entry.paused and source_oid(entry.oid) in oids}
        entries = tuple(
            replace(entry, paused="" if output_of(entry.oid).is_whole else OFF) if entry.oid in left_out else entry
            for entry in entries
            if not (entry.oid in left_out and entry.is_unmade)
        )
        uses = [(number, None) for number, relation in enumerate(catalogue.relations) if relation in begun.loaded]
        # Tables that exist are made anew, as by a truncate: their oids are planned as truncated ones.
        truncated = tuple(oids & {entry.oid for entry in entries})
        period = Period(begun.applied, begun.applied)
        settings, target = self.context.settings, self.context.target
        return plan_tables(catalogue, staged, uses, truncated, entries, settings, target, period)

    def _stage(self, begun: PlannedLoad, rows: BaseRows, staging: Staging, buckets: int, top: int) -> dict[int, Staged]:
        context = self.context
        assignments = begun.catalogue.assignments
        task = LoadTask(
            relations={relation: assignments[relation] for relation in begun.loaded},
            names=type_names({type_.oid: type_ for type_ in begun.plan.types}),
            settings=context.settings.of_tasks,
            lsn=self.lsn,
            buckets=buckets,
            top=top,
            by_captures=begun.description.by_captures,
        )
        with context.stage("decode", rows.parts), self.base.errors():
            context.ledger.check_lock()
            works, values = rows.works(task)
            staged = staging.take(works[0][0].sparkSession, works, values, rows.tasks)
            places = ((relation.oid, task.outputs(relation)[0].to) for relation in task.relations)
            self.base.check({oid: staged[to.table].versions[to.relation].rows for oid, to in places})
            return staged

    def _check_tables(self, tables: TablesPlan, *, resumed: bool) -> None:
        """Refuse tables that have rows of captures already, and names that others have."""
        if tables.placement.moves:
            move = tables.placement.moves[0]
            raise TargetError(
                f"a table of the target has to move first, as its name in the source has changed: {move.source.text} "
                f"to {move.destination.text}",
                table=move.name,
                remedy="Apply what has been captured up to the rename first, with a row that was written since: if "
                "there is none, write one in the source; or load into a new target",
            )
        for table in tables.tables:
            before, is_history = table.before, table.metadata.rows is RowKind.VERSION
            if before is None or resumed:  # resumed: it was checked before
                continue
            problem, remedy = "the table is there already", "To have it made anew from these rows, give --replace"
            if is_history:
                remedy = "To have its open versions end, and these rows begin, give --replace"
            if self.anew:
                if not is_history or before.rows_at <= self.lsn:
                    continue
                problem = f"the history has rows of a load as of a later LSN, {format_lsn(before.rows_at)}"
                remedy = "Load rows as of that LSN or a later one; or apply captures beyond the LSN of these rows first"
            raise TargetError(problem, table=table.name, path=table.table.text, remedy=remedy)

    def _check_unique(self, staging: Staging, runs: Sequence[TableRun]) -> None:
        """Refuse rows that come twice, before any table has them.

        Raises:
            CaptureError: naming the table, and how many there are.
        """
        mirrors = {run.plan.oid for run in runs}
        for run in runs:
            if relation_of(run.plan.oid) in mirrors - {run.plan.oid}:
                # It gets the same rows.
                continue
            (merge,) = run.merges  # a load is one version of the relation
            if merge.identity.mode is not Mode.KEYED:  # rows without a key may be equal
                continue
            rows = merge.events(self.context.session, staging)
            if rows is None:
                continue
            counts = rows.mapInArrow(partial(count_keys, task=merge.fold_task), sql_schema(COUNTED)).collect()
            twice = merge.epoch.rows - sum(row.keys for row in counts)
            if twice:
                raise CaptureError(
                    f"{twice:,} of the {merge.epoch.rows:,} rows have a key that another one has, too",
                    table=run.plan.name,
                    remedy="Nothing was loaded. Perhaps a file is there twice; or the rows were not all read in one "
                    "snapshot; or the key in the configuration is none",
                )

    def _number(self, state: State | None, checked: Sequence[CheckedTable], interrupted: Load | None) -> int:
        """Return the load's number; refuse a ledger that is older than its tables."""
        last_run = state.run if state is not None else 0
        if interrupted is not None:
            return last_run
        # Of the interrupted load, and of a run that held a table it was half applied to, commits are ahead, and stay.
        ahead = (commit for check in checked if check.standing is not None for commit in check.standing.ahead)
        is_ahead = any(run_of(commit.number) > last_run for commit in ahead)
        refuse_older(self.context, last_run, "load", is_ahead=is_ahead)
        return max(last_run, highest_of(checked)) + 1

    def _record(
        self,
        state: State,
        tables: TablesPlan,
        reports: Sequence[TableReport],
        plan: Plan,
        rows: BaseRows,
        *,
        resumed: bool,
        began: float,
    ) -> RunReport:
        context = self.context
        assert state.load is not None
        untruncated = (replace(table, truncated=False) for table in reports)
        report = replace(
            context.report(state.run, "loaded", self.base.origin, (plan.upto_lsn, plan.upto_commit_time), untruncated),
            files=rows.files,
            capture_bytes=rows.size or 0,
            changes=tables.changes,
            writer=context.writer.kind,
        )
        loaded = {table.oid for table in tables.tables}
        with context.recording():
            versions = {table.oid: table.version for table in reports if table.oid is not None}
            entries = [
                replace(entry, base_lsn=self.lsn + 1) if entry.oid in loaded else entry
                for entry in left_at(tables.entries, versions, state.load.id)
            ]
            context.ledger.record(state, report, entries, plan.announced, resumed=resumed)
        steps.reached("run recorded")
        return timed(report, began, context.stages)


def _ending_versions(run: TableRun, lsn: int, time: int) -> TableRun:
    """Have a history's open versions end where the load's rows begin."""
    if run.plan.metadata.rows is not RowKind.VERSION or run.plan.before is None:
        return run
    # In front of all rows of the load, which have the same LSN.
    return replace(run, emptied=(EmptiedAt(run.plan.epochs[0].start, lsn, -1, time),))

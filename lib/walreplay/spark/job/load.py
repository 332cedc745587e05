"""A base load: tables get the rows that the source had at an LSN, before what the captures have of them is applied.

In a history each row is a version that begins at that LSN.  What begins it in time is the greatest commit time of all
that was applied before: no transaction behind the LSN is earlier on the axis.  If nothing was, it is 1970, as a
stream's first moments are those of the base.  A history that is there already goes on: its open versions end, and the
rows begin.

The rows go the way of captures' rows: they are staged as inserts of one relation version, and the same writers bring
them to the tables, one Delta commit each.  What is loaded is written to the ledger before any table has it.  A load
that was killed is finished by the next one, for the same tables and LSN; until then, nothing else is applied.
"""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walreplay.decode.announcements import Layouts
from walreplay.decode.change_batch import type_names
from walreplay.decode.place import Place
from walreplay.errors import ConfigError, TargetError
from walreplay.loading.address import SCHEME, read_address
from walreplay.loading.description import HOW_TO_DESCRIBE, Description, read_description
from walreplay.loading.formats import CopyOptions, kind_of
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS, format_lsn, to_datetime
from walreplay.progress import Progress
from walreplay.protocol.framing import Framing
from walreplay.protocol.messages import Relation
from walreplay.report import RunReport, TableReport
from walreplay.settings import Settings, make_settings
from walreplay.spark.captures.base import BaseRows, BaseSource
from walreplay.spark.captures.base_database import DatabaseOfBase
from walreplay.spark.captures.base_files import FilesOfBase
from walreplay.spark.captures.base_frame import FrameOfBase
from walreplay.spark.captures.files import root_of
from walreplay.spark.checks.places import check_places
from walreplay.spark.checks.setting_back import highest_of, highest_runs
from walreplay.spark.checks.siblings import shared_by, taken_by
from walreplay.spark.checks.tables import Found
from walreplay.spark.checks.unique import check_unique
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.storage import catalog_errors
from walreplay.spark.delta.target import Target
from walreplay.spark.job.applying import table_checks, table_runs
from walreplay.spark.job.context import RunContext
from walreplay.spark.job.moments import last_lsn_of
from walreplay.spark.job.reports import timed
from walreplay.spark.job.shares import buckets_of
from walreplay.spark.job.tables import RunTables
from walreplay.spark.ledger.ledger import LOADING, PLANNED, REBUILDING, Load, State
from walreplay.spark.planning.plan import RunPlan, plan_tables
from walreplay.spark.planning.registry import left_at
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.planning.versions import Catalogue
from walreplay.spark.session import steps
from walreplay.spark.session.failures import spark_errors
from walreplay.spark.staging.base import EmptiedAt, Staged, Staging
from walreplay.spark.workers.load import LoadTask
from walreplay.transactions.plan import Plan, Resume

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_OF_SPARK: Final = "a DataFrame"
"""What rows are called that Spark has."""

_NOWHERE: Final = Resume("", 0, 0, 0, False, "", 0, Place(Framing.RAW), (), ())
"""Where a run goes on that nothing was applied before: a load's plan is never stored, and needs a place."""


def load(
    spark: SparkSession,
    source: str | os.PathLike[str] | DataFrame,
    target: str | os.PathLike[str],
    at_lsn: int | str | None = None,
    *,
    consistent_point: int | str | None = None,
    describe: str | os.PathLike[str] | None = None,
    table: str | None = None,
    publication: str | None = None,
    snapshot: str | None = None,
    connections: int | None = None,
    captures: str | os.PathLike[str] | None = None,
    file_format: str | None = None,
    delimiter: str | None = None,
    null: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    header: bool = False,
    replace: bool = False,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Bring tables the rows that they had before the captures began.

    Args:
        source: the folder (or file) of what COPY has written of the tables, named by table; or a database, as
            ``jdbc:postgresql://host/database`` (its user and password are those of PGUSER, PGPASSWORD and PGPASSFILE);
            or a DataFrame with the rows of one table: columns by the table's names, each of strings that hold
            PostgreSQL's text, or of a type that converts exactly.
        target: the folder of the Delta tables, a catalog, or ``catalog.schema``.
        at_lsn: the last commit LSN that is among the rows: those at or below it are, and no others.
        consistent_point: in its place, the LSN of a slot's exported snapshot: commit LSNs below it are among the rows.
        describe: a file that the script ``describe.sql`` has written; without it, the tables have to be known by their
            captures, or their rows read from a database.
        table: the one table (``schema.table``) that all files or rows are of, or that is read from a database.
        publication: of a database: whose tables are read.
        snapshot: of a database: the name of a snapshot that is exported for the time of the load.
        connections: of a database: how many sessions read at a time (by default 8).
        captures: where the captures lie or will lie; for a new target, if the configuration does not say it.
        file_format: text, csv or binary; by default each file tells it.
        delimiter, null, quote, escape, header: what COPY was told, where that is not its default.
        replace: tables that have rows already are made anew, and a load that was interrupted is given up.
        config: a YAML file, the same as a mapping, or `Settings`.
        progress: told how far the run is.

    Raises:
        WalReplayError: what stopped it.  No table is touched when the files are at fault.
    """
    chosen = make_settings(config)
    place = Target.parse(str(target)).of_source(chosen.ledger_name)
    options = CopyOptions(kind_of(file_format), delimiter, null, quote, escape, header)
    lsn = last_lsn_of(at_lsn, consistent_point)
    described = None if describe is None else _read_description(describe)
    with spark_errors(path=place.text):
        if isinstance(source, (str, os.PathLike)) and not str(source).startswith(SCHEME):
            check_places(str(source), place)
        context = RunContext.of(spark, place, chosen, progress, loads=True)
        known = chosen.captures_uri if captures is None else str(captures)
        named = chosen.source or (None if known is None else root_of(known))
        asked = publication, snapshot, connections
        base: BaseSource
        if isinstance(source, str) and source.startswith(SCHEME):
            base = DatabaseOfBase(
                context.own,
                read_address(source),
                lsn,
                publication=publication,
                table=table,
                snapshot=snapshot,
                connections=connections,
            )
        elif any(one is not None for one in asked):
            raise ConfigError(
                "a publication, a snapshot and connections are a database's",
                remedy="Give --from jdbc:postgresql://host/database, or leave them out",
            )
        elif isinstance(source, (str, os.PathLike)):
            base = FilesOfBase(context.own, str(source), options, table)
        else:
            base = FrameOfBase(source, ROWS_OF_SPARK, table)
        return _Load(context, base, lsn, described, named, anew=replace).run()


def _read_description(path: str | os.PathLike[str]) -> Description:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"the description cannot be read: {why}", path=str(path), remedy="Check --describe") from None
    return read_description(text, str(path))


@dataclass
class _Load:
    """One call of `load`."""

    context: RunContext
    base: BaseSource
    lsn: int
    described: Description | None
    source: str | None
    anew: bool

    def run(self) -> RunReport:
        began = time.monotonic()
        with self.context.at_work():
            return self._run(began)

    def _run(self, began: float) -> RunReport:
        context = self.context
        with context.stage("read ledger"), catalog_errors(context.target):
            state = context.ledger.read()
        with context.stage("list"):
            self.base.open()
        state = context.lock()
        source = self._source(state)
        self._check_order(state)
        description = self._description(state)
        plan = self._plan(state, description)
        catalogue = Catalogue.of(plan, context.settings, state.tables if state else ())
        context.warnings.extend(catalogue.warnings)
        loaded = self._chosen(plan, catalogue)
        rows = self.base.rows(loaded, description)
        context.warnings.extend(self.base.warnings)
        has_histories = any(catalogue.assignments[relation].history for relation in loaded)
        resumed = self._resumes(state, loaded, has_histories=has_histories)
        with context.staging() as staging:
            return self._bring(plan, catalogue, loaded, rows, staging, state, source, resumed=resumed, began=began)

    def _source(self, state: State | None) -> str:
        """Give the source that the target is made of."""
        if state is not None and self.source is not None and state.source != self.source:
            raise TargetError(
                f"the target was made from the source {state.source!r}, not {self.source!r}",
                path=self.context.target.text,
                remedy="Use another target, or leave out --captures",
            )
        found = state.source if state is not None else self.source
        if found is None:
            raise ConfigError(
                "a new target has to know which captures it belongs to",
                path=self.context.target.text,
                remedy="Give --captures, the folder where they lie or will lie, or set source in the configuration",
            )
        return found

    def _check_order(self, state: State | None) -> None:
        """Refuse rows that are older than what was applied: the changes in between would not come again."""
        if state is not None and state.phase in (PLANNED, REBUILDING):
            raise TargetError(
                f"run {state.run} was interrupted, and has to be finished first",
                path=self.context.target.text,
                remedy="Run walreplay apply, and then load again",
            )
        applied = -1 if state is None or state.resume is None else state.resume.place.high_lsn
        if self.lsn < applied:
            raise ConfigError(
                f"the rows are as of LSN {format_lsn(self.lsn)}, and everything up to {format_lsn(applied)} is "
                "applied: the tables' changes in between would be missing",
                path=self.context.target.text,
                remedy="Copy the tables again, as they are now, or load into a new target",
            )

    def _description(self, state: State | None) -> Description:
        described = self.described or self.base.described()
        resume = None if state is None else state.resume
        if described is None:
            if resume is None:
                raise ConfigError(
                    "nothing says what the tables' columns are",
                    path=self.context.target.text,
                    remedy=HOW_TO_DESCRIBE,
                )
            described = Description.of(resume.relations, resume.types)
        # The rows have the labels of enums as they are by now.
        layouts = Layouts(known=() if resume is None else resume.layouts)
        relations = (layouts.labelled(one) for same in described.relations.values() for one in same)
        return Description.of(relations, described.types, described.rows)

    def _plan(self, state: State | None, description: Description) -> Plan:
        """Give a plan of no transactions, which names the relations whose rows are there."""
        relations = tuple(description.relation(name) for name in sorted(self.base.tables(description)))
        resume = state.resume if state is not None and state.resume is not None else _NOWHERE
        high = resume.place.high_lsn
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

    def _chosen(self, plan: Plan, catalogue: Catalogue) -> frozenset[Relation]:
        """Give the relations that the configuration wants."""
        mirrored = {relation for relation, to in catalogue.assignments.items() if to.mirror or to.history}
        wanted = frozenset(relation for relation in plan.announced if relation in mirrored)
        left = sorted({relation.qualified_name for relation in plan.announced if relation not in mirrored})
        if not wanted:
            raise ConfigError("the configuration wants none of the tables", path=self.origin, remedy="Check --config")
        if left:
            self.context.warnings.append(f"the configuration leaves out {', '.join(left)}: not loaded")
        return wanted

    def _resumes(self, state: State | None, loaded: Collection[Relation], *, has_histories: bool) -> bool:
        """Say whether the load goes on with one that was interrupted."""
        if state is None or state.load is None:
            return False
        oids = {relation.oid for relation in loaded}
        before = state.load
        if before.at_lsn == self.lsn and oids == {oid for oid, _ in before.tables}:
            self.context.warnings.append(f"load {state.run} was interrupted; it was finished")
            return True
        if self.lsn < before.at_lsn and self.anew and has_histories:
            raise TargetError(
                f"a load as of LSN {format_lsn(before.at_lsn)} was interrupted, and histories may have its rows",
                path=self.context.target.text,
                remedy="Load as of that LSN or a later one",
            )
        missing = [name for oid, name in before.tables if oid not in oids]
        if not self.anew or missing:
            raise TargetError(
                f"a load of {', '.join(name for _, name in before.tables)} as of LSN {format_lsn(before.at_lsn)} was "
                "interrupted",
                path=self.context.target.text,
                remedy="Load these tables as of that LSN, which finishes it; or, with --replace, all of them as of "
                "another one",
            )
        return False

    def _bring(
        self,
        plan: Plan,
        catalogue: Catalogue,
        loaded: Collection[Relation],
        rows: BaseRows,
        staging: Staging,
        state: State | None,
        source: str,
        *,
        resumed: bool,
        began: float,
    ) -> RunReport:
        """Stage the rows, write down what is loaded, bring it to the tables, record it."""
        context = self.context
        entries = state.tables if state is not None else ()
        buckets = buckets_of(rows.size, context.settings.bucket_bytes)
        staged = self._stage(plan, catalogue, loaded, rows, staging, buckets)
        steps.reached("decoded")
        uses = [number for number, relation in enumerate(catalogue.relations) if relation in loaded]
        # What is there already is made anew, as by a truncate.
        anew = tuple({relation.oid for relation in loaded} & {entry.oid for entry in entries})
        tables = plan_tables(catalogue, staged, uses, anew, entries, context.settings, context.target)
        with context.stage("check"):
            self._check_tables(tables, resumed=resumed)
            found = table_checks(context, accepts=self.anew).check(tables, state, resumed=resumed)
            number = self._number(state, found, resumed=resumed)
            # Their commit is given once the load has its number.
            runs = table_runs(context, tables, found, staged, buckets, delta.CommitId("", 0), resumed=resumed)
            check_unique(context.own, staging, runs)
            runs = [_ending(one, self.lsn, _time_of(plan)) for one in runs]
            if state is not None and resumed:
                begun = state
            else:
                names = tuple(sorted((item.oid, item.qualified_name) for item in loaded))
                ledger_load = Load(str(uuid.uuid4()), self.lsn, names, self.base.place)
                with context.apart(taken_by(tables), shared_by(tables)) as places:
                    begun = context.ledger.write_load(
                        state, ledger_load, number, source=source, files=rows.files, size=rows.size or 0, places=places
                    )
        steps.reached("plan written")
        commit = delta.CommitId(begun.ledger, begun.run, begun.run_id)
        runs = [dataclasses.replace(one, commit=commit) for one in runs]
        reports = RunTables(context).apply(runs, staging, [lambda: None])
        return self._record(begun, tables, reports, plan, rows, resumed=resumed, began=began)

    def _stage(
        self,
        plan: Plan,
        catalogue: Catalogue,
        loaded: Collection[Relation],
        rows: BaseRows,
        staging: Staging,
        buckets: int,
    ) -> dict[int, Staged]:
        context = self.context
        assignments = catalogue.assignments
        task = LoadTask(
            relations={relation: assignments[relation] for relation in loaded},
            names=type_names({type_.oid: type_ for type_ in plan.types}),
            settings=context.settings.of_tasks,
            lsn=self.lsn,
            buckets=buckets,
            top=_time_of(plan),
        )
        with context.stage("decode", rows.parts), self.base.errors():
            context.ledger.check_lock()
            works, values = rows.works(task)
            staged = staging.take(works[0][0].sparkSession, works, values, rows.tasks)
            self.base.check(_counted(staged, task))
            return staged

    def _check_tables(self, tables: RunPlan, *, resumed: bool) -> None:
        """Refuse tables that have rows of captures already, and names that others have."""
        if tables.placement.moves:
            raise TargetError(
                "a table of the target has the place of another one's name",
                table=tables.placement.moves[0].name,
                remedy="Apply what has been captured up to the rename first; or load into a new target",
            )
        for table in tables.tables:
            before = table.before
            if before is None or resumed or self.anew:
                continue
            raise TargetError(
                "the table is there already",
                table=table.name,
                path=table.table.text,
                remedy="To have it made anew from these rows, give --replace"
                if table.metadata.history is None
                else "To have its open versions end, and these rows begin, give --replace",
            )

    def _number(self, state: State | None, found: Sequence[Found], *, resumed: bool) -> int:
        """Give the load's number; refuse a ledger that is older than its tables."""
        context = self.context
        known = state.run if state is not None else 0
        if resumed:
            return known
        given_up = state is not None and state.phase == LOADING
        recorded = highest_runs(context.own, context.target, context.ledger.id, context.at_once)
        highest = highest_of(recorded, ())
        ahead = any(there.standing is not None and there.standing.ahead for there in found)
        if highest > known or (ahead and not given_up):
            raise TargetError(
                "the tables are newer than the ledger",
                path=context.target.text,
                remedy="Bring back the ledger as it was, or run walreplay apply, which sets the tables back; then load",
            )
        return known + 1

    @property
    def origin(self) -> str:
        """Where the rows are from."""
        return self.base.origin

    def _record(
        self,
        state: State,
        tables: RunPlan,
        reports: Sequence[TableReport],
        plan: Plan,
        rows: BaseRows,
        *,
        resumed: bool,
        began: float,
    ) -> RunReport:
        context = self.context
        high = plan.upto_lsn
        assert state.load is not None
        report = RunReport(
            run=state.run,
            status="loaded",
            captures=self.origin,
            target=context.target.text,
            files=rows.files,
            capture_bytes=rows.size or 0,
            transactions=0,
            changes=tables.changes,
            applied_lsn=high if high >= 0 else None,
            applied_commit_ts=to_datetime(plan.upto_commit_time) if high >= 0 else None,
            tables=tuple(dataclasses.replace(one, truncated=False) for one in reports),
            warnings=tuple(context.warnings),
            seconds=0.0,
            stages=context.stages,
            writer=context.writer.way,
        )
        loaded = {table.oid for table in tables.tables}
        with context.recording():
            left = {one.oid: one.version for one in reports if one.oid is not None}
            entries = [
                dataclasses.replace(entry, base_lsn=self.lsn + 1) if entry.oid in loaded else entry
                for entry in left_at(tables.entries, left, state.load.id)
            ]
            context.ledger.record_load(state, report, entries, plan.announced, resumed=resumed)
        steps.reached("run recorded")
        return timed(report, began, context.stages)


def _counted(staged: Mapping[int, Staged], task: LoadTask) -> dict[int, int]:
    """Count the staged rows of each relation, by its oid."""
    places = ((relation.oid, task.outputs(relation)[0].assignment) for relation in task.relations)
    return {oid: staged[to.table].versions[to.relation].rows for oid, to in places}


def _time_of(plan: Plan) -> int:
    """Give the time on the axis that versions of loaded rows begin at."""
    top = plan.resume.top_time
    return 0 if top is None else top + POSTGRES_EPOCH_UNIX_MICROS


def _ending(run: TableRun, lsn: int, time: int) -> TableRun:
    """Have a history's open versions end where the load's rows begin."""
    if run.plan.metadata.history is None or run.plan.before is None:
        return run
    # In front of all rows of the load, which have the same LSN.
    return dataclasses.replace(run, emptied=(EmptiedAt(run.plan.epochs[0].start, lsn, -1, time),))


__all__ = ["load"]

"""Apply a plan: decode, plan the tables, write the plan down, apply it table by table, record it.

Each phase gives a value that the next one takes: `Work` -> `Decoded` -> `Prepared` -> reports -> the ledger's state.
A run that was interrupted comes in with the plan that it has written down, and goes the same way.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS, format_lsn, to_datetime
from walreplay.outputs import source_oid
from walreplay.report import RunReport, TableReport
from walreplay.sink.axis import NO_AXIS, NO_TIME, Axis
from walreplay.spark.checks.siblings import shared_by, taken_by
from walreplay.spark.checks.tables import Found, TableChecks
from walreplay.spark.delta import statements as delta
from walreplay.spark.job.context import RunContext
from walreplay.spark.job.reports import moved
from walreplay.spark.job.shares import buckets_of, tasks_of
from walreplay.spark.job.tables import RunTables
from walreplay.spark.ledger.ledger import run_id
from walreplay.spark.ledger.state import State
from walreplay.spark.ledger.transactions import History
from walreplay.spark.planning.placement import Placement
from walreplay.spark.planning.plan import RunPlan, plan_tables
from walreplay.spark.planning.registry import MirrorEntry, left_at
from walreplay.spark.planning.same_server import check_followed, is_in_doubt, warnings_of
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.planning.versions import Catalogue
from walreplay.spark.session import steps
from walreplay.spark.staging.base import Staged, Staging
from walreplay.spark.workers.decode import DecodeTask
from walreplay.spark.writing.missing_rows import missing_warnings
from walreplay.transactions.plan import Plan
from walreplay.visible import listed


@dataclass(frozen=True)
class Work:
    """What a run has to apply.

    Attributes:
        size: bytes of the files that the plan reads.
        before: the ledger's state, of an interrupted run its own.
        begin: gives the run's state, in which the plan stands written under its number, with the places that it takes
            (`State.places`); called once the files have proved to be decodable.
        resumed: the run was begun before; some tables may have its commit.
    """

    plan: Plan
    size: int
    before: State | None
    begin: Callable[[Plan, int, tuple[str, ...]], State]
    resumed: bool = False

    @property
    def entries(self) -> tuple[MirrorEntry, ...]:
        """What the ledger knows of the tables."""
        return self.before.tables if self.before is not None else ()


@dataclass(frozen=True)
class Decoded:
    """A plan's rows, staged.

    Attributes:
        plan: what is open in it is only what did not end in another way.
        staged: what each table has, by its number.
        truncates: the last truncate of each relation (by oid), as commit LSN and ordinal.
        axis: the time of histories.
    """

    plan: Plan
    catalogue: Catalogue
    staged: Mapping[int, Staged]
    truncates: Mapping[int, tuple[int, int]]
    history: History
    axis: Axis


@dataclass(frozen=True)
class Prepared:
    """The plan is written down, and the tables are in their places.

    Attributes:
        state: the ledger's, with the plan in it.
        copied: the versions of tables that were copied to their places, by oid.
    """

    plan: Plan
    tables: RunPlan
    state: State
    runs: Sequence[TableRun]
    copied: Mapping[int, int | None]


@dataclass
class Applying:
    """The phases of one run.

    Args:
        captures: where they lie, for the report.
        staging: where the run's events are kept.
        told: how many of the call's warnings are those of runs before this one.
    """

    run: RunContext
    captures: str
    staging: Staging
    told: int = 0

    def apply(self, work: Work) -> tuple[State, RunReport]:
        """Apply a plan; give the ledger's state behind it, and the run's report, but for its time."""
        self.run.warnings.extend(work.plan.warnings)
        catalogue = Catalogue.of(work.plan, self.run.settings, work.entries)
        self.run.warnings.extend(catalogue.warnings)
        try:
            decoded = self._decode(work, catalogue)
            prepared = self._prepare(work, decoded)
            reports = self._write(work, decoded, prepared)
        finally:
            self.run.clear(self.staging)
        return self._record(work, prepared, reports)

    def _decode(self, work: Work, catalogue: Catalogue) -> Decoded:
        """Decode the plan's files to staged events, and compare what has come again with what is known."""
        plan = work.plan
        skips_truncates = self.run.settings.skips("t")
        truncates = {} if skips_truncates else {item.oid: (item.lsn, item.ordinal) for item in plan.truncates}
        self.run.ledger.check_lock()
        staged = self._stage(work, catalogue, truncates)
        steps.reached("decoded")
        history = History(self.run.own, self.run.target, plan, self.staging, self.run.writer)
        with self.run.stage("check"):
            self.run.warnings.extend(history.check_copies())
            plan = _without_ended(plan, history)
        axis = _axis(plan, self.staging)
        plan = replace(plan, resume=replace(plan.resume, top_time=_since_2000(axis.end)))
        return Decoded(plan, catalogue, staged, truncates, history, axis)

    def _stage(self, work: Work, catalogue: Catalogue, truncates: Mapping[int, tuple[int, int]]) -> dict[int, Staged]:
        plan = work.plan
        files = {file.path: file for file in plan.files if file.steps}
        if not files:
            return {}
        with self.run.stage("decode"):
            task = DecodeTask(
                files=files,
                versions=plan.versions,
                types=plan.type_versions,
                relations=catalogue.assignments,
                truncates=truncates,
                settings=self.run.settings.of_tasks,
                buckets=buckets_of(work.size),
                layouts=plan.layouts,
                announcements=plan.announcements,
            )
            return self.staging.decode(self.run.own, task)

    def _prepare(self, work: Work, decoded: Decoded) -> Prepared:
        """Plan the tables, check them, write the plan down, and bring tables to their places."""
        run, plan = self.run, decoded.plan
        tables = plan_tables(
            decoded.catalogue,
            decoded.staged,
            self.staging.uses,
            tuple(decoded.truncates),
            work.entries,
            run.settings,
            run.target,
        )
        run.warnings.extend(tables.warnings)
        with run.stage("check"):
            self._check_server(tables.placement, work, decoded.history)
        with run.stage("plan"), run.apart(taken_by(tables), shared_by(tables)) as places:
            checks = table_checks(run, accepts=run.settings.accept_changed_tables)
            found = checks.check(tables, work.before, resumed=work.resumed)
            if not work.resumed:
                plan = replace(plan, id=str(uuid.uuid4()))
            number = checks.next_number(plan, tables, found, work.before, decoded.history) if not work.resumed else 0
            run.progress.doing("writing the plan")
            state = work.begin(plan, number, places)
        steps.reached("plan written")
        commit = delta.CommitId(state.ledger, state.run, run_id(plan))
        state, copied = RunTables(run).move(tables, state, commit)
        buckets = buckets_of(work.size)
        runs = table_runs(run, tables, found, decoded.staged, buckets, commit, resumed=work.resumed, axis=decoded.axis)
        if work.resumed:
            with run.stage("plan"):
                runs = checks.check_again(runs, plan)
        return Prepared(plan, tables, state, runs, copied)

    def _check_server(self, placement: Placement, work: Work, history: History) -> None:
        """Refuse tables that were all created again if they must be another server's; warn if they are many."""
        count = len({source_oid(entry.oid) for entry in work.entries if not entry.set_aside})
        if is_in_doubt(placement) and not work.resumed:
            followed = history.followed()
            if followed is not None:
                check_followed(placement, followed, count)
        self.run.warnings.extend(warnings_of(placement, count))

    def _write(self, work: Work, decoded: Decoded, prepared: Prepared) -> list[TableReport]:
        """Apply the tables, and beside them write what the ledger keeps of transactions and files."""
        kept = [
            lambda: decoded.history.write(prepared.state, resumed=work.resumed),
            lambda: self.run.ledger.record_files(prepared.state, resumed=work.resumed),
        ]
        sizes = {table.plan.oid: table.size for table in prepared.runs}
        reports = [
            replace(report, bytes=sizes.get(report.oid or 0, 0))
            for report in RunTables(self.run).apply(prepared.runs, self.staging, kept)
        ]
        with self.run.stage("check"):
            table_checks(self.run, accepts=False).look_back(prepared.runs, reports)
        self.run.warnings.extend(missing_warnings(reports, self.run.settings))
        return reports

    def _record(self, work: Work, prepared: Prepared, reports: Sequence[TableReport]) -> tuple[State, RunReport]:
        """Record the run in the ledger, which ends it."""
        run, plan, state, tables = self.run, prepared.plan, prepared.state, prepared.tables
        run.warnings.extend(_later_rows(tables.entries, plan.upto_lsn))
        report = RunReport(
            run=state.run,
            status="applied",
            captures=self.captures,
            target=run.target.text,
            files=state.files,
            capture_bytes=work.size,
            transactions=plan.transactions,
            changes=tables.changes,
            applied_lsn=plan.upto_lsn if plan.upto_lsn >= 0 else None,
            applied_commit_ts=to_datetime(plan.upto_commit_time) if plan.upto_lsn >= 0 else None,
            tables=tuple(sorted([*reports, *moved(tables)], key=lambda report: report.name)),
            warnings=tuple(run.warnings[self.told :]),
            seconds=0.0,
            stages=run.phases,
            writer=run.writer.way,
        )
        with run.recording():
            left = {**prepared.copied, **{one.oid: one.version for one in reports if one.oid is not None}}
            state = run.ledger.record(state, report, left_at(tables.entries, left, plan.id), resumed=work.resumed)
        steps.reached("run recorded")
        return state, report


def _later_rows(entries: Sequence[MirrorEntry], upto_lsn: int) -> list[str]:
    """Return a warning of the tables whose loaded rows are as of a later LSN than what is applied; or none."""
    later = [one for one in entries if one.rows_at > upto_lsn]
    if not later:
        return []
    high = format_lsn(max(one.rows_at for one in later))
    names = listed([one.name for one in later])
    return [
        f"{names}: loaded with rows as of up to LSN {high}, later than what is applied; they are as of one moment with "
        "the other tables once captures up to there are applied"
    ]


def table_checks(run: RunContext, *, accepts: bool) -> TableChecks:
    """Give what compares tables with the ledger.

    Args:
        accepts: tables that somebody else has changed are taken as they are.
    """
    return TableChecks(run.own, run.target, run.ledger, accepts, run.at_once, run.warnings, run.sibling_ledgers)


def table_runs(
    run: RunContext,
    tables: RunPlan,
    found: Sequence[Found],
    staged: Mapping[int, Staged],
    buckets: int,
    commit: delta.CommitId,
    *,
    resumed: bool,
    axis: Axis = NO_AXIS,
) -> list[TableRun]:
    """Say how each table is written.

    Args:
        found: each table, as it was found.
        staged: what each table has, by its number.
        commit: the run's.
    """
    return [
        TableRun(
            plan=table,
            commit=commit,
            resumed=resumed,
            buckets=buckets,
            tasks=tasks_of(buckets, staged[table.number].size),
            size=staged[table.number].size,
            exists=there.exists,
            checked=None if there.standing is None else there.standing.latest,
            emptied=staged[table.number].emptied,
            axis=axis,
            check_lock=run.ledger.check_lock,
        )
        for table, there in zip(tables.tables, found, strict=True)
    ]


def _axis(plan: Plan, staging: Staging) -> Axis:
    """Give the time of histories: of a run that goes on, as if it had not been interrupted."""
    before = NO_TIME if plan.top_time is None else plan.top_time + POSTGRES_EPOCH_UNIX_MICROS
    decided = ((one.commit_lsn, one.commit_time + POSTGRES_EPOCH_UNIX_MICROS) for one in plan.decided)
    return Axis.of(before, staging.tops if staging.decoded else (), decided)


def _since_2000(time: int) -> int | None:
    return None if time == NO_TIME else time - POSTGRES_EPOCH_UNIX_MICROS


def _without_ended(plan: Plan, history: History) -> Plan:
    """Leave out of what is open the streamed transactions that have come as ordinary ones in a later session."""
    open_ = [item.xid for item in plan.resume.deferred if item.gid is None]
    ended = history.ended(open_) if open_ else set()
    if not ended:
        return plan
    deferred = tuple(item for item in plan.resume.deferred if item.gid is not None or item.xid not in ended)
    return replace(plan, resume=replace(plan.resume, deferred=deferred))


__all__ = ["Applying", "Work", "table_checks", "table_runs"]

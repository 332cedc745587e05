"""Apply a plan: decode, plan the tables, write the plan down, apply it table by table, record it.

Each phase returns a value for the next one: `RunWork` -> `Decoded` -> `Prepared` -> reports -> the ledger's state.
What a decode notes besides rows is in the run's `Staging`.
An interrupted run begins with the plan that it has written down, and does the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from walreplay.delta import statements as delta
from walreplay.delta.local import ConflictError, DroppedError
from walreplay.delta.target import storage_errors
from walreplay.errors import listed
from walreplay.fold.versions import NO_AXIS, NO_TIME, Axis
from walreplay.job.context import RunContext
from walreplay.job.holding import Holding, reported
from walreplay.job.source_check import shared_by, taken_by
from walreplay.job.table_check import CheckedTable, TableChecks
from walreplay.ledger.state import State, run_id
from walreplay.ledger.transactions import TransactionLog
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS, format_lsn
from walreplay.names import RowKind, output_of, relation_of
from walreplay.progress import log
from walreplay.report import Action, RunReport, TableReport
from walreplay.session import steps
from walreplay.session.failures import spark_errors
from walreplay.session.isolation import has_own_sessions, own_session
from walreplay.session.naming import jobs_named
from walreplay.spark.staging import Staged, Staging
from walreplay.spark.workers.decode import DecodeTask
from walreplay.stream.plan import Deferred, Plan
from walreplay.table.certainty import merged, over_gap
from walreplay.table.placement import Move, check_followed, warnings_of
from walreplay.table.plan import Period, TablesPlan, plan_tables
from walreplay.table.registry import ALWAYS, Doubt, Entries, MirrorEntry, made_again
from walreplay.table.table_run import TableRun, commit_of_step
from walreplay.table.versions import Catalogue
from walreplay.writing.merge import missing_warnings
from walreplay.writing.move import Fence, fence_of, move
from walreplay.writing.shared_table import in_turn, move_rows
from walreplay.writing.update import (
    FoldedTable,
    apply_table,
    check_not_another_table,
    fold_together,
    groups_of,
    planned_report,
)


@dataclass(frozen=True)
class RunTables:
    """The tables of a run; by oid means by the numbers of `walreplay.names`, of a relation and an output."""

    run: RunContext
    holding: Holding | None = None  # a load's tables are not held

    def move(self, tables: TablesPlan, state: State, commit: delta.CommitId) -> tuple[State, dict[int, int | None]]:
        """Move renamed tables, and those whose names others have now, to their places.

        Tables that leave a place go first, and that they have left is written down: a table that is there afterwards is
        another one.

        Returns:
            the state, and the versions of tables that were copied, by oid.
        """
        placement = tables.placement
        copied_versions: dict[int, int | None] = {}
        if not placement.moves:  # the usual run renames no table
            return state, copied_versions
        fence = fence_of(self.run.session, self.run.target, self.run.ledger.holder_id)
        with self.run.stage("move"):
            try:
                if fence is not None:  # so that a run that was paused, and lost the lock, renames nothing
                    fence.put_up(partial(self.run.ledger.check_lock, sure=True))
                # Leaving is not repeated: a place that was left may have another table by then (`placement`).
                if not state.vacated:
                    copied_versions |= self._move_all(placement.leaving, commit, 0, fence)
                    state = self.run.ledger.write(replace(state, vacated=True))
                    steps.reached("places left")
                copied_versions |= self._move_all(placement.arriving, commit, len(placement.leaving), fence)
            finally:
                if fence is not None:
                    fence.take_down()
        return state, copied_versions

    def _move_all(
        self, moves: Sequence[Move], commit: delta.CommitId, first_step: int, fence: Fence | None
    ) -> dict[int, int | None]:
        copied_versions: dict[int, int | None] = {}
        # Numbers of commits below 2**14 are moves; those of tables' epochs (`commit_of_step`) lie above.
        for number, table_move in enumerate(moves, first_step):
            self.run.ledger.check_lock()
            move_commit = replace(commit_of_step(commit, number), oid=table_move.oid)
            session, check_lock = own_session(self.run.spark), self.run.ledger.check_lock
            if table_move.is_shared:
                move_commit = replace(move_commit, source=self.run.target.source)
                result = move_rows(session, table_move, move_commit, check_lock)
            else:
                result = move(session, table_move, move_commit, check_lock, fence)
            if result.note is not None:
                self.run.warnings.append(result.note)
            if result.is_copy:  # a copy has a log of its own, and so another version
                copied_versions[table_move.oid] = result.version
            steps.reached(f"table moved: {table_move.name}")
        return copied_versions

    def apply(
        self, runs: Sequence[TableRun], staging: Staging, ledger_writes: Sequence[Callable[[], None]]
    ) -> list[TableReport]:
        """Apply the tables concurrently, and beside them write what the ledger keeps of transactions and files."""
        reports: list[TableReport] = []
        with (
            self.run.stage("apply", len(runs)),
            ThreadPoolExecutor(len(ledger_writes)) as ledger_pool,
            ThreadPoolExecutor(self.run.at_once) as pool,
        ):
            # These rows are of the run: until `record` ends it, a resumed run writes what is missing of them.
            ledger_futures: list[Future[None]] = []
            for write in ledger_writes:
                named_write = jobs_named(self.run.spark, "record files and transactions")(write)
                ledger_futures.append(ledger_pool.submit(named_write))
                if not has_own_sessions(self.run.spark):  # a shared session allows one statement at a time
                    ledger_futures[-1].result()
            table_futures: list[Future[TableReport | None]] = []

            def gather() -> None:
                for future in as_completed(table_futures):
                    report = future.result()
                    self.run.progress.advance()
                    if report is None:  # the table is held
                        continue
                    reports.append(report)
                    _log(report, runs[0].commit.number)
                    steps.reached(f"table applied: {report.name}")
                table_futures.clear()

            try:
                for group_number, group in enumerate(groups_of(self.run.spark, runs)):
                    # Group 0 shares no job, and runs beside group 1; later groups wait, as each folded table holds a
                    # session until its commit.
                    if group_number > 1:
                        gather()
                    folded = self._fold_together(group, staging) if group_number else {}
                    table_futures += [
                        pool.submit(self._apply_table, staging, run, folded.get(run.plan.number)) for run in group
                    ]
                gather()
            except BaseException:
                for table_future in table_futures:
                    table_future.cancel()  # only tables that have not started; the pool waits for the others
                raise
            self.run.progress.doing("the ledger's transactions and files")
            for ledger_future in ledger_futures:
                ledger_future.result()
            steps.reached("transactions written")
        return sorted(reports, key=TableReport.order)

    def _fold_together(self, group: Sequence[TableRun], staging: Staging) -> Mapping[int, FoldedTable]:
        # Only for its own tables may a run write files.
        self.run.ledger.check_lock()
        names = listed([run.plan.name for run in group])
        with self.run.doing(f"folding {names}"), jobs_named(self.run.spark, f"fold {len(group):,} tables"):
            try:
                return fold_together(self.run.spark, self.run.writer, staging, group, self.run.at_once)
            except Exception:
                if self.holding is None or not any(self.holding.named(run.plan.name) for run in group):
                    raise
                return {}  # each folds by itself: that shows whose error it is

    def _apply_table(self, staging: Staging, table_run: TableRun, folded: FoldedTable | None) -> TableReport | None:
        """Apply a table; None: an error of its own holds it."""
        # If this process was paused, it may have lost the lock, and another run may be writing the table.
        self.run.ledger.check_lock()
        place = table_run.plan.table.text

        def apply(attempt: TableRun, is_first: bool) -> TableReport:
            try:
                # A second attempt folds again: the first fold was for a version that another source has passed.
                return apply_table(self.run.spark, self.run.writer, staging, attempt, folded if is_first else None)
            except (ConflictError, DroppedError) as error:
                raise error.at(table=attempt.plan.name) from error.__cause__  # delta-rs does not know the source's name

        with (
            nullcontext() if self.holding is None else self.holding.applying(table_run.plan),
            self.run.doing(table_run.plan.name),
            spark_errors(table=table_run.plan.name, path=place),
            storage_errors(place, if_damaged=_damage_remedy(table_run), table=table_run.plan.name),
            jobs_named(self.run.spark, f"apply {table_run.plan.name}"),
        ):
            return apply(table_run, True) if table_run.plan.metadata.share is None else in_turn(table_run, apply)
        return None


def _damage_remedy(run: TableRun) -> str:
    """Return what to do about a damaged table; empty for a new one, and for one that sources share."""
    before = run.plan.before
    if before is None or before.left is None or before.share is not None:
        return ""
    away = f"move {before.table.text} away, and run again, which finishes this run without it"
    return f"{away}; then {made_again(before)}"


def _log(report: TableReport, number: int) -> None:
    log(
        "table applied",
        table=report.name,
        place=report.location,
        run=number,
        action=report.action,
        version=report.version,
        changes=report.changes,
        writer=report.writer,
        seconds=report.seconds,
    )


def moved(tables: TablesPlan) -> list[TableReport]:
    """Report the tables that the run did not write to, but moved or set aside."""
    placement = tables.placement
    actions: dict[Action, Sequence[MirrorEntry]] = {"set aside": placement.aside, "unchanged": placement.renamed}
    return [
        TableReport(entry.name, entry.table.text, action, oid=entry.oid, set_aside=entry.set_aside, notes=notes)
        for action, entries in actions.items()
        for entry, notes in ((entry, placement.notes.get(entry.oid, ())) for entry in entries)
    ]


Truncates: TypeAlias = Mapping[int, tuple[int, int]]  # by the source's oids, of each the last: commit LSN and ordinal


@dataclass(frozen=True)
class RunWork:
    """What a run has to apply.

    Attributes:
        ledger_state: the ledger's state; of an interrupted run its own.
        write_plan: writes the plan to the ledger under the run's number, with the places that the run takes
            (`State.places`) and the entries, and returns the ledger's state; called once the files have proved to be
            decodable.
        resumed: the run was begun before; some tables may have its commit.
    """

    plan: Plan
    capture_bytes: int
    ledger_state: State | None
    write_plan: Callable[[Plan, int, tuple[str, ...], Entries], State]
    resumed: bool = False

    @property
    def entries(self) -> Entries:
        """What the ledger knows of the tables."""
        return self.ledger_state.tables if self.ledger_state is not None else ()


@dataclass(frozen=True)
class Decoded:
    """A plan's rows, staged.

    Attributes:
        plan: with its id, and without the open transactions that have ended in another way.
        staged: what each table has, by its number.
        axis: the time of histories.
    """

    plan: Plan
    staged: Mapping[int, Staged]
    truncates: Truncates
    transaction_log: TransactionLog
    axis: Axis


@dataclass(frozen=True)
class Prepared:
    """The plan is written down, and the tables are in their places.

    Attributes:
        state: the ledger's, with the plan in it.
        copied_versions: the versions of tables that were copied to their places, by oid.
    """

    decoded: Decoded
    tables: TablesPlan
    state: State
    runs: Sequence[TableRun]
    copied_versions: Mapping[int, int | None]
    holding: Holding


@dataclass
class Applying:
    """The phases of one run.

    Args:
        captures: where they lie, for the report.
        first_warning: the index of the run's first warning: those before are of earlier runs of the call.
    """

    run: RunContext
    captures: str
    staging: Staging
    first_warning: int = 0

    def apply(self, work: RunWork) -> tuple[State, RunReport]:
        """Apply a plan; return the ledger's state behind it, and the run's report, but for its time."""
        try:
            prepared = self._prepare(work)
            reports = self._write(work, prepared)
        finally:
            self.run.clear(self.staging)  # also after an error: a resumed run has its plan, and decodes again
        return self._record(work, prepared, reports)

    def _prepare(self, work: RunWork) -> Prepared:
        """Write the plan down, begun again without each table that an error holds, and bring tables to their places."""
        run, holding = self.run, Holding(self.run, work.plan, work.entries, work.resumed)
        checks = TableChecks(run, accepts=run.settings.accept_changed_tables)
        warnings, decoded = [*run.warnings], None
        while True:
            with holding.planning():
                catalogue = Catalogue.of(work.plan, run.settings, holding.entries)
                if decoded is None:
                    run.warnings.extend((*work.plan.warnings, *catalogue.warnings))
                    decoded = self._decode(work, catalogue)
                    warnings = [*run.warnings]
                tables = self._plan_tables(work.plan, holding.entries, catalogue, decoded.staged, decoded.truncates)
                checked, written_state = self._write_plan(work, decoded, tables, checks, holding)
                break
            if decoded is None:
                run.clear(self.staging)  # some files are staged
            run.warnings[:] = warnings
        steps.reached("plan written")
        commit = delta.CommitId(written_state.ledger, written_state.run, run_id(decoded.plan))
        state, copied_versions = RunTables(run).move(tables, written_state, commit)
        buckets = buckets_of(work.capture_bytes)
        runs = table_runs(
            run, tables, checked, decoded.staged, buckets, commit, resumed=work.resumed, axis=decoded.axis
        )
        if work.resumed:
            with run.stage("plan"):
                runs = checks.check_again(runs, decoded.plan, holding)  # only now are its tables in their places
        return Prepared(decoded, tables, state, runs, copied_versions, holding)

    def _decode(self, work: RunWork, catalogue: Catalogue) -> Decoded:
        """Decode the plan's files to staged events, and compare what has come again with what is known."""
        plan, truncates = work.plan, self._truncates(work.plan)
        self.run.ledger.check_lock()
        staged = self._stage(work, catalogue, truncates)
        steps.reached("decoded")
        transaction_log = TransactionLog(self.run.session, self.run.target, plan, self.staging, self.run.writer)
        with self.run.stage("check"):
            self.run.warnings.extend(transaction_log.check_copies())  # what a reconnect has sent again is compared
            plan = _without_ended(plan, transaction_log)
        axis = _time_line(plan, self.staging)
        top = None if axis.end == NO_TIME else axis.end - POSTGRES_EPOCH_UNIX_MICROS
        # The id is in each commit: a resumed run knows its own.
        plan_id = plan.id if work.resumed else str(uuid.uuid4())
        plan = replace(plan, id=plan_id, resume=replace(plan.resume, top_time=top))
        return Decoded(plan, staged, truncates, transaction_log, axis)

    def _truncates(self, plan: Plan) -> dict[int, tuple[int, int]]:
        skips = self.run.settings.skips("t")  # the configuration leaves truncates out
        return {} if skips else {item.oid: (item.lsn, item.ordinal) for item in plan.truncates}

    def _stage(self, work: RunWork, catalogue: Catalogue, truncates: Truncates) -> dict[int, Staged]:
        plan = work.plan
        files = {file.path: file for file in plan.files if file.steps}  # of the others no row is applied
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
                buckets=buckets_of(work.capture_bytes),
                layouts=plan.layouts,
                announcements=plan.announcements,
            )
            return self.staging.decode(self.run.session, task)

    def _write_plan(
        self, work: RunWork, decoded: Decoded, tables: TablesPlan, checks: TableChecks, holding: Holding
    ) -> tuple[Sequence[CheckedTable], State]:
        """Check the tables, and write the plan down."""
        run, plan, sources = self.run, decoded.plan, _sources(work)
        before = work.ledger_state and replace(work.ledger_state, tables=holding.entries)
        with run.stage("check"):
            if not work.resumed:  # a resumed run was checked before its plan was written
                check_followed(tables.placement, decoded.transaction_log.followed, sources)
            run.warnings.extend(warnings_of(tables.placement, sources))
        # Until the plan is written, no other source may take the same places.
        with run.stage("plan"), run.sibling_ledgers.apart(taken_by(tables), shared_by(tables)) as places:
            checked = checks.check(tables, before, resumed=work.resumed)
            run_number = 0  # of a resumed run: its state has the number
            if not work.resumed:
                run_number = checks.next_number(plan, tables, checked, before, decoded.transaction_log)
                for each in table_runs(run, tables, checked, decoded.staged, 1, delta.CommitId("", 0), resumed=False):
                    with spark_errors(table=each.plan.name):
                        check_not_another_table(run.spark, self.staging, each)
            run.progress.doing("writing the plan")
            return checked, work.write_plan(plan, run_number, places, holding.entries)

    def _plan_tables(
        self, plan: Plan, entries: Entries, catalogue: Catalogue, staged: Mapping[int, Staged], truncates: Truncates
    ) -> TablesPlan:
        settings, target, uses = self.run.settings, self.run.target, self.staging.uses
        period = Period(plan.after_lsn, plan.upto_lsn, frozenset(relation.oid for relation in plan.before))
        tables = plan_tables(catalogue, staged, uses, tuple(truncates), entries, settings, target, period)
        self.run.warnings.extend(tables.warnings)
        return tables

    def forecast(self, work: RunWork, catalogue: Catalogue) -> tuple[TablesPlan, list[TableReport]]:
        """Plan the tables as `apply` does; return what it would report of them, without the rows that it counts."""
        truncates = self._truncates(work.plan)
        staged = self._stage(work, catalogue, truncates)
        # No table is opened: the ledger is trusted.
        tables = self._plan_tables(work.plan, work.entries, catalogue, staged, truncates)
        self.run.warnings.extend(warnings_of(tables.placement, _sources(work)))
        checked = [CheckedTable(table.before is not None) for table in tables.tables]
        runs = table_runs(self.run, tables, checked, staged, 1, delta.CommitId("", 0), resumed=False)
        return tables, [*map(planned_report, runs), *moved(tables)]

    def _write(self, work: RunWork, prepared: Prepared) -> list[TableReport]:
        """Apply the tables, and beside them write what the ledger keeps of transactions and files."""
        ledger_writes = [
            *prepared.decoded.transaction_log.writes(prepared.state, resumed=work.resumed),
            lambda: self.run.ledger.record_files(prepared.state, resumed=work.resumed),
        ]
        sizes = {table.plan.oid: table.size for table in prepared.runs}
        reports = [
            replace(report, bytes=sizes.get(report.oid or 0, 0))
            for report in RunTables(self.run, prepared.holding).apply(prepared.runs, self.staging, ledger_writes)
        ]
        with self.run.stage("check"):  # what has come between a check and a commit is not refused, only warned of
            TableChecks(self.run, accepts=False).look_back(prepared.runs, reports)
        entries = (table.plan.before for table in prepared.runs)
        self.run.gaps |= {entry.oid: entry.gap for entry in entries if entry is not None and entry.gap is not None}
        return reports

    def _record(self, work: RunWork, prepared: Prepared, reports: Sequence[TableReport]) -> tuple[State, RunReport]:
        """Record the run in the ledger, which ends it."""
        run, plan, state, tables = self.run, prepared.decoded.plan, prepared.state, prepared.tables
        run.warnings.extend(_later_rows(tables.entries, plan.upto_lsn))
        applied_upto, gap = (plan.upto_lsn, plan.upto_commit_time), plan.resume.gap
        # Of a table that was copied and then written to, the later version counts.
        versions = {table.oid: table.version for table in reports if table.oid is not None}
        entries = prepared.holding.left_at(tables.entries, {**prepared.copied_versions, **versions}, plan.id)
        # Of a table that is held, an output may have been written to, or moved.
        table_reports = {table.oid: table for table in (*reported(run, entries), *reports, *moved(tables))}
        report = replace(
            run.report(state.run, "applied", self.captures, applied_upto, table_reports.values()),
            files=state.files,
            capture_bytes=work.capture_bytes,
            transactions=plan.transactions,
            changes=tables.changes,
            warnings=(*run.warnings[self.first_warning :], *missing_warnings(reports, run.settings, run.gaps)),
            stages=run.phases,
            writer=run.writer.kind,
        )
        with run.recording():
            if gap is not None:  # gaps were allowed (empty: none was noticed), so any table may lack changes
                doubt = Doubt(plan.after_lsn + 1, None, gap or f"not noticed, up to LSN {format_lsn(plan.upto_lsn)}")
                entries = [entry if entry.gap and not gap else over_gap(entry, doubt) for entry in entries]
            entries = [_doubted(entry, plan) if entry.oid in run.changed else entry for entry in entries]
            state = run.ledger.record(state, report, entries, resumed=work.resumed)
        steps.reached("run recorded")
        return state, report


def _sources(work: RunWork) -> int:
    return len({relation_of(entry.oid) for entry in work.entries if not entry.set_aside})


def _doubted(entry: MirrorEntry, plan: Plan) -> MirrorEntry:
    """Return the entry of a table whose rows somebody else has changed."""
    # A history and a change log are read in their newest version, as of any moment.
    first = plan.after_lsn + 1 if output_of(entry.oid).rows is RowKind.CURRENT else ALWAYS
    doubt = Doubt(first, None, "somebody else has changed it, and its rows were taken as they were")
    return replace(entry, doubts=merged(*entry.doubts, doubt))


def _later_rows(entries: Sequence[MirrorEntry], upto_lsn: int) -> list[str]:
    """Return a warning of the tables whose loaded rows are as of a later LSN than what is applied; or none."""
    later = [entry for entry in entries if entry.rows_at > upto_lsn]
    if not later:
        return []
    high, names = format_lsn(max(entry.rows_at for entry in later)), listed([entry.name for entry in later])
    return [
        f"{names}: loaded with rows as of up to LSN {high}, later than what is applied: until captures reach it, the "
        "tables are ahead of the others, and their changes are left out, as the rows have them"
    ]


_MAX_BUCKETS: Final = 2048
_FEW_BUCKETS: Final = 4  # at most, of a run that has less than a large bucket
_BUCKETS_OF_UNKNOWN: Final = 64
_FEW_BYTES: Final = 8 << 20  # of captures, for each bucket of a small run
_BUCKET_BYTES: Final = 64 << 20  # of captures, for each bucket of a large run
_TASK_BYTES: Final = 4 << 20  # of a table's staged changes, which are worth a task of its own


def buckets_of(size: int | None) -> int:
    """Return into how many buckets each table's changes are split, by key; few for a small run.

    Args:
        size: bytes of the files that a run reads; None if nobody knows.
    """
    if size is None:
        return _BUCKETS_OF_UNKNOWN
    few = min(_FEW_BUCKETS, size // _FEW_BYTES)
    return max(1, few, min(_MAX_BUCKETS, -(-size // _BUCKET_BYTES)))


def tasks_of(buckets: int, size: int) -> int:
    """Return how many tasks fold a table, given the bytes that are staged for it."""
    return min(buckets, 1 + size // _TASK_BYTES)  # a task folds whole buckets


def table_runs(
    context: RunContext,
    tables: TablesPlan,
    checked: Sequence[CheckedTable],
    staged: Mapping[int, Staged],
    buckets: int,
    commit: delta.CommitId,
    *,
    resumed: bool,
    axis: Axis = NO_AXIS,
) -> list[TableRun]:
    """Return how each table is written; ``staged`` is by the tables' numbers."""
    return [
        TableRun(
            plan=table,
            commit=commit,
            resumed=resumed,
            buckets=buckets,
            tasks=tasks_of(buckets, staged[table.number].size),
            size=staged[table.number].size,
            exists=check.exists,
            standing=check.standing,
            emptied=staged[table.number].emptied,
            axis=axis,
            check_lock=context.ledger.check_lock,
        )
        for table, check in zip(tables.tables, checked, strict=True)
    ]


def _time_line(plan: Plan, staging: Staging) -> Axis:
    """Return the time line of histories: the same for an interrupted run that is finished as if it had not been."""
    before = NO_TIME if plan.top_time is None else plan.top_time + POSTGRES_EPOCH_UNIX_MICROS
    decided = ((commit.commit_lsn, commit.commit_time + POSTGRES_EPOCH_UNIX_MICROS) for commit in plan.decided)
    return Axis.of(before, staging.tops if staging.decoded else (), decided)


def _without_ended(plan: Plan, transaction_log: TransactionLog) -> Plan:
    """Remove from the open transactions those that have come again as ordinary ones.

    A streamed transaction does so in a later session, a prepared one if its slot sends no PREPARE any more.
    """
    resume = plan.resume
    ordinary = transaction_log.ended([item.xid for item in resume.deferred]) if resume.deferred else {}
    decided = {item.xid: item.commit_lsn for item in plan.decided}
    last = {xid: max(ordinary.get(xid, 0), decided.get(xid, 0)) for xid in {*ordinary, *decided}}

    def is_open(item: Deferred) -> bool:
        if item.gid is None:
            return item.xid not in ordinary or item.xid in decided  # `ended` names decided streams, too
        # While it is prepared, no other transaction has its xid: a commit behind the Prepare ends it, or is later.
        return not item.complete or last.get(item.xid, 0) <= (item.lsn or 0)

    deferred = tuple(filter(is_open, resume.deferred))
    return replace(plan, resume=replace(resume, deferred=deferred))

"""Swap rebuilt tables into place, and remove their side target (`Target.side`) afterwards.

The ledger records the swap first, so an interrupted one can be resumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from walreplay.delta import statements as delta
from walreplay.delta.target import TableName, Target, storage_errors
from walreplay.job.context import RunContext
from walreplay.ledger.runs import APPENDED_TABLES
from walreplay.ledger.state import Rebuild, Replacement, State
from walreplay.names import relation_of
from walreplay.report import Action, RunReport, TableReport
from walreplay.session import steps
from walreplay.session.failures import spark_errors
from walreplay.session.isolation import session_with
from walreplay.session.reach import local_folder
from walreplay.table.certainty import anew
from walreplay.table.registry import OFF, left_at
from walreplay.table.table_run import commit_of_step
from walreplay.writing.move import Replacing, file_system, remove, replace_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_LEDGER: Final = ("state", *APPENDED_TABLES)


def remove_side(spark: SparkSession, side: Target, tables: Iterable[TableName]) -> str | None:
    """Remove a side target, and its tables as far as they are known; return a note where that cannot be done here."""
    if side.root is None:
        _drop(spark, side)
        return None
    folder = local_folder(spark, side.root)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        files = file_system(spark, side.root)
        if files is None:
            # Over Spark Connect there is no Hadoop file system to remove them by.
            return f"{side.root} is left behind, for it cannot be removed from here; remove it by hand"
        files.delete(side.root)
    for table in (*tables, *map(side.ledger, _OF_LEDGER)):
        delta.forget(spark, table)  # Delta keeps a path's log, and does not see that the folder is gone
    return None


def _drop(spark: SparkSession, side: Target) -> None:
    sample = side.ledger("")  # every table of the side target begins like it
    schema, prefix = TableName(parts=sample.parts[:-1]), sample.parts[-1]
    if not spark.catalog.databaseExists(schema.sql):
        return
    for row in spark.sql(f"SHOW TABLES IN {schema.sql}").collect():
        # Catalogs keep names in lower case.
        if row.tableName.lower().startswith(prefix.lower()):
            delta.drop(spark, TableName(parts=(*schema.parts, row.tableName)))


@dataclass(frozen=True)
class Installing:
    """Puts rebuilt tables in place, as the ledger has recorded it.

    Attributes:
        captures: where they lie, for the report.
    """

    context: RunContext
    captures: str

    def begin(self, state: State, rebuild: Rebuild, number: int) -> State:
        """Write down what is to be put in place, under a run's number; return the ledger's state with it."""
        placed = {(entry.oid, entry.table.place) for entry in state.tables if not entry.set_aside}
        new = [swap.entry for swap in rebuild.tables if (swap.entry.oid, swap.entry.table.place) not in placed]
        with self.context.sibling_ledgers.apart({entry.table: entry.name for entry in new}) as places:
            return self.context.ledger.begin(state, number, places, rebuild=rebuild)

    def finish(self, state: State, *, resumed: bool) -> tuple[State, RunReport]:
        """Put the rows in their tables, which may have them if it is resumed; remove the others, and record it."""
        context, rebuild = self.context, state.rebuild
        assert rebuild is not None
        if resumed:
            what = "rebuild" if rebuild.load is None else "load"
            context.warnings.append(f"{what} {state.run} was interrupted; it was finished")
        commit = delta.CommitId(state.ledger, state.run, state.run_id)
        with context.stage("replace", len(rebuild.tables)):
            results = context.each(lambda swap: self._bring(state, swap, commit, resumed=resumed), rebuild.tables)
            reports = [report for report in results if report is not None]
        steps.reached("tables replaced")
        with context.stage("clean up"):
            context.ledger.check_lock()  # a run that took over may still need the side target
            side = context.target.side(rebuild.side)
            notes = [remove_side(context.session, side, [swap.source for swap in rebuild.tables])]
            made, places = {report.oid for report in reports}, {swap.entry.table.place for swap in rebuild.tables}
            left = (entry.table for entry in state.tables if entry.oid in made and entry.table.place not in places)
            for table in left:  # where it has been, it would be in the way of the next table
                if delta.exists(context.session, table):
                    notes.append(remove(context.session, table, context.ledger.check_lock))
                    delta.forget(context.session, table)
            context.warnings.extend(filter(None, notes))
        steps.reached("side removed")
        return self._record(state, reports, resumed=resumed)

    def _bring(self, state: State, swap: Replacement, commit: delta.CommitId, *, resumed: bool) -> TableReport | None:
        context, entry = self.context, swap.entry
        place, others = entry.table.text, (other for other in state.tables if not other.is_unmade)
        before = {(other.oid, other.table.place): other for other in others}.get((entry.oid, entry.table.place))
        commit = replace(commit_of_step(commit, 0), oid=entry.oid)  # one commit a table, so one step
        replacing = Replacing(swap.source, entry, before, commit, resumed, context.ledger.check_lock)
        with (
            spark_errors(table=entry.name, path=place),
            storage_errors(place, if_damaged=f"move {place} away, and run again: it is made anew"),
            session_with(context.spark, delta.SMALL_STATE) as session,
        ):
            version = replace_rows(session, replacing)  # None: somebody has removed the side table
        context.progress.advance()
        if version is None:
            context.warnings.append(f"{entry.name}: its new rows are gone, so it is as it was; rebuild it again")
            return None
        steps.reached(f"table replaced: {entry.name}")
        action: Action = "created" if before is None else "overwritten"
        report = TableReport(entry.name, place, action, inserted=swap.rows, version=version, oid=entry.oid)
        return replace(report, set_aside=entry.set_aside)

    def _record(self, state: State, reports: list[TableReport], *, resumed: bool) -> tuple[State, RunReport]:
        context, rebuild = self.context, state.rebuild
        assert rebuild is not None
        # Until this is recorded, it has its name.
        given_up = (e for e in state.tables if e.is_unmade and not e.held and any(name for *_, name in e.called[-1:]))
        aside = (TableReport(e.name, e.table.text, "set aside", oid=e.oid, set_aside=True) for e in given_up)
        report = context.report(state.run, "rebuilt", self.captures, state.reached, [*reports, *aside])
        report = replace(report, writer="statements")  # the rows are copied by Spark
        versions: Mapping[int, int | None] = {table.oid: table.version for table in reports if table.oid is not None}
        with context.recording():
            # Without a version the table's new rows were gone: its entry stays as it was.
            relations = {relation_of(oid) for oid in versions}
            # What is held unmade stands for all outputs; one that is not wanted any more goes on as switched off.
            entries = {e.oid: e for e in state.tables if not (e.is_unmade and relation_of(e.oid) in relations)}
            ended = {e.oid for e in entries.values() if e.held and relation_of(e.oid) in relations}
            ended -= {swap.entry.oid for swap in rebuild.tables}
            entries |= {oid: replace(entries[oid], paused=OFF) for oid in ended}
            for made in (swap.entry for swap in rebuild.tables if swap.entry.oid in versions):
                doubts = entries[made.oid].doubts if made.oid in entries else ()
                entries[made.oid] = replace(made, doubts=anew(doubts, made.doubts, state.reached[0], state.run))
            recorded = left_at(tuple(entries.values()), versions, rebuild.id)
            state = context.ledger.record(state, report, recorded, resumed=resumed)
        steps.reached("run recorded")
        return state, report

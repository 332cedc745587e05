"""Rebuild: make tables of a target again from the archive, as of the very LSN that the target is at.

The tables are made beside the target (`walreplay.job.side_tables`), while runs of it may come in between.  Then, under
the target's lock, each table is compared (`walreplay.job.compare`); a table that is not right gets the side table's
rows in one commit (`walreplay.job.installing`).
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from walreplay.config import Settings, make_settings
from walreplay.config.model import Narrowed, outputs_named, tables_named
from walreplay.delta import statements as delta
from walreplay.delta.opened import OpenedTable
from walreplay.delta.target import TableName
from walreplay.errors import ConfigError, TargetError, listed
from walreplay.job.compare import Verdict, check_readable, comparing, equal_tables
from walreplay.job.context import RunContext
from walreplay.job.installing import Installing
from walreplay.job.side_build import BaseStep
from walreplay.job.side_tables import MadeTables, SideTables
from walreplay.job.standing import newest_number, refuse_older
from walreplay.ledger.state import Load, Rebuild, Replacement, State
from walreplay.names import Output, output_of, relation_of, source_oid
from walreplay.progress import Progress
from walreplay.report import RunReport, TableReport, timed
from walreplay.session import steps
from walreplay.table.registry import OFF, MirrorEntry
from walreplay.table.table_run import run_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    target: str | os.PathLike[str],
    table: str,
    *,
    outputs: Iterable[str | Output] | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    base: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Make tables of a target again from the archive, whatever has become of them; all others stay as they are.

    Also tables, columns and outputs that the configuration wants now and did not want before.  Tables that were loaded
    begin with the files of their base load.  A table that proves to be right is not written to.  Killed, the same call
    goes on where it was.

    Args:
        captures: the folder (or file, or glob) of the capture files, from the first that the target was made of.
        target, config, progress: as `walreplay.apply` takes them.
        table: a regular expression over the whole of the source's ``schema.table``.
        outputs: those that are made again; None for all that the configuration wants.
        base: where the files of the tables' base load lie now, if they were moved.

    Raises:
        ConfigError: no table is called so, or the configuration leaves it out; or its base load had other files.
        TargetError: the captures do not reach back, or up, to where the target does; or the rows of a base load came
            from a database, as of an LSN that is gone.
        WalReplayError: as `walreplay.apply` does.
    """
    settings = make_settings(config)
    narrowed = Narrowed(tables_named(table), outputs=outputs_named(outputs))
    folder = None if base is None else os.fspath(base)
    with RunContext.on(spark, target, settings, progress, reads=str(captures)) as context:
        return Rebuilding(SideTables(context, str(captures), narrowed, base_folder=folder)).run()


@dataclass
class Rebuilding:
    """One call of `rebuild`; or a load of rows that are older than what is applied."""

    tables: SideTables

    @property
    def context(self) -> RunContext:
        """The run's."""
        return self.tables.context

    @property
    def _load(self) -> Load | None:
        return None if self.tables.late_load is None else self.tables.late_load.load

    def run(self) -> RunReport:
        """Make the tables in a side target, and put them in place."""
        began = time.monotonic()
        with self.context.at_work():
            report = self._run()
        return timed(replace(report, warnings=tuple(self.context.warnings)), began, self.context.stages)

    def _run(self) -> RunReport:
        context = self.context
        state = context.read()
        finished = None
        if state is not None and state.rebuild is not None:
            state, finished = self._finish(state)
        side = self.tables.side(state)
        if finished is not None and side.name == finished[0]:  # it was this very rebuild
            return finished[1]
        return self._put_in_place(self.tables.make(state, side))

    def _finish(self, state: State) -> tuple[State | None, tuple[str, RunReport] | None]:
        """Finish a rebuild that was interrupted; return also its side target's name, and its report."""
        locked = self.context.lock()
        if locked is None or locked.rebuild is None:
            self.context.ledger.release()  # somebody else has finished it
            return self.context.ledger.read(), None
        name = locked.rebuild.side
        state, report = Installing(self.context, self.tables.captures).finish(locked, resumed=True)
        return state, (name, report)

    # Put in place

    def _put_in_place(self, made: MadeTables) -> RunReport:
        """Compare the side target's tables with the target's, and replace the rows of those that are not right."""
        context, captures = self.context, self.tables.captures
        pairs = self._paired_entries(made)
        made = self._without_given_up(made, [entry for _, entry in pairs])
        with context.stage("compare", len(pairs)):
            table_pairs = [made.pair(side_entry, context) for side_entry, _ in pairs if self._load is None]
            equal_rows = equal_tables(context, table_pairs)
            verdicts = context.each(lambda pair: self._compare(made, *pair, equal_rows.get(pair[0].oid)), pairs)
        steps.reached("compared")
        compared = [(side_entry, entry, verdict) for (side_entry, entry), verdict in zip(pairs, verdicts, strict=True)]
        right = (entry for _, entry, verdict in compared if not verdict.why)
        unchanged = [TableReport(entry.name, entry.table.text, "unchanged", oid=entry.oid) for entry in right]
        replacements = [
            Replacement(side_entry.table, entry, verdict.rows) for side_entry, entry, verdict in compared if verdict.why
        ]
        state = made.noted({side_entry.oid: verdict for side_entry, _, verdict in compared if not verdict.why})
        if not replacements:
            context.ledger.write(state)
            made.remove(context)
            report = context.report(None, "rebuilt", captures, state.reached, unchanged)
            return replace(report, **made.counted)
        run_number = self._next_number(state, [replacement.entry for replacement in replacements])
        rebuild = Rebuild(str(uuid.uuid4()), made.side.name, tuple(replacements), self._load)
        installing = Installing(context, captures)
        begun_state = installing.begin(state, rebuild, run_number)
        steps.reached("rebuild written")  # from here on, any next run finishes the swap
        _, report = installing.finish(begun_state, resumed=False)
        notes = {entry.oid: (f"{verdict.why}: made again",) for _, entry, verdict in compared}
        tables_made = [replace(table, notes=notes.get(table.oid or 0, ())) for table in report.tables]
        return replace(report, **made.counted, tables=tuple(sorted([*tables_made, *unchanged], key=TableReport.order)))

    def _paired_entries(self, made: MadeTables) -> list[tuple[MirrorEntry, MirrorEntry]]:
        """Pair each side table with the entry that it is to have; refuse what has no place, or cannot be made again."""
        target, state = self.context.target, made.state
        target_entries = {entry.oid: entry for entry in state.tables if not entry.is_unmade}
        held = {relation_of(entry.oid) for entry in state.tables if entry.held and self.tables.wants(entry)}
        if held and self.tables.narrowed.outputs is not None:
            raise ConfigError("the outputs of a held table are made again together", remedy="Leave --output out")
        # A held table may have another name by now, or none: then it gives up its place.
        names = {entry.name: entry.oid for entry in made.made.tables if not entry.set_aside}
        given_up = {entry.oid for entry in state.tables if entry.held and names.get(entry.name, entry.oid) != entry.oid}
        holders = {entry.table.place: entry for entry in state.tables if not (entry.set_aside or entry.oid in given_up)}
        pairs, without_place = [], list[str]()
        for side_entry in made.made.tables:
            target_entry = target_entries.get(side_entry.oid)
            is_loaded = self._load is not None and output_of(side_entry.oid).is_whole
            base = self.tables.lacking.get(source_oid(side_entry.oid))
            is_aside = side_entry.set_aside and (side_entry.oid not in given_up or base is not None)
            # One that lies apart, and cannot be made again, is in nobody's way.
            is_free = base is not None and target_entry is not None and target_entry.set_aside
            is_wanted = self.tables.wants(side_entry) or (relation_of(side_entry.oid) in held and not is_free)
            # A change log has no loaded rows: it is as the captures have made it.
            is_kept = self._load is not None and target_entry is not None and not is_loaded
            if not is_wanted or is_kept or (is_aside and not is_loaded):
                continue
            if base is not None:
                raise BaseStep.not_again(base, [side_entry.name], target.text)
            table = target.of_side(made.side.target, side_entry.table)
            if target_entry is not None and not target_entry.set_aside and side_entry.oid not in given_up:
                table = target_entry.table
            holder = holders.get(table.place, side_entry)
            if is_aside or (is_loaded and holder.oid != side_entry.oid and holder.name == side_entry.name):
                without_place.append(side_entry.name)
                continue
            if holder.oid != side_entry.oid:
                raise _occupied_error(side_entry, holder, table)
            opened = OpenedTable(self.context.session, table)  # this ledger may have made it, and held it since
            is_there = target_entry is not None and target_entry.table.place == table.place
            if not is_there and opened.exists and all(each.application != state.ledger for each in opened.made):
                with self.context.sibling_ledgers.apart({table: side_entry.name}):
                    pass  # raises if the table is another source's, and names that source
                problem = "the table is there already, but was not made by this target's ledger"
                remedy = "Nothing was changed; move the table away, and run again"
                raise TargetError(problem, table=side_entry.name, path=table.text, remedy=remedy)
            pairs.append((side_entry, replace(side_entry, table=table, left=None, run="")))
        if without_place:
            raise TargetError(
                "there is no place for the rows: by what was captured, other tables have their names",
                table=listed(without_place),
                path=target.text,
                remedy="Nothing was changed; load a copy of the tables that have these names now. If that is what this "
                "is, write a row of each in the source, apply that, and load again",
            )
        if not pairs:
            raise ConfigError(
                "the captures have no rows of these tables, or the configuration leaves them out",
                table=self.tables.narrowed.tables,
                remedy="Check --config (table_include_list, outputs) and --output",
            )
        return pairs

    def _without_given_up(self, made: MadeTables, installed: Sequence[MirrorEntry]) -> MadeTables:
        """Return what was made, with a target that has nothing of tables whose places others get."""
        places, entries = {entry.table.place for entry in installed}, {entry.oid: entry for entry in made.state.tables}
        names = {entry.oid: entry.name for entry in made.made.tables if not entry.set_aside}
        for oid in entries.keys() - {entry.oid for entry in installed}:
            entry, table = entries[oid], self.context.target.set_aside(oid)
            is_taken = entry.table.place in places and not entry.set_aside
            if is_taken or (entry.held and source_oid(oid) in self.tables.lacking):
                # Under another name it is still held; if its relation has none, it is refused should that come back.
                entry = replace(entry, name=names.get(oid, entry.name), paused=entry.paused if oid in names else OFF)
                entries[oid] = replace(entry, table=table, set_aside=True, left=None, run="") if is_taken else entry
        return replace(made, state=replace(made.state, tables=tuple(entries.values())))

    def _compare(
        self, made: MadeTables, side_entry: MirrorEntry, entry: MirrorEntry, equal_rows: int | None
    ) -> Verdict:
        pair = made.pair(side_entry, self.context)
        with comparing(self.context, entry.name, entry.table.text) as session:
            if self._load is None:
                verdict = pair.verdict(session, made.state.ledger, equal_rows)
            else:
                # Not compared: even equal rows may have other commit LSNs.
                why = "it is new" if pair.entry is None else "its older rows were loaded"
                verdict = Verdict(why, delta.read(session, side_entry.table).count())
            if verdict.why:
                check_readable(session, entry)
        self.context.progress.advance()
        return verdict

    def _next_number(self, state: State, entries: Sequence[MirrorEntry]) -> int:
        """Return a number that no run had, by the ledger and by the tables themselves."""
        session = self.context.session
        refuse_older(self.context, state.run, "rebuild")
        tables = [entry.table for entry in entries if delta.exists(session, entry.table)]
        # Delta skips commits whose number a table has had.
        return 1 + max([state.run, *(run_of(newest_number(session, table, state.ledger)) for table in tables)])


def _occupied_error(side_entry: MirrorEntry, holder: MirrorEntry, table: TableName) -> TargetError:
    """Make the error for a table whose place another one of the target has."""
    name = side_entry.source_name
    return TargetError(
        f"the table's place is that of {holder.name}",
        table=side_entry.name,
        path=table.text,
        remedy="Give one of them a destination_table of its own"
        if holder.source_name != name
        # They were created one after the other, and of the later one nothing was wanted when it came.
        else f"Write a row of {name} in the source, and apply it, which sets the table aside that had the name before; "
        "then rebuild",
    )

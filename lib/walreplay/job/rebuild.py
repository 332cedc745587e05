"""Rebuild: make tables of a target again from the archive, as of the very LSN that the target is at.

The tables are made in a side target (`walreplay.job.side_build`), while runs of the target may come in between.  Then,
under the target's lock, each table is compared (`walreplay.job.compare`); a table that is not right gets the side
table's rows in one commit (`walreplay.job.installing`).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from walreplay.config import Settings, make_settings
from walreplay.config.model import Narrowed, outputs_named, tables_named
from walreplay.delta import statements as delta
from walreplay.delta.target import TableName, catalog_errors
from walreplay.errors import ConfigError, TargetError, listed
from walreplay.job.compare import Rightness, check_readable, rightness_of
from walreplay.job.context import RunContext
from walreplay.job.installing import Installing, remove_side
from walreplay.job.side_build import BaseStep, Side, SideBuild
from walreplay.job.source_check import check_unshared
from walreplay.job.standing import newest_number, refuse_older
from walreplay.ledger.runs import loads_of
from walreplay.ledger.state import FORMAT, PLANNED, Rebuild, Replacement, State
from walreplay.names import Output, RowKind, output_of, source_oid
from walreplay.progress import Progress
from walreplay.report import RunReport, TableReport, timed
from walreplay.session import steps
from walreplay.session.failures import spark_errors
from walreplay.session.isolation import session_with
from walreplay.spark.captures import root_of
from walreplay.table.certainty import anew
from walreplay.table.registry import MirrorEntry
from walreplay.table.table_run import run_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NOT_OF_TABLES: Final = frozenset({"staging", "ledger_keep_days"})  # they change nothing of what tables hold


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
        target: the folder of the Delta tables, a catalog, or ``catalog.schema``.
        table: a regular expression over the whole of the source's ``schema.table``.
        outputs: those that are made again; None for all that the configuration wants.
        config: a YAML file, the same as a mapping, or `Settings`.
        base: where the files of the tables' base load lie now, if they were moved.
        progress: shows how far it is.

    Raises:
        ConfigError: no table is called so, or the configuration leaves it out; or its base load had other files.
        TargetError: the captures do not reach back, or up, to where the target does; or the rows of a base load came
            from a database, as of an LSN that is gone.
        WalReplayError: as `walreplay.apply` does.
    """
    settings, chosen_outputs = make_settings(config), outputs_named(outputs)
    narrowed = Narrowed(tables_named(table), outputs=chosen_outputs)
    folder = None if base is None else os.fspath(base)
    with RunContext.on(spark, target, settings, progress, reads=str(captures)) as context:
        return Rebuilding(context, str(captures), narrowed, base_folder=folder).run()


@dataclass
class Rebuilding:
    """One call of `rebuild`; or a load of rows that are older than what is applied.

    Attributes:
        late_load: that load; its tables are made again, whatever they are called by now.
        base_folder: where the files of the tables' base load are now; None for where they were.
    """

    context: RunContext
    captures: str
    narrowed: Narrowed
    late_load: BaseStep | None = None
    base_folder: str | None = None

    def run(self) -> RunReport:
        """Make the tables in a side target, and put them in place."""
        began = time.monotonic()
        with self.context.at_work():
            report = self._run()
        return timed(replace(report, warnings=tuple(self.context.warnings)), began, self.context.stages)

    def _run(self) -> RunReport:
        context = self.context
        with context.stage("read ledger"), catalog_errors(context.target):
            state = context.ledger.read()
        finished = None
        if state is not None and state.rebuild is not None:
            state, finished = self._finish(state)
        side = self._side(state)
        if finished is not None and side.name == finished[0]:  # it was this very rebuild
            return finished[1]
        assert state is not None
        made, report = self._side_build(side).make(state)
        steps.reached("side target made")
        locked = self.context.lock()
        if locked is not state:
            # Another run has ended since; only what that run has applied is read for the side target now.
            side = self._side(locked)
            assert locked is not None
            state = locked
            made, report = self._side_build(side).make(state)
        return self._put_in_place(state, side, made.tables, report)

    def _side_build(self, side: Side) -> SideBuild:
        late_lsn = None if self.late_load is None else self.late_load.load.at_lsn
        return SideBuild(self.context, self.captures, side, late_lsn)

    def _finish(self, state: State) -> tuple[State | None, tuple[str, RunReport] | None]:
        """Finish a rebuild that was interrupted; return also its side target's name, and its report."""
        locked = self.context.lock()
        if locked is None or locked.rebuild is None:
            self.context.ledger.release()  # somebody else has finished it
            return self.context.ledger.read(), None
        name = locked.rebuild.side
        state, report = Installing(self.context, self.captures).finish(locked, resumed=True)
        return state, (name, report)

    # What is wanted

    def _side(self, state: State | None) -> Side:
        """Return where the tables are made, after the target has been looked at."""
        target_state = self._rebuildable_state(state)
        oids = self._related_oids(target_state)
        settings = self.context.settings
        outputs = self.narrowed.outputs
        loads = (self.late_load,) if self.late_load is not None else self._base_loads(target_state, oids)
        fingerprint_parts = [
            FORMAT,
            target_state.ledger,
            self.narrowed.tables,
            sorted(oids),
            None if outputs is None else sorted(output.value for output in outputs),
            settings.model_dump(mode="json", exclude=set(_NOT_OF_TABLES)),
            settings.mask_salt.hex(),
            settings.allow_gaps,
            [(step.load.at_lsn, step.load.after, sorted(step.only)) for step in loads],
        ]
        name = hashlib.sha256(json.dumps(fingerprint_parts, sort_keys=True).encode()).hexdigest()[:16]
        narrowed = settings.narrowed(Narrowed(oids=frozenset(oids), outputs=outputs))
        return Side(name, self.context.target.side(name), narrowed, loads)

    def _rebuildable_state(self, state: State | None) -> State:
        """Refuse a target of which nothing can be made again.

        Raises:
            TargetError: saying why.
        """
        context = self.context
        where = context.target.text
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
                "again; then rebuild",
            )
        if state.rebuild is not None or state.load is not None:
            what = "rebuild" if state.load is None else "load"
            problem = f"{what} {state.run} was interrupted meanwhile"
            raise TargetError(problem, path=where, remedy="Run again, which finishes it")
        check_unshared([entry for entry in state.tables if self._wants(entry)])
        return state

    def _wants(self, entry: MirrorEntry) -> bool:
        """Return whether a table is to be made again: of a late load those that have its rows, whatever their names."""
        if self.late_load is not None:
            # By oid: a table that has taken a loaded table's name since would be made without its own base's rows.
            return source_oid(entry.oid) in self.late_load.load.oids
        return self.narrowed.wants(entry.source_name)

    def _base_loads(self, state: State, oids: Collection[int]) -> tuple[BaseStep, ...]:
        """Return the base loads that the wanted tables begin with, in their order."""
        outputs = self.narrowed.outputs
        loaded_entries = [
            entry
            for entry in state.tables
            if entry.base_lsn is not None
            and not entry.set_aside
            and self._wants(entry)
            and (outputs is None or output_of(entry.oid) in outputs)
        ]
        if not loaded_entries and self.base_folder is not None:
            problem = "none of these tables has a base load"
            raise ConfigError(problem, path=self.context.target.text, remedy="Leave out --base")
        if not loaded_entries:
            return ()
        with self.context.stage("read ledger"):
            runs = delta.read(self.context.session, self.context.target.ledger("runs"))
            loads = [load for _, load in loads_of(runs, state)]
        versioned = {source_oid(entry.oid) for entry in loaded_entries if output_of(entry.oid).rows is RowKind.VERSION}
        base_steps, resolved_oids, overwritten = list[BaseStep](), set[int](), set[int]()
        for load in reversed(loads):  # newest first: a late load ends what counts of older ones
            # A later load has overwritten the rows of a mirror; those of a history are versions that stay.
            unneeded = resolved_oids | (overwritten - versioned if load.files is None else set())
            load_tables = {oid: name for oid, name in load.tables if oid in oids and oid not in unneeded}
            overwritten |= load_tables.keys()
            if load.late:
                # A late load has made these tables anew, so they begin with it; older loads do not count.
                resolved_oids |= load_tables.keys()
            if load_tables:
                only = frozenset(load_tables.values())
                base_steps.append(BaseStep.again(load, self.base_folder, only, self.context.target.text))
        # Loads between which nothing was applied keep their order: the sort is stable.
        base_steps.reverse()
        base_steps.sort(key=lambda step: step.load.after)
        if self.base_folder is not None and len(base_steps) > 1:
            raise ConfigError(
                f"the tables have {len(base_steps)} base loads, which lie in {len(base_steps)} folders",
                path=self.context.target.text,
                remedy="Make tables of one load at a time by --table; or bring the files back to where they were",
            )
        return tuple(base_steps)

    def _related_oids(self, state: State) -> set[int]:
        """Return the relations (by oid) that the tables may be made of: all that ever had one of their names.

        The runs find out which of them has a name in the end, and which older rows it keeps.
        """
        names: dict[int, set[str]] = {}  # every name that a relation ever had
        parts: dict[str, tuple[str, str]] = {}
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
        oids = {oid for oid, relation_names in names.items() if any(map(self.narrowed.wants, relation_names))}
        if not oids:
            all_names = sorted({name for relation_names in names.values() for name in relation_names})
            suggestions = difflib.get_close_matches((self.narrowed.tables or "").replace("\\", ""), all_names, 3)
            raise ConfigError(
                f"no table of the source was ever called {self.narrowed.tables}",
                path=self.context.target.text,
                remedy="--table is a regular expression over the whole of schema.table; there are "
                + listed(suggestions or all_names),
            )
        self._check_kept(names, parts)
        while True:
            # The closure: relations that share a name, directly or through others, may have passed rows on.
            shared_names = set().union(*(names[oid] for oid in oids))
            related_oids = {oid for oid, relation_names in names.items() if relation_names & shared_names} - oids
            if not related_oids:
                return oids
            oids |= related_oids

    def _check_kept(self, names: Mapping[int, Iterable[str]], parts: Mapping[str, tuple[str, str]]) -> None:
        """Refuse a name that passed from one relation to another if the new one may have kept the old one's rows.

        That depends on whether both changed in one run, and the runs of the side target end elsewhere.
        """
        settings = self.context.settings
        holder_counts = Counter(name for relation_names in names.values() for name in relation_names)
        for name, count in sorted(holder_counts.items()):
            if count < 2 or name not in parts or not self.narrowed.wants(name):  # one holder: nothing has passed
                continue
            table = settings.table(*parts[name])
            table_policy = None if table is None else table.on_recreate
            if (table_policy or settings.on_recreate) == "keep":  # with replace the rows do not pass on
                raise TargetError(
                    "the table was dropped and created again, or another one had its name, and on_recreate is keep: "
                    "which of the old rows it has kept hangs on where the target's runs have ended",
                    table=name,
                    path=self.context.target.text,
                    remedy=f"Leave {name} out of --table; or set on_recreate: replace, which makes it without old rows",
                )

    # Put in place

    def _put_in_place(self, state: State, side: Side, made: Sequence[MirrorEntry], side_report: RunReport) -> RunReport:
        """Compare the side target's tables with the target's, and replace the rows of those that are not right."""
        entries = self._paired_entries(state, side, made)
        with self.context.stage("compare", len(entries)):
            verdicts = self.context.each(lambda pair: self._compare(state, *pair), entries)
        steps.reached("compared")
        names = ("files", "capture_bytes", "transactions", "changes")
        counted: dict[str, Any] = {name: getattr(side_report, name) for name in names}
        equal_entries = [entry for (_, entry), verdict in zip(entries, verdicts, strict=True) if not verdict.why]
        unchanged = [TableReport(entry.name, entry.table.text, "unchanged", oid=entry.oid) for entry in equal_entries]
        replacements = [
            (Replacement(side_entry.table, entry, verdict.rows), verdict.why)
            for (side_entry, entry), verdict in zip(entries, verdicts, strict=True)
            if verdict.why
        ]
        # A table that proves right has only the doubts of its making from now on; its older versions keep theirs.
        equal_doubts = {entry.oid: entry.doubts for entry in equal_entries}
        tables = tuple(
            replace(entry, doubts=anew(entry.doubts, equal_doubts[entry.oid], state.reached[0], state.run + 1))
            if entry.oid in equal_doubts
            else entry
            for entry in state.tables
        )
        if not replacements:
            if tables != state.tables:
                self.context.ledger.write(replace(state, tables=tables))
            with self.context.stage("clean up"):
                note = remove_side(self.context.session, side.target, [entry.table for entry in made])
            self.context.warnings.extend([] if note is None else [note])
            report = self.context.report(None, "rebuilt", self.captures, state.reached, unchanged)
            return replace(report, **counted)
        run_number = self._next_number(state, [replacement.entry for replacement, _ in replacements])
        load = None if self.late_load is None else self.late_load.load
        rebuild = Rebuild(str(uuid.uuid4()), side.name, tuple(replacement for replacement, _ in replacements), load)
        installing = Installing(self.context, self.captures)
        begun_state = installing.begin(replace(state, tables=tables), rebuild, run_number)
        steps.reached("rebuild written")  # from here on, any next run finishes the swap
        _, report = installing.finish(begun_state, resumed=False)
        notes = {replacement.entry.oid: f"{why}: made again" for replacement, why in replacements}
        tables_made = [replace(table, notes=(notes[table.oid],)) for table in report.tables if table.oid is not None]
        return replace(report, **counted, tables=tuple(sorted([*tables_made, *unchanged], key=TableReport.order)))

    def _paired_entries(
        self, state: State, side: Side, made: Sequence[MirrorEntry]
    ) -> list[tuple[MirrorEntry, MirrorEntry]]:
        """Pair each table in the side target with the entry that it is to have in the target.

        Raises:
            ConfigError: the configuration wants none of the tables.
            TargetError: a table's place is another one's.
        """
        target = self.context.target
        target_entries = {entry.oid: entry for entry in state.tables}
        holders = {entry.table.place: entry for entry in state.tables if not entry.set_aside}
        pairs, without_place = [], list[str]()
        for side_entry in made:
            target_entry = target_entries.get(side_entry.oid)
            is_loaded = self.late_load is not None and output_of(side_entry.oid).is_whole
            if not self._wants(side_entry) or (side_entry.set_aside and not is_loaded):
                continue
            if self.late_load is not None and target_entry is not None and not is_loaded:
                # A change log has no loaded rows: it is as the captures have made it.
                continue
            is_there = target_entry is not None and not target_entry.set_aside
            side_table = target.of_side(side.target, side_entry.table)
            table = target_entry.table if target_entry is not None and is_there else side_table
            holder = holders.get(table.place, side_entry)
            if side_entry.set_aside or (is_loaded and holder.oid != side_entry.oid and holder.name == side_entry.name):
                without_place.append(side_entry.name)
                continue
            if holder.oid != side_entry.oid:
                raise _occupied_error(side_entry, holder, table)
            if target_entry is None and delta.exists(self.context.session, table):
                with self.context.apart({table: side_entry.name}):
                    pass  # raises if the table is another source's, and names that source
                raise TargetError(
                    "the table is there already, but was not made by this target's ledger",
                    table=side_entry.name,
                    path=table.text,
                    remedy="Nothing was changed; move the table away, and run again",
                )
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
                table=self.narrowed.tables,
                remedy="Check --config (table_include_list, outputs) and --output",
            )
        return pairs

    def _compare(self, state: State, side_entry: MirrorEntry, entry: MirrorEntry) -> Rightness:
        settings = self.context.settings
        columns = tuple(name for name in (settings.commit_lsn_column, settings.commit_ts_column) if name is not None)
        target_entry = {ledger_entry.oid: ledger_entry for ledger_entry in state.tables}.get(entry.oid)
        with (
            spark_errors(table=entry.name, path=entry.table.text),
            session_with(self.context.spark, delta.SMALL_STATE) as session,
        ):
            if self.late_load is None:
                verdict = rightness_of(session, state.ledger, target_entry, side_entry, columns)
            else:
                # Not compared: even equal rows may have other commit LSNs.
                why = "it is new" if target_entry is None else "its older rows were loaded"
                verdict = Rightness(why, delta.read(session, side_entry.table).count())
            if verdict.why:
                check_readable(session, entry)
        self.context.progress.advance()
        return verdict

    def _next_number(self, state: State, entries: Sequence[MirrorEntry]) -> int:
        """Return a number that no run had, by the ledger and by the tables themselves."""
        context = self.context
        refuse_older(context, state.run, "rebuild")
        numbers = [state.run]  # Delta skips commits whose number a table has had
        for entry in entries:
            if delta.exists(context.session, entry.table):
                numbers.append(run_of(newest_number(context.session, entry.table, state.ledger)))
        return max(numbers) + 1


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

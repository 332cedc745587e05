"""Verify: compare a target's tables with what the archive makes of them, as of the very LSN that the target is at.

Or with the source: with rows that it had at an LSN, and what the archive has behind that (`walreplay.job.source_rows`).
The tables are made beside the target, as `walreplay.job.rebuild` does, and are removed once they were compared.  What
has come of it stands in the ledger, for each table.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from walreplay.config import Settings, make_settings
from walreplay.config.model import Narrowed, outputs_named, tables_named
from walreplay.delta import statements as delta
from walreplay.delta.opened import OpenedTable
from walreplay.delta.target import TableName
from walreplay.errors import ConfigError
from walreplay.job.compare import CHANGED, EXTRA, MISSING, TablePair, Verdict, comparing, equal_tables
from walreplay.job.context import RunContext
from walreplay.job.side_tables import MadeTables, SideTables
from walreplay.job.source_check import lie_apart
from walreplay.job.source_rows import SourcePlace, SourceRows
from walreplay.ledger.state import State, now
from walreplay.lsn import to_datetime
from walreplay.names import Output, output_of, source_oid
from walreplay.progress import Progress
from walreplay.report import TableVerification, VerifyReport, worst_of
from walreplay.session import steps
from walreplay.table.registry import ARCHIVE, MirrorEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DIFFERENCES: Final = {
    "verified_at": "TIMESTAMP",
    "applied_lsn": "BIGINT",
    "table": "STRING",
    "kind": "STRING",
    "key": "STRING",
    "columns": "ARRAY<STRING>",
    "expected": "STRING",
    "found": "STRING",
}

_EARLY: Final = "captures end before the LSN of the source's rows: run it again once they reach it, or give --wait"


def verify(
    spark: SparkSession,
    target: str | os.PathLike[str],
    captures: str | os.PathLike[str] | None = None,
    *,
    source: str | os.PathLike[str] | None = None,
    publication: str | None = None,
    consistent_point: int | str | None = None,
    snapshot: str | None = None,
    describe: str | os.PathLike[str] | None = None,
    wait: float = 0.0,
    table: str | None = None,
    outputs: Iterable[str | Output] | None = None,
    differences: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    base: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Compare tables of a target with what the archive makes of them, or with their source; none is written to.

    Killed, the same call goes on where it was.  With a source, the target is brought to the LSN of the source's rows
    first, as by `walreplay.apply`.

    Args:
        target, config, progress: as `walreplay.apply` takes them.
        captures: the capture files, from the first that the target was made of; by default the configuration's, or
            those that were applied last.
        source: the folder that base.sh has written; or ``jdbc:postgresql://host/database``, of which a snapshot is read
            that lasts no longer.  None to compare with the archive alone.
        publication: of a database: whose tables are read.
        consistent_point, describe: of copies, where they are not in the files that base.sh has written beside them.
        snapshot: of a database: an exported one, in place of one that is made; with its consistent_point.
        wait: seconds for captures that reach the source's rows, and, at least a minute, for transactions that are open.
        table: a regular expression over the whole of the source's ``schema.table``; None for all tables.
        outputs: those that are compared; None for all that the configuration wants.
        differences: a Delta table (a path or URI) to which rows that differ are added, with their values.
        base: where the files of the tables' base load lie now, if they were moved.

    Raises:
        ConfigError: no table is called so; or the place of the differences is one of the target's or the captures'.
        TargetError: the captures do not reach back, or up, to where the target does; the source gives no snapshot.
        WalReplayError: as `walreplay.apply` does.
    """
    settings, chosen_outputs = make_settings(config), outputs_named(outputs)
    of_source = None
    if source is not None:
        described = None if describe is None else os.fspath(describe)
        of_source = SourcePlace(os.fspath(source), described, consistent_point, publication, snapshot, wait)
        # Nothing of a source says what has changed when.
        chosen_outputs = tuple(output for output in chosen_outputs or Output if output.is_whole)
    narrowed = Narrowed(None if table is None else tables_named(table), outputs=chosen_outputs)
    folder = None if base is None else os.fspath(base)
    given = settings.captures_uri if captures is None else str(captures)
    place = None if differences is None else os.fspath(differences)
    with RunContext.on(spark, target, settings, progress, reads=given) as context:
        began = time.monotonic()
        with context.at_work():
            report = _Verifying(context, narrowed, of_source, place, now()).run(given, folder)
        return replace(report, seconds=time.monotonic() - began, stages=dict(context.stages))


@dataclass
class _Verifying:
    """One call of `verify`.

    Attributes:
        of_source: where the source's rows are; None to compare with the archive.
        differences: where rows that differ are written; None for nowhere.
        began: when.
    """

    context: RunContext
    narrowed: Narrowed
    of_source: SourcePlace | None
    differences: str | None
    began: datetime

    def run(self, captures: str | None, base_folder: str | None) -> VerifyReport:
        """Make the tables beside the target, compare them, and note in the ledger what has come of it."""
        context, of_source = self.context, self.of_source
        state = context.read()
        captures = captures or ("" if state is None else state.captures)
        if self.differences is not None:
            self._prepare(self.differences, captures)
        tables = SideTables(context, captures, self.narrowed, base_folder=base_folder, skips=True)
        if of_source is not None:
            self._check_filters()
            source_rows = SourceRows(context, captures, self.narrowed, of_source)
            tables, state = source_rows.tables(tables.check(state))
        made, verdicts = self._verdicts(tables, state)
        needed_lsn = -1 if of_source is None else _needed_lsn(source_rows, made, verdicts)
        if of_source is not None and of_source.wait > 0 and made.state.reached[0] < needed_lsn:
            context.ledger.release()
            made, verdicts = self._verdicts(tables, source_rows.waited(made.state, needed_lsn))
            needed_lsn = _needed_lsn(source_rows, made, verdicts)
        if of_source is not None:
            source_rows.check()
        is_early = made.state.reached[0] < needed_lsn
        results = context.each(lambda pair: self._result(made, *pair, is_early=is_early), verdicts)
        against = ARCHIVE if of_source is None else of_source.origin
        compared = {result.oid for result in results if result.result != "not compared"}
        noted = {entry.oid: verdict for entry, verdict in verdicts if entry.oid in compared}
        state = made.noted(noted, against)
        if of_source is not None:
            is_awaited = is_early and source_rows.latest == source_rows.load.at_lsn  # no later one is kept with them
            state = replace(state, awaiting=(tables.name or "") if is_awaited else "")
        if not is_early:  # else the source's rows are compared once captures have come
            context.ledger.check_lock()
            made.remove(context)
        context.ledger.write(state)
        lsn, commit_time = made.state.reached
        in_order = [*results, *self._uncompared(tables, made, {entry.oid for entry, _ in verdicts})]
        in_order.sort(key=lambda result: (result.name, result.oid or 0))
        return VerifyReport(
            result=worst_of(in_order),
            against=against,
            captures=captures,
            target=context.target.text,
            applied_lsn=lsn,
            applied_commit_ts=to_datetime(commit_time),
            source_lsn=None if tables.late_load is None else tables.late_load.load.at_lsn,
            tables=tuple(in_order),
            differences=self.differences,
            warnings=tuple(context.warnings),
            seconds=0.0,
            stages={},
        )

    def _check_filters(self) -> None:
        """Refuse to hold a target against its source that is not to be like it.

        Raises:
            ConfigError: the configuration leaves out changes.
        """
        settings = self.context.settings
        if settings.skipped_operations or settings.origin_include_list or settings.origin_exclude_list:
            raise ConfigError(
                "the configuration leaves out changes (skipped_operations, or origins), so that the tables are not "
                "like the source's",
                path=self.context.target.text,
                remedy="Compare them with the archive, without --from",
            )

    def _uncompared(self, tables: SideTables, made: MadeTables, compared: set[int]) -> Iterator[TableVerification]:
        """Yield the tables that are wanted, and were not made to be compared."""
        by_source = self.of_source is not None
        instead = "" if by_source else "; compare it with its source, by --from"
        why = "the source sends no rows of it" if by_source else "the archive makes no such table"
        for entry in made.state.tables:
            error = tables.skipped.get(source_oid(entry.oid))
            is_wanted = self.narrowed.wants(entry.source_name) and self.narrowed.wants_output(output_of(entry.oid))
            is_out = entry.oid in compared or (entry.set_aside and not (entry.held and entry.is_unmade))
            if is_out or not is_wanted:
                continue
            reason = why if error is None else f"{error.problem}{instead}"
            result = TableVerification(entry.name, entry.table.text, "not compared", reason, oid=entry.oid)
            if self._is_left_out(made.state, entry):
                result = replace(result, result="left out", reason="the configuration leaves it out")
            yield result

    def _is_left_out(self, state: State, entry: MirrorEntry) -> bool:
        """Return whether the configuration wants no such table any more."""
        settings, relations = self.context.settings, () if state.resume is None else state.resume.relations
        relation = next((relation for relation in relations if relation.oid == source_oid(entry.oid)), None)
        if relation is None:
            return False
        name = relation.namespace or "pg_catalog", relation.name
        return settings.leaves_out(*name) or output_of(entry.oid) not in settings.outputs_of(*name)

    def _prepare(self, place: str, captures: str) -> None:
        """Make the table of the differences, if it is not there.

        Raises:
            ConfigError: its place is one of the captures' or the target's, or has another table.
        """
        root = self.context.target.root
        if not lie_apart(place, captures) or (root is not None and not lie_apart(place, root)):
            problem = "the differences would lie in the target's folder, or in that of the captures"
            raise ConfigError(problem, path=place, remedy="Give --differences a folder of its own, beside them")
        table = OpenedTable(self.context.session, TableName(path=place))
        if not table.exists:
            columns = ", ".join(f"`{name}` {kind}" for name, kind in _DIFFERENCES.items())
            self.context.session.createDataFrame([], columns).write.format("delta").save(place)
        elif table.columns.names != list(_DIFFERENCES):
            problem = "there is another table, whose columns are not those of differences"
            raise ConfigError(problem, path=place, remedy="Give --differences a folder of its own")

    def _verdicts(
        self, tables: SideTables, state: State | None
    ) -> tuple[MadeTables, list[tuple[MirrorEntry, Verdict]]]:
        """Make the tables, and compare each under the target's lock."""
        context, by_source = self.context, self.of_source is not None
        made = tables.make(state, tables.side(state))
        # Beside the target nothing sets a table aside whose name a skipped one has taken.
        aside = {entry.oid for entry in made.state.tables if entry.set_aside and tables.skipped and not by_source}
        chosen = [entry for entry in made.made.tables if tables.wants(entry) and not entry.set_aside]
        chosen = [entry for entry in chosen if entry.oid not in aside]
        pairs = [made.pair(right, context, of_source=by_source) for right in chosen]

        def compare(pair: TablePair) -> Verdict:
            with comparing(context, pair.right.name, pair.right.table.text) as session:
                verdict = pair.verdict(session, made.state.ledger, equal_rows.get(pair.right.oid))
            context.progress.advance()
            return verdict

        with context.stage("compare", len(chosen)):
            equal_rows = equal_tables(context, pairs)
            verdicts = context.each(compare, pairs)
        steps.reached("compared")
        return made, list(zip(chosen, verdicts, strict=True))

    def _result(self, made: MadeTables, right: MirrorEntry, verdict: Verdict, *, is_early: bool) -> TableVerification:
        """Return what has come of a table.

        Args:
            is_early: the target has not reached the LSN of the source's rows, or of a TRUNCATE that has emptied copies.
        """
        entry = {entry.oid: entry for entry in made.state.tables}.get(right.oid)
        place = "" if entry is None else entry.table.text
        result = TableVerification(right.name, place, "equal", verdict.why, verdict.rows, oid=right.oid)
        if entry is None and self.of_source is not None and not verdict.rows:
            return replace(result, reason="the source has no rows of it, and the target no such table yet")
        if entry is None or entry.set_aside:
            why = "the target has no such table: walreplay rebuild makes it, or load"
            return replace(result, result="not compared", reason=why)
        if not verdict.is_read:
            return replace(result, result="not compared")
        if verdict.has_right_rows:
            return result
        if is_early and verdict.comparison is not None:
            return replace(result, result="not compared", reason=_EARLY)
        result = replace(result, result="different")
        if verdict.comparison is None:
            return result
        with comparing(self.context, right.name, place) as session:
            return self._counted(session, result, verdict.comparison.differences(), made.state.reached[0])

    def _counted(
        self, session: SparkSession, result: TableVerification, rows: DataFrame, lsn: int
    ) -> TableVerification:
        """Write the rows that differ where that is wanted, and count them."""
        if self.differences is not None:
            constants = {"verified_at": self.began, "applied_lsn": lsn, "table": result.name}
            named = rows.select("*", *(f.lit(value).alias(name) for name, value in constants.items()))
            typed = named.select(*(f.col(name).cast(kind).alias(name) for name, kind in _DIFFERENCES.items()))
            typed.write.format("delta").mode("append").save(self.differences)
            written = delta.read(session, TableName(path=self.differences))
            rows = written.where((f.col("verified_at") == self.began) & (f.col("table") == result.name))
        # One pass: an empty name counts rows, and no column has it.
        names = f.explode(f.concat(f.array(f.lit("")), "columns")).alias("column")
        counts = Counter[tuple[str, str]]()
        for row in rows.select("kind", names).groupBy("kind", "column").count().collect():
            counts[row.kind, row.column] = row["count"]
        columns = {name: count for (_, name), count in sorted(counts.items()) if name}
        missing, extra, changed = (counts[kind, ""] for kind in (MISSING, EXTRA, CHANGED))
        return replace(result, missing=missing, extra=extra, changed=changed, columns=columns)


def _needed_lsn(rows: SourceRows, made: MadeTables, verdicts: Sequence[tuple[MirrorEntry, Verdict]]) -> int:
    """Return the LSN that the target has to reach to be like a source that it differs from; -1 where all is equal.

    Nobody knows whether a source at rest has committed anything in between; where all is equal, it has not.
    """
    rows_at = {entry.oid: entry.rows_at for entry in made.state.tables}
    if all(verdict.has_right_rows or (entry.oid not in rows_at and not verdict.rows) for entry, verdict in verdicts):
        return -1
    # A table may have been loaded with later rows than what is applied.
    return max([rows.latest, *(rows_at.get(entry.oid, -1) for entry, _ in verdicts)])

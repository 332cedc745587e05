"""Audit an archive: everything that is damaged or missing, not only the first, and what it holds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from walreplay.errors import CaptureError, UnknownRelation, WalReplayError
from walreplay.progress import NoProgress, Progress
from walreplay.protocol.messages import Relation
from walreplay.settings import Settings, make_settings
from walreplay.spark.index.audited import (
    AuditReport,
    NumberHole,
    Overlap,
    Problem,
    Stretch,
    TableAudit,
    Torn,
    own_warnings,
)
from walreplay.spark.index.building import Archive, archive_of
from walreplay.spark.index.decoding import Span, Values, compare_copies, count_values
from walreplay.spark.index.facts import FileFacts, Open, RelationRows
from walreplay.spark.index.joining import NOTHING_READ, Joined, Joining
from walreplay.spark.index.recording import Recording
from walreplay.transactions.plan import Plan
from walreplay.transactions.stitch import Stitch
from walreplay.transactions.twins import TwinError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def audit(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    index: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    progress: Progress | None = None,
    *,
    values: bool = False,
) -> AuditReport:
    """Read all files of an archive, and find out what it holds and all that is damaged or missing; nothing is applied.

    Args:
        captures: the folder (or file, or glob) of the capture files.
        index: the place of an index.  Each file's bytes are compared with the checksum that it has of them, and files
            that it lacks are added to it; if it cannot be written, the audit goes on.  None writes nothing anywhere.
        config: as `walreplay.apply` takes it.
        progress: told how far it is.
        values: decode everything, to count rows, bytes and rescued values by table.

    Raises:
        WalReplayError: there is no archive, or Spark fails.  What is wrong with its files is in the report.
    """
    began, wanted, told = time.monotonic(), make_settings(config), progress or NoProgress()
    with archive_of(spark, str(captures), None if index is None else str(index), wanted, told) as archive:
        told.stage("scan", len(archive.files))
        joining = Joining(
            archive.spark,
            wanted,
            archive.files,
            archive.index,
            told,
            holes=archive.holes,
            lenient=True,
            reads_all=True,
            write=Recording.forget if index is None else Recording.add_sound,
        )
        found, agreeing = Findings(archive.index.name_of), 0
        for joined in joining.run():
            found.take(joined)
            if index is not None and joined.facts is not None:
                compared = archive.index.compare(joined.facts)
                agreeing += compared is True
                if isinstance(compared, CaptureError):
                    found.note(compared)
        plan = found.plan_of(joining.stitch)
        if plan is not None and found.resent:
            told.stage("compare copies", None)
            spans = found.spans_of(plan)
            for problem in compare_copies(archive.spark, wanted, plan, spans, found.resent, found.highs):
                found.note(problem, copy=True)
        counts: dict[Relation, Values] | None = None
        if plan is not None and values:
            told.stage("count values", None)
            counts, problems = count_values(archive.spark, wanted, plan)
            for problem in problems:
                found.note(problem)
        report = _report(str(captures), archive, joining, found, plan, counts, time.monotonic() - began)
        return report if index is None else replace(report, index=archive.index.table.text, as_indexed=agreeing)


def _report(
    captures: str,
    archive: Archive,
    joining: Joining,
    found: Findings,
    plan: Plan | None,
    counts: Mapping[Relation, Values] | None,
    seconds: float,
) -> AuditReport:
    state = joining.stitch.state
    warnings = plan.warnings if plan is not None else tuple(state.warnings)
    if joining.unwritten is not None:
        warnings = (*warnings, f"the index was not written: {joining.unwritten}")
    return AuditReport(
        captures=captures,
        files=len(archive.files),
        capture_bytes=archive.size,
        files_read=len(joining.read),
        transactions=state.transactions,
        resent=state.resent,
        changes=found.changes,
        sessions=found.sessions,
        coverage=found.coverage,
        problems=tuple(found.problems),
        holes=tuple(found.holes),
        overlaps=tuple(found.overlaps),
        torn=tuple(found.torn),
        tables=found.tables_with(plan, counts),
        open=found.open,
        unfinished_bytes=found.unfinished,
        copies_compared=plan is not None and bool(found.resent),
        values_counted=counts is not None,
        warnings=own_warnings(warnings),
        seconds=seconds,
    )


@dataclass
class _Table:
    """What is known of a relation so far; ``missing``: see `TableAudit.base`."""

    rows: RelationRows
    first_file: str
    last_file: str
    missing: bool


@dataclass
class Findings:
    """What an audit has found so far.

    Attributes:
        name_of: gives a path's name below the archive's folder.
        resent: where transactions have come again, and ``highs`` the highest commit LSN in front of each session.
        spans: the commit LSNs of each file, by path.
    """

    name_of: Callable[[str], str]
    problems: list[Problem] = field(default_factory=list)
    holes: list[NumberHole] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    torn: list[Torn] = field(default_factory=list)
    resent: list[Span] = field(default_factory=list)
    highs: dict[int, int] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    tables: dict[int, _Table] = field(default_factory=dict)
    open: tuple[Open, ...] = ()
    unfinished: int = 0
    changes: int = 0
    sessions: int = 0
    _stretches: list[Stretch] = field(default_factory=list)
    _is_cut: bool = True
    _is_unknown: bool = False

    @property
    def coverage(self) -> tuple[Stretch, ...]:
        """The stretches of files in which nothing is missing."""
        return tuple(self._stretches)

    def note(self, error: WalReplayError, *, copy: bool = False) -> None:
        """Take up a problem; if nothing can be read in files in a row, as something is missing, it is one.

        Args:
            copy: it was found when copies of transactions were compared.
        """
        is_unknown = isinstance(error, UnknownRelation) or error.problem == NOTHING_READ
        problem = Problem.of(error, copy=copy)
        problem = replace(problem, file=None if problem.file is None else self.name_of(problem.file))
        if is_unknown and self._is_unknown:
            # One thing is missing, and all files suffer from it.
            self.problems[-1] = replace(self.problems[-1], files=self.problems[-1].files + 1)
            return
        self._is_unknown = is_unknown
        self.problems.append(problem)

    def take(self, joined: Joined) -> None:
        """Take up the next file."""
        for gap in joined.gaps:
            self.note(gap)
        # The stream goes on behind a file that does not belong to it.
        belongs = joined.facts is not None or not all(_is_foreign(gap) for gap in joined.gaps)
        self._is_cut |= belongs and bool(joined.gaps)
        if joined.hole is not None:
            hole, name_of = joined.hole, self.name_of
            self.holes.append(
                NumberHole(name_of(hole.before), name_of(hole.after), hole.missing, name_of(hole.example))
            )
            self._is_cut = True
        facts = joined.facts
        if facts is None:
            return
        self._cover(facts, joined)
        self.changes += facts.changes
        self.sessions += facts.sessions
        self.open, self.unfinished = facts.open_at_end, facts.unfinished_bytes
        if facts.torn_bytes:
            self.torn.append(Torn(facts.name, facts.torn_bytes))
        for rows in facts.relations:
            self._count(rows, facts.name)
        self._note_sessions(facts, joined)

    def _cover(self, facts: FileFacts, joined: Joined) -> None:
        own = Stretch(
            facts.name,
            facts.name,
            1,
            facts.transactions - facts.resent,
            facts.first_lsn,
            facts.last_lsn,
            facts.first_commit_ts,
            facts.last_commit_ts,
        )
        if self._is_cut or not self._stretches:
            self._stretches.append(own)
        else:
            self._stretches[-1] = _with(self._stretches[-1], own)
        self._is_cut = False

    def _count(self, rows: RelationRows, file: str) -> None:
        known = self.tables.get(rows.oid)
        if known is None:
            missing = not rows.inserts and not rows.truncates and rows.updates + rows.deletes > 0
            self.tables[rows.oid] = _Table(rows, file, file, missing)
            return
        before = known.rows
        known.rows = RelationRows(
            rows.oid,
            rows.namespace if rows.name is not None else before.namespace,
            rows.name if rows.name is not None else before.name,
            before.inserts + rows.inserts,
            before.updates + rows.updates,
            before.deletes + rows.deletes,
            before.truncates + rows.truncates,
        )
        known.last_file = file

    def _note_sessions(self, facts: FileFacts, joined: Joined) -> None:
        """Note what is needed to compare copies of transactions."""
        state, before = joined.stitch.state, joined.before
        high = -1 if before is None else before.high_lsn
        lsns = [lsn for lsn in (facts.first_lsn, facts.last_lsn) if lsn is not None]
        lsns += [one.lsn for one in (*facts.open_at_start, *facts.open_at_end) if one.lsn is not None]
        if lsns:
            self.spans[joined.file.path] = Span(min(lsns), max(lsns))
        above = high
        number = 0 if before is None else before.session
        for part in state.parts:
            if part.new_session:
                place = part.summary.place
                number = place.session if part.summary.exact and place is not None else number + 1
                self.highs[number] = above
            above = max(above, part.summary.last_lsn if part.summary.last_lsn is not None else -1)
        if facts.resent and facts.first_lsn is not None and facts.last_lsn is not None:
            span = Span(facts.first_lsn, facts.last_lsn)
            self.resent.append(span)
            last = span.high if high < span.low else min(high, span.high)
            self.overlaps.append(Overlap(facts.name, facts.resent, span.low, last))

    def plan_of(self, stitch: Stitch) -> Plan | None:
        """Plan what was joined; None if that cannot be, which is a problem."""
        try:
            return stitch.plan()
        except CaptureError as error:
            # If nothing was read at all, it is known why.
            if stitch.place is not None or not self.problems:
                self.note(error)
        return None

    def spans_of(self, plan: Plan) -> dict[str, Span]:
        """Give each file's commit LSNs, with those of what commits elsewhere."""
        found = dict(self.spans)
        for file in plan.files:
            for step in file.steps:
                lsn = step.fate.commit_lsn if step.fate is not None else None
                one = step.place.transaction
                if lsn is None and one is not None:
                    lsn = one.final_lsn
                if lsn is not None:
                    known = found.get(file.path, Span(lsn, lsn))
                    found[file.path] = Span(min(known.low, lsn), max(known.high, lsn))
        return found

    def tables_with(self, plan: Plan | None, counts: Mapping[Relation, Values] | None) -> tuple[TableAudit, ...]:
        """Give the tables, those with most changes first.

        Args:
            counts: what was decoded, by relation version; None if nothing was.
        """
        truncates = {item.oid: item.lsn for item in plan.truncates} if plan is not None else {}
        found = []
        for oid, table in self.tables.items():
            rows, lsn = table.rows, truncates.get(oid)
            values = None if counts is None else _sum([one for relation, one in counts.items() if relation.oid == oid])
            found.append(
                TableAudit(
                    oid=oid,
                    name=None if rows.name is None else f"{rows.namespace or 'pg_catalog'}.{rows.name}",
                    inserts=rows.inserts,
                    updates=rows.updates,
                    deletes=rows.deletes,
                    truncates=rows.truncates,
                    first_file=table.first_file,
                    last_file=table.last_file,
                    base="not needed" if lsn is not None else "missing" if table.missing else "unknown",
                    truncated_lsn=lsn,
                    decoded_rows=None if values is None else values.rows,
                    decoded_bytes=None if values is None else values.size,
                    rescued={} if values is None else values.rescued,
                )
            )
        return tuple(
            sorted(found, key=lambda one: (-(one.inserts + one.updates + one.deletes), one.name or "", one.oid))
        )


def _is_foreign(error: WalReplayError) -> bool:
    return isinstance(error, TwinError) or Problem.of(error).kind == "foreign"


def _with(one: Stretch, other: Stretch) -> Stretch:
    """Give two stretches as one."""
    firsts = [item for item in (one, other) if item.first_lsn is not None]
    first = min(firsts, key=lambda item: item.first_lsn or 0, default=one)
    last = max(firsts, key=lambda item: item.last_lsn or 0, default=one)
    return Stretch(
        one.first_file,
        other.last_file,
        one.files + other.files,
        one.transactions + other.transactions,
        first.first_lsn,
        last.last_lsn,
        first.first_commit_ts,
        last.last_commit_ts,
    )


def _sum(values: list[Values]) -> Values:
    rescued: dict[str, int] = {}
    for one in values:
        for column, count in one.rescued.items():
            rescued[column] = rescued.get(column, 0) + count
    return Values(sum(one.rows for one in values), sum(one.size for one in values), rescued)


__all__ = ["Findings", "audit"]

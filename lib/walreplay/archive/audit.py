"""Audit an archive: report everything that is damaged or missing, not only the first problem, and what it holds."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from walreplay.archive.facts import FileFacts, FileSpan, Open, Overlap, RelationChangeCounts, Torn
from walreplay.archive.joining import NOTHING_READ, Archive, Joined, Joining, archive_of
from walreplay.config import Settings, make_settings
from walreplay.decode.change_batch import column_types
from walreplay.delta.statements import sql_schema
from walreplay.errors import (
    CaptureError,
    FramingChange,
    NotACapture,
    OrderError,
    UnknownRelation,
    WalReplayError,
    from_dict,
)
from walreplay.ledger.transactions import whole_transactions
from walreplay.listing import Hole
from walreplay.lsn import to_datetime
from walreplay.progress import Progress
from walreplay.protocol.messages import Relation
from walreplay.recorded_names import RecordedName
from walreplay.report import JsonResult
from walreplay.session.isolation import settings as set_for_a_while
from walreplay.spark.captures import files_a_batch, read_files
from walreplay.spark.workers import decode
from walreplay.spark.workers.decode import Values
from walreplay.stream.duplicates import VERDICTS, DuplicateFileError, verdict_in_sql
from walreplay.stream.plan import FilePlan, Plan
from walreplay.stream.stitch import Stitch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MOST_TOLD: Final = 1_000  # of more copies that differ only so many are reported

_MOST_SPANS: Final = 200
_HIGHS: Final = "high_session INT, high BIGINT"

_Counted: TypeAlias = Mapping[Relation, decode.Assigned]


@dataclass(frozen=True, slots=True)
class Span:
    """The commit LSNs of which a file has something, open transactions included."""

    low: int
    high: int

    def meets(self, other: Span) -> bool:
        """Return whether two have an LSN in common."""
        return self.low <= other.high and other.low <= self.high


def compare_copies(
    spark: SparkSession,
    settings: Settings,
    plan: Plan,
    spans: Mapping[str, Span],
    resent: Sequence[Span],
    highs: Mapping[int, int],
) -> list[WalReplayError]:
    """Decode the transactions that have come again, and their first copies; return those that differ, in order.

    Args:
        resent: where transactions have come again.
        highs: the highest commit LSN in front of each session that is not the first.
    """
    files = {
        file.path: file
        for file in plan.files
        if file.steps and any(spans[file.path].meets(span) for span in resent if file.path in spans)
    }
    if not files:
        return []
    records = _decoded(spark, settings, plan, files)
    with set_for_a_while(spark, files_a_batch(files)):
        rows = _verdicts(spark, records, plan, resent, highs).limit(MOST_TOLD).collect()
    return [
        VERDICTS[row.verdict](row.commit_lsn, row.xid, row.path, row.offset)
        if row.error is None
        else from_dict(json.loads(row.error))
        for row in rows
    ]


def _decoded(
    spark: SparkSession, settings: Settings, plan: Plan, files: Mapping[str, FilePlan], counted: _Counted | None = None
) -> DataFrame:
    """Return what some of a plan's files have: transactions, or counts; also of operations that runs skip."""
    of_records, of_counts = (decode.record_batches, decode.RECORDED), (decode.count_batches, decode.COUNTED)
    work, schema = of_records if counted is None else of_counts
    of_tasks = replace(settings.of_tasks, skipped=frozenset())
    task = decode.DecodeTask(files, plan.versions, plan.type_versions, counted or {}, {}, of_tasks, buckets=1)
    read = read_files(spark, list(files), sum(file.length for file in files.values()))
    return read.mapInArrow(partial(work, task=task), sql_schema(schema))


def _verdicts(
    spark: SparkSession, records: DataFrame, plan: Plan, resent: Sequence[Span], highs: Mapping[int, int]
) -> DataFrame:
    """Return the transactions that are not what was sent before, and the errors of files."""
    from pyspark.sql import functions as f

    decided = [  # rows have records, but a Commit Prepared may come again without; 0 changes no sum
        (
            *(commit.commit_lsn, to_datetime(commit.commit_time), commit.xid, 0, 0, commit.session),
            *(commit.path, commit.offset, commit.complete, None),
        )
        for commit in plan.decided
    ]
    if decided:
        records = records.unionByName(spark.createDataFrame(decided, sql_schema(decode.RECORDED)))
    # What failed has no LSN; what begins in a file that is not decoded has no offset, and the path of a part.
    whole = whole_transactions(records, "error", extra_columns=[f.max("path").alias("part")])
    fields = "session, xid, commit_ts, changes, digest, complete, coalesce(path, part) path, ifnull(offset, -1L) offset"
    copies = whole.groupBy("commit_lsn", "error").agg(
        f.expr(f"sort_array(collect_list(struct({fields})))").alias("copies")
    )
    among = " OR ".join(f"commit_lsn BETWEEN {span.low}L AND {span.high}L" for span in _joined(resent))
    each = copies.where(f"error IS NOT NULL OR {among}").selectExpr(
        "commit_lsn", "error", "copies[0] AS first", "explode(copies) AS copy"
    )
    sessions = spark.createDataFrame(sorted(highs.items()) or [(-1, -1)], _HIGHS)
    each = each.join(f.broadcast(sessions), on=f.expr("copy.session = high_session"), how="left")
    verdict = verdict_in_sql("copy.", "commit_lsn < high")  # a slot sends in commit order
    verdict = f"CASE WHEN error IS NOT NULL THEN 'error' ELSE {verdict} END"
    judged = each.selectExpr("commit_lsn", "error", "copy.*", f"{verdict} AS verdict")
    return judged.where("verdict IS NOT NULL").orderBy("session", "commit_lsn")


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans that do not meet, and are few."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.low, span.high)):
        if joined and span.low <= joined[-1].high + 1:  # LSNs are whole numbers, so neighbours are one span
            joined[-1] = Span(joined[-1].low, max(joined[-1].high, span.high))
        else:
            joined.append(span)
    # A statement's text must not grow without a limit; more than is asked for does no harm.
    return joined if len(joined) <= _MOST_SPANS else [Span(joined[0].low, joined[-1].high)]


def count_values(
    spark: SparkSession, settings: Settings, plan: Plan
) -> tuple[dict[Relation, Values], list[WalReplayError]]:
    """Decode all that a plan applies, and count; return the counts by relation version, and what cannot be decoded."""
    types = {type_.oid: type_ for type_ in plan.types}
    counted: dict[Relation, decode.Assigned] = {}
    for relation in plan.relations:
        table = relation.namespace or "pg_catalog", relation.name
        if settings.wants_table(*table):
            of_relation = column_types(relation, types, settings.type_options(*table))
            counted[relation] = decode.Assigned(len(counted), tuple(of_relation), {})
    files = {file.path: file for file in plan.files if file.steps}
    if not files:
        return {}, []
    with set_for_a_while(spark, files_a_batch(files)):
        rows = _decoded(spark, settings, plan, files, counted).collect()
    relations = list(counted)
    values_by_relation: dict[Relation, Values] = {}
    errors = [from_dict(json.loads(row.error)) for row in rows if row.error is not None]
    for row in rows:
        for number, (count, size, rescued) in json.loads(row.counts).items():
            relation = relations[int(number)]
            values = Values(count, size, Counter(rescued))
            values_by_relation[relation] = values_by_relation.get(relation, Values()) + values
    order = {file.path: number for number, file in enumerate(plan.files)}  # Spark returns rows in any order
    return values_by_relation, sorted(errors, key=lambda error: (order.get(error.path or "", -1), error.offset or 0))


ProblemKind: TypeAlias = Literal["damaged", "gap", "foreign", "twin", "copy"]
Base: TypeAlias = Literal["not needed", "missing", "unknown"]

_EXPLAINED: Final = "(gaps are allowed)"  # How warnings end that tell of what is a problem here


@dataclass(frozen=True, slots=True)
class UnbrokenFiles:
    """Files in which nothing is missing, as far as their bytes and their numbers can tell.

    Attributes:
        first_lsn, last_lsn: the least and the greatest commit LSN, and when these transactions committed.
        transactions: without those that come again.
    """

    first_file: str
    last_file: str
    files: int
    transactions: int
    first_lsn: int | None
    last_lsn: int | None
    first_commit_ts: datetime | None
    last_commit_ts: datetime | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is damaged or missing.

    Attributes:
        kind: ``damaged``: bytes that cannot be read; ``gap``: something is missing in front of the place; ``foreign``:
            a file that does not belong to the archive; ``twin``: a file that is there under two names; ``copy``: a
            transaction that comes again as another one.
        file: where, with the ``offset`` in the decompressed bytes.
        files: how many files that follow one another have the same.
    """

    kind: ProblemKind
    file: str | None
    offset: int | None
    table: str | None
    problem: str
    remedy: str | None
    files: int = 1

    @classmethod
    def of(cls, error: WalReplayError, *, copy: bool = False) -> Problem:
        """Make one of an error."""
        kind: ProblemKind = "gap" if isinstance(error, (OrderError, UnknownRelation)) else "damaged"
        if isinstance(error, DuplicateFileError):
            kind = "twin"
        elif isinstance(error, (NotACapture, FramingChange)):
            kind = "foreign"
        elif copy and kind == "gap":  # an OrderError of the comparison says that copies differ
            kind = "copy"
        return cls(kind, error.path, error.offset, error.table, error.problem, error.remedy)


@dataclass(frozen=True, slots=True)
class TableAudit:
    """A relation and its row changes, whatever became of their transactions, copies included.

    Attributes:
        name: ``schema.table``, as it was called last; None where no file has announced it.
        first_file, last_file: between which it has changes.
        base: whether rows may have been there before the archive began: ``not needed``, as the table was truncated at
            ``truncated_lsn``; ``missing``, as the first file with changes of it updates or deletes rows and inserts
            none; ``unknown``, as nothing proves either.
        decoded_rows, decoded_bytes: row changes of committed transactions, and what they take in Arrow; None where
            nothing was decoded.
        rescued: how many values their columns' types cannot hold, by column.
    """

    oid: int
    name: str | None
    inserts: int
    updates: int
    deletes: int
    truncates: int
    first_file: str
    last_file: str
    base: Base
    truncated_lsn: int | None
    decoded_rows: int | None = None
    decoded_bytes: int | None = None
    rescued: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditReport(JsonResult):
    """What an archive holds, and what is wrong with it.

    Attributes:
        files_read: all that were listed; those that cannot be read are among the problems.
        transactions: that commit in the archive; ``resent`` of them have come before, and are not counted.
        problems: what is damaged or missing, in the files' order.
        copies_compared: the transactions that come again were compared with their first copies.
        values_counted: all was decoded (``values``).
        open: transactions that have not ended where the archive does, and ``unfinished_bytes`` of a message.
        index: where the index is that was named; None for none.  ``as_indexed`` files have the bytes that it has a
            checksum of.
        spans: the files that have commits, in the stream's order; for pictures alone.
    """

    captures: str
    files: int
    capture_bytes: int
    files_read: int
    transactions: int
    resent: int
    changes: int
    sessions: int
    coverage: tuple[UnbrokenFiles, ...]
    problems: tuple[Problem, ...]
    holes: tuple[Hole, ...]
    overlaps: tuple[Overlap, ...]
    torn: tuple[Torn, ...]
    tables: tuple[TableAudit, ...]
    open: tuple[Open, ...]
    unfinished_bytes: int
    copies_compared: bool
    values_counted: bool
    warnings: tuple[str, ...]
    seconds: float
    index: str | None = None
    as_indexed: int = 0
    spans: tuple[FileSpan, ...] = field(default=(), repr=False)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged or missing, as far as it can be told."""
        return not self.problems and not self.holes

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON; LSNs as ``X/X``, times in ISO form."""
        return {"whole": self.is_whole, **JsonResult.to_dict(self)}


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
        index: the place of an index, to which files are added that it lacks.  None takes the configuration's, or that
            in the captures' folder, if it is there, and writes nothing.
        config, progress: as `walreplay.apply` takes them.
        values: decode everything, to count rows, bytes and rescued values by table.

    Raises:
        WalReplayError: there is no archive, or Spark fails.  What is wrong with its files is in the report.
    """
    began, settings = time.monotonic(), make_settings(config)
    with archive_of(spark, captures, index, settings, progress) as archive:
        joining = Joining(archive, lenient=True, write=None if index is None else archive.index.add_sound)
        findings, agreeing = Findings(archive.index.name_of), 0
        for error in archive.errors:
            findings.note(error)
        for joined in joining.run():
            findings.take(joined)
            if joined.differs is not None:
                findings.note(joined.differs)
            elif joined.facts is not None:
                agreeing += archive.index.proof_of(joined.file.path).length == joined.facts.length
        plan = findings.plan_of(joining.stitch)
        if plan is not None and findings.resent:
            archive.progress.stage("compare copies", None)
            spans = findings.spans_of(plan)
            for problem in compare_copies(archive.spark, settings, plan, spans, findings.resent, findings.highs):
                findings.note(problem, copy=True)
        counts: dict[Relation, Values] | None = None
        if plan is not None and values:
            archive.progress.stage("count values", None)
            counts, problems = count_values(archive.spark, settings, plan)
            for problem in problems:
                findings.note(problem)
        report = _report(str(captures), archive, joining, findings, plan, counts, time.monotonic() - began)
        place = None if index is None and not archive.index.exists else archive.index.table.text
        return replace(report, index=place, as_indexed=agreeing)


def _report(
    captures: str,
    archive: Archive,
    joining: Joining,
    findings: Findings,
    plan: Plan | None,
    counts: Mapping[Relation, Values] | None,
    seconds: float,
) -> AuditReport:
    state = joining.stitch.state
    warnings = plan.warnings if plan is not None else tuple(state.warnings)
    if joining.unwritten is not None:  # an audit goes on without its index
        warnings = (*warnings, f"the index was not written: {joining.unwritten}")
    return AuditReport(
        captures=captures,
        files=len(archive.files),
        capture_bytes=archive.size,
        files_read=len(archive.files),
        transactions=state.transactions,
        resent=state.resent,
        changes=findings.changes,
        sessions=findings.sessions,
        coverage=tuple(findings.coverage),
        problems=tuple(findings.problems),
        holes=tuple(findings.holes),
        overlaps=tuple(findings.overlaps),
        torn=tuple(findings.torn),
        tables=findings.tables_with(plan, counts),
        open=findings.open,
        unfinished_bytes=findings.unfinished,
        copies_compared=plan is not None and bool(findings.resent),
        values_counted=counts is not None,
        warnings=tuple(dict.fromkeys(text for text in warnings if not text.endswith(_EXPLAINED))),
        seconds=seconds,
        spans=tuple(findings.placed),
    )


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
    holes: list[Hole] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    torn: list[Torn] = field(default_factory=list)
    resent: list[Span] = field(default_factory=list)
    highs: dict[int, int] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    tables: dict[int, TableAudit] = field(default_factory=dict)
    coverage: list[UnbrokenFiles] = field(default_factory=list)
    placed: list[FileSpan] = field(default_factory=list)
    open: tuple[Open, ...] = ()
    unfinished: int = 0
    changes: int = 0
    sessions: int = 0
    _is_cut: bool = True  # the next file begins a stretch
    _is_unknown: bool = False

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
        # The stream goes on behind a file that does not belong to it, and is in nobody's place.
        kinds, path = {Problem.of(gap).kind for gap in joined.gaps}, joined.file.path
        is_strange = joined.facts is None and kinds <= {"twin", "foreign"} and RecordedName.parse(path) is None
        self._is_cut |= bool(kinds) and not is_strange
        if joined.hole is not None:
            hole, name_of = joined.hole, self.name_of
            self.holes.append(Hole(name_of(hole.before), name_of(hole.after), hole.missing, name_of(hole.example)))
            self._is_cut = True
        facts = joined.facts
        if facts is None:
            return
        self._cover(facts)
        self.changes += facts.changes
        self.sessions += facts.sessions
        self.open, self.unfinished = facts.open_at_end, facts.unfinished_bytes
        if facts.torn_bytes:
            self.torn.append(Torn(facts.name, facts.torn_bytes))
        for rows in facts.relations:
            self._count(rows, facts.name)
        self._note_sessions(facts, joined)

    def _cover(self, facts: FileFacts) -> None:
        span = facts.first_lsn, facts.last_lsn, facts.first_commit_ts, facts.last_commit_ts
        stretch = UnbrokenFiles(facts.name, facts.name, 1, facts.transactions - facts.resent, *span)
        if self._is_cut:
            self.coverage.append(stretch)
        else:
            self.coverage[-1] = _with(self.coverage[-1], stretch)
        self._is_cut = False
        if facts.first_lsn is not None and facts.last_lsn is not None:
            self.placed.append(FileSpan(facts.name, facts.first_lsn, facts.last_lsn, facts.sessions))

    def _count(self, rows: RelationChangeCounts, file: str) -> None:
        name = None if rows.name is None else f"{rows.namespace or 'pg_catalog'}.{rows.name}"
        missing = not rows.inserts and not rows.truncates and rows.updates + rows.deletes > 0
        new = TableAudit(rows.oid, name, 0, 0, 0, 0, file, file, "missing" if missing else "unknown", None)
        table = self.tables.get(rows.oid, new)
        self.tables[rows.oid] = replace(
            table,
            name=name or table.name,
            inserts=table.inserts + rows.inserts,
            updates=table.updates + rows.updates,
            deletes=table.deletes + rows.deletes,
            truncates=table.truncates + rows.truncates,
            last_file=file,
        )

    def _note_sessions(self, facts: FileFacts, joined: Joined) -> None:
        """Note what is needed to compare copies of transactions."""
        state, start_place = joined.stitch.state, joined.start_place
        high = -1 if start_place is None else start_place.high_lsn
        lsns = [lsn for lsn in (facts.first_lsn, facts.last_lsn) if lsn is not None]
        lsns += [open_.lsn for open_ in (*facts.open_at_start, *facts.open_at_end) if open_.lsn is not None]
        if lsns:
            self.spans[joined.file.path] = Span(min(lsns), max(lsns))
        highest = high  # the highest commit LSN in front of the part
        number = 0 if start_place is None else start_place.session
        for part in state.parts:
            if part.new_session:
                place = part.summary.place
                number = place.session if part.summary.exact and place is not None else number + 1
                self.highs[number] = highest
            highest = max(highest, part.summary.last_lsn if part.summary.last_lsn is not None else -1)
        if facts.resent and facts.first_lsn is not None and facts.last_lsn is not None:
            span = Span(facts.first_lsn, facts.last_lsn)
            self.resent.append(span)
            last = span.high if high < span.low else min(high, span.high)  # those above it come for the first time
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
        """Return each file's commit LSNs, with those of what commits elsewhere."""
        spans = dict(self.spans)  # a streamed transaction may commit in a later file than its bytes
        for file in plan.files:
            for step in file.steps:
                lsn = step.commit.commit_lsn if step.commit is not None else None
                transaction = step.place.transaction
                if lsn is None and transaction is not None:  # an ordinary one that began in an earlier file
                    lsn = transaction.final_lsn
                if lsn is not None:
                    span = spans.get(file.path, Span(lsn, lsn))
                    spans[file.path] = Span(min(span.low, lsn), max(span.high, lsn))
        return spans

    def tables_with(self, plan: Plan | None, counts: Mapping[Relation, Values] | None) -> tuple[TableAudit, ...]:
        """Return the tables, those with most changes first.

        Args:
            counts: what was decoded, by relation version; None if nothing was.
        """
        truncates = {truncate.oid: truncate.lsn for truncate in plan.truncates} if plan is not None else {}
        tables = []
        for oid, table in self.tables.items():
            filled = table if oid not in truncates else replace(table, base="not needed", truncated_lsn=truncates[oid])
            if counts is not None:
                values = sum((part for relation, part in counts.items() if relation.oid == oid), Values())
                filled = replace(filled, decoded_rows=values.rows, decoded_bytes=values.size, rescued=values.rescued)
            tables.append(filled)
        return tuple(
            sorted(tables, key=lambda row: (-(row.inserts + row.updates + row.deletes), row.name or "", row.oid))
        )


def _with(earlier: UnbrokenFiles, later: UnbrokenFiles) -> UnbrokenFiles:
    """Return two stretches as one."""
    firsts = [stretch for stretch in (earlier, later) if stretch.first_lsn is not None]  # None: no commits
    first = min(firsts, key=lambda stretch: stretch.first_lsn or 0, default=earlier)
    last = max(firsts, key=lambda stretch: stretch.last_lsn or 0, default=earlier)
    files, transactions = earlier.files + later.files, earlier.transactions + later.transactions
    span = first.first_lsn, last.last_lsn, first.first_commit_ts, last.last_commit_ts
    return UnbrokenFiles(earlier.first_file, later.last_file, files, transactions, *span)

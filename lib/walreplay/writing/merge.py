"""One commit of folded rows by Spark's statements: an append, an overwrite, or a MERGE on the key.

Tables whose rows have no key are merged by `walreplay.writing.multiset`.

Updates and deletes of rows that are not in their table are a contradiction if all rows of it were captured.  But
nothing in the bytes says that a table was empty when the captures began.  So a missing row is a warning, and not
even that if the configuration itself leaves rows out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as f

from walreplay.delta import statements as delta
from walreplay.delta.commits import LoggedCommit
from walreplay.delta.opened import OpenedTable
from walreplay.delta.statements import sql_schema, sql_type
from walreplay.delta.target import quote
from walreplay.errors import CaptureError, listed
from walreplay.fold.events import Claim
from walreplay.names import source_oid
from walreplay.report import WriterKind
from walreplay.session.isolation import has_own_sessions, settings
from walreplay.spark.workers.rows import refusal_in, refusal_text
from walreplay.table.cases import CommitKind
from walreplay.table.table_run import Merge, is_own

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from walreplay.config import Settings
    from walreplay.report import TableReport

_MAX_NAMED: Final = 50
_REASONS: Final = (
    "Likely reasons: the rows were there before the captures began, or came with a partition that was attached (load "
    "the table's rows: walreplay load --from BASE --at-lsn LSN --replace); a TRUNCATE came before they were copied (it "
    "harms no mirror); the output was switched on later; a setting of the sender (IntervalStyle, TimeZone, "
    "extra_float_digits) was another one; the key does not name the rows; something else has changed the mirror"
)
_GAP: Final = (
    "A run has gone on over a gap, in which they may have come ({}). Load the tables behind it (walreplay load "
    "--from BASE --at-lsn LSN --replace); or bring back what is missing, and make them again (walreplay rebuild), "
    "which ends this"
)


def missing_warnings(
    reports: Iterable[TableReport], settings: Settings, gaps: Mapping[int, str] = MappingProxyType({})
) -> Iterator[str]:
    """Yield a warning if rows that were changed were not in their tables; of several outputs one is named.

    There are no warnings if the configuration leaves rows out, because then missing rows are expected.  The tables'
    notes still have the counts.

    Args:
        gaps: what may be the reason, by the tables' oids.
    """
    if settings.leaves_rows_out:
        return
    lacking: dict[str, dict[int, str]] = {}
    for report in sorted(reports, key=lambda report: report.oid or 0):
        if report.without_base or report.deletes_without_row:
            counts = ((report.without_base, "updated"), (report.deletes_without_row, "deleted"))
            kinds = ", ".join(f"{count:,} to be {what}" for count, what in counts if count)
            of_gap = lacking.setdefault(gaps.get(report.oid or 0, ""), {})
            # A history's or a change log's oid is not the relation's; all outputs of a table are one line.
            of_gap.setdefault(source_oid(report.oid or 0), f"{report.name} ({kinds})")
    for gap, tables in lacking.items():
        reasons = _GAP.format(gap) if gap else _REASONS
        yield f"rows are not in their tables though changed: {listed(sorted(tables.values()), _MAX_NAMED)}. {reasons}"


# The commit

_SOURCE: Final = "walreplay_source"
APPENDED: Final = "numOutputRows"

_CONFIGURED_KEY: Final = Claim(
    "the configured key is not unique",
    "Correct keys in the configuration; if the captures lack deletes, say so by skipped_operations or --allow-gaps",
)


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Numbers of a commit's rows that a report needs.

    Attributes:
        live: rows whose changes require that the table had them before, and that remain.
        gone: the same of rows that are deleted.
        unknown: rows with a value that is not known, and is written as NULL.
        without_base: rows among ``live`` that the table did not have.
        deletes_without_row: rows among ``gone`` that the table did not have.
    """

    live: int = 0
    gone: int = 0
    unknown: int = 0
    without_base: int = 0
    deletes_without_row: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(*(count + added for count, added in zip(astuple(self), astuple(other), strict=True)))

    def against(self, commit: LoggedCommit, merged: RowCounts) -> RowCounts:
        """Add the rows that a MERGE should have found and did not.

        Args:
            commit: the MERGE, with its metrics.
            merged: the counts of the rows that it merged.
        """
        if "numTargetRowsUpdated" not in commit.metrics or not (merged.live or merged.gone):
            return self
        without_base = max(0, merged.live - commit.count("numTargetRowsMatchedUpdated", "numTargetRowsUpdated"))
        without_row = max(0, merged.gone - commit.count("numTargetRowsMatchedDeleted", "numTargetRowsDeleted"))
        return self + RowCounts(without_base=without_base, deletes_without_row=without_row)

    def counted(self, merge: Merge) -> delta.CommitId:
        """Return the commit's id with those of the counts that are not 0, which the table's history will keep."""
        return replace(merge.commit, counts={name: count for name, count in asdict(self).items() if count})

    @property
    def notes(self) -> tuple[str, ...]:
        """The counts as sentences for a report."""
        counted = (
            (self.without_base, "updated {} not in the table: written with what is known of {}"),
            (self.deletes_without_row, "deleted {} not in the table"),
            (self.unknown, "{} with values that are not known: NULL stands for them"),
        )
        return tuple(
            text.format("1 row" if count == 1 else f"{count:,} rows", "it" if count == 1 else "them")
            for count, text in counted
            if count
        )


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a commit.

    Attributes:
        metrics: numbers of rows, by their names in the table's history.
        version: the table's version that the commit has made; None if it is not known.
        writer_kind: how the rows were written; None if there were none.
        reason: why statements have written them, although the writer writes files; otherwise empty.
    """

    counts: RowCounts
    metrics: Mapping[str, str]
    version: int | None = None
    writer_kind: WriterKind | None = "statements"
    reason: str = ""


def write_rows(
    spark: SparkSession, rows: DataFrame | None, merge: Merge, commit: delta.CommitId, kind: CommitKind
) -> None:
    """Create a table with rows, replace its rows, or add to them.

    Args:
        rows: folded rows, each of which becomes a row of the table, and perhaps more of their columns; None for none.
    """
    if rows is None:
        frame = spark.createDataFrame([], sql_schema(merge.schema))
    else:  # names are no expressions
        frame = rows.select(*(f.col(source) for _, source in merge.pairs)).toDF(*merge.schema.names)
    table, share = OpenedTable(spark, merge.plan.table), merge.plan.metadata.share
    creates, overwrites = kind is CommitKind.CREATE, kind is CommitKind.OVERWRITE
    mode = "overwrite" if overwrites else "append"
    if share is not None and not creates:
        only = is_own(share) if overwrites else ""
        delta.write(delta.shaped(frame, table.columns), table.name, mode, commit, only=only)
        return
    if creates or overwrites:
        frame = delta.with_comments(frame, merge.comments({} if creates else table.comments))
    new = delta.NewTable(dict(merge.plan.layout.properties), merge.plan.comment) if creates else None
    delta.write(frame, table.name, mode, commit, create=new, new_schema=overwrites)


def lost_counts(totals: Mapping[str, int]) -> RowCounts:
    """Return the counts of rows whose table has none that their changes require, by totals (`FoldTask.counts_of`)."""
    live, gone = totals.get("live", 0), totals.get("gone", 0)
    return RowCounts(unknown=totals.get("unknown", 0), without_base=live, deletes_without_row=gone)


MATERIALIZE: Final = "spark.databricks.delta.merge.materializeSource"


@contextmanager
def kept_rows(spark: SparkSession, rows: DataFrame) -> Iterator[DataFrame]:
    """Checkpoint rows that depend on the table's own, as a MERGE reads them several times.

    If a platform does not allow checkpoints, the rows come as they are, and Delta makes a copy of its own.
    """
    try:
        kept = rows.localCheckpoint(eager=True)
    except Exception as error:
        if has_own_sessions(spark) or refusal_in(str(error)) is not None:  # a worker's error, for example
            raise
        with settings(spark, {MATERIALIZE: None}):
            yield rows
        return
    with settings(spark, {MATERIALIZE: "none"}):
        yield kept


# The columns of a MERGE's result, and the history's names for them.
_MERGED: Final = {
    "num_inserted_rows": "numTargetRowsInserted",
    "num_updated_rows": "numTargetRowsUpdated",
    "num_deleted_rows": "numTargetRowsDeleted",
}


def merged(
    spark: SparkSession, merge: Merge, counts: RowCounts, source: str, match: str, clauses: str, *, marked: str
) -> Written:
    """Run a MERGE as an epoch's commit; one that is skipped as made already counts no rows.

    Args:
        source: a view, or a query in parentheses: the rows ``s`` to merge into the table's, ``t``.
        match: the condition on which a row of the table's is meant; of a shared one, of the source's own rows.
        marked: see `walreplay.delta.statements.Marking`.
    """
    head = f"MERGE INTO {merge.plan.table.sql} AS t USING {source} AS s ON {merge.is_own}{match}"
    with delta.committing(spark, counts.counted(merge)) as marking:
        rows = spark.sql(f"{head}{marking(marked)} {clauses}").collect()
    return Written(counts, {name: str(row[column] or 0) for row in rows for column, name in _MERGED.items()})


def inserting(merge: Merge) -> str:
    """Write what a MERGE does with a row that is new."""
    columns, values = ", ".join(target for target, _ in merge.pairs), ", ".join(f"s.{name}" for _, name in merge.pairs)
    return f"INSERT ({columns}) VALUES ({values})"


def merge_keyed(spark: SparkSession, rows: DataFrame, totals: Mapping[str, int], merge: Merge) -> Written:
    """MERGE rows on the key that each had before the run.

    Args:
        rows: folded rows, which a statement can read several times.
        totals: counts of the rows, by name.

    Raises:
        Exception: Spark's.  `walreplay.spark.workers.rows.refusal_in` finds a worker's own error in its text.
    """
    counts = RowCounts(**{name: totals.get(name, 0) for name in ("live", "gone", "unknown")})
    rows.createOrReplaceTempView(_SOURCE)
    values = kept_values(merge)
    updates = ", ".join(f"t.{target} = {values.get(source, f's.{source}')}" for target, source in merge.pairs)
    deletes = "WHEN MATCHED AND s.deleted THEN DELETE " if merge.epoch.deletes or merge.epoch.moves else ""
    live = "AND NOT s.deleted " if deletes else ""  # a deleted row that is not there must not be inserted
    marks = merge.marks_deleted
    if marks is not None:
        # A soft delete of a row that the table does not have must not insert a row.
        live += f"AND NOT (s.c{marks} AND s.expected) "
    clauses = (
        f"{refuse_claimed(merge)}{deletes}WHEN MATCHED THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED {live}THEN {inserting(merge)}"
    )
    return merged(spark, merge, counts, _SOURCE, matching(merge, moves=merge.epoch.moves), clauses, marked="s.deleted")


def kept_values(merge: Merge) -> dict[str, str]:
    """Write, by the rows' columns, the values that the source may not have sent again: where it has not, the table's.

    `k` and the column's number marks such a value.
    """
    values = {}
    for number in merge.epoch.tracked:
        values[f"c{number}"] = f"CASE WHEN s.k{number} THEN {table_value(merge, number)} ELSE s.c{number} END"
    rescued = merge.plan.metadata.rescued_data
    if rescued is not None and merge.epoch.tracked:
        # Whatever the columns' types are now: under an earlier type a value may have been rescued.
        values["rescued"] = _merged_rescued(merge, quote(rescued))
    return values


def table_value(merge: Merge, number: int) -> str:
    """Write a value of the table's, in the type that the rows have."""
    value = f"t.{quote(merge.shape.columns[number].name)}"
    # Where a table is shared, another source may have widened the column, and histories compare hashes.
    return value if merge.plan.metadata.share is None else f"CAST({value} AS {sql_type(merge.type_of(number).arrow)})"


def refuse_claimed(merge: Merge) -> str:
    """Write the clause that stops the MERGE if a key is taken that whole old rows have shown to be free."""
    claim = merge.identity.claims or (_CONFIGURED_KEY if merge.epoch.configured else None)
    if claim is None or merge.identity.evicts:
        return ""
    error = claim_refuted(claim, merge.plan.name)
    target = quote(merge.shape.columns[merge.identity.key[0]].name)
    return f"WHEN MATCHED AND s.claimed THEN UPDATE SET t.{target} = raise_error({delta.literal(refusal_text(error))}) "


def claim_refuted(claim: Claim, table: str) -> CaptureError:
    """Make the error for a row that takes a key which the table has."""
    problem = f"{claim.problem}: a row takes a key that another row of the table has"
    return CaptureError(problem, table=table, remedy=claim.remedy)


def _rescued_text(row: str, column: str) -> str:
    return f"from_json({row}, 'map<string,string>')[{delta.literal(column)}]"


def matching(merge: Merge, *, moves: bool = True) -> str:
    """Write the ON condition: the target's key equals the base's.

    Args:
        moves: the rows have their base's key, and say by ``matches`` whether they have a base.
    """
    terms = ["s.matches"] if moves else []
    base_rescued = "s.base_rescued" if moves else "s.rescued"
    for k, number in enumerate(merge.identity.key):
        column = merge.shape.columns[number]
        kind = column.type.arrow
        source = f"s.b{k}" if moves else f"s.c{number}"
        target = f"t.{quote(column.name)}"
        rescuable = number in merge.rescuable
        if not merge.epoch.configured and not rescuable and not pa.types.is_floating(kind):
            terms.append(f"{target} = {source}")
            continue
        terms.append(same_image(target, source, kind))
        if rescuable:  # where both are NULL, the texts have to be equal
            rescued = _rescued_text(f"t.{quote(merge.plan.metadata.rescued_data or '')}", column.name)
            terms.append(f"({source} IS NOT NULL OR {rescued} <=> {_rescued_text(base_rescued, column.name)})")
    return " AND ".join(terms)


def _merged_rescued(merge: Merge, rescued: str) -> str:
    """Keep the target's rescued values of those columns that are left unchanged."""
    names = {number: delta.literal(merge.shape.columns[number].name) for number in merge.epoch.tracked}
    kept = ", ".join(f"CASE WHEN s.k{number} THEN {name} END" for number, name in names.items())
    old = f"map_filter(from_json(t.{rescued}, 'map<string,string>'), (k, v) -> array_contains(array({kept}), k))"
    new = "from_json(s.rescued, 'map<string,string>')"
    both = f"map_concat(coalesce({new}, map()), coalesce({old}, map()))"
    return f"CASE WHEN t.{rescued} IS NULL THEN s.rescued ELSE {rescued_json(both)} END"


def rescued_json(values: str) -> str:
    """Write a map of rescued texts as `walreplay.decode.change_batch.rescued_json` does; NULL if it is empty."""
    return f"nullif(to_json(map_from_entries(array_sort(map_entries({values})))), '{{}}')"


def same_image(target: str, source: str, kind: pa.DataType | None) -> str:
    """Write the condition that two values are identical; for floats, -0 and 0 differ."""
    return f"{image_of(target, kind)} <=> {image_of(source, kind)}"


def image_of(value: str, kind: pa.DataType | None) -> str:
    """Write an expression that differs whenever the value does; SQL itself takes -0 for 0, in lists too."""
    if kind is not None and pa.types.is_floating(kind):
        # Where a table is shared, another source may have widened the column.
        return f"CAST(CAST({value} AS DOUBLE) AS STRING)"
    if kind is not None and pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
        return f"CAST({value} AS ARRAY<STRING>)"
    return value

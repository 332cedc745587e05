"""What only a decode can tell of an archive: whether copies of a transaction agree, and which values are rescued."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from walreplay.decode.change_batch import column_types
from walreplay.errors import WalReplayError, from_dict
from walreplay.lsn import to_datetime
from walreplay.protocol.messages import Relation
from walreplay.settings import Settings
from walreplay.spark.captures.files import files_a_batch, read_files
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.session.isolation import settings as set_for_a_while
from walreplay.spark.workers.audit import COUNTED, RECORDED, AuditTask, count_batches, record_batches
from walreplay.transactions.copies import differing, unknown
from walreplay.transactions.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_TOLD: Final = 1_000
"""Of more copies that differ only so many are told."""

_HIGHS: Final = "high_session INT, high BIGINT"


@dataclass(frozen=True, slots=True)
class Span:
    """The commit LSNs of which a file has something, open transactions included."""

    low: int
    high: int

    def meets(self, other: Span) -> bool:
        """Say whether two have an LSN in common."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, slots=True)
class Values:
    """What was decoded of one table.

    Attributes:
        rows: row changes of transactions that have committed, copies left out.
        size: bytes that they take in Arrow.
        rescued: how many values their columns' types cannot hold, by column.
    """

    rows: int
    size: int
    rescued: Mapping[str, int]


def compare_copies(
    spark: SparkSession,
    settings: Settings,
    plan: Plan,
    spans: Mapping[str, Span],
    resent: Sequence[Span],
    highs: Mapping[int, int],
) -> list[WalReplayError]:
    """Decode the transactions that have come again, and their first copies; give those that differ, in order.

    Args:
        spans: of each file.
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
    task = AuditTask(files, plan.versions, plan.type_versions, {}, settings.of_tasks)
    size = sum(file.length for file in files.values())
    records = read_files(spark, list(files), size).mapInArrow(partial(record_batches, task=task), sql_schema(RECORDED))
    with set_for_a_while(spark, files_a_batch(files)):
        rows = _verdicts(spark, records, plan, resent, highs).limit(MOST_TOLD).collect()
    found: list[WalReplayError] = []
    for row in rows:
        if row.error is not None:
            found.append(from_dict(json.loads(row.error)))
            continue
        make = unknown if row.verdict == "unknown" else differing
        found.append(make(row.commit_lsn, row.xid, row.path, row.offset))
    return found


def _verdicts(
    spark: SparkSession, records: DataFrame, plan: Plan, resent: Sequence[Span], highs: Mapping[int, int]
) -> DataFrame:
    """Give the transactions that are not what was sent before, and the errors of files."""
    from pyspark.sql import functions as f

    decided = [
        (
            *(item.commit_lsn, to_datetime(item.commit_time), item.xid, 0, 0, item.session),
            *(item.path, item.offset, item.complete, None),
        )
        for item in plan.decided
    ]
    parts = records
    if decided:
        parts = parts.unionByName(spark.createDataFrame(decided, sql_schema(RECORDED)))
    # Parts of a transaction may lie in several files; what failed has no LSN.
    where = f.expr("CASE WHEN offset >= 0 THEN offset END")
    whole = parts.groupBy("commit_lsn", "session", "error").agg(
        f.max("commit_ts").alias("commit_ts"),
        f.max("xid").alias("xid"),
        f.sum("changes").alias("changes"),
        f.bit_xor("digest").alias("digest"),
        f.min("complete").alias("complete"),
        f.min_by("path", where).alias("path"),
        f.min(where).alias("offset"),
    )
    fields = "session, xid, commit_ts, changes, digest, complete, path, offset"
    copies = whole.groupBy("commit_lsn", "error").agg(
        f.expr(f"sort_array(collect_list(struct({fields})))").alias("copies")
    )
    among = " OR ".join(f"commit_lsn BETWEEN {span.low}L AND {span.high}L" for span in _joined(resent))
    each = copies.where(f"error IS NOT NULL OR {among}").selectExpr(
        "commit_lsn", "error", "copies[0] AS first", "explode(copies) AS copy"
    )
    sessions = spark.createDataFrame(sorted(highs.items()) or [(-1, -1)], _HIGHS)
    each = each.join(f.broadcast(sessions), on=f.expr("copy.session = high_session"), how="left")
    same = (
        "copy.xid = first.xid AND copy.commit_ts = first.commit_ts AND (NOT copy.complete OR NOT first.complete "
        "OR (copy.changes = first.changes AND copy.digest = first.digest))"
    )
    verdict = (
        "CASE WHEN error IS NOT NULL THEN 'error' WHEN copy.session = first.session THEN "
        "CASE WHEN commit_lsn < high AND copy.changes > 0 THEN 'unknown' END "
        f"WHEN NOT ({same}) THEN 'differs' END"
    )
    told = each.selectExpr("commit_lsn", "error", "copy.*", f"{verdict} AS verdict")
    return told.where("verdict IS NOT NULL").orderBy("session", "commit_lsn")


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Give spans that do not meet, and are few."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.low, span.high)):
        if found and span.low <= found[-1].high + 1:
            found[-1] = Span(found[-1].low, max(found[-1].high, span.high))
        else:
            found.append(span)
    # A statement's text must not grow without a limit; more than is asked for does no harm.
    return found if len(found) <= _MOST_SPANS else [Span(found[0].low, found[-1].high)]


_MOST_SPANS: Final = 200


def count_values(
    spark: SparkSession, settings: Settings, plan: Plan
) -> tuple[dict[Relation, Values], list[WalReplayError]]:
    """Decode all that a plan applies, and count; give the counts by relation version, and what cannot be decoded."""
    types = {type_.oid: type_ for type_ in plan.types}
    wanted = {
        relation: tuple(column_types(relation, types, settings.type_options(_schema(relation), relation.name)))
        for relation in plan.relations
        if settings.wants_table(_schema(relation), relation.name)
    }
    files = {file.path: file for file in plan.files if file.steps}
    if not files:
        return {}, []
    task = AuditTask(files, plan.versions, plan.type_versions, wanted, settings.of_tasks)
    size = sum(file.length for file in files.values())
    counted = read_files(spark, list(files), size).mapInArrow(partial(count_batches, task=task), sql_schema(COUNTED))
    with set_for_a_while(spark, files_a_batch(files)):
        rows = counted.collect()
    relations = list(wanted)
    found: dict[Relation, Values] = {}
    errors = [from_dict(json.loads(row.error)) for row in rows if row.error is not None]
    for row in rows:
        for number, (count, size, rescued) in json.loads(row.told).items():
            relation = relations[int(number)]
            before = found.get(relation, Values(0, 0, {}))
            merged = dict(before.rescued)
            for column, values in rescued.items():
                merged[column] = merged.get(column, 0) + values
            found[relation] = Values(before.rows + count, before.size + size, merged)
    order = {file.path: number for number, file in enumerate(plan.files)}
    return found, sorted(errors, key=lambda error: (order.get(error.path or "", -1), error.offset or 0))


def _schema(relation: Relation) -> str:
    return relation.namespace or "pg_catalog"


__all__ = ["MOST_TOLD", "Span", "Values", "compare_copies", "count_values"]

"""The ledger's ``transactions`` and ``messages``, and the check of transactions that are sent again.

``transactions`` has a row for each committed transaction, with its origin and a digest of its row changes.
``messages`` has the logical messages.  Executors write both, from what the decoding tasks have staged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as f

from walreplay.decode.change_batch import TIMESTAMP
from walreplay.delta import statements as delta
from walreplay.delta.target import Target
from walreplay.errors import OrderError
from walreplay.ledger.ledger import LedgerTable, append_once
from walreplay.ledger.runs import OF_APPENDED
from walreplay.ledger.state import State
from walreplay.lsn import to_datetime
from walreplay.session.isolation import settings
from walreplay.spark.staging import Staging
from walreplay.spark.workers.rows import MESSAGE, MESSAGES_TABLE, PARTS_TABLE, TRANSACTION, TRANSACTIONS_TABLE
from walreplay.stream.duplicates import VERDICTS, XIDS, Followed, lost, verdict_in_sql
from walreplay.stream.plan import Plan
from walreplay.writing.by_statements import Append, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_LEDGER_SESSION: Final = -1  # lower than the run's sessions, so that its transactions come first

_MAX_LOSSES: Final = 5

_OF_TRANSACTIONS: Final = {**OF_APPENDED, "delta.dataSkippingStatsColumns": "commit_lsn"}

_TRANSACTIONS: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("commit_lsn", pa.int64()),
        ("commit_ts", TIMESTAMP),
        ("xid", pa.int64()),
        ("gid", pa.string()),
        ("origin", pa.string()),
        ("applied", pa.bool_()),
        ("changes", pa.int64()),
        ("digest", pa.int64()),
        ("path", pa.string()),
        ("offset", pa.int64()),
    ]
)
_MESSAGES: Final = pa.schema([("run", pa.int64()), *MESSAGE])
_DECIDED: Final = (
    "commit_lsn BIGINT, commit_ts TIMESTAMP, xid BIGINT, gid STRING, origin STRING, session INT, applied BOOLEAN, "
    "complete BOOLEAN, path STRING, offset BIGINT"
)


@dataclass(frozen=True, slots=True)
class TransactionLog:
    """The transactions and messages of one run, as its decode has staged them."""

    spark: SparkSession
    target: Target
    plan: Plan
    staging: Staging
    writer: TableWriter

    def check_copies(self) -> list[str]:
        """Refuse copies of a transaction that differ, and transactions that come too late.

        Returns:
            warnings of transactions that a server has lost.

        Raises:
            OrderError: naming the first one and its file.
        """
        if not self.plan.resent:
            return []
        copies = self._copies(self.spark)
        ledger_copies = self._ledger_copies(copies)
        together = copies if ledger_copies is None else copies.unionByName(ledger_copies)
        # The first session that has sent a transaction; the ledger's own is in front of all.
        firsts = together.groupBy("commit_lsn").agg(
            f.min_by(f.struct("session", "xid", "commit_ts", "changes", "digest", "complete"), "session").alias("first")
        )
        joined = copies.join(firsts, on="commit_lsn", how="inner")
        verdict = verdict_in_sql("", self._is_late(copies))
        faulty = joined.withColumn("verdict", f.expr(verdict)).where("verdict IS NOT NULL")
        for row in faulty.orderBy("session", "commit_lsn").limit(1).collect():
            raise VERDICTS[row.verdict](row.commit_lsn, row.xid, row.path, row.offset)
        return [lost(*row) for row in _missing(copies, together).collect()]

    def count(self, upto: int) -> int:
        """Count the run's own transactions up to a commit LSN."""
        if not (self.staging.decoded or self.plan.decided):
            return 0
        among = f"commit_lsn > {self.plan.after_lsn}L AND commit_lsn <= {upto}L"
        return self._copies(self.spark).where(among).select("commit_lsn").distinct().count()

    def followed(self) -> Followed | None:
        """Compare the run's transactions with the ledger's last one; None if the ledger has none."""
        table = self.target.ledger("transactions")
        if not delta.exists(self.spark, table):
            return None
        # A prepared transaction may commit long after it got its xid.
        of_ledger = delta.read(self.spark, table).where(f"gid IS NULL AND commit_lsn <= {self.plan.after_lsn}L")
        newest = of_ledger.orderBy(f.col("commit_lsn").desc()).limit(1)
        last_row = newest.selectExpr("xid", "unix_micros(commit_ts) AS time", "origin").first()
        if last_row is None:
            return None
        ahead = f"pmod(xid - {last_row.xid}L + {XIDS // 2}L, {XIDS}L) - {XIDS // 2}L"  # xids of 32 bits wrap around
        new = self._copies(self.spark).where(f"commit_lsn > {self.plan.after_lsn}L AND gid IS NULL")
        summary = new.selectExpr(
            "count(*) AS transactions",
            f"max({ahead}) AS newest",
            "unix_micros(max(commit_ts)) AS time",
            "count(origin) AS of_origins",
        ).collect()[0]
        later = None
        if summary.time is not None and not summary.of_origins and last_row.origin is None:
            later = timedelta(microseconds=summary.time - last_row.time)
        return Followed(summary.transactions, summary.newest or 0, later)

    def writes(self, state: State, *, resumed: bool) -> Iterator[Callable[[], None]]:
        """Yield what appends the run's transactions, and its messages, each in one commit that is made once."""
        ledger = self.spark, self.target, self.writer, state
        append = partial(append_once, *ledger, conf=delta.SMALL_STATE, resumed=resumed)
        if self.staging.decoded or self.plan.decided:
            table = LedgerTable("transactions", _TRANSACTIONS, _OF_TRANSACTIONS)
            yield partial(append, table, partial(self._append_transactions, state))
        if self.staging.has(MESSAGES_TABLE):
            yield partial(append, LedgerTable("messages", _MESSAGES), partial(self._append_messages, state))

    def _append_transactions(self, state: State, spark: SparkSession, append: Append) -> None:
        if self.plan.resent:
            transactions = self._copies(spark)
            late = self._is_late(transactions)
            append.write_frame(_recorded(transactions.where(f"NOT ({late})"), state))
            return
        # Without copies there is one session's worth of LSNs, all above what was applied.
        if self.staging.has(TRANSACTIONS_TABLE):
            constants = {"run": pa.array([state.run]), "gid": pa.nulls(1, pa.string())}
            append.write_staged(self.staging.staged(spark, TRANSACTIONS_TABLE), constants)
        parts = self._together(spark)
        if parts is not None:
            with settings(spark, delta.FEW_ROWS):
                append.write_frame(_recorded(parts, state))

    def _append_messages(self, state: State, spark: SparkSession, append: Append) -> None:
        append.write_staged(self.staging.staged(spark, MESSAGES_TABLE), {"run": pa.array([state.run])})

    def _is_late(self, copies: DataFrame) -> str:
        """Write in SQL whether a transaction's commit LSN was known or passed when its session sent it."""
        high, cases = self.plan.after_lsn, []
        for session, highest in sorted(copies.groupBy("session").agg({"commit_lsn": "max"}).collect()):
            cases.append(f"WHEN session = {session} THEN commit_lsn <= {high}L")
            high = max(high, highest)  # what a later session sends must be above it
        return f"(CASE {' '.join(cases)} ELSE false END)" if cases else "false"

    def _copies(self, spark: SparkSession) -> DataFrame:
        """Return one row for each transaction and session; its parts may lie in several files."""
        # Nearly all lie in one file.  Only the parts of the few others have to be joined.
        whole = self._records(spark, TRANSACTIONS_TABLE)
        together = self._together(spark)
        return whole if together is None else whole.unionByName(together)

    def _records(self, spark: SparkSession, table: int) -> DataFrame:
        records = self.staging.records(spark, table, TRANSACTION)
        return records.selectExpr("*", "CAST(NULL AS STRING) AS gid", "true AS complete")

    def _together(self, spark: SparkSession) -> DataFrame | None:
        """Return one row for each transaction and session that is not recorded as a whole; None if there are none."""
        if not self.plan.decided and not self.staging.has(PARTS_TABLE):
            return None
        parts = self._records(spark, PARTS_TABLE)
        if self.plan.decided:
            rows = [
                (
                    *(item.commit_lsn, to_datetime(item.commit_time), item.xid, item.gid, item.origin),
                    *(item.session, item.applied or item.resent, item.complete, item.path, item.offset),
                )
                for item in self.plan.decided
            ]
            decided = spark.createDataFrame(rows, _DECIDED)
            parts = parts.unionByName(decided.selectExpr("*", "0L AS changes", "0L AS digest"))
        extra_columns = (f.max("gid").alias("gid"), f.max("origin").alias("origin"), f.min("applied").alias("applied"))
        return whole_transactions(parts, extra_columns=extra_columns)

    def _ledger_copies(self, copies: DataFrame) -> DataFrame | None:
        """Return what the ledger knows of transactions that have come again."""
        table = self.target.ledger("transactions")
        if not delta.exists(self.spark, table):
            return None
        low = copies.agg({"commit_lsn": "min"}).collect()[0][0]
        ledger_rows = delta.read(self.spark, table).where(f"commit_lsn BETWEEN {low or 0}L AND {self.plan.after_lsn}L")
        given = {"session": f"{_LEDGER_SESSION} AS session", "complete": "true AS complete"}
        return ledger_rows.selectExpr(*(given.get(name, name) for name in copies.columns))

    def ended(self, xids: Sequence[int]) -> dict[int, int]:
        """Return which of some xids have come as ordinary transactions, with their last commit LSN."""
        whole = self.staging.records(self.spark, TRANSACTIONS_TABLE, TRANSACTION)
        records = whole.unionByName(self.staging.records(self.spark, PARTS_TABLE, TRANSACTION))
        listed = ", ".join(str(xid) for xid in xids)
        rows = records.where(f"xid IN ({listed})").groupBy("xid").agg({"commit_lsn": "max"}).collect()
        return {row[0]: row[1] for row in rows}


def whole_transactions(parts: DataFrame, *by: str, extra_columns: Sequence[Column] = ()) -> DataFrame:
    """Return one row for each transaction and session, of its parts, which may lie in several files.

    Args:
        by: other columns that keep parts apart.
        extra_columns: what the rows have of other columns.
    """
    # Where a transaction begins, or commits; parts that go on elsewhere have no offset.
    where = f.expr("CASE WHEN offset >= 0 THEN offset END")
    return parts.groupBy("commit_lsn", "session", *by).agg(
        f.max("commit_ts").alias("commit_ts"),
        f.max("xid").alias("xid"),
        f.sum("changes").alias("changes"),
        f.bit_xor("digest").alias("digest"),  # of a whole, from its parts in any order
        f.min("complete").alias("complete"),  # false if any part is not
        f.min_by("path", where).alias("path"),
        f.min(where).alias("offset"),
        *extra_columns,
    )


def _missing(copies: DataFrame, together: DataFrame) -> DataFrame:
    """Return, for each session that goes on behind what it sends again, what it lacks of what was sent before.

    Args:
        copies: the run's transactions; ``together`` has also those that the ledger knows.
    """
    spans = copies.groupBy("session").agg(
        f.min("commit_lsn").alias("low"),
        f.max("commit_lsn").alias("high"),
        f.min_by(f.struct("path", "offset"), "commit_lsn").alias("start"),
    )
    earlier = together.where("changes > 0").selectExpr("session AS before", "commit_lsn", "xid")
    inside = f.expr("before < session AND commit_lsn > low AND commit_lsn < high")
    lacking = earlier.join(spans, on=inside).join(copies, on=["session", "commit_lsn"], how="left_anti")
    losses = lacking.groupBy("session", "start").agg(
        f.countDistinct("commit_lsn").alias("count"),
        f.min("commit_lsn").alias("first"),
        f.min_by("xid", "commit_lsn").alias("xid"),
    )
    return losses.orderBy("session").select("count", "first", "xid", "start.*").limit(_MAX_LOSSES)


def _recorded(transactions: DataFrame, state: State) -> DataFrame:
    """Return transactions as the ledger has them."""
    return transactions.selectExpr(*(f"{state.run}L AS run" if name == "run" else name for name in _TRANSACTIONS.names))


def refuse_gone(paths: Sequence[str], present: Sequence[str]) -> None:
    """Refuse to decode when files are gone that hold the beginning of transactions."""
    for path in sorted(set(paths).difference(present)):
        raise OrderError(
            "the file is gone, and it holds the beginning of a transaction that ends now",
            path=path,
            remedy="Bring it back to where it was; status lists which files are still needed",
        )

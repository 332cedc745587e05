"""Queries for what a target's tables held at an LSN or at a time; and the LSNs and times that people enter."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from walreplay.config import Settings, make_settings
from walreplay.config.keys import HISTORY_COLUMNS, LOG_COLUMNS, expression
from walreplay.config.model import tables_named
from walreplay.config.selection import key_columns, metadata_of
from walreplay.decode.scan import Until
from walreplay.delta import statements as delta
from walreplay.delta.target import Target, catalog_errors, ledger_errors, quote
from walreplay.errors import ConfigError, TargetError
from walreplay.ledger.ledger import Ledger
from walreplay.ledger.runs import first_lsn, loads_of, remembered_runs
from walreplay.ledger.state import Load, State
from walreplay.ledger.status import TableVersion, nothing_applied, proved, versions_at
from walreplay.lsn import POSTGRES_EPOCH, format_lsn, parse_lsn, to_datetime
from walreplay.names import RowKind, output_of, relation_of, source_oid
from walreplay.report import JsonResult
from walreplay.session.failures import spark_errors
from walreplay.session.isolation import own_session, quiet_queries, set_for_a_while
from walreplay.table.certainty import name_at
from walreplay.table.registry import MirrorEntry
from walreplay.table.table_run import is_own
from walreplay.writing.by_files import choose_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def until_of(lsn: str | int | None, time: str | datetime | None) -> Until | None:
    """Read the end that is asked for; None if there is none.

    Raises:
        ConfigError: there are two, or it cannot be read.
    """
    if lsn is not None and time is not None:
        raise ConfigError(
            "an LSN and a time are given as the end", remedy="Give one of them: --until-lsn or --until-time"
        )
    if lsn is not None:
        return Until(lsn=_parsed(lsn, "--until-lsn"))
    return None if time is None else Until(time=_micros(time))


def _micros(time: str | datetime) -> int:
    """Return a time in microseconds since 2000-01-01 UTC."""
    try:
        moment = datetime.fromisoformat(time.strip().replace("Z", "+00:00")) if isinstance(time, str) else time
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)  # the documented default
        return (zoned - POSTGRES_EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"--until-time: not a time: {time!s}", remedy="Write it like 2026-03-01T00:00:00+00:00"
        ) from None


def last_lsn_of(at_lsn: int | str | None, consistent_point: int | str | None) -> int:
    """Return the last commit LSN that is among a base load's rows.

    Raises:
        ConfigError: none or both are given, or one cannot be read.
    """
    if (at_lsn is None) == (consistent_point is None):
        raise ConfigError(
            "it is not said as of which LSN the rows are" if at_lsn is None else "two LSNs are given",
            remedy="Give --consistent-point, which a slot's snapshot comes with, or --at-lsn, the last commit's",
        )
    if at_lsn is not None:
        return lsn_of(at_lsn, "--at-lsn")
    assert consistent_point is not None
    # The point lies between two WAL records: the next commit may have just this LSN, and is not among the rows.
    return lsn_of(consistent_point, "--consistent-point") - 1


def _parsed(text: int | str, option: str) -> int:
    try:
        return text if isinstance(text, int) else parse_lsn(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}", remedy="Give it as PostgreSQL writes it") from None


def lsn_of(text: int | str, option: str) -> int:
    """Read an LSN; raise ConfigError if it is none."""
    lsn = _parsed(text, option)
    if not 0 < lsn < 1 << 63:  # the ledger's columns are signed 64-bit integers
        raise ConfigError(f"{option} is no LSN that a server can have", remedy="Give it as PostgreSQL writes it")
    return lsn


_LSN: Final = re.compile(r"[0-9A-Fa-f]+/[0-9A-Fa-f]+")


@dataclass(frozen=True, slots=True)
class TableAsOf:
    """How a table is read as of a moment.

    Attributes:
        name: the source's, as it was then; ``name_now`` is the one that the same table has now, None for none.
        output: ``mirror``, ``history`` or ``changelog``.
        sql: None where nothing gives it.
        exact: it gives just what the source held then.
        note: why not, and what else to know; empty for nothing.
    """

    name: str
    output: str
    location: str
    sql: str | None
    exact: bool
    note: str = ""
    name_now: str | None = None


@dataclass(frozen=True, slots=True)
class AsOf(JsonResult):
    """How a target's tables are read as of a moment.

    Attributes:
        lsn: the last commit at that moment; None if there is none.
        time: the time that was asked for; None if it was an LSN.
    """

    target: str
    lsn: int | None
    time: datetime | None
    tables: tuple[TableAsOf, ...]


def as_of(
    spark: SparkSession,
    target: str | os.PathLike[str],
    moment: str | datetime,
    table: str | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
) -> AsOf:
    """Write a query for each table that the source had at a moment, which gives what it held then.

    All queries of one name are about the relation that had this name then, wherever its rows are now.

    Args:
        moment: an LSN, as PostgreSQL writes it, or a time.
        table: a regular expression over the whole of ``schema.table`` as it was then; None for all tables.
        config: as `walreplay.apply` takes it: what the tables' own columns and keys are.

    Raises:
        ConfigError: the moment or the expression cannot be read.
        TargetError: the target holds nothing, or is not there yet.
    """
    configured = make_settings(config)
    place = Target.parse(str(target)).of_source(configured.ledger_name)
    lsn, time = moment_of(moment)
    table_pattern = expression(".*" if table is None else tables_named(table))
    session = own_session(spark)
    with spark_errors(path=place.text), quiet_queries(), set_for_a_while(session, delta.SMALL_STATE):
        with catalog_errors(place):
            state = Ledger(session, place, choose_writer(session, place), loads=True).read()
        if state is None or state.resume is None:
            raise nothing_applied(place)
        high = state.resume.place.high_lsn
        if lsn is not None and lsn > high:
            raise TargetError(
                f"the target holds what was committed up to {format_lsn(high)}",
                path=place.text,
                remedy="Ask for an earlier LSN, or apply more captures",
            )
        position = _Position.of(session, place, high if lsn is None else lsn, time)
        cut = None if position.run is None else versions_at(session, place.text, position.run, place.source)
        loads = loads_of(delta.read(session, place.ledger("runs")), state)
        versions = {table.oid: table for table in cut.tables} if cut else {}
        queries = _Queries(session, state, configured, position, time, loads, versions)
        named_entries = [(entry, *name_at(entry, position.lsn)) for entry in state.tables]
        # While a name passes from one relation to another, two entries have it: the one that had it before is meant.
        named_entries.sort(key=lambda named: (named[1], named[0].called[:1]))
        # Reversed, so that of two entries of one name the first in order stays.
        chosen = {(name, output_of(entry.oid)): (entry, doubt) for entry, name, doubt in reversed(named_entries)}
        tables = [
            queries.table(entry, name, doubt)
            for (name, _), (entry, doubt) in sorted(chosen.items(), key=lambda pair: (pair[0][0], pair[0][1].number))
            if name and table_pattern.fullmatch(name) is not None
        ]
    shown = None if position.lsn < 0 else position.lsn  # before every commit
    return AsOf(place.text, shown, None if time is None else to_datetime(time), tuple(tables))


def moment_of(moment: str | datetime) -> tuple[int | None, int | None]:
    """Read an LSN, or a time in microseconds since 2000-01-01 UTC.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(moment, str) and _LSN.fullmatch(moment.strip()):
        return parse_lsn(moment.strip()), None
    try:
        return None, _micros(moment)
    except ConfigError:
        raise ConfigError(
            f"--as-of: neither an LSN nor a time: {moment!s}",
            remedy="Write an LSN like 0/1A2B3C, or a time like 2026-03-01T00:00:00+00:00",
        ) from None


def _timestamp(micros: int) -> str:
    return f"TIMESTAMP '{to_datetime(micros).isoformat(sep=' ')}'"


@dataclass(frozen=True, slots=True)
class _Position:
    """What the ledger knows of a moment.

    Attributes:
        lsn: the last commit; -1 for none.
        run: the last run that has ended at or before it, at ``run_lsn``; None if there is none.
        later: how many transactions behind that run are at or before the moment.
        oids: the tables of the next run, which has applied these; None if they are not known.
    """

    lsn: int
    run: int | None = None
    run_lsn: int = -1
    later: int = 0
    oids: frozenset[int] | None = None

    @classmethod
    def of(cls, spark: SparkSession, target: Target, high: int, time: int | None) -> _Position:
        """Find the last commit at a time among those up to an LSN, and the run that comes nearest."""
        runs = remembered_runs(delta.read(spark, target.ledger("runs")))
        commits = delta.read(spark, target.ledger("transactions")).where(f"commit_lsn <= {high}")
        with ledger_errors(target.ledger("transactions").text):
            if time is not None:
                # Commit times need not rise with LSNs: all in front of the first transaction with a later time.
                too_late = commits.where(f"commit_ts > {_timestamp(time)}")
                (first,) = too_late.selectExpr("min(commit_lsn) AS lsn").collect()
                commits = commits if first.lsn is None else commits.where(f"commit_lsn < {first.lsn}")
                (last,) = commits.selectExpr("max(commit_lsn) AS lsn").collect()
                high = -1 if last.lsn is None else last.lsn
            last_run = runs.where(f"applied_lsn <= {high}").orderBy("run", ascending=False).first()
            if last_run is None:
                return cls(high)
            later = commits.where(f"commit_lsn > {last_run.applied_lsn}").count()
            next_run = runs.where(f"run > {last_run.run}").orderBy("run").first() if later else None
        if next_run is None or (next_run.applied_lsn or -1) < high:
            return cls(high, last_run.run, last_run.applied_lsn, later)
        return cls(high, last_run.run, last_run.applied_lsn, later, frozenset(table.oid for table in next_run.tables))


_Query: TypeAlias = tuple[str | None, str]  # a query, and what keeps it from being exact; empty for nothing


@dataclass(frozen=True)
class _Queries:
    """A moment, and what tables are looked up in.

    Attributes:
        versions: of the run that has ended last by then, by the tables' oids.
    """

    spark: SparkSession
    state: State
    configured: Settings
    position: _Position
    time: int | None
    loads: Sequence[tuple[int, Load]]
    versions: Mapping[int, TableVersion]

    def table(self, entry: MirrorEntry, name: str, doubt: str) -> TableAsOf:
        """Return how a table is read.

        Args:
            name: its relation's then; ``doubt``: why it may have been another one.
        """
        kind = output_of(entry.oid).rows  # a mirror is read by version, the others by their own columns
        sql, reason = self._mirror(entry) if kind is RowKind.CURRENT else self._live(entry, kind)
        reasons = [reason, doubt]
        if kind is not RowKind.CURRENT or (self.position.later and not reason):  # a mirror's version has its own note
            reasons += [entry_doubt.text for entry_doubt in entry.doubts if entry_doubt.covers(self.position.lsn)]
        note = "; ".join(dict.fromkeys(filter(None, reasons)))
        exact = sql is not None and not note
        return TableAsOf(name, output_of(entry.oid).value, entry.table.text, sql, exact, note, entry.name_now or None)

    def _mirror(self, entry: MirrorEntry) -> _Query:
        means = "the table's base load and a backfill give" if entry.base_lsn is not None else "a backfill gives"
        remedy = f"in a new target {means} it exactly: walreplay backfill --until-lsn LSN"
        version = self.versions.get(entry.oid)
        if version is None:
            return None, entry.paused or f"the mirror has no version that is so old; {remedy}"
        is_changed = self.position.later > 0 and (self.position.oids is None or entry.oid in self.position.oids)
        if version.sql is not None and is_changed:
            run_lsn = format_lsn(max(self.position.run_lsn, 0))
            return version.sql, f"as of LSN {run_lsn}, {self.position.later:,} transactions earlier; {remedy}"
        return version.sql, version.note

    def _live(self, entry: MirrorEntry, kind: RowKind) -> _Query:
        """Return how a history or a change log is read, in the version in which the last run has left it."""
        version, problem = None, "the ledger does not know which of its versions has the rows"
        if entry.left is not None:
            version, problem = proved(self.spark, entry.table, entry.left, self.state.ledger, entry.run, entry.oid)
        if version is None:
            return None, problem
        source = f"{entry.table.sql} VERSION AS OF {version}"
        if entry.share is not None:
            source = f"(SELECT * FROM {source} WHERE {is_own(entry.share)})"
        return self._history(entry, source) if kind is RowKind.VERSION else self._change_log(entry, source)

    def _history(self, entry: MirrorEntry, source: str) -> _Query:
        oid = source_oid(entry.oid)
        since = first_lsn(self.loads, oid)
        if since is not None and self.position.lsn < since:  # no row is older
            reason = f"it begins with rows that were loaded as of LSN {format_lsn(since)}: it can be read from there on"
            return None, reason
        names, moment = ("start_lsn", "end_lsn"), f"{self.position.lsn}"
        if self.time is not None:
            names, moment = ("start_at", "end_at"), _timestamp(self.time)
        start, end = (quote(HISTORY_COLUMNS[name]) for name in names)
        rescued = metadata_of(self.configured, output_of(entry.oid)).rescued_data
        listed = ", ".join(map(quote, [*(column.name for column in entry.shape.present), *filter(None, [rescued])]))
        sql = f"SELECT {listed} FROM {source} WHERE {start} <= {moment} AND ({end} IS NULL OR {end} > {moment})"
        for _, load in self.loads:
            if oid in load.oids and load.after < self.position.lsn < load.at_lsn:
                loaded, earlier = format_lsn(load.at_lsn), format_lsn(max(load.after, 0))
                return sql, f"its rows were loaded as of LSN {loaded}; before it they are as of {earlier}"
        return sql, ""

    def _change_log(self, entry: MirrorEntry, source: str) -> _Query:
        assert self.state.resume is not None
        oid, own_oid = source_oid(entry.oid), relation_of(entry.oid)
        is_newest = all(  # of several tables that had this oid
            relation_of(other.oid) <= own_oid for other in self.state.tables if source_oid(other.oid) == oid
        )
        relation = next((other for other in self.state.resume.relations if other.oid == oid and is_newest), None)
        if first_lsn(self.loads, oid) is not None:
            return None, "the change log has no rows of the base load; the mirror and a history do"
        if relation is None:
            return None, "the table is not among those that the source has now"
        schema, table = relation.namespace or "pg_catalog", relation.name
        names = dict(entry.names)
        key = [names.get(column, column) for column in key_columns(relation, self.configured.keys_of(schema, table))]
        sql = _Folding(entry, key, self.configured, self.position.lsn, source)
        query, unexplained = sql.keyed() if key else sql.counted() if relation.replica_identity == "f" else sql.added()
        # Spark runs this one: only the rows of the log show whether it has all changes.
        if not self.spark.sql(unexplained).isEmpty():
            return (
                query,
                "a change does not fit what its log has before it: rows from before the captures may be missing",
            )
        if not self.spark.sql(sql.doubtful()).isEmpty():
            return query, "a value that its column cannot hold, or that was not sent with a new key, is NULL"
        return query, ""


class _Folding:
    """Write the query that folds a change log to the rows as of an LSN, and one that finds changes that do not fit.

    A change log has all rows from the table's beginning on, or from the last truncate, only if each change fits what
    comes before it: none is for a row that was never added.  Later changes up to the next truncate show this, too.
    """

    def __init__(self, entry: MirrorEntry, key: Sequence[str], configured: Settings, lsn: int, source: str) -> None:
        names = metadata_of(configured, output_of(entry.oid))
        self._columns, self._key = [column.name for column in entry.shape.present], key
        self._op, self._before = quote(LOG_COLUMNS["op"]), quote(LOG_COLUMNS["before"])
        self._unchanged = quote(LOG_COLUMNS["unchanged"])
        self._rescued = names.rescued_data
        same = " AND ".join(f"{self._before}.{quote(name)} <=> {quote(name)}" for name in key) or "true"  # NULL-safe
        self._moves = f"{self._op} = 'u' AND {self._before} IS NOT NULL AND NOT ({same})"
        commit, ordinal = quote(names.commit_lsn or ""), quote(LOG_COLUMNS["ordinal"])
        emptied = f"SELECT walreplay_at FROM log WHERE {self._op} = 't' AND {commit}"  # truncates
        self._live, self._all = (
            f"log AS (SELECT *, struct({commit} AS lsn, {ordinal} AS ordinal) AS walreplay_at FROM {source} "
            f"WHERE {rows}), "
            f"live AS (SELECT * FROM log WHERE {self._op} <> 't' "
            f"AND coalesce(walreplay_at > (SELECT max(walreplay_at) FROM ({emptied} <= {lsn})), true) "
            f"AND coalesce(walreplay_at < (SELECT min(walreplay_at) FROM ({emptied} > {lsn})), true))"
            for rows in (f"{commit} <= {lsn}", "true")
        )

    def doubtful(self) -> str:
        """Write the query that finds changes with unknown values, so that rows are not as the source had them."""
        rescued = "false" if self._rescued is None else f"{quote(self._rescued)} IS NOT NULL"
        moves = f"size({self._unchanged}) > 0 AND {self._moves}"  # TOAST values are not sent with a new key
        return f"WITH {self._live} SELECT 1 FROM live WHERE {rescued} OR ({moves}) LIMIT 1"

    def _listed(self, prefix: str = "") -> str:
        return ", ".join(f"{prefix}{quote(name)}" for name in self._columns)

    def added(self) -> tuple[str, str]:
        """Write the two queries for a table whose rows nothing identifies: it has only inserts."""
        of_live = f"SELECT {self._listed()} FROM live WHERE {self._op}"
        return f"WITH {self._live} {of_live} = 'c'", f"WITH {self._all} {of_live} <> 'c'"

    def counted(self) -> tuple[str, str]:
        """Write the two queries for a table without a key, whose equal rows are counted."""
        listed, order = self._listed(), "walreplay_at"
        images = (
            f"images AS (SELECT {order}, {listed}, 1 AS walreplay_n FROM live WHERE {self._op} IN ('c', 'u') UNION ALL "
            f"SELECT {order}, {self._listed(f'{self._before}.')}, -1 FROM live WHERE {self._op} IN ('u', 'd'))"
        )
        over = f"OVER (PARTITION BY {listed} ORDER BY {order}, walreplay_n)"
        return (
            f"WITH {self._live}, {images}, "
            f"counted AS (SELECT {listed}, sum(walreplay_n) AS walreplay_n FROM images GROUP BY {listed}) "
            f"SELECT {listed} FROM (SELECT {listed}, explode(sequence(1, CAST(walreplay_n AS INT))) FROM counted "
            "WHERE walreplay_n > 0)"
        ), (
            f"WITH {self._all}, {images} SELECT 1 FROM (SELECT sum(walreplay_n) {over} AS walreplay_left FROM images) "
            "WHERE walreplay_left < 0"
        )

    def keyed(self) -> tuple[str, str]:
        """Write the two queries for a table with a key, which may change."""
        keys = ", ".join(map(quote, self._key))
        olds = ", ".join(
            f"{self._before}.{quote(name)}" if name in self._key else f"NULL AS {quote(name)}" for name in self._columns
        )
        over = f"OVER (PARTITION BY {keys} ORDER BY walreplay_at, walreplay_new)"
        values = ", ".join(
            quote(name)
            if name in self._key
            else f"last_value(IF(array_contains({self._unchanged}, {delta.literal(name)}), NULL, "
            f"struct({quote(name)} AS v)), true) {over}.v AS {quote(name)}"
            for name in self._columns
        )
        # An update of the key counts as two changes: a delete of the old key, and an insert of the new one.
        changes = (
            f"changes AS (SELECT walreplay_at, 1 AS walreplay_new, IF({self._moves}, 'c', {self._op}) AS walreplay_op, "
            f"{self._unchanged}, {self._listed()} FROM live UNION ALL SELECT walreplay_at, 0, 'd', array(), {olds} "
            f"FROM live WHERE {self._moves})"
        )
        return (
            f"WITH {self._live}, {changes} "
            f"SELECT {self._listed()} FROM (SELECT walreplay_op, {values}, row_number() OVER (PARTITION BY {keys} "
            f"ORDER BY walreplay_at DESC, walreplay_new DESC) AS walreplay_nth FROM changes) "
            "WHERE walreplay_nth = 1 AND walreplay_op <> 'd'"
        ), (
            f"WITH {self._all}, {changes} SELECT 1 FROM (SELECT walreplay_op, lag(walreplay_op, 1, 'd') {over} AS "
            "walreplay_last FROM changes) WHERE (walreplay_op = 'c') <> (walreplay_last = 'd')"
        )

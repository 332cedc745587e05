"""The report of a run: plain values, for people, notebooks and schedulers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from walreplay.errors import WalReplayError
from walreplay.lsn import format_lsn

_Result = TypeVar("_Result")

Action: TypeAlias = Literal["created", "merged", "appended", "overwritten", "unchanged", "set aside", "held"]
Status: TypeAlias = Literal["applied", "loaded", "rebuilt", "nothing new"]
# How rows reached the tables: in files that workers have written, or by Spark's own statements.
WriterKind: TypeAlias = Literal["files", "statements"]


class JsonResult:
    """A result that programs get as values for JSON, field by field; what records hide is left out."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for JSON; LSNs as ``X/X``, times in ISO form, durations in seconds."""
        return _fields(self)


def json_value(value: Any, name: str = "") -> Any:
    """Return a value for JSON.

    Args:
        name: the field's; what ends with ``lsn`` is one.
    """
    if is_dataclass(value):
        return value.to_dict() if isinstance(value, JsonResult) else _fields(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return round(value.total_seconds())
    if isinstance(value, float):
        return round(value, 3)  # seconds, to the millisecond
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("lsn"):  # a bool is an int, too
        return format_lsn(value)
    if isinstance(value, (tuple, list)):
        return [json_value(element) for element in value]
    return {key: json_value(element) for key, element in value.items()} if isinstance(value, Mapping) else value


def _fields(value: Any) -> dict[str, Any]:
    return {item.name: json_value(getattr(value, item.name), item.name) for item in fields(value) if item.repr}


@dataclass(frozen=True, slots=True)
class TableReport(JsonResult):
    """What a run did to one table.

    Attributes:
        name: the source's ``schema.table``; that of another output has the output's name behind, ``s.t (changelog)``.
        location: the Delta table's path, or its name in a catalog.
        changes: row changes decoded; ``inserted``, ``updated`` and ``deleted`` count rows of the Delta table.
        version: the Delta version that the run made; None if it made none.
        without_base: rows that were updated although the table did not have them (they are older than the captures):
            they are written with what is known of them.
        deletes_without_row: deletes whose rows the table did not have.
        unknown: rows with a value that was never sent; it is NULL.
        oid: the source relation's; of another output one that is derived from it (`walreplay.names`).
        set_aside: another relation has the table's name; its rows are in the ledger.
        notes: what a person should know, such as schema changes.
        writer: how its rows were written; None where none were, or by a run that was interrupted.
        writer_reason: why it was by statements, in a run that writes files.
        bytes: of the decoded changes that were folded.
    """

    name: str
    location: str
    action: Action
    changes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    truncated: bool = False
    version: int | None = None
    seconds: float = 0.0
    without_base: int = 0
    deletes_without_row: int = 0
    unknown: int = 0
    oid: int | None = None
    set_aside: bool = False
    notes: tuple[str, ...] = ()
    writer: WriterKind | None = None
    writer_reason: str | None = None
    bytes: int = 0

    def order(self) -> tuple[str, int]:
        """Return where a report of a run has the table: two may have one name, and are ready in any order."""
        return self.name, self.oid or 0


@dataclass(frozen=True, slots=True)
class RunReport(JsonResult):
    """What a run did.

    Attributes:
        run: the run's number in the target's ledger; None if there was nothing to record.
        capture_bytes: bytes read, as stored.
        transactions: committed transactions applied, and ``changes`` the row changes in them.
        applied_lsn: the target holds everything committed up to here.
        seconds: the whole time; ``stages`` has the time of each stage.
        writer: how rows were written; None if none were.
    """

    run: int | None
    status: Status
    captures: str
    target: str
    files: int
    capture_bytes: int
    transactions: int
    changes: int
    applied_lsn: int | None
    applied_commit_ts: datetime | None
    tables: tuple[TableReport, ...]
    warnings: tuple[str, ...]
    seconds: float
    stages: Mapping[str, float]
    writer: WriterKind | None = None


def timed(report: RunReport, began: float, stages: Mapping[str, float]) -> RunReport:
    """Return a report with the run's time, in all and by stage."""
    return replace(report, seconds=time.monotonic() - began, stages=dict(stages))


def joined(earlier: RunReport | None, later: RunReport) -> RunReport:
    """Report a run, and the runs before it of the same call, as one."""
    if earlier is None:
        return later
    names = ("files", "capture_bytes", "transactions", "changes")
    sums: dict[str, Any] = {name: getattr(earlier, name) + getattr(later, name) for name in names}
    return replace(later, **sums, tables=added_up((*earlier.tables, *later.tables)))


def added_up(tables: Sequence[TableReport]) -> tuple[TableReport, ...]:
    """Report each table once: what several runs did to it is added up, and the last one's version counts."""
    totals: dict[tuple[int | None, str, str], TableReport] = {}
    for table in tables:
        key = (table.oid, table.name, table.location)
        earlier = totals.get(key)
        totals[key] = table if earlier is None else _sum(earlier, table)
    return tuple(sorted(totals.values(), key=TableReport.order))


_NOT_WRITTEN: Final = ("unchanged", "set aside", "held")
_SUMMED: Final = (
    *("changes", "bytes", "inserted", "updated", "deleted", "seconds"),
    *("without_base", "deletes_without_row", "unknown"),
)


def _sum(earlier: TableReport, later: TableReport) -> TableReport:
    return replace(
        later,
        # The first action that has written to the table counts, unless it is held since.
        action=later.action if later.action == "held" or earlier.action in _NOT_WRITTEN else earlier.action,
        **{name: getattr(earlier, name) + getattr(later, name) for name in _SUMMED},
        truncated=earlier.truncated or later.truncated,
        version=earlier.version if later.version is None else later.version,
        notes=tuple(dict.fromkeys((*earlier.notes, *later.notes))),
        writer=later.writer or earlier.writer,
        writer_reason=later.writer_reason or earlier.writer_reason,
    )


@dataclass(frozen=True, slots=True)
class TableForecast:
    """What runs would do to one table.

    Attributes:
        name, location, action, changes, truncated, oid, set_aside, notes: as `TableReport` would have them.
        inserts, updates, deletes, truncates: row changes in the files, whatever becomes of their transactions.
    """

    name: str
    location: str
    action: Action
    changes: int
    inserts: int
    updates: int
    deletes: int
    truncates: int
    truncated: bool
    oid: int | None
    set_aside: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forecast(JsonResult):
    """What runs would do, found without writing anything.

    Attributes:
        runs: how many there would be.
        capture_bytes: to be read, as stored.
        applied_lsn: the target would hold everything committed up to here.
        left_out: row changes of tables that are not wanted.
        tasks: about how many Spark tasks there would be.
        estimated_seconds: how long it would take; None if nothing is known.
        estimated_by: the basis of the estimate: the target's runs before, or the scan of the same files.
    """

    captures: str
    target: str
    runs: int
    files: int
    capture_bytes: int
    transactions: int
    applied_lsn: int | None
    applied_commit_ts: datetime | None
    tables: tuple[TableForecast, ...]
    left_out: int
    tasks: int
    estimated_seconds: float | None
    estimated_by: str
    warnings: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """What a table needed, and what was done.

    Attributes:
        name: the source's ``schema.table``, or ``ledger: table``.
        small_files: of fewer than 64 MiB.
        unreferenced_files: that no version needs any more which the table's retention keeps.
        actions: ``purge``, ``optimize``, ``vacuum`` and ``forget``, in their order, and ``reasons`` why.
        done: they were done.
        files_removed, files_added: by writing files together; the former are there until VACUUM removes them.
        problem: what has stopped it.
    """

    name: str
    location: str
    files: int = 0
    bytes: int = 0
    small_files: int = 0
    files_with_deletion_vectors: int = 0
    unreferenced_files: int = 0
    actions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    done: bool = False
    files_removed: int = 0
    files_added: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceReport(JsonResult):
    """What a target's tables needed; unless it was a dry run, it was done."""

    target: str
    dry_run: bool
    tables: tuple[TableMaintenance, ...]
    warnings: tuple[str, ...]
    seconds: float

    @property
    def has_failed(self) -> bool:
        """Whether something could not be done."""
        return any(table.problem for table in self.tables)


Equality: TypeAlias = Literal["equal", "different", "not compared", "left out"]


@dataclass(frozen=True, slots=True)
class TableVerification(JsonResult):
    """How a table has compared with one that has the right rows.

    Attributes:
        name, location, oid: see `TableReport`.
        reason: why it differs or was not compared, and who else has written to it; empty for nothing.
        rows: how many it should have.
        missing, extra, changed: rows that it lacks, that it has and should not have, and that have other values.
        columns: those that differ in changed rows, each with the number of these rows.
    """

    name: str
    location: str
    result: Equality
    reason: str = ""
    rows: int | None = None
    missing: int = 0
    extra: int = 0
    changed: int = 0
    columns: Mapping[str, int] = field(default_factory=dict)
    oid: int | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport(JsonResult):
    """How a target's tables have compared.

    Attributes:
        result: see `worst_of`.
        against: where the right rows came from.
        applied_lsn: what both sides had applied.
        source_lsn: the last commit LSN that was among the source's rows; None for the archive.
        differences: the Delta table that has the rows that differ; None if they were not written.
    """

    result: Equality
    against: str
    captures: str
    target: str
    applied_lsn: int
    applied_commit_ts: datetime
    source_lsn: int | None
    tables: tuple[TableVerification, ...]
    differences: str | None
    warnings: tuple[str, ...]
    seconds: float
    stages: Mapping[str, float]


def worst_of(tables: Iterable[TableVerification]) -> Equality:
    """Return what holds of all tables: one that is different counts first, then one that was not compared.

    Those that the configuration leaves out do not count; of no other table at all nothing was compared.
    """
    results = {table.result for table in tables} - {"left out"} or {"not compared"}
    worst: tuple[Equality, ...] = ("different", "not compared")
    return next((result for result in worst if result in results), "equal")


@dataclass(frozen=True, slots=True)
class SourceReport(Generic[_Result]):
    """What came of one of several sources.

    Attributes:
        result: its report; None if it has failed, and then ``error`` says why.
    """

    source: str
    result: _Result | None
    error: Exception | None
    seconds: float

    @property
    def problem(self) -> str | None:
        """What has gone wrong, in one line without values; None if nothing has."""
        if self.error is None or isinstance(self.error, WalReplayError):
            return None if self.error is None else str(self.error)
        return f"{type(self.error).__name__}, a fault of walreplay"  # its text may quote a value


@dataclass(frozen=True, slots=True)
class SourcesReport(Generic[_Result]):
    """What came of the sources of one target, in the configuration's order."""

    sources: tuple[SourceReport[_Result], ...]

    @property
    def results(self) -> dict[str, _Result]:
        """The reports of the sources that have not failed, by their names."""
        return {report.source: report.result for report in self.sources if report.result is not None}

    @property
    def failed(self) -> tuple[SourceReport[_Result], ...]:
        """The sources that have failed."""
        return tuple(report for report in self.sources if report.error is not None)

    def raise_first(self) -> None:
        """Raise the error of the first source that has failed, if one has."""
        for report in self.failed:
            assert report.error is not None
            raise report.error

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return {
            "sources": [
                {
                    "source": report.source,
                    "status": "failed" if report.error is not None else "done",
                    "error": report.problem,
                    "report": json_value(report.result),
                    "seconds": json_value(report.seconds),
                }
                for report in self.sources
            ]
        }

"""Rows that were changed and are not there are one warning of a call, whatever its tables, outputs and runs."""

from __future__ import annotations

from walreplay.config import Settings
from walreplay.names import Output
from walreplay.report import TableReport
from walreplay.writing.merge import missing_warnings


def _report(name: str, oid: int, updates: int, deletes: int) -> TableReport:
    return TableReport(name, "/m", "merged", oid=oid, without_base=updates, deletes_without_row=deletes)


def test_one_warning_names_each_table_once_and_what_brings_its_rows() -> None:
    history = Output.HISTORY.oid_of(9)
    reports = [_report("s.t (history)", history, 2, 1), _report("s.t", 9, 2, 1), _report("s.u", 8, 0, 1_000)]
    (warning,) = missing_warnings([*reports, _report("s.w", 7, 0, 0)], Settings())
    tables = "s.t (2 to be updated, 1 to be deleted), s.u (1,000 to be deleted)."
    assert warning.startswith(f"rows are not in their tables though changed: {tables}")
    assert "walreplay load --from BASE --at-lsn LSN --replace" in warning
    assert "s.w" not in warning
    assert list(missing_warnings([], Settings())) == []

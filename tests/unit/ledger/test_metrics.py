"""What is measured of a run, and where its lines go."""

from __future__ import annotations

import errno
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from walreplay.errors import TargetError
from walreplay.ledger.runs import lines_of, metrics_of, write_metrics
from walreplay.ledger.state import State
from walreplay.report import RunReport, TableReport
from walreplay.session.text_files import append_lines

NOON = datetime(2026, 11, 26, 12, tzinfo=timezone.utc)


def report(*tables: TableReport, **more: Any) -> RunReport:
    values: dict[str, Any] = {
        "run": 7,
        "status": "applied",
        "captures": "c",
        "target": "t",
        "files": 1,
        "capture_bytes": 10,
        "transactions": 2,
        "changes": 3,
        "applied_lsn": 0x100000010,
        "applied_commit_ts": NOON - timedelta(seconds=90),
        "tables": tables,
        "warnings": (),
        "seconds": 0.0,
        "stages": {"list": 0.5, "apply": 1.25},
    }
    return RunReport(**(values | more))


STATE = State("ledger", "src", 7, NOON - timedelta(seconds=5), "c")


def test_a_run_has_a_row_for_each_table() -> None:
    tables = [
        TableReport(name, "p", "merged", changes=count, bytes=9, version=4) for name, count in (("a", 1), ("b", 2))
    ]
    found = metrics_of(report(*tables), STATE, NOON, [None, 0x100000030, 5])
    assert [(row["table"], row["table_changes"], row["table_bytes"]) for row in found] == [("a", 1, 9), ("b", 2, 9)]
    for row in found:
        assert (row["run"], row["source"], row["seconds"], row["lag_seconds"], row["lag_bytes"]) == (
            7,
            "src",
            1.75,
            90.0,
            0x20,
        )


def test_a_call_without_a_table_or_a_run_has_one_row() -> None:
    nothing = report(run=None, status="nothing new", applied_lsn=None, applied_commit_ts=None, stages={})
    (row,) = metrics_of(nothing, None, NOON, ())
    assert (row["run"], row["status"], row["table"], row["lag_seconds"], row["lag_bytes"]) == (
        None,
        "nothing new",
        None,
        None,
        None,
    )
    # Spark's own rows take no whole number for one with a fraction.
    assert isinstance(row["seconds"], float)


def test_a_source_whose_clock_is_ahead_is_not_early() -> None:
    (row,) = metrics_of(report(applied_commit_ts=NOON + timedelta(hours=1)), STATE, NOON, ())
    assert (row["lag_seconds"], row["lag_bytes"]) == (0.0, 0)


def test_lines_are_json_with_the_documented_fields() -> None:
    (text,) = lines_of("/t\n", metrics_of(report(), STATE, NOON, ()))
    line = json.loads(text)
    assert (line["target"], line["applied_lsn"], line["phases"]) == ("/t\n", "1/10", {"list": 0.5, "apply": 1.25})
    assert line["finished_at"] == "2026-11-26T12:00:00+00:00"


def test_lines_are_added_to_a_file_and_put_into_a_folder(tmp_path: Path) -> None:
    file, folder = tmp_path / "made" / "m.jsonl", tmp_path / "folder"
    for name in ("1", "2"):
        append_lines(str(file), [name], name)
        append_lines(f"{folder}/", [name], name)
        append_lines(str(folder), ["more"], f"{name} more")
    assert file.read_text(encoding="utf-8") == "1\n2\n"
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == {
        "1": "1\n",
        "2": "2\n",
        "1 more": "more\n",
        "2 more": "more\n",
    }


def test_a_uri_is_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, str]] = []
    monkeypatch.setattr("walreplay.session.text_files.write_text", lambda place, text, _: written.append((place, text)))
    append_lines("s3a://bucket/metrics", ["a", "b"], "run.jsonl")
    assert written == [("s3a://bucket/metrics/run.jsonl", "a\nb\n")]


def test_a_file_that_cannot_be_added_to_is_told_with_what_to_give_instead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(TargetError, match=r"cannot be added to the file .Operation not supported.") as caught:
        append_lines(str(tmp_path / "m"), ["a"], "n")
    assert "folder" in str(caught.value.remedy)
    assert "cannot be added" in (write_metrics(str(tmp_path / "m"), "t", metrics_of(report(), STATE, NOON, ())) or "")
    assert write_metrics(None, "t", metrics_of(report(), STATE, NOON, ())) is None

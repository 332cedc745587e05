"""`--metrics FILE.prom`: numbers of a target for Prometheus, and the alert rules of docs/operations.md."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import walreplay
from support.pages import ROOT, block
from support.sample_reports import HOSTILE, target_status
from walreplay.cli import main
from walreplay.cli.metrics import Prometheus, write_gauges
from walreplay.cli.record import _NUMBERS
from walreplay.errors import visible
from walreplay.ledger.status import NothingApplied, TargetStatus
from walreplay.report import RunReport, SourceReport, SourcesReport

PROMTOOL = shutil.which("promtool")

Samples = dict[tuple[str, str, str], float]


def samples(file: Path) -> Samples:
    """Return what a file has, by name, source and table."""
    families = list(text_string_to_metric_families(file.read_text(encoding="utf-8")))
    assert all(family.type == "gauge" and family.documentation for family in families)
    listed = [sample for family in families for sample in family.samples]
    found = {
        (sample.name.removeprefix("walreplay_"), sample.labels["source"], sample.labels.get("table", "")): sample.value
        for sample in listed
    }
    assert len(found) == len(listed)
    return found


def written(tmp_path: Path, status: TargetStatus) -> Samples:
    place = tmp_path / "metrics" / "mirror.prom"
    place.parent.mkdir()
    made = Prometheus.of(str(place), status.target)
    assert made is not None
    made.write({"": status})
    assert list(place.parent.iterdir()) == [place]  # nothing is left of how it is written
    return samples(place)


def test_a_status_has_numbers_of_the_target_and_of_its_tables(tmp_path: Path) -> None:
    status = target_status(("shop.a", "\ud800", *HOSTILE))
    last, table = status.runs[-1], status.tables[0]
    assert last.finished_at is not None
    assert table.verified_at is not None
    found = written(tmp_path, status)
    assert {key[0]: value for key, value in found.items() if not key[2]} == {
        "last_success_timestamp_seconds": last.finished_at.timestamp(),
        "applied_lsn": status.applied_lsn,
        "applied_commit_timestamp_seconds": status.applied_commit_ts.timestamp(),  # type: ignore[union-attr]
        "lag_seconds": last.lag_seconds,
        "lag_bytes": last.lag_bytes,
        "run_changes": last.changes,
        "run_warnings": last.warnings,
        "open_transactions": 1,
    }
    assert {name for _, _, name in found} == {"", *(visible(table.name) for table in status.tables)}
    assert {key[0]: value for key, value in found.items() if key[2] == "shop.a"} == {
        "table_changes": table.changes,
        "table_verified_timestamp_seconds": table.verified_at.timestamp(),
        "table_equal": 1,
        "table_held": 0,
    }
    never = visible(status.tables[-1].name)
    assert [key[0] for key in found if key[2] == never] == ["table_changes", "table_held"]


class Called:
    """The program, whose calls report this."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = types.ModuleType("walreplay.session.session")
        module.build_session = lambda progress: "spark"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "walreplay.session.session", module)
        self.status: TargetStatus | None = target_status()
        report = RunReport(None, "nothing new", "in", "out", 0, 0, 0, 0, None, None, (), (), 1.0, {})
        self.given: dict[str, Any] = {}

        def apply(spark: Any, **given: Any) -> RunReport:
            self.given = given
            return report

        def status(spark: Any, target: str, source: str | None = None) -> TargetStatus:
            if self.status is None:
                raise NothingApplied("nothing")
            return self.status

        def by_source(results: tuple[Any, Any]) -> SourcesReport[Any]:
            error = walreplay.WalReplayError("failed")
            parts = zip(("a", "b"), results, (None, None if results[1] else error), strict=True)
            return SourcesReport(tuple(SourceReport(*part, 1.0) for part in parts))

        monkeypatch.setitem(vars(walreplay), "apply", apply)
        monkeypatch.setitem(vars(walreplay), "status", status)
        monkeypatch.setitem(vars(walreplay), "apply_sources", lambda *_, **__: by_source((report, None)))
        monkeypatch.setitem(
            vars(walreplay),
            "sources_status",
            lambda *_, **__: by_source((self.status, replace(target_status(), runs=()))),
        )


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    return Called(monkeypatch)


APPLY = ["apply", "--captures", "in", "--target", "out", "--quiet"]


@pytest.mark.parametrize("is_new", [False, True])
def test_an_apply_writes_what_the_target_holds_and_when_it_has_ended(
    called: Called, tmp_path: Path, is_new: bool
) -> None:
    place, before = tmp_path / "a.prom", datetime.now(timezone.utc).timestamp()
    called.status = None if is_new else called.status
    assert main([*APPLY, "--metrics", str(place)]) == 0
    assert "metrics" not in called.given  # which are lines of JSON
    found = samples(place)
    assert found["last_success_timestamp_seconds", "", ""] >= before
    assert (("applied_lsn", "", "") in found) == (not is_new)


def test_a_source_that_has_failed_keeps_the_time_of_its_last_success(called: Called, tmp_path: Path) -> None:
    config, place = tmp_path / "a.yaml", tmp_path / "a.prom"
    config.write_text("sources: {a: {captures: in/a}, b: {captures: in/b}}", encoding="utf-8")
    given = ["--target", "out", "--config", str(config), "--metrics", str(place)]
    assert main(["apply", *given]) == 1
    found = samples(place)
    assert [key[1] for key in found if key[0] == "last_success_timestamp_seconds"] == ["a"]
    assert {key[1] for key in found if key[0] == "applied_lsn"} == {"a", "b"}
    assert main(["status", *given]) == 0
    last = target_status().runs[-1].finished_at
    assert last is not None
    assert samples(place)["last_success_timestamp_seconds", "a", ""] == last.timestamp()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["status", "--target", "out", "--metrics", "a.jsonl"], "FILE.prom"),
        (["status", "--target", "out", "--metrics", "a.prom", "--as-of", "1"], "no --as-of"),
        ([*APPLY, "--metrics", "s3://bucket/a.prom"], "Give the path of a local file"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(
    called: Called, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert problem in printed.err


def test_without_its_package_the_file_is_refused(
    called: Called, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("walreplay.cli.printing.find_spec", lambda _: None)
    assert main([*APPLY, "--metrics", "a.prom"]) == 2
    assert "pip install 'walreplay[metrics]'" in capsys.readouterr().err
    assert called.given == {}


def test_a_folder_that_is_not_there_is_named_and_the_run_is_done(
    called: Called, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "nowhere" / "a.prom"
    assert main([*APPLY, "--metrics", str(place)]) == 1
    printed = capsys.readouterr()
    assert "nothing new" in printed.out
    assert f"{place}: the metrics cannot be written (No such file or directory)" in printed.err


RULES = block("docs/operations.md", "groups:").text
START = datetime(1970, 1, 1, tzinfo=timezone.utc)
"""Where promtool's clock begins."""


def alarming(hours: int, **changes: Any) -> TargetStatus:
    """Return a status that is some hours old when promtool looks at it, 200 hours after the start."""
    status, moment = target_status(), START + timedelta(hours=200 - hours)
    run = replace(status.runs[-1], finished_at=moment, lag_bytes=changes.get("lag_bytes", 0))
    verified = {"verified_at": START + timedelta(hours=200 - changes.get("verified", 1)), "is_equal": True}
    tables = [replace(table, **verified | changes.get("table", {})) for table in status.tables[:2]]
    return replace(status, runs=(run,), tables=tuple(tables))


def recorded(tmp_path: Path, values: dict[str, float]) -> list[dict[str, str]]:
    """Return what a recorder writes into its file, as series for promtool; by default of one that does well."""
    numbers = dict.fromkeys(_NUMBERS) | {"stored_time": 200 * 3600 - 60, **values}
    write_gauges(str(tmp_path / "record.prom"), {"archive": "a", "slot": "s"}, numbers, _NUMBERS)
    text = (tmp_path / "record.prom").read_text(encoding="utf-8")
    return [
        {"series": series, "values": f"{float(value):.0f}+0x13000"}
        for series, value in re.findall(r"^(walreplay_record_.*) (\S+)$", text, re.MULTILINE)
    ]


def test_the_page_lists_a_recorders_numbers() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"`record` writes `walreplay_record_` and ([^.]+)\.", page)
    assert re.findall(r"`(\w+)`", listed) == list(_NUMBERS)


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, of the package prometheus")
@pytest.mark.parametrize(
    ("status", "recorder", "alerts"),
    [
        (alarming(1), {"retained_bytes": 10, "spare_bytes": 20}, []),
        (alarming(3), {}, ["WalreplayNotApplied"]),
        (alarming(1, lag_bytes=2 << 30), {}, ["WalreplayBehind"]),
        (alarming(1, table={"is_equal": False}), {}, ["WalreplayNotVerified"]),
        (alarming(1, verified=9 * 24), {}, ["WalreplayNotVerified"]),
        (alarming(1), {"stored_time": 199 * 3600}, ["WalreplayNotRecorded"]),
        (alarming(1), {"retained_bytes": 20, "spare_bytes": 10}, ["WalreplaySlotInDanger"]),
    ],
    ids=["well", "old", "behind", "different", "unverified", "unrecorded", "in danger"],
)
def test_the_pages_rules_raise_their_alarms(
    tmp_path: Path, status: TargetStatus, recorder: dict[str, float], alerts: list[str]
) -> None:
    (tmp_path / "rules.yml").write_text(RULES, encoding="utf-8")
    names = [rule["alert"] for rule in yaml.safe_load(RULES)["groups"][0]["rules"]]
    assert len(names) == 5
    assert set(alerts) <= set(names)
    series = [
        {"series": f'walreplay_{name}{{target="out",table="{table}"}}', "values": f"{value:.0f}+0x13000"}
        for (name, _, table), value in written(tmp_path, status).items()
    ] + recorded(tmp_path, recorder)
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": f'count by (alertname) (ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0',
                        "eval_time": "200h",
                        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}] if name in alerts else [],
                    }
                    for name in names
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    done = subprocess.run([str(PROMTOOL), "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

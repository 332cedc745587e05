"""What `walreplay index` and `walreplay audit` take, print and exit with."""

import importlib.util
import json
import sys
import types
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

import walreplay
from walreplay.archive.audit import AuditReport, Problem, TableAudit, UnbrokenFiles
from walreplay.archive.facts import Open, Overlap, Torn
from walreplay.archive.joining import IndexReport
from walreplay.cli import main
from walreplay.errors import OrderError
from walreplay.listing import Hole

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=timezone.utc)

INDEXED = IndexReport(
    "in", "in/_walreplay_index", 7, 3 << 20, 2, 1 << 20, 105, 1234, 1, 0x16_B374D848, ("careful",), 1.5
)

WHOLE = AuditReport(
    captures="in",
    files=7,
    capture_bytes=3 << 20,
    files_read=7,
    transactions=105,
    resent=0,
    changes=1234,
    sessions=1,
    coverage=(UnbrokenFiles("a.bin", "g.bin", 7, 105, 16, 32, NOON, NOON),),
    problems=(),
    holes=(),
    overlaps=(),
    torn=(),
    tables=(TableAudit(1, "shop.orders", 1000, 200, 30, 4, "a.bin", "g.bin", "not needed", 24),),
    open=(),
    unfinished_bytes=0,
    copies_compared=False,
    values_counted=False,
    warnings=(),
    seconds=2.5,
)

BROKEN = replace(
    WHOLE,
    problems=(
        Problem.of(OrderError("it does not go on", path="c.bin", offset=1234, remedy="Bring it")),
        Problem.of(OrderError("it ends early", path="d.bin", offset=9, remedy="Fetch it again")),
    ),
    holes=(Hole("c.bin", "e.bin", 1, "d.bin"),),
    overlaps=(Overlap("f.bin", 3, 16, 17),),
    torn=(Torn("f.bin", 99),),
    open=(Open("prepared", 7, "a 'gid'", 32, NOON, "b.bin", 9),),
    unfinished_bytes=77,
    values_counted=True,
    tables=(
        TableAudit(1, "shop.orders", 1000, 200, 30, 0, "a.bin", "g.bin", "missing", None, 1230, 2048, {"until": 5}),
    ),
    warnings=("the index was not written",),
    index="there",
    as_indexed=6,
)


@pytest.fixture
def called(monkeypatch):
    calls = []
    session = types.ModuleType("walreplay.session.session")
    session.build_session = lambda progress: "spark"
    monkeypatch.setitem(sys.modules, "walreplay.session.session", session)

    def index(*arguments, cleared):
        calls.append(("index", *arguments[:3]))
        return INDEXED

    def audit(*arguments, values):
        calls.append(("audit", *arguments[:3], values))
        return BROKEN if arguments[1] == "broken" else WHOLE

    monkeypatch.setitem(vars(walreplay), "index", index)
    monkeypatch.setitem(vars(walreplay), "audit", audit)
    return calls


def test_index_says_what_it_read(called, capsys):
    assert main(["index", "--captures", "in", "--quiet"]) == 0
    assert called == [("index", "spark", "in", None)]
    assert capsys.readouterr().out.splitlines() == [
        "7 files (3.0 MiB) in in/_walreplay_index; 2 files (1.0 MiB) read for it in 1.5 s",
        "105 transactions, 1,234 row changes, LSN 0/1 to 16/B374D848",
        "warning: careful",
    ]


def test_index_prints_json_when_asked(called, capsys):
    assert main(["index", "--captures", "in", "--index", "there", "-q", "--json"]) == 0
    assert called == [("index", "spark", "in", "there")]
    printed = json.loads(capsys.readouterr().out)
    assert printed == INDEXED.to_dict()
    assert printed["last_lsn"] == "16/B374D848"


def test_an_audit_of_what_is_whole_ends_with_0(called, capsys):
    assert main(["audit", "--captures", "in", "-q"]) == 0
    assert called == [("audit", "spark", "in", None, False)]
    out = capsys.readouterr().out
    assert "in: 7 files (3.0 MiB), 105 transactions, 1,234 row changes" in out
    assert out.endswith("\nnothing is damaged or missing, as far as the files can tell\n")
    assert "damaged or missing\n" not in out
    (coverage,) = [line for line in out.splitlines() if line.startswith("a.bin")]
    assert coverage.split()[:6] == ["a.bin", "g.bin", "7", "105", "0/10", "0/20"]
    (table,) = [line for line in out.splitlines() if line.startswith("shop.orders")]
    assert table.split() == ["shop.orders", "1", "1,000", "200", "30", "4", "a.bin", "g.bin", "truncated", "at", "0/18"]


def test_an_audit_that_has_found_something_ends_with_3_and_tells_all(called, capsys):
    assert main(["audit", "--captures", "broken", "--values", "-q"]) == 3
    assert called[0][-1] is True
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for expected in (
        "6 files as indexed in there",
        "gap c.bin 1,234 1 it does not go on",
        "gap c.bin: Bring it",
        "gap d.bin: Fetch it again",
        "c.bin e.bin 1 d.bin",
        "f.bin 3 0/10 0/11",
        "sent again (not compared with their first copies)",
        "f.bin 99",
        "prepared 7 a 'gid' 0/20 2026-01-02 12:00:00+00:00 b.bin 9",
        "message, 77 bytes",
        "shop.orders 1 1,000 200 30 0 a.bin g.bin missing 1,230 2.0 KiB",
        "shop.orders until 5",
        "warning: the index was not written",
        "the archive is not whole: 3 problems, see above",
    ):
        assert expected in lines


def test_an_audits_json_has_everything_and_the_same_exit_code(called, capsys):
    assert main(["audit", "--captures", "broken", "--json", "-q"]) == 3
    printed = json.loads(capsys.readouterr().out)
    assert printed == BROKEN.to_dict()
    assert printed["whole"] is False
    assert printed["problems"][0] == {
        "kind": "gap", "file": "c.bin", "offset": 1234, "table": None, "problem": "it does not go on",
        "remedy": "Bring it", "files": 1,
    }  # fmt: skip
    assert printed["coverage"][0]["first_lsn"] == "0/10"
    assert printed["coverage"][0]["first_commit_ts"] == NOON.isoformat()
    assert printed["open"][0]["lsn"] == "0/20"
    assert printed["tables"][0]["rescued"] == {"until": 5}


@pytest.mark.parametrize("name", ["index", "audit"])
def test_the_spark_submit_entry_points_call_their_commands(name, called, monkeypatch):
    path = Path(__file__).parents[3] / "jobs" / f"{name}.py"
    spec = importlib.util.spec_from_file_location("__main__", path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--captures", "in", "--quiet"])
    with pytest.raises(SystemExit) as caught:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert caught.value.code == 0
    assert called[0][:3] == (name, "spark", "in")

import importlib
import importlib.util
import io
import json
import os
import socket
import sys
import types
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

import walreplay
from support.command import run_without
from walreplay.archive.messages import FileInspection, Inspection, RelationInspection
from walreplay.cli import explain, main, run
from walreplay.cli.printing import write_report
from walreplay.console import Screen
from walreplay.errors import CaptureError, ConfigError, MalformedMessage, TargetError
from walreplay.ledger.status import (
    Cut,
    PendingTransaction,
    RunAtWork,
    RunStatus,
    TableStatus,
    TableVersion,
    TargetStatus,
)
from walreplay.report import Forecast, RunReport, SourceReport, SourcesReport, TableForecast, TableReport

CAPTURES = Path(__file__).parents[2] / "captures"
CUT = CAPTURES / "o03_basic_split_bytes" / "capture"
NOON = datetime(2026, 1, 2, 12, 0, tzinfo=timezone.utc)

REPORT = RunReport(
    run=3,
    status="applied",
    captures="in",
    target="out",
    files=7,
    capture_bytes=3 << 20,
    transactions=105,
    changes=1234,
    applied_lsn=0x16_B374D848,
    applied_commit_ts=NOON,
    tables=(
        TableReport("shop.orders", "out/shop/orders", "merged", 1000, 10, 20, 30, False, 4, 1.25),
        TableReport("shop.notes", "out/shop/notes", "created", 234, 234, truncated=True, notes=("a new column",)),
    ),
    warnings=("the last message is unfinished",),
    seconds=6.5,
    stages={"scan": 1.0},
)


def module(name: str, **values: object) -> types.ModuleType:
    made = types.ModuleType(name)
    for key, value in values.items():
        setattr(made, key, value)
    return made


@pytest.fixture
def applied(monkeypatch):
    """Put a run in the place of Spark's that notes how it was called."""
    importlib.import_module("walreplay.job.load")  # it has to find the true session, whatever test comes first
    calls = []

    def apply(spark, **arguments):
        calls.append(arguments)
        return REPORT

    monkeypatch.setitem(
        sys.modules,
        "walreplay.session.session",
        module("walreplay.session.session", build_session=lambda progress: "spark"),
    )
    monkeypatch.setitem(vars(walreplay), "apply", apply)
    return calls


def test_apply_passes_on_what_it_is_told_and_prints_the_summary(applied, capsys):
    assert main(["apply", "--captures", "in", "--target", "out"]) == 0
    assert applied[0]["captures"] == "in"
    assert applied[0]["target"] == "out"
    out = capsys.readouterr().out
    assert "run 3: 105 transactions, 1,234 row changes from 7 files (3.0 MiB) applied to out in 6.5 s" in out
    assert "applied up to LSN 16/B374D848, committed at 2026-01-02 12:00:00+00:00" in out
    assert [line.split() for line in out.splitlines() if line.startswith("shop.")] == [
        ["shop.orders", "merged", "1,000", "10", "20", "30", "4", "1.2"],
        ["shop.notes", "created,", "truncated", "234", "234", "0", "0", "0.0"],
    ]
    assert "note: shop.notes: a new column" in out
    assert "warning: the last message is unfinished" in out


def test_an_installed_program_raises_a_failure_and_nothing_else(applied, monkeypatch):
    # What starts a wheel's entry point may ignore the result.
    monkeypatch.setattr(sys, "argv", ["walreplay", "apply", "--captures", "in", "--target", "out", "--quiet"])
    assert run() == 0
    monkeypatch.setattr(sys, "argv", ["walreplay", "apply"])
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 2


def test_progress_is_plain_and_apart_from_the_result_when_nobody_watches(applied, capsys):
    main(["apply", "--captures", "in", "--target", "out"])
    captured = capsys.readouterr()
    assert captured.err.startswith("start Spark: (")
    assert "\x1b" not in captured.out + captured.err
    main(["apply", "--captures", "in", "--target", "out", "--quiet"])
    assert capsys.readouterr().err == ""


def test_apply_prints_json_when_asked(applied, capsys):
    assert main(["apply", "--captures", "in", "--target", "out", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == REPORT.to_dict()
    assert printed["applied_lsn"] == "16/B374D848"


def test_gaps_are_allowed_when_asked(applied, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("file_order: path", encoding="utf-8")
    arguments = ["apply", "--captures", "in", "--target", "out", "--config", str(path)]
    assert main(arguments) == 0
    assert main([*arguments, "--allow-gaps"]) == 0
    assert [call["config"].allow_gaps for call in applied] == [False, True]
    assert applied[1]["config"].file_order == "path"


def test_a_wrong_configuration_stops_before_spark_is_started(applied, tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text("on_recraete: keep\n", encoding="utf-8")
    assert main(["apply", "--captures", "in", "--target", "out", "--config", str(path)]) == 2
    assert applied == []
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: line 1, on_recraete: unknown key")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["apply"], "--target"),
        (["apply", "--target", "y"], "--captures"),
        (["apply", "--captures", "x", "--target", "y", "--nothing"], "--nothing"),
        (["aply"], "aply"),
        (["inspect"], "PATH"),
        (["load", "--target", "y"], "--from-query; or --replace alone"),
        (["load", "--target", "y", "--from", "x", "--from-query", "SELECT 1"], "it is not said where the rows are"),
        (
            ["load", "--target", "y", "--replace", "--at-lsn", "0/1"],
            "it is said how rows are read, and not",
        ),
        (["load", "--target", "y", "--from", "/"], "it is not said as of which LSN the rows are"),
        (["load", "--target", "y", "--from", "x"], "x: there is no such folder of copies"),
        (["load", "--target", "y", "--from", "x", "--at-lsn", "12"], "--at-lsn: not an LSN"),
        (["status", "--target", "y", "--table", "x"], "--table goes with --as-of"),
        (["status", "--target", "y", "--table", "x", "--as-of", "7"], "--table goes with --as-of"),
    ],
)
def test_a_usage_error_is_one_line_and_code_2(arguments, part, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert part in error
    assert error.count("\n") == 1


def test_a_failed_run_is_one_line_and_code_1(applied, monkeypatch, capsys):
    def fail(spark, **arguments):
        raise CaptureError("a tag is none", path="f.bin", offset=1234)

    monkeypatch.setitem(vars(walreplay), "apply", fail)
    assert main(["apply", "--captures", "in", "--target", "out", "-q"]) == 1
    assert capsys.readouterr().err == "error: f.bin, offset 1,234: a tag is none\n"


@pytest.mark.parametrize(
    ("variable", "value", "is_shown"),
    [("WALREPLAY_TRACEBACK", "1", True), ("WALREPLAY_TRACEBACK", "0", False), ("WALREPLAY_LOG", "DEBUG", False)],
)
def test_a_traceback_which_may_hold_values_is_shown_by_its_variable_and_no_log_level(
    variable, value, is_shown, applied, monkeypatch, capsys
):
    monkeypatch.setenv(variable, value)
    assert main(["apply", "--captures", "in", "--target", "out", "--config", "/none.yaml"]) == 2
    assert ("Traceback" in capsys.readouterr().err) == is_shown


def test_an_interruption_is_said_plainly(applied, monkeypatch, capsys):
    def interrupt(spark, **arguments):
        raise KeyboardInterrupt

    monkeypatch.setitem(vars(walreplay), "apply", interrupt)
    assert main(["apply", "--captures", "in", "--target", "out", "-q"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_missing_pyspark_is_one_line_with_the_command():
    # In a process of its own: this one's modules are others' too.
    program = "from walreplay.cli import main, run; exit(main(['apply', '--captures', 'in', '--target', 'out', '-q']))"
    done = run_without("pyspark delta py4j", program)
    assert done.returncode == 2
    assert done.stderr == (
        "error: pyspark is not installed. Install Spark and Delta with: pip install 'walreplay[spark]'\n"
    )


def test_no_error_of_the_program_quotes_a_value():
    try:
        int("SECRET")
    except ValueError as error:
        text, code = explain(error)
    assert code == 1
    assert "SECRET" not in text
    assert text.startswith("ValueError in test_cli.py:")


def spark_error(text: str, state: str | None = None) -> Exception:
    def get_sql_state(self):
        return state

    def get_condition(self):
        return "SOME_CONDITION"

    kind = type(
        "SparkError",
        (Exception,),
        {"__module__": "pyspark.errors", "getSqlState": get_sql_state, "getCondition": get_condition},
    )
    return kind(text)


def test_an_error_from_an_executor_is_found_in_sparks_text():
    text = "Job aborted\nTraceback:\n  File x\nwalreplay.errors.MalformedMessage: f.bin, offset 3: bad\n"
    assert explain(spark_error(text)) == ("f.bin, offset 3: bad", 1)


def test_that_java_has_ended_is_told():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # a port on which nobody listens
        python = PythonParameters(port=0, daemonize=True, daemonize_connections=True)
        client = ClientServer(JavaParameters(port=held.getsockname()[1]), python)
        try:
            with pytest.raises(ConnectionRefusedError) as raised:
                client.jvm.System.currentTimeMillis()
        finally:
            client.shutdown_callback_server()
    for error in (raised.value, spark_error("Answer from Java side is empty")):
        text, code = explain(error)
        assert text.startswith("Spark's JVM has ended, perhaps for want of memory")
        assert code == 1
    assert explain(ConnectionRefusedError(111, "Connection refused"))[0] == "[Errno 111] Connection refused"


def test_sparks_own_errors_are_told_unless_they_quote_data():
    assert explain(spark_error("[PATH_NOT_FOUND] no path\nJVM stacktrace", "42K03"))[0] == (
        "Spark: [PATH_NOT_FOUND] no path. Set WALREPLAY_TRACEBACK=1 to see more"
    )
    quoting, _ = explain(spark_error("[CAST_INVALID_INPUT] The value 'SECRET' cannot be cast", "22018"))
    assert "SECRET" not in quoting
    assert "SOME_CONDITION" in quoting


def test_errors_carry_their_exit_codes():
    assert explain(ConfigError("x"))[1] == 2
    assert explain(MalformedMessage("x"))[1] == 1


HOSTILE = "a\x1b[31m\x9b2J\u202e\u2028\x7f[red]"


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        (["inspect", HOSTILE], ""),
        (["inspect", os.fsdecode(f"{HOSTILE}".encode() + b"\xff")], ""),
        (["inspect", "--config", "config.yaml", "f"], 'source_encoding: "a\\e[31m\\x9b2J\\u202e\\L\\x7f[red]"'),
        (["load", "--from", "x", "--target", "y", "--at-lsn", "0/1", "--copy-options", HOSTILE], ""),
        (["status", f"--{HOSTILE}"], ""),
        (["status", "--target", "out", "--as-of", HOSTILE], ""),
        ([HOSTILE], ""),
        (["apply", "--captures", "in", "--target", "out", "--config", HOSTILE], ""),
        (
            ["apply", "--captures", "in", "--target", "out", "--config", "config.yaml"],
            '"a\\e[31m\\x9b2J\\u202e\\L\\x7f[red]": 1',
        ),
        (
            ["apply", "--captures", "in", "--target", "out", "--config", "config.yaml"],
            'on_recreate: "a\\e[31m\\x9b2J\\u202e\\L\\x7f[red]"',
        ),
        (["apply", "--captures", "in", "--target", "out", "--config", "config.yaml"], "\x1b: \x9b"),
    ],
    ids=repr,
)
def test_no_error_steers_the_terminal_and_each_is_one_line(arguments, config, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(config, encoding="utf-8")
    assert main(arguments) in (1, 2)
    error = capsys.readouterr().err
    assert error.endswith("\n")
    assert error[:-1].isprintable()
    if "\x9b" not in config:
        assert "\\x1b[31m" in error


def test_a_traceback_steers_no_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WALREPLAY_TRACEBACK", "1")
    assert main(["inspect", HOSTILE]) == 2
    lines = capsys.readouterr().err.split("\n")
    assert len(lines) > 4
    assert all(line.isprintable() for line in lines)


def test_without_arguments_the_commands_are_listed(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in ("apply", "inspect", "status"))


def test_inspect_lists_the_messages_of_files_cut_in_the_middle_of_them(capsys):
    assert main(["inspect", str(CUT), "--messages", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts = {name: sum(line["message"] == name for line in lines) for name in ("Begin", "Insert", "Relation")}
    assert counts == {"Begin": 105, "Insert": 350, "Relation": 4}
    assert "(unfinished)" not in {line["message"] for line in lines}
    assert len({line["path"] for line in lines}) == 7


def test_inspect_of_what_is_no_capture_is_one_line(tmp_path, capsys):
    text = tmp_path / "text.bin"
    text.write_text("Dear Sir or Madam,\n" * 100, encoding="utf-8")
    assert main(["inspect", "--messages", str(text)]) == 1
    error = capsys.readouterr().err
    assert str(text) in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["--messages"]])
def test_inspect_takes_the_encoding_of_names_from_the_configuration(options, tmp_path, capsys):
    config = tmp_path / "c.yaml"
    config.write_text("source_encoding: latin-1")
    assert main(["inspect", str(CUT), "--config", str(config), *options]) == 0
    assert "shop.order items" in capsys.readouterr().out
    config.write_text("source_encoding: LATIN11")
    assert main(["inspect", str(CUT), "--config", str(config), *options]) == 2
    assert "LATIN11" in capsys.readouterr().err


@pytest.fixture
def inspected(monkeypatch):
    file = FileInspection(path="a.bin", framing="raw", compression=None, bytes=5, messages=3, transactions=1, note="")
    relation = RelationInspection(
        name="shop.orders", oid=16406, replica_identity="d", columns=2, key=("id",),
        inserts=1, updates=0, deletes=0, truncates=0,
    )  # fmt: skip
    inspection = Inspection(
        files=(file,), messages={"Begin": 1, "Insert": 2000}, transactions=1, changes=2000,
        relations=(relation,), first_lsn=1, last_lsn=0x1_0000_0002, first_commit=NOON, last_commit=NOON,
    )  # fmt: skip
    monkeypatch.setitem(
        sys.modules,
        "walreplay.archive.messages",
        module("walreplay.archive.messages", inspect_captures=lambda paths, framing, **_: inspection),
    )


def test_inspect_says_what_is_in_the_files(inspected, capsys):
    assert main(["inspect", "a.bin"]) == 0
    out = capsys.readouterr().out
    assert "1 transactions, 2,000 row changes" in out
    assert "LSN     0/1 to 1/2" in out
    assert "shop.orders  16406  default" in out
    assert out.index("Insert") < out.index("Begin  ")


def test_inspect_prints_json_when_asked(inspected, capsys):
    assert main(["inspect", "a.bin", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["last_lsn"] == "1/2"
    assert printed["relations"][0]["key"] == ["id"]
    assert printed["messages"] == {"Begin": 1, "Insert": 2000}


@pytest.fixture
def known(applied, monkeypatch):
    run = RunStatus(
        run=1, state="applied", started_at=NOON, finished_at=None, applied_lsn=16, files=2, transactions=3,
        changes=4, tables=5, writer="files",
    )  # fmt: skip
    waiting = PendingTransaction(
        kind="prepared", xid=7, gid="a 'gid'", lsn=32, began_at_file="b.bin", offset=9, since=NOON,
        age=timedelta(days=3, hours=4), bytes=2048, segments=2,
    )  # fmt: skip
    streamed = PendingTransaction(
        kind="streamed", xid=8, gid=None, lsn=None, began_at_file="b.bin", offset=99, since=None, age=None, bytes=10,
        segments=1,
    )  # fmt: skip
    found = TargetStatus(
        target="out", applied_lsn=16, applied_commit_ts=None, at_work=None, runs=(run,),
        open_transactions=(waiting, streamed), tables=(TableStatus("s.t", "out/s/t"),),
    )  # fmt: skip
    monkeypatch.setitem(vars(walreplay), "status", lambda spark, target: found)
    return found


def test_status_says_what_the_target_holds(known, capsys):
    assert main(["status", "--target", "out"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("out: applied up to LSN 0/10\n")
    assert "2026-01-02 12:00:00+00:00" in out
    assert "at work" not in out
    *_, header, prepared, streamed = out.splitlines()
    assert header.split("  ")[0] == "open transaction"
    assert " ".join(prepared.split()) == ("prepared 7 a 'gid' 0/20 b.bin 9 2026-01-02 12:00:00+00:00 3 d 4 h 2.0 KiB 2")
    assert " ".join(streamed.split()) == "streamed 8 b.bin 99 10 bytes 1"


@pytest.mark.parametrize(("alive", "text"), [(True, "run 2 is at work: "), (False, "run 2 was interrupted: ")])
def test_status_names_the_run_that_has_the_lock(known, alive, text, capsys, monkeypatch):
    at_work = RunAtWork(run=2, user="ann", host="node1", pid=99, since=NOON, beat=NOON, alive=alive)
    monkeypatch.setitem(vars(walreplay), "status", lambda spark, target: replace(known, at_work=at_work))
    assert main(["status", "--target", "out"]) == 0
    assert f"{text}ann on node1 (process 99, since 2026-01-02 12:00:00+00:00); " in capsys.readouterr().out
    assert main(["status", "--target", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["at_work"] == {
        "run": 2, "user": "ann", "host": "node1", "pid": 99, "since": NOON.isoformat(), "beat": NOON.isoformat(),
        "alive": alive,
    }  # fmt: skip


def test_status_prints_json_when_asked(known, capsys):
    assert main(["status", "--target", "out", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["at_work"] is None
    assert printed["runs"][0]["finished_at"] is None
    assert printed["runs"][0]["writer"] == "files"
    assert printed["open_transactions"] == [
        {
            "kind": "prepared", "xid": 7, "gid": "a 'gid'", "lsn": "0/20", "began_at_file": "b.bin", "offset": 9,
            "since": NOON.isoformat(), "age": 273_600, "bytes": 2048, "segments": 2,
        },
        {
            "kind": "streamed", "xid": 8, "gid": None, "lsn": None, "began_at_file": "b.bin", "offset": 99,
            "since": None, "age": None, "bytes": 10, "segments": 1,
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("writer", "told"), [("files", " s, written as files\n"), ("statements", " s, written by Spark's statements\n")]
)
def test_a_report_says_how_rows_were_written(writer, told):
    stream = io.StringIO()
    write_report(Screen(stream), replace(REPORT, writer=writer))
    assert told in stream.getvalue()
    assert replace(REPORT, writer=writer).to_dict()["writer"] == writer


def test_a_report_names_the_tables_that_went_another_way_once_for_each_reason():
    def table(name, reason, writer="statements"):
        return TableReport(f"s.{name}", f"out/s/{name}", "merged", writer=writer, writer_reason=reason)

    many = [table(f"t{number}", "its rows have no key") for number in range(9)]
    few = [table("a", "its columns change"), table("b", "its columns change"), table("c", "", "files")]
    report = replace(REPORT, writer="files", tables=(*few, *many))
    stream = io.StringIO()
    write_report(Screen(stream), report)
    notes = [line for line in stream.getvalue().splitlines() if line.startswith("note: written")]
    assert notes == [
        "note: written by Spark's statements, as its columns change: s.a, s.b",
        "note: written by Spark's statements, as its rows have no key: s.t0, s.t1, s.t2, s.t3, s.t4 and 4 more",
    ]
    # Where all go that way, the first line says so.
    stream = io.StringIO()
    write_report(Screen(stream), replace(report, writer="statements"))
    assert "note: written" not in stream.getvalue()


@pytest.fixture
def cut(applied, monkeypatch):
    names = ("shop.orders", "out/shop/orders", 12), ("shop.a table", "out/shop/a table", 3)
    tables = tuple(TableVersion(name, location, version, f"SELECT {version}") for name, location, version in names)
    tables = (*tables, TableVersion("shop.late", "out/shop/late", 1, None, "its rows are later", exact=False))
    asked = []

    def versions_at(spark, target, run, source):
        asked.append((target, run, source))
        return Cut(target=target, run=run, applied_lsn=16, applied_commit_ts=NOON, tables=tuple(tables))

    monkeypatch.setitem(vars(walreplay), "versions_at", versions_at)
    return asked


def test_status_at_a_run_gives_each_tables_version_and_how_to_read_it(cut, capsys):
    assert main(["status", "--target", "out", "--as-of", "7"]) == 0
    assert cut == [("out", 7, None)]
    assert capsys.readouterr().out.splitlines() == [
        "out, run 7: applied up to LSN 0/10, committed at 2026-01-02 12:00:00+00:00",
        "",
        "table         version  location",
        "shop.orders        12  out/shop/orders",
        "shop.a table        3  out/shop/a table",
        "shop.late           1  out/shop/late",
        "",
        "SELECT 12;",
        "SELECT 3;",
        "-- shop.late: its rows are later",
    ]


def test_status_at_a_run_prints_json_when_asked(cut, capsys):
    assert main(["status", "--target", "out", "--as-of", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "target": "out",
        "run": 7,
        "applied_lsn": "0/10",
        "applied_commit_ts": NOON.isoformat(),
        "tables": [
            {
                "name": "shop.orders",
                "version": 12,
                "location": "out/shop/orders",
                "sql": "SELECT 12",
                "note": "",
                "exact": True,
            },
            {
                "name": "shop.a table",
                "version": 3,
                "location": "out/shop/a table",
                "sql": "SELECT 3",
                "note": "",
                "exact": True,
            },
            {
                "name": "shop.late",
                "version": 1,
                "location": "out/shop/late",
                "sql": None,
                "note": "its rows are later",
                "exact": False,
            },
        ],
    }


def test_the_spark_submit_entry_point_calls_apply(applied, monkeypatch):
    path = Path(__file__).parents[3] / "jobs" / "apply.py"
    spec = importlib.util.spec_from_file_location("__main__", path)
    monkeypatch.setattr(sys, "argv", ["apply.py", "--captures", "in", "--target", "out", "--quiet"])
    with pytest.raises(SystemExit) as caught:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert caught.value.code == 0
    assert applied[0]["target"] == "out"


def test_load_hands_over_what_it_is_told(applied, monkeypatch, capsys):
    told = {}

    def load(_, source, target, at_lsn, **options):
        told.update(options, source=source, target=target, at_lsn=at_lsn)
        table = TableReport("s.t", "/mirror/s/t", "created", 2, 2)
        return RunReport(1, "loaded", "/base", "/mirror", 1, 9, 0, 2, None, None, (table,), (), 1.0, {})

    monkeypatch.setitem(vars(walreplay), "load", load)
    assert main(["load", "--from", "/base", "--target", "/mirror", "--at-lsn", "0/96", "--replace", "--quiet"]) == 0
    assert "run 1: 2 rows from 1 file (9 bytes) loaded into /mirror" in capsys.readouterr().out
    assert (told["source"], told["target"], told["at_lsn"], told["replace"]) == ("/base", "/mirror", "0/96", True)
    arguments = [
        "--copy-options",
        "format csv, header",
        "--describe",
        "d",
        "--table",
        "s.t",
        "--captures",
        "c",
        "--json",
        "--quiet",
    ]
    assert main(["load", "--from", "/base", "--target", "/mirror", "--at-lsn", "0/96", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "loaded"
    said = ("copy_options", "describe", "table", "captures")
    assert [told[name] for name in said] == ["format csv, header", "d", "s.t", "c"]


def test_load_without_rows_gives_an_interrupted_load_up(applied, monkeypatch, capsys):
    monkeypatch.setitem(vars(walreplay), "give_up_load", lambda _, target, settings: f"the load of {target}")
    assert main(["load", "--target", "/mirror", "--replace"]) == 0
    assert capsys.readouterr().out == "the load of /mirror\n"


def test_rebuild_hands_over_what_it_is_told(monkeypatch, capsys):
    told = {}

    def rebuild(_, captures, target, table, **options):
        told.update(options, captures=captures, target=target, table=table)
        tables = tuple(TableReport(f"s.{name}", f"/mirror/s/{name}", "unchanged") for name in "ab")
        tables = (*tables, TableReport("s.t", "/mirror/s/t", "overwritten", inserted=7, version=3))
        return RunReport(3, "rebuilt", "in", "/mirror", 2, 9, 0, 2, None, None, tables, (), 1.0, {})

    monkeypatch.setitem(vars(walreplay), "rebuild", rebuild)
    monkeypatch.setattr("walreplay.session.session.build_session", lambda **_: None)
    arguments = ["rebuild", "--table", r"s\..*", "--captures", "in", "--target", "out", "--quiet"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("run 3: 1 of 3 tables of /mirror made again from 2 files (9 bytes) in")
    assert (told["captures"], told["target"], told["table"], told["outputs"]) == ("in", "out", r"s\..*", None)
    assert main([*arguments, "--output", "changelog", "--allow-gaps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "rebuilt"
    assert told["outputs"] == ["changelog"]
    assert told["config"].allow_gaps


def test_a_dry_run_prints_what_would_be_done(monkeypatch, capsys):
    told = []

    def forecast(_, captures, target, settings, **options):
        told.append((captures, target, options))
        table = TableForecast(
            "s.t", "/m/s/t", "merged", 8, 4, 3, 2, 1, truncated=True, oid=9, set_aside=False, notes=("column c added",)
        )
        return Forecast("in", "out", 2, 7, 2048, 5, 16, NOON, (table,), 3, 12, 90.4, "the scan", ("careful",), 0.5)

    monkeypatch.setitem(vars(walreplay), "forecast", forecast)
    monkeypatch.setattr("walreplay.session.session.build_session", lambda **_: None)
    assert main(["apply", "--captures", "in", "--target", "out", "--dry-run", "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "5 transactions from 7 files (2.0 KiB) would be applied to out in 2 runs, by about 12 Spark tasks; nothing was "
        "written",
        "it would be applied up to LSN 0/10, 2026-01-02 12:00:00+00:00",
        "it would take about 0:01:30, to judge by the scan",
        "",
        "what would be done, and row changes in the files",
        "table  action             changes  inserts  updates  deletes  truncates",
        "s.t    merged, truncated        8        4        3        2          1",
        "3 row changes of tables that are not wanted",
        "note: s.t: column c added",
        "warning: careful",
    ]
    arguments = ["--until-lsn", "0/10", "--table", "s.t", "--output", "changelog", "--from-lsn", "0/1"]
    arguments += ["--dry-run", "--json", "--quiet"]
    assert main(["backfill", "--captures", "in", "--target", "out", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["applied_lsn"], found["tables"][0]["action"]) == ("0/10", "merged")
    (captures, target, options) = told[-1]
    assert (captures, target) == ("in", "out")
    assert options | {"progress": None} == {
        "until_lsn": "0/10",
        "table": "s.t",
        "outputs": ["changelog"],
        "from_lsn": "0/1",
        "progress": None,
    }


def test_commands_in_errors_and_warnings_have_the_values_of_the_call(monkeypatch, capsys):
    warning = "rows are not there; load them (walreplay load --replace), or look by `walreplay audit`"
    monkeypatch.setattr("walreplay.session.session.build_session", lambda **_: None)
    monkeypatch.setitem(vars(walreplay), "apply", lambda *_, **__: replace(REPORT, warnings=(warning,)))
    place = ["--captures", "in it's", "--target=out"]
    assert main(["apply", *place, "--quiet"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    quoted = "--captures 'in it'\"'\"'s'"
    assert f"(walreplay load {quoted} --target out --replace)" in line
    assert f"`walreplay audit {quoted}`" in line

    def fail(*_, **__):
        again = "make it again by walreplay rebuild --table 's\\.walreplay\\ apply'; then walreplay apply --target x"
        raise TargetError("it is gone", table="s.walreplay apply", remedy=again)

    monkeypatch.setitem(vars(walreplay), "apply", fail)
    assert main(["apply", *place, "--quiet"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: table s.walreplay apply: it is gone. ")
    assert f"walreplay rebuild {quoted} --target out --table 's\\.walreplay\\ apply'; " in error
    assert error.endswith(f"then walreplay apply {quoted} --target x\n")
    # A call from Python has no command line.
    assert explain(TargetError("x", remedy="run walreplay apply"))[0] == "x. run walreplay apply"


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("by_source", [False, True])
def test_strict_ends_with_1_if_a_table_is_held_once_all_is_written(
    applied, monkeypatch, tmp_path, capsys, by_source, is_held
):
    table = TableReport("s.t", "/mirror/s/t", "held" if is_held else "merged")
    report = replace(REPORT, tables=(table,))
    reports = SourcesReport((SourceReport("a", report, None, 1.0), SourceReport("b", REPORT, None, 1.0)))
    monkeypatch.setitem(vars(walreplay), "apply", lambda *_, **__: report)
    monkeypatch.setitem(vars(walreplay), "apply_sources", lambda *_, **__: reports)
    written = []
    monkeypatch.setattr("walreplay.cli.metrics.Prometheus.write", lambda self, *_: written.append(self.place))
    monkeypatch.setattr("walreplay.cli.metrics.Prometheus.write_applied", lambda self, *_: written.append(self.place))
    monkeypatch.setitem(vars(walreplay), "sources_status", lambda *_, **__: SourcesReport(()))
    config = tmp_path / "a.yaml"
    config.write_text("sources: {a: {captures: in/a}, b: {captures: in/b}}", encoding="utf-8")
    given = ["--config", str(config)] if by_source else ["--captures", "in"]
    place = str(tmp_path / "a.prom")
    command = ["apply", "--target", "out", "--json", "--metrics", place, *given]
    assert [main([*command, *strict]) for strict in ([], ["--strict"])] == [0, int(is_held)]
    assert written == [place, place]
    assert '"held"' in capsys.readouterr().out or not is_held

"""From an empty machine with a PostgreSQL to Delta tables: record, load, apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.postgres import chosen_versions, running_server
from support.recording import Recorder, available, end_of
from support.truth import Beyond, assert_tables_equal
from support.waiting import wait_until
from support.workload import SCHEMAS, SETUP, at_work, run_workload
from walreplay.cli import main
from walreplay.lsn import parse_lsn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration]


@pytest.mark.parametrize("version", chosen_versions())
def test_three_commands_make_tables_of_a_server_at_work(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    captures, base, target = tmp_path / "captures", tmp_path / "base", tmp_path / "mirror"
    with running_server(version, settings={"wal_sender_timeout": "5s"}) as server:
        server.execute(*SETUP, "CREATE PUBLICATION archive FOR ALL TABLES")
        run_workload(server, transactions=200, seed=1, pause=lambda: None)
        options = ["--create", *available(version, "--announce")]
        # The server may write records of its own behind the last commit: heartbeats take the archive beyond them.
        often = ("--file-seconds", "1", "--heartbeat", "2")
        recorder = Recorder(server, str(captures), tmp_path / "log", *often, *options)
        recorder.start("--and-copy", str(base), "--metrics", str(tmp_path / "record.prom"))
        try:
            wait_until(lambda: captures.exists(), "the archive", recorder.said)
            with at_work(server, 2):
                wait_until(lambda: "tables copied" in recorder.said(), "the copies", recorder.said)
                code = main(["load", "--from", str(base), "--target", str(target), "--captures", str(captures)])
                loaded = capsys.readouterr()
                assert code == 0, loaded.err
            run_workload(server, transactions=100, seed=3, pause=lambda: None)
            recorder.await_stored(server.lsn(), lambda: end_of([path.name for path in captures.iterdir()]))
            assert recorder.end() == 0, recorder.said()
        finally:
            recorder.kill()
        config = tmp_path / "walreplay.yaml"
        config.write_text("announcements: walreplay\n")
        code = main(["apply", "--captures", str(captures), "--target", str(target), "--config", str(config), "--json"])
        report = capsys.readouterr()
        assert code == 0, report.err
        text = report.out[report.out.rindex("\n{\n") :] if "\n{\n" in report.out else report.out
        assert json.loads(text)["warnings"] == []
        tables = server.source_tables(*SCHEMAS)
    lsn = parse_lsn(Path(f"{base}.lsn").read_text().strip())
    assert_tables_equal(spark, target, tables, Beyond(loaded=lsn - 1))

"""A target is compared with its source while that works: by a snapshot that is read, and by copies."""

from __future__ import annotations

import json
import os
import random
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.base_copies import copied_by_script
from support.extent import further
from support.pages import block, with_places
from support.postgres import Server, on_tcp, running_server, server_versions
from support.workload import PUBLICATION, PUBLISH, SETUP, at_work, run_workload
from walreplay.cli import main
from walreplay.errors import TargetError
from walreplay.loading import snapshot
from walreplay.loading.database import read_address
from walreplay.lsn import format_lsn
from walreplay.report import TableVerification, VerifyReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

OUTPUTS: Final[Mapping[str, Any]] = {"outputs": ["mirror", "history", "changelog"]}

SEEDS: Final = int(os.environ.get("WALREPLAY_LONG", "0")) // 10_000 or 1
"""So many workloads are verified, each with a fault and without; `make test-long` sets the number."""


@contextmanager
def recorded(version: int, folder: Path) -> Iterator[Server]:
    """Run a server that was at work, all of whose changes are recorded into one growing file."""
    with running_server(version, {**on_tcp(), "logical_decoding_work_mem": "64kB"}) as server:
        server.execute(*SETUP, PUBLISH)
        (folder / "captures").mkdir(parents=True)
        with server.recording(folder / "captures" / "0.bin", publication=PUBLICATION, slot="archive"):
            run_workload(server, transactions=200, seed=version, pause=lambda: None)
            yield server


@pytest.fixture(scope="module", params=further(server_versions(), but=server_versions()[-1:]))
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp(f"source{request.param}")
    with recorded(request.param, folder) as server:
        yield server, folder


def verified(spark: SparkSession, folder: Path, source: str | Path, **options: Any) -> VerifyReport:
    given: dict[str, Any] = {"wait": 60.0, "config": OUTPUTS, **options}
    return walreplay.verify(spark, folder / "mirror", folder / "captures", source=source, **given)


def results(report: VerifyReport) -> dict[str, TableVerification]:
    return {table.name: table for table in report.tables}


@pytest.mark.full
def test_a_source_at_work_is_compared_at_one_lsn(
    spark: SparkSession, shop: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGUSER", "postgres")
    server, folder = shop
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/{server.database}"
    walreplay.apply(spark, folder / "captures", folder / "mirror", OUTPUTS)
    for seed in range(SEEDS):
        with at_work(server, 10 + seed):
            live = verified(spark, folder, url, publication=PUBLICATION)
            base = copied_by_script(server, tmp_path / str(seed), PUBLICATION)
            by_copies = verified(spark, folder, base)
        run_workload(server, transactions=20, seed=99, pause=lambda: None)  # captures reach beyond the copies
        assert (tmp_path / str(seed) / "base.lsn").read_text().strip() == format_lsn((by_copies.source_lsn or 0) + 1)
        for report in (live, by_copies):
            assert report.source_lsn is not None
            assert {table.result for table in report.tables} == {"equal"}, report.tables
            assert len(report.tables) == 16
            assert report.against in (url, str(base))
        assert by_copies.applied_lsn >= live.applied_lsn
        assert not server.value("SELECT count(*) FROM pg_replication_slots WHERE temporary")

        commands = with_places(
            block("docs/verify.md", "walreplay verify --target /data/mirror --from jdbc").text,
            {"jdbc:postgresql://db.example/shop": url, "/data/mirror": folder / "mirror", "/data/base": base}
            | {"--publication archive": f"--publication {PUBLICATION}"},
        )
        (tmp_path / "walreplay.yaml").write_text(json.dumps(OUTPUTS))
        for command in commands.splitlines() if seed == 0 else ():
            assert main([*shlex.split(command)[1:], "--quiet", "--config", str(tmp_path / "walreplay.yaml")]) == 0

        chance = random.Random(seed)
        location = results(live)["live.many_types"].location
        table = f"delta.`{location}`"
        key = chance.choice([one.id for one in spark.sql(f"SELECT id FROM {table}").collect()])
        faults = (
            "c_double = CAST('0.1234' AS DOUBLE)",
            "c_numeric = '7.77'",
            "c_texts = array('a, b')",
            "id = -id - 1",
        )
        spark.sql(f"UPDATE {table} SET {chance.choice(faults)} WHERE id = {key}")
        different = verified(spark, folder, base)
        assert {name for name, one in results(different).items() if one.result == "different"} == {"live.many_types"}
        spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {_newest(spark, table) - 1}")


def test_a_snapshot_that_waits_for_an_open_transaction_says_so(
    shop: tuple[Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setattr(snapshot, "LEAST_PATIENCE", 0.5)
    server, _ = shop
    address = read_address(f"jdbc:postgresql://127.0.0.1:{server.port}/{server.database}")
    with server.connect() as connection:
        with connection.transaction():
            connection.execute("INSERT INTO live.emptied (v) VALUES ('open')")
            with (
                pytest.raises(TargetError, match=r"was open when the snapshot was asked for.*by --wait"),
                snapshot.exported_snapshot(address, 0),
            ):
                pass
        with snapshot.exported_snapshot(address, 0) as exported:  # once it has ended
            assert exported.consistent_point
    assert not server.value("SELECT count(*) FROM pg_replication_slots WHERE temporary")


def _newest(spark: SparkSession, table: str) -> int:
    return int(spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0].version)

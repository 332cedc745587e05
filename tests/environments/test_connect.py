"""Spark Connect: a client with `pyspark-client` alone, and a server whose Python has what executors need alone."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.base_copies import copied_by_script
from support.captures import case
from support.environments import (
    EXECUTORS,
    SMALL,
    Environment,
    Halves,
    compare,
    free_port,
    installed,
    locked_jars,
    say,
    serving,
)
from support.framings import frame, transaction
from support.object_store import HADOOP, object_store
from support.pages import block, with_places
from support.planted_faults import FAULTS, PlantedTable
from support.postgres import running_server
from support.small_mirror import INT4, TEXT, relation, row
from support.typed_source import identities
from support.workload import PUBLICATION, PUBLISH, SETUP, run_workload
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing


@dataclass(frozen=True)
class Connected:
    """A server, and what its client is.

    Attributes:
        scratch: a folder for both.
    """

    server: str
    scratch: Path

    def client(self, name: str) -> Environment:
        folder = self.scratch / name
        folder.mkdir()
        return Environment(_client(), folder, {"SPARK_REMOTE": self.server})


def _client() -> Path:
    packages = block("docs/running.md", "pip install walreplay").text.replace("'", "").split()[3:]
    return installed(packages)


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    with _connected(tmp_path_factory.mktemp("connect")) as connected:
        yield connected


@contextmanager
def _connected(scratch: Path, more: str = "") -> Iterator[Connected]:
    """Start a server.

    Args:
        more: arguments of spark-submit.
    """
    port = free_port()
    executors = installed(EXECUTORS, with_wheel=False)
    spark = installed(("pyspark==4.2.0", "delta-spark==4.4.0", "pandas<3"))
    settings = f"--master local[2] {SMALL} {more} --conf spark.connect.grpc.binding.port={port}"
    command = with_places(
        block("docs/running.md", "spark-submit --class").text,
        {
            "--packages io.delta:delta-spark_4.2_2.13:4.4.0": f"--jars {','.join(map(str, locked_jars()))}",
            "spark-submit": f"spark-submit {settings}",
        },
    )
    theirs = {"PYSPARK_PYTHON": executors, "PYSPARK_DRIVER_PYTHON": spark}  # the second finds Spark itself
    pythons = {name: str(root / "bin" / "python") for name, root in theirs.items()}
    server = Environment(spark, scratch, {**pythons, "PYTHONPATH": ""})
    with serving(server, command, port, scratch / "server.log"):
        yield Connected(f"sc://127.0.0.1:{port}", scratch)


def test_the_client_alone_does_all_that_there_is(connected: Connected) -> None:
    client = connected.client("commands")
    halves = Halves(client, str(client.folder / "mirror"))
    places = {
        "sc://host:15002": connected.server,
        "/shared/captures": halves.captures,
        "/shared/mirror": f"{halves.target} --report {{report}}",
    }
    missing = "python -c 'import py4j' || python -c 'import pyspark.core' || python -c 'import delta'"
    client.shell(missing, succeeds=False)
    halves.run(with_places(block("docs/running.md", "export SPARK_REMOTE").text, places))
    halves.tell(f"Spark Connect by {client.versions('pyspark-client')}, no Java")
    # All that is known of a row, and a backfill.
    (client.folder / "all.yaml").write_text("outputs: [mirror, history, changelog]\n", encoding="utf-8")
    target = client.folder / "backfilled"
    client.shell(f"walreplay backfill --captures {halves.captures} --target {target} --config all.yaml")
    client.shell(f"python -m support.mirror_check {target} {halves.case.name} with-outputs")
    assert "applied" in client.shell(f"walreplay status --target {target}")
    assert "nothing is damaged or missing" in client.shell(f"walreplay audit --captures {halves.captures}")
    say("Spark Connect: backfill with history and change log, status, audit")


def test_a_fault_in_each_table_is_told_by_the_archive_and_by_the_source(connected: Connected) -> None:
    client, chance = connected.client("verified"), random.Random(1)
    captures, target = client.folder / "captures", client.folder / "mirror"
    captures.mkdir()
    with running_server() as server:
        server.execute(*SETUP, PUBLISH)
        keys = identities(server)
        with server.recording(captures / "0.bin", publication=PUBLICATION):
            run_workload(server, transactions=20, seed=1, pause=lambda: None)
            base = copied_by_script(server, client.folder / "copies", PUBLICATION)
            run_workload(server, transactions=20, seed=2, pause=lambda: None)
    client.shell(f"walreplay apply --captures {captures} --target {target}")

    def verified(more: str) -> dict[str, Any]:
        verify = f"walreplay verify --captures {captures} --target {target} --report report.json {more}"
        client.shell(f"{verify} || test $? -eq 3")
        return {table["name"]: table for table in json.loads((client.folder / "report.json").read_text())["tables"]}

    for more in ("", f"--from {base}"):
        expected, undone = {}, []
        for name, table in verified(more).items():
            assert table["result"] == "equal", table
            planted = PlantedTable(None, table["location"], keys[name], ("__commit_lsn", "__commit_ts").__contains__)
            faults = [] if " " in name else chance.sample(list(FAULTS), len(FAULTS))  # so have columns: it takes Spark
            for fault in faults:
                if (done := planted.plant(fault, chance)) is not None:
                    expected[name] = done[0][:3]
                    undone.append(done[1])
                    break
        found = verified(more)
        counts = {name: (of["missing"], of["extra"], of["changed"]) for name, of in found.items()}
        assert counts == dict.fromkeys(found, (0, 0, 0)) | expected
        for undo in undone:
            undo()
    say(f"Spark Connect: verify tells a fault in each of {len(expected)} tables, by the archive and by the source")


def test_a_session_of_ones_own_is_given_the_package(connected: Connected) -> None:
    client, recorded = connected.client("own"), case("o14")
    places = {
        "sc://host:15002": connected.server,
        "/shared/captures": recorded.folder,
        "/shared/mirror": client.folder / "mirror",
    }
    snippet = with_places(block("docs/running.md", "import walreplay").text, places)
    (client.folder / "snippet.py").write_text(f"{snippet}\nprint(report.status)\n", encoding="utf-8")
    assert "applied" in client.shell("python snippet.py")
    compare(client, str(client.folder / "mirror"), recorded)
    say("Spark Connect: the page's own session, and tables whose columns change")


def test_a_server_that_refuses_settings_is_written_to_exactly_once(connected: Connected) -> None:
    client, recorded = connected.client("refused"), case("o03")
    target = client.folder / "mirror"
    captures = client.folder / "captures"
    captures.mkdir()
    for files in (recorded.files[:4], recorded.files[4:]):
        for file in files:
            (captures / file.name).write_bytes(file.read_bytes())
        said = client.shell(f"python -m support.refused_run {captures} {target} 'table applied'")
    # What else marks a MERGE as its run's.
    assert "spark.databricks.delta.commitInfo.userMetadata" in said.partition("refused:")[2]
    compare(client, str(target), recorded)
    say("Spark Connect, settings refused: stopped in two runs, finished, and right")


def test_a_table_is_held_and_made_again(connected: Connected) -> None:
    client = connected.client("waits")
    captures = client.folder / "captures"
    captures.mkdir()
    (client.folder / "held.yaml").write_text("on_table_error: hold\non_type_change: stop\n", encoding="utf-8")
    of_client = f"--captures {captures} --target {client.folder / 'mirror'}"
    other = relation(2, "other", {"id": INT4})
    for number, kind in enumerate((TEXT, INT4, INT4), 1):
        one = relation(1, "one", {"id": INT4, "v": kind})
        changes = one, other, *(m.Insert(oid, row(*[number] * (3 - oid))) for oid in (1, 2))
        (captures / f"{number}.bin").write_bytes(frame(transaction(100 * number, *changes, xid=number), Framing.RAW))
        said = client.shell(f"walreplay apply {of_client} --config held.yaml")
        assert ("s.one: it is held" in said) == (number > 1)
    client.shell(f"walreplay rebuild {of_client} --table 's\\.one'")
    assert "held" not in client.shell(f"walreplay status --target {client.folder / 'mirror'}")
    client.shell(f"walreplay verify {of_client}")  # exits with 3 where anything differs
    say("Spark Connect: a table is held, and made again")


def test_client_and_workers_reach_a_store_by_the_keys_of_the_session(tmp_path: Path) -> None:
    recorded = case("o03")
    with object_store(tmp_path) as store:
        store.make_bucket("lake")
        for file in recorded.files:
            store.put("lake", f"captures/{file.name}", file.read_bytes())
        settings = " ".join(f"--conf {name}={value}" for name, value in store.settings().items())
        with _connected(tmp_path, f"{HADOOP} {settings}") as connected:
            client = connected.client("far")
            began = time.monotonic()
            with store.counted() as counts:
                client.shell("walreplay apply --captures s3a://lake/captures --target s3a://lake/mirror")
            seconds = time.monotonic() - began
            compare(client, "s3a://lake/mirror", recorded)
    staged = [text for text in counts if text.startswith("PUT") and "/_walreplay/staging/" in text]
    # By Spark they would be parts of a Parquet file.
    assert any(text.endswith(".staged") for text in staged), staged
    say(f"Spark Connect, captures and target in S3: {sum(counts.values())} requests, {seconds:.0f} s, right")


def test_events_wait_in_the_users_folder_where_the_target_is_a_catalog(connected: Connected) -> None:
    client, recorded = connected.client("staged"), case("o03")
    folder = client.folder / "staging"
    folder.mkdir()
    (folder / "mine.txt").write_text("x", encoding="utf-8")
    (client.folder / "staged.yaml").write_text(f"staging: {folder}\n", encoding="utf-8")
    command = f"walreplay apply --captures {recorded.folder} --config staged.yaml --target"
    client.shell(f"{command} spark_catalog")
    compare(client, "spark_catalog", recorded)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    # Where there can be no such folder, the run says so.
    shutil.rmtree(folder)
    folder.write_text("no folder", encoding="utf-8")
    assert "share no folder" in client.shell(f"{command} spark_catalog.other", succeeds=False)
    say("Spark Connect: a catalog, events in a folder of the user's")

"""Spark Connect: a client with `pyspark-client` alone, and a server whose Python has what executors need alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

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
from support.pages import block, with_places


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
    scratch, port = tmp_path_factory.mktemp("connect"), free_port()
    executors = installed(EXECUTORS, with_wheel=False)
    spark = installed(("pyspark==4.2.0", "delta-spark==4.4.0", "pandas<3"))
    settings = f"--master local[2] {SMALL} --conf spark.connect.grpc.binding.port={port}"
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

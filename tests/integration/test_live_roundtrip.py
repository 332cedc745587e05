"""A real server, changed by several connections at once, recorded by pg_recvlogical, and mirrored."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.postgres import cut, running_server, server_versions
from support.reference import replay
from support.truth import (
    SourceTable,
    arrow_table,
    assert_tables_equal,
    content_difference,
)
from support.workload import PUBLICATION, PUBLISH, SCHEMAS, SETUP, run_workload
from walreplay.protocol.framing import Framing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.full]

_TRANSACTIONS = 1600


@dataclass(frozen=True)
class Recorded:
    """What was recorded, and what the source holds at the end."""

    files: tuple[Path, ...]
    tables: tuple[SourceTable, ...]

    def tables_after(self, files: Sequence[Path]) -> list[SourceTable]:
        """Return the tables after the first files alone, as the reference has them."""
        stream = b"".join(file.read_bytes() for file in files)
        return replay([stream], Framing.RECVLOGICAL).sources(self.tables)


@pytest.fixture(scope="module", params=server_versions())
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A workload on a server of each version, in files rotated while it ran."""
    folder = tmp_path_factory.mktemp("recorded")
    growing = folder / "growing"
    rotated = [folder / f"{number}.bin" for number in range(3)]
    with running_server(request.param) as server:
        server.execute(*SETUP, PUBLISH)
        with server.recording(growing, publication=PUBLICATION) as recording:
            run_workload(
                server,
                transactions=_TRANSACTIONS // 2,
                seed=request.param,
                pause=lambda: recording.rotate(rotated[0]),
            )
            recording.rotate(rotated[1])
            run_workload(
                server,
                transactions=_TRANSACTIONS // 2,
                seed=request.param + 1,
                pause=lambda: recording.rotate(rotated[2]),
            )
        tables = tuple(server.source_tables(*SCHEMAS))
    last = growing.rename(folder / "3.bin")
    yield Recorded((*rotated, last), tables)
    shutil.rmtree(folder)


def test_the_recording_is_complete(recorded: Recorded) -> None:
    replayed = {table.qualified_name: table for table in recorded.tables_after(recorded.files)}
    assert sorted(replayed) == sorted(table.qualified_name for table in recorded.tables)
    for table in recorded.tables:
        assert content_difference(table, arrow_table(replayed[table.qualified_name])) is None


@pytest.mark.integration
@pytest.mark.parametrize("sizes", [None, (4096, 333, 20_011)], ids=["rotated", "cut anywhere"])
def test_a_live_source_is_mirrored_in_two_runs(
    spark: SparkSession, recorded: Recorded, sizes: Sequence[int] | None, tmp_path: Path
) -> None:
    captures, target, later = tmp_path / "captures", tmp_path / "mirror", tmp_path / "later"
    captures.mkdir()
    later.mkdir()
    if sizes is None:
        files = [Path(shutil.copy(file, later)) for file in recorded.files]
    else:
        files = cut(recorded.files, later, sizes)
    half = len(files) // 2

    first = [file.rename(captures / file.name) for file in files[:half]]
    walreplay.apply(spark, captures=str(captures), target=str(target))
    assert_tables_equal(spark, target, recorded.tables_after(first))

    for file in files[half:]:
        file.rename(captures / file.name)
    report = walreplay.apply(spark, captures=str(captures), target=str(target))
    assert report.status == "applied"
    assert_tables_equal(spark, target, recorded.tables)

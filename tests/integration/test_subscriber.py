"""A base load and what comes behind it give what PostgreSQL's own subscriber has of the same publication."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import walreplay
from support.base_copies import Snapshot, snapshot
from support.postgres import Server, on_tcp, running_server
from support.publications import (
    CHOSEN,
    EVERYTHING,
    MADE,
    PUBLISHER,
    SCHEMAS,
    SUBSCRIBER,
    Published,
    copied_rows,
    published,
    set_up,
    subscribe,
    tables_of,
    wait_until_copied,
    wait_until_replayed,
    work,
    working,
)
from support.truth import RESCUED, Beyond, SourceTable, arrow_table, assert_tables_equal, rows_of_csv
from walreplay.lsn import parse_lsn
from walreplay.scripts import copy_scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


@dataclass(frozen=True)
class Recorded:
    """A publisher at rest, with all that it has sent, and what its subscriber has of it.

    Attributes:
        folder: the captures and copies of each of `published`, in a folder of its own.
        seen: a snapshot from the middle of the work, which is still exported.
        tables: the subscriber's, by the name of what is published.
    """

    publisher: Server
    folder: Path
    seen: Snapshot
    tables: Mapping[str, list[SourceTable]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Recorded]]:
    """Give what was recorded of a version; the first test that asks for it has it made."""
    with ExitStack() as stack:
        yield cache(lambda version: _record(version, tmp_path_factory.mktemp(f"recorded{version}"), stack))


def _record(version: int, folder: Path, stack: ExitStack) -> Recorded:
    """Have tables of all kinds published, subscribed to, recorded and copied while they are changed."""
    sets = published(version)
    copy_scripts(folder / "scripts")
    publisher = stack.enter_context(running_server(version, {**PUBLISHER, **on_tcp()}))
    publisher.execute("CREATE DATABASE shop")
    publisher.database = "shop"
    set_up(publisher, version)
    work(publisher, version, unsent=True)
    with running_server(version, SUBSCRIBER) as subscriber, ExitStack() as recording:
        recordings = {}
        for one in sets:
            (folder / one.name / "captures").mkdir(parents=True)
            growing, slot = folder / one.name / "growing", f"of_{one.name}"
            recordings[one.name] = recording.enter_context(
                publisher.recording(growing, publication=one.option, slot=slot, options=one.options)
            )
        with working(publisher, 1):
            for one in sets:
                subscribe(publisher, subscriber, one)
        _rotate(folder, recordings, "0.bin")
        seen = stack.enter_context(snapshot(publisher))
        with working(publisher, 2):
            for one in sets:
                _copy(publisher, folder, one)
            for one in sets:
                wait_until_copied(subscriber, one)
        _rotate(folder, recordings, "1.bin")
        work(publisher, version + 1, unsent=True)
        wait_until_replayed(publisher, subscriber, sets)
        tables = {one.name: tables_of(subscriber, one) for one in sets}
    for one in sets:
        (folder / one.name / "growing").rename(folder / one.name / "captures" / "2.bin")
    return Recorded(publisher, folder, seen, tables)


def _rotate(folder: Path, recordings: Mapping[str, Any], name: str) -> None:
    for of, recording in recordings.items():
        recording.rotate(folder / of / "captures" / name)


def _copy(publisher: Server, folder: Path, one: Published) -> None:
    """Run the script that copies the tables."""
    programs = os.pathsep.join([str(publisher.programs), os.environ["PATH"]])
    place = {"PGHOST": str(publisher.home), "PGPORT": publisher.port, "PGDATABASE": publisher.database}
    done = subprocess.run(
        [folder / "scripts" / "base.sh", f"base_{one.name}", one.said, folder / one.name / "base"],
        env={**os.environ, **place, "PATH": programs, "PGUSER": "postgres"},
        capture_output=True,
        text=True,
    )
    # A script that fails fails the tests of what it was to copy.
    (folder / one.name / "said").write_text(f"{done.returncode} {done.stderr}")


Load = Callable[["SparkSession", Recorded, Published, dict[str, Any]], int]
"""Loads all tables and gives the LSN."""


def _by_script(spark: SparkSession, recorded: Recorded, one: Published, to: dict[str, Any]) -> int:
    folder = recorded.folder / one.name
    assert (said := (folder / "said").read_text()).startswith("0 "), said
    lsn = (folder / "base.lsn").read_text().strip()
    walreplay.load(spark, folder / "base", consistent_point=lsn, describe=folder / "base.jsonl", **to)
    return parse_lsn(lsn)


def _by_dump(*options: str) -> Load:
    def load(spark: SparkSession, recorded: Recorded, one: Published, to: dict[str, Any]) -> int:
        dump = Path(to["target"]).with_name("dump" if options else "dump.sql")
        # Rows of tables that are not logged are in no stream.
        described = recorded.seen.dump(dump, "--no-unlogged-table-data", *options, publications=one.said)
        walreplay.load(spark, dump, consistent_point=recorded.seen.lsn, describe=described, **to)
        return parse_lsn(recorded.seen.lsn)

    return load


def _by_jdbc(spark: SparkSession, recorded: Recorded, one: Published, to: dict[str, Any]) -> int:
    seen, server = recorded.seen, recorded.publisher
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/{server.database}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGUSER", "postgres")
        walreplay.load(spark, url, publication=one.said, snapshot=seen.name, consistent_point=seen.lsn, **to)
    return parse_lsn(seen.lsn)


def _by_parquet(spark: SparkSession, recorded: Recorded, one: Published, to: dict[str, Any]) -> int:
    files, described = _exported(recorded, one, Path(to["target"]).with_name("parquet"))
    walreplay.load(spark, files, consistent_point=recorded.seen.lsn, describe=described, **to)
    return parse_lsn(recorded.seen.lsn)


def _by_frames(spark: SparkSession, recorded: Recorded, one: Published, to: dict[str, Any]) -> int:
    files, described = _exported(recorded, one, Path(to["target"]).with_name("parquet"))
    for number, table in enumerate(recorded.tables[one.name]):
        frame = spark.read.parquet(str(files / f"{number}" / f"{_file_of(table)}.parquet"))
        point = recorded.seen.lsn
        walreplay.load(spark, frame, consistent_point=point, describe=described, table=table.qualified_name, **to)
    return parse_lsn(recorded.seen.lsn)


def _exported(recorded: Recorded, one: Published, folder: Path) -> tuple[Path, Path]:
    """Write a file of Parquet of each table: a column is text if its type cannot hold its values, or by turns."""
    described = recorded.seen.describe(folder.with_name("parquet.jsonl"), publications=one.said)
    for number, table in enumerate(recorded.tables[one.name]):
        text = copied_rows(recorded.publisher, recorded.seen.name, table, one)
        rows = rows_of_csv(text, [column.name for column in table.columns])
        typed, columns = arrow_table(table, rows), {}
        rescued = "".join(typed.column(RESCUED).drop_null().to_pylist())
        for at, column in enumerate(table.columns):
            texts = pa.array([row[at] for row in rows], pa.string())
            columns[column.name] = texts if rescued or at % 3 == 1 else typed.column(column.name)
        # Of a table without columns a file has rows only if it has one: those that the table lacks are left out.
        written = pa.table(columns or {"nothing": pa.nulls(len(rows), pa.int32())})
        path = folder / f"{number}" / f"{_file_of(table)}.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(written, path)
    return folder, described


def _file_of(table: SourceTable) -> str:
    """Name a table's file so that no sign of it has a meaning to a file system, or to whoever hides files."""
    return ".".join("".join(map(_sign, part)) for part in (table.schema, table.name))


def _sign(sign: str) -> str:
    return sign if sign.isalnum() else "".join(f"%{byte:02X}" for byte in sign.encode())


WAYS: dict[str, Load] = {
    "base.sh": _by_script,
    "JDBC": _by_jdbc,
    "plain dump": _by_dump(),
    "dump folder": _by_dump("--format=directory"),
    "Parquet": _by_parquet,
    "a DataFrame": _by_frames,
}


_QUICK = [(18, EVERYTHING, "base.sh"), (18, CHOSEN, "base.sh"), (18, MADE, "JDBC"), (16, CHOSEN, "JDBC")]


def _cases() -> Iterator[Any]:
    """Give a version, what is published, a way, and whether something is applied before the load."""
    for version in (18, 16):
        for one in published(version):
            for number, way in enumerate(WAYS):
                if "dump" in way and one is not EVERYTHING:
                    continue  # pg_dump knows nothing of what is published
                marks = [] if (version, one, way) in _QUICK else [pytest.mark.full]
                if way == "a DataFrame" and one in (EVERYTHING, SCHEMAS):
                    marks = [pytest.mark.long]  # a load for each table
                first = "loaded" if number % 2 == 0 else "applied"
                name = f"{version}-{one.name}-{way}-{first}"
                yield pytest.param(version, one, way, first, marks=marks, id=name)


@pytest.mark.parametrize(("version", "one", "way", "first"), list(_cases()))
def test_a_mirror_holds_what_the_subscriber_does(
    spark: SparkSession,
    recorded: Callable[[int], Recorded],
    version: int,
    one: Published,
    way: str,
    first: str,
    tmp_path: Path,
) -> None:
    found = recorded(version)
    captures = tmp_path / "captures"
    captures.mkdir()
    files = sorted((found.folder / one.name / "captures").iterdir())
    to: dict[str, Any] = {"target": tmp_path / "mirror", "captures": captures}
    if first == "applied":
        (captures / files[0].name).hardlink_to(files[0])
        walreplay.apply(spark, **to)
        to["replace"] = True
    point = WAYS[way](spark, found, one, to)
    for file in files:
        if not (captures / file.name).exists():
            (captures / file.name).hardlink_to(file)
    report = walreplay.apply(spark, captures=captures, target=to["target"])
    missing = {table.name: (table.without_base, table.deletes_without_row) for table in report.tables}
    assert_tables_equal(spark, to["target"], found.tables[one.name], Beyond(loaded=point - 1))
    assert set(missing.values()) == {(0, 0)}, missing

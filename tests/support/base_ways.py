"""The ways in which the rows of published tables come to a base load, of any server and publication."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import walreplay
from support.base_copies import Snapshot
from support.postgres import Server
from support.publications import Published, copied_rows, sent_tables
from support.truth import RESCUED, SourceTable, arrow_table, rows_of_csv
from walreplay.lsn import parse_lsn
from walreplay.scripts import copy_scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Rows = Callable[[SparkSession], Any]


@dataclass(frozen=True)
class Copied:
    """What there is to load.

    Attributes:
        lsn: the snapshot's.
        loads: for each call of `walreplay.load` where the rows are from, and what it is told.
    """

    lsn: str
    loads: Sequence[tuple[Rows, Mapping[str, Any]]]

    @property
    def row_lsn(self) -> int:
        """The commit LSN that the rows get."""
        return parse_lsn(self.lsn) - 1

    def load(self, spark: SparkSession, **options: Any) -> None:
        """Load all tables."""
        for rows, said in self.loads:
            walreplay.load(spark, rows(spark), consistent_point=self.lsn, **said, **options)


def by_script(server: Server, one: Published, slot: str, folder: Path) -> Copied:
    """Run base.sh, which makes a slot of its own."""
    copy_scripts(folder / "scripts")
    place = {"PGHOST": str(server.home), "PGPORT": server.port, "PGDATABASE": server.database, "PGUSER": "postgres"}
    done = subprocess.run(
        [str(folder / "scripts" / "base.sh"), slot, one.said, folder / "base"],
        env={**os.environ, **place, "PATH": os.pathsep.join([str(server.programs), os.environ["PATH"]])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = {"describe": folder / "base.jsonl"}
    return Copied((folder / "base.lsn").read_text().strip(), [(_at(folder / "base"), said)])


def _at(place: object) -> Rows:
    return lambda spark: str(place)


def _by_dump(*options: str) -> Callable[[Snapshot, Published, Path], Copied]:
    def copy(seen: Snapshot, one: Published, folder: Path) -> Copied:
        dump = folder / ("dump" if options else "dump.sql")
        # Rows of tables that are not logged are in no stream.
        described = seen.dump(dump, "--no-unlogged-table-data", *options, publications=one.said)
        return Copied(seen.lsn, [(_at(dump), {"describe": described})])

    return copy


def _by_jdbc(seen: Snapshot, one: Published, folder: Path) -> Copied:
    url = f"jdbc:postgresql://127.0.0.1:{seen.server.port}/{seen.server.database}"
    return Copied(seen.lsn, [(_at(url), {"publication": one.said, "snapshot": seen.name})])


def _by_parquet(seen: Snapshot, one: Published, folder: Path) -> Copied:
    for _ in _exported(seen, one, folder / "parquet"):
        pass
    return Copied(seen.lsn, [(_at(folder / "parquet"), {"describe": folder / "parquet.jsonl"})])


def _by_frames(seen: Snapshot, one: Published, folder: Path) -> Copied:
    def frame(file: Path) -> Rows:
        return lambda spark: spark.read.parquet(str(file))

    files = _exported(seen, one, folder / "parquet")
    said = {"describe": folder / "parquet.jsonl"}
    return Copied(seen.lsn, [(frame(file), {**said, "table": table.qualified_name}) for table, file in files])


def _exported(seen: Snapshot, one: Published, folder: Path) -> Iterator[tuple[SourceTable, Path]]:
    """Write a file of Parquet of each table: a column is text if its type cannot hold its values, or by turns."""
    folder.mkdir(parents=True)
    seen.describe(folder.with_suffix(".jsonl"), publications=one.said)
    for number, table in enumerate(sent_tables(seen.server, one)):
        rows = rows_of_csv(copied_rows(seen.server, seen.name, table, one), [column.name for column in table.columns])
        typed, columns = arrow_table(table, rows), {}
        rescued = typed.column(RESCUED).null_count < len(rows)
        for at, column in enumerate(table.columns):
            texts = pa.array([row[at] for row in rows], pa.string())
            columns[column.name] = texts if rescued or at % 3 == 1 else typed.column(column.name)
        # Without a column a file has no rows; those that the table has not got are left out.
        written = pa.table(columns or {"nothing": pa.nulls(len(rows), pa.int32())})
        file = folder / f"{number}" / f"{_encoded(table.schema)}.{_encoded(table.name)}.parquet"
        file.parent.mkdir()
        pq.write_table(written, file)
        yield table, file


def _encoded(name: str) -> str:
    """Spell a name so that no sign of it has a meaning to a file system, or to whoever hides files."""
    return "".join(sign if sign.isalnum() else "".join(f"%{byte:02X}" for byte in sign.encode()) for sign in name)


IN_SNAPSHOT: Final[Mapping[str, Callable[[Snapshot, Published, Path], Copied]]] = {
    "JDBC": _by_jdbc,
    "plain dump": _by_dump(),
    "dump folder": _by_dump("--format=directory"),
    "Parquet": _by_parquet,
    "a DataFrame": _by_frames,
}
"""The ways that need a snapshot, and nothing of the time at which it was made.  pg_dump knows no publications."""

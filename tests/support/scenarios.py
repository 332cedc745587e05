"""A course of events on a real server, recorded once in several files, and applied in one run and file by file."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import walreplay
from support.postgres import Server
from support.readers import collect
from support.truth import (
    Beyond,
    SourceTable,
    mirror_difference,
    mirror_tables,
    read_mirror,
    read_table,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ONE_RUN, FILE_BY_FILE = "one run", "a run per file"


class Slot:
    """A replication slot whose changes are copied by SQL, each time into a file and a session of its own.

    Args:
        folder: where the files go, in the order of their names.
        publication: one name, or several with commas.
        settings: of the connection that copies.
        options: of the plugin.
    """

    def __init__(
        self,
        server: Server,
        folder: Path,
        publication: str,
        *,
        name: str = "recorder",
        settings: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.files: list[Path] = []
        self._server = server
        self._folder = folder
        self._settings = list(settings)
        self._options = {"proto_version": "1", "publication_names": publication, **(options or {})}
        folder.mkdir(parents=True, exist_ok=True)
        server.make_slot(name, self._options)

    def take(self, *, how: str = "get", settings: Sequence[str] = (), options: Mapping[str, str] | None = None) -> Path:
        """Copy what has come since the last time into the next file; ``how="peek"``: it comes once more."""
        file = self._folder / f"{len(self.files) + 1:03}.bin"
        given = {**self._options, **(options or {})}
        self._server.copy_changes(file, self.name, given, how=how, settings=(*self._settings, *settings))
        self.files.append(file)
        return file


@dataclass(frozen=True)
class Recorded:
    """A course of events: its files, and the source's tables at the end."""

    files: Sequence[Path]
    sources: Sequence[SourceTable]


def files_of_parts(server: Server, folder: Path, *parts: Sequence[str], **options: str) -> Sequence[Path]:
    """Execute each part of a script, and copy what it changes of everything into a file of its own."""
    slot = Slot(server, folder, "everything", options=options)
    for statements in parts:
        server.execute(*statements)
        slot.take()
    return slot.files


@dataclass(frozen=True)
class Applied:
    """What became of a course of events.

    Attributes:
        sources: the source's tables at the end, by their names.
        targets: where it was applied to, by how that was done.
        reports: of the runs, likewise.
    """

    sources: Mapping[str, SourceTable]
    targets: Mapping[str, Path]
    reports: Mapping[str, tuple[walreplay.RunReport, ...]]

    def location(self, way: str, name: str) -> Path:
        """Return where a table lies."""
        return mirror_tables(self.targets[way])[name]

    def frame(self, spark: SparkSession, way: str, name: str) -> DataFrame:
        """Open a table."""
        return read_mirror(spark, self.location(way, name))

    def rows(self, spark: SparkSession, way: str, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Read some of a table's columns, in their rows' order."""
        return sorted(map(tuple, collect(self.location(way, name), *columns)), key=repr)

    def notes(self, way: str, name: str) -> list[str]:
        """Return what the runs have noted of a table."""
        return [
            note
            for report in self.reports[way]
            for table in report.tables
            if table.name == name
            for note in table.notes
        ]

    def total(self, way: str, name: str, count: str) -> int:
        """Sum a count of a table's reports up."""
        return sum(
            getattr(table, count) for report in self.reports[way] for table in report.tables if table.name == name
        )

    def assert_mirrored(self, spark: SparkSession, *names: str, kept: Iterable[str] = (), at: str = "") -> None:
        """Assert that tables are, however they were applied, what the source holds at the end.

        Args:
            kept: columns that the mirror has beside the source's.
            at: the mirror table's name, where it has another one.
        """
        kept = list(kept)
        assert names
        for name in names:
            for way in self.targets:
                difference = table_difference(spark, self.location(way, at or name), self.sources[name], kept)
                assert difference is None, f"{way}: {difference}"


def table_difference(spark: SparkSession, location: Path, source: SourceTable, kept: Sequence[str] = ()) -> str | None:
    """Describe how a mirror table differs from a source's, but for columns that the mirror alone has."""
    return mirror_difference(read_table(spark, location), source, Beyond(kept={source.qualified_name: kept}))


def apply_in_one_run(
    spark: SparkSession, files: Sequence[Path], folder: Path, config: Mapping[str, Any] | None = None
) -> tuple[Path, tuple[walreplay.RunReport, ...]]:
    """Apply files to a new target in the folder at once; give the target and the report."""
    return _apply(spark, [files], folder, config)


def apply_file_by_file(
    spark: SparkSession, files: Sequence[Path], folder: Path, config: Mapping[str, Any] | None = None
) -> tuple[Path, tuple[walreplay.RunReport, ...]]:
    """Apply files to a new target in the folder, each in a run of its own; give the target and the reports."""
    return _apply(spark, [[file] for file in files], folder, config)


def _apply(
    spark: SparkSession, runs: Sequence[Sequence[Path]], folder: Path, config: Mapping[str, Any] | None
) -> tuple[Path, tuple[walreplay.RunReport, ...]]:
    captures, target = folder / "captures", folder / "mirror"
    captures.mkdir(parents=True)
    reports = []
    for files in runs:
        for file in files:
            shutil.copy(file, captures)
        reports.append(walreplay.apply(spark, captures=captures, target=target, config=config))
    return target, tuple(reports)


def apply_both(
    spark: SparkSession,
    files: Sequence[Path],
    folder: Path,
    sources: Iterable[SourceTable],
    config: Mapping[str, Any] | None = None,
    ways: Sequence[str] = (ONE_RUN, FILE_BY_FILE),
) -> Applied:
    """Apply a course of events in one run, and in a run for each of its files, or in one of these ways."""
    by_way = {ONE_RUN: apply_in_one_run, FILE_BY_FILE: apply_file_by_file}
    done = {way: by_way[way](spark, files, folder / way, config) for way in ways}
    return Applied(
        {source.qualified_name: source for source in sources},
        {way: target for way, (target, _) in done.items()},
        {way: reports for way, (_, reports) in done.items()},
    )

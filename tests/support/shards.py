"""Sources that share their tables, made by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import walreplay
from support.plain_source import PlainTable, text_of
from support.readers import collect
from support.small_mirror import SmallMirror
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Of = dict[str, list[str]]
"""Texts by source."""

_OWN = ("__commit_lsn", "__commit_ts", "_rescued_data")


class Shard(SmallMirror):
    """A source's captures; plain tables may follow them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.plain: list[PlainTable] = []

    def write(self, *changes: m.AnyMessage) -> Path:
        """Bring the next file."""
        path = super().write(*changes)
        for table in self.plain:
            for change in changes:
                table.play(100 * self.files, change)
        return path


class Shards:
    """Sources that share their tables."""

    def __init__(self, spark: SparkSession, folder: Path, *names: str, **common: Any) -> None:
        self.spark, self.lake = spark, folder / "lake"
        self.of = {name: Shard(spark, folder / name) for name in names or ("eu", "us")}
        sources: dict[str, Any] = {name: {"captures": str(one.captures)} for name, one in self.of.items()}
        self.config: dict[str, Any] = {**common, "sources": sources, "shared_tables": ["s\\..*"]}

    def apply(self, *sources: str, **options: Any) -> dict[str, walreplay.RunReport]:
        report = walreplay.apply_sources(self.spark, self.lake, self.config, sources=sources or None, **options)
        report.raise_first()
        return dict(report.results)

    def read(self, table: str) -> DataFrame:
        return self.spark.read.format("delta").load(str(self._location(table)))

    def _location(self, table: str) -> Path:
        return self.lake / "s" / table

    def rows(self, table: str = "items") -> Of:
        """Return each source's rows, in order, as its own columns' values that are not NULL."""
        return _by_source(collect(self._location(table)), _without_own)

    def versions(self, table: str = "items__history") -> Of:
        """Return each source's versions, in order."""

        def text(row: dict[str, Any]) -> str:
            start, end, op = (row.pop(name) for name in ("__start_lsn", "__end_lsn", "__op"))
            for name in ("__START_AT", "__END_AT", "__ordinal", *_OWN):
                row.pop(name, None)
            return f"{start}-{end} {op}: {text_of(row)}"

        return _by_source(collect(self._location(table)), text)

    def log(self, table: str = "items__changes") -> Of:
        """Return each source's changes, in their order."""

        def text(row: dict[str, Any]) -> str:
            lsn, op, before, kept = (row.pop(name) for name in ("__commit_lsn", "__op", "__before", "__unchanged"))
            values = {name: value for name, value in row.items() if not name.startswith("_")}
            return f"{lsn} {op}: {text_of(values)} | {text_of(before.asDict()) if before else ''} | {','.join(kept)}"

        rows = sorted(collect(self._location(table)), key=lambda one: (one["__commit_lsn"], one["__ordinal"]))
        return _by_source(rows, text, in_order=False)

    def columns(self, table: str = "items") -> dict[str, str]:
        return {field.name: field.dataType.simpleString() for field in self.read(table).schema.fields}

    def plain(self, oid: int, what: str) -> Of:
        """Return what the plain tables say; ``what`` is an attribute of theirs."""
        found = {
            name: [getattr(table, what) for table in one.plain if table.oid == oid] for name, one in self.of.items()
        }
        return {name: list(told[0]) for name, told in sorted(found.items()) if told and told[0]}


def _without_own(row: dict[str, Any]) -> str:
    return text_of({name: value for name, value in row.items() if name not in _OWN})


def _by_source(rows: Sequence[Row], text: Any, *, in_order: bool = True) -> Of:
    found: Of = defaultdict(list)
    for one in rows:
        values = one.asDict()
        found[values.pop("__source")].append(text(values))
    return {name: sorted(of) if in_order else of for name, of in sorted(found.items())}

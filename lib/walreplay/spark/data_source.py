"""A data source of Spark's for looking at captures: ``spark.read.format("pgoutput").load(path)``.

It is for looking: one task reads a capture from its beginning, because transactions span files.  `walreplay.apply` and
`walreplay.backfill` are for work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from walreplay.changes import ChangeBatch, known_framing, read_changes
from walreplay.decode.change_batch import METADATA_NAMES, TIMESTAMP
from walreplay.delta.statements import sql_schema
from walreplay.errors import ConfigError
from walreplay.listing import list_files
from walreplay.names import free_names
from walreplay.session.isolation import mounted_path

TABLE: Final = "__table"
ROW: Final = "__row"
BEFORE: Final = "__before"
UNCHANGED: Final = "__unchanged"

_CHANGE_COLUMNS: Final = pa.schema(
    zip(METADATA_NAMES, (pa.string(), pa.int64(), TIMESTAMP, pa.int64(), pa.int64()), strict=True)
)
_LISTED: Final = pa.list_(pa.string())
_TEXTS: Final = [(name, pa.string()) for name in (TABLE, ROW, BEFORE)]
CHANGES: Final = pa.schema([*_CHANGE_COLUMNS, *_TEXTS, (UNCHANGED, _LISTED)])
"""What all tables' changes have: each row, and what was sent of the old one, is a JSON object."""


class PgoutputDataSource(DataSource):
    """Row changes of capture files; register it by ``spark.dataSource.register(walreplay.PgoutputDataSource)``.

    Options:
        path: a folder or file of captures, at a path that the executors have mounted.
        table: ``schema.table``; then its columns are typed, as of its first version in the captures: what later
            versions add is left out, what they lack is NULL.  Without it every row is a JSON object.
        framing, sourceEncoding: as `walreplay.read_changes` takes them.

    The columns ``__op``, ``__commit_lsn``, ``__commit_ts``, ``__xid`` and ``__ordinal`` are those of `ChangeBatch`;
    ``__unchanged`` lists the columns whose values were not sent, because an update left them as they were.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pgoutput"

    def schema(self) -> str:
        """Return the columns: fixed ones, or those of the table.

        Raises:
            ConfigError: there is no such table in the captures.
        """
        return sql_schema(CHANGES if self._request.table is None else self._typed())

    def reader(self, schema: Any) -> DataSourceReader:
        """Return what reads the captures."""
        typed = None if self._request.table is None else self._typed()
        return _Reader(self._request, typed)

    @property
    def _request(self) -> _Request:
        options = self.options
        path = options.get("path")
        if not path:
            raise ConfigError(
                "the captures' path is missing", remedy='Give it: spark.read.format("pgoutput").load(path)'
            )
        known_framing(options.get("framing"))  # raises for a name that is none
        encoding = options.get("sourceEncoding") or "UTF8"
        return _Request(_path(path), options.get("table"), options.get("framing"), encoding)

    def _typed(self) -> pa.Schema:
        """Return the columns of the table's first version."""
        asked = self._request
        for batch in asked.batches():
            # A column of the table may have this name.
            (name,) = free_names([UNCHANGED], set(batch.data.schema.names))
            return pa.schema([*batch.data.schema, (name, _LISTED)])
        raise ConfigError(
            f"there are no changes of a table {asked.table}",
            path=asked.path,
            remedy="Name one as schema.table; walreplay inspect lists them",
        )


@dataclass(frozen=True, slots=True)
class _Request:
    """What the options say."""

    path: str
    table: str | None
    framing: str | None
    encoding: str

    def batches(self) -> Iterator[ChangeBatch]:
        """Read the changes that are asked for, in order."""
        for batch in read_changes(self.path, framing=self.framing, source_encoding=self.encoding):
            if self.table is None or batch.relation.qualified_name == self.table:
                yield batch


class _Reader(DataSourceReader):
    """Reads the captures in one task; ``typed`` has the table's columns, None for all tables' changes."""

    def __init__(self, asked: _Request, typed: pa.Schema | None) -> None:
        list_files(asked.path)  # said before a task starts, if there are none
        self._request = asked
        self._typed = typed

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]  # transactions span files, so they are read in order by one task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._request.batches():
            yield _json_batch(batch) if self._typed is None else _typed_batch(batch, self._typed)


def _path(path: str) -> str:
    """Return a path as Python has it."""
    mounted = mounted_path(path)
    if mounted is None:
        raise ConfigError(
            "the data source reads mounted folders alone",
            path=path,
            remedy="Use a volume or another mount, or walreplay.apply, which reads every file system that Spark has",
        )
    return str(mounted)


def _typed_batch(batch: ChangeBatch, typed: pa.Schema) -> pa.RecordBatch:
    """Return changes of one table under the columns of its first version."""
    by_name = dict(zip(batch.data.schema.names, batch.data.columns, strict=True))
    *row_columns, _ = typed  # the last is the list of unchanged columns
    nothing = pa.nulls(batch.data.num_rows)
    columns = [by_name.get(column.name, nothing).cast(column.type) for column in row_columns]
    return pa.RecordBatch.from_arrays([*columns, _unchanged(batch)], schema=typed)


def _json_batch(batch: ChangeBatch) -> pa.RecordBatch:
    """Return changes with their rows as JSON."""
    rows = batch.data.num_rows
    names = [column.name for column in batch.relation.columns]
    # A batch begins with the change's own columns, in this order.
    own_columns = [array.cast(column.type) for array, column in zip(batch.data.columns, _CHANGE_COLUMNS, strict=False)]
    unchanged = _unchanged(batch)
    texts = _objects(names, batch.columns, unchanged.to_pylist())
    before: list[str | None] = [None] * rows
    if batch.before is not None:
        numbers = batch.before_rows.to_pylist()
        for number, text in zip(numbers, _objects(names, batch.before_columns, [None] * len(numbers)), strict=True):
            before[number] = text
    table = pa.repeat(pa.scalar(batch.relation.qualified_name), rows)
    ops = batch.ops.to_pylist()
    row = [None if op == "t" else text for op, text in zip(ops, texts, strict=True)]  # a truncate has no row
    return pa.RecordBatch.from_arrays(
        [*own_columns, table, pa.array(row, pa.string()), pa.array(before, pa.string()), unchanged], schema=CHANGES
    )


def _unchanged(batch: ChangeBatch) -> pa.Array:
    """Return the names of each row's columns that were not sent."""
    if not batch.unchanged:
        return pa.nulls(batch.data.num_rows, _LISTED)
    masks = {name: mask.to_pylist() for name, mask in batch.unchanged.items()}
    listed = [[name for name, mask in masks.items() if mask[row]] or None for row in range(batch.data.num_rows)]
    return pa.array(listed, _LISTED)


def _objects(
    names: Sequence[str], columns: Sequence[pa.Array], left_out: Sequence[Sequence[str] | None]
) -> Iterator[str]:
    """Write rows as JSON objects; NULL is there, what was not sent is not."""
    lists = [column.to_pylist() for column in columns]
    for row, without in enumerate(left_out):
        values = {name: column[row] for name, column in zip(names, lists, strict=True) if name not in (without or ())}
        yield json.dumps(values, default=_text, ensure_ascii=False)


def _text(value: Any) -> str:
    """Write a value that JSON has no form for: as Spark would as text, bytes in hexadecimal."""
    return value.hex() if isinstance(value, bytes) else str(value)

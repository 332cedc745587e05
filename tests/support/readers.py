"""Delta tables as other programs read them, none of which shares anything with Spark or with walreplay.

Each reader gives a table's rows, or the ids of those that a comparison of one column takes: readers skip files then by
what the table's log says of them.

Most tests read tables by `read` and `collect`: Spark plans for half a second what DuckDB has read in milliseconds.
"""

from __future__ import annotations

import json
import operator
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import Row

if TYPE_CHECKING:
    import duckdb

# Environments that have no other reader than Spark import this module, too: so DuckDB and Polars are imported late.

Rows = list[tuple[Any, ...]]

COMPARED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


@cache
def duckdb_session() -> duckdb.DuckDBPyConnection:
    """Open DuckDB with its extension for Delta, as it lies in its wheel: nothing is loaded from anywhere."""
    import duckdb
    import duckdb_ext

    (folder,) = duckdb_ext.__path__
    (extension,) = Path(folder).glob(f"extensions/v{duckdb.__version__}/*/delta.duckdb_extension")
    session = duckdb.connect()
    session.execute(f"LOAD '{extension}'")
    session.execute("SET TimeZone = 'UTC'")
    return session


def _delta_rs(path: Path) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table()


def _delta_rs_ids(path: Path, column: str, comparison: str, value: Any) -> list[Any]:
    # Not by `to_pyarrow_dataset`, which (in 1.6) takes a column without a least value for one without values.
    table = DeltaTable(path)
    kind = pa.schema(table.schema().to_arrow()).field(column).type
    query = f"SELECT id FROM t WHERE {_quoted(column)} {comparison} {_literal(value, kind)}"
    return list(pa.table(QueryBuilder().register("t", table).execute(query).read_all()).column("id").to_pylist())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: Any, kind: pa.DataType) -> str:
    """Write a value in SQL, of the type that the column has, as nothing is skipped by a column that is cast."""
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return str(value).lower()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"X'{value.hex()}'"
    if pa.types.is_timestamp(kind):
        name = f"Timestamp(Microsecond, {'None' if kind.tz is None else 'Some(' + json.dumps(kind.tz) + ')'})"
        return f"arrow_cast('{value.replace(tzinfo=None).isoformat()}', '{name}')"
    sql = {pa.float32(): "REAL", pa.float64(): "DOUBLE", pa.date32(): "DATE"}.get(kind)
    if pa.types.is_decimal(kind):
        sql = f"DECIMAL({kind.precision}, {kind.scale})"
    value = f"{value:f}" if pa.types.is_decimal(kind) else value
    text = "'" + str(value).replace("'", "''") + "'"
    return text if sql is None else f"CAST({text} AS {sql})"


def _polars(path: Path) -> pa.Table:
    import polars as pl

    return pl.read_delta(str(path)).to_arrow()


def _polars_ids(path: Path, column: str, comparison: str, value: Any) -> list[Any]:
    import polars as pl

    rows = pl.scan_delta(str(path))
    literal = pl.lit(value, rows.collect_schema()[column])
    return list(rows.filter(COMPARED[comparison](pl.col(column), literal)).select("id").collect()["id"])


def _scanned(path: Path) -> str:
    return "delta_scan('" + str(path).replace("'", "''") + "')"


def _duckdb(path: Path) -> pa.Table:
    return duckdb_session().cursor().execute(f"FROM {_scanned(path)}").fetch_arrow_table()


_PLAIN: Final = re.compile(r"[^%\\\n\u0080-\U0010ffff]*")
"""Paths that DuckDB finds."""


def read(path: str | Path) -> pa.Table:
    """Return the rows of a table's newest version as DuckDB reads them, which knows all the features that we use."""
    if _PLAIN.fullmatch(str(path)):
        return _duckdb(Path(path))
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "table")
        shutil.copytree(path, plain)
        return _duckdb(plain)


def collect(path: str | Path, *columns: str) -> list[Row]:
    """Return what Spark's `collect` does, by `read`: all columns if none is named; times are UTC, without a zone."""
    found = read(path)
    found = found.select(columns) if columns else found
    return [_as_spark(dict(zip(found.column_names, row, strict=True))) for row in zip(*_values(found), strict=True)]


def _values(found: pa.Table) -> list[list[Any]]:
    return [column.to_pylist() for column in found.columns]


def _as_spark(value: Any) -> Any:
    if isinstance(value, dict):
        return Row(*value)(*map(_as_spark, value.values()))
    if isinstance(value, list):
        return [_as_spark(one) for one in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    return value


def _duckdb_ids(path: Path, column: str, comparison: str, value: Any) -> list[Any]:
    query = f"SELECT id FROM {_scanned(path)} WHERE {_quoted(column)} {comparison} ?"
    return [found for (found,) in duckdb_session().execute(query, [value]).fetchall()]


READERS: Final[Mapping[str, Callable[[Path], pa.Table]]] = {
    "delta-rs": _delta_rs,
    "Polars": _polars,
    "DuckDB": _duckdb,
}

IDS: Final[Mapping[str, Callable[[Path, str, str, Any], list[Any]]]] = {
    "delta-rs": _delta_rs_ids,
    "Polars": _polars_ids,
    "DuckDB": _duckdb_ids,
}

KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "delta-rs": frozenset({"timestampNtz"}),
    "Polars": frozenset({"timestampNtz", "deletionVectors"}),
    "DuckDB": frozenset({"timestampNtz", "deletionVectors", "columnMapping", "typeWidening"}),
}
"""The features of tables that each reader knows; docs/reading.md says the same."""


def rows_of(table: pa.Table) -> Rows:
    """Return a table's rows, in one order, as values that can be compared."""
    columns = [[_plain(value) for value in column] for column in _values(table)]
    return sorted(zip(*columns, strict=True), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    return value

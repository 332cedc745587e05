"""The columns of ledger, index and tables, in the words of docs/notes/formats.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from walreplay.archive import index
from walreplay.delta.statements import declared, sql_of
from walreplay.ledger import runs, state, transactions
from walreplay.stream.plan import Plan, Resume
from walreplay.table.registry import MirrorEntry

Columns = Mapping[str, str]
"""The types of columns, by name."""

DECLARED: Final[Mapping[str, pa.Schema]] = {
    "state": state.SCHEMA,
    "runs": runs.RUNS,
    "files": runs.FILES,
    "transactions": transactions._TRANSACTIONS,
    "messages": transactions._MESSAGES,
    "index": index.SCHEMA,
}
"""What the code declares."""

PLACES: Final[Mapping[str, str]] = {
    **{name: f"mirror/_walreplay/{name}" for name in DECLARED if name != "index"},
    "index": "captures/_walreplay_index",
    "mirror": "mirror/s/orders",
    "history": "mirror/s/orders__history",
    "changelog": "mirror/s/orders__changes",
}
"""Where each table lies in a sample (`support.format_sample`)."""

RECORDS: Final[Mapping[str, type]] = {
    "stream.plan.Plan": Plan,
    "stream.plan.Resume": Resume,
    "ledger.state.Load": state.Load,
    "ledger.state.Rebuild": state.Rebuild,
    "ledger.state.Holder": state.Holder,
    "table.registry.MirrorEntry": MirrorEntry,
}
"""What is written as JSON."""


def schema_at(folder: Path, name: str) -> pa.Schema:
    """Return the columns that a sample's table has."""
    return pa.schema(DeltaTable(folder / PLACES[name]).schema().to_arrow())


def described(name: str, schema: pa.Schema) -> Iterator[tuple[str, Columns]]:
    """Yield the columns of a table, and those of the structs in it, each by the column that has them."""
    yield name, {field.name: type_name(field.type) for field in schema}
    for field in schema:
        inner = field.type.value_type if pa.types.is_list(field.type) else field.type
        if pa.types.is_struct(inner):
            yield from described(f"{name}.{field.name}", pa.schema(list(inner)))


def type_name(kind: pa.DataType) -> str:
    """Return a type as Spark's SQL has it; fields of structs are told apart."""
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct"
    return sql_of(declared(pa.schema([("", kind)]))[0]["type"]).lower()

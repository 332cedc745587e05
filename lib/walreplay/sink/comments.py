"""What a mirror table says of itself and of its columns: the comments that catalogs and readers show.

A table names its source relation, and a column the type that its source has there, as PostgreSQL writes both.  People
may write comments of their own.  Ours is what the ledger says was written last: whatever else a table says is somebody
else's, or was taken away by somebody, and stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from walreplay.outputs import Output
from walreplay.protocol.messages import Relation
from walreplay.selection import MetadataNames
from walreplay.sink.evolution import TableShape
from walreplay.types.sql_names import relation_name, type_written

_KEY: Final = b"comment"
"""Where an Arrow schema, and each of its fields, has a comment."""

DELETED: Final = "Whether the row is deleted in the source"

_COMMIT_LSN: Final = "Commit LSN of the transaction that has written the row last"
_COMMIT_TS: Final = "When that transaction has committed, by the source's clock"
_CHANGE_LSN: Final = "Commit LSN of the change's transaction"
_LOG: Final = {
    "op": "What has changed the row: c (insert), u (update), d (delete), t (truncate of the whole table)",
    "xid": "Transaction id",
    "ordinal": "The change's number in its transaction, from 0",
    "origin": "Replication origin of the transaction; NULL for the server itself",
    "file": "Capture file that the change's message begins in",
    "offset": "Where it begins there, in bytes, decompressed",
    "before": "What was sent of the old row: its key, or all of it; NULL if nothing was",
    "unchanged": "Columns whose values were not sent, as they have not changed: they are NULL here",
}
_RESCUED_DATA: Final = "Values that the types of their columns cannot hold: JSON of column and PostgreSQL's text"


def table_comment(relation: Relation, output: Output = Output.MIRROR) -> str:
    """Say which relation a table is the mirror of, or has the changes of."""
    said = "Changes of PostgreSQL table" if output is Output.CHANGELOG else "PostgreSQL table"
    return f"{said} {relation_name(relation.namespace, relation.name)}"


def column_comments(
    relation: Relation, type_names: Mapping[int, tuple[str, str]], masked: Sequence[int] = ()
) -> list[str]:
    """Say of what type each of a relation's columns is in the source.

    Args:
        type_names: (namespace, name) by oid, from Type messages.
        masked: the numbers of columns that have hashes in place of their values.
    """
    written = (type_written(column.type_oid, column.typmod, type_names) for column in relation.columns)
    return [f"{text}, masked" if number in masked else text for number, text in enumerate(written)]


def metadata_comments(metadata: MetadataNames) -> dict[str, str]:
    """Say what the columns are, by name, that stand behind the source's."""
    log = metadata.log
    told: list[tuple[str | None, str]] = [
        (metadata.commit_lsn, _COMMIT_LSN if log is None else _CHANGE_LSN),
        (metadata.commit_ts, _COMMIT_TS),
        (metadata.rescued_data, _RESCUED_DATA),
    ]
    if log is not None:
        told += [(getattr(log, name), text) for name, text in _LOG.items()]
    return {name: text for name, text in told if name is not None}


def followed(there: str, before: str, wanted: str) -> str:
    """Give what a table is to say, of which it says something now.

    Args:
        there: what it says; empty for nothing, as is each of the others.
        before: what it was given last.
        wanted: what it is to be given.
    """
    return wanted if there == before else there


def followed_columns(
    there: Mapping[str, str], before: TableShape | None, after: TableShape, others: Mapping[str, str]
) -> dict[str, str]:
    """Give what a table's columns are to say once they are all declared anew.

    Args:
        there: what the table's columns say now, by name, those that say nothing included; empty for a new table.
        before: the columns as the ledger knows them; None for a table that it does not.
        others: what the columns behind these are to say if they are new.
    """
    names = {} if before is None else {column.id: column for column in before.columns}
    found = {}
    for column in after.columns:
        old = names.get(column.id)
        if old is not None and old.name in there:
            found[column.name] = followed(there[old.name], old.comment, column.comment)
        else:
            found[column.name] = column.comment if before is not None else there.get(column.name, column.comment)
    return found | {name: there.get(name, text) for name, text in others.items()}


def with_comments(schema: pa.Schema, table: str, columns: Mapping[str, str]) -> pa.Schema:
    """Give a schema that says of itself and of its columns what a table that is made by it is to say."""
    fields = [field.with_metadata({_KEY: columns.get(field.name, "")}) for field in schema]
    return pa.schema(fields, metadata={_KEY: table})


def comment_in(declared: pa.Schema | pa.Field) -> str:
    """Give what a schema or a field says; empty for nothing."""
    told: bytes = (declared.metadata or {}).get(_KEY, b"")
    return told.decode()

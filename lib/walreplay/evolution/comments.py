"""The comments of a mirror table and of its columns, which catalogs and readers show.

A table's comment names its source relation, a column's comment its type in the source, both as PostgreSQL writes them;
behind that it has what the source's own comment says, if that is announced (`walreplay.decode.announcements`).
Users may change comments.  The ledger has the comment that walreplay wrote last: if the table has another one, or none
any more, a user has changed it, and it is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Final

import pyarrow as pa

from walreplay.evolution.shapes import TableShape
from walreplay.names import Output, RowKind
from walreplay.protocol.messages import Relation
from walreplay.types.names import relation_name, type_written

_KEY: Final = b"comment"  # The key of a comment in the metadata of an Arrow schema and of its fields

DELETED: Final = "Whether the row is deleted in the source"

_ALL: Final = {
    "lsn": "Commit LSN of the transaction that has written the row last",
    "ts": "When that transaction has committed, by the source's clock",
    "rescued": "Values that the types of their columns cannot hold: JSON of column and PostgreSQL's text",
    "source": "The source that the row is from",
}
_LOG: Final = {
    "op": "What has changed the row: c (insert), u (update), d (delete), t (truncate of the whole table)",
    "lsn": "Commit LSN of the change's transaction",
    "xid": "Transaction id",
    "ordinal": "The change's number in its transaction, from 0",
    "origin": "Replication origin of the transaction; NULL for the server itself",
    "file": "Capture file that the change's message begins in",
    "offset": "Where it begins there, in bytes, decompressed",
    "before": "What was sent of the old row: its key, or all of it; NULL if nothing was",
    "unchanged": "Columns whose values were not sent, as they have not changed: they are NULL here",
}
_HISTORY: Final = {
    "start_at": "From when on the row was so: the greatest commit time up to the transaction that made it so",
    "end_at": "Until when, likewise; NULL: it still is",
    "start_lsn": "Commit LSN of the transaction that made the row so",
    "end_lsn": "Commit LSN of the transaction that has ended that; NULL: none has",
    "ordinal": "The number, in its transaction, of the change that made the row so",
    "op": "What that change was: c (insert), u (update), r (base load)",
}


def table_comment(relation: Relation, output: Output = Output.MIRROR, announced: str = "") -> str:
    """Write a table's comment: the relation that it mirrors, or whose changes it has, and the source's own comment."""
    return _with_announced(f"{output.comment} {relation_name(relation.namespace, relation.name)}", announced)


def column_comments(
    relation: Relation,
    type_names: Mapping[int, tuple[str, str]],
    masked: Sequence[int] = (),
    announced: Sequence[str] = (),
) -> list[str]:
    """Write the comments of a relation's columns, in their order: their types in the source.

    Args:
        type_names: (namespace, name) by oid, from Type messages.
        masked: the numbers of the columns whose values are replaced by hashes.
        announced: the source's own comments, one for each column, empty for none; none at all if none is announced.
    """
    written = (type_written(column.type_oid, column.typmod, type_names) for column in relation.columns)
    types = (f"{text}, masked" if number in masked else text for number, text in enumerate(written))
    return [_with_announced(text, comment) for text, comment in zip_longest(types, announced, fillvalue="")]


def _with_announced(text: str, announced: str) -> str:
    return f"{text}: {announced}" if announced else text


def metadata_comments(kind: RowKind) -> dict[str, str]:
    """Return the comments of the metadata columns, by the names of the folded rows' columns that go there."""
    match kind:
        case RowKind.CURRENT:
            return _ALL
        case RowKind.VERSION:
            return _ALL | _HISTORY
        case RowKind.CHANGE:
            return _ALL | _LOG


def followed(current: str, before: str, intended: str) -> str:
    """Return the intended comment; or the current one if that is not the one that walreplay wrote before: a user's.

    Each of them is empty for none.
    """
    return intended if current == before else current


def followed_columns(
    current: Mapping[str, str], before: TableShape | None, after: TableShape, others: Mapping[str, str]
) -> dict[str, str]:
    """Return the comments for all of a table's columns, by name, when they are declared anew.

    Args:
        current: the columns' comments now, by name, with empty ones; no entries for a new table.
        before: the source's columns as the ledger has them; None for a table that the ledger does not know.
        after: the source's columns in the new state.
        others: the comments of new metadata columns.
    """
    names = {} if before is None else {column.id: column for column in before.columns}
    comments = {}
    for column in after.columns:
        old = names.get(column.id)
        if old is not None and old.name in current:
            comments[column.name] = followed(current[old.name], old.comment, column.comment)
        else:
            # A table that the ledger does not know keeps its own.
            comments[column.name] = column.comment if before is not None else current.get(column.name, column.comment)
    return comments | {name: current.get(name, text) for name, text in others.items()}


def with_comments(schema: pa.Schema, table: str, columns: Mapping[str, str]) -> pa.Schema:
    """Add comments to a schema: the table's, and the columns' by name."""
    fields = [field.with_metadata({_KEY: columns[field.name]} if columns.get(field.name) else {}) for field in schema]
    return pa.schema(fields, metadata={_KEY: table})


def comment_in(declared: pa.Schema | pa.Field) -> str:
    """Return the comment of a schema or a field; empty for none."""
    comment: bytes = (declared.metadata or {}).get(_KEY, b"")
    return comment.decode()

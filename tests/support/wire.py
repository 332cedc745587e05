"""Write messages: the inverse of the reader.

A message carries an xid when its ``xid`` is set: whoever writes a stream sets it between Stream Start and
Stream Stop, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from walreplay.protocol import messages as m


def encode(message: m.AnyMessage) -> bytes:
    """Write one message.

    Raises:
        ValueError: text holds a NUL.
        struct.error: a number does not fit its field.
    """
    layout = m.LAYOUTS.get(type(message))
    if layout is None:
        return message.tag.encode() + _ENCODERS[type(message)](message)
    values = [getattr(message, name) for name in message.__slots__ if name != layout.text]
    text = _string(getattr(message, layout.text)) if layout.text else b""
    return message.tag.encode() + layout.numbers.pack(*values) + text


def _string(text: str) -> bytes:
    value = text.encode()
    if 0 in value:
        raise ValueError("text holds a NUL, which ends it on the wire")
    return value + b"\0"


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else m.UINT32.pack(xid)


def _cell(cell: m.Cell) -> bytes:
    if cell.value is None:
        return cell.kind.encode()
    return cell.kind.encode() + m.INT32.pack(len(cell.value)) + cell.value


def _tuple_data(tag: bytes, row: m.TupleData | None) -> bytes:
    if row is None:
        return b""
    return tag + m.INT16.pack(len(row.cells)) + b"".join([_cell(cell) for cell in row.cells])


def _message(message: m.Message) -> bytes:
    head = _xid(message.xid) + m.MESSAGE.pack(message.transactional, message.lsn)
    return head + _string(message.prefix) + m.INT32.pack(len(message.content)) + message.content


def _relation(relation: m.Relation) -> bytes:
    head = _xid(relation.xid) + m.UINT32.pack(relation.oid) + _string(relation.namespace) + _string(relation.name)
    end = m.RELATION_END.pack(ord(relation.replica_identity), len(relation.columns))
    return head + end + b"".join([_column(column) for column in relation.columns])


def _column(column: m.Column) -> bytes:
    return m.UINT8.pack(column.key) + _string(column.name) + m.COLUMN_END.pack(column.type_oid, column.typmod)


def _type(type_: m.Type) -> bytes:
    return _xid(type_.xid) + m.UINT32.pack(type_.oid) + _string(type_.namespace) + _string(type_.name)


def _insert(insert: m.Insert) -> bytes:
    return _xid(insert.xid) + m.UINT32.pack(insert.relation_oid) + _tuple_data(b"N", insert.new)


def _update(update: m.Update) -> bytes:
    head = _xid(update.xid) + m.UINT32.pack(update.relation_oid)
    return head + _tuple_data(b"K", update.key) + _tuple_data(b"O", update.old) + _tuple_data(b"N", update.new)


def _delete(delete: m.Delete) -> bytes:
    head = _xid(delete.xid) + m.UINT32.pack(delete.relation_oid)
    return head + _tuple_data(b"K", delete.key) + _tuple_data(b"O", delete.old)


def _truncate(truncate: m.Truncate) -> bytes:
    head = _xid(truncate.xid) + m.TRUNCATE.pack(len(truncate.relation_oids), truncate.options)
    return head + b"".join([m.UINT32.pack(oid) for oid in truncate.relation_oids])


def _stream_abort(abort: m.StreamAbort) -> bytes:
    head = m.STREAM_ABORT.pack(abort.xid, abort.subxid)
    if abort.abort_lsn is None or abort.abort_time is None:
        return head
    return head + m.STREAM_ABORT_PARALLEL.pack(abort.abort_lsn, abort.abort_time)


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    m.Message: _message,
    m.Relation: _relation,
    m.Type: _type,
    m.Insert: _insert,
    m.Update: _update,
    m.Delete: _delete,
    m.Truncate: _truncate,
    m.StreamAbort: _stream_abort,
}

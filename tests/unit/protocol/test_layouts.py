"""Each message's bytes, field by field, as PostgreSQL's proto.c writes them."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from support.wire import _ENCODERS, encode
from walreplay.protocol import messages as m
from walreplay.protocol.reader import _BY_TAG, read_message

LSN = "00000000 0193F0E0"
END = "00000000 0193F110"
TIME = "000303B0 E7773525"
XID = "800002D6"
OID = "00004016"
GID = "67 C3A4 00"

lsn, end, time, xid, oid, gid = 0x0193F0E0, 0x0193F110, 0x000303B0E7773525, 0x800002D6, 0x4016, "gä"

ROW = "0004 6E 75 74 00000002 6869 62 00000003 00FF0A"
ROW_DATA = m.TupleData(
    (m.Cell("n"), m.Cell("u"), m.Cell("t", b"hi"), m.Cell("b", b"\x00\xff\n")),
)
KEY = "0001 74 00000000"
KEY_DATA = m.TupleData((m.Cell("t", b""),))

COLUMNS = "0002  01 6964 00 00000014 FFFFFFFF  00 70 00 FFFFFFFE 000A0006"
COLUMN_DATA = (m.Column("id", 20, -1, True), m.Column("p", 2**32 - 2, 0xA0006, False))

PLAIN: list[tuple[str, m.AnyMessage]] = [
    (f"42 {LSN} {TIME} {XID}", m.Begin(lsn, time, xid)),
    (f"43 00 {LSN} {END} {TIME}", m.Commit(0, lsn, end, time)),
    (f"4F {LSN} 6F72 00", m.Origin(lsn, "or")),
    (f"4D 01 {LSN} 7072 00 00000003 610062", m.Message(True, lsn, "pr", b"a\0b")),
    (f"4D 00 {LSN} 00 00000000", m.Message(False, lsn, "", b"")),
    (f"52 {OID} 7300 7400 64 {COLUMNS}", m.Relation(oid, "s", "t", "d", COLUMN_DATA)),
    (f"52 {OID} 00 7400 66 0000", m.Relation(oid, "", "t", "f", ())),
    (f"59 {OID} 7300 6D6F6F6400", m.Type(oid, "s", "mood")),
    (f"49 {OID} 4E {ROW}", m.Insert(oid, ROW_DATA)),
    (f"55 {OID} 4E {ROW}", m.Update(oid, ROW_DATA)),
    (f"55 {OID} 4B {KEY} 4E {ROW}", m.Update(oid, ROW_DATA, key=KEY_DATA)),
    (f"55 {OID} 4F {KEY} 4E {ROW}", m.Update(oid, ROW_DATA, old=KEY_DATA)),
    (f"44 {OID} 4B {KEY}", m.Delete(oid, key=KEY_DATA)),
    (f"44 {OID} 4F {ROW}", m.Delete(oid, old=ROW_DATA)),
    (f"54 00000002 03 {OID} FFFFFFFF", m.Truncate((oid, 2**32 - 1), 3)),
    (f"53 {XID} 01", m.StreamStart(xid, True)),
    (f"53 {XID} 00", m.StreamStart(xid, False)),
    ("45", m.StreamStop()),
    (f"63 {XID} 00 {LSN} {END} {TIME}", m.StreamCommit(xid, 0, lsn, end, time)),
    (f"41 {XID} 000002D7", m.StreamAbort(xid, 0x2D7)),
    (f"41 {XID} 000002D7 {LSN} {TIME}", m.StreamAbort(xid, 0x2D7, lsn, time)),
    (f"41 {XID} {XID} {'00' * 16}", m.StreamAbort(xid, xid, 0, 0)),
    (f"62 {LSN} {END} {TIME} {XID} {GID}", m.BeginPrepare(lsn, end, time, xid, gid)),
    (
        f"50 00 {LSN} {END} {TIME} {XID} {GID}",
        m.Prepare(0, lsn, end, time, xid, gid),
    ),
    (
        f"4B 00 {LSN} {END} {TIME} {XID} {GID}",
        m.CommitPrepared(0, lsn, end, time, xid, gid),
    ),
    (
        f"72 00 {LSN} {END} {TIME} {'FF' * 8} {XID} {GID}",
        m.RollbackPrepared(0, lsn, end, time, -1, xid, gid),
    ),
    (
        f"70 00 {LSN} {END} {TIME} {XID} {GID}",
        m.StreamPrepare(0, lsn, end, time, xid, gid),
    ),
]

STREAMED: list[tuple[str, m.AnyMessage]] = [
    (f"4D {XID} 01 {LSN} 7072 00 00000001 61", m.Message(True, lsn, "pr", b"a", xid)),
    (f"52 {XID} {OID} 7300 7400 69 {COLUMNS}", m.Relation(oid, "s", "t", "i", COLUMN_DATA, xid)),
    (f"59 {XID} {OID} 7300 6D6F6F6400", m.Type(oid, "s", "mood", xid)),
    (f"49 {XID} {OID} 4E {ROW}", m.Insert(oid, ROW_DATA, xid)),
    (f"55 {XID} {OID} 4F {KEY} 4E {ROW}", m.Update(oid, ROW_DATA, old=KEY_DATA, xid=xid)),
    (f"44 {XID} {OID} 4B {KEY}", m.Delete(oid, key=KEY_DATA, xid=xid)),
    (f"54 {XID} 00000001 00 {OID}", m.Truncate((oid,), 0, xid)),
    (f"4F {LSN} 6F72 00", m.Origin(lsn, "or")),
    ("45", m.StreamStop()),
]

LAYOUTS = [(text, message, False) for text, message in PLAIN] + [(text, message, True) for text, message in STREAMED]


def name_of(value: Any) -> str | None:
    return type(value).__name__ if hasattr(value, "tag") else ""


@pytest.mark.parametrize(("text", "message", "streaming"), LAYOUTS, ids=name_of)
def test_the_reader_knows_the_layout(text: str, message: m.AnyMessage, streaming: bool) -> None:
    data = bytes.fromhex(text)
    assert read_message(data, 0, streaming=streaming) == (message, len(data))


@pytest.mark.parametrize(("text", "message", "streaming"), LAYOUTS, ids=name_of)
def test_the_writer_knows_the_layout(text: str, message: m.AnyMessage, streaming: bool) -> None:
    assert encode(message) == bytes.fromhex(text)


def test_every_message_has_its_layout_its_reader_and_its_writer() -> None:
    kinds = set(get_args(m.AnyMessage))
    assert len(kinds) == 19
    assert {type(message) for _, message, _ in LAYOUTS} == kinds
    assert set(_ENCODERS) | set(m.LAYOUTS) == kinds
    assert {chr(tag): kind for tag, kind in _BY_TAG.items()} == {kind.tag: kind for kind in kinds}

from __future__ import annotations

import bz2
import gzip
import re
from pathlib import Path

import pyarrow as pa
import pytest

from support.captures import case
from support.framings import Form, Keepalive, frame
from support.pages import ROOT
from support.rows import rows_by_reader, rows_by_walk
from support.wire import encode
from walreplay.changes import decode_files
from walreplay.decode.kernels import frames
from walreplay.decode.sessions.resync import guess_framing
from walreplay.errors import CaptureError, FramingError, NotSupported, TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.compression import decompress, detect_compression
from walreplay.protocol.framing import (
    FRAMING_ORDER,
    FrameContent,
    FrameLayout,
    Framing,
    parse_frame,
    read_pgcopy_mark,
)
from walreplay.protocol.opening import detect_framing
from walreplay.protocol.reader import read_stream

KEEPALIVE = bytes.fromhex("64 00000016 6B 00000000019146F0 000303B0EBB30A13 01")
XLOGDATA = bytes.fromhex("64 0000001E 77 0000000000000001 0000000000000002 0000000000000003 45")
PGCOPY = b"PGCOPY\n\xff\r\n\0" + bytes(8)
PGCOPY_ROW = bytes.fromhex("0003 00000008 000000000193E858 00000004 800002D6 00000001 45")


def test_copydata_frames_have_their_layout() -> None:
    assert parse_frame(KEEPALIVE + XLOGDATA, 0, Framing.COPYDATA) == FrameContent(len(KEEPALIVE), len(KEEPALIVE), True)
    assert parse_frame(XLOGDATA + KEEPALIVE, 0, Framing.COPYDATA) == FrameContent(30, 31)


def test_pgcopy_rows_have_their_layout() -> None:
    assert read_pgcopy_mark(PGCOPY + PGCOPY_ROW, 0) == (len(PGCOPY), True)
    assert parse_frame(PGCOPY + PGCOPY_ROW + b"\xff\xff", len(PGCOPY), Framing.PGCOPY) == (
        len(PGCOPY) + 26,
        len(PGCOPY) + 27,
        False,
    )
    assert read_pgcopy_mark(PGCOPY_ROW + b"\xff\xff", len(PGCOPY_ROW)) == (len(PGCOPY_ROW) + 2, False)


def test_a_header_extension_of_pgcopy_is_stepped_over() -> None:
    header = PGCOPY[:-1] + b"\x03" + b"ext"
    message = (m.StreamStop(),)
    data = header + PGCOPY_ROW + b"\xff\xff"
    assert tuple(message for _, message in read_stream(data, framing=Framing.PGCOPY)) == message


def test_frames_are_written_as_they_are_read() -> None:
    begin = encode(m.Begin(5, 6, 7))
    keepalive = Keepalive(0x19146F0, 0x000303B0EBB30A13, True)
    head = bytes.fromhex("64 00000032 77 0000000000000005 0000000000000005 0000000000000006")
    assert frame([keepalive, m.Begin(5, 6, 7)], Framing.COPYDATA) == KEEPALIVE + head + begin
    row = bytes.fromhex("0003 00000008 0000000000000005 00000004 00000007 00000015")
    assert frame([m.Begin(5, 6, 7)], Framing.PGCOPY) == PGCOPY + row + begin + b"\xff\xff"
    assert frame([m.Begin(5, 6, 7)], Framing.PGCOPY, trailer=False) == PGCOPY + row + begin
    assert frame([m.Begin(5, 6, 7)], Framing.RECVLOGICAL) == begin + b"\n"


@pytest.mark.parametrize(
    ("data", "framing", "problem"),
    [
        (b"w" + XLOGDATA[1:], Framing.COPYDATA, "no copydata frame"),
        (bytes.fromhex("64 00000004 6B"), Framing.COPYDATA, "no copydata frame"),
        (bytes.fromhex("64 FFFFFFFF 6B"), Framing.COPYDATA, "no copydata frame"),
        (bytes.fromhex("64 0000001D 77"), Framing.COPYDATA, "neither XLogData nor"),
        (XLOGDATA.replace(b"w", b"x"), Framing.COPYDATA, "neither XLogData nor"),
        (bytes.fromhex("64 00000005 6B"), Framing.COPYDATA, "neither XLogData nor"),
        (b"X" + PGCOPY[1:], Framing.PGCOPY, "no pgcopy header"),
        (PGCOPY[:-8] + b"\0\1\0\0" + bytes(4), Framing.PGCOPY, "critical flags 0x00010000"),
        (PGCOPY + b"\0\4" + PGCOPY_ROW[2:], Framing.PGCOPY, "no row of"),
        (PGCOPY + b"\0\2" + PGCOPY_ROW[:14] + bytes(4), Framing.PGCOPY, "no row of"),
        (PGCOPY + PGCOPY_ROW[:-5] + b"\xff\xff\xff\xff", Framing.PGCOPY, "no row of"),
        (PGCOPY + b"\xff\xff" + b"E", Framing.PGCOPY, "no pgcopy header"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes, framing: Framing, problem: str) -> None:
    with pytest.raises(FramingError, match=problem):
        list(read_stream(data, framing=framing))


@pytest.mark.parametrize(
    ("whole", "framing"),
    [(XLOGDATA, Framing.COPYDATA), (PGCOPY + PGCOPY_ROW + b"\xff\xff", Framing.PGCOPY)],
)
def test_a_frame_cut_anywhere_is_refused_as_truncated(whole: bytes, framing: Framing) -> None:
    for cut in range(1, len(whole)):
        with pytest.raises(TruncatedMessage):
            list(read_stream(whole[:cut], framing=framing))


@pytest.mark.parametrize(
    ("head", "framing"),
    [
        (PGCOPY, Framing.PGCOPY),
        (PGCOPY[:11], Framing.PGCOPY),
        (KEEPALIVE, Framing.COPYDATA),
        (KEEPALIVE[:6], Framing.COPYDATA),
        (XLOGDATA + b"x", None),
        (encode(m.Begin(1, 2, 3)) + b"\n", Framing.RECVLOGICAL),
        (encode(m.Begin(1, 2, 3)) + b"C", Framing.RAW),
        (encode(m.Begin(1, 2, 3)), Framing.RAW),
        (encode(m.Begin(1, 2, 3))[:-1], None),
        (encode(m.Begin(1, 2, 3)) + b"x", None),
        (b"", None),
        (b"PGCOPY", None),
        (b"d\0\0\0", None),
        (b"date,amount\n2024-01-01,5\n", None),
        (b"hello, world", None),
    ],
)
def test_a_head_tells_its_framing(head: bytes, framing: Framing | None) -> None:
    assert detect_framing(head) is framing


def test_every_framing_is_tried() -> None:
    assert sorted(FRAMING_ORDER) == sorted(Framing)


def test_compression_is_told_by_the_first_bytes() -> None:
    assert detect_compression(gzip.compress(b"")) == "gzip"
    assert detect_compression(b"\x28\xb5\x2f\xfd") == "zstd"
    assert detect_compression(b"\x04\x22\x4d\x18") == "lz4"
    assert detect_compression(b"BZh9") == "bz2"
    assert detect_compression(bz2.compress(b"")) == detect_compression(bz2.compress(b"a")) == "bz2"
    assert detect_compression(b"\x1f") is None
    assert detect_compression(b"") is None


def test_a_stream_that_is_cut_may_go_on_with_any_bytes() -> None:
    """The middle of an LSN or a time is not compressed data because two of its bytes look so."""
    assert detect_compression(b"\x1f\x8b\x00\x02\xba\x7d\xef\x00\x00\x00\x02\xbc") is None
    assert detect_compression(b"\x1f\x8b\x08\x02\xba\x7d\xef\x00\x07\x00\x02\xbc") is None
    assert detect_compression(b"BZh9 is a value") is None


def test_bytes_that_are_not_compressed_come_back_as_they_are() -> None:
    assert decompress(XLOGDATA) is XLOGDATA


def test_more_than_the_limit_is_refused_and_says_how_to_split() -> None:
    data = gzip.compress(bytes(1000)) + gzip.compress(bytes(1000))
    assert len(decompress(data, limit=2000)) == 2000
    with pytest.raises(CaptureError, match=r"more than 1,999 bytes.*split -b"):
        decompress(data, limit=1999)


def test_a_compression_that_pyarrow_was_built_without_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: pa.BufferReader, compression: str) -> None:
        raise pa.ArrowNotImplementedError(f"Support for codec '{compression}' not built")

    monkeypatch.setattr(pa, "CompressedInputStream", refuse)
    with pytest.raises(NotSupported, match=r"compressed with lz4.*pip install pyarrow"):
        decompress(b"\x04\x22\x4d\x18")


@pytest.mark.parametrize("framing", Framing)
def test_every_framing_has_a_code_in_the_kernels_and_a_row_in_the_documentation(framing: Framing) -> None:
    assert list(frames.FRAMING_CODES.values()).count(frames.FRAMING_CODES[framing]) == 1
    (table,) = re.findall(r"## Framings\n(?:(?!\n## ).)*", Path(ROOT, "docs/capturing.md").read_text(), re.DOTALL)
    assert re.search(rf"^\| .*`{framing.value}`.* \|", table, re.MULTILINE)


@pytest.mark.parametrize("xlogdata", [False, True])
@pytest.mark.parametrize(
    "layout", [FrameLayout("big", 2, b"#", is_sent=True), FrameLayout("little", is_sent=True, trailer=b";")]
)
def test_a_new_framing_is_a_layout(layout: FrameLayout, xlogdata: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    framing = Framing.LENGTH
    monkeypatch.setattr(framing, "layout", layout)
    monkeypatch.setitem(frames.FRAMING_CODES, framing, frames.code_of(layout))
    session = case("o07").streams()[0]
    messages = [message for _, message in read_stream(session, framing=Framing.RECVLOGICAL)]
    data = Form(framing, xlogdata=xlogdata).write(messages)
    assert [message for _, message in read_stream(data, framing=framing)] == messages
    assert detect_framing(data) is framing
    assert rows_by_walk(data, framing, 1 << 16) == list(rows_by_reader(data, framing))
    plain, framed = (
        [
            row
            for batch in decode_files(["file"], lambda _, content=content: content, of, tile_bytes=1 << 16)
            for row in batch.data.to_pylist()
        ]
        for content, of in ((frame(messages, Framing.RAW), Framing.RAW), (data, framing))
    )
    assert plain
    assert framed == plain
    guessed = guess_framing(data[len(layout.header(0)) + 30 :])
    assert guessed is not None
    assert guessed[0] is framing

from __future__ import annotations

import pytest

from support.framings import frame
from support.wire import encode
from walreplay.errors import FramingError, MalformedMessage, TruncatedMessage, UnknownMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_message, read_stream

LSN_TIME = bytes(16)
SECRET = "5345435245 54"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"43 01 {'00' * 24}", "Commit message: flags are 1, not 0"),
        (f"63 00000001 02 {'00' * 24}", "Stream Commit message: flags are 2"),
        (f"50 01 {'00' * 28} 00", "Prepare message: flags are 1"),
        (f"70 01 {'00' * 28} 00", "Stream Prepare message: flags are 1"),
        (f"4B 01 {'00' * 28} 00", "Commit Prepared message: flags are 1"),
        (f"72 01 {'00' * 36} 00", "Rollback Prepared message: flags are 1"),
        (f"4D 02 {'00' * 8} 00 00000000", "Message message: flags are 2"),
        (f"4D 00 {'00' * 8} 00 FFFFFFFF", "length of the content is negative"),
        ("52 00000001 00 7800 78 0000", "replica identity is none of d, n, f, i"),
        ("52 00000001 00 7800 64 FFFF", "number of columns is negative"),
        ("52 00000001 00 7800 64 0002" + " 00 6100 00000017 FFFFFFFF" * 2, "two columns have one name"),
        ("52 00000001 00 7800 64 0001 02 00 00000014 FFFFFFFF", "flags of column 1 is 2"),
        ("52 00000001 FF00 00 64 0000", "namespace is not UTF-8"),
        ("52 00000001 00 EDA08000 64 0000", "name is not UTF-8"),
        ("49 00000001 4F 0000", "no new tuple"),
        ("49 00000001 4E FFFF", "number of columns of the new tuple is negative"),
        (f"49 00000001 4E 0002 6E 78 {SECRET}", "column 2 of the new tuple is not of kind n, u, t or b"),
        (f"49 00000001 4E 0001 74 80000000 {SECRET}", "length of column 1 of the new tuple is negative"),
        ("55 00000001 4B 0000 4F 0000", "no new tuple"),
        ("55 00000001 58 0000", "no new tuple"),
        ("44 00000001 4E 0000", "neither an old tuple"),
        ("54 FFFFFFFF 00", "number of relations is negative"),
        ("54 00000000 04", "options 4 hold an unknown bit"),
        ("53 00000001 02", "first-segment flag is 2"),
    ],
)
def test_what_breaks_a_layout_is_refused_with_place_and_field(text: str, problem: str) -> None:
    data = b"E" + bytes.fromhex(text)
    with pytest.raises(MalformedMessage, match=problem) as caught:
        read_message(data, 1)
    assert caught.value.offset == 1
    assert not isinstance(caught.value, (TruncatedMessage, UnknownMessage))
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "need|needs 1 byte"),
        (b"B" + bytes(19), "Begin message ends early: need 20 bytes for LSN, time and xid, have 19"),
        (
            b"I\0\0\0\1N\0\1t\0\0\0\5abcd",
            "Insert message ends early: need 5 bytes for column 1 of the new tuple, have 4",
        ),
        (b"I\0\0\0\1N\x7f\xff", "need 1 bytes for column 1 of the new tuple, have 0"),
        (
            b"T\x7f\xff\xff\xff\0" + b"\0\0\0\1\0\0\0\2",
            "need 8589934588 bytes for OIDs of the relations, have 8",
        ),
        (b"Y\0\0\0\1" + b"a" * 1000, "Type message ends early: no NUL behind namespace in 1000 bytes"),
    ],
)
def test_data_that_end_early_say_what_is_missing(data: bytes, problem: str) -> None:
    with pytest.raises(TruncatedMessage, match=problem) as caught:
        read_message(data, 0)
    assert caught.value.offset == 0


def test_a_long_text_ends_at_its_nul_alone() -> None:
    for size in (0, 1, 127, 128, 129, 10_000):
        origin = m.Origin(1, "x" * size)
        assert read_message(memoryview(encode(origin) + b"rest\0"), 0) == (origin, 10 + size)


@pytest.mark.parametrize("tag", [b"\0", b"\n", b"d", b"Z", b"\xff"])
def test_a_byte_that_is_no_tag_is_refused(tag: bytes) -> None:
    with pytest.raises(UnknownMessage, match=f"0x{tag[0]:02x}"):
        read_message(tag + bytes(50), 0)


def test_an_offset_outside_the_data_is_refused() -> None:
    for offset in (-1, 1, 2):
        with pytest.raises(TruncatedMessage):
            read_message(b"E", offset)


@pytest.mark.parametrize("behind", [b"", b"\n", b"B", b"S", b"\nA"])
def test_a_stream_abort_is_short_when_no_zero_byte_follows(behind: bytes) -> None:
    short = m.StreamAbort(1, 2)
    assert read_message(encode(short) + behind, 0) == (short, 9)


def test_a_stream_abort_is_long_when_a_zero_byte_follows() -> None:
    long = m.StreamAbort(1, 2, 0, 0)
    assert read_message(encode(long) + b"\n", 0) == (long, 25)
    with pytest.raises(TruncatedMessage, match="need 16 bytes for LSN and time, have 15"):
        read_message(encode(long)[:-1], 0)


def test_the_length_of_a_stream_abort_can_be_forced() -> None:
    long = m.StreamAbort(1, 2, 2**64 - 1, -1)
    assert read_message(encode(long), 0, parallel=True) == (long, 25)
    assert read_message(encode(long), 0, parallel=False) == (m.StreamAbort(1, 2), 9)
    with pytest.raises(TruncatedMessage):
        read_message(encode(m.StreamAbort(1, 2)), 0, parallel=True)


def test_a_stream_keeps_its_state_between_messages() -> None:
    row = m.TupleData((m.NULL_CELL,))
    session: list[m.AnyMessage] = [
        m.StreamStart(5, True),
        m.Origin(1, "o"),
        m.Insert(1, row, xid=6),
        m.StreamStop(),
        m.Begin(1, 2, 3),
        m.Insert(1, row),
        m.StreamStart(5, False),
        m.StreamStop(),
    ]
    for framing in Framing:
        data = frame(session, framing)
        assert [message for _, message in read_stream(data, framing=framing)] == session


@pytest.mark.parametrize("framing", [Framing.COPYDATA, Framing.PGCOPY])
def test_a_message_has_to_fill_its_frame(framing: Framing) -> None:
    begin = frame([m.Begin(1, 2, 3)], framing)
    payload = encode(m.Begin(1, 2, 3))
    size_at = 1 if framing is Framing.COPYDATA else begin.index(payload) - 4
    size = int.from_bytes(begin[size_at : size_at + 4], "big")

    def resized(by: int, body: bytes) -> bytes:
        header = begin[:size_at] + (size + by).to_bytes(4, "big") + begin[size_at + 4 :]
        return header.replace(payload, body)

    with pytest.raises(FramingError, match="frame holds 1 bytes behind its message"):
        list(read_stream(resized(1, payload + b"E"), framing=framing))
    with pytest.raises(FramingError, match="frame ends before its message") as caught:
        list(read_stream(resized(-1, payload[:-1]), framing=framing))
    assert caught.value.offset == begin.index(payload)


def test_a_message_without_its_newline_is_refused() -> None:
    with pytest.raises(FramingError, match="not followed by a newline") as caught:
        list(read_stream(b"EE\n", framing=Framing.RECVLOGICAL))
    assert caught.value.offset == 1
    with pytest.raises(TruncatedMessage, match="newline"):
        list(read_stream(b"E\nE", framing=Framing.RECVLOGICAL))


def test_names_are_decoded_as_the_caller_says() -> None:
    data = encode(m.Type(1, "s", "caf@")).replace(b"@", b"\xe9")
    assert read_message(data, 0, names=lambda name: name.decode("latin-1")) == (m.Type(1, "s", "café"), len(data))


def test_a_name_in_another_encoding_says_which_setting_tells_it() -> None:
    data = encode(m.Type(1, "s", "caf@")).replace(b"@", b"\xe9")
    with pytest.raises(MalformedMessage, match=r"name is not UTF-8.*source_encoding") as caught:
        read_message(data, 0)
    assert "caf" not in str(caught.value)
    with pytest.raises(MalformedMessage, match="not in the encoding that source_encoding names"):
        read_message(data, 0, names=lambda name: name.decode("ascii"))

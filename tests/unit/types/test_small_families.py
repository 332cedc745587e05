"""The families of a few lines: money, bits, network addresses, identifiers, json, xml, "char", boolean, bytea."""

from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types.numbers import boolean_text, int2_text, int4_text, int8_text, money_text
from walreplay.types.special_forms import (
    cidr_text,
    inet_text,
    macaddr8_text,
    macaddr_text,
    pg_lsn_text,
    regclass_text,
    snapshot_text,
    tid_text,
    unsigned_text,
    uuid_text,
    xid8_text,
)
from walreplay.types.strings import bits_text, bytea_text, char_text, jsonb_text, jsonpath_text, xml_text


@pytest.mark.parametrize(
    ("write", "data", "text"),
    [
        (boolean_text, b"\1", "t"),
        (boolean_text, b"\0", "f"),
        (bytea_text, b"", r"\x"),
        (bytea_text, b"\x00\xff", r"\x00ff"),
        (char_text, b"\0", ""),
        (char_text, b"a", "a"),
        (char_text, b"\xe9", r"\351"),
        (int2_text, b"\xff\xfe", "-2"),
        (int4_text, b"\0\0\1\0", "256"),
        (int8_text, b"\x80" + b"\0" * 7, str(-(2**63))),
        (unsigned_text, b"\xff" * 4, "4294967295"),
        (xid8_text, b"\xff" * 8, str(2**64 - 1)),
        (regclass_text, pack("!I", 1259), "1259"),
        (regclass_text, b"\0" * 4, "-"),
        (pg_lsn_text, pack("!Q", 0x16_B374_D848), "16/B374D848"),
        (tid_text, pack("!IH", 2**32 - 1, 7), "(4294967295,7)"),
        (snapshot_text, pack("!iqq", 0, 10, 20), "10:20:"),
        (snapshot_text, pack("!iqqqq", 2, 10, 20, 11, 15), "10:20:11,15"),
        (uuid_text, bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (money_text, pack("!q", 123_456_789), "$1,234,567.89"),
        (money_text, pack("!q", -5), "-$0.05"),
        (money_text, pack("!q", -(2**63)), "-$92,233,720,368,547,758.08"),
        (bits_text, pack("!i", 0), ""),
        (bits_text, pack("!i", 3) + b"\xa0", "101"),
        (bits_text, pack("!i", 9) + b"\x00\x80", "000000001"),
        (macaddr_text, bytes.fromhex("08002b010203"), "08:00:2b:01:02:03"),
        (macaddr8_text, bytes.fromhex("08002b0102030405"), "08:00:2b:01:02:03:04:05"),
    ],
)
def test_a_value_is_written_as_the_server_writes_it(write, data, text):
    assert write(data) == text


def address(family, bits, octets, *, cidr=0):
    return pack("!BBBB", family, bits, cidr, len(octets)) + octets


def ipv6(*words):
    return pack("!8H", *words)


@pytest.mark.parametrize(
    ("octets", "bits", "text"),
    [
        (bytes([192, 168, 0, 1]), 32, "192.168.0.1"),
        (bytes([192, 168, 0, 1]), 24, "192.168.0.1/24"),
        (ipv6(0, 0, 0, 0, 0, 0, 0, 0), 128, "::"),
        (ipv6(0, 0, 0, 0, 0, 0, 0, 1), 64, "::1/64"),
        (ipv6(0, 0, 0, 0, 0, 0, 0, 0xFFFF), 128, "::ffff"),
        (ipv6(0x2001, 0xDB8, 0, 0, 1, 0, 0, 1), 128, "2001:db8::1:0:0:1"),
        (ipv6(1, 0, 3, 4, 5, 6, 7, 8), 128, "1:0:3:4:5:6:7:8"),
        (ipv6(1, 2, 3, 4, 5, 6, 0, 0), 128, "1:2:3:4:5:6::"),
        (ipv6(0, 0, 0, 0, 0, 0, 0x102, 0x304), 128, "::1.2.3.4"),
        (ipv6(0, 0, 0, 0, 0, 0xFFFF, 0x102, 0x304), 96, "::ffff:1.2.3.4/96"),
    ],
)
def test_an_inet_names_its_network_unless_that_is_all_of_it(octets, bits, text):
    assert inet_text(address(2 if len(octets) == 4 else 3, bits, octets)) == text


def test_a_cidr_always_names_its_network():
    assert cidr_text(address(2, 32, bytes([10, 0, 0, 1]), cidr=1)) == "10.0.0.1/32"
    assert cidr_text(address(3, 0, bytes(16), cidr=1)) == "::/0"


def test_json_comes_behind_a_version():
    assert jsonb_text(b'\x01{"a": "\xc3\xa9"}', "utf-8") == '{"a": "é"}'
    assert jsonb_text(b'\x01"\xe9"', "iso8859-1") == '"é"'
    assert jsonpath_text(b'\x01$."a"', "utf-8") == '$."a"'


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ("<a/>", "<a/>"),
        ('<?xml version="1.1"?><a/>', '<?xml version="1.1"?><a/>'),
        ('<?xml version="1.0" encoding="LATIN1"?>\n<a/>', "<a/>"),
        ('<?xml version="1.1" encoding="LATIN1"?>\n<a/>', '<?xml version="1.1"?>\n<a/>'),
        (
            '<?xml version="1.0" encoding="LATIN1" standalone="yes"?><a/>',
            '<?xml version="1.0" standalone="yes"?><a/>',
        ),
    ],
)
def test_the_encoding_of_an_xml_is_left_out(sent, text):
    assert xml_text(sent.encode(), "utf-8") == text


@pytest.mark.parametrize(
    ("write", "data"),
    [
        (boolean_text, b"\2"),
        (boolean_text, b""),
        (char_text, b"ab"),
        (int4_text, b"\0"),
        (tid_text, b"\0" * 8),
        (snapshot_text, pack("!iqq", 1, 10, 20)),
        (snapshot_text, pack("!iqq", -1, 10, 20)),
        (uuid_text, b"\0" * 15),
        (bits_text, pack("!i", 9) + b"\0"),
        (bits_text, pack("!i", -1)),
        (macaddr_text, b"\0" * 8),
        (macaddr8_text, b"\0" * 6),
        (inet_text, address(4, 0, b"\0" * 4)),
        (inet_text, address(2, 33, b"\0" * 4)),
        (inet_text, address(2, 0, b"\0" * 16)),
        (inet_text, address(2, 0, b"\0" * 4) + b"\0"),
        (lambda data: jsonb_text(data, "utf-8"), b"\x02{}"),
        (lambda data: jsonb_text(data, "utf-8"), b""),
    ],
)
def test_what_no_server_sends_is_refused(write, data):
    with pytest.raises(ValueFormatError):
        write(data)

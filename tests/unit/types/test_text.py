import pytest

from walreplay.errors import ConfigError, ValueFormatError
from walreplay.types.text import UTF8, codec_of, decode_text, transcode


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("UTF8", UTF8),
        ("utf-8", UTF8),
        ("Unicode", UTF8),
        ("LATIN1", "iso8859-1"),
        ("Latin-1", "iso8859-1"),
        ("ISO 8859-1", "iso8859-1"),
        ("latin9", "iso8859-15"),
        ("ISO_8859_5", "iso8859-5"),
        ("WIN1252", "cp1252"),
        ("windows-1252", "cp1252"),
        ("koi8", "koi8-r"),
        ("EUC_JP", "euc_jp"),
        ("EUC_CN", "gb2312"),
        ("ShiftJIS", "cp932"),
        ("Windows949", "cp949"),
    ],
)
def test_encodings_go_by_the_names_that_postgresql_has_for_them(name, codec):
    assert codec_of(name) == codec


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("LATIN11", "The nearest of its names: LATIN1"),
        ("win1259", "WIN1258"),
        ("EUCJ", "EUC_JP"),
        ("xx", "Its names: UTF8, LATIN1"),
        ("", "Its names"),
        ("SQL_ASCII", "Name the encoding that the text really has"),
        ("EUC_TW", "cannot be read"),
        ("mule_internal", "cannot be read"),
    ],
)
def test_a_name_that_is_none_is_told_the_nearest(name, part):
    with pytest.raises(ConfigError) as caught:
        codec_of(name)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("encoding", "data", "text"),
    [
        ("LATIN1", b"caf\xe9", "café"),
        ("LATIN9", b"5 \xa4", "5 €"),
        ("WIN1252", b"\x93x\x94", "“x”"),
        ("KOI8R", b"\xf1", "Я"),
        ("EUC_JP", b"\xc6\xfc\xcb\xdc", "日本"),
        ("SJIS", b"\x95\\", "表"),
        ("BIG5", b"\xa5\\", "功"),
        ("GBK", b"\x81\x5c", "乗"),
        ("UHC", b"\xb0\xa1", "가"),
        ("GB18030", b"\x81\x30\x81\x30", "\x80"),
        ("UTF8", "é€🐘".encode(), "é€🐘"),
    ],
)
def test_text_in_another_encoding_becomes_utf8(encoding, data, text):
    codec = codec_of(encoding)
    assert decode_text(data, codec) == text
    assert transcode(data, codec) == text.encode()
    assert transcode(b"ascii" + data, codec) == b"ascii" + text.encode()


@pytest.mark.parametrize(
    ("encoding", "data", "text"),
    [
        ("EUC_JP", b"\xad\xa1\xa1\xc1a\xc6\xfc\x8f\xa2\xc3", "①\uff5ea日\uffe4"),
        ("EUC_KR", b"\xa4\xd4\xb0\xa1", "\u3164가"),
        ("BIG5", b"\xa1\x45\xa4\xa4\xa2\x46", "\u2022中¢"),
        ("GBK", b"1\x80\xd6\xd0", "1€中"),
        ("UHC", b"\xc9\xa1\xfe\xfe", "\ue000\ue0bb"),
        ("SHIFT_JIS_2004", b"~\\\x93\xfa\x95\\", "~\\日表"),
        ("EUC_JIS_2004", b"\xa1\xef", "¥"),
    ],
)
def test_where_python_reads_a_character_otherwise_postgresql_holds(encoding, data, text):
    assert decode_text(data, codec_of(encoding)) == text


def test_the_bytes_of_a_difference_between_two_characters_are_none():
    # c8ad a1c8: the pair ada1 in the middle would be a circled one.
    assert decode_text(b"\xc8\xad\xa1\xc8", codec_of("EUC_JP")) == "鉢“"


def test_what_is_ascii_stays_as_it_is():
    data = b"plain"
    assert transcode(data, "cp932") is data


@pytest.mark.parametrize(("encoding", "data"), [("WIN1252", b"\x81"), ("EUC_JP", b"\xc6"), ("SJIS", b"\x95")])
def test_bytes_that_the_encoding_does_not_have_name_the_setting(encoding, data):
    with pytest.raises(ValueFormatError, match="source_encoding"):
        transcode(data, codec_of(encoding))


def test_without_source_encoding_the_error_names_both_settings():
    with pytest.raises(ValueFormatError) as caught:
        decode_text(b"caf\xe9")
    assert "client_encoding" in str(caught.value)
    assert "source_encoding" in str(caught.value)
    assert "caf" not in str(caught.value)


def test_nul_is_refused_in_every_encoding():
    for codec in (UTF8, "iso8859-1", "cp932"):
        with pytest.raises(ValueFormatError, match="NUL"):
            transcode(b"a\0b", codec)

"""Text and its encodings: UTF-8 without NUL, or another encoding that the configuration names.

A server sends all text in the client_encoding of the session that records it: text values, values of other types in
text format, and the names of relations, columns and types.  The bytes do not say which encoding it is.
"""

import difflib
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from walreplay.errors import ConfigError, ValueFormatError
from walreplay.protocol.reader import names_in_utf8
from walreplay.types.encodings import decode

UTF8: Final = "utf-8"

NOT_UTF8 = "a text value is not UTF-8"
NOT_UTF8_REMEDY = (
    "Set client_encoding to UTF8 where the capture is recorded; for what is recorded already, source_encoding in "
    "the configuration says what it was"
)
HAS_NUL = "a text value contains a NUL byte, which PostgreSQL cannot store"

_CODECS: Final = {
    "UTF8": UTF8,
    "LATIN1": "iso8859-1",
    "LATIN2": "iso8859-2",
    "LATIN3": "iso8859-3",
    "LATIN4": "iso8859-4",
    "LATIN5": "iso8859-9",
    "LATIN6": "iso8859-10",
    "LATIN7": "iso8859-13",
    "LATIN8": "iso8859-14",
    "LATIN9": "iso8859-15",
    "LATIN10": "iso8859-16",
    "ISO_8859_5": "iso8859-5",
    "ISO_8859_6": "iso8859-6",
    "ISO_8859_7": "iso8859-7",
    "ISO_8859_8": "iso8859-8",
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
    "WIN866": "cp866",
    "WIN874": "cp874",
    "WIN1250": "cp1250",
    "WIN1251": "cp1251",
    "WIN1252": "cp1252",
    "WIN1253": "cp1253",
    "WIN1254": "cp1254",
    "WIN1255": "cp1255",
    "WIN1256": "cp1256",
    "WIN1257": "cp1257",
    "WIN1258": "cp1258",
    "EUC_CN": "gb2312",
    "EUC_JP": "euc_jp",
    "EUC_JIS_2004": "euc_jis_2004",
    "EUC_KR": "euc_kr",
    "SJIS": "cp932",
    "SHIFT_JIS_2004": "shift_jis_2004",
    "BIG5": "cp950",
    "GBK": "cp936",
    "UHC": "cp949",
    "JOHAB": "johab",
    "GB18030": "gb18030",
}
"""Python's names of encodings by PostgreSQL's (table 23.3 of its manual)."""

_ALIASES: Final = {
    "UNICODE": "UTF8",
    "ISO88591": "LATIN1",
    "ISO88592": "LATIN2",
    "ISO88593": "LATIN3",
    "ISO88594": "LATIN4",
    "ISO88599": "LATIN5",
    "ISO885910": "LATIN6",
    "ISO885913": "LATIN7",
    "ISO885914": "LATIN8",
    "ISO885915": "LATIN9",
    "ISO885916": "LATIN10",
    "KOI8": "KOI8R",
    "ALT": "WIN866",
    "WIN": "WIN1251",
    "ABC": "WIN1258",
    "TCVN": "WIN1258",
    "TCVN5712": "WIN1258",
    "VSCII": "WIN1258",
    "MSKANJI": "SJIS",
    "SHIFTJIS": "SJIS",
    "WIN932": "SJIS",
    "WIN936": "GBK",
    "WIN949": "UHC",
    "WIN950": "BIG5",
}
_NO_CODEC: Final = {
    "SQLASCII": "SQL_ASCII does not say what the bytes are",
    "EUCTW": "EUC_TW cannot be read",
    "MULEINTERNAL": "MULE_INTERNAL cannot be read",
}


def _plain(name: str) -> str:
    # PostgreSQL compares names like this: LATIN1, Latin-1 and latin_1 are one name.
    return re.sub(r"[^a-z0-9]", "", name.lower()).replace("windows", "win").upper()


_BY_NAME: Final = {_plain(name): codec for name, codec in _CODECS.items()} | {
    alias: _CODECS[name] for alias, name in _ALIASES.items()
}


def codec_of(encoding: str) -> str:
    """Give Python's name of an encoding, given PostgreSQL's; case and punctuation make no difference.

    Raises:
        ConfigError: PostgreSQL has no encoding of that name, or Python cannot read it.
    """
    name = _plain(encoding)
    codec = _BY_NAME.get(name)
    if codec is not None:
        return codec
    if name in _NO_CODEC:
        raise ConfigError(_NO_CODEC[name], remedy="Name the encoding that the text really has")
    close = difflib.get_close_matches(name, _BY_NAME, n=3, cutoff=0.5)
    nearest = list(dict.fromkeys(pg for near in close for pg in _CODECS if _CODECS[pg] == _BY_NAME[near]))
    raise ConfigError(
        f"{encoding!r} is no encoding of PostgreSQL's",
        remedy=f"The nearest of its names: {', '.join(nearest)}" if nearest else f"Its names: {', '.join(_CODECS)}",
    )


def decode_text(data: bytes, codec: str = UTF8) -> str:
    """Decode a text cell.

    Args:
        data: the cell's bytes.
        codec: from `codec_of`.

    Raises:
        ValueFormatError: the bytes contain a NUL, or are not in the encoding.
    """
    if b"\0" in data:
        raise ValueFormatError(HAS_NUL)
    try:
        return decode(data, codec)
    except UnicodeDecodeError:
        if codec == UTF8:
            raise ValueFormatError(NOT_UTF8, remedy=NOT_UTF8_REMEDY) from None
        raise ValueFormatError(
            f"a text value is not in the encoding that source_encoding names (Python's {codec})",
            remedy="Set source_encoding to the client_encoding that the capture was recorded with",
        ) from None


def names_in(codec: str) -> Callable[[bytes], str]:
    """Give the function with which `walreplay.protocol.reader.read_message` decodes names."""
    return names_in_utf8 if codec == UTF8 else partial(decode, codec=codec)


def transcode(data: bytes, codec: str) -> bytes:
    """Convert a text cell, or a name, from another encoding to UTF-8.

    This has to be done before the text is parsed: in SJIS, BIG5, GBK, UHC, JOHAB and GB18030 the second byte of a
    character may be a backslash or a brace.
    """
    return data if data.isascii() and b"\0" not in data else decode_text(data, codec).encode(UTF8)

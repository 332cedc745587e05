"""Text and its encodings: UTF-8 without NUL, or another encoding that the configuration names.

A server sends all text in the client_encoding of the session that records it: text values, values of other types in
text format, and the names of relations, columns and types.  The bytes do not say which encoding it is.

Where PostgreSQL's conversion tables and Python's codecs differ, PostgreSQL's count (`decode`).  They were compared
character by character with PostgreSQL 16 and 18, in both directions: the single-byte encodings, SJIS, EUC_CN and
GB18030 are the same in both.  Two characters that the server itself converts to one (to SJIS, both tildes) cannot be
distinguished.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from walreplay.errors import ConfigError, ValueFormatError
from walreplay.protocol.reader import names_in_utf8


class _Differences:
    """The characters that PostgreSQL reads differently from a Python codec.

    Args:
        wide: a pattern of the characters with more than one byte.
        runs: ``bytes=code point*count`` for each run of consecutive characters; all hexadecimal except the count.
    """

    def __init__(self, wide: bytes, runs: str) -> None:
        self._characters = re.compile(wide + rb"|.", re.DOTALL)
        self._known: dict[bytes, str] = {}
        for run in runs.split():
            first, _, rest = run.partition("=")
            point, _, count = rest.partition("*")
            for step in range(int(count or 1)):
                data = (int(first, 16) + step).to_bytes(len(first) // 2, "big")
                self._known[data] = chr(int(point, 16) + step)
        self._any = re.compile(b"|".join(map(re.escape, self._known)))

    def decode(self, data: bytes, codec: str) -> str:
        # The same bytes may also be the end of one character and the beginning of the next.  So each is looked at then.
        if self._any.search(data) is None:
            return data.decode(codec)
        characters = self._characters.findall(data)
        return "".join(self._known.get(character) or character.decode(codec) for character in characters)


def decode(data: bytes, codec: str) -> str:
    """Decode text as PostgreSQL would.

    Raises:
        UnicodeDecodeError: some bytes are no character.
    """
    differences = _DIFFERENCES.get(codec)
    return data.decode(codec) if differences is None else differences.decode(data, codec)


_DIFFERENCES: Final = {
    "euc_jp": _Differences(
        rb"\x8f..|[\x80-\xff].",
        "8fa2c3=ffe4 8ff3f3=2170*10 8ff3fd=2160*2 8ff4a1=2162*8 8ff4a9=ff07 8ff4aa=ff02 8ff4ab=3231 "
        "8ff4ac=2116 8ff4ad=2121 8ff4ae=70bb 8ff4af=4efc 8ff4b0=50f4 8ff4b1=51ec 8ff4b2=5307 8ff4b3=5324 "
        "8ff4b4=fa0e 8ff4b5=548a 8ff4b6=5759 8ff4b7=fa0f*2 8ff4b9=589e 8ff4ba=5bec 8ff4bb=5cf5 8ff4bc=5d53 "
        "8ff4bd=fa11 8ff4be=5fb7 8ff4bf=6085 8ff4c0=6120 8ff4c1=654e 8ff4c2=663b 8ff4c3=6665 8ff4c4=fa12 "
        "8ff4c5=f929 8ff4c6=6801 8ff4c7=fa13*2 8ff4c9=6a6b 8ff4ca=6ae2 8ff4cb=6df8 8ff4cc=6df2 8ff4cd=7028 "
        "8ff4ce=fa15*2 8ff4d0=7501 8ff4d1=7682 8ff4d2=769e 8ff4d3=fa17 8ff4d4=7930 8ff4d5=fa18*4 8ff4d9=7ae7 "
        "8ff4da=fa1c*2 8ff4dc=7da0 8ff4dd=7dd6 8ff4de=fa1e 8ff4df=8362 8ff4e0=fa1f 8ff4e1=85b0 8ff4e2=fa20*2 "
        "8ff4e4=8807 8ff4e5=fa22 8ff4e6=8b7f 8ff4e7=8cf4 8ff4e8=8d76 8ff4e9=fa23*3 8ff4ec=90de 8ff4ed=fa26 "
        "8ff4ee=9115 8ff4ef=fa27*2 8ff4f1=9592 8ff4f2=f9dc 8ff4f3=fa29 8ff4f4=973b 8ff4f5=974d 8ff4f6=9751 "
        "8ff4f7=fa2a*3 8ff4fa=999e 8ff4fb=9ad9 8ff4fc=9b72 8ff4fd=fa2d 8ff4fe=9ed1 a1c1=ff5e a1c2=2225 "
        "a1dd=ff0d a1f1=ffe0*2 a2cc=ffe2 ada1=2460*20 adb5=2160*10 adc0=3349 adc1=3314 adc2=3322 adc3=334d "
        "adc4=3318 adc5=3327 adc6=3303 adc7=3336 adc8=3351 adc9=3357 adca=330d adcb=3326 adcc=3323 adcd=332b "
        "adce=334a adcf=333b add0=339c*3 add3=338e*2 add5=33c4 add6=33a1 addf=337b ade0=301d ade1=301f "
        "ade2=2116 ade3=33cd ade4=2121 ade5=32a4*5 adea=3231*2 adec=3239 aded=337e adee=337d adef=337c "
        "adf0=2252 adf1=2261 adf2=222b adf3=222e adf4=2211 adf5=221a adf6=22a5 adf7=2220 adf8=221f adf9=22bf "
        "adfa=2235 adfb=2229*2",
    ),
    "euc_jis_2004": _Differences(rb"\x8f..|[\x8e\xa1-\xff].", "80=80*32 a1b1=203e a1bd=2014 a1ef=a5 a2d6=ff5f*2"),
    "euc_kr": _Differences(rb"[\x80-\xff].", "a2e8=327e a4d4=3164"),
    "shift_jis_2004": _Differences(rb"[\x81-\x9f\xe0-\xfc].", "5c=5c 7e=7e 815c=2014 81d4=ff5f*2"),
    "cp950": _Differences(
        rb"[\x81-\xfe].",
        "a145=2022 a14e=ff64 a15a=fffd a1c2=203e a1e3=223c a1f2=2641 a1f3=2609 a241=ff0f a242=ff3c a244=a5 a246=a2*2",
    ),
    "cp936": _Differences(rb"[\x81-\xfe].", "80=20ac"),
    "cp949": _Differences(rb"[\x81-\xfe].", "a2e8=327e c9a1=e000*94 fea1=e05e*94"),
    "johab": _Differences(rb"[\x81-\xfe].", "d9e8=327e"),
}


UTF8: Final = "utf-8"

NOT_UTF8 = "a text value is not UTF-8"
NOT_UTF8_REMEDY = (
    "Set client_encoding to UTF8 where the capture is recorded; for what is recorded already, source_encoding in "
    "the configuration says what it was"
)
HAS_NUL = "a text value contains a NUL byte, which PostgreSQL cannot store"

_LATINS: Final = dict(enumerate((1, 2, 3, 4, 9, 10, 13, 14, 15, 16), start=1))
"""Which part of ISO 8859 the encodings LATIN1, LATIN2 and so on are."""

_CODECS: Final = {
    "UTF8": UTF8,
    **{f"LATIN{number}": f"iso8859-{part}" for number, part in _LATINS.items()},
    **{f"ISO_8859_{part}": f"iso8859-{part}" for part in range(5, 9)},
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
    "WIN866": "cp866",
    "WIN874": "cp874",
    **{f"WIN{page}": f"cp{page}" for page in range(1250, 1259)},
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
    **{f"ISO8859{part}": f"LATIN{number}" for number, part in _LATINS.items()},
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
    """Return Python's name of an encoding, given PostgreSQL's; case and punctuation make no difference.

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
    """Return the function with which `walreplay.protocol.reader.read_message` decodes names."""
    # By identity the reader knows that names are UTF-8.
    return names_in_utf8 if codec == UTF8 else partial(decode, codec=codec)


def transcode(data: bytes, codec: str) -> bytes:
    """Convert a text cell, or a name, from another encoding to UTF-8.

    This has to be done before the text is parsed: in SJIS, BIG5, GBK, UHC, JOHAB and GB18030 the second byte of a
    character may be a backslash or a brace.
    """
    return data if data.isascii() and b"\0" not in data else decode_text(data, codec).encode(UTF8)

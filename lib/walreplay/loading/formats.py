"""The formats of COPY that rows are loaded from, and how they are recognised."""

from __future__ import annotations

import csv
import difflib
import io
import re
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Final, Literal

from walreplay.errors import CaptureError, ConfigError, NotSupported
from walreplay.protocol.compression import in_steps
from walreplay.types.text import UTF8, decode_text

Kind = Literal["text", "csv", "binary"]

SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"

_HEAD: Final = 1 << 16

COMPRESSED: Final = (".gz", ".zst", ".lz4", ".bz2")
_CSV: Final = (".csv",)

_EMBEDS_ASCII: Final = frozenset({"cp932", "shift_jis_2004", "big5", "cp950", "gbk", "gb18030", "cp949", "johab"})
"""Encodings of which a character's second byte may be a backslash or another sign of COPY's."""


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """A format of COPY, as its options have it.

    Attributes:
        null: how NULL is written; for binary it does not matter, and neither do the others.
        header: the first line has the columns' names.
    """

    kind: Kind
    delimiter: str = "\t"
    null: str = "\\N"
    quote: str = '"'
    escape: str = '"'
    header: bool = False


TEXT: Final = CopyFormat("text")
CSV: Final = CopyFormat("csv", delimiter=",", null="")
BINARY: Final = CopyFormat("binary")


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """What a user says of the files' format; what is None is as COPY has it.

    Attributes:
        kind: None if each file shows it: binary by its first bytes, CSV by the name ``….csv``, and text else.
    """

    kind: Kind | None = None
    delimiter: str | None = None
    null: str | None = None
    quote: str | None = None
    escape: str | None = None
    header: bool = False

    def format_of(self, path: str, head: bytes, codec: str = UTF8) -> CopyFormat:
        """Return a file's format.

        Args:
            head: the first bytes of the file, decompressed.
            codec: what its text is in.

        Raises:
            ConfigError: an option is not one that COPY takes.
            CaptureError: the file is not in the format that it should be in.
            NotSupported: a character's bytes may look like signs of the format.
        """
        is_binary = head.startswith(SIGNATURE)
        kind = self.kind or ("binary" if is_binary else "csv" if bare_name(path)[1] in _CSV else "text")
        if (kind == "binary") != is_binary:
            raise CaptureError(
                "the file is not in COPY's binary format"
                if kind == "binary"
                else "the file is in COPY's binary format",
                path=path,
                remedy=f'Say so by --copy-options "format {"binary" if is_binary else "text"}"',
            )
        if kind != "binary" and codec in _EMBEDS_ASCII:  # in binary format no byte is a sign
            raise NotSupported(
                f"text in {codec} cannot be taken apart: its characters may have bytes that COPY gives a meaning",
                path=path,
                remedy="Copy it by COPY … (ENCODING 'UTF8'), or in binary format",
            )
        # As in COPY, the escape is the quote if nothing else is said.
        escape = self.quote if self.escape is None else self.escape
        signs = {"delimiter": self.delimiter, "null": self.null, "quote": self.quote, "escape": escape}
        given: dict[str, Any] = {name: sign for name, sign in signs.items() if sign is not None}
        return _checked(replace({"text": TEXT, "csv": CSV, "binary": BINARY}[kind], header=self.header, **given))


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """The files of a base load, and how they were read: enough to read them once more.

    Attributes:
        table: the one table that all files are of; None where their names say it.
        description: the loaded tables, as ``describe.sql`` writes them.
        digest: of the files' names and lengths.
        changed: when the newest of them was written, in ms since 1970.
    """

    table: str | None
    options: CopyOptions
    description: str
    digest: str
    changed: int


def _checked(form: CopyFormat) -> CopyFormat:
    for name in ("delimiter", "quote", "escape"):
        value: str = getattr(form, name)
        if len(value.encode()) != 1 or value in "\r\n":
            raise ConfigError(f"{name} has to be one character of ASCII", remedy="Give it as COPY was given it")
    if form.kind == "text" and form.delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789":
        raise ConfigError("the delimiter is one that COPY's text format does not take")
    if form.kind == "csv" and form.delimiter == form.quote:
        raise ConfigError("the delimiter and the quote have to differ")
    if "\r" in form.null or "\n" in form.null or (form.kind != "binary" and form.delimiter in form.null):
        raise ConfigError("null has a newline or the delimiter in it, which COPY does not take")
    return form


_OPTION: Final = re.compile(
    r"\s*(?P<name>\w+)"
    r"(?:\s*\bE'(?P<escaped>(?:[^'\\]|''|\\.)*)'|\s*'(?P<quoted>(?:[^']|'')*)'"
    r'|\s+(?P<word>"(?:[^"]|"")+"|[^\s,\'"()$]+))?\s*(?:,|$)',
    re.IGNORECASE | re.DOTALL,
)
_ESCAPED: Final = re.compile(
    r"\\(?:x(?P<hexadecimal>[0-9a-f]{1,2})|(?P<octal>[0-7]{1,3})|(?P<other>.))", re.IGNORECASE | re.DOTALL
)
_OPTIONS: Final = ("format", "delimiter", "null", "header", "quote", "escape")
_KINDS: Final[dict[str, Kind]] = {"text": "text", "csv": "csv", "binary": "binary"}
_HEADERS: Final = {"true": True, "on": True, "1": True, "match": True, "false": False, "off": False, "0": False}
_HOW_TO_SAY: Final = "Write them as COPY has them: format csv, header, delimiter ';', null '\\N'"


def copy_options(text: str | None) -> CopyOptions:
    r"""Read options in COPY's own syntax, in parentheses or not, as of ``COPY … WITH (…)``; None for its defaults.

    Raises:
        ConfigError: an option is none that says how rows are written, or has no such value.

    >>> copy_options(r"(FORMAT text, DELIMITER E'\t', HEADER)")
    CopyOptions(kind='text', delimiter='\t', null=None, quote=None, escape=None, header=True)
    """
    rest = (text or "").strip()
    rest = re.sub(r"^with\s*(?=\()", "", rest, flags=re.IGNORECASE)
    if rest.startswith("(") and rest.endswith(")"):
        rest = rest[1:-1].strip()
    values: dict[str, str | None] = {}
    position = 0
    while position < len(rest):
        option = _OPTION.match(rest, position)
        name = "" if option is None else option["name"].lower()
        if name and name not in _OPTIONS:
            raise _unknown_option(name)
        if option is None or name in values:
            problem = f"{name} is given twice" if option else f"not a list of COPY's options: {rest[position:]}"
            raise ConfigError(f"--copy-options: {problem}", remedy=_HOW_TO_SAY)
        values[name] = _value_of(option)
        position = option.end()
    return _options_of(values)


def _value_of(option: re.Match[str]) -> str | None:
    if option["escaped"] is not None:
        return _ESCAPED.sub(_character, option["escaped"].replace("''", "'"))
    if option["quoted"] is not None:
        return option["quoted"].replace("''", "'")
    word = option["word"]
    # A word is an identifier to PostgreSQL, which makes lower case of it.
    return word if word is None else word[1:-1].replace('""', '"') if word[0] == '"' else word.lower()


def _character(escaped: re.Match[str]) -> str:
    if escaped["other"] is not None:
        return _ESCAPES.get(escaped["other"], escaped["other"])
    return chr(int(escaped["hexadecimal"], 16) if escaped["hexadecimal"] else int(escaped["octal"], 8))


def _options_of(values: dict[str, str | None]) -> CopyOptions:
    for name, value in values.items():
        allowed = _KINDS if name == "format" else _HEADERS if name == "header" else None
        if (value is None and name != "header") or (allowed and value is not None and value.lower() not in allowed):
            expected = f"one of {', '.join(allowed)}" if allowed else "a value"
            raise ConfigError(f"--copy-options: {name} has to have {expected}", remedy=_HOW_TO_SAY)
    kind, header = values.pop("format", None), values.pop("header", "off")
    return CopyOptions(
        None if kind is None else _KINDS[kind.lower()],
        header=header is None or _HEADERS[header.lower()],  # HEADER alone means true
        **values,
    )


def _unknown_option(name: str) -> ConfigError:
    if name == "encoding":
        return ConfigError("--copy-options has no encoding", remedy="Give source_encoding in the configuration")
    close = difflib.get_close_matches(name, _OPTIONS, n=1)
    return ConfigError(
        f"--copy-options: {name} is no option that says how rows are written",
        remedy=f"The nearest is {close[0]}" if close else f"There are {', '.join(_OPTIONS)}",
    )


def head_of(content: bytes | memoryview) -> bytes:
    """Return the first bytes of a file, decompressed."""
    for step in in_steps(content):
        if len(step):  # a step of decompression may yield nothing
            return bytes(step[:_HEAD])
    return b""


def bare_name(path: str) -> tuple[str, str]:
    """Return a file's name without the endings of compression and format, and the latter.

    >>> bare_name("/base/shop.orders.csv.gz")
    ('shop.orders', '.csv')
    """
    name = PurePath(path).name
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    for ending in (*_CSV, ".copy", ".parquet", ".txt", ".tsv", ".bin", ".dat", ".data"):
        if name.endswith(ending):
            return name.removesuffix(ending), ending
    return name, ""


def header_of(head: bytes, form: CopyFormat, codec: str, path: str) -> tuple[list[str], int]:
    """Read the line with the columns' names; return them, and where the rows begin.

    Raises:
        CaptureError: there is no whole line, or it is in another encoding.
    """
    end = _header_end(head, form)
    if end < 0:
        raise CaptureError("the line with the columns' names has no end", path=path)
    line = decode_text(head[:end], codec).rstrip("\r\n")
    if form.kind == "text":
        names = line.split(form.delimiter)
        return [_unescaped(name) for name in names], end
    doubled = form.quote == form.escape
    reader = csv.reader(
        io.StringIO(line, newline=""),
        delimiter=form.delimiter,
        quotechar=form.quote,
        doublequote=doubled,
        escapechar=None if doubled else form.escape,
        strict=True,
    )
    try:
        return next(iter(reader), []), end
    except csv.Error:
        raise CaptureError("the line with the columns' names is not CSV", path=path) from None


def _header_end(head: bytes, form: CopyFormat) -> int:
    if form.kind == "text":
        return head.find(b"\n") + 1 or -1
    quote, quoted = ord(form.quote), False
    for offset, byte in enumerate(head):
        if byte == quote:
            quoted = not quoted  # a doubled quote ends and begins again
        elif byte == 0x0A and not quoted:
            return offset + 1
    return -1


_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), text, flags=re.DOTALL)

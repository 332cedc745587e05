"""Files of COPY: text, CSV and binary, held against a reader that takes one byte after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fuzz.target import Target
from walreplay.decode.gathered import Cells
from walreplay.errors import CaptureError, ConfigError, WalReplayError
from walreplay.loading import copy_files
from walreplay.loading.copy_files import range_of, read_cells
from walreplay.loading.formats import BINARY, CSV, SIGNATURE, TEXT, CopyFormat, copy_options, header_of

Rows = list[list[bytes | None]]

FORMS: Final = (
    *(TEXT, CSV, BINARY),
    CopyFormat("text", delimiter="|", null=""),
    CopyFormat("csv", delimiter=";", null="\\N", quote="'", escape="\\"),
)
_CHUNKS: Final = (1, 3, 17, 1 << 20)
_OPTIONS: Final = 7
_HEX: Final = b"0123456789abcdefABCDEF"
_NAMED: Final = {98: 8, 102: 12, 110: 10, 114: 13, 116: 9, 118: 11}
_LF, _CR, _BACKSLASH = b"\n\r\\"


class Refused(Exception):
    """The bytes are no rows."""


def read(data: bytes) -> None:
    """Take the rows of a file apart, in chunks of some size, and in two ranges.

    Args:
        data: in the first byte, bits 0 to 2 choose the form, or options as text; bits 3 and 4 the number of fields, and
            bits 5 and 6 the size of a chunk.  The second byte says where ranges meet.
    """
    if len(data) < 2:
        return
    options, edge, body = data[0], data[1], data[2:]
    if options & 7 == _OPTIONS:
        _options(body)
        return
    form, fields = FORMS[(options & 7) % len(FORMS)], options >> 3 & 3
    _header(body, form)
    try:
        expected: Rows | None = _READERS[form.kind](body, form, fields)
    except Refused:
        expected = None
    before, copy_files.CHUNK = copy_files.CHUNK, _CHUNKS[options >> 5 & 3]
    try:
        read_rows = taken(body, form, fields)
        assert read_rows == expected, "the rows are others than those of the plain reader"
        if expected and form.kind == "text" and b"\\." not in body:
            _check_ranges(body, form, fields, expected, edge)
    finally:
        copy_files.CHUNK = before


def _check_ranges(body: bytes, form: CopyFormat, fields: int, expected: Rows, edge: int) -> None:
    rows: Rows = []
    middle = len(body) * edge // 256
    for start, stop in ((0, middle), (middle, len(body))):
        low, high = range_of(memoryview(body), start, stop)
        part = taken(body, form, fields, start=low, stop=high)
        assert part is not None, "a range is refused"
        rows += part
    assert rows == expected, "the rows of ranges are others"


def _options(body: bytes) -> None:
    try:
        options = copy_options(body.decode("utf-8", "replace"))
        for name in ("f.csv", "f"):
            options.format_of(name, b"a\n")
    except (ConfigError, CaptureError):
        pass


def _header(body: bytes, form: CopyFormat) -> None:
    if form.kind == "binary":
        return
    try:
        _, end = header_of(body, form, "utf-8", "f")
    except CaptureError:
        return
    assert body[end - 1] == _LF, "the header ends elsewhere than at a line's end"


def taken(body: bytes, form: CopyFormat, fields: int, *, start: int = 0, stop: int | None = None) -> Rows | None:
    """Return the rows of a file; None where it is refused."""
    rows: Rows = []
    try:
        for cells in read_cells(body, form, fields, "f", start=start, stop=stop):
            rows += [[_cell(cells, row * fields + column) for column in range(fields)] for row in range(cells.rows)]
    except WalReplayError:
        return None
    return rows


def _cell(cells: Cells, number: int) -> bytes | None:
    begin, length = int(cells.offset[number]), int(cells.length[number])
    if length == -1:
        return None
    end = begin + (length if length >= 0 else -3 - length)
    assert 0 <= begin <= end <= len(cells.buf), "a cell lies outside of the bytes"
    return cells.buf[begin:end].tobytes()


def _is_line_end(body: bytes, at: int) -> bool:
    return at >= len(body) or body[at] == _LF or (body[at] == _CR and body[at + 1 : at + 2] in (b"", b"\n"))


def _behind_line(body: bytes, at: int) -> int:
    return min(at + 1 + (body[at : at + 1] == b"\r"), len(body))


def _rows_of_lines(body: bytes, form: CopyFormat, fields: int) -> Rows:
    """Read text or CSV as COPY FROM does."""
    rows: Rows = []
    at, delimiter = 0, ord(form.delimiter)
    while at < len(body):
        if body.startswith(b"\\.", at) and _is_line_end(body, at + 2):
            if body[at + 2 :].strip(b"\r\n"):
                raise Refused
            return rows
        row: list[bytes | None] = []
        if fields == 0 and not _is_line_end(body, at):
            raise Refused
        while fields:
            value, at = (_text_field if form.kind == "text" else _csv_field)(body, at, form)
            row.append(value)
            if at < len(body) and body[at] == delimiter:
                at += 1
                continue
            break
        if at >= len(body) or not _is_line_end(body, at) or len(row) != fields:
            raise Refused
        at = _behind_line(body, at)
        if body[at - 1] != _LF:
            raise Refused
        rows.append(row)
    return rows


def _text_field(body: bytes, at: int, form: CopyFormat) -> tuple[bytes | None, int]:
    value, begin = bytearray(), at
    while at < len(body) and body[at] not in (ord(form.delimiter), _LF, _CR):
        byte = body[at]
        at += 1
        if byte == _BACKSLASH:
            if at >= len(body):
                raise Refused
            byte, at = _escaped(body, at)
        value.append(byte)
    return None if body[begin:at] == form.null.encode() else bytes(value), at


def _escaped(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    at += 1
    if byte in b"01234567":
        digits = bytes([byte])
        while len(digits) < 3 and body[at : at + 1] in tuple(b"%d" % digit for digit in range(8)):
            digits += body[at : at + 1]
            at += 1
        return int(digits, 8) & 0xFF, at
    if byte == ord("x") and body[at : at + 1] and body[at] in _HEX:
        end = at + (2 if body[at + 1 : at + 2] and body[at + 1] in _HEX else 1)
        return int(body[at:end], 16), end
    return _NAMED.get(byte, byte), at


def _csv_field(body: bytes, at: int, form: CopyFormat) -> tuple[bytes | None, int]:
    delimiter, quote, escape = (ord(sign) for sign in (form.delimiter, form.quote, form.escape))
    value, quoted, was_quoted = bytearray(), False, False
    while at < len(body):
        byte = body[at]
        if quoted and byte == escape and body[at + 1 : at + 2] and body[at + 1] in (quote, escape):
            at += 1
            value.append(body[at])
        elif byte == quote:
            quoted, was_quoted = not quoted, True
        elif not quoted and byte in (delimiter, _LF, _CR):
            break
        else:
            value.append(byte)
        at += 1
    if quoted:
        raise Refused
    return None if not was_quoted and bytes(value) == form.null.encode() else bytes(value), at


def _rows_of_binary(body: bytes, form: CopyFormat, fields: int) -> Rows:
    at = 0

    def number(size: int) -> int:
        nonlocal at
        at += size
        if at > len(body):
            raise Refused
        return int.from_bytes(body[at - size : at], "big", signed=True)

    if not body.startswith(SIGNATURE):
        raise Refused
    at = len(SIGNATURE)
    flags, extension = number(4) & 0xFFFF_FFFF, number(4) & 0xFFFF_FFFF
    at += extension
    if flags >> 16:
        raise Refused
    rows: Rows = []
    while (count := number(2)) != -1:
        if count != fields:
            raise Refused
        row: list[bytes | None] = []
        for _ in range(fields):
            size = number(4)
            if size < -1 or at + size > len(body):
                raise Refused
            row.append(body[at : at + size] if size >= 0 else None)
            at += max(size, 0)
        rows.append(row)
    if at != len(body):
        raise Refused
    return rows


_READERS: Final = {"text": _rows_of_lines, "csv": _rows_of_lines, "binary": _rows_of_binary}


def seeds() -> Iterator[bytes]:
    """Yield small files of each form."""
    texts = [b"1\ta\\tb\n2\t\\N\n", b"\\101\\x41\\.\tx\n\\.\n", b"a\r\nb\r\n", b"a\\\nb\n", b"\n\n", b"1|\n|x\n"]
    csvs = [b'1,"a ""b"""\n2,\n', b'"a\r\nb",c\r\n', b'"",\n\\.\n', b"'a\\'b';\\N\n", b'x"y,"z,\n']
    row = b"\0\2\0\0\0\1x\xff\xff\xff\xff"
    binaries = [SIGNATURE + bytes(8) + row + row + b"\xff\xff", SIGNATURE + bytes(7) + b"\1x\xff\xff"]
    for number, form in enumerate(FORMS):
        for body in {"text": texts, "csv": csvs, "binary": binaries}[form.kind]:
            for fields in (0, 1, 2):
                yield bytes([number | fields << 3 | (number + fields) % 4 << 5, 100]) + body
    for text in (b"(FORMAT csv, DELIMITER E'\\t', HEADER)", b"null '\\N', quote \"x\"", b"WITH (format text)"):
        yield bytes([_OPTIONS, 0]) + text


_WORDS = (SIGNATURE, b"\\N", b"\\.\n", b'""', b"\r\n", b"\xff\xff")

TARGET = Target("copies", read, seeds, _WORDS, longest=256)

"""Dumps of pg_dump: plain ones, tables of contents, and the names in their statements."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.copies import taken
from fuzz.target import Target
from walreplay.errors import CaptureError, NotSupported
from walreplay.loading.formats import TEXT
from walreplay.loading.pg_dump import read_copy, read_toc, sections_of

_TOC, _PLAIN, _NAMES = range(3)
_TIMES = 64
_LOOKED_INTO = 3
_REPEATED = 0x82  # of a plain dump: 1 of 3, and the highest bit


def read(data: bytes) -> None:
    """Read a plain dump, a table of contents, or names.

    Args:
        data: the first byte chooses; where its highest bit is set, a plain dump stands there 64 times.
    """
    if not data:
        return
    kind, body = data[0] % 3, data[1:]
    try:
        if kind == _TOC:
            for section in read_toc(body, "f"):
                assert section.file, "a table's rows are in no file"
        elif kind == _NAMES:
            _names(body)
        else:
            _plain(body * _TIMES if data[0] & 0x80 else body)
    except (CaptureError, NotSupported):
        pass


def _plain(body: bytes) -> None:
    last = 0
    for number, section in enumerate(sections_of(body, "f")):
        assert section.stop is not None, "a section has no end"
        assert last <= section.start <= section.stop, "sections lie over one another"
        assert body.startswith(b"\\.\n", section.stop), "the marker of the end does not stand behind a section"
        assert body.rfind(b"COPY ", last, section.start) >= 0, "no COPY stands in front of a section"
        if number < _LOOKED_INTO:
            taken(body, TEXT, len(section.columns), start=section.start, stop=section.stop)
        last = section.stop


def _names(body: bytes) -> None:
    """Write a statement with any names in quotes, as pg_dump does, and read it."""
    schema, table, *columns = (name or "x" for name in [*body.decode("utf-8", "replace").split("\0"), "", ""])
    quoted = ['"' + name.replace('"', '""') + '"' for name in (schema, table, *columns)]
    statement = f"COPY {quoted[0]}.{quoted[1]} ({', '.join(quoted[2:])}) FROM stdin;"
    assert read_copy(statement) == (f"{schema}.{table}", tuple(columns)), "names are read otherwise"


def _number(value: int) -> bytes:
    return bytes([value < 0]) + abs(value).to_bytes(4, "little")


def _text(value: bytes | None) -> bytes:
    return _number(-1) if value is None else _number(len(value)) + value


def _toc_of(version: tuple[int, int]) -> bytes:
    entry = [_number(1), _number(1), *map(_text, (b"0", b"7", b"b", b"TABLE DATA")), _number(3)]
    entry += map(_text, (b"", b"", b"COPY a.b (c) FROM stdin;\n", b"a", None))
    entry += [_text(b"heap")] * (version >= (1, 14)) + [_number(114)] * (version >= (1, 16))
    entry += map(_text, (b"me", b"false", b"12", None, b"7.dat"))
    head = [b"PGDMP", bytes([*version, 0, 4, 8, 3]), b"\0" if version >= (1, 15) else _number(-1)]
    return b"".join([*head, *[_number(0)] * 7, *map(_text, (b"shop", b"16.1", b"16.1")), _number(1), *entry])


def seeds() -> Iterator[bytes]:
    """Yield small dumps."""
    for version in (12, 14, 15, 16):
        yield bytes([_TOC]) + _toc_of((1, version))
    yield bytes([_PLAIN]) + b"--\nCOPY a.b (c, d) FROM stdin;\n1\tx\n2\t\\N\n\\.\n\nCOPY a.c (e) FROM stdin;\n\\.\n"
    yield bytes([_PLAIN]) + b'COPY "a""\n".b ("c d", "e,f") FROM stdin;\n1\t2\n\\.\nCOPY a.b () FROM stdin;\n\n\\.\n'
    yield bytes([_PLAIN]) + b"COPY a.b FROM stdin;\nx\n\\.\nSELECT 1;\nCOPY nothing\n"
    for line in (b"COPY a.b    x FROM stdin;\n", b'COPY "\n FROM stdin;\n', b"COPY a.b (c,d FROM stdin;\n", b"COPY "):
        yield bytes([_REPEATED]) + line
    yield bytes([_NAMES]) + 'shop\0or"ders\0a, b\0ü\n'.encode()


_WORDS = (b"COPY ", b" FROM stdin;\n", b"\n\\.\n", b'""', b"TABLE DATA")

TARGET = Target("dumps", read, seeds, _WORDS, longest=512)

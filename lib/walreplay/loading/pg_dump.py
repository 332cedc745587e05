"""Dumps of pg_dump: where the rows of each table lie in a plain file, or in a folder (``-Fd``).

A plain file has sections, ``COPY schema.table (columns) FROM stdin;``, then rows as COPY's text format has them, then
the marker of their end.  A folder has a file of rows for each table, and ``toc.dat``, which says which one; its layout
is that of ReadHead and ReadToc in PostgreSQL's pg_backup_archiver.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from walreplay.errors import CaptureError, NotSupported

TOC: Final = "toc.dat"

_MAGIC: Final = b"PGDMP"
_DIRECTORY: Final = (3, 5)  # A folder says that it is a tar archive: that is what its table of contents is like
_LEAST: Final = (1, 12)
_COMPRESSION_BYTE: Final = (1, 15)
_ACCESS_METHOD: Final = (1, 14)
_RELATION_KIND: Final = (1, 16)
_NEWEST: Final = (1, 16)

_NAME: Final = r'"(?:[^"]|"")+"|[^\s"(),.;]+'
_NAMES: Final = rf"(?:{_NAME})(?:\s*,\s*(?:{_NAME}))*"
_COPY: Final = re.compile(rf"COPY ({_NAME})\.({_NAME})(?:\s*\(({_NAMES}|)\))?\s* FROM stdin;\s*")
_EACH: Final = re.compile(rf"\s*({_NAME})\s*(?:,|\Z)")

_SECTION: Final = b"COPY "
_STDIN: Final = b" FROM stdin;"
_END: Final = b"\n\\.\n"
_MAX_STATEMENT_BYTES: Final = 1 << 20  # A COPY names at most 1,600 columns, of 63 bytes each
_MOST_ENDS: Final = 100  # So many that look like a statement's may stand in its names


def is_archive(content: bytes | memoryview) -> bool:
    """Return whether a file is a dump in pg_dump's custom format; a folder's table of contents begins likewise."""
    return bytes(content[: len(_MAGIC)]) == _MAGIC


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one table.

    Attributes:
        table: ``schema.table``.
        columns: of its rows, in their order.
        file: the file's name without the ending of its compression; empty within a plain file.
        start, stop: where the rows lie in a plain file.
    """

    table: str
    columns: tuple[str, ...]
    file: str = ""
    start: int = 0
    stop: int | None = None


def read_copy(statement: str) -> tuple[str, tuple[str, ...]] | None:
    """Read a statement of a dump; None if it is no COPY of a table.

    >>> read_copy('COPY shop."Odd ""Name" (id, "a, b") FROM stdin;')
    ('shop.Odd "Name', ('id', 'a, b'))
    """
    match = _COPY.fullmatch(statement)
    if match is None:
        return None
    columns, position, text = [], 0, match[3] or ""
    while position < len(text):
        name = _EACH.match(text, position)
        if name is None:
            return None
        columns.append(_plain(name[1]))
        position = name.end()
    return f"{_plain(match[1])}.{_plain(match[2])}", tuple(columns)


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def sections_of(data: bytes | memoryview, path: str) -> Iterator[Section]:
    """Find the sections of a plain dump; nothing is looked at within rows.

    Raises:
        CaptureError: a section has no end.
    """
    view = memoryview(data)
    buffer = view.obj if hasattr(view.obj, "find") else bytes(view)  # a mapped file is searched without a copy
    assert isinstance(buffer, bytes) or hasattr(buffer, "find")
    position, stdin = 0, -1
    while (start := buffer.find(_SECTION, position)) >= 0:
        position = start + len(_SECTION)
        if start and view[start - 1] != 0x0A:  # not at a line's beginning
            continue
        if stdin < start:
            stdin = buffer.find(_STDIN, start)
        if stdin < 0:  # no rows follow; looked for from each COPY, the end would take for ever
            return
        line_end = buffer.find(b"\n", start)
        line = bytes(view[start : line_end if line_end >= 0 else len(view)])
        statement = _statement(buffer, view, start, stdin)
        table_columns = None if statement is None else read_copy(statement.decode(errors="surrogateescape"))
        if table_columns is None and not line.rstrip().endswith(_STDIN):
            continue
        if table_columns is None or statement is None:
            raise CaptureError(
                "the COPY that begins here does not name its table as pg_dump does",
                path=path,
                offset=start,
                remedy="Dump with a pg_dump of version 10 or later, or use COPY",
            )
        line_end = buffer.find(b"\n", start + len(statement))
        first = line_end + 1 or len(view)
        end = buffer.find(_END, first - 1)  # a table without rows has its marker in the first line
        if end < 0:
            raise CaptureError("the rows that begin here have no end", path=path, offset=first, remedy="Dump again")
        yield Section(*table_columns, start=first, stop=end + 1)  # with the last row's newline, without the marker
        position = end + len(_END)


def _statement(buffer: Any, view: memoryview, start: int, stdin: int) -> bytes | None:
    """Return the COPY that begins at a place: names in quotes may have newlines; None if it has no end in reach."""
    stop, quotes, last = start, 0, start + _MAX_STATEMENT_BYTES
    for _ in range(_MOST_ENDS):
        if not 0 <= stdin <= last - len(_STDIN):
            break
        end = stdin + len(_STDIN)
        quotes, stop = quotes + bytes(view[stop:end]).count(b'"'), end
        if quotes % 2 == 0:  # else the semicolon stands inside of a quoted name
            return bytes(view[start:stop])
        stdin = buffer.find(_STDIN, stop, last)
    return None


def read_toc(data: bytes, path: str) -> list[Section]:
    """Read which files of a folder have which tables' rows.

    Raises:
        CaptureError: it is no table of contents.
        NotSupported: it is one of a version that is not known, or the rows are INSERT statements.
    """
    try:
        return list(_Toc(data, path).sections())
    except IndexError:
        raise CaptureError(
            "the table of contents ends early", path=path, remedy="Dump again, or copy it again"
        ) from None


class _Toc:
    """Reads ``toc.dat``."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self._path = path
        self._at = len(_MAGIC) + 3  # behind the version's three bytes
        if not data.startswith(_MAGIC) or len(data) <= self._at:
            raise CaptureError("the file is no table of contents of pg_dump", path=path)
        self._version = (data[5], data[6])  # the third byte is a revision
        if not _LEAST <= self._version <= _NEWEST:
            raise NotSupported(
                f"the dump is of the format {data[5]}.{data[6]}, which is not known", path=path, remedy="Use COPY"
            )
        self._int_size = self._byte()
        self._byte()  # of offsets, which a folder has none of
        if self._byte() not in _DIRECTORY:
            raise NotSupported("the dump is no folder", path=path, remedy="Dump with pg_dump --format=directory")

    def sections(self) -> Iterator[Section]:
        """Yield the rows of each table."""
        if self._version >= _COMPRESSION_BYTE:
            self._byte()
        else:
            self._int()
        for _ in range(7):
            self._int()  # when it was made
        self._texts(3)  # the database, the server's version and pg_dump's
        yield from filter(None, (self._entry() for _ in range(self._int())))

    def _entry(self) -> Section | None:
        self._int()  # the entry's id
        has_data = self._int()
        _, _, name, kind = self._texts(4)  # the oids of its kind and its own
        self._int()  # the section
        _, _, copy, namespace, _ = self._texts(5)  # how it is made and dropped; its tablespace
        if self._version >= _ACCESS_METHOD:
            self._text()
        if self._version >= _RELATION_KIND:
            self._int()
        self._texts(2)  # the owner, and whether rows have OIDs
        while self._text() is not None:
            pass  # what it depends on
        file = self._text()
        if kind != "TABLE DATA" or not has_data or not file:
            return None
        table_columns = read_copy(copy or "")
        if table_columns is None:
            raise NotSupported(
                "the rows are not dumped by COPY",
                path=self._path,
                table=f"{namespace}.{name}",
                remedy="Dump without --inserts",
            )
        return Section(*table_columns, file=file)

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _int(self) -> int:
        negative = self._byte()  # the sign stands in front, as a byte of its own
        value = sum(self._byte() << 8 * place for place in range(self._int_size))  # the lowest byte first
        return -value if negative else value

    def _texts(self, count: int) -> list[str | None]:
        return [self._text() for _ in range(count)]

    def _text(self) -> str | None:
        size = self._int()
        if size < 0:  # NULL
            return None
        if self._at + size > len(self._data):
            raise IndexError
        text = self._data[self._at : self._at + size]
        self._at += size
        return text.decode(errors="surrogateescape")  # a name may be in any encoding

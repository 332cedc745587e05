"""Files of COPY, split chunk by chunk into the fields of their rows.

Memory is bounded by the chunk, or by the largest row.  A file of text that is not compressed can be read in ranges by
several tasks: a newline that has no backslash before it is always a row's end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.gathered import Cells
from walreplay.decode.kernels import copy as kernels
from walreplay.errors import CaptureError, NotSupported
from walreplay.loading.formats import SIGNATURE, CopyFormat
from walreplay.protocol.compression import in_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK: Final = 1 << 20

MAX_ROW_BYTES: Final = 2**31 - 1 - 64
_CELLS: Final = 1 << 18
SLACK: Final = 16  # Bytes behind a chunk's own, so that kernels copy its last values by whole words, too

_HAS_OIDS: Final = 1 << 16
_NEWLINE: Final = b"\n"
_BACKSLASH: Final = 0x5C

_DAMAGED: Final = (
    "The file was cut off, lacks generated columns that are published (base.sh copies them), or is in another format "
    "than was said: --copy-options"
)


_MARKER: Final = b"\\."

_CUT: Final = "Bring the file again as it was copied. If its writer leaves the last newline out, put one behind it"


def range_of(view: memoryview, start: int, stop: int) -> tuple[int, int]:
    """Return the whole rows of text that begin between two places."""
    return _row_from(view, start), _row_from(view, stop)


def _row_from(view: memoryview, offset: int) -> int:
    """Return where the first row begins at a place or behind it."""
    if offset == 0 or offset >= len(view):
        return min(offset, len(view))
    offset -= 1  # a newline just before the place ends a row, too
    while True:
        window = bytes(view[offset : offset + CHUNK])
        if not window:
            return len(view)
        newline = window.find(_NEWLINE)
        while newline >= 0:
            if not _is_escaped(view, offset + newline):  # a newline in a value may have a backslash before it
                return offset + newline + 1
            newline = window.find(_NEWLINE, newline + 1)
        offset += len(window)


def _is_escaped(view: memoryview, offset: int) -> bool:
    count = 0
    while offset > count and view[offset - count - 1] == _BACKSLASH:
        count += 1
    return count % 2 == 1  # in pairs backslashes escape each other


def read_cells(
    content: bytes | memoryview,
    form: CopyFormat,
    fields: int,
    path: str,
    *,
    start: int = 0,
    stop: int | None = None,
    is_marked: bool = False,
) -> Iterator[Cells]:
    """Take a file's rows apart, chunk by chunk.

    The arrays of each `Cells` are used again for the next.

    Args:
        start, stop: the bytes to read, without compression: whole rows, or all behind a header.
        is_marked: the rows end with the marker of the data's end, as those of dumps do.

    Raises:
        CaptureError: the bytes are not such rows; with the row's offset.
        NotSupported: a row is too large.
    """
    splitter = _Splitter(form, fields, path)
    waiting: list[memoryview | NDArray[np.uint8]] = []
    size = size_tried = 0
    base = start
    for piece in _pieces(content, start, stop):
        if splitter.ended:
            splitter.refuse_more(np.frombuffer(piece, np.uint8), base)
            continue
        waiting.append(piece)
        size += len(piece)
        if size < 2 * size_tried:
            # A row is larger than a chunk: looked at each time, it would take for ever.
            continue
        chunk = _joined(waiting, size, path)
        rows_end = yield from splitter.split(chunk, splitter.whole(chunk, size), base)
        if splitter.ended:
            splitter.refuse_more(chunk[rows_end:size], base + rows_end)
            rows_end = size
        base += rows_end
        waiting, size = [chunk[rows_end:size]], size - rows_end  # the row that is not whole yet
        size_tried = size if rows_end == 0 else 0
    if not splitter.ended:
        chunk = _joined(waiting, size, path)
        if size and splitter.in_quotes(chunk, size):
            raise splitter.error("a quoted field has no end", base)
        splitter.check_last_row(chunk, size, base)
        rows_end = yield from splitter.split(chunk, size, base)
        if splitter.ended:
            splitter.refuse_more(chunk[rows_end:size], base + rows_end)
        elif rows_end < size:
            raise splitter.error("the data end inside of a row", base + rows_end)
        base += rows_end
    splitter.check_end(base, is_marked=is_marked)
    if splitter.ended and stop is not None and stop < len(content):
        # What follows in other ranges would be taken for rows.
        splitter.refuse_more(np.frombuffer(content[stop:], np.uint8), stop)


def _pieces(content: bytes | memoryview, start: int, stop: int | None) -> Iterator[memoryview]:
    """Yield the bytes between two places, in pieces of about a chunk."""
    step_start = 0
    for step in in_steps(content):  # one step, unless the file is compressed
        view = memoryview(step)
        low = max(0, start - step_start)
        high = len(view) if stop is None else min(len(view), stop - step_start)
        for place in range(low, high, CHUNK):
            yield view[place : min(place + CHUNK, high)]
        step_start += len(view)


def _joined(parts: Sequence[memoryview | NDArray[np.uint8]], size: int, path: str) -> NDArray[np.uint8]:
    if size > MAX_ROW_BYTES:
        raise NotSupported("a row has more than 2 GiB, or has no end", path=path, remedy=_DAMAGED)
    return np.concatenate([*(np.frombuffer(part, np.uint8) for part in parts), np.zeros(SLACK, np.uint8)])


class _Splitter:
    """Takes chunks apart.

    Attributes:
        ended: the marker of the data's end has come.
    """

    def __init__(self, form: CopyFormat, fields: int, path: str) -> None:
        self.ended = False
        self._form = form
        self._fields = fields
        self._path = path
        self._null = np.frombuffer(form.null.encode(), np.uint8)
        self._room = max(_CELLS, fields)  # one row at least
        self._offset = np.empty(self._room, np.int32)
        self._length = np.empty(self._room, np.int32)
        self._marks = np.zeros(kernels.MARKS, np.int64)
        self._in_head = form.kind == "binary"

    def whole(self, buf: NDArray[np.uint8], size: int) -> int:
        """Return where the last whole row ends, as far as that has to be known before rows are taken."""
        if self._form.kind == "binary":
            return size  # the kernel finds by the lengths where the last whole row ends
        if self._form.kind == "csv":
            return max(0, kernels.csv_end(buf, 0, size, ord(self._form.quote), ord(self._form.escape)))
        view = memoryview(buf.data)[:size]
        data = bytes(view[-4096:])  # as a rule the last row's end is near
        offset, data_start = size, size - len(data)
        while offset > 0:
            newline = data.rfind(_NEWLINE, 0, offset - data_start)
            if newline < 0:
                if data_start == 0:
                    return 0
                data = bytes(view[:data_start])
                offset, data_start = data_start, 0
                continue
            offset = data_start + newline
            if not _is_escaped(view, offset):
                return offset + 1
        return 0

    def in_quotes(self, buf: NDArray[np.uint8], size: int) -> bool:
        """Return whether what is no whole row of CSV ends inside of quotes."""
        form = self._form
        return form.kind == "csv" and kernels.csv_end(buf, 0, size, ord(form.quote), ord(form.escape)) < 0

    def split(self, buf: NDArray[np.uint8], end: int, base: int) -> Generator[Cells, None, int]:
        """Yield the rows up to a place; return where the last one ends."""
        start = self._rows_start(buf, end) if self._in_head else 0
        while start < end and not self.ended and not self._in_head:
            rows = self._run(buf, start, end)
            reason = int(self._marks[kernels.WHY])
            if rows:
                used = rows * self._fields
                yield Cells(buf, self._offset[:used], self._length[:used], rows, base)
            start = int(self._marks[kernels.AT])
            self.ended = reason == kernels.ENDED
            if reason not in (kernels.MORE, kernels.ENDED):
                raise self._fault(reason, base + int(self._marks[kernels.ROW]))
            if not rows:  # the next row is not whole
                break
        return start

    def _run(self, buf: NDArray[np.uint8], start: int, end: int) -> int:
        form, cells = self._form, (self._offset, self._length, self._marks)
        if form.kind == "binary":
            return kernels.split_binary(buf, start, end, self._fields, *cells)
        quotes = (ord(form.quote), ord(form.escape)) if form.kind == "csv" else (kernels.NO_QUOTE,) * 2
        return kernels.split_lines(buf, start, end, self._fields, ord(form.delimiter), *quotes, self._null, *cells)

    def _rows_start(self, buf: NDArray[np.uint8], end: int) -> int:
        """Return where the rows of binary format begin; 0 if the header is not whole yet."""
        fixed = len(SIGNATURE) + 8
        if end < fixed:
            return 0
        head = buf[:fixed].tobytes()
        flags, extension = (int.from_bytes(head[field : field + 4], "big") for field in (fixed - 8, fixed - 4))
        if not head.startswith(SIGNATURE):
            raise self.error("the file is not in COPY's binary format", 0)
        if flags & _HAS_OIDS or flags >> 17:  # of bits 16 to 31 a reader must know each
            raise NotSupported(
                "the rows have the OIDs that tables had up to PostgreSQL 11" if flags & _HAS_OIDS else "unknown flags",
                path=self._path,
                remedy="Copy the table without them",
            )
        if end < fixed + extension:
            return 0
        self._in_head = False
        return fixed + extension  # a reader has to skip the header's extension

    def refuse_more(self, rest: NDArray[np.uint8], offset: int) -> None:
        """Refuse anything but line ends behind the marker of the end."""
        if not np.isin(rest, (10, 13)).all() or (self._form.kind == "binary" and len(rest)):
            raise self.error("there is more behind the marker of the data's end", offset)

    def check_last_row(self, buf: NDArray[np.uint8], size: int, base: int) -> None:
        """Refuse a last row of text or CSV without its newline: COPY ends each row with one."""
        rows_end = self.whole(buf, size)
        if self._form.kind == "text" and _is_escaped(memoryview(buf.data), size):
            return  # a stray backslash: `split` raises for it
        if rows_end < size and buf[rows_end:size].tobytes().rstrip(b"\r") != _MARKER:
            problem = "the last row has no newline, which COPY ends each row with: it was cut off"
            raise CaptureError(problem, path=self._path, offset=base + rows_end, remedy=_CUT)

    def check_end(self, offset: int, *, is_marked: bool) -> None:
        """Refuse an end that is none."""
        if self.ended:
            return
        if self._form.kind == "binary":
            raise self.error("the data end early: the trailer of COPY's binary format is missing", offset)
        if is_marked:
            raise self.error("the data end early: the marker of their end is missing", offset)

    def _fault(self, reason: int, offset: int) -> CaptureError:
        fields = int(self._marks[kernels.FIELDS])
        problem = {
            kernels.WRONG_FIELDS: f"a row has {'more' if fields > self._fields else fields} fields where "
            f"{self._fields} are expected",
            kernels.STRAY_RETURN: "a carriage return stands in the middle of a row",
            kernels.STRAY_BACKSLASH: "the data end with a backslash",
            kernels.WRONG_LENGTH: "a field's length is negative",
        }[reason]
        return self.error(problem, offset)

    def error(self, problem: str, offset: int) -> CaptureError:
        """Return an error with its place."""
        return CaptureError(problem, path=self._path, offset=offset, remedy=_DAMAGED)

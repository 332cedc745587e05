"""Columns of values of any length: text, which is checked to be UTF-8, and bytea."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from walreplay.decode.columns.base import MOST_GROWTH, Call, ColumnBuilder, resized
from walreplay.decode.columns.cells import BINARY, MAX_DATA_BYTES
from walreplay.decode.kernels import binary_texts as kernels_texts
from walreplay.decode.kernels import outcomes
from walreplay.decode.kernels import text as kernels_text
from walreplay.decode.kernels.programs import TEXT, TEXT_ONLY
from walreplay.decode.placing import Placing
from walreplay.errors import NotSupported, ValueFormatError
from walreplay.types.base import ColumnType, DoesNotFit, Family, Rescued
from walreplay.types.binary import bytes_from_text
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.extensions import EXTENSION_TEXTS, EXTENSION_TYPES
from walreplay.types.rendering import NotRendered
from walreplay.types.text import HAS_NUL, NOT_UTF8, NOT_UTF8_REMEDY

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from walreplay.decode.columns.cells import Bytes, Cells, Names, Tile

_MIN_DATA: Final = 256


class VariableBuilder(ColumnBuilder):
    """Values of any length, one after the other.

    Args:
        column_type: see `ColumnBuilder`.
        names: see `ColumnBuilder`.
        text: the kernel for text, one of `kernels.text` that can continue at a row.
        binary: the kernel for binary format, `kernels.binary_texts.texts`, which can read text as well.
        reader: the exact reader.
    """

    def __init__(
        self,
        column_type: ColumnType,
        names: Names,
        *,
        text: Call,
        binary: Call | None,
        reader: Callable[[str], bytes],
    ) -> None:
        super().__init__(column_type, names, binary)
        self._text = text
        self._reader = reader
        self._ends: Cells = np.zeros(1, dtype=np.int32)
        self._data: Bytes = np.empty(0, dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""
        return int(self._ends[self.rows]) + 4 * self.rows + self.rows // 8

    def _convert(self, tile: Tile) -> list[Rescued]:
        return self._gather(tile, self._binary)

    def _gather(self, tile: Tile, binary: Call | None) -> list[Rescued]:
        rescued = []
        call = self._text
        row = 0
        while True:
            outputs = (self._ends, self._valid, self._data, self.rows, row)
            row = call.kernel(*tile.arguments, *call.parameters, *outputs)
            if row == tile.size:
                break
            size = tile.sent_length(row)
            is_binary = size <= BINARY
            more = BINARY - size + kernels_texts.SLACK if is_binary else size + kernels_text.SLACK
            used = int(self._ends[self.rows + row])
            other = binary if is_binary else self._text
            if used + more > self._data.size:
                self._make_room(used, more)
            elif other is not None and call is not other:
                call = other
            else:
                misfit = self._append_exactly(tile, row)
                if misfit is not None:
                    rescued.append(misfit)
                row += 1
        return rescued

    def _append_exactly(self, tile: Tile, row: int) -> Rescued | None:
        """Append one value that the kernels did not read; give it if the type cannot hold it."""
        at = self.rows + row
        used = int(self._ends[at])
        try:
            value: bytes = tile.read(row, self._reader)
        except (DoesNotFit, NotRendered):
            self._ends[at + 1] = used
            self._valid[at] = 0
            return tile.rescued(row)
        if used + len(value) > self._data.size:
            self._make_room(used, len(value))
        self._data[used : used + len(value)] = np.frombuffer(value, dtype=np.uint8)
        self._ends[at + 1] = used + len(value)
        self._valid[at] = 1
        return None

    def addresses(self) -> tuple[int, int, int, int]:
        """Give the addresses of the values' ends, the validity and the data, and the data's size."""
        return self._ends.ctypes.data, self._valid.ctypes.data, self._data.ctypes.data, self._data.size

    def make_room(self, more: int, share: float) -> None:
        """Make room for more bytes, and for those that follow.

        Args:
            more: how many bytes are needed at least.
            share: the share of the input that was walked; the rest is assumed to need bytes at the same rate.
        """
        self._make_room(int(self._ends[self.rows]), more, share)

    def _make_room(self, used: int, more: int, share: float = 1) -> None:
        if used + more > MAX_DATA_BYTES:
            raise NotSupported("one column of one batch holds more than 2 GiB")
        ahead = min(round(used / share), MOST_GROWTH * self._data.size)
        size = min(MAX_DATA_BYTES, max(_MIN_DATA, used + more, 2 * self._data.size, ahead))
        self._data = resized(self._data, size, used)

    def _grow(self, capacity: int) -> None:
        self._ends = resized(self._ends, capacity + 1, self.rows + 1)
        self._ends[0] = 0
        self._data = resized(self._data, self._data.size, int(self._ends[self.rows]))
        self._valid = resized(self._valid, capacity, self.rows)

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        data = pa.py_buffer(self._data[: self._ends[rows]])
        ends = pa.py_buffer(self._ends[: rows + 1])
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, ends, data])


class TextBuilder(VariableBuilder):
    """Text: the kernels gather it, and then all gathered text is checked at once."""

    def _convert(self, tile: Tile) -> list[Rescued]:
        rescued = super()._convert(tile)
        fault = self._fault(tile)
        if fault is not None:
            raise fault
        return rescued

    def finish_placed(self, tile: Tile, missed: Cells, flags: int) -> list[Rescued]:
        """Refuse values that are no text."""
        fault = self._fault_by(tile, flags) if flags else None
        if fault is not None:
            raise fault
        return []

    def _fault(self, tile: Tile) -> ValueFormatError | None:
        """Check the text that the kernels have gathered; give the error for the first fault."""
        start, end = self.rows, self.rows + tile.size
        flags = kernels_text.text_flags(self._data, self._words, int(self._ends[start]), int(self._ends[end]))
        return self._fault_by(tile, flags)

    def _fault_by(self, tile: Tile, flags: int) -> ValueFormatError | None:
        start, end = self.rows, self.rows + tile.size
        if flags & outcomes.HAS_NUL:
            place = int(self._ends[start]) + int(np.argmin(self._data[self._ends[start] : self._ends[end]]))
            row = int(np.searchsorted(self._ends[start : end + 1], place, side="right")) - 1
            return ValueFormatError(HAS_NUL, offset=tile.place(row))
        if flags & outcomes.HAS_HIGH and not kernels_text.are_utf8(self._data, self._ends, start, end):
            row = kernels_text.first_not_utf8(self._data, self._ends, start, end)
            return ValueFormatError(NOT_UTF8, offset=tile.place(row - start), remedy=NOT_UTF8_REMEDY)
        return None

    @property
    def _words(self) -> NDArray[np.uint64]:
        return self._data[: self._data.size & ~7].view(np.uint64)


class LabelBuilder(TextBuilder):
    """A user-defined type: if all bytes are text (as an enum's labels), they are kept; otherwise each value is read."""

    def _convert(self, tile: Tile) -> list[Rescued]:
        # Usually everything is text, and checking all of it at once is faster than checking each value.
        rescued = self._gather(tile, self._binary)
        start, end = (int(self._ends[row]) for row in (self.rows, self.rows + tile.size))
        has_control = kernels_texts.has_control(self._data, self._words, start, end)
        fault = self._fault(tile)
        if (has_control or fault is not None) and tile.has_binary():
            tile, rescued = tile.as_text()
            self._gather(tile, None)
            fault = self._fault(tile)
        if fault is not None:
            raise fault
        return rescued


_FORMS: Final = {
    "text": kernels_texts.AS_SENT,
    "varchar": kernels_texts.AS_SENT,
    "bpchar": kernels_texts.AS_SENT,
    "name": kernels_texts.AS_SENT,
    "json": kernels_texts.AS_SENT,
    "xml": kernels_texts.XML,
    "pg_node_tree": kernels_texts.AS_SENT,
    "refcursor": kernels_texts.AS_SENT,
    "char": kernels_texts.ONE_BYTE,
    "jsonb": kernels_texts.VERSIONED,
    "jsonpath": kernels_texts.VERSIONED,
    "uuid": kernels_texts.UUID,
    "numeric": kernels_texts.NUMERIC,
}
"""The kernel's form for the binary format of built-in types; values of other types are converted one by one."""

_EXTENSIONS: Final = frozenset({*EXTENSION_TYPES, *EXTENSION_TEXTS})


def string(column_type: ColumnType, names: Names) -> ColumnBuilder:
    """Give the builder for all types that stay text."""
    builtin = BUILTIN_TYPES.get(column_type.oid)
    builder = TextBuilder
    form: int | None = None
    if builtin is not None:
        form = _FORMS.get(builtin.name)
    elif _may_be_text(names.get(column_type.oid)):
        builder = LabelBuilder
        form = kernels_texts.AS_SENT
    binary = None if form is None else Call(kernels_texts.texts, (form,))
    made = builder(column_type, names, text=Call(kernels_text.texts), binary=binary, reader=str.encode)
    if not column_type.overridden:
        is_text_in_both = builder is TextBuilder and form == kernels_texts.AS_SENT
        made.placing = Placing(TEXT if is_text_in_both else TEXT_ONLY)
    return made


def _may_be_text(name: tuple[str, str] | None) -> bool:
    # If nothing has announced the type, nothing is known of its bytes, not even that they may be text.
    return name is not None and (name[1] == "citext" or name[1] not in _EXTENSIONS)


def bytea(column_type: ColumnType, names: Names) -> ColumnBuilder:
    """Give the builder for bytea."""
    return VariableBuilder(
        column_type,
        names,
        text=Call(kernels_text.hex_bytes),
        binary=Call(kernels_texts.texts, (kernels_texts.BYTEA,)),
        reader=bytes_from_text,
    )


def plain_texts() -> VariableBuilder:
    """Give a builder that gathers text without checking it."""
    text = ColumnType(pa.string(), Family.STRING, "text")
    return VariableBuilder(text, {}, text=Call(kernels_text.texts), binary=None, reader=str.encode)

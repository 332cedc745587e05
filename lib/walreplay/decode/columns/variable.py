"""Builders of columns whose values have any length.

Text, which is checked to be UTF-8, and bytea; then arrays of one dimension, and pgvector's vectors.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.columns.base import (
    MAX_DATA_BYTES,
    MIN_ROWS,
    MOST_GROWTH,
    ColumnBuilder,
    resized,
)
from walreplay.decode.kernels import binary as kernels_binary
from walreplay.decode.kernels import programs
from walreplay.decode.kernels import text as kernels_text
from walreplay.decode.kernels.binary import AS_SENT, BINARY, NO_FORM, NULL, SLACK
from walreplay.decode.kernels.place import place_column
from walreplay.decode.placing import Placing
from walreplay.errors import NotSupported, ValueFormatError
from walreplay.types import families
from walreplay.types.base import ColumnType, DoesNotFit, Rescued
from walreplay.types.builtin import BUILTIN_TYPES, EXTENSION_TEXTS, EXTENSION_TYPES
from walreplay.types.canonical import canonical_of
from walreplay.types.composite import VECTOR_FORM, elements_from_text
from walreplay.types.rendering import NotRendered
from walreplay.types.strings import bytes_from_text
from walreplay.types.text import HAS_NUL, NOT_UTF8, NOT_UTF8_REMEDY

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from walreplay.decode.columns.base import Bytes, Cells, CellTile, Names


_MIN_DATA: Final = 256
_NO_MISSES: Final = np.zeros(1, np.int32)  # A value that the kernel does not read stops it


def _larger_ends(ends: Cells, capacity: int, rows: int) -> Cells:
    """Return where the values of the first rows end, with room for more rows."""
    larger: Cells = resized(ends, capacity + 1, rows + 1)
    larger[0] = 0  # the memory is not cleared
    return larger


class VariableBuilder(ColumnBuilder):
    """Values of any length, one after the other.

    Args:
        placing: how the kernels convert a value.
        reader: reads the text of a value that they leave.
    """

    def __init__(
        self, column_type: ColumnType, names: Names, placing: Placing, reader: Callable[[str], bytes] = str.encode
    ) -> None:
        super().__init__(column_type, names, placing, reads_binary=placing.low != NO_FORM)
        self._reader = reader
        self._ends: Cells = np.zeros(1, dtype=np.int32)
        self._data: Bytes = np.empty(0, dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""
        return int(self._ends[self.rows]) + 4 * self.rows + self.rows // 8

    def _convert(self, tile: CellTile) -> list[Rescued]:
        return self._gather(tile)

    def _gather(self, tile: CellTile) -> list[Rescued]:
        rescued: list[Rescued] = []
        row = 0
        while True:
            row = place_column(*tile.arguments, self.program, self.rows, row, _NO_MISSES)
            if row == tile.size:
                return rescued
            # The kernel has stopped at a row: there is no room, or the value is in another form.
            size = tile.sent_length(row)
            needed = (size if size >= 0 else BINARY - size) + SLACK
            used = int(self._ends[self.rows + row])
            if used + needed > self._data.size:
                self._make_room(used, needed)
            else:
                misfit = self._append_exactly(tile, row)
                if misfit is not None:
                    rescued.append(misfit)
                row += 1

    def _append_exactly(self, tile: CellTile, row: int) -> Rescued | None:
        """Append one value that the kernels did not read; return it if the type cannot hold it."""
        column_row = self.rows + row
        used = int(self._ends[column_row])
        try:
            value: bytes = tile.read(row, self._reader)
        except (DoesNotFit, NotRendered):
            self._ends[column_row + 1] = used  # NULL
            self._valid[column_row] = 0
            return tile.rescued(row)
        if used + len(value) > self._data.size:
            self._make_room(used, len(value))
        self._data[used : used + len(value)] = np.frombuffer(value, dtype=np.uint8)
        self._ends[column_row + 1] = used + len(value)
        self._valid[column_row] = 1
        return None

    def make_room(self, needed: int, walked_share: float) -> None:
        """Make room for more bytes, and for those that follow.

        Args:
            needed: how many bytes are needed at least.
            walked_share: the share of the input that was walked; the rest is assumed to need bytes at the same rate.
        """
        self._make_room(int(self._ends[self.rows]), needed, walked_share)

    def _make_room(self, used: int, needed: int, walked_share: float = 1) -> None:
        if used + needed > MAX_DATA_BYTES:
            raise NotSupported("one column of one batch holds more than 2 GiB")
        estimate = min(round(used / walked_share), MOST_GROWTH * self._data.size)
        size = min(MAX_DATA_BYTES, max(_MIN_DATA, used + needed, 2 * self._data.size, estimate))
        self._set_data(resized(self._data, size, used))

    def _set_data(self, data: Bytes) -> None:
        self._data = data
        self.program[[programs.DATA, programs.CAPACITY]] = data.ctypes.data, data.size

    def _grow(self, capacity: int) -> None:
        ends = _larger_ends(self._ends, capacity, self.rows)
        self._set_data(resized(self._data, self._data.size, int(ends[self.rows])))
        self._ends = ends
        self.program[programs.VALUES] = ends.ctypes.data

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        data = pa.py_buffer(self._data[: self._ends[rows]])
        ends = pa.py_buffer(self._ends[: rows + 1])
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, ends, data])


class TextBuilder(VariableBuilder):
    """Text: the kernels gather it, and then all gathered text is checked at once."""

    def _convert(self, tile: CellTile) -> list[Rescued]:
        rescued = super()._convert(tile)
        fault = self._fault(tile)
        if fault is not None:
            raise fault
        return rescued

    def finish_placed(self, tile: CellTile, missed: Cells, flags: int) -> list[Rescued]:
        """Refuse values that are no text."""
        fault = self._fault_by(tile, flags) if flags else None
        if fault is not None:
            raise fault
        return []

    def _fault(self, tile: CellTile) -> ValueFormatError | None:
        """Check the text that the kernels have gathered; return the error for the first fault."""
        start, end = self.rows, self.rows + tile.size
        flags = kernels_text.text_flags(self._data, int(self._ends[start]), int(self._ends[end]))
        return self._fault_by(tile, flags)

    def _fault_by(self, tile: CellTile, flags: int) -> ValueFormatError | None:
        start, end = self.rows, self.rows + tile.size
        if flags & kernels_text.HAS_NUL:
            # The first byte that is 0 is the least one.
            nul = int(self._ends[start]) + int(np.argmin(self._data[self._ends[start] : self._ends[end]]))
            row = int(np.searchsorted(self._ends[start : end + 1], nul, side="right")) - 1
            return ValueFormatError(HAS_NUL, offset=tile.place(row))
        if flags & kernels_text.HAS_HIGH and not kernels_text.are_utf8(self._data, self._ends, start, end):
            # Up to the first row that is not UTF-8, all are.
            row = bisect_left(
                range(end),
                True,
                lo=start,
                key=lambda row: not kernels_text.are_utf8(self._data, self._ends, start, row + 1),
            )
            return ValueFormatError(NOT_UTF8, offset=tile.place(row - start), remedy=NOT_UTF8_REMEDY)
        return None


class CanonicalBuilder(TextBuilder):
    """Text that depends on the sender's settings: the column has each value's canonical text."""

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        return canonical_texts(super()._arrow(rows, validity), self.column_type.oid)


def canonical_texts(texts: pa.Array, type_oid: int) -> pa.Array:
    """Write the texts of a type as PostgreSQL does under the settings of docs/capturing.md.

    Args:
        texts: strings; NULL stays NULL.
        type_oid: of the type that they are sent in.
    """
    canonical = canonical_of(type_oid)
    _, ends, data = texts.buffers()
    if canonical is None or not ends:
        return texts
    text_ends = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    rows = np.empty(len(texts), np.int32)
    count = kernels_text.not_canonical(np.frombuffer(data or b"", np.uint8), text_ends, canonical.look, rows)
    unsure_rows = rows[:count]
    if not unsure_rows.size:
        return texts
    sent = texts.take(pa.array(unsure_rows)).dictionary_encode()  # each distinct text is written once
    written = pa.array(map(canonical.write, sent.dictionary.to_pylist()), pa.string())
    if written.equals(sent.dictionary):
        return texts
    is_unsure = np.zeros(len(texts), np.bool_)
    is_unsure[unsure_rows] = True
    return pc.replace_with_mask(texts, pa.array(is_unsure), written.take(sent.indices))


_TEXT_CONTROLS: Final = np.frombuffer(b"\t\n\r", np.uint8)  # The control characters that text may have


class LabelBuilder(TextBuilder):
    """A user-defined type: if all bytes are text (as an enum's labels), they are kept; otherwise each value is read."""

    def __init__(self, column_type: ColumnType, names: Names, placing: Placing) -> None:
        super().__init__(column_type, names, placing)
        self.program[programs.LOW] = NO_FORM  # the walk does not look for control characters

    def _convert(self, tile: CellTile) -> list[Rescued]:
        # Usually everything is text, and checking all of it at once is faster than checking each value.
        self.program[programs.LOW] = AS_SENT
        rescued = self._gather(tile)
        self.program[programs.LOW] = NO_FORM
        start, end = (int(self._ends[row]) for row in (self.rows, self.rows + tile.size))
        data = self._data[start:end]
        controls = data[(data < ord(" ")) | (data == 0x7F)]
        has_control = controls.size > 0 and not np.isin(controls, _TEXT_CONTROLS).all()
        fault = self._fault(tile)
        if (has_control or fault is not None) and tile.has_binary():
            # The rows are written again: `rows` has not moved.
            tile, rescued = tile.as_text()
            self._gather(tile)
            fault = self._fault(tile)
        if fault is not None:
            raise fault
        return rescued


_FORMS: Final = {
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "json", "pg_node_tree", "refcursor"), AS_SENT),
    **dict.fromkeys(("jsonb", "jsonpath"), kernels_binary.VERSIONED),
    "xml": kernels_binary.XML,
    "char": kernels_binary.ONE_BYTE,
    "uuid": kernels_binary.UUID,
    "numeric": kernels_binary.NUMERIC,
}
"""The kernel's form for the binary format of built-in types; values of other types are converted one by one."""

_EXTENSIONS: Final = frozenset({*EXTENSION_TYPES, *EXTENSION_TEXTS})


def string(column_type: ColumnType, names: Names) -> ColumnBuilder:
    """Return the builder for all types that stay text."""
    builtin = BUILTIN_TYPES.get(column_type.oid)
    builder: type[TextBuilder] = TextBuilder if canonical_of(column_type.oid) is None else CanonicalBuilder
    form = NO_FORM
    if builtin is not None:
        form = _FORMS.get(builtin.name, NO_FORM)
    elif (name := names.get(column_type.oid)) is not None and (name[1] == "citext" or name[1] not in _EXTENSIONS):
        # If nothing has announced the type, nothing is known of its bytes, not even that they may be text.
        builder, form = LabelBuilder, AS_SENT
    return builder(column_type, names, Placing(programs.TEXT, form))


def bytea(column_type: ColumnType, names: Names) -> ColumnBuilder:
    """Return the builder for bytea."""
    return VariableBuilder(column_type, names, Placing(programs.BYTES, AS_SENT), bytes_from_text)


def plain_texts() -> VariableBuilder:
    """Return a builder that gathers text without checking it."""
    text = ColumnType(pa.string(), families.STRING, "text")
    return VariableBuilder(text, {}, Placing(programs.TEXT, NO_FORM))


class ListBuilder(ColumnBuilder):
    """Arrays of one dimension.  Their elements have a builder of their own, to which they are one tile.

    Args:
        elements: the elements' builder.
    """

    def __init__(self, column_type: ColumnType, names: Names, elements: ColumnBuilder) -> None:
        super().__init__(column_type, names)
        self._elements = elements
        self._ends: Cells = np.zeros(1, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""
        return self._elements.nbytes + 4 * self.rows + self.rows // 8

    def truncate(self, rows: int) -> None:
        """Remove all rows after the first `rows`."""
        self._elements.truncate(int(self._ends[rows]))
        super().truncate(rows)

    def _convert(self, tile: CellTile) -> list[Rescued]:
        rescued = self._convert_elements(tile)
        if not rescued:
            return []
        # Arrays with an element that does not fit must leave no elements, so all are converted again without them.
        rest = tile.first.copy()
        for misfit in rescued:
            rest[misfit.row] = NULL
        self._convert_elements(tile.of_rows(rest))
        return rescued

    def _convert_elements(self, tile: CellTile) -> list[Rescued]:
        start = self.rows
        first_element = int(self._ends[start])
        self._elements.truncate(first_element)
        parts = _ArrayParts(tile, self.column_type.delimiter, self._elements.column_type.oid)
        rescued = [self._misfit(tile, row) for row in parts.misses.tolist()]
        try:
            misfits = self._elements.add_rows(
                parts.text, parts.offset, parts.length, np.arange(parts.elements, dtype=np.int32), 0
            )
        except ValueFormatError as error:
            element = int(np.searchsorted(parts.offset, error.offset or 0))  # each begins at an offset of its own
            row = parts.row_of(element)
            raise ValueFormatError(
                f"in an array, {error.problem}", offset=tile.place(row), remedy=error.remedy
            ) from None
        misfit_rows = {misfit.row for misfit in rescued}
        for row in sorted({parts.row_of(misfit.row) for misfit in misfits or ()} - misfit_rows):
            rescued.append(tile.rescued(row))
        stop = start + tile.size
        np.add(parts.counts, first_element, out=self._ends[start + 1 : stop + 1])
        self._valid[start:stop] = parts.valid
        return sorted(rescued, key=lambda misfit: misfit.row)

    def _misfit(self, tile: CellTile, row: int) -> Rescued:
        try:
            tile.read(row, partial(elements_from_text, delimiter=self.column_type.delimiter))
        except (DoesNotFit, NotRendered):
            return tile.rescued(row)
        raise ValueFormatError("an array is not in PostgreSQL's form", offset=tile.place(row))

    def _grow(self, capacity: int) -> None:
        self._ends = _larger_ends(self._ends, capacity, self.rows)

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        ends = pa.py_buffer(self._ends[: rows + 1])
        children = [self._elements.finish()]
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, ends], children=children)


class OverriddenListBuilder(ListBuilder):
    """Text that an override reads as an array; other texts are rescued."""

    def _misfit(self, tile: CellTile, row: int) -> Rescued:
        return tile.rescued(row)


class _ArrayParts:
    """The elements of a tile's arrays, as a tile of their own."""

    def __init__(self, tile: CellTile, delimiter: str, element_oid: int) -> None:
        total = kernels_text.total_length(tile.length, tile.first, tile.column)
        bound = total // 2 + tile.size  # an element has a byte and a comma or brace, or a length of 4 bytes
        self.text = np.empty(total + 32, dtype=np.uint8)
        self.offset = np.empty(bound, dtype=np.int32)
        self.length = np.empty(bound, dtype=np.int32)
        self.counts = np.empty(tile.size, dtype=np.int32)
        self.valid = np.empty(tile.size, dtype=np.uint8)
        misses = np.empty(tile.size + 1, dtype=np.int32)
        outputs = self.text, self.offset, self.length, self.counts, self.valid, misses
        self.elements = kernels_text.array_elements(*tile.arguments, ord(delimiter), element_oid, *outputs)
        self.offset = self.offset[: self.elements]
        self.length = self.length[: self.elements]
        self.misses = misses[1 : misses[0] + 1]

    def row_of(self, element: int) -> int:
        """Return the row that an element belongs to."""
        return int(np.searchsorted(self.counts, element, side="right"))


class VectorBuilder(ColumnBuilder):
    """pgvector's vector and halfvec; pyarrow rounds each element directly from its text."""

    def __init__(self, column_type: ColumnType, names: Names) -> None:
        super().__init__(column_type, names, reads_binary=False)
        self._texts = plain_texts()
        self._ends: Cells = np.zeros(1, dtype=np.int32)
        self._values: NDArray[np.float32] = np.empty(0, dtype=np.float32)

    @property
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""
        return 4 * int(self._ends[self.rows]) + 4 * self.rows + self.rows // 8

    def _convert(self, tile: CellTile) -> list[Rescued]:
        self._texts.truncate(0)
        self._texts.add_rows(*tile.arguments)
        texts = self._texts._arrow(tile.size, None)
        valid = self._texts._valid[: tile.size].astype(np.bool_)
        readable = valid & pc.match_substring_regex(texts, VECTOR_FORM).to_numpy(zero_copy_only=False)
        filled = readable & (pc.binary_length(texts).to_numpy() > len("[]"))
        counts = np.zeros(tile.size, dtype=np.int64)
        lists = pc.split_pattern(pc.ascii_trim(texts.filter(pa.array(filled)), "[]"), ",")
        counts[filled] = lists.value_lengths().to_numpy()
        numbers = pc.cast(lists.flatten(), pa.float32()).to_numpy()
        finite = np.isfinite(numbers)  # else beyond real's largest number
        if not finite.all():
            row_of = np.repeat(np.arange(tile.size), counts)
            beyond = np.unique(row_of[~finite])
            numbers = numbers[~np.isin(row_of, beyond)]
            counts[beyond] = 0
            readable[beyond] = False
        self._append(counts, numbers)
        self._valid[self.rows : self.rows + tile.size] = readable
        return [tile.rescued(row) for row in np.flatnonzero(valid & ~readable).tolist()]

    def _append(self, counts: NDArray[np.int64], numbers: NDArray[np.float32]) -> None:
        used = int(self._ends[self.rows])
        total = used + numbers.size
        if total > MAX_DATA_BYTES // 4:  # 4 bytes an element
            raise NotSupported("one column of one batch holds more than 2 GiB")
        if total > self._values.size:
            self._values = resized(self._values, max(MIN_ROWS, total, 2 * self._values.size), used)
        self._values[used:total] = numbers
        self._ends[self.rows + 1 : self.rows + 1 + counts.size] = used + np.cumsum(counts)

    def _grow(self, capacity: int) -> None:
        ends = _larger_ends(self._ends, capacity, self.rows)
        self._values = resized(self._values, self._values.size, int(ends[self.rows]))
        self._ends = ends

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        size = int(self._ends[rows])
        values = pa.Array.from_buffers(pa.float32(), size, [None, pa.py_buffer(self._values[:size])])
        ends = pa.py_buffer(self._ends[: rows + 1])
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, ends], children=[values])

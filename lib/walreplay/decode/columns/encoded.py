"""Columns of bytea that `binary_handling_mode` turns into strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from walreplay.decode.columns.base import Call, ColumnBuilder
from walreplay.decode.columns.cells import MAX_DATA_BYTES
from walreplay.decode.columns.variable import VariableBuilder
from walreplay.decode.kernels import binary_texts as kernels_texts
from walreplay.decode.kernels import encode as kernels_encode
from walreplay.decode.kernels import text as kernels_text
from walreplay.errors import NotSupported
from walreplay.types.binary import bytes_from_text

if TYPE_CHECKING:
    from walreplay.decode.columns.cells import Bytes, Names
    from walreplay.decode.compile.kernel import Kernel
    from walreplay.types.base import ColumnType


class EncodedBuilder(VariableBuilder):
    """bytea, which is gathered as bytes and encoded as text when the column is finished."""

    def __init__(self, column_type: ColumnType, names: Names, *, encode: Kernel, alphabet: Bytes, **rest: Any) -> None:
        super().__init__(column_type, names, **rest)
        self._encode = encode
        self._alphabet = alphabet

    @property
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""
        return super().nbytes + int(self._ends[self.rows])  # hexadecimal doubles it; base64 takes less

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        sizes = np.diff(self._ends[: rows + 1]).astype(np.int64)
        sizes = 2 * sizes if self._encode is kernels_encode.hex_texts else (sizes + 2) // 3 * 4
        ends = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum(sizes, out=ends[1:])
        if ends[-1] > MAX_DATA_BYTES:
            raise NotSupported("one column of one batch holds more than 2 GiB")
        text = np.empty(int(ends[-1]), dtype=np.uint8)
        text_ends = ends.astype(np.int32)
        self._encode(self._data, self._ends, text_ends, rows, self._alphabet, text)
        buffers = [validity, pa.py_buffer(text_ends), pa.py_buffer(text)]
        return pa.Array.from_buffers(self.column_type.arrow, rows, buffers)


def encoded_bytea(column_type: ColumnType, names: Names, *, text: Kernel, alphabet: Bytes) -> ColumnBuilder:
    """Give the builder for bytea as strings in one of the encodings."""
    return EncodedBuilder(
        column_type,
        names,
        encode=text,
        alphabet=alphabet,
        text=Call(kernels_text.hex_bytes),
        binary=Call(kernels_texts.texts, (kernels_texts.BYTEA,)),
        reader=bytes_from_text,
    )

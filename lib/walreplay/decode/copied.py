"""The rows of a COPY, or of what is like one, gathered for the next batch: each is an insert, as of one LSN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from walreplay.decode.change_batch import METADATA_NAMES, TIMESTAMP, ChangeBatch, field_names
from walreplay.decode.gathered import BATCH_BYTES, BATCH_ROWS, TupleColumns
from walreplay.errors import ValueFormatError
from walreplay.protocol.messages import Relation
from walreplay.types.base import ColumnType

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Cells(NamedTuple):
    """Rows that were taken apart.

    Attributes:
        buf: the bytes that the cells lie in.
        offset, length: int32, row by row; lengths as in a tile: -1 for NULL, -3 and below for binary format.
        rows: how many there are.
        base: where ``buf`` begins in the file.
    """

    buf: NDArray[np.uint8]
    offset: NDArray[np.int32]
    length: NDArray[np.int32]
    rows: int
    base: int


class CopiedRows:
    """Gathers the rows of one relation version.

    Args:
        types: of the relation's columns.
        names: of types by oid, from Type messages.
        codec: what text is in; from `walreplay.types.text.codec_of`.
        order: which of the cells' columns each of the relation's is; None if they are the same, and no more.
        lsn: the commit LSN that all rows get.
    """

    def __init__(
        self,
        relation: Relation,
        types: Sequence[ColumnType],
        names: Mapping[int, tuple[str, str]],
        codec: str,
        order: Sequence[int] | None,
        lsn: int,
    ) -> None:
        self.relation = relation
        self._columns = TupleColumns(relation, types, names, codec)
        self._order = None if order is None else np.array(order, np.int64)
        self._lsn = lsn

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._columns.rows

    @property
    def full(self) -> bool:
        """Whether they are enough for a batch."""
        return self.rows >= BATCH_ROWS or self._columns.nbytes >= BATCH_BYTES

    def take(self, cells: Cells) -> None:
        """Append rows.

        Raises:
            ValueFormatError: a value is not in its type's form; its offset is the cell's in the file.
        """
        offset, length, count = cells.offset, cells.length, len(self.relation.columns)
        if self._order is not None:
            width = len(offset) // cells.rows if cells.rows else 0
            offset = np.ascontiguousarray(offset.reshape(-1, width)[:, self._order]).reshape(-1)
            length = np.ascontiguousarray(length.reshape(-1, width)[:, self._order]).reshape(-1)
        first = np.arange(cells.rows, dtype=np.int32) * np.int32(count)
        try:
            self._columns.append(cells.buf, offset, length, first)
        except ValueFormatError as error:
            if error.offset is not None:
                error.offset += cells.base
            raise

    def finish(self) -> ChangeBatch:
        """Give the batch, and begin anew.  When the rows were committed is not known: their commit time is NULL."""
        rows = self.rows
        return inserts_of(self.relation, *self._columns.finish(), rows, self._lsn)


def inserts_of(
    relation: Relation, columns: Sequence[pa.Array], rescued: pa.Array | None, rows: int, lsn: int
) -> ChangeBatch:
    """Give rows as inserts of a relation version, as of an LSN."""
    metadata = [
        pa.repeat("c", rows),
        pa.array(np.full(rows, lsn, np.int64)),
        pa.nulls(rows, TIMESTAMP),
        pa.array(np.zeros(rows, np.int64)),
        pa.array(np.zeros(rows, np.int64)),
    ]
    data = pa.RecordBatch.from_arrays([*metadata, *columns], names=[*METADATA_NAMES, *field_names(relation)])
    return ChangeBatch(relation, data, rescued=rescued)


__all__ = ["Cells", "CopiedRows", "inserts_of"]

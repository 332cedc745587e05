"""Which labels of enums a run's columns have: those of the run's end, in rows of all versions.

Entry points: `labelled` gives a column's type with them, and how its values are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from walreplay.decode.announcements import Layouts
from walreplay.protocol.messages import Column
from walreplay.sink.labels import as_sent, with_labels
from walreplay.sink.masking import masked_type
from walreplay.sink.projection import hashed
from walreplay.types.base import ColumnType, Label


def labelled(
    column: Column, kind: ColumnType, layouts: Layouts, salt: bytes | None
) -> tuple[ColumnType, ColumnType | None]:
    """Give the type that a column has in the mirror, and how its values are sent, if that may be otherwise.

    Args:
        column: of a relation version, with the labels as they were announced where it stands.
        kind: its type in the source.
        layouts: what is announced by the run's end.
        salt: of masks; None where the column is not masked.
    """
    enum = layouts.enum_of(column.type_oid)
    shown = kind if salt is None else masked_type(kind)
    if enum is None:
        return shown, None
    in_array = column.type_oid == enum.array
    typed = with_labels(kind, enum.renamed, in_array=in_array)
    if typed is kind or (salt is not None and in_array):
        # A hash of a whole array does not tell its elements.
        return shown, None
    if salt is None:
        return typed, as_sent(typed, column.labels)
    typed = with_labels(shown, _hashed(enum.renamed, kind, salt), in_array=False)
    return typed, as_sent(typed, _hashed(column.labels, kind, salt))


def _hashed(labels: Sequence[Label], kind: ColumnType, salt: bytes) -> tuple[Label, ...]:
    return tuple((oid, tuple(hashed(text, kind, salt) for text in texts)) for oid, texts in labels)


__all__ = ["labelled"]

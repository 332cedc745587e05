"""Compare columns by value: texts that depend on the sender's settings get one form for each value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from walreplay.sink.identity import contiguous
from walreplay.sink.rendering import lengths_of, offsets_of
from walreplay.types.by_value import STRUCTURED, Form, one_form


def by_value(column: Any, form: Form | None) -> pa.Array:
    """Give a column's texts, or those in its lists, in one form per value; other columns are returned unchanged."""
    array = contiguous(column)
    if form is None or array.null_count == len(array):
        return array
    if pa.types.is_list(array.type):
        return _lists(array, form)
    if form is Form.SHAPE and not pc.any(pc.match_substring_regex(array, STRUCTURED)).as_py():
        return array
    encoded = array.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    forms = [one_form(text, form) for text in texts]
    if forms == texts:
        return array
    return pa.array(forms, array.type).take(encoded.indices)


def _lists(array: pa.Array, form: Form) -> pa.Array:
    texts = array.flatten()
    if not pa.types.is_string(texts.type):
        return array
    lists = pa.ListArray.from_arrays(offsets_of(lengths_of(array)), by_value(texts, form))
    return lists if array.null_count == 0 else pc.if_else(array.is_valid(), lists, pa.scalar(None, lists.type))


def has_form(column: Any, form: Form) -> bool:
    """Say whether a column has a text whose value could also be written as another text."""
    array = contiguous(column)
    if form is not Form.SHAPE or pa.types.is_list(array.type):
        return bool(array.null_count < len(array))
    return bool(pc.any(pc.match_substring_regex(array, STRUCTURED)).as_py())


__all__ = ["by_value", "has_form"]

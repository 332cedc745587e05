"""Masked columns: each value becomes a salted hash, as with Debezium's ``column.mask.hash.v2`` and SHA-256.

A hash is SHA-256 over the salt and the value's text, both UTF-8, in 64 hexadecimal digits; NULL stays NULL.  The text
is PostgreSQL's, made from the typed value: what is sent in text and in binary has one hash, and so has a time stamp
whatever the sender's TimeZone (it is written in UTC).  A value that its column's type could not hold is hashed from its
rescued text, which then is rescued no more: it would stand there for all to read.

Equal values have equal hashes, so that masked keys still tell rows apart and masked columns still join.  It also means
that whoever knows the salt can try values out; with few possible values that is quickly done.

It costs a Python call for each distinct value of a batch (some hundred thousand a second and core), and for all of
those types whose text Arrow does not write as PostgreSQL does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wal2delta.decode.batches import METADATA_COLUMNS, ChangeBatch
from wal2delta.types.base import ColumnType, Family

_QUOTED: Final = re.compile(r'[{}",\\ \t\n\v\f\r]|\A\Z|\Anull\Z', re.IGNORECASE)
"""What PostgreSQL writes in quotes inside an array."""

_MASKED: Final = "masked "
"""No type's name begins so."""

_FIXED_DIGITS: Final = {32: 6, 64: 15}
"""PostgreSQL writes an exponent for floating-point numbers from 10 to this power on (FLT_DIG, DBL_DIG)."""


def masked_type(type_: ColumnType) -> ColumnType:
    """Give the type that a masked column has in the mirror table."""
    return ColumnType(pa.string(), Family.STRING, f"{_MASKED}{type_.postgres_name}")


def is_masked(type_: ColumnType) -> bool:
    """Say whether a type is a masked column's."""
    return type_.postgres_name.startswith(_MASKED)


def mask(array: pa.Array, rescued: pa.Array | None, salt: bytes) -> pa.Array:
    """Hash a column's values.

    Args:
        array: a column of any type that `wal2delta.types` gives.
        rescued: PostgreSQL's text of those values that the column cannot hold (and that are NULL in it), or None.

    Returns:
        strings, NULL where there is no value.
    """
    text = canonical_text(array)
    if rescued is not None and rescued.null_count < len(rescued):
        text = pc.coalesce(text, rescued)
    if len(text) == text.null_count:
        return pa.nulls(len(text), pa.string())
    distinct = text.dictionary_encode()
    values = distinct.dictionary.cast(pa.binary()).to_pylist()
    hashes = [hashlib.sha256(salt + value).hexdigest() for value in values]
    return pa.array(hashes, pa.string()).take(distinct.indices)


def mask_batch(batch: ChangeBatch, masked: Collection[int], salt: bytes) -> ChangeBatch:
    """Mask columns of decoded changes, old tuples and rescued values among them.

    Args:
        masked: the columns' numbers in the relation, `wal2delta.selection.Selection.masked`.
    """
    if not masked:
        return batch
    names = [column.name for column in batch.relation.columns]
    data, rescued = _mask_columns(batch.data, METADATA_COLUMNS, names, masked, batch.rescued, salt)
    before, before_rescued = batch.before, batch.before_rescued
    if before is not None:
        before, before_rescued = _mask_columns(before, 1, names, masked, before_rescued, salt)
    return replace(batch, data=data, rescued=rescued, before=before, before_rescued=before_rescued)


def _mask_columns(
    rows: pa.RecordBatch,
    first: int,
    names: Sequence[str],
    masked: Collection[int],
    rescued: pa.Array | None,
    salt: bytes,
) -> tuple[pa.RecordBatch, pa.Array | None]:
    columns, fields = list(rows.columns), list(rows.schema)
    texts, rescued = _take_rescued(rescued, [names[number] for number in masked])
    for number in masked:
        at = first + number
        columns[at] = mask(columns[at], texts.get(names[number]), salt)
        fields[at] = pa.field(fields[at].name, pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), rescued


def _take_rescued(rescued: pa.Array | None, names: Sequence[str]) -> tuple[dict[str, pa.Array], pa.Array | None]:
    """Take some columns' texts out of the rescued values; give them, and what is left."""
    if rescued is None:
        return {}, None
    texts: dict[str, list[str | None]] = {}
    left: list[str | None] = rescued.to_pylist()
    for row, value in enumerate(left):
        if value is None:
            continue
        values = json.loads(value)
        for name in names:
            if name in values:
                texts.setdefault(name, [None] * len(left))[row] = values.pop(name)
        left[row] = json.dumps(values, ensure_ascii=False) if values else None
    kept = pa.array(left, pa.string())
    found = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    return found, None if kept.null_count == len(kept) else kept


def canonical_text(array: pa.Array) -> pa.Array:
    """Write a column's values as PostgreSQL does, with its default settings and TimeZone UTC.

    Returns:
        strings, NULL where there is no value.
    """
    kind = array.type
    if pa.types.is_string(kind):
        return array
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return array.cast(pa.string())
    if pa.types.is_boolean(kind):
        return pc.if_else(array, "t", "f")
    if pa.types.is_timestamp(kind):
        # As text Arrow has always six digits behind the second, PostgreSQL those that it needs.
        plain = pc.replace_substring_regex(array.cast(pa.timestamp("us")).cast(pa.string()), r"\.?0+$", "")
        return plain if kind.tz is None else pc.binary_join_element_wise(plain, "+00", "")
    if pa.types.is_list(kind):
        return pa.array(_list_texts(array), pa.string())
    return pa.array(_each(_writer(kind), array), pa.string())


def _each(write: Callable[[Any], str], array: pa.Array) -> list[str | None]:
    return [None if value is None else write(value) for value in array.to_pylist()]


def _writer(kind: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_binary(kind):
        return lambda value: "\\x" + value.hex()
    if pa.types.is_decimal(kind):
        return lambda value: format(value, "f")
    if pa.types.is_float32(kind):
        return lambda value: _float_text(np.float32(value), 32)
    if pa.types.is_float64(kind):
        return lambda value: _float_text(np.float64(value), 64)
    raise TypeError(f"no column has the type {kind}")


def _float_text(value: np.floating[Any], bits: int) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = str(np.format_float_scientific(value, unique=True, trim="-", exp_digits=2))
    exponent = int(text.partition("e")[2])
    if -4 <= exponent < _FIXED_DIGITS[bits]:
        return str(np.format_float_positional(value, unique=True, trim="-"))
    return text


def _list_texts(array: pa.Array) -> list[str | None]:
    elements = iter(canonical_text(array.flatten()).to_pylist())
    lengths = pc.list_value_length(array).to_pylist()
    return [
        None if length is None else "{" + ",".join(_element(text) for text in islice(elements, length)) + "}"
        for length in lengths
    ]


def _element(text: str | None) -> str:
    if text is None:
        return "NULL"
    if _QUOTED.search(text) is None:
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'

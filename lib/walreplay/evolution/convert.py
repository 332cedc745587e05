"""Convert a column's values when the source changes its type, or renames an enum's labels.

The source's own cast is unknown (ALTER TYPE … USING can be anything), and its result is not sent.  So a value is
converted through PostgreSQL's text.  If the new type would not hold the same value, without rounding, the column is
NULL and the text is rescued.  A number's text becomes a float only if the float is that number, or is written as it;
PostgreSQL would round.  Staged changes of earlier relation versions and the rows of a rewritten table are
converted in the same way, so it makes no difference where a run ends.

Renamed enum labels come first.  ``ALTER TYPE … RENAME VALUE`` changes no row, and replication sends nothing of it, but
all rows show the new label from then on.  Announcements report it (`walreplay.decode.announcements`): a column's type
has the renamed labels, each with all the texts that it has had.  So the types of two moments say which text has become
which.  Transactions that are open while a label is renamed still send the old text behind the announcement, and so do
servers whose caches are stale.  So a text that is no label any more means the label that it was (`ColumnType.as_sent`).
A text that is another value's label by now means that other value.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.columns import NULL, canonical_texts, make_builder
from walreplay.errors import ValueFormatError
from walreplay.types import families
from walreplay.types.base import ColumnType, DoesNotFit, Label, Meaning
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.canonical import canonical_of
from walreplay.types.composite import elements_from_text, with_elements
from walreplay.types.families import (
    CHARACTER,
    INET,
    element_of,
    filled,
    lengths_of,
    offsets_of,
    output_of,
    read_overridden,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


_DELIMITER: Final = ","


def with_labels(column_type: ColumnType, labels: tuple[Label, ...], *, in_array: bool) -> ColumnType:
    """Return a type with its renamed labels, if its values are the labels' texts."""
    if not labels or column_type.family is not families.STRING or column_type.overridden:
        return column_type
    return replace(column_type, labels=labels, labels_in_array=in_array)


def labels_as_sent(column_type: ColumnType, labels: tuple[Label, ...]) -> ColumnType | None:
    """Return the type of values as they are sent at a place of the stream; None if it makes no difference.

    Args:
        column_type: as of the run's end.
        labels: as they were announced at that place.
    """
    sent = replace(column_type, labels=labels, as_sent=True)
    return sent if renamed_labels(sent, column_type) else None


def renamed_labels(old: ColumnType, new: ColumnType) -> dict[str, str]:
    """Return the new text by the old one, for the labels whose texts differ.

    Types with other oids are other enums; what `USING` has made of their values is not known.
    """
    if not new.labels or old.oid != new.oid or (old.labels == new.labels and not old.as_sent):
        return {}
    now = {oid: texts[-1] for oid, texts in new.labels}
    found = {texts[-1]: now.get(oid, texts[-1]) for oid, texts in old.labels}
    if old.as_sent:
        for was, oids in _former(old.labels).items():
            if len(oids) == 1 and oids[0] in now:
                found.setdefault(was, now[oids[0]])
    known = dict(old.labels)
    for oid, texts in new.labels:
        if len(known.get(oid, texts[:1])) == 1:
            # What was not renamed by then had its first text.  Of two with one text the first had it first.  Labels of
            # a description have one text, too; its rows have another one if it was made later.
            found.setdefault(texts[0], texts[-1])
    return {was: now for was, now in found.items() if was != now}


def _former(labels: tuple[Label, ...]) -> dict[str, list[int]]:
    """Return the texts that are labels no more, with those that had them."""
    present = {texts[-1] for _, texts in labels}
    former: dict[str, list[int]] = {}
    for oid, texts in labels:
        for text in dict.fromkeys(texts[:-1]):
            if text not in present:
                former.setdefault(text, []).append(oid)
    return former


def relabelled(values: pa.Array, labels: Mapping[str, str], *, in_array: bool) -> pa.Array:
    """Return strings with new labels, all at once, so that two may swap their texts.

    Args:
        in_array: the strings are arrays' texts, whose elements are the labels.
    """
    encoded = values.dictionary_encode()

    def now(text: str) -> str:
        return labels.get(text, text)

    texts = [with_elements(text, _DELIMITER, now) if in_array else now(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, values.type).take(encoded.indices)


_MEANINGS: Final = {
    **{builtin.sql_name: Meaning.OTHER for builtin in BUILTIN_TYPES.values()},
    **dict.fromkeys(("text", "character varying", CHARACTER, "name"), Meaning.TEXT),
    **dict.fromkeys(("json", "jsonb"), Meaning.JSON),
    **dict.fromkeys(("time without time zone", "time with time zone"), Meaning.CLOCK),
}

_NUMBERS: Final = (Meaning.INTEGER, Meaning.FLOAT, Meaning.NUMERIC)
_STRINGS: Final = (Meaning.TEXT, Meaning.JSON, Meaning.CLOCK, Meaning.CUSTOM, Meaning.OTHER)

_SAME_TEXT: Final = frozenset(
    {(old, new) for old in (*_NUMBERS, Meaning.JSON, Meaning.CUSTOM) for new in _NUMBERS}
    | {(old, Meaning.BOOLEAN) for old in (Meaning.BOOLEAN, Meaning.INTEGER, Meaning.JSON, Meaning.CUSTOM)}
    | {(Meaning.BOOLEAN, Meaning.INTEGER)}
    | {(old, new) for old in (Meaning.DATE, Meaning.TIMESTAMP) for new in (Meaning.DATE, Meaning.TIMESTAMP)}
    | {(one, one) for one in (Meaning.TIMESTAMPTZ, Meaning.BINARY, Meaning.LIST)}
    | {(Meaning.CUSTOM, Meaning.LIST)}  # arrays of user-defined types count as user-defined
    | {(old, new) for old in _STRINGS for new in _STRINGS}
)
"""Pairs (old, new) where a text of the old one means the same value in the new one.

All kinds can also become text, and text can become any.  A text would mean something else if a bit string became an
integer (``101``), or a number bytea or money.  If a day or a timestamp gets a time zone, the value depends on the
session.
"""

_DELTA_DIGITS: Final = {pa.int16(): 10, pa.int32(): 10, pa.int64(): 20}
"""Delta widens an integer to a decimal that has so many digits in front of the point, or more."""

_UNREAD: Final = "\\x"
"""The beginning of the text of a binary value that could not be read; the text is not PostgreSQL's."""

_DAY: Final = re.compile(r"([0-9]{4,}-[0-9]{2}-[0-9]{2})( BC)?")
_MIDNIGHT: Final = re.compile(r"([0-9]{4,}-[0-9]{2}-[0-9]{2}) 00:00:00( BC)?")
_DAY_MICROS: Final = 86_400_000_000

Converted = tuple[pa.Array, pa.Array | None]
"""A column, and for each row the text that the column cannot hold or NULL; None if no row has one."""


def convert(values: pa.Array, rescued: pa.Array | None, chain: Sequence[ColumnType]) -> Converted:
    """Convert a column through all the types that it has had.

    Args:
        values: of the type ``chain[0].arrow``.
        rescued: one string a row: the text that the column cannot hold, or NULL; None if no row has one.
        chain: two types or more, the oldest first.  Values go through each change by itself, as in the source.

    Returns:
        The column in the type ``chain[-1].arrow``, and the texts that it cannot hold now, None if there are none.  A
        text that was rescued before becomes a value if the new type can hold it.

    Raises:
        ValueError: the chain has no change.
    """
    if len(chain) < 2:
        raise ValueError("a conversion needs an old and a new type")
    for old, new in pairwise(chain):
        values, rescued = _hop(values, _some(rescued), old, new)
    return values, rescued


def keeps_values(old: ColumnType, new: ColumnType) -> bool:
    """Return whether every value stays as it is and the Delta type stays the same, so that nothing is converted.

    A rescued text may still become a value: see `is_widening`.
    """
    if old.arrow != new.arrow or renamed_labels(old, new):
        return False
    if old.element is not None and new.element is not None:
        return keeps_values(old.element, new.element)
    if old.family is not new.family:
        return _meaning(old) in _NUMBERS and _meaning(new) in _NUMBERS and _is_within(old, new)
    if old.family is not families.STRING:
        return True
    if canonical_of(new.oid) not in (None, canonical_of(old.oid)):
        return False
    if CHARACTER in (old.postgres_name, new.postgres_name):
        modifiers = (old.typmod, old.overridden), (new.typmod, new.overridden)
        return old.postgres_name == new.postgres_name and modifiers[0] == modifiers[1]
    if INET in (old.postgres_name, new.postgres_name) or new.postgres_name == "uuid" or is_numeric(new):
        return old.postgres_name == new.postgres_name or (is_numeric(old) and new.postgres_name == "numeric")
    return _means_the_same(old, new)


def is_widening(old: ColumnType, new: ColumnType) -> bool:
    """Return whether Delta 4.0's type widening changes the column in place, to exactly the values that `convert` gives.

    Type widening leaves rescued texts alone.  But a text that the old type could not hold may be a value of the new one
    (NaN, when numeric(p,s) becomes double precision).  So the caller asks whether the table has any rescued text of the
    column, and rewrites the table if it has.  Lists are always rewritten.
    """
    if old.arrow == new.arrow:
        return False
    before, after = _meaning(old), _meaning(new)
    if before is Meaning.INTEGER and after is Meaning.INTEGER:
        return _is_within(old, new)
    if before is Meaning.INTEGER and pa.types.is_decimal(new.arrow):
        return bool(new.arrow.precision - new.arrow.scale >= _DELTA_DIGITS[old.arrow])
    if before is Meaning.INTEGER:
        return after in _NUMBERS and bool(new.arrow == pa.float64() and old.arrow != pa.int64())
    if pa.types.is_decimal(old.arrow) and pa.types.is_decimal(new.arrow):
        more_scale = new.arrow.scale - old.arrow.scale
        return bool(new.arrow.precision - old.arrow.precision >= more_scale >= 0)
    if before is Meaning.FLOAT and after is Meaning.FLOAT:
        return bool(new.arrow == pa.float64())
    return before is Meaning.DATE and after is Meaning.TIMESTAMP


def _is_within(old: ColumnType, new: ColumnType) -> bool:
    """Return whether the limits of one family of numbers lie within those of another."""
    if old.family.limits is None or new.family.limits is None:
        return old.family.limits is new.family.limits
    return new.family.limits[0] <= old.family.limits[0] and old.family.limits[1] <= new.family.limits[1]


def _hop(values: pa.Array, rescued: pa.Array | None, old: ColumnType, new: ColumnType) -> Converted:
    labels = renamed_labels(old, new)
    if labels:
        return relabelled(values, labels, in_array=new.labels_in_array), rescued
    if keeps_values(old, new) and keeps_values(new, old):
        return values.cast(new.arrow), rescued
    result, left = _convert_values(values, old, new)
    if rescued is None:
        return result, left
    rows = np.flatnonzero(rescued.is_valid().to_numpy(zero_copy_only=False))
    again, still = _convert_rescued(rescued.take(pa.array(rows)), old, new)
    left = pa.nulls(len(values), pa.string()) if left is None else left
    return filled(result, rows, again), _some(filled(left, rows, still))


def _convert_values(values: pa.Array, old: ColumnType, new: ColumnType) -> Converted:
    if keeps_values(old, new):
        return values.cast(new.arrow), None
    if is_widening(old, new):
        return pc.cast(values, new.arrow), None
    if _meaning(old) is Meaning.BOOLEAN and _meaning(new) is Meaning.INTEGER:
        return pc.cast(values, new.arrow), None
    if _meaning(old) is Meaning.LIST and _meaning(new) is Meaning.LIST:
        result = _convert_lists(values, None, element_of(old), new)
    elif _meaning(old) is Meaning.TIMESTAMP and _meaning(new) is Meaning.DATE:
        result = _days(values, new)
    else:
        texts = text_of(values, old)
        result = _read(texts, old, new)
        return result, _left(texts, result)
    if result.null_count == values.null_count:
        return result, None
    return result, _left(text_of(values, old), result)


def _convert_rescued(texts: pa.Array, old: ColumnType, new: ColumnType) -> tuple[pa.Array, pa.Array]:
    """Read, as the new type, the texts that the old type could not hold."""
    written = pa.array([_restated(text, old, new) for text in texts.to_pylist()], pa.string())
    # Texts of values that could not be read stay as they are.
    readable = written
    if _meaning(old) is not Meaning.BINARY:
        readable = pc.if_else(pc.starts_with(written, _UNREAD), None, written)
    if old.family.elements is not None and _meaning(new) is Meaning.LIST:
        result = pa.nulls(len(texts), new.arrow)  # only texts that are no vector were rescued
    elif _meaning(old) is Meaning.LIST and _meaning(new) is Meaning.LIST:
        elements, parsed = _parsed(readable, old)
        nulls = pa.nulls(len(elements.values), element_of(old).arrow)
        lists = pa.ListArray.from_arrays(elements.offsets, nulls, mask=pa.array(~parsed))
        result = _convert_lists(lists, elements.values, element_of(old), new)
    else:
        result = _read(readable, old, new)
    return result, pc.if_else(result.is_null(), written, None)


def _read(texts: pa.Array, old: ColumnType, new: ColumnType) -> pa.Array:
    """Read the texts of one type as another."""
    if not _means_the_same(old, new):
        return pa.nulls(len(texts), new.arrow)
    if _meaning(new) is not Meaning.LIST:
        return read_texts(texts, new)
    elements, _ = _parsed(texts, new)
    if new.element is not None:
        # PostgreSQL reads more forms than it writes (spaces, lower case null).  Only what it writes is certain.
        same = pc.equal(output_of(elements, _array_of(old, new)), texts)
        elements = pc.if_else(same, elements, None)
    return _convert_lists(elements, None, old, new)


def _convert_lists(lists: pa.Array, rescued: pa.Array | None, old: ColumnType, new: ColumnType) -> pa.Array:
    """Convert lists with elements of the type `old`; a list with an element that does not fit does not fit either.

    Args:
        lists: with NULL for an element that the old type could not hold.
        rescued: for each element of all lists, its text if the old type could not hold it, or NULL.
    """
    lengths = lengths_of(lists)
    elements, left = _hop(lists.flatten(), rescued, old, element_of(new))
    gone = np.zeros(len(elements), dtype=np.bool_)
    if left is not None:
        gone |= left.is_valid().to_numpy(zero_copy_only=False)
    if new.family.elements is not None:
        gone |= ~pc.fill_null(pc.is_finite(elements), False).to_numpy(zero_copy_only=False)
    row_of = np.repeat(np.arange(len(lists)), lengths)
    bad = np.bincount(row_of[gone], minlength=len(lists)) > 0
    kept = elements.filter(pa.array(~bad[row_of])) if bad.any() else elements
    null = lists.is_null().to_numpy(zero_copy_only=False) | bad
    offsets = offsets_of(np.where(bad, 0, lengths))
    return pa.ListArray.from_arrays(offsets, kept, type=new.arrow, mask=pa.array(null))


def _parsed(texts: pa.Array, column_type: ColumnType) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Parse the texts of arrays: give lists of strings, NULL if a text is none, and which texts were parsed."""
    lists: list[list[str | None] | None] = []
    for text in texts.to_pylist():
        try:
            lists.append(None if text is None else _elements(text, column_type))
        except (DoesNotFit, ValueFormatError):
            lists.append(None)
    parsed = np.array([elements is not None for elements in lists], dtype=np.bool_)
    return pa.array(lists, pa.list_(pa.string())), parsed


def _elements(text: str, column_type: ColumnType) -> list[str | None]:
    if column_type.element is not None:
        return elements_from_text(text, column_type.delimiter)
    if not text.startswith("[") or not text.endswith("]"):
        raise DoesNotFit
    return list(text[1:-1].split(",")) if text != "[]" else []


def _array_of(element: ColumnType, like: ColumnType) -> ColumnType:
    return ColumnType(pa.list_(pa.string()), families.ARRAY, "text[]", element, like.delimiter)


def _days(values: pa.Array, new: ColumnType) -> pa.Array:
    micros = values.view(pa.int64())
    days = pa.array(np.floor_divide(pc.fill_null(micros, 0).to_numpy(), _DAY_MICROS).astype(np.int32))
    midnight = pc.equal(pc.multiply(days.cast(pa.int64()), _DAY_MICROS), micros)
    return pc.if_else(midnight, days, None).view(new.arrow)


def _restated(text: str, old: ColumnType, new: ColumnType) -> str:
    """Write a date as the timestamp that it becomes, or a timestamp as a date, in any year."""
    if (_meaning(old), _meaning(new)) == (Meaning.DATE, Meaning.TIMESTAMP):
        match = _DAY.fullmatch(text)
        return text if match is None else f"{match[1]} 00:00:00{match[2] or ''}"
    if (_meaning(old), _meaning(new)) == (Meaning.TIMESTAMP, Meaning.DATE):
        match = _MIDNIGHT.fullmatch(text)
        return text if match is None else f"{match[1]}{match[2] or ''}"
    return text


def _means_the_same(old: ColumnType, new: ColumnType) -> bool:
    before, after = _meaning(old), _meaning(new)
    if before is Meaning.CLOCK and after is Meaning.CLOCK:
        return old.postgres_name == new.postgres_name
    return before is Meaning.TEXT or after is Meaning.TEXT or (before, after) in _SAME_TEXT


def _meaning(column_type: ColumnType) -> Meaning:
    if column_type.family.meaning is not None:
        return column_type.family.meaning
    if is_numeric(column_type):
        return Meaning.NUMERIC
    name = column_type.postgres_name
    if name == "citext" or name.endswith(".citext"):
        return Meaning.TEXT
    return _MEANINGS.get(name, Meaning.CUSTOM)


def _left(texts: pa.Array, result: pa.Array) -> pa.Array | None:
    return _some(pc.if_else(result.is_null(), texts, None))


def _some(texts: pa.Array | None) -> pa.Array | None:
    return None if texts is None or texts.null_count == len(texts) else texts


# Texts, read: a family's builder reads what is in the type's own form, piece by piece.  A piece with anything else is
# read value by value, by the family's own reader, which accepts numbers and times in any type's form.

_SPACE: Final = " \t\n\v\f\r"
"""What PostgreSQL takes for white space."""

_TRUE: Final = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
_FALSE: Final = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,9})?", re.IGNORECASE)
_PLAIN_NUMBER: Final = r"^(?:0(?:\.0+)?|-?0\.[0-9]*[1-9][0-9]*|-?[1-9][0-9]{0,100}(?:\.[0-9]{1,100})?|NaN|-?Infinity)$"
"""A numeric as PostgreSQL writes it."""
_NOT_FINITE: Final = {"nan": "NaN", "infinity": "Infinity", "+infinity": "Infinity", "-infinity": "-Infinity"}
_NUMERIC_EXPONENTS: Final = (-16_383, 131_071)
"""The power of ten of the last digit that a numeric can have, and of the first."""
_NUMERIC_NAME = re.compile(r"numeric(?:\((-?[0-9]+),(-?[0-9]+)\))?")

_UUID = re.compile(r"(\{)?(?:[0-9a-f]{4}-?){7}[0-9a-f]{4}(?(1)\})", re.IGNORECASE)
_PLAIN_UUID: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"

_ONE_ADDRESS: Final = r"^(?:([0-9.]+)/32|([0-9A-Fa-f.:]*:[0-9A-Fa-f.:]*)/128)$"
"""An inet that is a single address; PostgreSQL writes the size of its network only in a cast to text."""

_HEADER_SIZE: Final = 4
"""PostgreSQL adds the size of a varlena header to the length of char(n)."""

_BYTEA: Final = 17

_PIECES: Final = 8
"""A piece that its builder refuses is cut into so many, as long as it has more rows than that."""


def is_numeric(column_type: ColumnType) -> bool:
    """Return whether a string column holds numerics."""
    return column_type.family is families.STRING and _NUMERIC_NAME.fullmatch(column_type.postgres_name) is not None


def read_texts(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read texts as a type other than an array.

    Args:
        texts: strings, in the form of any type with the same meaning.
        column_type: the type to read them as.

    Returns:
        A column of the type ``column_type.arrow``; NULL where the text is NULL, or where the type cannot hold its value
        exactly.
    """
    return _READERS.get(column_type.family.meaning, _pieces)(texts, column_type)


def _read_booleans(texts: pa.Array, _column_type: ColumnType) -> pa.Array:
    words = pc.ascii_lower(pc.ascii_trim(texts, _SPACE))
    found = pc.index_in(words, pa.array([*_TRUE, *_FALSE]))
    return pc.less(found, len(_TRUE))


def _read_strings(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    modifiers = _NUMERIC_NAME.fullmatch(column_type.postgres_name)
    if modifiers is not None:
        if modifiers[1] is not None:
            precision, scale = int(modifiers[1]), int(modifiers[2])
            return _each(texts, lambda text: _numeric(text, precision, scale))
        return _each_unless(pc.match_substring_regex(texts, _PLAIN_NUMBER), texts, _numeric)
    if column_type.postgres_name == "uuid":
        return _each_unless(pc.match_substring_regex(texts, _PLAIN_UUID), texts, _uuid)
    if column_type.postgres_name == CHARACTER and not column_type.overridden and column_type.typmod > _HEADER_SIZE:
        size = column_type.typmod - _HEADER_SIZE
        stripped = pc.utf8_rtrim(texts, " ")
        padded = pc.utf8_rpad(stripped, size, " ")
        return pc.if_else(pc.less_equal(pc.utf8_length(stripped), size), padded, None)
    if column_type.postgres_name == INET:
        return pc.replace_substring_regex(texts, _ONE_ADDRESS, r"\1\2")
    # As bytea a text of another type would mean its bytes.
    return texts if column_type.oid == _BYTEA else canonical_texts(texts, column_type.oid)


def _read_integers(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    # Fractions are common when numeric or floats become integers, and can be refused without the exact reader.
    return _pieces(_with_decimals(_trimmed(texts), 0), column_type)


def _read_numerics(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    if not pa.types.is_decimal(column_type.arrow):
        return _read_nearest(texts, column_type)
    scale = column_type.arrow.scale
    texts = _with_decimals(_trimmed(texts), scale)
    if scale:  # the kernels take only texts with all decimals of the scale
        texts = pc.replace_substring_regex(texts, r"^(-?[0-9]+)$", r"\1." + scale * "0")
    return _pieces(texts, column_type)


def _read_floats(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    values = _pieces(texts, column_type)
    written = output_of(values, column_type)
    differ = pc.fill_null(pc.not_equal(_trimmed(written), _trimmed(texts)), False)
    rows = np.flatnonzero(differ.to_numpy(zero_copy_only=False))
    index = pa.array(rows)
    if column_type.arrow == pa.float32():
        # A number that is a single, or is written as one, is also exact as a double.
        double = replace(column_type, arrow=pa.float64(), family=families.FLOAT64)
        numbers = _pieces(texts.take(index), double)
        near = pc.or_(
            pc.equal(numbers, values.take(index).cast(pa.float64())),
            pc.equal(numbers, pc.cast(written.take(index), pa.float64())),
        )
        sure = ~pc.fill_null(pc.or_(near, pc.is_nan(numbers)), False).to_numpy(zero_copy_only=False)
        values = _without(values, rows[sure])
        rows = rows[~sure]
        index = pa.array(rows)
    inexact = [
        row
        for row, *texts_and_value in zip(
            rows.tolist(),
            texts.take(index).to_pylist(),
            written.take(index).to_pylist(),
            values.take(index).to_pylist(),
            strict=True,
        )
        if not _is_exact(*texts_and_value)
    ]
    return _without(values, np.array(inexact, dtype=np.intp))


def _read_nearest(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read numerics as the nearest doubles, as ``decimal_handling_mode: double`` asks for."""
    values = _pieces(texts, replace(column_type, family=families.FLOAT64))
    infinite = pc.and_(pc.is_inf(values), pc.invert(pc.match_substring(texts, "inf", ignore_case=True)))
    return pc.if_else(infinite, None, values)


_READERS: Final[dict[Meaning | None, Callable[[pa.Array, ColumnType], pa.Array]]] = {
    Meaning.BOOLEAN: _read_booleans,
    Meaning.INTEGER: _read_integers,
    Meaning.FLOAT: _read_floats,
    Meaning.NUMERIC: _read_numerics,
    None: _read_strings,
}
"""Where texts a family's builder and reader alone do not read as PostgreSQL's cast does, or not as fast."""


def _pieces(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read a column with the type's builder, and pieces that it refuses value by value."""
    rows = len(texts)
    if not rows:
        return pa.nulls(0, column_type.arrow)
    _, ends, data = texts.buffers()
    buf = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(1, dtype=np.uint8)
    offsets = np.frombuffer(ends, dtype=np.int32)[texts.offset : texts.offset + rows + 1]
    length = np.where(texts.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), NULL).astype(np.int32)
    builder = make_builder(column_type)
    refused: list[int] = []

    def read(start: int, stop: int) -> None:
        first = np.arange(start, stop, dtype=np.int32)
        try:
            builder.add_rows(buf, offsets[:-1], length, first, 0)
        except (ValueFormatError, pa.ArrowInvalid):
            if stop - start <= _PIECES:
                builder.add_rows(buf, offsets[:-1], length, np.full(stop - start, -1, dtype=np.int32), 0)
                refused.extend(range(start, stop))
                return
            bounds = np.linspace(start, stop, _PIECES + 1).astype(int).tolist()
            for place in range(_PIECES):
                read(bounds[place], bounds[place + 1])

    read(0, rows)
    values = builder.finish()
    if not refused:
        return values
    return filled(values, np.array(refused), _exactly(texts.take(pa.array(refused)), column_type))


def _exactly(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read texts one by one with the exact reader."""
    values: list[Any] = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else read_overridden(_stripped(text), column_type))
        except DoesNotFit:
            values.append(None)
    if pa.types.is_decimal(column_type.arrow):
        scale = column_type.arrow.scale
        values = [None if value is None else Decimal(f"{value}E-{scale}") for value in values]
    return pa.array(values, column_type.arrow)


def _each(texts: pa.Array, read: Callable[[str], str]) -> pa.Array:
    """Read strings one by one."""
    values: list[str | None] = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else read(text))
        except (DoesNotFit, ValueFormatError):
            values.append(None)
    return pa.array(values, pa.string())


def _each_unless(plain: pa.Array, texts: pa.Array, read: Callable[[str], str]) -> pa.Array:
    rows = np.flatnonzero(~pc.fill_null(plain, True).to_numpy(zero_copy_only=False))
    return filled(texts, rows, _each(texts.take(pa.array(rows)), read)) if rows.size else texts


def _without(values: pa.Array, rows: NDArray[np.intp]) -> pa.Array:
    if not rows.size:
        return values
    gone: NDArray[np.bool_] = np.zeros(len(values), dtype=np.bool_)
    gone[rows] = True
    return pc.if_else(pa.array(gone), None, values)


def _trimmed(texts: pa.Array) -> pa.Array:
    """Remove trailing zeros of decimals."""
    return pc.replace_substring_regex(texts, r"^(-?[0-9]+)(?:\.0*|(\.[0-9]*[1-9])0+)$", r"\1\2")


def _with_decimals(texts: pa.Array, most: int) -> pa.Array:
    """Replace numbers with more decimals by NULL."""
    return pc.if_else(pc.match_substring_regex(texts, rf"^-?[0-9]+\.[0-9]{{{most + 1},}}$"), None, texts)


def _stripped(text: str) -> str:
    stripped = text.strip(_SPACE)
    if stripped != stripped.strip():  # Python knows more white space than PostgreSQL
        raise DoesNotFit
    return stripped


def _is_exact(text: str, written: str, value: float) -> bool:
    stripped = text.strip(_SPACE)
    if _NUMBER.fullmatch(stripped) is None:
        return _NOT_FINITE.get(stripped.lower()) == written
    number = Decimal(stripped)
    # The last is for the text of a double whose value a single holds exactly.
    return number in (Decimal(value), Decimal(written), Decimal(repr(value)))


def _numeric(text: str, precision: int | None = None, scale: int = 0) -> str:
    """Write a number as PostgreSQL writes a numeric, with its own decimals, or with a precision and scale.

    Raises:
        DoesNotFit: the text is no number, or the number does not fit the precision and scale exactly.
    """
    stripped = text.strip(_SPACE)
    if stripped.lower() in _NOT_FINITE:
        return _NOT_FINITE[stripped.lower()]
    if _NUMBER.fullmatch(stripped) is None:
        raise DoesNotFit
    number = Decimal(stripped)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if exponent < _NUMERIC_EXPONENTS[0] or number.adjusted() > _NUMERIC_EXPONENTS[1]:
        raise DoesNotFit
    if not number:
        sign = 0
    if precision is not None:
        if not number:
            digits, exponent = (0,), -scale
        while digits[-1] == 0 and exponent < -scale:
            digits, exponent = digits[:-1], exponent + 1
        if exponent < -scale or (number and number.adjusted() >= precision - scale):
            raise DoesNotFit
        if scale > 0:
            digits, exponent = digits + (0,) * (exponent + scale), -scale
    return format(Decimal((sign, digits, exponent)), "f")


def _uuid(text: str) -> str:
    if _UUID.fullmatch(text) is None:
        raise DoesNotFit
    return str(UUID(text))

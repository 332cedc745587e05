"""Convert a column's values when the source changes its type, or renames an enum's labels.

A change of type sends no rows.  If PostgreSQL casts the old type to the new one by itself, a value becomes what that
cast makes of it (`walreplay.evolution.casts`).  Other pairs need `USING` an expression, which is not sent: a
value is converted through PostgreSQL's text.  If the new type would not hold the same value, without rounding, the
column is NULL and the text is rescued.  A number's text becomes a float only if the float is that number, or is written
as it.  Staged changes of earlier relation versions and the rows of a rewritten table are converted in the same way, so
it makes no difference where a run ends.

Renamed enum labels come first.  ``ALTER TYPE … RENAME VALUE`` changes no row, and replication sends nothing of it, but
all rows show the new label from then on.  Announcements report it (`walreplay.decode.announcements`): a column's type
has the renamed labels, each with all the texts that it has had.  So the types of two moments say which text has become
which.  Transactions that are open while a label is renamed still send the old text behind the announcement, and so do
servers whose caches are stale.  So a text that is no label any more means the label that it was (`ColumnType.as_sent`).
A text that is another value's label by now means that other value.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.evolution.casts import NUMBERS, as_output, cast_of, meaning_of
from walreplay.evolution.texts import each, is_numeric, read_each, read_nearest, read_texts
from walreplay.types import families
from walreplay.types.base import ColumnType, DoesNotFit, Label, Meaning
from walreplay.types.canonical import canonical_of
from walreplay.types.composite import elements_from_text, with_elements
from walreplay.types.datetime import EPOCH_MICROS, FIRST_MICRO, LAST_MICRO, MICROSECONDS
from walreplay.types.families import CHARACTER, INET, element_of, filled, lengths_of, offsets_of, output_of, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    now = {oid: texts[-1] for oid, texts in new.labels}  # the present text is the last one
    new_texts = {texts[-1]: now.get(oid, texts[-1]) for oid, texts in old.labels}
    if old.as_sent:  # transactions open at the rename still send the old text
        for was, oids in _former(old.labels).items():
            if len(oids) == 1 and oids[0] in now:
                new_texts.setdefault(was, now[oids[0]])
    old_texts = dict(old.labels)
    for oid, texts in new.labels:
        if len(old_texts.get(oid, texts[:1])) == 1:
            # What was not renamed by then had its first text.  Of two with one text the first had it first.  Labels of
            # a description have one text, too; its rows have another one if it was made later.
            new_texts.setdefault(texts[0], texts[-1])
    return {was: now for was, now in new_texts.items() if was != now}


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
    """Return strings (or arrays' texts, for their elements) with new labels, all at once: two may swap their texts."""
    encoded = values.dictionary_encode()  # each distinct text is converted once

    def now(text: str) -> str:
        return labels.get(text, text)

    texts = [with_elements(text, _DELIMITER, now) if in_array else now(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, values.type).take(encoded.indices)


_STRINGS: Final = (Meaning.TEXT, Meaning.JSON, Meaning.CLOCK, Meaning.CUSTOM, Meaning.OTHER)

_SAME_TEXT: Final = frozenset(
    {(old, new) for old in (*NUMBERS, Meaning.JSON, Meaning.CUSTOM) for new in NUMBERS}
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
        # Of a float's digits, numeric gets the first 15, or 6.
        is_rounded = meaning_of(old) is Meaning.FLOAT and meaning_of(new) is Meaning.NUMERIC
        return meaning_of(old) in NUMBERS and meaning_of(new) in NUMBERS and _is_within(old, new) and not is_rounded
    if cast_of(old, new) is not None:  # a cast that rounds, cuts or rewrites
        return False
    if old.family is not families.STRING:
        return True
    # As another type, equal values would be written otherwise.
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
    before, after = meaning_of(old), meaning_of(new)
    if before is Meaning.INTEGER and after is Meaning.INTEGER:
        return _is_within(old, new)
    if before is Meaning.INTEGER and pa.types.is_decimal(new.arrow):
        # Delta's own condition, and not the least that would do.
        return bool(new.arrow.precision - new.arrow.scale >= _DELTA_DIGITS[old.arrow])
    if before is Meaning.INTEGER:
        # A double has all integers of 32 bits, and not of 64.
        return after in NUMBERS and bool(new.arrow == pa.float64() and old.arrow != pa.int64())
    if pa.types.is_decimal(old.arrow) and pa.types.is_decimal(new.arrow):
        more_scale = new.arrow.scale - old.arrow.scale
        # No digit is lost in front of the point.
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
    if keeps_values(old, new) and keeps_values(new, old):  # both ways: no text that was rescued becomes a value
        return values.cast(new.arrow), rescued
    result, left = _convert_values(values, old, new)
    if rescued is None:
        return result, left
    rows = np.flatnonzero(rescued.is_valid().to_numpy(zero_copy_only=False))
    # What the old type could not hold, the new one may.
    again, still = _convert_rescued(rescued.take(pa.array(rows)), old, new)
    left = pa.nulls(len(values), pa.string()) if left is None else left
    return filled(result, rows, again), _some(filled(left, rows, still))


def _convert_values(values: pa.Array, old: ColumnType, new: ColumnType) -> Converted:
    if keeps_values(old, new):
        return values.cast(new.arrow), None
    if is_widening(old, new):
        return pc.cast(values, new.arrow), None
    before, after = meaning_of(old), meaning_of(new)
    if before is Meaning.BOOLEAN and after is Meaning.INTEGER:
        return pc.cast(values, new.arrow), None
    is_sent = not (old.overridden or new.overridden)  # the source casts its own types, not the chosen ones
    if before is Meaning.LIST and after is Meaning.LIST:
        result = _convert_lists(values, None, element_of(old), new)
    elif before is Meaning.TIMESTAMP and after is Meaning.DATE and is_sent:
        result = pc.floor_temporal(values, unit="day").cast(new.arrow)
    elif old.family is new.family and before in (Meaning.TIMESTAMP, Meaning.TIMESTAMPTZ) and is_sent:
        result = _rounded_moments(values, new)
    elif before is Meaning.FLOAT and after is Meaning.INTEGER and is_sent:
        result = _rounded_floats(values, new)
    elif before in (Meaning.INTEGER, Meaning.FLOAT) and after is Meaning.FLOAT and is_sent:
        result = _nearest_floats(values, new)
    else:
        return _read((output_of if as_output(old, new) else text_of)(values, old), old, new)
    if result.null_count == values.null_count:
        return result, None
    return result, _left(text_of(values, old), result, old, new)


def _convert_rescued(texts: pa.Array, old: ColumnType, new: ColumnType) -> tuple[pa.Array, pa.Array]:
    """Read, as the new type, the texts that the old type could not hold."""
    # Texts of values that could not be read stay as they are.
    readable = texts
    if meaning_of(old) is not Meaning.BINARY:
        readable = pc.if_else(pc.starts_with(texts, _UNREAD), None, texts)
    if meaning_of(old) is not Meaning.LIST or meaning_of(new) is not Meaning.LIST:
        result, _ = _read(readable, old, new)
    elif old.family.elements is not None:
        result = pa.nulls(len(texts), new.arrow)  # only texts that are no vector were rescued
    else:
        elements, parsed = _parsed(readable, old)
        nulls = pa.nulls(len(elements.values), element_of(old).arrow)
        lists = pa.ListArray.from_arrays(elements.offsets, nulls, mask=pa.array(~parsed))
        result = _convert_lists(lists, elements.values, element_of(old), new)
    return result, pc.coalesce(_left(readable, result, old, new), pc.if_else(result.is_null(), texts, None))


def _restated(texts: pa.Array, old: ColumnType, new: ColumnType) -> pa.Array:
    """Return what the source's cast makes of texts; NULL where it refuses them."""
    if old.element is None or new.element is None:
        cast = cast_of(old, new)
    elif (cast := cast_of(old.element, new.element)) is not None:
        cast = partial(with_elements, delimiter=old.delimiter, write=cast)
    return texts if cast is None else each(texts, cast)


def _read(texts: pa.Array, old: ColumnType, new: ColumnType) -> Converted:
    """Read the texts of one type as another."""
    if not _means_the_same(old, new) and cast_of(old, new) is None:
        return pa.nulls(len(texts), new.arrow), _some(texts)
    written = _restated(texts, old, new)
    if meaning_of(new) is Meaning.LIST:
        elements, _ = _parsed(texts, new)
        if new.element is not None:
            # PostgreSQL reads more forms than it writes (spaces, lower case null).  Only what it writes is certain.
            array = ColumnType(pa.list_(pa.string()), families.ARRAY, "text[]", old, new.delimiter)
            same = pc.equal(output_of(elements, array), texts)
            elements = pc.if_else(same, elements, None)
        result = _convert_lists(elements, None, old, new)
    else:
        # The cast rounds a numeric to the nearest float.  A text has no such cast: it is read only if nothing is lost.
        is_nearest = meaning_of(old) is Meaning.NUMERIC and meaning_of(new) is Meaning.FLOAT
        result = (read_nearest if is_nearest else read_texts)(written, new)
    return result, _some(_left(texts, result, old, new))


def _left(texts: pa.Array, result: pa.Array, old: ColumnType, new: ColumnType) -> pa.Array:
    """Return what the source has for values that the new column cannot hold; a number that it cannot have stays."""
    texts = pc.if_else(result.is_null(), texts, None)
    return texts if meaning_of(new) in NUMBERS else pc.coalesce(_restated(texts, old, new), texts)


def _rounded_moments(values: pa.Array, new: ColumnType) -> pa.Array:
    """Round timestamps to the new type's precision; NULL where that leads beyond what a column holds."""
    micros = pc.fill_null(values.view(pa.int64()), EPOCH_MICROS).to_numpy() - EPOCH_MICROS
    unit = 10 ** (MICROSECONDS - new.typmod)
    result = np.where(micros < 0, -1, 1) * ((np.abs(micros) + unit // 2) // unit * unit) + EPOCH_MICROS
    fits = pa.array((result >= FIRST_MICRO) & (result <= LAST_MICRO))
    return pc.if_else(pc.and_(values.is_valid(), fits), pa.array(result), None).view(new.arrow)


def _rounded_floats(values: pa.Array, new: ColumnType) -> pa.Array:
    """Round floats to integers, half to even; NULL where the new type does not have the integer."""
    assert new.family.limits is not None
    low, high = new.family.limits
    whole = pc.round(values, round_mode="half_to_even")  # as rint in PostgreSQL's float casts
    # The largest integer may be no float, but the next one is a power of two.
    fits = pc.and_(pc.greater_equal(whole, float(low)), pc.less(whole, float(high + 1)))
    return pc.if_else(fits, whole, None).cast(new.arrow)


def _nearest_floats(values: pa.Array, new: ColumnType) -> pa.Array:
    """Round numbers to the nearest floats; NULL where that makes a number infinite, or zero."""
    result = pc.cast(values, new.arrow, safe=False)
    number = pc.cast(values, pa.float64(), safe=False)
    lost = pc.or_(
        pc.and_(pc.is_inf(result), pc.is_finite(number)), pc.and_(pc.equal(result, 0.0), pc.not_equal(number, 0.0))
    )
    return pc.if_else(lost, None, result)


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
    if new.family.elements is not None:  # pgvector refuses NULL, NaN and infinities
        gone |= ~pc.fill_null(pc.is_finite(elements), False).to_numpy(zero_copy_only=False)
    row_of = np.repeat(np.arange(len(lists)), lengths)
    bad = np.bincount(row_of[gone], minlength=len(lists)) > 0
    kept = elements.filter(pa.array(~bad[row_of])) if bad.any() else elements
    null = lists.is_null().to_numpy(zero_copy_only=False) | bad
    offsets = offsets_of(np.where(bad, 0, lengths))
    return pa.ListArray.from_arrays(offsets, kept, type=new.arrow, mask=pa.array(null))


def _parsed(texts: pa.Array, column_type: ColumnType) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Parse the texts of arrays: give lists of strings, NULL if a text is none, and which texts were parsed."""
    lists = read_each(texts, lambda text: _elements(text, column_type))
    parsed = np.array([elements is not None for elements in lists], dtype=np.bool_)
    return pa.array(lists, pa.list_(pa.string())), parsed


def _elements(text: str, column_type: ColumnType) -> list[str | None]:
    if column_type.element is not None:
        return elements_from_text(text, column_type.delimiter)
    if not text.startswith("[") or not text.endswith("]"):
        raise DoesNotFit
    return list(text[1:-1].split(",")) if text != "[]" else []


def _means_the_same(old: ColumnType, new: ColumnType) -> bool:
    before, after = meaning_of(old), meaning_of(new)
    if before is Meaning.CLOCK and after is Meaning.CLOCK:
        return old.postgres_name == new.postgres_name
    return before is Meaning.TEXT or after is Meaning.TEXT or (before, after) in _SAME_TEXT


def _some(texts: pa.Array | None) -> pa.Array | None:
    return None if texts is None or texts.null_count == len(texts) else texts

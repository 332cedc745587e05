r"""Texts that depend on the sender's settings, as PostgreSQL writes them under the settings of docs/capturing.md.

TimeZone, IntervalStyle, extra_float_digits and bytea_output change how a value is written, but not the value.  Values
whose column is a string, and rescued values, get one text for each value: that of TimeZone UTC, IntervalStyle postgres,
the shortest exact digits and bytea in hex, which is also what `walreplay.types.rendering` writes of binary format.  So
rows, keys and hashes of equal values are equal, whatever the settings were.

The type that is sent decides (`ColumnType.oid`).  Of a user-defined type only the name is known: its values stay as
they were sent, as do those that are not in a form that PostgreSQL writes, and dates in another DateStyle than ISO.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from walreplay.errors import ValueFormatError
from walreplay.types.base import DoesNotFit
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.composite import floats_from_text, with_elements
from walreplay.types.datetime import in_utc, interval_from_text, interval_written
from walreplay.types.numbers import double_text, single_text
from walreplay.types.strings import bytea_text, bytes_from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANY, INTERVAL, MOMENTS, NUMBERS = range(4)
"""How `walreplay.decode.kernels.text` finds the texts that may not be canonical; of `ANY` all may be."""


class Canonical(NamedTuple):
    """How a type's texts become canonical.

    Attributes:
        look: `INTERVAL` and so on: which texts need not be written anew.
        write: returns the one text of a value; a text that is not in a form of its type is returned unchanged.
    """

    look: int
    write: Callable[[str], str]


_MOMENT = re.compile(
    r"[0-9]{4,7}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,5}[1-9])?"
    r"[+-][0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?)?(?: BC)?"
)
_DIGITS = r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_NUMBER = re.compile(_DIGITS)
_OF_NUMBERS = re.compile(
    r"[\[({{<]*{number}(?:[\])}}>,\[({{<]+{number})*[\])}}>]*".format(number=f"(?:{_DIGITS}|-?Infinity|NaN)")
)
"""Numbers and geometric types; other texts come from columns that had another type."""


def _interval(text: str) -> str:
    interval = interval_from_text(text)
    return text if interval is None else interval_written(*interval)


def _moments(text: str) -> str:
    return _MOMENT.sub(lambda match: in_utc(match[0]) or match[0], text)


def _numbers(text: str) -> str:
    return _NUMBER.sub(_double, text) if _OF_NUMBERS.fullmatch(text) else text


def _double(match: re.Match[str]) -> str:
    value = float(match[0])
    # What a server before 12 rounds above the largest double is no infinity.
    return double_text(value) if math.isfinite(value) else match[0]


def _single(text: str) -> str:
    try:
        (value,) = floats_from_text(f"[{text}]")
    except (DoesNotFit, ValueError):
        return text
    return single_text(value)


def _bytea(text: str) -> str:
    try:
        return bytea_text(bytes_from_text(text))
    except ValueFormatError:
        return text


_MOMENTS: Final = Canonical(MOMENTS, _moments)
_NUMBERS: Final = Canonical(NUMBERS, _numbers)
_INTERVAL: Final = Canonical(INTERVAL, _interval)

_BY_NAME: Final = {
    "bytea": Canonical(ANY, _bytea),
    "float4": Canonical(ANY, _single),
    **dict.fromkeys(("interval", "reltime"), _INTERVAL),
    **dict.fromkeys(("timestamptz", "abstime", "tinterval", "tstzrange", "tstzmultirange"), _MOMENTS),
    **dict.fromkeys(("float8", "point", "line", "lseg", "box", "path", "polygon", "circle"), _NUMBERS),
}


def _by_oid() -> Iterator[tuple[int, Canonical]]:
    for oid, builtin in BUILTIN_TYPES.items():
        element = BUILTIN_TYPES[builtin.element or oid]  # an array's texts are those of its elements
        canonical = _BY_NAME.get(element.name)
        if canonical is None:
            continue
        if builtin.element:
            canonical = Canonical(ANY, partial(with_elements, delimiter=element.delimiter, write=canonical.write))
        yield oid, canonical


_BY_OID: Final = dict(_by_oid())


def canonical_of(type_oid: int) -> Canonical | None:
    """Return how the texts of a type become canonical, by the oid that is sent; None if they are, or may not change."""
    return _BY_OID.get(type_oid)


def canonical_text(text: str, type_oid: int) -> str:
    """Return the canonical text of one value.

    >>> canonical_text("P1Y2M", 1186), canonical_text("{@ 1 day ago,NULL}", 1187)
    ('1 year 2 mons', '{"-1 days",NULL}')
    """
    canonical = canonical_of(type_oid)
    return text if canonical is None else canonical.write(text)

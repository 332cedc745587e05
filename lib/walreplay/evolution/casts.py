"""What PostgreSQL makes of a column's values where ALTER TABLE changes its type without USING.

It then applies the cast that also assigns a value to the column: rows keep what the cast returns, and it is not sent.
`cast_of` computes it from the value's text, as far as it follows from the value and the two types.  `is_uncertain`
names the casts that depend on more (the session's TimeZone or search_path, lc_monetary, the catalog).
Casts of numbers to floats, and of floats, round the value and not its text: `walreplay.evolution.convert` does that.
"""

from __future__ import annotations

import math
import re
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.announcements import casts_exactly
from walreplay.decode.masking import MASKED
from walreplay.evolution.texts import is_numeric
from walreplay.types import datetime as times
from walreplay.types.base import ColumnType, DoesNotFit, Meaning
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.families import CHARACTER, INET
from walreplay.types.numbers import HEADER_SIZE, numeric_rounded, precision_and_scale
from walreplay.types.special_forms import network_text
from walreplay.types.strings import char_text, jsonb_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Cast = Callable[[str], str]

_DATE, _TIMESTAMP, _TIME, _INTERVAL = "date", "timestamp without time zone", "time without time zone", "interval"
_TIMESTAMPTZ, _TIMETZ = "timestamp with time zone", "time with time zone"
_VARCHAR, _NAME, _CHAR = "character varying", "name", '"char"'

NUMBERS: Final = frozenset({Meaning.INTEGER, Meaning.FLOAT, Meaning.NUMERIC})
_NAME_SIZE: Final = 63

_OIDS: Final = {builtin.sql_name: oid for oid, builtin in BUILTIN_TYPES.items()}
_MEANINGS: Final = {
    **dict.fromkeys(_OIDS, Meaning.OTHER),
    **dict.fromkeys(("text", _VARCHAR, CHARACTER, _NAME), Meaning.TEXT),
    **dict.fromkeys(("json", "jsonb"), Meaning.JSON),
    **dict.fromkeys((_TIME, _TIMETZ), Meaning.CLOCK),
}


def meaning_of(column_type: ColumnType) -> Meaning:
    """Return what a type's values are to conversions."""
    if column_type.family.meaning is not None:
        return column_type.family.meaning
    if is_numeric(column_type):
        return Meaning.NUMERIC
    name = column_type.postgres_name
    if name == "citext" or name.endswith(".citext"):
        return Meaning.TEXT
    return _MEANINGS.get(name, Meaning.CUSTOM)


def cast_of(old: ColumnType, new: ColumnType) -> Cast | None:
    """Return what makes a value's text another one; None if the cast keeps the text, or there is none.

    It takes the text that `as_output` chooses, and raises DoesNotFit where PostgreSQL refuses the value, so that the
    column cannot have had it without USING.
    """
    if old.overridden or new.overridden:
        return None
    names = old.postgres_name, new.postgres_name
    steps = [step for step in (_CASTS.get(names), *_fitting(old, new)) if step is not None]
    return partial(_in_turn, steps) if steps else None


def as_output(old: ColumnType, new: ColumnType) -> bool:
    """Return whether the cast goes by the type's output, and not by its cast to text, where these differ."""
    return new.postgres_name in (_NAME, _CHAR) or old.postgres_name == new.postgres_name


def is_uncertain(old: ColumnType, new: ColumnType) -> bool:
    """Return whether a cast's result depends on what is not sent, so that older rows may have other values."""
    if old.element is not None and new.element is not None:
        return is_uncertain(old.element, new.element)
    if old.overridden or new.overridden:
        return not casts_exactly((old.oid, old.typmod), (new.oid, new.typmod))
    names = old.postgres_name, new.postgres_name
    if names[0].startswith(MASKED) and names[1].startswith(MASKED):
        # The hash of what a value has become does not follow from its own hash.
        oids = [_OIDS.get(name.removeprefix(MASKED).partition("(")[0], 0) for name in names]
        return not casts_exactly((oids[0], old.typmod), (oids[1], new.typmod))
    if names[0] == names[1]:
        return False
    meanings = {meaning_of(old), meaning_of(new)}
    return (
        (meaning_of(new) is Meaning.TEXT and (old.element or old).postgres_name in _WRITTEN_BY_SESSION)
        or ({_TIMESTAMPTZ} < {*names} <= _OF_TIME)
        or names == (_TIME, _TIMETZ)
        or any(name.startswith("reg") for name in names)
        or ("money" in names and bool(meanings & {Meaning.INTEGER, Meaning.NUMERIC}))
    )


def _fitting(old: ColumnType, new: ColumnType) -> Iterator[Cast]:
    """Yield what makes a value fit the modifier, or the length, of its new type."""
    name, size = new.postgres_name, new.typmod
    is_lower = size >= 0 and not (old.postgres_name == name and 0 <= old.typmod <= size)
    if name == _NAME:
        yield partial(_name, padded=old.postgres_name == CHARACTER)
    elif name == _CHAR and meaning_of(old) is Meaning.TEXT:
        yield _first_byte
    elif name == _VARCHAR and is_lower:
        yield partial(_cut, size=size - HEADER_SIZE)
    elif {meaning_of(old), meaning_of(new)} <= NUMBERS:
        yield from _rounding(old, new)
    elif name == _INTERVAL and old.postgres_name in (_INTERVAL, _TIME):
        field, precision = times.interval_modifier(size)
        if field != "second" or precision < times.interval_modifier(old.typmod)[1]:
            yield partial(times.interval_cut, field=field, precision=precision)
    elif is_lower and size < times.MICROSECONDS and (old.postgres_name == name or (old.postgres_name, name) in _CASTS):
        if name in (_TIMESTAMP, _TIMESTAMPTZ):
            yield partial(_moment, precision=size)
        elif name in (_TIME, _TIMETZ):
            yield partial(times.clock_rounded, precision=size)


def _rounding(old: ColumnType, new: ColumnType) -> Iterator[Cast]:
    before, after = meaning_of(old), meaning_of(new)
    if before is Meaning.FLOAT and after is Meaning.NUMERIC:
        yield partial(_shortened, single=old.postgres_name == "real")
    scale, new_scale = _scale(old), _scale(new)
    if after is not Meaning.FLOAT and new_scale is not None and (scale is None or scale > new_scale):
        yield partial(numeric_rounded, scale=new_scale)


def _scale(column_type: ColumnType) -> int | None:
    """Return how many decimals a type has; None if its values have as many as they need."""
    if meaning_of(column_type) is Meaning.INTEGER:
        return 0
    modifiers = precision_and_scale(column_type.typmod) if meaning_of(column_type) is Meaning.NUMERIC else None
    return None if modifiers is None else modifiers[1]


def _shortened(text: str, *, single: bool) -> str:
    """Write a float with the digits that numeric gets of it."""
    with np.errstate(over="ignore"):  # a double's text that a real column rescued
        value = float(np.float32(text)) if single else float(text)
    return f"{value:.{6 if single else 15}g}" if math.isfinite(value) else text


def _in_turn(steps: Sequence[Cast], text: str) -> str:
    return reduce(lambda value, step: step(value), steps, text)


def _cut(text: str, size: int) -> str:
    """Cut a text to so many characters if only blanks are behind them."""
    if text[size:].strip(" "):
        raise DoesNotFit
    return text[:size]


def _name(text: str, *, padded: bool) -> str:
    """Cut a text at 63 bytes, in front of the character that does not fit as a whole."""
    name = text.encode()[:_NAME_SIZE].decode(errors="ignore")
    return name.rstrip(" ") if padded else name


def _first_byte(text: str) -> str:
    data = bytes([int(text[1:], 8)]) if _OCTAL.fullmatch(text) else text.encode()[:1] or b"\0"
    return char_text(data)


def _letter(text: str) -> str:
    # As char(n), a byte that is no letter stays as it is, which the server cannot send.
    if len(text) != 1:
        raise DoesNotFit
    return text


def _moment(text: str, precision: int) -> str:
    return times.in_utc(text, precision) or text


def _part_of_moment(text: str, *, is_day: bool) -> str:
    match = _MOMENT.fullmatch(text)
    if match is None:
        if is_day:
            return text
        raise DoesNotFit  # an infinity becomes NULL
    return match[1] + (match[3] or "") if is_day else match[2]


def _midnight(text: str) -> str:
    match = _DAY.fullmatch(text)
    return text if match is None else f"{match[1]} 00:00:00{match[2] or ''}"


def _macaddr(text: str) -> str:
    if text[9:14] != "ff:fe":
        raise DoesNotFit
    return text[:9] + text[15:]


def _polygon(text: str) -> str:
    x_high, y_high, x_low, y_low = text.strip("()").replace("),(", ",").split(",")
    return f"(({x_low},{y_low}),({x_low},{y_high}),({x_high},{y_high}),({x_high},{y_low}))"


_DAY: Final = re.compile(r"([0-9]{4,}-[0-9]{2}-[0-9]{2})( BC)?")
_MOMENT: Final = re.compile(r"([0-9]{4,}-[0-9]{2}-[0-9]{2}) ([0-9:.]+)( BC)?")
_OCTAL: Final = re.compile(r"\\[0-3][0-7]{2}")

_CASTS: Final[dict[tuple[str, str], Cast]] = {
    (_DATE, _TIMESTAMP): _midnight,
    (_TIMESTAMP, _DATE): partial(_part_of_moment, is_day=True),
    (_TIMESTAMP, _TIME): partial(_part_of_moment, is_day=False),
    (_TIMETZ, _TIME): lambda text: re.split("[+-]", text)[0],
    (_INTERVAL, _TIME): times.clock_of_interval,
    (INET, "cidr"): network_text,
    ("macaddr", "macaddr8"): lambda text: f"{text[:8]}:ff:fe{text[8:]}",
    ("macaddr8", "macaddr"): _macaddr,
    ("point", "box"): lambda text: f"{text},{text}",
    ("box", "polygon"): _polygon,
    (_CHAR, CHARACTER): _letter,
    ("json", "jsonb"): jsonb_from_json,
    ("smallint", "oid"): lambda text: str(int(text) % 2**32),
    ("integer", "oid"): lambda text: str(int(text) % 2**32),
    ("oid", "integer"): lambda text: str((int(text) + 2**31) % 2**32 - 2**31),
}
"""The casts between two types that change the text, their modifiers apart."""

_OF_TIME: Final = frozenset({_DATE, _TIMESTAMP, _TIMESTAMPTZ, _TIME, _TIMETZ})
_WRITTEN_BY_SESSION: Final = frozenset({_TIMESTAMPTZ, "tstzrange", "tstzmultirange", "abstime", "tinterval", "xml"})
"""Types that become text in the session's TimeZone; xml keeps the encoding's name, which is not sent as text."""

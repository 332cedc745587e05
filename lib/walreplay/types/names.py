"""Names of types as people write them in SQL: ``numeric(20,4)``, ``timestamp with time zone``, ``int[]``."""

import difflib
import re
from typing import Final, NamedTuple

from walreplay.errors import ConfigError
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.numeric import MAX_PRECISION

VECTORS: Final = ("vector", "halfvec")
"""pgvector's types that become lists; sparsevec has no such form, and stays text."""

_PARTS = re.compile(r'("char"|[a-z0-9_ ]*?) ?(?:\(([^()]*)\))?( with time zone| without time zone)? ?((?:\[ ?\] ?)*)')
_PRECISION_AND_SCALE = re.compile(r" ?([0-9]{1,4}) ?(?:, ?([0-9]{1,4}) ?)?")

_SYNONYMS: Final = {
    "int": "int4",
    "decimal": "numeric",
    "dec": "numeric",
    "float": "float8",
    "char": "bpchar",  # pg_type's own "char" is another type, which SQL writes with its quotes
    "varchar": "varchar",
    "time": "time",
    "timestamp": "timestamp",
}


class NamedType(NamedTuple):
    """The type that a name means.

    Args:
        name: its name in pg_type.
        oid: its oid; 0 for the types of `VECTORS`, which are not built in.
        typmod: -1 for none.
    """

    name: str
    oid: int
    typmod: int


def _known_names() -> dict[str, int]:
    names = {builtin.name: oid for oid, builtin in BUILTIN_TYPES.items() if not builtin.element}
    by_name = dict(names)
    names |= {builtin.sql_name: oid for oid, builtin in BUILTIN_TYPES.items() if not builtin.element}
    return names | {synonym: by_name[name] for synonym, name in _SYNONYMS.items()}


_KNOWN: Final = _known_names()
_ARRAYS: Final = {builtin.element: oid for oid, builtin in BUILTIN_TYPES.items() if builtin.element}
_ARRAY_NAMES: Final = {BUILTIN_TYPES[oid].name: oid for oid in _ARRAYS.values()}


def type_named(text: str) -> NamedType:
    """Give the type that a name means; case and spaces make no difference.

    Raises:
        ConfigError: there is no such type, or a type other than numeric has modifiers, or no decimal column can hold
            such a numeric.
    """
    written = " ".join(text.lower().split())
    if written in VECTORS:
        return NamedType(written, 0, -1)
    if written in _ARRAY_NAMES:
        return NamedType(written, _ARRAY_NAMES[written], -1)
    parts = _PARTS.fullmatch(written)
    if parts is None:
        raise _unknown(text)
    name, modifiers, brackets = parts[1].strip() + (parts[3] or ""), parts[2], parts[4]
    oid = _KNOWN.get(name)
    if oid is None:
        raise _unknown(text)
    typmod = -1 if modifiers is None else _numeric_typmod(text, BUILTIN_TYPES[oid].name, modifiers)
    if brackets:  # the number of dimensions is no part of an array's type
        if oid not in _ARRAYS:
            raise ConfigError(f"there are no arrays of {name}")
        oid = _ARRAYS[oid]
    return NamedType(BUILTIN_TYPES[oid].name, oid, typmod)


def _numeric_typmod(text: str, name: str, modifiers: str) -> int:
    if name != "numeric":
        raise ConfigError(
            f"{text!r} has a modifier that changes nothing here", remedy="Leave it out: numeric alone has modifiers"
        )
    numbers = _PRECISION_AND_SCALE.fullmatch(modifiers)
    if numbers is None:
        raise ConfigError(f"{text!r} has no precision and scale", remedy="Write them as in numeric(20,4)")
    precision, scale = int(numbers[1]), int(numbers[2] or 0)
    if not 1 <= precision <= MAX_PRECISION or scale > precision:
        raise ConfigError(
            f"{text!r} is not what a decimal holds: up to {MAX_PRECISION} digits, the scale among them",
            remedy="The type text keeps any number of digits",
        )
    return (precision << 16 | scale) + 4  # the inverse of walreplay.types.numeric.precision_and_scale


def _unknown(text: str) -> ConfigError:
    written = text.lower().split("(")[0].split("[")[0].strip()
    close = difflib.get_close_matches(written, [*_KNOWN, *VECTORS], n=1, cutoff=0.5)
    remedy = f"The nearest name is {close[0]!r}" if close else "Write a built-in type, such as numeric(20,4) or text"
    return ConfigError(f"{text!r} is no type that PostgreSQL has built in", remedy=remedy)

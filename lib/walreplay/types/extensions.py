"""Extension types that are known by their name: hstore, citext, ltree, cube, pgvector's, PostGIS's.

Another type may have the same name.  So a value that is not in the extension's form is refused as malformed, and the
caller treats it as the type that it may be instead.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from walreplay.types.cursor import Cursor, malformed
from walreplay.types.floats import double_text, single_text
from walreplay.types.json import versioned_text
from walreplay.types.text import decode_text

if TYPE_CHECKING:
    from collections.abc import Callable

_VECTOR: Final = Struct("!hh")
"""Number of elements, nothing."""
_SPARSE: Final = Struct("!iii")
"""Number of elements, number of those that are not zero, nothing."""
_CUBE: Final = Struct("!I")
"""A bit for a point, the number of dimensions."""

_CUBE_POINT: Final = 0x8000_0000
_CUBE_DIMENSIONS: Final = 0x7FFF_FFFF
_MIN_EWKB: Final = 9
"""The least size in bytes: byte order, type, and a count or similar."""


def hstore_text(data: bytes, codec: str) -> str:
    """Write an hstore's bytes as the extension does."""
    cursor = Cursor(data, "hstore")
    pairs = []
    for _ in range(cursor.count(8)):
        key, value = cursor.present(), cursor.sized()
        pairs.append(f"{_hstore_quoted(key, codec)}=>{'NULL' if value is None else _hstore_quoted(value, codec)}")
    cursor.finish()
    return ", ".join(pairs)


def ltree_text(data: bytes, codec: str) -> str:
    """Write the bytes of an ltree, lquery or ltxtquery as the extension does."""
    return versioned_text(data, codec, "ltree")


def cube_text(data: bytes) -> str:
    """Write a cube's bytes as the extension does: a point once, any other cube as two corners."""
    cursor = Cursor(data, "cube")
    (header,) = cursor.unpack(_CUBE)
    size = header & _CUBE_DIMENSIONS
    corners = 1 if header & _CUBE_POINT else 2
    if cursor.left != 8 * size * corners:
        raise malformed("cube", "has another length than its dimensions ask for")
    numbers = cursor.unpack(Struct(f"!{size * corners}d"))
    lower, upper = numbers[:size], numbers[-size:] if size else ()
    if lower == upper:
        return _cube_corner(lower)
    return f"{_cube_corner(lower)},{_cube_corner(upper)}"


def vector_text(data: bytes) -> str:
    """Write the bytes of pgvector's vector as the extension does."""
    return _dense(data, "vector", "f")


def halfvec_text(data: bytes) -> str:
    """Write the bytes of pgvector's halfvec as the extension does: with as many digits as single precision has."""
    return _dense(data, "halfvec", "e")


def sparsevec_text(data: bytes) -> str:
    """Write the bytes of pgvector's sparsevec as the extension does; the text counts from 1, the bytes from 0."""
    cursor = Cursor(data, "sparsevec")
    size, count, _ = cursor.unpack(_SPARSE)
    if count < 0 or cursor.left != 8 * count:
        raise malformed("sparsevec", "has another length than its number of elements asks for")
    places = cursor.unpack(Struct(f"!{count}i"))
    numbers = cursor.unpack(Struct(f"!{count}f"))
    elements = (f"{place + 1}:{single_text(number)}" for place, number in zip(places, numbers, strict=True))
    return f"{{{','.join(elements)}}}/{size}"


def ewkb_text(data: bytes) -> str:
    """Write the bytes of PostGIS's geometry or geography as the extension does: its EWKB in hex."""
    if len(data) < _MIN_EWKB or data[0] > 1:
        raise malformed("geometry", "is not in EWKB")
    return data.hex().upper()


EXTENSION_TYPES: Final[dict[str, Callable[[bytes], str]]] = {
    "cube": cube_text,
    "geography": ewkb_text,
    "geometry": ewkb_text,
    "halfvec": halfvec_text,
    "sparsevec": sparsevec_text,
    "vector": vector_text,
}
"""The function that writes a type's bytes as text, by the type's name in any schema."""

EXTENSION_TEXTS: Final[dict[str, Callable[[bytes, str], str]]] = {
    "citext": decode_text,
    "hstore": hstore_text,
    "lquery": ltree_text,
    "ltree": ltree_text,
    "ltxtquery": ltree_text,
}
"""The same for types that contain text; the second argument is the text's codec."""


def _dense(data: bytes, what: str, code: str) -> str:
    cursor = Cursor(data, what)
    size, _ = cursor.unpack(_VECTOR)
    layout = Struct(f"!{max(size, 0)}{code}")
    if cursor.left != layout.size:
        raise malformed(what, "has another length than its number of elements asks for")
    return f"[{','.join(map(single_text, cursor.unpack(layout)))}]"


def _cube_corner(numbers: tuple[float, ...]) -> str:
    return f"({', '.join(map(double_text, numbers))})"


def _hstore_quoted(data: bytes, codec: str) -> str:
    text = decode_text(data, codec).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'

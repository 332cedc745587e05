"""Values in PostgreSQL's text and binary format, written by plain Python, and tiles that mix both.

Nothing here is shared with walreplay's own readers and writers.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from walreplay.decode.columns import BINARY, NULL, make_builder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from walreplay.types import ColumnType, Rescued

    Tile = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], int]

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
DAY = 86_400_000_000


class Binary(bytes):
    """A cell in binary format."""


class Value(NamedTuple):
    """One value in both formats."""

    text: str | bytes
    binary: bytes


Cell = str | bytes | None


def tile(cells: Sequence[Cell], *, lead: bytes = b"") -> Tile:
    """Lay cells one behind the other, with nothing in front of the first or behind the last unless asked."""
    buf, offset, length = bytearray(lead), [], []
    for cell in cells:
        data = cell.encode() if isinstance(cell, str) else cell or b""
        offset.append(len(buf))
        size = BINARY - len(data) if isinstance(cell, Binary) else len(data)
        length.append(NULL if cell is None else size)
        buf += data
    return (
        np.frombuffer(bytes(buf), dtype=np.uint8),
        np.array(offset, dtype=np.int32),
        np.array(length, dtype=np.int32),
        np.arange(len(cells), dtype=np.int32),
        0,
    )


def convert(
    column_type: ColumnType,
    cells: Sequence[Cell],
    names: Mapping[int, tuple[str, str]] | None = None,
    *,
    lead: bytes = b"",
    codec: str = "utf-8",
) -> tuple[pa.Array, list[Rescued]]:
    """Convert the cells in one append; the array is validated."""
    builder = make_builder(column_type, names or {}, codec=codec)
    rescued = builder.add_rows(*tile(cells, lead=lead))
    array = builder.finish()
    array.validate(full=True)
    return array, rescued or []


def image(column: tuple[pa.Array, list[Rescued]]) -> tuple[str, list[Rescued]]:
    """Return what two columns have to be equal in: NaN and the sign of zero are told."""
    return repr(column[0].to_pylist()), column[1]


# Values.


def numeric(sign: int, digits: int, scale: int) -> Value:
    """Return ``sign * digits * 10 ** -scale`` with so many decimal digits."""
    written = str(digits).rjust(scale + 1, "0")
    whole, fraction = written[: len(written) - scale], written[len(written) - scale :]
    negative = sign < 0 and digits > 0
    text = ("-" if negative else "") + whole + ("." + fraction if scale else "")
    groups, weight = [], -1
    if digits:
        padded = whole.rjust(-(-len(whole) // 4) * 4, "0")
        weight = len(padded) // 4 - 1
        padded += fraction.ljust(-(-len(fraction) // 4) * 4, "0")
        groups = [int(padded[at : at + 4]) for at in range(0, len(padded), 4)]
        while groups[0] == 0:
            groups.pop(0)
            weight -= 1
        while groups[-1] == 0:
            groups.pop()
    else:
        weight = 0
    header = struct.pack("!HhHH", len(groups), weight, 0x4000 if negative else 0, scale)
    return Value(text, header + struct.pack(f"!{len(groups)}H", *groups))


NOT_FINITE = tuple(
    Value(text, struct.pack("!HhHH", 0, 0, sign, 0))
    for text, sign in (("NaN", 0xC000), ("Infinity", 0xD000), ("-Infinity", 0xF000))
)


def day_text(days: int) -> tuple[str, str]:
    """Write days since 2000-01-01 as an ISO date, and the era behind it; any year."""
    cycles, rest = divmod(days, 146_097)  # the Gregorian calendar comes again after 400 years
    day = datetime.date(2000, 1, 1) + datetime.timedelta(rest)
    year = day.year + 400 * cycles
    return f"{year if year > 0 else 1 - year:04}-{day:%m-%d}", "" if year > 0 else " BC"


def date(days: int) -> Value:
    """Return a date of so many days since 2000-01-01; the largest and the smallest are the infinities."""
    infinity = "infinity" if days > 0 else "-infinity"
    text = infinity if days in (INT32_MAX, -INT32_MAX - 1) else "".join(day_text(days))
    return Value(text, struct.pack("!i", days))


def timestamp(micros: int, zone: str = "") -> Value:
    """Return a timestamp of so many microseconds since 2000-01-01; the largest and the smallest are the infinities."""
    if micros in (INT64_MAX, -INT64_MAX - 1):
        text = "infinity" if micros > 0 else "-infinity"
    else:
        days, rest = divmod(micros, DAY)
        seconds, fraction = divmod(rest, 1_000_000)
        day, era = day_text(days)
        text = f"{day} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        text += (f".{fraction:06}".rstrip("0") if fraction else "") + zone + era
    return Value(text, struct.pack("!q", micros))


def array(oid: int, elements: Sequence[Value | None], *, lower: int = 1, lengths: Sequence[int] | None = None) -> Value:
    """Return an array; ``lengths`` are those of its dimensions, the elements in row-major order."""
    lengths = ([len(elements)] if elements else []) if lengths is None else lengths
    binary = struct.pack("!iii", len(lengths), int(None in elements), oid)
    for length in lengths:
        binary += struct.pack("!ii", length, lower)
    texts = []
    for element in elements:
        binary += struct.pack("!i", -1) if element is None else struct.pack("!i", len(element[1])) + element[1]
        texts.append("NULL" if element is None else quoted(element.text))
    for length in reversed(lengths[1:]):
        texts = ["{" + ",".join(texts[at : at + length]) + "}" for at in range(0, len(texts), length)]
    bounds = "".join(f"[{lower}:{lower + length - 1}]" for length in lengths) + "=" if lower != 1 else ""
    return Value(bounds + "{" + ",".join(texts) + "}", binary)


def quoted(element: str | bytes) -> str:
    """Write an element as PostgreSQL does."""
    text = element if isinstance(element, str) else element.decode()
    if text and text.upper() != "NULL" and not set(text) & set('"\\{}, \t\n\v\f\r'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# What comes out.


def held(array: pa.Array) -> list[Any]:
    """Return the values as the column holds them: decimals unscaled, and days, times and booleans as integers."""
    if pa.types.is_decimal(array.type):
        with decimal.localcontext(decimal.Context(prec=60)):
            return [None if value is None else int(value.scaleb(array.type.scale)) for value in array.to_pylist()]
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    return list(array.to_pylist())


def singles(*numbers: float | None) -> list[float | None]:
    """Round numbers to single precision."""
    return [None if number is None else struct.unpack("f", struct.pack("f", number))[0] for number in numbers]

"""What the type families share: a column's type, and the three outcomes of reading a value.

A value is held exactly; or it is well formed but its column cannot hold it (`DoesNotFit`: NULL in the column, the text
rescued); or it is not in the form of its type at all (`ValueFormatError`: the run stops).  The ledger keeps a table's
column types as JSON (`type_to_dict`), independently of the configuration.

Reading a value's bytes in binary format: every length is checked before the slice.

The errors name the type and never the bytes.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, fields
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from walreplay.errors import ValueFormatError

if TYPE_CHECKING:
    from collections.abc import Callable


class Meaning(Enum):
    """What values are to conversions between types."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    NUMERIC = "numeric"
    """numeric, also where its column is a string."""
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    LIST = "list"
    """Arrays and pgvector.  A list with a text form of its own is `OTHER`, which also converts what was its text."""
    TEXT = "text"
    JSON = "json"
    CLOCK = "clock"
    CUSTOM = "user-defined"
    OTHER = "other"
    """Built-in types that each have a form of their own, such as uuid."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Family:
    """A family of types: all that the package knows of it.  `walreplay.types.families` has the families.

    Args:
        name: as the ledger has it.
        meaning: what the values are to conversions; None if the type's name says it, as for text.
        arrow: the column's type; None if it depends on the type's modifiers or elements.
        read: reads a text in any type's form; see `walreplay.types.families.read_overridden`.
        write: writes a column as PostgreSQL sends it, timestamptz in UTC.
        cast: the same as a cast to text does; None if that is the same.
        types: the built-in types, by their names in pg_type.
        misfits: what of a value that is sent as such a type does not fit, for the documentation; empty if all values
            fit.  Only then no value is rescued.
        inexact: where different values may be one in the column, how these are read, and the remedy for a key column
            (``{}``), for errors; None if all stay apart.
        keeps_apart: the built-in types whose different values stay different when they are read as this family; None
            for all types.
        holds_text: texts may have characters outside of ASCII.
        elements: the type of pgvector's elements, which are real and finite; None for all other families, arrays too.
    """

    name: str
    meaning: Meaning | None
    arrow: pa.DataType | None
    read: Callable[[str, ColumnType], Any]
    write: Callable[[pa.Array, ColumnType], pa.Array]
    cast: Callable[[pa.Array, ColumnType], pa.Array] | None = None
    types: tuple[str, ...] = ()
    misfits: str = ""
    limits: tuple[int, int] | None = None
    inexact: tuple[str, str] | None = None
    keeps_apart: frozenset[str] | None = frozenset()
    holds_text: bool = False
    elements: ColumnType | None = None

    def __post_init__(self) -> None:
        FAMILIES[self.name] = self

    def __reduce__(self) -> tuple[Callable[[str], Family], tuple[str]]:
        # There is one record of each family in every process.
        return _family_named, (self.name,)

    def __repr__(self) -> str:
        return self.name


FAMILIES: Final[dict[str, Family]] = {}  # All families by name


def _family_named(name: str) -> Family:
    return FAMILIES[name]


Label: TypeAlias = tuple[int, tuple[str, ...]]
"""An enum's label: its oid, and the texts that it has had, the present one last."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type: what PostgreSQL sends, and the column that it becomes.

    Args:
        arrow: the column's Arrow type.
        family: how its values are read and written.
        postgres_name: the type's SQL name, with precision and scale for numeric.
        element: the type of an array's elements; None for other types.
        delimiter: the character between an array's elements.
        oid: the type that is sent, which decides how binary values are read: a built-in type's oid (for a domain, that
            of its base type), or a user-defined type's own.  0 if it is not known.
        typmod: the modifier of that type, -1 for none.  A domain's modifier does not apply to its base type.
        overridden: the configuration chooses another type than the one that is sent.  `arrow`, `family` and
            `postgres_name` are those of the chosen type, whose `Family.read` reads the values.  A value that
            is not in the chosen type's form is rescued.
        labels: of an enum, or an array of one, the labels that have had other texts; empty if none had, or nothing is
            announced.
        labels_in_array: the labels are those of an array's elements.
        as_sent: the values are as they were sent, so that some may have a label as it was before.
    """

    arrow: pa.DataType
    family: Family
    postgres_name: str
    element: ColumnType | None = None
    delimiter: str = ","
    oid: int = 0
    typmod: int = -1
    overridden: bool = False
    labels: tuple[Label, ...] = ()
    labels_in_array: bool = False
    as_sent: bool = False

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        from pydantic_core import core_schema  # workers have none

        written = core_schema.plain_serializer_function_ser_schema(type_to_dict)
        return core_schema.no_info_plain_validator_function(type_from_dict, serialization=written)


class Rescued(NamedTuple):
    """A value that its column's type cannot hold: the number of its row in one append, and PostgreSQL's text."""

    row: int
    text: str


class DoesNotFit(Exception):
    """The text is well formed, but the column's type cannot hold its value."""


def type_to_dict(column_type: ColumnType) -> dict[str, Any]:
    """Return a type as values that JSON can express; fields with their default value are left out."""
    values: dict[str, Any] = {}
    for field in fields(ColumnType):
        value = getattr(column_type, field.name)
        if field.name == "arrow":
            schema = pa.schema([pa.field("", value)])  # Arrow's own form has all parameters of a type
            values["arrow"] = base64.b64encode(schema.serialize().to_pybytes()).decode()
        elif field.name == "element":
            if value is not None:
                values["element"] = type_to_dict(value)
        elif value != field.default:
            values[field.name] = value.name if isinstance(value, Family) else value
    return values


def type_from_dict(values: dict[str, Any]) -> ColumnType:
    """Read what `type_to_dict` gave."""
    arguments = dict(values)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(arguments["arrow"])))
    arguments["arrow"] = schema.field(0).type
    arguments["family"] = FAMILIES[arguments["family"]]  # by name: the functions in it are no JSON
    if "labels" in arguments:
        arguments["labels"] = tuple((oid, tuple(texts)) for oid, texts in arguments["labels"])
    if "element" in arguments:
        arguments["element"] = type_from_dict(arguments["element"])
    return ColumnType(**arguments)


INT32: Final = Struct("!i")  # A count, or the length of the bytes that follow; a length of -1 stands for NULL

_NULL: Final = -1


def malformed(what: str, problem: str) -> ValueFormatError:
    """Make the error for a value that is not in its type's binary form."""
    return ValueFormatError(f"a {what} in binary format {problem}")


def unpack(layout: Struct, data: bytes, what: str) -> tuple[Any, ...]:
    """Unpack a value that has exactly the size of its layout.

    Raises:
        ValueFormatError: it has another size.
    """
    if len(data) != layout.size:
        raise malformed(what, f"has {len(data)} bytes instead of {layout.size}")
    return layout.unpack(data)


def fixed_writer(layout: Struct, what: str, write: Callable[..., str] = str) -> Callable[[bytes], str]:
    """Return the function that writes the bytes of a type of fixed size as text."""

    def text(data: bytes) -> str:
        return write(*unpack(layout, data, what))

    return text


class Cursor:
    """A position in a value's bytes that only moves forward.

    All methods raise `ValueFormatError` if the bytes are too few or not in the expected form.
    """

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """Take the next bytes."""
        if not 0 <= size <= self.left:  # a negative size comes from damaged bytes
            raise malformed(self._what, f"has {self.left} bytes left instead of {size}")
        start = self._at
        self._at += size
        return self._data[start : self._at]

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Take the fields of a layout."""
        return layout.unpack(self.take(layout.size))

    def count(self, item_size: int, layout: Struct = INT32) -> int:
        """Take the number of the items that follow.

        Args:
            item_size: the least number of bytes that an item has.
            layout: of the number.
        """
        (count,) = self.unpack(layout)
        # A count that the bytes cannot hold is refused before anything loops over it.
        if not 0 <= count * item_size <= self.left:
            raise malformed(self._what, "counts more items than it has bytes")
        return int(count)

    def sized(self) -> bytes | None:
        """Take a length and the bytes that it counts; None is NULL."""
        (size,) = INT32.unpack(self.take(INT32.size))
        return None if size == _NULL else self.take(size)

    def present(self) -> bytes:
        """Take a length and the bytes that it counts, where NULL is not allowed."""
        data = self.sized()
        if data is None:
            raise malformed(self._what, "has NULL where a value has to be")
        return data

    def terminated(self) -> bytes:
        """Take the bytes before the next NUL, and the NUL."""
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise malformed(self._what, "has a text without an end")
        text = self.take(end - self._at)
        self._at += 1  # the NUL itself
        return text

    def finish(self) -> None:
        """Check that no bytes are left."""
        if self.left:
            raise malformed(self._what, f"has {self.left} bytes too many")

"""Reading a value's bytes in binary format: every length is checked before the slice.

The errors name the type and never the bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from walreplay.errors import ValueFormatError

INT32: Final = Struct("!i")
"""A count, or the length of the bytes that follow; a length of -1 stands for NULL."""

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


class Cursor:
    """A position in a value's bytes that only moves forward.

    All methods raise `ValueFormatError` if the bytes are too few or not in the expected form.

    Args:
        data: the value.
        what: the type's name, for errors.
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
        if not 0 <= size <= self.left:
            raise malformed(self._what, f"has {self.left} bytes left instead of {size}")
        start = self._at
        self._at += size
        return self._data[start : self._at]

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Take the fields of a layout."""
        return layout.unpack(self.take(layout.size))

    def count(self, item_size: int) -> int:
        """Take the number of the items that follow.

        Args:
            item_size: the least number of bytes that an item has.
        """
        (count,) = INT32.unpack(self.take(INT32.size))
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
        self._at += 1
        return text

    def finish(self) -> None:
        """Check that no bytes are left."""
        if self.left:
            raise malformed(self._what, f"has {self.left} bytes too many")

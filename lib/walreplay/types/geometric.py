"""point, line, lseg, box, path, polygon and circle: doubles, each written with its shortest exact digits."""

from __future__ import annotations

from struct import Struct
from typing import Final

from walreplay.types.cursor import Cursor, malformed, unpack
from walreplay.types.numbers import double_text

_POINT: Final = Struct("!dd")
_LINE: Final = Struct("!ddd")
"""A, B and C of Ax + By + C = 0."""
_TWO_POINTS: Final = Struct("!dddd")
_CIRCLE: Final = Struct("!ddd")
"""The centre's x and y, and the radius."""


def point_text(data: bytes) -> str:
    """Write a point's bytes as PostgreSQL does."""
    return _point(*unpack(_POINT, data, "point"))


def line_text(data: bytes) -> str:
    """Write a line's bytes as PostgreSQL does."""
    return f"{{{','.join(map(double_text, unpack(_LINE, data, 'line')))}}}"


def lseg_text(data: bytes) -> str:
    """Write an lseg's bytes as PostgreSQL does."""
    x1, y1, x2, y2 = unpack(_TWO_POINTS, data, "lseg")
    return f"[{_point(x1, y1)},{_point(x2, y2)}]"


def box_text(data: bytes) -> str:
    """Write a box's bytes as PostgreSQL does."""
    x1, y1, x2, y2 = unpack(_TWO_POINTS, data, "box")
    return f"{_point(x1, y1)},{_point(x2, y2)}"


def path_text(data: bytes) -> str:
    """Write a path's bytes as PostgreSQL does: an open path stands in brackets."""
    cursor = Cursor(data, "path")
    closed = cursor.take(1)
    if closed not in (b"\0", b"\1"):
        raise malformed("path", "is neither open nor closed")
    points = _points(cursor)
    return f"({points})" if closed == b"\1" else f"[{points}]"


def polygon_text(data: bytes) -> str:
    """Write a polygon's bytes as PostgreSQL does."""
    return f"({_points(Cursor(data, 'polygon'))})"


def circle_text(data: bytes) -> str:
    """Write a circle's bytes as PostgreSQL does."""
    x, y, radius = unpack(_CIRCLE, data, "circle")
    return f"<{_point(x, y)},{double_text(radius)}>"


def _points(cursor: Cursor) -> str:
    points = [_point(*cursor.unpack(_POINT)) for _ in range(cursor.count(_POINT.size))]
    cursor.finish()
    return ",".join(points)


def _point(x: float, y: float) -> str:
    return f"({double_text(x)},{double_text(y)})"

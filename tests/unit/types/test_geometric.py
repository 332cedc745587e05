"""Points and what is made of them."""

from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types.special_forms import (
    box_text,
    circle_text,
    line_text,
    lseg_text,
    path_text,
    point_text,
    polygon_text,
)


@pytest.mark.parametrize(
    ("write", "data", "text"),
    [
        (point_text, pack("!dd", 1.5, -0.0), "(1.5,-0)"),
        (point_text, pack("!dd", float("nan"), float("inf")), "(NaN,Infinity)"),
        (line_text, pack("!ddd", 1, -1, 1e20), "{1,-1,1e+20}"),
        (lseg_text, pack("!dddd", 1, 2, 3, 4), "[(1,2),(3,4)]"),
        (box_text, pack("!dddd", 3, 4, 1, 2), "(3,4),(1,2)"),
        (path_text, pack("!Bidddd", 1, 2, 1, 2, 3, 4), "((1,2),(3,4))"),
        (path_text, pack("!Bidd", 0, 1, 1, 2), "[(1,2)]"),
        (polygon_text, pack("!idd", 1, 1, 2), "((1,2))"),
        (circle_text, pack("!ddd", 1, 2, 3), "<(1,2),3>"),
    ],
)
def test_a_shape_is_written_as_the_server_writes_it(write, data, text):
    assert write(data) == text


@pytest.mark.parametrize(
    ("write", "data"),
    [
        (point_text, pack("!d", 1)),
        (box_text, b""),
        (path_text, pack("!Bidd", 2, 1, 1, 2)),
        (path_text, pack("!Bidd", 1, 2, 1, 2)),
        (polygon_text, pack("!iddd", 1, 1, 2, 3)),
        (polygon_text, pack("!i", -1)),
    ],
)
def test_what_no_server_sends_is_refused(write, data):
    with pytest.raises(ValueFormatError):
        write(data)

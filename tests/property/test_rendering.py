"""Whatever the bytes are, a value is written, or refused with an error of our own."""

from contextlib import suppress
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from walreplay.errors import ValueFormatError
from walreplay.types.builtin import BUILTIN_TYPES, EXTENSION_TEXTS, EXTENSION_TYPES
from walreplay.types.rendering import NotRendered, render

_BUILTIN = st.sampled_from(sorted(BUILTIN_TYPES))
_NAMES = st.sampled_from(sorted({*EXTENSION_TEXTS, *EXTENSION_TYPES, "mood", "_mood", "address"}))
_NUMBERS = st.integers(-3, 20).map(lambda number: pack("!i", number))
_OIDS = st.one_of(_BUILTIN, st.integers(20_000, 20_002)).map(lambda oid: pack("!I", oid))
_PIECES = st.one_of(st.binary(max_size=9), _NUMBERS, _NUMBERS, _OIDS, st.just(b"\xff\xff\xff\xff"))
_BYTES = st.lists(_PIECES, max_size=14).map(b"".join)


@given(_BYTES, _BUILTIN)
def test_the_bytes_of_a_builtin_type_are_written_or_refused(data, oid):
    with suppress(ValueFormatError, NotRendered):
        assert isinstance(render(data, oid, -1, {}), str)


@given(_BYTES, _NAMES)
def test_the_bytes_of_a_user_defined_type_are_written_or_not_rendered(data, name):
    names = {20_000: ("public", name), 20_001: ("public", "mood")}
    with suppress(NotRendered):
        assert isinstance(render(data, 20_000, -1, names), str)


@given(st.integers(1, 6), st.lists(_NUMBERS, max_size=12), _OIDS, _BYTES)
def test_the_bytes_of_an_array_are_written_or_refused(dimensions, shape, element, rest):
    data = pack("!ii", dimensions, 0) + element + b"".join(shape) + rest
    for oid in (int.from_bytes(element, "big"), 1009, 1007, 22):
        with suppress(ValueFormatError, NotRendered):
            render(data, oid, -1, {20_000: ("public", "_mood"), 20_001: ("public", "mood")})

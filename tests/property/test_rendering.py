"""Whatever the bytes are, a value is written, or refused with an error of our own."""

from contextlib import suppress
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from walreplay.errors import ValueFormatError
from walreplay.types.builtin import BUILTIN_TYPES, EXTENSION_TEXTS, EXTENSION_TYPES
from walreplay.types.rendering import NotRendered, render

_BUILTIN = st.sampled_from(sorted(BUILTIN_TYPES))
_EXTENSIONS = {*EXTENSION_TEXTS, *EXTENSION_TYPES}
_NAMES = st.sampled_from(sorted({*_EXTENSIONS, "mood", "_mood", "address"}))
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


@given(st.lists(st.tuples(_OIDS, st.none() | _BYTES), min_size=1, max_size=4), st.sampled_from(sorted(_EXTENSIONS)))
def test_a_composite_is_the_same_whatever_it_is_called(fields, name):
    data = pack("!i", len(fields)) + b"".join(
        oid + (pack("!i", -1) if field is None else pack("!i", len(field)) + field) for oid, field in fields
    )

    def written(name):
        try:
            return render(data, 20_000, -1, {20_000: ("public", name), 20_001: ("public", "mood")})
        except NotRendered:
            return None

    assert written(name) == written("address")


@given(st.integers(1, 6), st.lists(_NUMBERS, max_size=12), _OIDS, _BYTES)
def test_the_bytes_of_an_array_are_written_or_refused(dimensions, shape, element, rest):
    data = pack("!ii", dimensions, 0) + element + b"".join(shape) + rest
    for oid in (int.from_bytes(element, "big"), 1009, 1007, 22):
        with suppress(ValueFormatError, NotRendered):
            render(data, oid, -1, {20_000: ("public", "_mood"), 20_001: ("public", "mood")})

"""Text, bytea and arrays against Python's own."""

from hypothesis import given, settings
from hypothesis import strategies as st

from support.binary_cells import convert
from support.extent import examples
from walreplay.errors import ValueFormatError
from walreplay.types import DoesNotFit, resolve
from walreplay.types.composite import elements_from_text
from walreplay.types.text import decode_text

BYTEA, TEXT, INT4S, TEXTS = 17, 25, 1007, 1009
few = settings(max_examples=examples(100), deadline=None)
postgres_text = st.text(st.characters(exclude_characters="\0", codec="utf-8"))


def converted(oid, texts):
    array, rescued = convert(resolve(oid, -1, {}), texts)
    assert not rescued
    return array.to_pylist()


@few
@given(st.lists(st.none() | postgres_text, max_size=20))
def test_text_stays_as_it_is(texts):
    assert converted(TEXT, texts) == texts


@few
@given(st.lists(st.binary(max_size=30) | postgres_text.map(str.encode), max_size=6))
def test_text_is_taken_exactly_when_python_decodes_it(cells):
    try:
        expected = [decode_text(cell) for cell in cells]
    except ValueFormatError:
        expected = None
    try:
        found = converted(TEXT, cells)
    except ValueFormatError:
        found = None
    assert found == expected


def escaped(data: bytes) -> str:
    return "".join("\\\\" if b == 92 else chr(b) if 32 <= b < 127 else f"\\{b:03o}" for b in data)


@few
@given(st.lists(st.none() | st.tuples(st.binary(max_size=40), st.booleans()), max_size=10))
def test_bytea_is_the_same_in_both_forms(drawn):
    texts = [None if d is None else "\\x" + d[0].hex() if d[1] else escaped(d[0]) for d in drawn]
    assert converted(BYTEA, texts) == [None if d is None else d[0] for d in drawn]


def quoted(element: str | None) -> str:
    if element is None:
        return "NULL"
    if element and element.upper() != "NULL" and not set(element) & set('"\\{}, \t\n\v\f\r'):
        return element
    return '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'


@few
@given(
    st.lists(
        st.none()
        | st.lists(st.none() | postgres_text | st.text('ab,"\\{} ', max_size=6) | st.sampled_from(["NULL", "null"])),
        max_size=8,
    )
)
def test_arrays_of_text_come_back_as_written(arrays):
    texts = [None if array is None else "{" + ",".join(map(quoted, array)) + "}" for array in arrays]
    assert converted(TEXTS, texts) == arrays


@few
@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)), max_size=8))
def test_arrays_of_integers_are_pythons(arrays):
    texts = [None if a is None else "{" + ",".join("NULL" if e is None else str(e) for e in a) + "}" for a in arrays]
    assert converted(INT4S, texts) == arrays


@settings(max_examples=examples(300), deadline=None)
@given(st.text('a1N,"\\{}[]:=', max_size=10) | st.text('a,"\\', max_size=8).map("{{{}}}".format))
def test_the_kernel_and_the_exact_reader_of_arrays_agree(text):
    try:
        expected = elements_from_text(text, ",")
    except (DoesNotFit, ValueFormatError) as refused:
        expected = type(refused)
    try:
        array, rescued = convert(resolve(TEXTS, -1, {}), [text])
        found = DoesNotFit if rescued else array[0].as_py()
    except ValueFormatError:
        found = ValueFormatError
    assert found == expected

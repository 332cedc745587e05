"""Renamed labels: which texts become which, and how they are written."""

import pyarrow as pa
import pytest

from walreplay.evolution.convert import convert, is_widening, keeps_values, labels_as_sent, renamed_labels, with_labels
from walreplay.types import resolve
from walreplay.types.base import type_from_dict, type_to_dict
from walreplay.types.registry import TypeOptions

NAMES = {70: ("shop", "mood"), 71: ("shop", "_mood"), 80: ("shop", "other")}
MOOD, MOODS, OTHER = (resolve(oid, -1, NAMES) for oid in (70, 71, 80))

RENAMED = ((1, ("sad", "blue")),)
TWICE = ((1, ("sad", "blue", "azure")),)
SWAPPED = ((1, ("a", "t", "b")), (2, ("b", "a")))
AGAIN = ((1, ("sad", "blue")), (3, ("sad",)))


def mood(labels, kind=MOOD):
    return with_labels(kind, labels, in_array=kind is MOODS)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((), RENAMED, {"sad": "blue"}),
        ((), TWICE, {"sad": "azure"}),
        (RENAMED, TWICE, {"blue": "azure"}),
        (RENAMED, RENAMED, {}),
        ((), ((1, ("sad", "blue", "sad")),), {}),
        ((), SWAPPED, {"a": "b", "b": "a"}),
        (SWAPPED, SWAPPED, {}),
        # Rows that are older than the second label have the first one's text.
        ((), AGAIN, {"sad": "blue"}),
        ((), ((1, ("sad", "blue")), (3, ("sad", "gloom"))), {"sad": "blue"}),
        (AGAIN, ((1, ("sad", "blue")), (3, ("sad", "gloom"))), {"sad": "gloom"}),
        # Rows that were loaded behind the rename have all labels as of then, and one text each.
        (((1, ("b",)), (2, ("a",))), SWAPPED, {}),
        (((1, ("blue",)), (3, ("sad",))), AGAIN, {}),
        (((1, ("blue",)),), TWICE, {"blue": "azure", "sad": "azure"}),
        (((1, ("t",)), (2, ("b",))), SWAPPED, {"t": "b", "b": "a", "a": "b"}),
        # Nothing is announced any more.
        (RENAMED, (), {}),
    ],
)
def test_the_texts_of_two_moments(old, new, expected):
    assert renamed_labels(mood(old), mood(new)) == expected
    assert keeps_values(mood(old), mood(new)) is not bool(expected)
    assert not is_widening(mood(old), mood(new))


@pytest.mark.parametrize(
    ("labels", "end", "expected"),
    [
        # As sent behind the rename: the old text has no other meaning.
        (RENAMED, RENAMED, {"sad": "blue"}),
        (TWICE, TWICE, {"sad": "azure", "blue": "azure"}),
        ((), TWICE, {"sad": "azure"}),
        # Both are labels: what is sent is meant.
        (SWAPPED, SWAPPED, {"t": "b"}),
        ((), SWAPPED, {"a": "b", "b": "a"}),
        (((1, ("a", "t")),), SWAPPED, {"t": "b", "a": "b", "b": "a"}),
        (AGAIN, AGAIN, {}),
        (RENAMED, AGAIN, {"sad": "blue"}),
        # Told within what was rolled back.
        (RENAMED, (), None),
    ],
)
def test_values_as_they_are_sent(labels, end, expected):
    sent = labels_as_sent(mood(end), labels)
    assert (None if sent is None else renamed_labels(sent, mood(end))) == (expected or None)


def test_other_types_have_other_labels():
    assert renamed_labels(OTHER, mood(RENAMED)) == {}
    assert renamed_labels(resolve(25, -1, {}), mood(RENAMED)) == {}
    read = resolve(70, -1, NAMES, options=TypeOptions(), override="int4")
    assert with_labels(read, RENAMED, in_array=False) is read


def test_values_are_converted_all_at_once():
    values = pa.array(["a", None, "b", "c", "a"])
    assert convert(values, None, (MOOD, mood(SWAPPED)))[0].to_pylist() == ["b", None, "a", "c", "b"]
    assert convert(values[1:], None, (MOOD, mood(SWAPPED)))[0].to_pylist() == [None, "a", "c", "b"]
    assert convert(pa.array([], pa.string()), None, (MOOD, mood(SWAPPED)))[0].to_pylist() == []
    assert convert(pa.nulls(2, pa.string()), None, (MOOD, mood(SWAPPED)))[0].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{a,b,NULL,a}", "{b,a,NULL,b}"),
        ("{}", "{}"),
        ("{{a,b},{b,c}}", "{{b,a},{a,c}}"),
        ("[0:1]={a,b}", "[0:1]={b,a}"),
        ('{"so so",a}', '{"a,\\\\ \\"b\\"",b}'),
        ('{"NULL",a}', "{null_,b}"),
        (None, None),
    ],
)
def test_an_array_has_each_element_converted(before, after):
    more = ((5, ("so so", 'a,\\ "b"')), (6, ("NULL", "null_")))
    found, left = convert(pa.array([before], pa.string()), None, (MOODS, mood((*SWAPPED, *more), MOODS)))
    assert (found.to_pylist(), left) == ([after], None)


def test_a_text_that_is_rescued_stays_so():
    rescued = pa.array([None, "\\x00"])
    found, left = convert(pa.array(["a", None]), rescued, (MOOD, mood(SWAPPED)))
    assert (found.to_pylist(), left.to_pylist()) == (["b", None], [None, "\\x00"])


def test_they_are_stored_with_the_type():
    for kind in (MOOD, mood(SWAPPED), mood(RENAMED, MOODS)):
        assert type_from_dict(type_to_dict(kind)) == kind

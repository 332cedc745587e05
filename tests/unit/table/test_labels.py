"""Labels in a run's columns: those of the run's end, however the column is shown."""

import json
from dataclasses import dataclass, replace

import pytest

from walreplay.decode.announcements import Layouts
from walreplay.evolution.convert import renamed_labels
from walreplay.evolution.shapes import MirrorColumn, SourceColumn, TableShape
from walreplay.fold.change_log import hashed
from walreplay.fold.events import Identity, Mode
from walreplay.protocol import messages as m
from walreplay.table.versions import labelled, with_whole_keys
from walreplay.types import resolve

NAMES = {70: ("shop", "mood"), 71: ("shop", "_mood")}
MOOD, MOODS = (resolve(oid, -1, NAMES) for oid in (70, 71))
COLUMN = m.Column("m", 70, -1, True)
SALT = b"pepper"


def layouts(*texts):
    """Announce an enum with a label that had these texts, or with labels like these."""
    found = Layouts("walreplay")
    for lsn, text in enumerate(texts, 1):
        labels = [[1, text]] if isinstance(text, str) else text
        values = {"walreplay": 1, "type": 70, "array": 71, "schema": "shop", "name": "mood", "labels": labels}
        found.take(m.Message(True, lsn, "walreplay", json.dumps(values).encode()))
    return found


def test_a_column_has_the_labels_of_the_end():
    for type_oid, kind in ((70, MOOD), (71, MOODS)):
        column = replace(COLUMN, type_oid=type_oid)
        typed, sent = labelled(column, kind, layouts("a", "x"), None)
        assert (typed.labels, typed.labels_in_array) == (((1, ("a", "x")),), kind is MOODS)
        assert sent is not None
        assert renamed_labels(sent, typed) == renamed_labels(kind, typed) == {"a": "x"}
        assert labelled(column, kind, layouts("a"), None) == (kind, None)
        assert labelled(column, kind, Layouts(), None) == (kind, None)


def test_hashes_of_labels_are_renamed_where_they_are_those_of_values():
    typed, sent = labelled(COLUMN, MOOD, layouts("a", "x"), SALT)
    before, after = (hashed(text, MOOD, SALT) for text in "ax")
    assert sent is not None
    assert renamed_labels(sent, typed) == {before: after}
    typed, sent = labelled(replace(COLUMN, type_oid=71), MOODS, layouts("a", "x"), SALT)
    assert (typed.labels, sent) == ((), None)


@pytest.mark.parametrize("applied", [(), ("a",), ("a", "x")])
@pytest.mark.parametrize("salt", [None, SALT])
def test_loaded_rows_have_the_labels_of_their_description(applied, salt):
    """Whatever is announced by the load, they are converted by what comes behind their LSN alone."""

    def shown(text):
        return text if salt is None else hashed(text, MOOD, salt)

    loaded, sent = labelled(replace(COLUMN, described_labels=((1, "x"), (2, "a"))), MOOD, layouts(*applied), salt)
    assert sent is None
    for behind, expected in ((), {}), (("y",), {"x": "y"}):
        end, _ = labelled(COLUMN, MOOD, layouts("a", "x", *behind), salt)
        assert renamed_labels(loaded, end) == {shown(was): shown(now) for was, now in expected.items()}
    # Rows that the table has had until then, as those of a history.
    before, _ = labelled(COLUMN, MOOD, layouts(*applied), salt)
    assert renamed_labels(before, loaded) == ({shown("a"): shown("x")} if applied == ("a",) else {})


def test_what_was_renamed_before_a_load_and_applied_converts_older_rows_alone():
    told = [[1, "b"], [2, "a"]]
    for announced, described, expected in (
        (("a", "x"), [(1, "x")], {"a": "x"}),
        (([[1, "a"], [2, "b"]], told), told, {"a": "b", "b": "a"}),
        (("a", "c", [[2, "a"], [1, "c"]]), [(2, "a"), (1, "c")], {"a": "c"}),
    ):
        column = replace(COLUMN, described_labels=tuple((oid, text) for oid, text in described))
        loaded, _ = labelled(column, MOOD, layouts(*announced), None)
        end, _ = labelled(COLUMN, MOOD, layouts(*announced), None)
        # Those of a history, whose table was not written to since they were renamed.
        assert renamed_labels(MOOD, loaded) == expected
        assert renamed_labels(loaded, end) == {}


def test_loaded_arrays_have_the_labels_of_their_description():
    column = replace(COLUMN, type_oid=71, described_labels=((1, "x"),))
    loaded, sent = labelled(column, MOODS, layouts("a"), None)
    assert (loaded.labels, loaded.labels_in_array, sent) == (((1, ("a", "x")),), True, None)
    assert labelled(column, MOODS, layouts("a"), SALT)[0].labels == ()


@dataclass(frozen=True)
class _Version:
    """As much of a relation version as counts."""

    columns: tuple[SourceColumn, ...]
    identity: Identity


@pytest.mark.parametrize(
    ("announced", "before", "mode", "expected"),
    [
        # A rename within the run, and since the run before.
        (("a",), ("a", "x"), Mode.KEYED, [True, True]),
        (("a", "x"), ("a",), Mode.KEYED, [True, True]),
        # All of it was before: the key stays as it is sent, and so does a whole row.
        (("a", "x"), ("a", "x"), Mode.KEYED, [False, True]),
        (("a", "x"), None, Mode.KEYED, [False, True]),
        (("a", "x"), ("a", "x"), Mode.MULTISET, [False, False]),
        (("a", "x"), ("a", "x"), Mode.APPEND, [True, True]),
    ],
)
def test_what_tells_rows_apart_is_converted_in_the_run_of_a_rename(announced, before, mode, expected):
    end, columns = layouts("a", "x"), []
    for name in ("m", "other"):
        column = (
            layouts(*announced).annotated(m.Relation(9, "shop", "t", "d", (replace(COLUMN, name=name),))).columns[0]
        )
        typed, sent = labelled(column, MOOD, end, None)
        columns.append(SourceColumn(name, name, typed, sent=sent))
    version = _Version(tuple(columns), Identity(mode, (0,) if mode is Mode.KEYED else ()))
    shape = None
    if before is not None:
        typed, _ = labelled(COLUMN, MOOD, layouts(*before), None)
        shape = TableShape(tuple(MirrorColumn(n, name, name, typed) for n, name in enumerate(("m", "other"))))
    ((start, found),) = with_whole_keys([(5, version)], shape)
    assert start == 5
    assert [column.sent is not None for column in found.columns] == expected

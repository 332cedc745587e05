import json
from dataclasses import replace

import pytest

from walreplay.decode.announcements import EnumLabels, Layout, LayoutColumn, Layouts, is_announcement, layout_of
from walreplay.protocol import messages as m

TABLE = m.Relation(9, "shop", "t", "d", (m.Column("id", 23, -1, True), m.Column("note", 25, -1, False)))
SAID = {
    "walreplay": 1,
    "oid": 9,
    "natts": 3,
    "xids": [7],
    "columns": [{"n": 1, "name": "id", "type": 23}, {"n": 3, "name": "note", "type": 25, "missing": "new"}],
}


def said(lsn=100, prefix="walreplay", **changes):
    content = json.dumps({**SAID, **changes}, separators=(" , ", " : ")).encode()
    return m.Message(True, lsn, prefix, content)


def numbers(relation):
    return [(column.number, column.missing) for column in relation.columns]


def dropped(lsn):
    return m.Message(True, lsn, "walreplay", b'{"walreplay": 1, "oid": 9, "dropped": true}')


def layouts(*messages, prefix="walreplay"):
    found = Layouts(prefix)
    found.add(layout for message in messages if (layout := found.read(message)) is not None)
    return found


def test_an_announcement_is_read():
    message = said()
    assert is_announcement(message)
    columns = (LayoutColumn(1, "id", 23), LayoutColumn(3, "note", 25, "new"))
    assert layout_of(message) == Layout(9, 100, 3, columns, (7,))


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        (None, ""),
        ("", ""),
        ("It's\nours", "It's\nours"),
        ("x" * 5000, "x" * 4095 + "…"),
        ("\ud83d\ude00 \ud83d", "😀 �"),
        ("a\0b", "a�b"),
    ],
)
def test_comments_are_read(comment, found):
    column = {"n": 1, "name": "id", "type": 23, "comment": comment}
    layout = layout_of(said(comment=comment, columns=[column]))
    assert (layout.comment, [one.comment for one in layout.columns]) == (found, [found])
    # What is stored with the run can be written.
    assert layout.comment.encode().decode() == found


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'{"walreplay": 2}',
        b'{"walreplay": 1, "type": 5, "labels": []}',
        b'{"walreplay": 1, "type": 25, "array": 1009, "schema": "s", "name": "e", "labels": [[1, "a"], [1, "b"]]}',
        b'{"walreplay": 1, "type": 25, "array": 1009, "schema": "s", "name": "e", "labels": [[1, "a"], [2, "a"]]}',
        b'{"walreplay": 1, "type": 25, "array": 1009, "schema": "s", "name": "e", "labels": [[1, "\\ud800"]]}',
        b'{"walreplay": 1, "type": 25, "array": 1009, "schema": "s", "name": "e", "labels": [[1, 5]]}',
        b'{"walreplay": 1, "type": 25, "array": 1009, "schema": "s", "name": "e", "labels": [1]}',
        b'{"walreplay"' + b"[" * 100_000,
        b'{"walreplay": 1, "oid": 9, "natts": 1' + b"0" * 5000 + b', "columns": []}',
        *(
            json.dumps(SAID | changes).encode()
            for changes in (
                {"oid": -1},
                {"oid": "9"},
                {"oid": True},
                {"natts": 2},
                {"natts": 10**9},
                {"xids": 7},
                {"xids": [-1]},
                {"columns": 1},
                {"columns": "id"},
                {"columns": [1]},
                {"columns": {"n": 1}},
                {"columns": [{"n": 0, "name": "id", "type": 23}]},
                {"columns": [{"n": 1.0, "name": "id", "type": 23}]},
                {"columns": [{"n": 1, "name": "", "type": 23}]},
                {"columns": [{"n": 1, "name": ["id"], "type": 23}]},
                {"columns": [{"n": 1, "name": "id", "type": 23, "missing": 5}]},
                {"columns": [{"n": 1, "name": "id", "type": 23, "comment": ["a"]}]},
                {"comment": 5},
                {"columns": [{"n": 1, "name": "id", "type": 23}] * 2},
                {"columns": [{"n": 2, "name": "a", "type": 23}, {"n": 1, "name": "b", "type": 23}]},
                {"columns": [{"n": n, "name": f"c{n}", "type": 23} for n in range(1, 1700)], "natts": 1600},
            )
        ),
    ],
)
def test_what_is_no_announcement_of_a_table_says_nothing(content):
    assert layouts(m.Message(True, 100, "walreplay", content)).annotated(TABLE) == TABLE


def test_what_cannot_be_read_is_counted():
    assert layouts(said(), said(oid="9"), said(natts=2)).unread == 2
    # A dropped table's is read, and says nothing of columns.
    assert layouts(m.Message(True, 1, "walreplay", b'{"walreplay": 1, "oid": 9, "dropped": true}')).unread == 0


def test_only_transactional_messages_of_the_prefix_count():
    assert layouts(said(prefix="other")).annotated(TABLE) == TABLE
    assert layouts(said(), prefix=None).annotated(TABLE) == TABLE
    assert layouts(replace(said(), transactional=False)).annotated(TABLE) == TABLE
    assert layouts(said(comment="x" * (5 << 20))).annotated(TABLE) == TABLE


def test_a_relation_of_the_same_columns_is_told_their_numbers():
    found = layouts(said())
    assert numbers(found.annotated(TABLE)) == [(1, None), (3, "new")]
    # A column list, or an older PostgreSQL, leaves columns out.
    assert numbers(found.annotated(replace(TABLE, columns=TABLE.columns[1:]))) == [(3, "new")]


@pytest.mark.parametrize(
    "columns",
    [
        (m.Column("id", 20, -1, True),),
        (m.Column("ID", 23, -1, True),),
        TABLE.columns[::-1],
        (*TABLE.columns, m.Column("more", 25, -1, False)),
    ],
    ids=["another type", "another name", "another order", "more"],
)
def test_a_relation_of_other_columns_is_left_as_it_is(columns):
    relation = replace(TABLE, columns=columns)
    assert layouts(said()).annotated(relation) == relation
    assert layouts(said(oid=8)).annotated(TABLE) == TABLE


def test_the_newest_counts_whatever_comes_again():
    newer = [{"n": 1, "name": "id", "type": 23}, {"n": 4, "name": "note", "type": 25}]
    found = layouts(said(), said(200, natts=4, columns=newer), said())
    assert numbers(found.annotated(TABLE)) == [(1, None), (4, None)]
    # A view that is older than what was announced before.
    found = layouts(said(200, natts=4, columns=newer), said(300))
    assert numbers(found.annotated(TABLE)) == [(1, None), (4, None)]


def test_what_older_rows_have_is_kept_when_the_source_forgets_it():
    rewritten = [{"n": 1, "name": "id", "type": 23}, {"n": 3, "name": "note", "type": 25}]
    assert numbers(layouts(said(), said(200, columns=rewritten)).annotated(TABLE)) == [(1, None), (3, "new")]
    other = [rewritten[0], {"n": 3, "name": "note", "type": 17}]
    binary = replace(TABLE, columns=(TABLE.columns[0], m.Column("note", 17, -1, False)))
    assert numbers(layouts(said(), said(200, columns=other)).annotated(binary)) == [(1, None), (3, None)]


def test_what_a_rolled_back_subtransaction_announced_does_not_count():
    found = Layouts("walreplay")
    layout = found.read(said())
    assert layout is not None
    found.add([layout], aborted={7})
    assert found.annotated(TABLE) == TABLE


MOODS = m.Relation(8, "shop", "m", "d", (m.Column("id", 23, -1, True), m.Column("m", 70, -1, False)))


def labels(lsn, *texts, name="mood", **changes):
    """Announce an enum whose labels have the oids 1, 2, …."""
    values = {"walreplay": 1, "type": 70, "array": 71, "schema": "shop", "name": name, **changes}
    values["labels"] = [[number, text] for number, text in enumerate(texts, 1)]
    return m.Message(True, lsn, "walreplay", json.dumps(values).encode())


def renamed(*messages):
    (column,) = layouts(*messages).annotated(MOODS).columns[1:]
    return column.labels


def test_an_enum_is_read():
    enum = EnumLabels(71, ("shop", "mood"), ((1, "a"), (2, "b")))
    assert layout_of(labels(100, "a", "b", xids=[7])) == Layout(70, 100, 0, (), (7,), enum=enum)
    # One without any labels is possible.
    assert layout_of(labels(100)).enum.labels == ()


@pytest.mark.parametrize(
    ("announced", "expected"),
    [
        # The first, and one that only adds, say nothing new of any row.
        (["a b"], ()),
        (["a b", "a b c"], ()),
        (["a b", "x b"], ((1, ("a", "x")),)),
        (["a b", "x b", "y b"], ((1, ("a", "x", "y")),)),
        (["a b", "x b", "a b"], ((1, ("a", "x", "a")),)),
        (["a b", "t b", "t a", "b a"], ((1, ("a", "t", "b")), (2, ("b", "a")))),
        # A text that is given again to a new label.
        (["a b", "x b", "x b a"], ((1, ("a", "x")), (3, ("a",)))),
    ],
)
def test_a_column_is_told_the_labels_that_were_renamed(announced, expected):
    assert renamed(*(labels(100 + n, *texts.split()) for n, texts in enumerate(announced))) == expected


def test_an_enums_labels_are_known_by_its_oid_alone():
    first = labels(100, "a", "b")
    # A rename of the type; of which labels are renamed later.
    moved = labels(110, "a", "b", name="feeling")
    assert renamed(first, moved, labels(120, "x", "b", name="feeling")) == ((1, ("a", "x")),)
    # Another type has the oid.
    assert renamed(first, labels(110, "x", "y", name="other")) == ()
    others = {"walreplay": 1, "type": 70, "array": 71, "schema": "shop", "name": "mood", "labels": [[8, "a"], [9, "x"]]}
    again = m.Message(True, 130, "walreplay", json.dumps(others).encode())
    assert renamed(first, labels(110, "x", "b"), again) == ()
    # Copies that come again, and what is older than what is known.
    assert renamed(first, labels(120, "x", "b"), first, labels(110, "y", "b")) == ((1, ("a", "x")),)
    array = replace(MOODS, columns=(MOODS.columns[0], m.Column("m", 71, -1, False)))
    assert layouts(first, labels(120, "x", "b")).annotated(array).columns[1].labels == ((1, ("a", "x")),)
    # A table's oid may be the same as a type's.
    assert layouts(said(oid=70), first).annotated(replace(TABLE, oid=70)).columns[1].number == 3


def test_enums_are_given_with_the_relations_that_have_them():
    found = layouts(said(), labels(100, "a", "b"), labels(110, "x", "b"))
    assert [one.oid for one in found.of([9], [TABLE])] == [9]
    assert [one.oid for one in found.of([9], [TABLE, MOODS])] == [9, 70]
    again = Layouts("walreplay", found.of([], [MOODS]))
    assert again.annotated(MOODS) == found.annotated(MOODS)
    known = found.annotated(MOODS)
    assert again.labelled(known) is known
    again.take(labels(120, "y", "b"))
    assert again.labelled(known).columns[1].labels == ((1, ("a", "x", "y")),)


def test_of_a_label_with_very_many_texts_the_first_and_the_last_are_kept():
    ((_, texts),) = renamed(*(labels(100 + n, f"t{n}", "b") for n in range(40)))
    assert (len(texts), texts[0], texts[-1]) == (16, "t0", "t39")


def column(number, name, type_oid=23, **changes):
    return {"n": number, "name": name, "type": type_oid, **changes}


def first_names(found, *names):
    """Return what the columns of a Relation message with these names were called by rows from before."""
    relation = replace(TABLE, columns=tuple(m.Column(name, 23, -1, False) for name in names))
    return [one.first for one in found.annotated(relation).columns]


@pytest.mark.parametrize(
    ("count", "columns", "expected"),
    [
        # As many as there ever were.
        (3, {1: "id", 2: "x", 3: "b"}, ["id", "a", "b"]),
        (3, {1: "id", 2: "b", 3: "a"}, ["id", "a", "b"]),
        (3, {1: "id", 3: "a"}, ["id", "b"]),
        # Places and names go together.
        (4, {1: "id", 2: "a", 3: "b", 4: "c"}, ["id", "a", "b", "c"]),
        (5, {1: "id", 3: "a", 5: "b"}, ["id", "a", "b"]),
        # It may be a rename, or not; and places do not change.
        (4, {1: "id", 3: "x", 4: "b"}, ["", "", ""]),
        (4, {1: "id", 3: "b", 4: "a"}, ["", "", ""]),
    ],
)
def test_the_first_announcement_finds_the_columns_that_were_shown_before(count, columns, expected):
    found = layouts()
    first_names(found, "id", "a", "b")
    found.take(said(natts=count, columns=[column(number, name) for number, name in columns.items()]))
    assert first_names(found, *columns.values()) == expected


def test_all_names_of_a_column_are_kept_also_those_of_dropped_ones():
    found = layouts()
    first_names(found, "id", "phone", "note")
    for lsn, columns in enumerate(
        [
            {1: "id", 2: "tel", 3: "note"},
            {1: "id", 2: "note", 3: "tel"},
            {1: "id", 3: "mobile"},
            {1: "id", 3: "mobile", 4: "phone"},
            # As the resent copy of an older one, which changes nothing.
            {1: "id", 3: "never", 4: "phone"},
        ]
    ):
        said_columns = [column(number, name) for number, name in columns.items()]
        found.take(said(100 + lsn if lsn < 4 else 101, natts=max(3, *columns), columns=said_columns))
        # From run to run.
        found = Layouts("walreplay", found.all(), found.shown.values())
    names = dict(found.of([9])[0].names)
    assert names == {1: ("id",), 2: ("phone", "tel", "note"), 3: ("note", "tel", "mobile"), 4: ("phone",)}
    found.take(m.Message(True, 200, "walreplay", b'{"walreplay":1,"oid":9,"dropped":true}'))
    assert dict(found.of([9])[0].names) == names


def rewritten(found):
    return [one.rewritten for one in found.of([9])[0].columns]


@pytest.mark.parametrize(
    ("columns", "changes", "expected"),
    [
        ([column(1, "id"), column(2, "a", 20, written=True)], {"rewritten": 4, "by_expression": False}, [0, 0]),
        ([column(1, "id"), column(2, "a", 20, written=True)], {"rewritten": 4, "by_expression": True}, [0, 200]),
        ([column(1, "id"), column(2, "a", written=True)], {"rewritten": 4, "by_expression": True}, [0, 200]),
        ([column(1, "id"), column(2, "a", 700, written=True)], {"rewritten": 4, "by_expression": False}, [0, 200]),
        # An address that was a network is shown otherwise, and not rewritten.
        ([column(1, "id"), column(2, "a", 869, written=True)], {}, [0, 200]),
        ([column(1, "id"), column(2, "a"), column(3, "b", written=True, unknown=True)], {}, [0, 0, 200]),
        ([column(1, "id"), column(2, "a"), column(3, "b", written=True, missing="7")], {"rewritten": 2}, [0, 0, 0]),
        ([column(1, "id"), column(2, "a", written=True, generated="s")], {"rewritten": 2}, [0, 200]),
        # It has no rows.
        ([column(1, "id"), column(2, "a", written=True)], {"rewritten": 4, "empty": True}, [0, 0]),
    ],
)
def test_what_a_change_leaves_unknown_of_older_rows(columns, changes, expected):
    found = layouts(said(columns=[column(1, "id"), column(2, "a")], natts=2))
    found.take(said(200, columns=columns, natts=len(columns), **changes))
    assert rewritten(found) == expected
    # It stays so.
    plain = [{key: value for key, value in one.items() if key in ("n", "name", "type", "generated")} for one in columns]
    found.take(said(300, columns=plain, natts=len(columns)))
    assert rewritten(found) == expected


def test_a_default_goes_through_an_exact_change_of_type():
    found = layouts(said(columns=[column(1, "id"), column(2, "a", missing="7")], natts=2))
    for lsn, by_expression, expected in ((200, False, "7"), (300, True, None)):
        to = [column(1, "id"), column(2, "a", 20, written=True)]
        found.take(said(lsn, columns=to, natts=2, rewritten=4, by_expression=by_expression))
        assert [one.missing for one in found.of([9])[0].columns] == [None, expected]


@pytest.mark.parametrize(
    ("announced", "expected"),
    [
        ([{"unlogged": True}], []),
        ([{"unlogged": True}, {}], ["logged"]),
        ([{"unlogged": True}, {"empty": True}], []),
        ([{}, {"unlogged": True}, {}], ["logged"]),
    ],
)
def test_of_a_table_that_was_unlogged_rows_are_missing(announced, expected):
    found = layouts(*(said(100 + n, **changes) for n, changes in enumerate(announced)))
    assert [one.what for one in found.moved] == expected
    shown = layouts()
    shown.annotated(TABLE)
    shown.take(said(unlogged=True))
    assert [one.what for one in shown.moved] == ["unlogged"]


def test_an_enum_that_is_changed_before_it_was_announced_is_told_of():
    found = layouts()
    found.annotated(replace(TABLE, columns=(m.Column("m", 71, -1, False),)))
    found.take(labels(100, "x", "b", xids=[7]))
    found.take(labels(200, "y", "b", xids=[8]))
    assert [(one.what, one.name, one.parent) for one in found.moved] == [("relabelled", "shop.mood", 9)]
    # Whoever announces all has changed nothing.
    found = layouts()
    found.annotated(replace(TABLE, columns=(m.Column("m", 70, -1, False),)))
    found.take(labels(100, "x", "b"))
    assert not found.moved


def test_a_table_that_is_dropped_has_ended_and_another_one_may_get_its_oid():
    found = layouts(said(), dropped(200))
    assert found.annotated(TABLE) == replace(TABLE, formers=1)
    # The next one has its own columns, however few, and none of what was said of the other.
    found.take(said(300, natts=1, columns=[{"n": 1, "name": "id", "type": 23}]))
    other = replace(TABLE, name="u", columns=TABLE.columns[:1])
    told = found.annotated(other)
    assert (told.formers, numbers(told)) == (1, [(1, None)])
    # What is sent again changes nothing, nor do messages of a table of which nothing was announced.
    for message in (said(), dropped(200)):
        found.take(message)
    assert found.annotated(other) == told
    assert layouts(dropped(100)).annotated(TABLE).formers == 1
    found.take(dropped(400))
    assert found.annotated(other).formers == 2


def test_a_drop_that_may_have_rolled_back_ends_nothing():
    # Of several subtransactions, the message does not say whose it is.
    found = layouts(said())
    found.take(dropped(200), aborted=[8])
    assert numbers(found.annotated(TABLE)) == [(1, None), (3, "new")]
    assert found.annotated(TABLE).formers == 0


def test_columns_that_are_announced_and_not_sent_are_told():
    found = layouts(said())
    assert found.annotated(TABLE).unlisted == ()
    assert found.annotated(replace(TABLE, columns=TABLE.columns[1:])).unlisted == (1,)

from dataclasses import replace

import pytest

from support.evolutions import TYPES, columns, evolve
from walreplay.evolution.shapes import OWN, ChangeKind, Evolution, Policy, SourceColumn, ValueSource, conversions

INT, BIGINT, TEXT, BYTEA, MOOD = (TYPES[name] for name in ("int", "bigint", "text", "bytea", "mood"))


def shape(evolution):
    """Return each column's id and name, in brackets if it is only kept."""
    return [f"{one.id}:{one.name}" if not one.dropped else f"({one.id}:{one.name})" for one in evolution.shape.columns]


def kinds(evolution):
    return [(change.kind, change.column) for change in evolution.changes]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["id note", "id note more"], ["0:id", "1:note", "2:more"]),
        (["id note", "id"], ["0:id", "(1:note)"]),
        (["id a b", "id b"], ["0:id", "(1:a)", "2:b"]),
        # Dropped and added again: another place, or seen to be gone.
        (["id a b", "id b a"], ["0:id", "2:b", "3:a"]),
        (["id a", "id", "id a"], ["0:id", "2:a"]),
        (["id a b c", "id b a c"], ["0:id", "2:b", "4:a", "5:c"]),
        # At the end nothing tells.
        (["id a", "id a"], ["0:id", "1:a"]),
        (["id a", "id b"], ["0:id", "(1:a)", "2:b"]),
        # Between columns that stay it was renamed, even if its name is another one's now.
        (["id a b", "id x b"], ["0:id", "1:x", "2:b"]),
        (["id a b", "id x b a"], ["0:id", "1:x", "2:b", "3:a"]),
        (["a b", "x b a:text"], ["0:x", "1:b", "2:a"]),
        (["id a b c", "id x c b"], ["0:id", "(1:a)", "4:x", "3:c", "5:b"]),
        (["id a:text b", "id x b"], ["0:id", "(1:a)", "3:x", "2:b"]),
        (["id a b c", "id x y c"], ["0:id", "1:x", "2:y", "3:c"]),
        # A name that goes on to another column, as when a column is put in another one's place.
        (["id a b c", "id b x c"], ["0:id", "1:b", "2:x", "3:c"]),
        (["id n m:bigint c", "id old n:bigint c"], ["0:id", "1:old", "2:n", "3:c"]),
        (["id n m:bigint", "id old n:bigint"], ["0:id", "1:old", "2:n"]),
        (["n m:bigint c d e", "old n:bigint c x e f"], ["0:old", "1:n", "2:c", "3:x", "4:e", "5:f"]),
        (["n id m:bigint", "old id n:bigint"], ["0:old", "1:id", "(2:m)", "3:n"]),
        # Into the publication's column list, or out of it and back.
        (["id c", "id b c"], ["0:id", "2:b", "1:c"]),
        (["id b c", "id c", "id b c"], ["0:id", "3:b", "2:c"]),
        # A kept column gives way to one that has its name.
        (["id a b", "id b", "id b a:text"], ["0:id", "2:b", "3:a"]),
        (["id a b", "id b", "id b A=A__2"], ["0:id", "(1:a)", "2:b", "3:A__2"]),
        (["id A b", "id b", "id b a"], ["0:id", "2:b", "3:a"]),
        (["id a b c", "id b c", "id a c"], ["0:id", "2:a", "3:c"]),
    ],
)
def test_columns_follow_their_source(versions, expected):
    assert shape(evolve(*versions)) == expected


def test_dropped_columns_go_where_nothing_keeps_them():
    dropping = Policy(keep_dropped=False)
    assert shape(evolve("id a b", "id b", policy=dropping)) == ["0:id", "2:b"]
    assert kinds(evolve("id a b", "id b", policy=dropping)) == [(ChangeKind.DROPPED, "a")]
    # No id is given again.
    assert shape(evolve("id a", "id", "id a", policy=dropping)) == ["0:id", "2:a"]


def test_what_was_kept_stays_though_drops_are_followed_by_now():
    kept = evolve("id a b", "id b").shape
    evolution = Evolution(kept, Policy(keep_dropped=False))
    evolution.take(columns("id b"))
    assert shape(evolution) == ["0:id", "(1:a)", "2:b"]
    assert not evolution.changes


@pytest.mark.parametrize(
    ("renames", "versions", "expected"),
    [
        ((("a", "x"),), ["id a", "id x"], ["0:id", "1:x"]),
        ((("a", "x"),), ["id a:text", "id x"], ["0:id", "1:x"]),
        ((("b", "c"), ("a", "b")), ["id a b", "id b c"], ["0:id", "1:b", "2:c"]),
        ((("a", "b"), ("b", "c")), ["id a", "id c"], ["0:id", "1:c"]),
        # Not yet, or never.
        ((("a", "x"),), ["id a", "id a x"], ["0:id", "1:a", "2:x"]),
        # What stands behind its successors was added.
        ((("a", "x"),), ["id a b", "id b x"], ["0:id", "(1:a)", "2:b", "3:x"]),
    ],
)
def test_renames_that_are_configured_are_followed(renames, versions, expected):
    assert shape(evolve(*versions, policy=Policy(renames=renames))) == expected


def test_places_prove_nothing_where_that_is_switched_off():
    evolution = evolve("id a b", "id x b", policy=Policy(infer_renames=False))
    assert shape(evolution) == ["0:id", "(1:a)", "3:x", "2:b"]


@pytest.mark.parametrize("version", ["id a more", "id", "id more", "a id"])
@pytest.mark.parametrize("keep", [True, False])
def test_the_mirrors_own_column_stays_the_last(version, keep):
    evolution = evolve("id a", version, policy=Policy(keep_dropped=keep), marked=True)
    assert evolution.shape.columns[-1].source == OWN
    assert evolution.shape.columns[-1].id == 2


def test_another_relations_columns_are_those_of_the_same_names():
    evolution = evolve("id a b c", "c a x id", anew=True)
    assert shape(evolution) == ["3:c", "1:a", "4:x", "0:id", "(2:b)"]
    # Only its first version says nothing of its past.
    evolution.take(columns("c x a"))
    assert shape(evolution) == ["3:c", "4:x", "(0:id)", "(2:b)", "5:a"]


def test_changes_are_told():
    assert kinds(evolve("id a b c", "id:bigint x c b more")) == [
        (ChangeKind.RETYPED, "id"),
        (ChangeKind.ADDED, "x"),
        (ChangeKind.REPLACED, "b"),
        (ChangeKind.ADDED, "more"),
        (ChangeKind.KEPT, "a"),
    ]
    texts = [change.text for change in evolve("id a b", "id x:int b more:text").changes]
    assert texts == ["column a renamed to x", "column more added (text)"]
    (text,) = [change.text for change in evolve("id a b", "id b a").changes]
    assert text == "column a dropped and added again; its old values are gone"
    (text,) = [change.text for change in evolve("id a", "id a:bigint").changes]
    assert text == "column a retyped from integer to bigint"
    (text,) = [change.text for change in evolve("id a b", "id b").changes]
    assert text == "column a dropped; its values are kept"


def test_a_new_table_has_no_changes_but_those_of_its_later_versions():
    evolution = Evolution(None, Policy())
    evolution.take(columns("id"))
    assert not evolution.changes
    evolution.take(columns("id a"))
    assert kinds(evolution) == [(ChangeKind.ADDED, "a")]


def test_each_version_and_the_table_say_where_columns_come_from():
    evolution = evolve("id a b", "id a b", "id:bigint x b more", "id:bigint x b")
    assert shape(evolution) == ["0:id", "1:x", "2:b", "(3:more)"]
    whole = (INT, BIGINT)
    assert evolution.of_table() == (
        ValueSource("id", whole),
        ValueSource("a", (INT,)),
        ValueSource("b", (INT,)),
        ValueSource(None, (INT,)),
    )
    assert evolution.of_version(0) == (
        ValueSource(0, whole),
        ValueSource(1, (INT,)),
        ValueSource(2, (INT,)),
        ValueSource(None, (INT,)),
    )
    assert evolution.of_version(1)[0] == ValueSource(0, (BIGINT,))
    assert evolution.of_version(1)[3] == ValueSource(3, (INT,))
    assert evolution.of_version(2)[3] == ValueSource(None, (INT,))
    assert evolution.number_of(1, 3) == 3


def test_the_number_of_a_column_that_was_replaced_is_none():
    evolution = evolve("id a b", "id a b", "id b a")
    assert evolution.number_of(0, 2) == 1
    with pytest.raises(KeyError):
        evolution.number_of(0, 1)


def test_a_change_that_keeps_values_still_decides_how_the_next_one_reads_them():
    # An enum's text is no bytea's, but a text's is; and what an enum cannot hold does not come back as text.
    assert conversions(evolve("a:mood", "a:text", "a:bytea").of_table()[0].chain) == [(TEXT, BYTEA)]
    assert conversions(evolve("a:int", "a:mood", "a:text").of_table()[0].chain) == [(INT, MOOD)]
    assert conversions(evolve("a:mood", "a:text").of_table()[0].chain) == []


def test_only_columns_that_go_on_are_rewritten():
    assert [one.name for one in evolve("id a", "id:text a:bigint").rewritten] == ["id"]
    assert not evolve("id a", "id a:text", "id").rewritten[1:]
    assert not evolve("id a b", "id a:text b", "id b a:text").rewritten
    assert not Evolution(None, Policy()).rewritten


def numbered(text):
    """Read ``1:id 2:note=new 3:b<a``: numbers, names, what older rows have, and the name that was announced first."""
    found = []
    for item in text.split():
        number, _, item = item.partition(":")
        item, _, first = item.partition("<")
        name, _, missing = item.partition("=")
        found.append(SourceColumn(name, name, INT, missing=missing or None, number=int(number), first=first))
    return found


def evolve_numbered(*versions, policy=Policy(), before=None):  # noqa: B008
    first = Evolution(None, policy)
    first.take(before or numbered(versions[0]))
    evolution = Evolution(first.shape, policy)
    for version in versions[0 if before else 1 :]:
        evolution.take(version if isinstance(version, list) else numbered(version))
    return evolution


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        # What places do not show: the last column renamed, dropped and added again, and names that are swapped.
        (["1:id 2:a", "1:id 2:b"], ["0:id", "1:b"]),
        (["1:id 2:a", "1:id 3:a"], ["0:id", "2:a"]),
        (["1:id 2:a 3:b", "1:id 2:b 3:a"], ["0:id", "1:b", "2:a"]),
        (["1:id 2:a 3:b", "1:id 2:x 4:b"], ["0:id", "1:x", "3:b"]),
        (["1:id 2:a 3:b", "1:id 4:a 5:b"], ["0:id", "3:a", "4:b"]),
        # Dropped and others added in its place, of the same type.
        (["1:id 2:a 3:b", "1:id 3:b 4:c"], ["0:id", "(1:a)", "2:b", "3:c"]),
        # Newly published.
        (["1:id 3:b", "1:id 2:a 3:b"], ["0:id", "2:a", "1:b"]),
    ],
)
def test_columns_with_numbers_are_followed_by_them(versions, expected):
    assert shape(evolve_numbered(*versions)) == expected


def test_numbers_begin_and_end_with_what_is_announced():
    # The first announced version goes by names, the next by numbers.
    evolution = evolve_numbered("1:id 2:a", "1:id 2:b", before=columns("id a"))
    assert shape(evolution) == ["0:id", "1:b"]
    # What was not announced leaves nothing to go by.
    evolution = evolve_numbered("1:id 2:a", columns("id a"), "1:id 5:a")
    assert shape(evolution) == ["0:id", "1:a"]
    assert [column.number for column in evolution.shape.columns] == [1, 5]


def test_rows_from_before_the_first_announcement_came_with_its_names():
    assert shape(evolve_numbered("1:id<id 2:b<a", before=columns("id a"))) == ["0:id", "1:b"]
    assert shape(evolve_numbered("1:id<id 2:b<a 3:a<b", before=columns("id a b"))) == ["0:id", "1:b", "2:a"]
    assert shape(evolve_numbered("1:id<id 4:a", before=columns("id a"))) == ["0:id", "2:a"]
    # Not if they have other names, which tells of changes that nothing has announced.
    assert shape(evolve_numbered("1:id<id 2:b<a 3:c<c", before=columns("id x c"))) == ["0:id", "1:b", "2:c"]
    # Nor if later rows have come that nothing was announced of.
    evolution = evolve_numbered("1:id<id 2:a<b 3:b<a", columns("id a b"), "1:id<id 2:a<b 3:b<a")
    assert shape(evolution) == ["0:id", "1:a", "2:b"]


def test_a_column_that_is_left_out_for_a_while_keeps_its_values_under_its_number():
    for versions, order in (
        (["1:id 2:a 3:b", "1:id 3:b", "1:id 2:a 3:b"], ["0:id", "1:a", "2:b"]),
        (["1:id 2:a 3:b", "1:id 2:a", "1:id 2:a 3:b"], ["0:id", "1:a", "2:b"]),
        (["1:id 2:a 3:b", "1:id", "1:id 2:a", "1:id 2:a 3:b"], ["0:id", "1:a", "2:b"]),
        # It was renamed meanwhile.
        (["1:id 2:a 3:b", "1:id 3:b", "1:id 2:x 3:b"], ["0:id", "1:x", "2:b"]),
        # It is another one of its name.
        (["1:id 2:a 3:b", "1:id 3:b", "1:id 3:b 4:a"], ["0:id", "2:b", "3:a"]),
    ):
        evolution = evolve_numbered(*versions)
        assert shape(evolution) == order
        assert not evolution.fills
    evolution = evolve_numbered("1:id 3:b", "1:id 2:a 3:b", before=described("1:id 2:a 3:b"))
    assert shape(evolution) == ["0:id", "1:a", "2:b"]


def test_rows_of_a_run_have_a_column_in_the_versions_that_have_it():
    evolution = Evolution(None, Policy())
    for version in ("1:id 2:a 3:b", "1:id 3:b", "1:id 2:a 3:b"):
        evolution.take(numbered(version))
    sources = [[source.column for source in evolution.of_version(step)] for step in range(3)]
    assert sources == [[0, 1, 2], [0, None, 1], [0, 1, 2]]
    assert [change.text for change in evolution.changes] == [
        "column a dropped; its values are kept",
        "column a is published again; its values were kept",
    ]


def test_what_is_not_published_any_more_is_not_dropped():
    evolution = Evolution(None, Policy(keep_dropped=False))
    evolution.take(numbered("1:id 2:a 3:b 4:c"))
    evolution.take(numbered("1:id 4:c"), unlisted=(3,))
    assert shape(evolution) == ["0:id", "(2:b)", "3:c"]
    assert [change.text for change in evolution.changes] == [
        "column a dropped",
        "column b is no longer published; its values are kept",
    ]


def described(text):
    return [replace(column, number=0, described_number=column.number) for column in numbered(text)]


def test_loaded_rows_have_the_numbers_of_their_description():
    # What was announced before their LSN, they have already: an added column, and one that was dropped and added again.
    evolution = evolve_numbered("1:id<id 3:a=7", before=described("1:id 3:a"))
    assert (shape(evolution), evolution.fills) == (["0:id", "1:a"], False)
    assert shape(evolve_numbered("1:id<id 2:b<a 3:a<b", before=described("1:id 2:b 3:a"))) == ["0:id", "1:b", "2:a"]
    # What is announced behind them changes them.
    assert shape(evolve_numbered("1:id<id 3:b<a", before=described("1:id 3:a"))) == ["0:id", "1:b"]
    assert shape(evolve_numbered("1:id<id 4:a", before=described("1:id 3:a"))) == ["0:id", "2:a"]
    # A load into a table that announcements were followed in.
    evolution = evolve_numbered("1:id 2:a", described("1:id 3:a"), "1:id 3:b")
    assert shape(evolution) == ["0:id", "1:b"]


def test_numbers_of_a_description_end_with_rows_that_nothing_was_announced_of():
    # They may be of a column that was dropped and added again in between, and are not lost.
    for since in (columns("id a"), columns("id a b")):
        evolution = evolve_numbered(since, "1:id 4:a", before=described("1:id 2:a"))
        assert shape(evolution)[:2] == ["0:id", "1:a"]


def test_kept_columns_of_another_relation_do_not_make_its_own_older():
    before = evolve_numbered("1:id 10:x").shape
    anew = Evolution(before, Policy(keep_dropped=True), anew=True)
    anew.take(numbered("1:id"))
    evolution = Evolution(anew.shape, Policy(keep_dropped=True))
    evolution.take(numbered("1:id 2:c=7"))
    assert evolution.fills


def test_a_rename_that_is_configured_goes_before_numbers():
    policy = Policy(renames=(("a", "b"),))
    assert shape(evolve_numbered("1:id 2:a", "1:id 3:b", policy=policy)) == ["0:id", "1:b"]
    assert shape(evolve_numbered("1:id 2:a 3:c", "1:id 2:c 4:b", policy=policy)) == ["0:id", "3:c", "1:b"]


def fills(sources):
    return [source.fill for source in sources]


def test_older_rows_get_what_is_announced_of_a_column_that_was_added():
    evolution = evolve_numbered("1:id 2:a", "1:id 2:a 3:b=5")
    assert fills(evolution.of_table()) == [None, None, "5"]
    assert evolution.fills
    again = evolve_numbered("1:id 2:a", "1:id 3:a=7")
    assert fills(again.of_table()) == [None, "7"]
    # It is not newer than the rows: it was only not published before.
    assert fills(evolve_numbered("1:id 3:b", "1:id 2:a=5 3:b").of_table()) == [None, None, None]


def test_rows_of_the_same_run_are_filled_if_they_are_older():
    evolution = Evolution(None, Policy())
    for version in ("1:id", "1:id 2:b=5", "1:id"):
        evolution.take(numbered(version))
    assert [fills(evolution.of_version(step)) for step in range(3)] == [[None, "5"], [None, None], [None, None]]
    assert not evolution.fills


def test_a_fill_goes_through_the_types_that_come_after():
    evolution = evolve(("id"), ("id"))
    evolution.take([*columns("id"), SourceColumn("n", "n", INT, missing="5", is_said=True)])
    evolution.take([*columns("id"), SourceColumn("n", "n", TEXT)])
    (_, source) = evolution.of_table()
    assert (source.fill, [kind.postgres_name for kind in source.chain]) == ("5", ["text", "integer", "text"])
    assert evolution.rewritten == ()

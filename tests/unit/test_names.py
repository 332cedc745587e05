import pytest
from hypothesis import given
from hypothesis import strategies as st

from walreplay.errors import ConfigError
from walreplay.names import RESERVED_COLUMNS, column_names, fold, renamed_columns

OWN = ("__commit_lsn", "__commit_ts", "_rescued_data", "__deleted")


def names(*versions, **options):
    return column_names([version.split() for version in versions], OWN, **options)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("id name", {"id": "id", "name": "name"}),
        ("Id id", {"Id": "Id", "id": "id__2"}),
        ("id ID Id iD", {"id": "id", "ID": "ID__2", "Id": "Id__3", "iD": "iD__4"}),
        ("id__2 id Id", {"id__2": "id__2", "id": "id", "Id": "Id__3"}),
        ("id Id id__2", {"id": "id", "Id": "Id__2", "id__2": "id__2__2"}),
        ("_rescued_data", {"_rescued_data": "_rescued_data__2"}),
        ("__Commit_LSN", {"__Commit_LSN": "__Commit_LSN__2"}),
        ("_change_type _METADATA", {"_change_type": "_change_type__2", "_METADATA": "_METADATA__2"}),
        ("Straße STRASSE", {"Straße": "Straße", "STRASSE": "STRASSE"}),
        ("GRÖSSE größe Größe", {"GRÖSSE": "GRÖSSE", "größe": "größe", "Größe": "Größe__2"}),
    ],
)
def test_a_name_that_is_taken_gets_a_suffix(columns, expected):
    assert names(columns) == expected


@pytest.mark.parametrize(
    ("one", "other"), [("I", "i"), ("İ", "i"), ("ı", "i"), ("\u212a", "k"), ("ſ", "s"), ("ς", "Σ"), ("İ", "i\u0307")]
)
def test_names_that_are_one_to_java_are_one_here(one, other):
    assert fold(one) == fold(other)


def test_a_column_that_is_added_or_dropped_changes_no_others_name():
    first = names("id name")
    later = names("id name", "id name Name", "id Name", "ID Name")
    assert later == {**first, "Name": "Name__2", "ID": "ID__2"}


def test_a_declared_rename_may_change_the_case_alone():
    assert names("Id", "id") == {"Id": "Id", "id": "id__2"}
    assert names("Id", "id", renames=[("Id", "id")]) == {"id": "id"}


def test_known_names_stay():
    assert names("id Id", earlier={"Id": "Id"}) == {"Id": "Id", "id": "id__2"}
    assert names("b", earlier={"a": "b"}) == {"a": "b", "b": "b__2"}
    with pytest.raises(ConfigError, match="'__deleted' has the name that the column '__Deleted'"):
        names("id", earlier={"__Deleted": "__Deleted"})


alphabet = st.text("aAbB_2İıß", min_size=1, max_size=6)
columns = st.lists(alphabet | st.sampled_from([*OWN, *RESERVED_COLUMNS, "a__2", "A__2"]), unique=True, max_size=8)


@given(st.lists(columns, max_size=4))
def test_no_two_columns_have_one_name(versions):
    found = column_names(versions, OWN)
    folded = [fold(name) for name in found.values()]
    assert len(set(folded)) == len(folded)
    assert not set(folded) & {fold(name) for name in (*OWN, *RESERVED_COLUMNS)}
    assert set(found) == {name for version in versions for name in version}
    assert all(target.startswith(source) for source, target in found.items())


@given(st.lists(columns, max_size=5), st.integers(0, 5), st.lists(st.tuples(alphabet, alphabet), max_size=3))
def test_names_do_not_hang_on_where_runs_end(versions, cut, pairs):
    whole = column_names(versions, OWN)
    first = column_names(versions[:cut], OWN)
    assert first.items() <= whole.items()
    assert column_names(versions[cut:], OWN, earlier=first) == whole
    assert column_names([*versions, *versions], OWN) == whole


@pytest.mark.parametrize(
    ("before", "after", "renames", "expected"),
    [
        ("a x", "b x", "a:b", {"a": "b"}),
        ("a x", "a x", "a:b", {}),
        ("b x", "b x", "a:b", {}),
        ("x", "x b", "a:b", {}),
        ("a b", "b", "a:b", {}),
        ("a b", "a b c", "a:c", {}),
        ("a", "c", "a:b b:c", {"a": "c"}),
        ("a", "b", "a:b b:c", {"a": "b"}),
        ("a b", "b c", "a:b b:c", {"a": "b", "b": "c"}),
        ("a b", "b c d", "b:c", {}),
        ("a b", "c", "a:b b:c", {"b": "c"}),
        ("a", "b c", "a:b b:c", {"a": "b"}),
        ("b", "a", "a:b b:a", {"b": "a"}),
        ("x", "a b", "a:b b:a", {}),
    ],
)
def test_renames_are_found_in_the_step_that_made_them(before, after, renames, expected):
    pairs = [tuple(pair.split(":")) for pair in renames.split()]
    assert renamed_columns(before.split(), after.split(), pairs) == expected

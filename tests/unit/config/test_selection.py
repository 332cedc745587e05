import pickle
import re
from dataclasses import replace

import pytest

from walreplay.config import Settings
from walreplay.config.selection import MetadataNames, check_destinations, key_columns, select, unmatched_tables
from walreplay.errors import ConfigError
from walreplay.names import RowKind
from walreplay.protocol.messages import Column, Relation


def relation(columns="id* name email", *, name="people", namespace="shop", identity="d", oid=9):
    parts = columns.split()
    return Relation(
        oid, namespace, name, identity, tuple(Column(part.rstrip("*"), 25, -1, part.endswith("*")) for part in parts)
    )


def settings(said=None, /, **general):
    objects = [{"table": {"source_schema": "shop", "source_table": "people", **said}}] if said is not None else []
    return Settings.from_mapping({"objects": objects, "column_mask_salt": "pepper", **general})


def test_a_table_of_which_nothing_is_said_is_taken_whole():
    found = select(Settings(), relation())
    assert found is not None
    assert (found.namespace, found.name) == ("shop", "people")
    assert found.columns == (0, 1, 2)
    assert found.sources == found.names == ("id", "name", "email")
    assert found.masked == ()
    assert found.metadata == MetadataNames("__commit_lsn", "__commit_ts", "_rescued_data", None, RowKind.CURRENT)
    assert not found.soft_deletes
    assert found.warnings == ()


def test_a_selection_travels_and_can_be_looked_up():
    found = select(settings({"rename_columns": {"mail": "email"}, "column_mask_hash": ["email"]}), relation())
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(pickle.loads(pickle.dumps(found))) == hash(found)


def test_a_table_that_is_not_wanted_has_no_selection():
    assert select(Settings.from_mapping({"table_exclude_list": "shop[.]people"}), relation()) is None
    assert select(Settings.from_mapping({"table_include_list": "pg_catalog[.].*"}), relation()) is None
    assert select(Settings.from_mapping({"table_include_list": "pg_catalog[.].*"}), relation(namespace="")) is not None


@pytest.mark.parametrize("key", ["include_columns", "exclude_columns", "column_mask_hash"])
def test_columns_that_are_hidden_under_a_former_name_alone_are_not_written(key):
    hiding = settings({key: ["id", "name"] if key == "include_columns" else ["email"]})
    before, after = relation(), relation(name="persons")
    with pytest.raises(ConfigError, match=rf"was called shop\.people before.* {key} under that name") as refused:
        select(hiding, after, (before, after))
    assert refused.value.table == "shop.persons"
    # By what the ledger knows, too.
    with pytest.raises(ConfigError, match=r"was called shop\.people before"):
        select(hiding, after, (after,), formerly="shop.people")
    # As it was called before, it is as it was, and so is one that never had the name, or whose options are given.
    assert select(hiding, before, (before, after)).warnings == ()
    assert select(hiding, after, (after, before)).warnings == ()
    both = [
        {"table": {"source_schema": "shop", "source_table": name, "exclude_columns": ["email"]}}
        for name in ("people", "persons")
    ]
    assert select(Settings.from_mapping({"objects": both}), after, (before, after)).sources == ("id", "name")
    # The remedy, word by word.
    assert select(Settings.from_mapping({"objects": both}), before, (before, after)).sources == ("id", "name")


def test_other_options_under_a_former_name_are_told():
    found = select(
        settings({"destination_table": "person"}), relation(name="persons"), (relation(), relation(name="persons"))
    )
    assert found.name == "persons"
    (told,) = found.warnings
    assert "those of shop.people, as it was called before, and hold no more" in told


def test_the_configuration_says_where_a_table_goes():
    found = select(settings({"destination_schema": "raw", "destination_table": "person"}), relation())
    assert (found.namespace, found.name) == ("raw", "person")
    other = select(settings({"destination_table": "person"}), relation(name="other"))
    assert (other.namespace, other.name) == ("shop", "other")


@pytest.mark.parametrize(
    ("said", "numbers", "masked"),
    [
        ({"include_columns": ["email", "id"]}, (0, 2), ()),
        ({"exclude_columns": ["name"]}, (0, 2), ()),
        ({"exclude_columns": ["name"], "column_mask_hash": ["id", "email"]}, (0, 2), (0, 2)),
        ({"column_mask_hash": ["mail"], "rename_columns": {"mail": "email"}}, (0, 1, 2), (2,)),
    ],
)
def test_columns_are_chosen_by_name_and_stay_in_their_order(said, numbers, masked):
    found = select(settings(said), relation())
    assert (found.columns, found.masked) == (numbers, masked)
    assert found.names == tuple(relation().columns[n].name for n in numbers)
    assert found.warnings == ()


def test_names_of_columns_are_told_apart_by_their_case():
    found = select(settings({"exclude_columns": ["Email"]}), relation("id* email Email"))
    assert found.sources == ("id", "email")
    assert select(settings({"exclude_columns": ["email"]}), relation("id* email Email")).names == ("id", "Email__2")


def test_names_are_those_of_all_versions():
    old, new = relation("id* Name"), relation("id* name")
    assert select(Settings(), new).names == ("id", "name")
    assert select(Settings(), new, [old, new]).names == ("id", "name__2")
    assert select(Settings(), old, [old, new]).names == ("id", "Name")
    assert select(Settings(), new, [old]).names == ("id", "name__2")
    assert select(Settings(), new, given={"id": "id", "Name": "Name"}).names == ("id", "name__2")


def test_a_source_column_makes_way_for_the_tables_own():
    source = relation("id* __commit_lsn __Deleted")
    assert select(Settings(), source).names == ("id", "__commit_lsn__2", "__Deleted__2")
    assert select(settings(commit_lsn_column="_lsn"), source).names == ("id", "__commit_lsn", "__Deleted__2")
    own = settings(commit_lsn_column="_LSN")
    assert select(own, relation("id* _lsn _Lsn")).names == ("id", "_lsn__2", "_Lsn__3")


def test_a_metadata_column_cannot_have_the_name_that_a_column_has_already():
    with pytest.raises(ConfigError, match="'Name' has the name that the column 'name'") as caught:
        select(settings(commit_ts_column="Name"), relation(), given={"id": "id", "name": "name"})
    assert caught.value.table == "shop.people"


def test_what_is_said_of_a_table_goes_before_what_holds_for_all():
    general = {"soft_deletes": True, "on_type_change": "stop", "on_recreate": "keep", "on_drop_column": "drop"}
    found = select(settings({}, **general), relation())
    assert (found.on_type_change, found.on_recreate, found.on_drop_column) == ("stop", "keep", "drop")
    assert found.metadata.deleted == "__deleted"
    own = {"soft_deletes": False, "on_type_change": "rewrite", "on_recreate": "stop", "on_drop_column": "keep"}
    found = select(settings(own, **general), relation())
    assert (found.on_type_change, found.on_recreate, found.on_drop_column) == ("rewrite", "stop", "keep")
    assert found.metadata.deleted is None


def test_metadata_columns_can_be_renamed_or_left_out():
    own = {"commit_lsn_column": "lsn", "commit_ts_column": None, "rescued_data_column": None}
    found = select(settings(**own, soft_deletes=True), relation())
    assert found.metadata == MetadataNames("lsn", None, None, "__deleted", RowKind.CURRENT)


@pytest.mark.parametrize("key", ["include_columns", "exclude_columns", "column_mask_hash"])
def test_a_name_that_no_version_has_is_an_error(key):
    with pytest.raises(ConfigError, match=rf"{key} names 'emial', which is none of the table's columns") as caught:
        select(settings({key: ["emial"]}), relation())
    assert caught.value.table == "shop.people"
    assert "the nearest column is 'email'" in str(caught.value)


def test_a_rename_of_columns_that_never_were_is_an_error():
    with pytest.raises(ConfigError, match="rename_columns names 'mial: emial'"):
        select(settings({"rename_columns": {"mial": "emial"}}), relation())
    assert select(settings({"rename_columns": {"email": "mail"}}), relation()).renames == (("email", "mail"),)


@pytest.mark.parametrize("key", ["include_columns", "exclude_columns", "column_mask_hash"])
def test_a_name_that_only_another_version_has_is_a_warning(key):
    said = {key: ["id", "name", "email", "phone"] if key == "include_columns" else ["phone"]}
    other = relation("id* name email phone")
    for versions in ([other, relation()], [relation(), other]):
        found = select(settings(said), relation(), versions)
        assert found.columns == (0, 1, 2)
        assert len(found.warnings) == 1
        assert f"{key} names 'phone'" in found.warnings[0]
    assert select(settings(said), relation(), given={"phone": "phone"}).warnings
    assert not select(settings(said), other, [relation(), other]).warnings
    renamed = {**said, "rename_columns": {"phone": "email"}}
    assert not select(settings(renamed), relation(), [other]).warnings


@pytest.mark.parametrize(
    ("said", "source", "left_out"),
    [
        ({"exclude_columns": ["id"]}, relation(), "id"),
        ({"include_columns": ["name"]}, relation(), "id"),
        ({"include_columns": ["id", "name"]}, relation("id* name* email", identity="i"), None),
        ({"exclude_columns": ["name"]}, relation("id* name* email", identity="i"), "name"),
        ({"exclude_columns": ["name"], "keys": ["id"]}, relation("id* name* email*", identity="f"), None),
        ({"exclude_columns": ["name"], "keys": ["email"]}, relation("id* name* email", identity="i"), "name"),
        ({"exclude_columns": ["id"]}, relation("id* name* email*", identity="f"), None),
        ({"exclude_columns": ["id"]}, relation("id name email", identity="n"), None),
    ],
)
def test_what_tells_rows_apart_cannot_be_left_out(said, source, left_out):
    if left_out is None:
        assert select(settings(said), source) is not None
        return
    with pytest.raises(ConfigError, match=f"the column '{left_out}' is left out, but belongs to the key") as caught:
        select(settings(said), source)
    assert "column_mask_hash" in str(caught.value)


def test_a_table_without_columns_is_an_error():
    with pytest.raises(ConfigError, match="no column is left"):
        select(settings({"exclude_columns": ["id", "name", "email"]}), relation(identity="n"))


def test_the_key_is_what_old_rows_bring():
    assert key_columns(relation(), None) == ["id"]
    assert key_columns(relation("id* name*", identity="f"), None) == []
    assert key_columns(relation("id* name*", identity="f"), ["name"]) == ["name"]
    assert key_columns(relation("id name", identity="n"), ["name"]) == ["name"]
    assert key_columns(relation("id* name", identity="i"), ["name"]) == ["id"]


def test_two_tables_cannot_have_one_destination():
    given = settings({"destination_table": "staff"})
    people, staff = relation(), relation(name="staff")
    with pytest.raises(ConfigError, match=r"shop\.people and shop\.staff have the same destination, shop\.staff"):
        check_destinations([(one.qualified_name, select(given, one)) for one in (people, staff)])
    check_destinations([(people.qualified_name, select(given, one)) for one in (people, relation("id*"))])


def numbered(columns, **given):
    """Make a version of `people` whose columns are announced, as in ``id:1 mail:2``."""
    found = relation(" ".join(part.partition(":")[0] for part in columns.split()), **given)
    numbers = (int(part.partition(":")[2]) for part in columns.split())
    return replace(found, columns=tuple(replace(c, number=n) for c, n in zip(found.columns, numbers, strict=True)))


def hidden(said, of, versions=(), **more):
    """Return the names of the columns that are seen, and of those that are masked."""
    found = select(settings(said), of, versions, **more)
    names = [of.columns[n].name for n in found.columns]
    masked = [of.columns[n].name for n in found.masked]
    return [name for name in names if name not in masked], masked


OLD, NEW = numbered("id*:1 phone:2 note:3"), numbered("id*:1 mobile:2 note:3")


@pytest.mark.parametrize("name", ["phone", "mobile"])
def test_an_announced_column_is_hidden_under_each_of_its_names_whichever_is_listed(name):
    for of in (OLD, NEW):
        other = of.columns[1].name
        assert hidden({"column_mask_hash": [name]}, of, (OLD, NEW)) == (["id", "note"], [other])
        assert hidden({"exclude_columns": [name]}, of, (OLD, NEW)) == (["id", "note"], [])
    assert not select(settings({"exclude_columns": [name]}), NEW, (OLD, NEW)).warnings


def test_a_column_is_hidden_by_names_that_were_announced_in_earlier_runs():
    names = {1: ("id",), 2: ("phone", "tel", "mobile"), 3: ("note",)}
    for name in names[2]:
        assert hidden({"column_mask_hash": [name]}, NEW, (NEW,), announced=names) == (["id", "note"], ["mobile"])
        assert hidden({"exclude_columns": [name]}, NEW, (NEW,), announced=names) == (["id", "note"], [])


def test_of_two_columns_that_swap_their_names_both_are_hidden():
    swapped = numbered("id*:1 note:2 phone:3")
    for of in (OLD, swapped):
        assert hidden({"exclude_columns": ["phone"]}, of, (OLD, swapped)) == (["id"], [])
        seen, masked = hidden({"column_mask_hash": ["phone"]}, of, (OLD, swapped))
        assert (seen, sorted(masked)) == (["id"], ["note", "phone"])
    # A list of what is seen would show the values of the other one.
    with pytest.raises(ConfigError, match=r"'phone' may have been renamed to 'note', and include_columns hides") as no:
        hidden({"include_columns": ["id", "note"]}, swapped, (OLD, swapped))
    assert "add 'phone' to include_columns" in str(no.value)
    both = {"include_columns": ["id", "note", "phone"]}
    assert hidden(both, swapped, (OLD, swapped)) == (["id", "note", "phone"], [])


def test_a_hidden_column_that_takes_the_listed_name_of_one_that_is_gone_is_not_shown():
    gone, taken = numbered("id*:1 secret:3"), numbered("id*:1 note:3")
    listed = {"include_columns": ["id", "note"]}
    with pytest.raises(ConfigError, match="'secret' may have been renamed to 'note'"):
        hidden(listed, taken, (gone, taken), given={"id": "id", "note": "note", "secret": "secret"})
    # A name that is listed for what it is now is meant.
    assert hidden(listed, taken, (gone, taken), given={"id": "id", "secret": "secret"}) == (["id", "note"], [])


def test_an_announced_column_that_comes_under_a_hidden_name_is_hidden_and_others_are_not():
    again = numbered("id*:1 note:3 phone:5 more:6")
    assert hidden({"column_mask_hash": ["phone"]}, again, (OLD, again)) == (["id", "note", "more"], ["phone"])
    assert hidden({"exclude_columns": ["phone"]}, again, (OLD, again)) == (["id", "note", "more"], [])


def test_rows_from_before_the_first_announcement_are_hidden_by_later_names():
    before = relation("id* phone note")
    columns = tuple(replace(c, first=c.name if c.name != "mobile" else "phone") for c in NEW.columns)
    after = replace(NEW, columns=columns)
    assert hidden({"column_mask_hash": ["mobile"]}, before, (before, after)) == (["id", "note"], ["phone"])
    assert hidden({"exclude_columns": ["phone"]}, after, (before, after)) == (["id", "note"], [])
    # If it is not known which of them they were, it is as without announcements.
    for name in ("mobile", "phone"):
        with pytest.raises(ConfigError, match="'phone' may have been renamed to 'mobile'"):
            hidden({"column_mask_hash": [name]}, NEW, (before, NEW))


def followed(said, versions, remedy):
    """Return the configuration that a remedy leads to, step by step."""
    for _ in versions[1].columns:
        try:
            hidden(said, versions[1], versions)
        except ConfigError as refused:
            name, key = re.search(remedy, refused.remedy).groups()
            said = said | {key: [*said.get(key, []), name]}
    return said


def waived(said, versions):
    return followed(said, versions, "or add '(.*)' to (not_renamed), if they are two")


def added(said, versions):
    return followed(said, versions, "; add '(.*)' to (.*), too, if they are one column")


@pytest.mark.parametrize("key", ["exclude_columns", "column_mask_hash"])
@pytest.mark.parametrize("name", ["phone", "mobile"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("id* phone", "id* mobile"),
        ("id* phone note", "id* mobile note"),
        ("id* phone note", "id* mobile note more"),
        ("id* note phone", "id* note mobile more"),
        ("id* phone note", "id* mobile more"),
    ],
)
def test_without_announcements_a_hidden_column_that_may_have_been_renamed_stops_the_run(key, name, before, after):
    versions = relation(before), relation(after)
    with pytest.raises(ConfigError, match=f"may have been renamed to '[a-z]+', and {key} hides only") as refused:
        hidden({key: [name]}, versions[1], versions)
    assert refused.value.table == "shop.people"
    # Both remedies, word by word.
    other = "phone" if name == "mobile" else "mobile"
    assert "mobile" not in hidden({key: [name, other]}, versions[1], versions)[0]
    assert ("mobile" in hidden(waived({key: [name]}, versions), versions[1], versions)[0]) == (name == "phone")
    # A rename that is configured needs neither.
    if "more" not in after:
        renamed = {key: [name], "rename_columns": {"phone": "mobile"}}
        assert "mobile" not in hidden(renamed, versions[1], versions)[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("id* phone note", "id* note"),
        ("id* phone note", "id* note more"),
        ("id* phone note", "id* phone note more"),
        ("id* phone note", "id* phone"),
        ("id* phone note", "id* phone more"),
        ("id* note phone", "id* more phone"),
        ("id* note", "id* note phone"),
        ("id* note", "id* more phone"),
    ],
)
def test_what_places_prove_to_be_another_column_stops_nothing(before, after):
    versions = relation(before), relation(after)
    for key in ("exclude_columns", "column_mask_hash"):
        seen, _ = hidden({key: ["phone"]}, versions[1], versions)
        assert seen == [column.name for column in versions[1].columns if column.name != "phone"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("id* phone note", "id* note phone"),
        ("id* phone note more", "id* note more phone"),
        ("id* phone note more", "id* more phone note"),
        ("id* note phone more", "id* more note phone"),
        ("id* note phone more", "id* more phone note"),
        # The name has passed to a new column.
        ("id* phone note", "id* tel note phone"),
        ("id* phone", "id* tel phone"),
        ("more id* phone note", "id* tel phone note"),
    ],
)
def test_names_that_have_changed_places_may_be_those_of_other_columns(before, after):
    versions = relation(before), relation(after)
    for key in ("exclude_columns", "column_mask_hash"):
        with pytest.raises(ConfigError, match="may have been renamed"):
            hidden({key: ["phone"]}, versions[1], versions)
        assert "phone" not in hidden(waived({key: ["phone"]}, versions), versions[1], versions)[0]
        assert not {*hidden(added({key: ["phone"]}, versions), versions[1], versions)[0]} & {"phone", "tel"}
    listed = [column.name for column in versions[0].columns if column.name != "phone"]
    if "tel" in after:
        # What is new is left out by such a list.
        assert hidden({"include_columns": listed}, versions[1], versions)[0] == [
            n for n in ("id", "note") if n in after
        ]
        return
    with pytest.raises(ConfigError, match="include_columns hides only one"):
        hidden({"include_columns": listed}, versions[1], versions)


def test_include_columns_leaves_out_what_the_source_renames_and_takes_what_is_listed():
    before, after = relation("id* phone note"), relation("id* mobile note")
    for name in ("phone", "mobile"):
        listed = {"include_columns": ["id", name]}
        for of in (before, after):
            assert hidden(listed, of, (before, after))[0] == [c.name for c in of.columns if c.name in ("id", name)]


def test_a_typo_in_the_name_of_a_table_with_hidden_columns_stops_the_run():
    for key in ("include_columns", "exclude_columns", "column_mask_hash"):
        given = settings({key: ["id"]})
        for name in ("peopel", "People", "peoples"):
            with pytest.raises(ConfigError, match=rf"hides columns by {key}; the nearest is shop\.{name}") as refused:
                unmatched_tables(given, [relation(name="orders"), relation(name=name)])
            assert refused.value.table == f"shop.{name}"
            # Both remedies: the right name, and an entry that says nothing.
            assert unmatched_tables(given, [relation(name=name)], ["shop.people"]) == []
            entries = [*given.explicit["objects"], {"table": {"source_schema": "shop", "source_table": name}}]
            both = Settings.from_mapping({"objects": entries, "column_mask_salt": "pepper"})
            assert len(unmatched_tables(both, [relation(name=name)])) == 1
        with pytest.raises(ConfigError, match=r"the nearest is shoq\.people"):
            unmatched_tables(given, [relation(namespace="shoq")])
        # It may be still to come.
        for other in (relation(name="people_of_old"), relation(name="person"), relation(namespace="stage")):
            assert len(unmatched_tables(given, [other])) == 1


def test_a_table_that_the_captures_do_not_have_is_told():
    told = unmatched_tables(settings({}), [relation(name="peoples"), relation(name="orders")])
    assert told == ["objects names shop.people, which is none of the captures' tables; the nearest is shop.peoples"]
    assert unmatched_tables(settings({}), [relation()]) == []

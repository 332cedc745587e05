from dataclasses import replace

import pytest

from support.planned import INT, TEXT, catalogue_of, configured, mirrors, relation
from walreplay.decode.announcements import Layout, LayoutColumn
from walreplay.delta.target import TableName
from walreplay.errors import ConfigError
from walreplay.evolution.shapes import OWN, TableShape
from walreplay.fold.events import Identity, Mode
from walreplay.names import Output
from walreplay.protocol import messages as m
from walreplay.table.registry import MirrorEntry
from walreplay.table.versions import check_distinct, identity_of, ignores_key


@pytest.mark.parametrize(
    ("given", "keys", "expected"),
    [
        (relation("id* note"), None, Identity(Mode.KEYED, (0,))),
        (relation("a* b c*", "i"), None, Identity(Mode.KEYED, (0, 2))),
        (relation("a"), None, Identity(Mode.APPEND)),
        (relation("a*", "n"), None, Identity(Mode.APPEND)),
        (relation("a b", "f"), None, Identity(Mode.MULTISET)),
        (relation("a b", "f"), ["b", "a"], Identity(Mode.KEYED, (1, 0))),
        (relation("id code*", "i"), ["id"], Identity(Mode.KEYED, (1,))),
        (relation("id", "n"), ["id"], Identity(Mode.KEYED, (0,))),
    ],
)
def test_rows_are_told_apart_by_the_key_that_old_rows_bring(given, keys, expected):
    assert identity_of(given, keys) == expected


def test_a_key_that_old_rows_do_not_bring_is_ignored():
    assert ignores_key(relation("id code*", "i"), ["id"])
    assert not ignores_key(relation("id code", "f"), ["id"])
    assert not ignores_key(relation("id* note"), None)


def test_a_configured_key_column_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match="'nr' is none of the table's columns") as caught:
        identity_of(relation("id* note"), ["nr"])
    assert caught.value.table == "s.t"


def test_versions_of_one_relation_are_one_table_whatever_its_name():
    versions = [relation("id*", oid=1), relation("id*", oid=2, name="u"), relation("id*", oid=1, name="renamed")]
    catalogue = catalogue_of(versions)
    found = mirrors(catalogue)
    assert found[versions[0]].table == found[versions[2]].table != found[versions[1]].table
    assert [found[item].oid for item in versions] == [1, 2, 1]
    assert catalogue.by_number[found[versions[2]].number].relation == versions[2]


def test_tables_that_are_not_wanted_are_not_there():
    versions = [relation("id*", oid=1), relation("id*", oid=2, name="u")]
    catalogue = catalogue_of(versions, configured(table_exclude_list=["s.u"]))
    assert list(catalogue.versions) == versions[:1]
    assert list(catalogue.assignments) == versions[:1]


def test_left_out_columns_move_the_keys_number():
    settings = configured(table={"exclude_columns": ["secret"]})
    (version,) = mirrors(catalogue_of([relation("secret id* note")], settings)).values()
    assert version.identity.key == (1 - 1,)
    assert version.names == ("id", "note")
    assert [column.name for column in version.shown.columns] == ["id", "note"]
    assert len(version.types) == 3


def test_a_masked_column_is_a_string_whatever_it_was():
    settings = configured(column_mask_salt="salt", table={"column_mask_hash": ["mail", "age"]})
    given = relation(f"id* mail:{TEXT} age")
    catalogue = catalogue_of([given], settings)
    names = [column.type.postgres_name for column in mirrors(catalogue)[given].columns]
    assert names == ["integer", "masked text", "masked integer"]
    # What is decoded is not yet masked.
    assert [kind.postgres_name for kind in catalogue.assignments[given].types] == ["integer", "text", "integer"]
    masked = catalogue.assignments[given].tables[Output.MIRROR].shown.masked
    assert [(number, kind.postgres_name) for number, kind in masked] == [(1, "text"), (2, "integer")]


def test_a_columns_comment_is_what_is_announced_of_it_last():
    given = relation("id* old note")
    told = replace(given, columns=tuple(replace(one, number=n) for n, one in enumerate(given.columns, 1)))
    named = [LayoutColumn(1, "id", INT, comment="a"), LayoutColumn(2, "new", INT, comment="b")]
    layout = Layout(9, 100, 4, (*named, LayoutColumn(4, "note", INT, comment="d")), (), "whole")

    def comments(version, *layouts):
        (found,) = mirrors(catalogue_of([version], layouts=layouts)).values()
        return found.comment, [column.comment for column in found.columns]

    # The second column was renamed since, the third dropped and added again.
    assert comments(told, layout) == ("whole", ["integer: a", "integer: b", "integer"])
    # Whose numbers are not known goes by its name and type.
    assert comments(given, layout) == ("whole", ["integer: a", "integer", "integer: d"])
    assert comments(relation(f"id*:{TEXT}"), layout) == ("whole", ["text"])
    assert comments(told, replace(layout, oid=8)) == comments(told) == ("", ["integer"] * 3)


def test_soft_deletes_add_a_column_behind_the_others_and_need_a_key():
    given = relation("id* note")
    catalogue = catalogue_of([given], configured(soft_deletes=True))
    assert mirrors(catalogue)[given].columns[-1].name == OWN
    assert mirrors(catalogue)[given].names == ("id", "note", "__deleted")
    assert mirrors(catalogue)[given].identity.evicts
    assert catalogue.assignments[given].tables[Output.MIRROR].marks_deleted
    for keyless in (relation("id note", "f"), relation("id note"), relation("id* note", "n")):
        with pytest.raises(ConfigError, match="need a key") as refused:
            catalogue_of([keyless], configured(soft_deletes=True))
        assert refused.value.table == "s.t"
        # Both remedies; and with only a log of changes there is nothing to delete.
        for said in ({"keys": ["id"]}, {"soft_deletes": False}, {"outputs": ["changelog"]}):
            assert catalogue_of([keyless], configured(soft_deletes=True, table=said)).versions


def test_each_version_has_the_names_that_it_had_where_columns_are_renamed_later():
    settings = configured(table={"rename_columns": {"note": "text"}})
    before, after = relation("id* note"), relation("id* text")
    catalogue = catalogue_of([before, after], settings)
    assert mirrors(catalogue)[before].names == ("id", "note")
    assert mirrors(catalogue)[after].names == ("id", "text")


def test_a_configured_key_goes_by_the_name_that_it_has_in_a_version():
    settings = configured(table={"keys": ["id"], "rename_columns": {"id": "nr"}})
    before, after = relation("note id", "f"), relation("note nr", "f")
    catalogue = catalogue_of([before, after], settings)
    assert [version.identity.key for version in mirrors(catalogue).values()] == [(1,), (1,)]
    assert all(version.configured for version in mirrors(catalogue).values())


def test_a_version_that_is_over_need_not_fit_the_configuration():
    settings = configured(table={"keys": ["nr"]})
    before, after = relation("id", "f"), relation("nr", "f")
    assert list(catalogue_of([after], settings, before=[before]).versions) == [after]
    with pytest.raises(ConfigError, match="'nr'"):
        catalogue_of([before, after], settings)


def test_names_that_were_given_are_kept_for_good():
    entry = MirrorEntry(9, "s.t", TableName("/mirror/s/t"), TableShape(), names=(("id", "id"), ("Note", "Note")))
    given = relation("id* note")
    # Note is no longer a column, not even a kept one; its name is still its own.
    assert mirrors(catalogue_of([given], entries=[entry]))[given].names == ("id", "note__2")
    assert mirrors(catalogue_of([given]))[given].names == ("id", "note")


def test_a_relation_without_a_namespace_is_pg_catalogs():
    given = m.Relation(1, "", "pg_class", "d", (m.Column("id", 23, -1, True),))
    assert mirrors(catalogue_of([given]))[given].selection.namespace == "pg_catalog"


def test_two_tables_of_one_place_are_named():
    one, other = relation("id*", oid=1, namespace="a"), relation("id*", oid=2, namespace="b")
    catalogue = catalogue_of([one, other])
    listed = [(item.qualified_name, "main.raw.t", mirrors(catalogue)[item]) for item in (one, other)]
    with pytest.raises(ConfigError, match=r"a\.t and b\.t would be the same table of the target, main\.raw\.t"):
        check_distinct(listed)


def test_a_table_without_columns_has_rows_that_nothing_tells_apart_whatever_key_is_configured():
    plain, whole = relation(""), relation("", identity="f")
    bare = {"keys": ["id"], "exclude_columns": ["x"]}
    found = mirrors(catalogue_of([relation("id* x"), plain, whole], configured(table=bare)))
    assert [found[one].identity.mode for one in (plain, whole)] == [Mode.APPEND, Mode.MULTISET]
    assert found[plain].columns == ()


def test_where_the_configuration_leaves_no_column_at_all_rows_without_columns_are_left_out():
    none = dict.fromkeys(["commit_lsn_column", "commit_ts_column", "rescued_data_column"])
    bare, other = relation(""), relation("id*", oid=10, name="other")
    found = catalogue_of([bare, other], configured(**none))
    assert list(found.versions) == [other]
    (warning,) = found.warnings
    assert warning.startswith("s.t: the table has no columns, and the configuration leaves out")
    one_is_left = catalogue_of([bare], configured(**none | {"commit_ts_column": "at"}))
    assert list(one_is_left.versions) == [bare]
    assert not one_is_left.warnings
    with pytest.raises(ConfigError, match="no column is left"):
        catalogue_of([relation("id x", identity="n")], configured(table={"exclude_columns": ["id", "x"]}))

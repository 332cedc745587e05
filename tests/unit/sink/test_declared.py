"""Columns as Delta's log declares them: what becomes of them when they are changed."""

from walreplay.sink.declared import Added, Changes, changed


def field(name, kind="integer", number=1, **metadata):
    told = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": told | metadata}


def new(name, kind="string"):
    return {"name": name, "type": kind, "nullable": True}


FIELDS = [field("a"), field("b", number=2), field("c", "string", 3)]


def test_a_column_that_is_renamed_keeps_what_its_files_call_it():
    found = changed(FIELDS, Changes(renames=[("b", "x")]))
    assert found == [FIELDS[0], FIELDS[1] | {"name": "x"}, FIELDS[2]]


def test_columns_go_and_come_in_their_places():
    adds = [Added(new("first"), None), Added(new("d"), "a"), Added(new("e"), "d"), Added(new("last"), "c")]
    found = changed(FIELDS, Changes(drops=["b"], adds=adds))
    assert [one["name"] for one in found] == ["first", "a", "d", "e", "c", "last"]
    assert found[2] == new("d") | {"metadata": {}}


def test_a_column_that_is_widened_says_what_it_was():
    found = changed(FIELDS, Changes(renames=[("a", "x")], types={"x": "long"}))
    assert found[0]["type"] == "long"
    assert found[0]["metadata"]["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    again = changed(found, Changes(types={"x": "decimal(20,0)"}))
    assert [one["toType"] for one in again[0]["metadata"]["delta.typeChanges"]] == ["long", "decimal(20,0)"]


def test_so_do_the_elements_of_an_array():
    def array(kind):
        return {"type": "array", "elementType": kind, "containsNull": True}

    (found,) = changed([field("a", array("short"))], Changes(types={"a": array("integer")}))
    assert found["type"] == array("integer")
    told = {"fromType": "short", "toType": "integer", "fieldPath": "element"}
    assert found["metadata"]["delta.typeChanges"] == [told]


def test_what_is_done_already_is_not_done_again():
    changes = Changes(["b"], [("c", "x")], {"a": "long"}, [Added(new("d"), "a")])
    once = changed(FIELDS, changes)
    assert changed(once, changes) == once


def test_a_column_says_something_else_where_it_says_what_it_was_given_last():
    fields = [field("a", comment="int"), field("b", comment="mine"), field("c"), field("d", comment="int")]
    comments = dict.fromkeys(("a", "b", "c", "x"), ("int", "bigint"))
    found = changed(fields, Changes(renames=[("d", "x")], comments=comments))
    assert [one["metadata"].get("comment") for one in found] == ["bigint", "mine", None, "bigint"]
    assert changed(found, Changes(comments=comments)) == found


def test_a_new_column_says_what_it_is():
    added = {**new("b"), "metadata": {"comment": "text"}}
    assert changed([field("a")], Changes(adds=[Added(added, "a")]))[1] == added

"""Keys that are read so that two of them may become one are refused."""

import pytest

from support.framings import frame
from walreplay.changes import plan_files
from walreplay.config import Settings
from walreplay.errors import ConfigError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.table.versions import Catalogue

INT4, TEXT, NUMERIC, NUMERICS = 23, 25, 1700, 1231


def catalogue(tmp_path, kind, *, identity="d", **configured):
    columns = (m.Column("nr", kind, -1, True), m.Column("note", TEXT, -1, identity == "f"))
    row = m.Insert(9, m.TupleData((m.NULL_CELL, m.NULL_CELL)))
    changes = [m.Relation(9, "s", "t", identity, columns), row]
    (tmp_path / "a").write_bytes(frame([m.Begin(100, 1, 7), *changes, m.Commit(0, 100, 108, 1)], Framing.RAW))
    return Catalogue.of(plan_files([str(tmp_path / "a")]), Settings.from_mapping(configured), ())


def table(**said):
    return {"objects": [{"table": {"source_schema": "s", "source_table": "t", **said}}]}


@pytest.mark.parametrize(
    ("kind", "configured", "remedy"),
    [
        (TEXT, table(type_overrides={"nr": "bigint"}), "type_overrides"),
        (NUMERIC, table(type_overrides={"nr": "float8"}), "type_overrides"),
        (NUMERIC, {"decimal_handling_mode": "double"}, "decimal_handling_mode"),
        (NUMERICS, {"decimal_handling_mode": "double"}, "decimal_handling_mode"),
        (TEXT, table(type_overrides={"note": "date"}, keys=["nr", "note"]), "note"),
    ],
)
def test_keys_that_may_become_the_same_are_refused(tmp_path, kind, configured, remedy):
    with pytest.raises(ConfigError, match=remedy) as caught:
        catalogue(tmp_path, kind, identity="f" if remedy == "note" else "d", **configured)
    assert caught.value.table == ("s.t.note" if remedy == "note" else "s.t.nr")


@pytest.mark.parametrize(
    ("kind", "identity", "configured"),
    [
        (INT4, "d", table(type_overrides={"nr": "text"})),
        (NUMERIC, "d", table(type_overrides={"nr": "numeric(38,10)"}) | {"decimal_handling_mode": "double"}),
        (TEXT, "d", table(type_overrides={"note": "bigint"})),
        (NUMERIC, "f", {"decimal_handling_mode": "double"}),
        (NUMERIC, "n", {"decimal_handling_mode": "double"}),
    ],
)
def test_all_others_are_taken(tmp_path, kind, identity, configured):
    assert len(catalogue(tmp_path, kind, identity=identity, **configured).versions) == 1


@pytest.mark.parametrize(
    ("kind", "configured", "reading", "remedy"),
    [
        (
            NUMERICS,
            {"decimal_handling_mode": "double"},
            "a numeric that is read as a double",
            "Give nr a type of its own by type_overrides, such as numeric(38,10) or text; or set decimal_handling_mode "
            "to precise",
        ),
        (
            TEXT,
            table(type_overrides={"nr": "bigint"}),
            "read as bigint",
            "Leave nr out of the table's type_overrides, or name other keys",
        ),
    ],
)
def test_the_error_says_how_the_key_is_read(tmp_path, kind, configured, reading, remedy):
    with pytest.raises(ConfigError) as caught:
        catalogue(tmp_path, kind, **configured)
    assert caught.value.problem == f"the key column is {reading}, by which different keys may become the same"
    assert caught.value.remedy == remedy

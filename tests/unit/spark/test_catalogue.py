import pytest

from wal2delta.changes import plan_files
from wal2delta.errors import ConfigError, NotSupported
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing
from wal2delta.protocol.writer import frame
from wal2delta.settings import Settings
from wal2delta.sink.events import Identity, Mode
from wal2delta.spark.catalogue import Catalogue, identity_of, ignores_key
from wal2delta.spark.staging import Staged
from wal2delta.spark.target import Target


def relation(identity="d", *columns, name="t", oid=9, namespace="s"):
    columns = columns or (("id", True), ("note", False))
    return m.Relation(oid, namespace, name, identity, tuple(m.Column(n, 23, -1, key) for n, key in columns))


@pytest.mark.parametrize(
    ("given", "keys", "expected"),
    [
        (relation("d"), None, Identity(Mode.KEYED, (0,))),
        (relation("i", ("a", True), ("b", False), ("c", True)), None, Identity(Mode.KEYED, (0, 2))),
        (relation("d", ("a", False)), None, Identity(Mode.APPEND)),
        (relation("n", ("a", True)), None, Identity(Mode.APPEND)),
        (relation("f", ("a", True), ("b", True)), None, Identity(Mode.MULTISET)),
        (relation("f", ("a", True), ("b", True)), ["b", "a"], Identity(Mode.KEYED, (1, 0))),
        (relation("i", ("id", False), ("code", True)), ["id"], Identity(Mode.KEYED, (1,))),
        (relation("n", ("id", False)), ["id"], Identity(Mode.KEYED, (0,))),
    ],
)
def test_rows_are_told_apart_by_the_key_that_old_rows_bring(given, keys, expected):
    assert identity_of(given, keys) == expected


def test_a_key_that_old_rows_do_not_bring_is_ignored():
    assert ignores_key(relation("i", ("id", False), ("code", True)), ["id"])
    assert not ignores_key(relation("f", ("id", True), ("code", True)), ["id"])
    assert not ignores_key(relation("d"), None)


def test_a_configured_key_column_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match="'nr' is none of the table's columns") as caught:
        identity_of(relation(), ["nr"])
    assert caught.value.table == "s.t"


def plan(tmp_path, *relations):
    changes = []
    for number, item in enumerate(relations):
        row = m.TupleData(tuple(m.Cell("t", b"%d" % number) for _ in item.columns))
        changes += [item, m.Insert(item.oid, row)]
    path = tmp_path / "capture"
    path.write_bytes(frame([m.Begin(100, 1, 7), *changes, m.Commit(0, 100, 108, 1)], Framing.RAW))
    return plan_files([str(path)])


def used(tmp_path, *relations, target="/mirror", settings=None):
    settings = settings or Settings()
    planned = plan(tmp_path, *relations)
    catalogue = Catalogue.of(planned, settings, Target.parse(target))
    staged = {}
    for table, number, _ in catalogue.assignments(settings).values():
        before = staged.get(table, Staged())
        staged[table] = Staged(rows=before.rows + 1, relations=(*before.relations, number))
    return catalogue.used(staged, (), planned, settings)


def test_each_relation_with_rows_has_a_table(tmp_path):
    tables = used(tmp_path, relation(name="a", oid=1), relation(name="b", oid=2))
    assert [table.table.text for table in tables] == ["/mirror/s/a", "/mirror/s/b"]


def test_an_ignored_key_is_noted(tmp_path):
    settings = Settings.from_mapping(
        {"objects": [{"table": {"source_schema": "s", "source_table": "t", "keys": ["id"]}}]}
    )
    (table,) = used(tmp_path, relation("i", ("id", False), ("code", True)), settings=settings)
    assert "replica identity" in table.notes[0]
    assert not table.configured


@pytest.mark.parametrize(
    ("versions", "what"),
    [
        ([relation(), relation("d", ("id", True), ("note", False), ("more", False))], "schema changes"),
        ([relation(), relation("d", ("id", True), ("text", False))], "schema changes"),
        ([relation(), relation("f", ("id", True), ("note", True))], "replica identity changes"),
        ([relation(), relation(oid=10)], "created again"),
        ([relation(), relation(name="renamed")], "renamed tables"),
    ],
)
def test_what_cannot_be_followed_yet_is_refused(tmp_path, versions, what):
    with pytest.raises(NotSupported, match=what) as caught:
        used(tmp_path, *versions)
    assert caught.value.table


def test_two_tables_that_would_be_one_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="would be the same table"):
        used(tmp_path, relation(oid=1, namespace="a"), relation(oid=2, namespace="b"), target="main.raw")

"""What of a change of columns is ALTER TABLE's, and what rewrites the table; and that statements may be begun again."""

import json
import re
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.evolutions import MARK, TYPES, columns, evolve
from walreplay.config import Settings
from walreplay.config.selection import metadata_of
from walreplay.delta.statements import sql_type
from walreplay.delta.target import TableName
from walreplay.errors import CaptureError
from walreplay.evolution.shapes import Evolution, Policy, SourceColumn
from walreplay.fold.change_log import Projection
from walreplay.names import Output, column_names
from walreplay.spark.workers.rows import refusal_in
from walreplay.types.families import may_be_rescued
from walreplay.writing.alter import (
    RewriteTask,
    _Level,
    _levels,
    _pending,
    _statements,
    alters,
    rewrite_batches,
    touches_rescued,
)

TABLE = TableName(path="/m/s/t")


def sql(evolution, there=None):
    """Return the statements that the table still needs; None where it is rewritten."""
    statements = _statements(evolution)
    if statements is None:
        return None
    there = there or {one.name: sql_type(one.type.arrow).lower() for one in evolution.before.columns}
    return [
        statement.removeprefix("ALTER TABLE delta.`/m/s/t` ")
        for statement in _pending(TABLE, _Level(statements, evolution.shape), there, {})
    ]


DROPPING = Policy(keep_dropped=False)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["id a", "id a b:text"], ["ADD COLUMNS (`b` STRING AFTER `a`)"]),
        (["id a", "id a b c"], ["ADD COLUMNS (`b` INT AFTER `a`, `c` INT AFTER `b`)"]),
        (["id c", "id b c"], ["ADD COLUMNS (`b` INT AFTER `id`)"]),
        (["id", "`b id"], ["ADD COLUMNS (```b` INT FIRST)"]),
        (["id a b", "id b"], ["DROP COLUMNS (`a`)"]),
        (["id a b", "id x b"], ["RENAME COLUMN `a` TO `x`"]),
        (["id a", "id:bigint a:double"], ["ALTER COLUMN `id` TYPE BIGINT", "ALTER COLUMN `a` TYPE DOUBLE"]),
        (["id a:smallint", "id a", "id a:bigint"], ["ALTER COLUMN `a` TYPE BIGINT"]),
        (["id a:n52", "id a:n63"], ["ALTER COLUMN `a` TYPE DECIMAL(6,3)"]),
        (["id a:n52", "id a:n83"], ["ALTER COLUMN `a` TYPE DECIMAL(8,3)"]),
        (["id a:date", "id a:timestamp"], ["ALTER COLUMN `a` TYPE TIMESTAMP_NTZ"]),
        (
            ["id a b c", "id x b d", "id:bigint x b d"],
            [
                "DROP COLUMNS (`c`)",
                "RENAME COLUMN `a` TO `x`",
                "ALTER COLUMN `id` TYPE BIGINT",
                "ADD COLUMNS (`d` INT AFTER `b`)",
            ],
        ),
        # Not in place, or not exactly.
        (["id a", "id a:text"], None),
        (["id a:bigint", "id a"], None),
        (["id a:bigint", "id a:double"], None),
        (["id a", "id a:bigint", "id a:double"], None),
        (["id a", "id a:bigint", "id a"], None),
        (["id a", "id a:text", "id a"], None),
        (["id a:char5", "id a:char9"], None),
        (["id a:ints", "id a:text"], None),
        # Names that go and come: a table that has one does not show by which statement.
        (["id a b", "id b a"], None),
        (["id a b", "id b:text a"], None),
        (["id a b c", "id b x c"], None),
        (["id a b", "id A b"], None),
    ],
)
def test_what_delta_can_do_in_place_is_done_there(versions, expected):
    evolution = evolve(*versions, policy=DROPPING)
    assert alters(evolution)
    assert sql(evolution) == expected


@pytest.mark.parametrize("versions", [["id a", "id a"], ["id a b", "id b"], ["id a:mood", "id a:text"], ["id a", "id"]])
def test_a_column_that_is_merely_kept_or_means_the_same_does_not_change_the_table(versions):
    assert not alters(evolve(*versions))
    assert not touches_rescued(evolve(*versions))


def test_values_may_change_though_the_tables_type_does_not():
    evolution = evolve("id a:char5", "id a:char9")
    assert evolution.before.columns[1].type.arrow == evolution.shape.columns[1].type.arrow
    assert alters(evolution)
    assert _statements(evolution) is None


def test_the_order_of_columns_is_changed_by_a_rewrite():
    first = Evolution(None, Policy())
    first.take(columns("id a"))
    evolution = Evolution(first.shape, Policy(), anew=True)
    evolution.take(columns("a id"))
    assert alters(evolution)
    assert _statements(evolution) is None


@pytest.mark.parametrize(
    ("versions", "touches"),
    [
        (["id a", "id a b"], False),
        (["id a b", "id b"], True),
        (["id a b", "id x b"], True),
        # An integer has rescued texts if it was a text before.
        (["id a", "id a:bigint"], True),
        (["id a:mood", "id a:text"], False),
    ],
)
def test_rescued_texts_go_along_with_renames_drops_and_types(versions, touches):
    assert touches_rescued(evolve(*versions, policy=DROPPING)) is touches


class Columns:
    """A Delta table's columns, as ALTER TABLE leaves them, and what they say."""

    def __init__(self, shape):
        self.columns = [(one.name, sql_type(one.type.arrow).lower()) for one in shape.columns]
        self.says = {one.name: one.comment for one in shape.columns if one.comment}

    def names(self):
        return [name for name, _ in self.columns]

    def run(self, statement):
        statement = statement.removeprefix("ALTER TABLE delta.`/m/s/t` ")
        if found := re.fullmatch(r"DROP COLUMNS \((.*)\)", statement):
            gone = re.findall("`(.*?)`", found[1])
            assert set(gone) <= set(self.names())
            self.columns = [one for one in self.columns if one[0] not in gone]
            self.says = {name: comment for name, comment in self.says.items() if name not in gone}
        elif found := re.fullmatch("ALTER COLUMN `(.*)` COMMENT '(.*)'", statement):
            assert found[1] in self.names()
            self.says[found[1]] = found[2]
        elif found := re.fullmatch("RENAME COLUMN `(.*)` TO `(.*)`", statement):
            assert found[1] in self.names()
            assert found[2].lower() not in [name.lower() for name in self.names()]
            self.columns = [(found[2] if name == found[1] else name, kind) for name, kind in self.columns]
            self.says = {found[2] if name == found[1] else name: comment for name, comment in self.says.items()}
        elif found := re.fullmatch("ALTER COLUMN `(.*)` TYPE (.*)", statement):
            assert found[1] in self.names()
            self.columns = [(name, found[2].lower() if name == found[1] else kind) for name, kind in self.columns]
        elif found := re.fullmatch(r"ADD COLUMNS \((.*)\)", statement):
            new = r"`([^`]*)` ([A-Z_]+(?:\(\d+,\d+\))?)(?: COMMENT '([^']*)')? (FIRST|AFTER `[^`]*`)"
            for name, kind, comment, place in re.findall(new, found[1]):
                if comment:
                    self.says[name] = comment
                assert name.lower() not in [one.lower() for one in self.names()]
                at = 0 if place == "FIRST" else self.names().index(place[7:-1]) + 1
                self.columns.insert(at, (name, kind.lower()))
        else:
            raise AssertionError(statement)


tables = st.lists(
    st.tuples(st.sampled_from("abcdA"), st.sampled_from(["smallint", "int", "bigint", "n52", "n83"])),
    min_size=1,
    max_size=5,
    unique_by=lambda column: column[0],
)


@given(
    st.lists(tables, min_size=2, max_size=4),
    st.booleans(),
    st.lists(st.integers(0, 4), max_size=3),
    st.booleans(),
    st.sets(st.integers(0, 5)),
)
def test_statements_bring_the_table_to_its_shape_wherever_they_were_broken_off(versions, keep, breaks, is_old, own):
    names = column_names([[name for name, _ in version] for version in versions])
    first = Evolution(None, Policy(keep_dropped=keep))
    sources = [[SourceColumn(name, names[name], TYPES[kind], kind) for name, kind in version] for version in versions]
    first.take([replace(one, comment="") if is_old else one for one in [*sources[0], MARK]])
    evolution = Evolution(first.shape, first.policy)
    for source in sources[1:]:
        evolution.take([*source, MARK])
    table, expected = Columns(evolution.before), Columns(evolution.shape).columns
    # What somebody has some columns say, they go on to say.
    says = Columns(evolution.shape).says
    for number in own & set(range(len(evolution.before.columns))):
        id_ = evolution.before.columns[number].id
        table.says[evolution.before.columns[number].name] = "mine"
        says |= {one.name: "mine" for one in evolution.shape.columns if one.id == id_}
    if not alters(evolution):
        assert (table.columns, table.says) == (expected, says)
        return
    statements = _statements(evolution)
    if statements is None:
        return
    level = _Level(statements, evolution.shape)
    for done in [*breaks, None]:
        for statement in [*_pending(TABLE, level, dict(table.columns), table.says)][:done]:
            table.run(statement)
    assert (table.columns, table.says) == (expected, says)
    assert not [*_pending(TABLE, level, dict(table.columns), table.says)]


@given(st.lists(tables, min_size=2, max_size=4), st.booleans(), st.lists(st.integers(0, 4), max_size=3))
def test_the_fields_of_old_rows_follow_the_columns_of_their_change_log(versions, keep, breaks):
    names = column_names([[name for name, _ in version] for version in versions])
    first = Evolution(None, Policy(keep_dropped=keep))
    sources = [[SourceColumn(name, names[name], TYPES[kind], kind) for name, kind in version] for version in versions]
    first.take(sources[0])
    evolution = Evolution(first.shape, first.policy)
    for source in sources[1:]:
        evolution.take(source)
    statements = _statements(evolution)
    if statements is None:
        return
    own, fields = _levels(statements, evolution.shape, metadata_of(Settings(), Output.CHANGELOG))
    assert (own.first, fields.within) == ("__offset", "__before")
    table, expected = Columns(evolution.before), Columns(evolution.shape).columns
    table.says = {}
    for done in [*breaks, None]:
        for statement in [*_pending(TABLE, fields, dict(table.columns), {})][:done]:
            assert "COMMENT" not in statement
            table.run(statement.replace("`__before`.", ""))
            # Delta lets none be without a field.
            assert table.columns
    assert table.columns == expected
    assert not [*_pending(TABLE, fields, dict(table.columns), {})]


def test_a_column_that_is_added_to_a_change_log_stands_behind_the_logs_own():
    evolution = evolve("a", "b a")
    own, fields = _levels(_statements(evolution), evolution.shape, metadata_of(Settings(), Output.CHANGELOG))
    (added,) = _pending(TABLE, own, {"a": "int"}, {})
    (added_to_old_rows,) = _pending(TABLE, fields, {"a": "int"}, {})
    assert added.endswith("ADD COLUMNS (`b` INT AFTER `__offset`)")
    assert added_to_old_rows.endswith("ADD COLUMNS (`__before`.`b` INT FIRST)")


def batch(**values):
    return pa.RecordBatch.from_pydict(values)


def task(*versions, rescued="_rescued_data"):
    evolution = evolve(*versions)
    old = [one.name for one in evolution.before.columns]
    names = [*(one.name for one in evolution.shape.columns), "lsn", *([rescued] if rescued else [])]
    types = [*(one.type.arrow for one in evolution.shape.columns), pa.int64(), *([pa.string()] if rescued else [])]
    metadata = tuple(range(len(old), len(old) + (2 if rescued else 1)))
    return RewriteTask(
        Projection.of(evolution.of_table(), old, names[: len(evolution.shape.columns)], rescues=rescued is not None),
        before=tuple(range(len(old))),
        metadata=metadata,
        rescued=metadata[1] if rescued else None,
        schema=pa.schema(list(zip(names, types, strict=True))),
    )


def test_a_rewritten_table_has_its_old_rows_in_its_new_columns():
    given = batch(
        id=pa.array([1, 2], pa.int32()),
        a=pa.array(["7", "x"]),
        b=pa.array([5, 6], pa.int32()),
        lsn=pa.array([10, 11]),
        _rescued_data=pa.array([json.dumps({"b": "gone"}), None]),
    )
    found = task("id a:text b", "id:bigint x:text b", "id:bigint x b", "id:bigint b x")
    (result,) = rewrite_batches([given], task=found)
    assert result.to_pylist() == [
        {"id": 1, "b": 5, "x": None, "lsn": 10, "_rescued_data": '{"b":"gone"}'},
        {"id": 2, "b": 6, "x": None, "lsn": 11, "_rescued_data": None},
    ]
    (result,) = rewrite_batches([given], task=task("id a:text b", "id x:text b", "id x b"))
    assert result.column("x").to_pylist() == [7, None]
    assert [json.loads(text) for text in result.column("_rescued_data").to_pylist()] == [{"b": "gone"}, {"x": "x"}]
    assert result.schema.field("x").type == pa.int32()


def test_a_table_without_a_column_for_them_loses_no_value():
    given = batch(id=pa.array([1], pa.int32()), a=pa.array(["x"]), lsn=pa.array([10]))
    with pytest.raises(RuntimeError) as caught:
        list(rewrite_batches([given], task=task("id a:text", "id a", rescued=None)))
    refusal = refusal_in(str(caught.value))
    assert isinstance(refusal, CaptureError)
    assert "'a' has another type now" in refusal.problem


def test_types_whose_values_may_be_rescued_are_known():
    names = [name for name, kind in TYPES.items() if may_be_rescued(kind)]
    assert names == ["mood", "date", "timestamp", "n52", "n83", "n63", "real", "double", "ints"]

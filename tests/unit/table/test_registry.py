import dataclasses
import shlex

import pyarrow as pa
import pytest

from walreplay.config.model import Narrowed, tables_named
from walreplay.config.selection import Share, TableLayout
from walreplay.delta.target import TableName, Target
from walreplay.evolution.shapes import OWN, MirrorColumn, TableShape
from walreplay.ledger.state import Rebuild, Replacement, from_json, to_json
from walreplay.names import Output
from walreplay.table.registry import MirrorEntry, made_again
from walreplay.types import families, resolve
from walreplay.types.base import ColumnType

SHAPE = TableShape(
    (
        MirrorColumn(0, "id", "id", resolve(23, -1, {}), comment="it's \\ an integer"),
        MirrorColumn(3, "Größe", "Größe__2", resolve(1700, (10 << 16 | 2) + 4, {}), dropped=True, was=("a", "b")),
        MirrorColumn(4, "tags", "tags", resolve(1009, -1, {})),
        MirrorColumn(5, OWN, "__deleted", ColumnType(pa.bool_(), families.BOOLEAN, "boolean")),
    ),
    6,
)

TABLE = TableName("/m/s/t")


@pytest.mark.parametrize("table", [TableName("s3a://b/m/s/t"), TableName(parts=("main", "s", "t"))])
def test_an_entry_is_read_as_it_was_written(table):
    names = (("id", "id"), ("Größe", "Größe__2"))
    entry = MirrorEntry(
        16384, "s.t", table, SHAPE, set_aside=True, names=names, comment='PostgreSQL table s."T"', base_lsn=150
    )
    assert from_json(MirrorEntry, to_json(entry)) == entry
    shared = dataclasses.replace(entry, share=Share("__source", "eu"))
    assert from_json(MirrorEntry, to_json(shared)) == shared
    assert made_again(shared) == "apply to a new target"


def test_a_shape_knows_what_the_source_still_has():
    assert [column.name for column in SHAPE.present] == ["id", "tags", "__deleted"]


@pytest.mark.parametrize("target", [Target.parse("/data/mirror"), Target.parse("main.raw")])
def test_a_rebuild_is_read_as_it_was_written_wherever_its_folder_is_then(target):
    def told(place):
        entry = MirrorEntry(9, "s.o'", place.table("s", "o'"), SHAPE, layout=TableLayout((("a", "b"),), ("id",)))
        return Rebuild("an id", "0f", (Replacement(place.side("0f").table("s", "o'"), entry, 7),))

    elsewhere = Target.parse("/moved/to") if target.root is not None else target
    assert from_json(Rebuild, to_json(told(target).placed(target.relative))).placed(elsewhere.absolute) == told(
        elsewhere
    )


@pytest.mark.parametrize(
    ("entry", "remedy"),
    [
        (None, "apply to a new target"),
        (MirrorEntry(9, "s.t", TABLE, SHAPE), r"make it again from the archive by walreplay rebuild --table 's\.t'"),
        (
            MirrorEntry(Output.CHANGELOG.oid_of(9), "s.it's (x) (changelog)", TABLE, SHAPE),
            "make it again from the archive by walreplay rebuild --table "
            """'s\\.it'"'"'s\\ \\(x\\)' --output changelog""",
        ),
        (MirrorEntry(9, "s.t", TABLE, SHAPE, share=Share("source", "a")), "apply to a new target"),
    ],
)
def test_the_remedy_names_the_command_that_makes_a_table_again(entry, remedy):
    assert made_again(entry) == remedy
    if "--table" in remedy:
        expression = shlex.split(remedy.partition("--table ")[2])[0]
        assert tables_named(expression) == expression
        assert Narrowed(expression).wants(entry.source_name)
        assert not Narrowed(expression).wants(entry.source_name.replace(".", "x"))

import json

import pyarrow as pa
import pytest

from walreplay.sink.evolution import OWN, MirrorColumn, TableShape
from walreplay.spark.delta.target import TableName
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.types import resolve
from walreplay.types.base import ColumnType, Family

SHAPE = TableShape(
    (
        MirrorColumn(0, "id", "id", resolve(23, -1, {}), comment="it's \\ an integer"),
        MirrorColumn(3, "Größe", "Größe__2", resolve(1700, (10 << 16 | 2) + 4, {}), dropped=True),
        MirrorColumn(4, "tags", "tags", resolve(1009, -1, {})),
        MirrorColumn(5, OWN, "__deleted", ColumnType(pa.bool_(), Family.BOOLEAN, "boolean")),
    ),
    6,
)


@pytest.mark.parametrize("table", [TableName("s3a://b/m/s/t"), TableName(parts=("main", "s", "t"))])
def test_an_entry_is_read_as_it_was_written(table):
    names = (("id", "id"), ("Größe", "Größe__2"))
    entry = MirrorEntry(
        16384, "s.t", table, SHAPE, set_aside=True, names=names, comment='PostgreSQL table s."T"', base_lsn=150
    )
    assert MirrorEntry.from_json(entry.to_json()) == entry


def test_an_entry_of_an_earlier_version_says_nothing():
    entry = MirrorEntry(16384, "s.t", TableName("/m/s/t"), SHAPE, comment="PostgreSQL table s.t")
    told = json.loads(entry.to_json())
    del told["comment"]
    del told["base_lsn"]
    for column in told["columns"]:
        del column["comment"]
    found = MirrorEntry.from_json(json.dumps(told))
    assert found.base_lsn is None
    assert (found.comment, {column.comment for column in found.shape.columns}) == ("", {""})


def test_a_shape_knows_what_the_source_still_has():
    assert [column.name for column in SHAPE.present] == ["id", "tags", "__deleted"]

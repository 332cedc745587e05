"""Files of Parquet as rows of a table: what converts exactly, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import io
import math
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from walreplay.decode.change_batch import ChangeBatch, column_types
from walreplay.errors import CaptureError, NotSupported, ValueFormatError, WalReplayError
from walreplay.loading.typed_rows import TypedRows, columns_of, read_batches
from walreplay.protocol.messages import Column, Relation

INT4, TEXT, FLOAT4, FLOAT8, DATE = 23, 25, 700, 701, 1082
TIMESTAMP, TIMESTAMPTZ, NUMERIC, TEXTS = 1114, 1184, 1700, 1009
NUMERIC_12_2 = (12 << 16 | 2) + 4


def written(column: pa.Array) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"other": pa.nulls(len(column), pa.int8()), "c": column}), out)
    return out.getvalue()


def read(column: pa.Array, oid: int, typmod: int = -1) -> pa.Array:
    relation = Relation(1, "s", "t", "d", (Column("c", oid, typmod, False),))
    content = written(column)
    assert columns_of(content, "f") == ["other", "c"]
    (batch,) = read_batches(content, TypedRows(relation, column_types(relation, {}), {}, [1], 150, "f"))
    assert batch.commit_lsns.to_pylist() == [150] * len(column)
    assert batch.ops.to_pylist() == ["c"] * len(column)
    return batch.columns[0]


NOON = datetime.datetime(2024, 2, 29, 12)


@pytest.mark.parametrize(
    ("column", "oid", "typmod", "kind"),
    [
        (pa.array([1, None], pa.int64()), INT4, -1, pa.int32()),
        (pa.array(["a", None], pa.large_string()), TEXT, -1, pa.string()),
        (pa.array(["a", "a"]).dictionary_encode(), TEXT, -1, pa.string()),
        (pa.array([1.5, None], pa.float32()), FLOAT8, -1, pa.float64()),
        (pa.array([decimal.Decimal("1.50")], pa.decimal128(20, 2)), NUMERIC, NUMERIC_12_2, pa.decimal128(12, 2)),
        (pa.array([7], pa.int32()), NUMERIC, NUMERIC_12_2, pa.decimal128(12, 2)),
        (pa.array([NOON], pa.timestamp("ms")), TIMESTAMP, -1, pa.timestamp("us")),
        (pa.array([NOON], pa.timestamp("us", "Europe/Berlin")), TIMESTAMPTZ, -1, pa.timestamp("us", "UTC")),
        (pa.array([0.5, math.inf, -0.0, None]), FLOAT4, -1, pa.float32()),
        (pa.array([["a", None]]), TEXTS, -1, pa.list_(pa.string())),
    ],
    ids=str,
)
def test_values_that_convert_exactly_are_taken(column, oid, typmod, kind):
    found = read(column, oid, typmod)
    assert found.type.equals(kind) or (pa.types.is_list(kind) and found.type.value_type == kind.value_type)
    # Equal values are equal, in whatever zone and however many digits they are written.
    assert found.to_pylist() == column.to_pylist()


@pytest.mark.parametrize(
    ("column", "oid", "typmod"),
    [
        (pa.array([2**40]), INT4, -1),
        (pa.array([0.1]), FLOAT4, -1),
        (pa.array([1]), TEXT, -1),
        (pa.array([1.5]), INT4, -1),
        (pa.array([decimal.Decimal("0.123")]), NUMERIC, NUMERIC_12_2),
        (pa.array([NOON], pa.timestamp("us")), TIMESTAMPTZ, -1),
        (pa.array([NOON], pa.timestamp("us")), DATE, -1),
        (pa.array([1_700_000_000_000_000_001], pa.int64()).cast(pa.timestamp("ns")), TIMESTAMP, -1),
    ],
    ids=str,
)
def test_values_that_do_not_are_refused_without_being_told(column, oid, typmod):
    with pytest.raises(CaptureError, match="does not become") as caught:
        read(column, oid, typmod)
    assert caught.value.table == "s.t.c"
    assert "109951" not in str(caught.value)


def test_what_is_no_parquet_is_refused():
    relation = Relation(1, "s", "t", "d", ())
    for content in (b"", b"PAR1", written(pa.array([1]))[:-3]):
        with pytest.raises(CaptureError, match="no Parquet"):
            columns_of(content, "f")
        with pytest.raises(CaptureError, match="no Parquet"):
            list(read_batches(content, TypedRows(relation, [], {}, [], 1, "f")))


def test_a_damaged_schema_is_refused():
    """Arrow says of some that it does not implement them, and Python that a name is not UTF-8."""
    out = io.BytesIO()
    pq.write_table(pa.table({"named": pa.array([1], pa.int16())}), out, store_schema=False)
    whole, footer = out.getvalue(), out.getvalue().rindex(b"PAR1") - 4
    footer -= int.from_bytes(whole[footer : footer + 4], "little")
    relation = Relation(1, "s", "t", "d", (Column("named", INT4, -1, False),))
    rows = TypedRows(relation, column_types(relation, {}), {}, [0], 1, "f")
    for place in range(footer, len(whole)):
        for bit in range(8):
            harmed = bytearray(whole)
            harmed[place] ^= 1 << bit
            with suppress(WalReplayError):
                columns_of(bytes(harmed), "f")
                list(read_batches(bytes(harmed), rows))


def rows_of(columns: dict[str, tuple[int, pa.Array]]) -> ChangeBatch:
    relation = Relation(1, "s", "t", "d", tuple(Column(name, oid, -1, False) for name, (oid, _) in columns.items()))
    batch = pa.RecordBatch.from_pydict({name: column for name, (_, column) in columns.items()})
    order = list(range(len(columns)))
    (found,) = TypedRows(relation, column_types(relation, {}), {}, order, 150, "f").inserts(batch)
    return found


def test_strings_are_postgresqls_text_beside_columns_of_other_types():
    strings = pa.array(["out of sight", "2024-02-29", None, "infinity", "0044-03-15 BC"])
    found = rows_of(
        {
            "id": (INT4, pa.array([1, 2, 3, 4], pa.int64())),
            "on": (DATE, strings[1:]),
            "tags": (TEXTS, pa.array(["{a,NULL}", "{}", None, '{"x,y"}'], pa.large_string())),
            "note": (TEXT, pa.array(["a", "a", None, "äß"]).dictionary_encode()),
        }
    )
    assert [column.to_pylist() for column in found.columns] == [
        [1, 2, 3, 4],
        [datetime.date(2024, 2, 29), None, None, None],
        [["a", None], [], None, ["x,y"]],
        ["a", "a", None, "äß"],
    ]
    assert found.rescued is not None
    assert found.rescued.to_pylist() == [None, None, '{"on":"infinity"}', '{"on":"0044-03-15 BC"}']


def test_strings_and_lists_of_strings_have_the_texts_that_captures_have():
    found = rows_of(
        {
            "wait": (1186, pa.array(["P1M", "@ 2 days", None])),
            "waits": (1187, pa.array([["x"], ["P1M", None], None, ["1 day", "@ 2 days ago"]])[1:]),
            "notes": (TEXTS, pa.array([["P1M"], [], None])),
        }
    )
    assert [column.to_pylist() for column in found.columns] == [
        ["1 mon", "2 days", None],
        [["1 mon", None], None, ["1 day", "-2 days"]],
        [["P1M"], [], None],
    ]


def test_a_string_that_is_no_value_is_refused_without_being_told():
    with pytest.raises(ValueFormatError) as caught:
        rows_of({"id": (INT4, pa.array(["1", "secret"]))})
    assert (caught.value.table, caught.value.offset) == ("s.t.id", None)
    assert "secret" not in str(caught.value)


def test_a_large_batch_is_taken_in_parts(monkeypatch):
    from walreplay.loading import typed_rows

    monkeypatch.setattr(typed_rows, "_MAX_BATCH_BYTES", 100)
    relation = Relation(1, "s", "t", "d", (Column("c", TEXT, -1, False),))
    rows = TypedRows(relation, column_types(relation, {}), {}, [0], 1, "f")
    found = list(rows.inserts(pa.RecordBatch.from_pydict({"c": [str(n) * 9 for n in range(100)]})))
    assert len(found) > 4
    assert [text for batch in found for text in batch.columns[0].to_pylist()] == [str(n) * 9 for n in range(100)]


def test_a_batch_is_as_large_as_the_texts_that_its_dictionaries_stand_for(monkeypatch):
    from walreplay.loading import typed_rows

    monkeypatch.setattr(typed_rows, "_MAX_BATCH_BYTES", 100)
    monkeypatch.setattr(typed_rows, "MAX_ROW_BYTES", 100)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 40, pa.int8()), pa.array(["a text"]))
    relation = Relation(1, "s", "t", "d", tuple(Column(name, TEXT, -1, False) for name in "ab"))
    rows = TypedRows(relation, column_types(relation, {}), {}, [0, 1], 1, "f")
    found = list(rows.inserts(pa.RecordBatch.from_pydict({"a": texts, "b": texts})))
    assert len(found) > 4
    assert [text for batch in found for text in batch.columns[1].to_pylist()] == ["a text"] * 40
    with pytest.raises(NotSupported, match="a row has more than"):
        list(rows.inserts(pa.RecordBatch.from_pydict({"a": ["long"], "b": ["long" * 30]})))


def test_a_table_without_columns_has_as_many_rows():
    relation = Relation(1, "s", "t", "d", ())
    (batch,) = TypedRows(relation, [], {}, [], 1, "f").inserts(pa.RecordBatch.from_pydict({"c0": [1, 1, 1]}))
    assert batch.data.num_rows == 3

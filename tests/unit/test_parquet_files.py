"""Files of Parquet as rows of a table: what converts exactly, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from walreplay.decode.change_batch import column_types
from walreplay.errors import CaptureError
from walreplay.loading.parquet_files import columns_of, read_batches
from walreplay.protocol.messages import Column, Relation

INT4, TEXT, FLOAT8, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC, TEXTS = 23, 25, 701, 1082, 1114, 1184, 1700, 1009
NUMERIC_12_2 = (12 << 16 | 2) + 4


def written(column: pa.Array) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"other": pa.nulls(len(column), pa.int8()), "c": column}), out)
    return out.getvalue()


def read(column: pa.Array, oid: int, typmod: int = -1) -> pa.Array:
    relation = Relation(1, "s", "t", "d", (Column("c", oid, typmod, False),))
    content = written(column)
    assert columns_of(content, "f") == ["other", "c"]
    (batch,) = read_batches(content, relation, column_types(relation, {}), [1], 150, "f")
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
        (pa.array(["1"]), INT4, -1),
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
            list(read_batches(content, relation, [], [], 1, "f"))

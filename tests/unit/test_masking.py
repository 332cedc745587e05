import datetime
import hashlib
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2delta.decode.batches import COMMIT_LSN, COMMIT_TS, OP, ORDINAL, ROW, TIMESTAMP, XID, ChangeBatch
from wal2delta.masking import canonical_text, mask, mask_batch, masked_type
from wal2delta.protocol.messages import Column, Relation
from wal2delta.types import resolve
from wal2delta.types.arrays import elements_from_text
from wal2delta.types.datetime import days_from_text, micros_from_text
from wal2delta.types.floats import float_from_text

SALT = b"pepper"
UTC = pa.timestamp("us", "UTC")


def hashed(text, salt=SALT):
    return hashlib.sha256(salt + text.encode()).hexdigest()


def test_a_hash_is_debeziums():
    # The value that Debezium's own tests have for column.mask.hash.v2 with SHA-256.
    expected = "cd31b3b98ece60cb739c0bf770b2de892ae0ad133f645513c3d83f08757a843a"
    assert mask(pa.array(["hello"]), None, b"salt").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array(["", "é", None]), ["", "é", None]),
        (pa.array([True, False, None]), ["t", "f", None]),
        (pa.array([-32768, 0, None], pa.int16()), ["-32768", "0", None]),
        (pa.array([2**63 - 1], pa.int64()), ["9223372036854775807"]),
        (pa.array([0.1, 1e14, 1e15, 1e-4, 1e-5, -0.0]), ["0.1", "100000000000000", "1e+15", "0.0001", "1e-05", "-0"]),
        (pa.array([float("nan"), float("-inf"), 5e-324]), ["NaN", "-Infinity", "5e-324"]),
        (pa.array([0.1, 123456, 1e6], pa.float32()), ["0.1", "123456", "1e+06"]),
        (pa.array([Decimal("1.50"), Decimal(0), None], pa.decimal128(38, 10)), ["1.5000000000", "0.0000000000", None]),
        (pa.array([b"", b"\x00\xff", None]), ["\\x", "\\x00ff", None]),
        (pa.array([datetime.date(1, 1, 1), None]), ["0001-01-01", None]),
        (
            pa.array([datetime.datetime(987, 2, 3, 4, 5, 6, 700000), datetime.datetime(2024, 1, 1, 0, 0, 10)]),
            ["0987-02-03 04:05:06.7", "2024-01-01 00:00:10"],
        ),
        (pa.array([0, -1, None], UTC), ["1970-01-01 00:00:00+00", "1969-12-31 23:59:59.999999+00", None]),
        (
            pa.array([["a", "b c", None, "", "nUll", 'x"y', "\\"], [], None]),
            ['{a,"b c",NULL,"","nUll","x\\"y","\\\\"}', "{}", None],
        ),
        (pa.array([[1.5, None], [-0.0]]), ["{1.5,NULL}", "{-0}"]),
        (pa.array([[b"a"]]), ['{"\\\\x61"}']),
        (pa.array([], pa.int32()), []),
    ],
)
def test_every_value_has_postgresqls_text(array, texts):
    assert canonical_text(array).to_pylist() == texts
    assert mask(array, None, SALT).to_pylist() == [None if text is None else hashed(text) for text in texts]
    # A slice of a longer array has its own values.
    padded = pa.concat_arrays([array[:1], array, array[:1]])
    assert canonical_text(padded.slice(len(array[:1]), len(array))).to_pylist() == texts


@given(st.floats())
def test_the_text_of_a_number_is_read_as_the_same_number(value):
    (text,) = canonical_text(pa.array([value])).to_pylist()
    assert repr(float_from_text(text)) == repr(value)
    (single,) = pa.array([value], pa.float64()).cast(pa.float32()).to_pylist()
    (text,) = canonical_text(pa.array([single], pa.float32())).to_pylist()
    (again,) = pa.array([float_from_text(text)]).cast(pa.float32()).to_pylist()
    assert repr(again) == repr(single)


@given(st.datetimes())
def test_the_text_of_a_time_is_read_as_the_same_time(value):
    naive, aware = pa.array([value], pa.timestamp("us")), pa.array([value], pa.timestamp("us")).cast(UTC)
    (micros,) = naive.cast(pa.int64()).to_pylist()
    assert micros_from_text(canonical_text(naive)[0].as_py(), with_zone=False) == micros
    assert micros_from_text(canonical_text(aware)[0].as_py(), with_zone=True) == micros
    day = pa.array([value.date()])
    assert days_from_text(canonical_text(day)[0].as_py()) == day.cast(pa.int32())[0].as_py()


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
def test_the_text_of_an_array_is_read_as_the_same_array(value):
    (text,) = canonical_text(pa.array([value], pa.list_(pa.string()))).to_pylist()
    assert elements_from_text(text, ",") == value


def test_another_salt_gives_other_hashes():
    assert mask(pa.array(["a"]), None, b"x") != mask(pa.array(["a"]), None, b"y")


def test_a_value_that_its_column_cannot_hold_is_hashed_from_its_rescued_text():
    array = pa.array([None, 1, None], pa.date32())
    found = mask(array, pa.array(["infinity", None, None]), SALT)
    assert found.to_pylist() == [hashed("infinity"), hashed("1970-01-02"), None]


def test_a_masked_column_is_a_string():
    assert masked_type(resolve(1082, -1, {})).arrow == pa.string()


def test_a_batch_is_masked_wherever_the_values_are():
    relation = Relation(
        9, "s", "t", "d", (Column("id", 1700, 262148, True), Column("day", 1082, -1, False), Column("x", 25, -1, False))
    )
    meta = [pa.array(["u", "c"]), pa.array([1, 2]), pa.array([0, 0], TIMESTAMP), pa.array([7, 7]), pa.array([0, 1])]
    ids = pa.array([Decimal(1), None], pa.decimal128(4, 0))
    days = pa.array([None, None], pa.date32())
    notes = pa.array(["a", "b"])
    data = pa.RecordBatch.from_arrays(
        [*meta, ids, days, notes], names=[OP, COMMIT_LSN, COMMIT_TS, XID, ORDINAL, "id", "day", "x"]
    )
    before = pa.RecordBatch.from_arrays(
        [pa.array([0]), pa.array([None], pa.decimal128(4, 0)), pa.array([None], pa.date32()), pa.nulls(1, pa.string())],
        names=[ROW, "id", "day", "x"],
    )
    unchanged = {"day": pa.array([True, False])}
    rescued = pa.array([None, '{"id": "NaN", "day": "infinity"}'])
    batch = ChangeBatch(relation, data, unchanged, before, rescued, pa.array(['{"id": "NaN"}']))
    found = mask_batch(batch, (0,), SALT)
    assert found.data.column("id").to_pylist() == [hashed("1"), hashed("NaN")]
    assert found.data.column("day").equals(days)
    assert found.data.column("x").equals(notes)
    assert [found.data.column(n) for n in range(5)] == meta
    assert found.before.column("id").to_pylist() == [hashed("NaN")]
    assert found.rescued.to_pylist() == [None, json.dumps({"day": "infinity"})]
    assert found.before_rescued is None
    assert found.unchanged == unchanged
    assert "NaN" not in str(found.data.to_pydict())
    assert mask_batch(batch, (), SALT) is batch

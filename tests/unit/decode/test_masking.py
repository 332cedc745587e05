import datetime
import hashlib
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.binary_cells import convert
from walreplay.decode.change_batch import COMMIT_LSN, COMMIT_TS, OP, ORDINAL, ROW, TIMESTAMP, XID, ChangeBatch
from walreplay.decode.masking import mask, mask_batch, masked_type
from walreplay.protocol.messages import Column, Relation
from walreplay.types import resolve
from walreplay.types.composite import elements_from_text
from walreplay.types.datetime import days_from_text, micros_from_text
from walreplay.types.families import output_of
from walreplay.types.numbers import float_from_text

SALT = b"pepper"
UTC = pa.timestamp("us", "UTC")
TEXT = resolve(25, -1, {})


def hashed(text, salt=SALT):
    return hashlib.sha256(salt + text.encode()).hexdigest()


def test_a_hash_is_debeziums():
    # The value that Debezium's own tests have for column.mask.hash.v2 with SHA-256.
    expected = "cd31b3b98ece60cb739c0bf770b2de892ae0ad133f645513c3d83f08757a843a"
    assert mask(pa.array(["hello"]), TEXT, None, b"salt").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("oid", "texts"),
    [
        (1186, ["1 mon", "P1M", "@ 1 mon", "0-1"]),
        (1187, ['{"1 mon",NULL}', "{P1M,NULL}", '{"@ 1 mon",NULL}', "{0-1,NULL}"]),
        (3910, ['["2024-01-01 00:00:00+00",)', '["2024-01-01 05:45:00+05:45",)']),
    ],
)
def test_a_value_has_one_hash_whatever_the_senders_settings(oid, texts):
    array, _ = convert(resolve(oid, -1, {}), texts)
    # The one that it has in binary format, too.
    assert mask(array, resolve(oid, -1, {}), None, SALT).to_pylist() == [hashed(texts[0])] * len(texts)


@pytest.mark.parametrize(
    ("oid", "typmod", "array", "texts"),
    [
        (25, -1, pa.array(["", "é", None]), ["", "é", None]),
        (16, -1, pa.array([True, False, None]), ["t", "f", None]),
        (21, -1, pa.array([-32768, 0, None], pa.int16()), ["-32768", "0", None]),
        (20, -1, pa.array([2**63 - 1]), ["9223372036854775807"]),
        (
            701,
            -1,
            pa.array([0.1, 1e14, 1e15, 1e-4, 1e-5, -0.0]),
            ["0.1", "100000000000000", "1e+15", "0.0001", "1e-05", "-0"],
        ),
        (701, -1, pa.array([float("nan"), float("-inf"), 5e-324]), ["NaN", "-Infinity", "5e-324"]),
        (700, -1, pa.array([0.1, 123456, 1e6], pa.float32()), ["0.1", "123456", "1e+06"]),
        (
            1700,
            (38 << 16 | 10) + 4,
            pa.array([Decimal("1.50"), Decimal(0), None], pa.decimal128(38, 10)),
            ["1.5000000000", "0.0000000000", None],
        ),
        (17, -1, pa.array([b"", b"\x00\xff", None]), ["\\x", "\\x00ff", None]),
        (1082, -1, pa.array([datetime.date(1, 1, 1), None]), ["0001-01-01", None]),
        (
            1114,
            -1,
            pa.array([datetime.datetime(987, 2, 3, 4, 5, 6, 700000), datetime.datetime(2024, 1, 1, 0, 0, 10)]),
            ["0987-02-03 04:05:06.7", "2024-01-01 00:00:10"],
        ),
        (1184, -1, pa.array([0, -1, None], UTC), ["1970-01-01 00:00:00+00", "1969-12-31 23:59:59.999999+00", None]),
        (
            1009,
            -1,
            pa.array([["a", "b c", None, "", "nUll", 'x"y', "\\"], [], None]),
            ['{a,"b c",NULL,"","nUll","x\\"y","\\\\"}', "{}", None],
        ),
        (1022, -1, pa.array([[1.5, None], [-0.0]]), ["{1.5,NULL}", "{-0}"]),
        (1001, -1, pa.array([[b"a"]]), ['{"\\\\x61"}']),
        (23, -1, pa.array([], pa.int32()), []),
    ],
)
def test_every_value_is_hashed_from_postgresqls_text(oid, typmod, array, texts):
    kind = resolve(oid, typmod, {})
    assert kind.arrow == array.type
    hashes = [None if text is None else hashed(text) for text in texts]
    assert mask(array, kind, None, SALT).to_pylist() == hashes
    # A slice of a longer array has its own values.
    padded = pa.concat_arrays([array[:1], array, array[:1]])
    assert mask(padded.slice(len(array[:1]), len(array)), kind, None, SALT).to_pylist() == hashes


def text_of_value(value, oid, array_type):
    """Return the text that is hashed."""
    (text,) = output_of(pa.array([value], array_type), resolve(oid, -1, {})).to_pylist()
    return text


@given(st.floats())
def test_the_text_of_a_number_is_read_as_the_same_number(value):
    assert repr(float_from_text(text_of_value(value, 701, pa.float64()))) == repr(value)
    (single,) = pa.array([value], pa.float64()).cast(pa.float32()).to_pylist()
    text = text_of_value(single, 700, pa.float32())
    (again,) = pa.array([float_from_text(text)]).cast(pa.float32()).to_pylist()
    assert repr(again) == repr(single)


@given(st.datetimes())
def test_the_text_of_a_time_is_read_as_the_same_time(value):
    (micros,) = pa.array([value], pa.timestamp("us")).cast(pa.int64()).to_pylist()
    assert micros_from_text(text_of_value(value, 1114, pa.timestamp("us")), with_zone=False) == micros
    aware = value.replace(tzinfo=datetime.timezone.utc)
    assert micros_from_text(text_of_value(aware, 1184, UTC), with_zone=True) == micros
    day = pa.array([value.date()])
    assert days_from_text(text_of_value(value.date(), 1082, pa.date32())) == day.cast(pa.int32())[0].as_py()


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
def test_the_text_of_an_array_is_read_as_the_same_array(value):
    assert elements_from_text(text_of_value(value, 1009, pa.list_(pa.string())), ",") == value


def test_another_salt_gives_other_hashes():
    assert mask(pa.array(["a"]), TEXT, None, b"x") != mask(pa.array(["a"]), TEXT, None, b"y")


def test_a_value_that_its_column_cannot_hold_is_hashed_from_its_rescued_text():
    array = pa.array([None, 1, None], pa.date32())
    found = mask(array, resolve(1082, -1, {}), pa.array(["infinity", None, None]), SALT)
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
    found = mask_batch(batch, [(0, resolve(1700, 262148, {}))], SALT)
    assert found.data.column("id").to_pylist() == [hashed("1"), hashed("NaN")]
    assert found.data.column("day").equals(days)
    assert found.data.column("x").equals(notes)
    assert [found.data.column(n) for n in range(5)] == meta
    assert found.before.column("id").to_pylist() == [hashed("NaN")]
    assert found.rescued.to_pylist() == [None, '{"day":"infinity"}']
    assert found.before_rescued is None
    assert found.unchanged == unchanged
    assert "NaN" not in str(found.data.to_pydict())
    assert mask_batch(batch, (), SALT) is batch

import pyarrow as pa
import pytest

from walreplay.delta.statements import sql_schema, sql_type
from walreplay.types import resolve
from walreplay.types.builtin import BUILTIN_TYPES


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int16(), "SMALLINT"),
        (pa.decimal128(12, 2), "DECIMAL(12,2)"),
        (pa.timestamp("us"), "TIMESTAMP_NTZ"),
        (pa.timestamp("us", "UTC"), "TIMESTAMP"),
        (pa.list_(pa.decimal128(38, 10)), "ARRAY<DECIMAL(38,10)>"),
    ],
)
def test_arrow_types_have_their_sql_types(kind, text):
    assert sql_type(kind) == text


def test_every_built_in_type_has_a_column():
    assert all(sql_type(resolve(oid, -1, {}).arrow) for oid in BUILTIN_TYPES)


def test_a_type_that_no_column_has_is_refused():
    with pytest.raises(TypeError, match="no column has the type"):
        sql_type(pa.duration("us"))


def test_names_are_quoted():
    assert sql_schema(pa.schema([("a b", pa.int32()), ("c`d", pa.string())])) == "`a b` INT, `c``d` STRING"

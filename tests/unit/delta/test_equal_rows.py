"""Two small tables are equal if they have the same rows, each as often, in whatever files and order these lie."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from struct import unpack
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from walreplay.delta.data_files import FileColumn
from walreplay.delta.small_table import TableFiles, equal_rows
from walreplay.session.folders import MountedFolder

_STRUCT: Final = pa.struct([("n", pa.int64()), ("t", pa.string())])
(_OTHER_NAN,) = unpack("<d", bytes.fromhex("010000000000f8ff"))


def _table(folder: Path, kind: pa.DataType, *files: list[Any], stored: pa.DataType | None = None) -> TableFiles:
    """Write a table of one column, each file with some values."""
    folder.mkdir()
    for number, values in enumerate(files):
        pq.write_table(pa.table({"c": pa.array(values, stored or kind)}), folder / f"{number}.parquet")
    names = tuple(f"{number}.parquet" for number in range(len(files)))
    return TableFiles(MountedFolder(str(folder)), names, (FileColumn("c", "c", kind),))


SAME: Final = {
    "in another order": (pa.string(), [["a", "b", None], ["c"]], [["c", None, "b", "a"]]),
    "each as often": (pa.int32(), [[1, 1], [2]], [[1, 2, 1]]),
    "no rows": (pa.int32(), [], [[]]),
    "two NaNs": (pa.float64(), [[math.nan]], [[_OTHER_NAN]]),
    "lists": (pa.list_(pa.string()), [[["a", None]], [None, []]], [[None, [], ["a", None]]]),
    "structs": (_STRUCT, [[None, {"n": None, "t": "a"}]], [[{"n": None, "t": "a"}], [None]]),
    "decimals": (pa.decimal128(30, 2), [[Decimal("1.50"), None]], [[None, Decimal("1.5")]]),
    "times": (pa.timestamp("us", "UTC"), [[datetime(1900, 1, 1)]], [[datetime(1900, 1, 1)]]),
}


@pytest.mark.parametrize("case", SAME)
def test_the_same_rows_are_equal(tmp_path: Path, case: str) -> None:
    kind, *sides = SAME[case]
    pair = (_table(tmp_path / "right", kind, *sides[0]), _table(tmp_path / "present", kind, *sides[1]))
    assert equal_rows(pair) == sum(map(len, sides[0]))


OTHER: Final = {
    "a value": (pa.string(), ["a", "b"], ["a", "c"]),
    "a value that only its zeros tell": (pa.binary(), [b"a"], [b"a\0"]),
    "NULL for an empty text": (pa.string(), [""], [None]),
    "NULL for zero": (pa.int64(), [0], [None]),
    "the sign of zero": (pa.float64(), [0.0], [-0.0]),
    "the sign of a zero in a list": (pa.list_(pa.float64()), [[0.0]], [[-0.0]]),
    "NULL for an empty list": (pa.list_(pa.int32()), [[]], [None]),
    "where a list ends": (pa.list_(pa.string()), [["a", "b"], []], [["a"], ["b"]]),
    "NULL for a struct of nothing": (_STRUCT, [{"n": None, "t": None}], [None]),
    "a value inside": (_STRUCT, [{"n": 1, "t": "a"}], [{"n": 2, "t": "a"}]),
    "a row more": (pa.int32(), [1, 2], [1, 2, 2]),
    "another row doubled": (pa.int32(), [1, 1, 2], [1, 2, 2]),
    "a row of none": (pa.int32(), [], [None]),
    "the last digits of a decimal": (pa.decimal128(38, 0), [Decimal(10**37)], [Decimal(10**37 + 1)]),
}


@pytest.mark.parametrize("case", OTHER)
def test_other_rows_are_not(tmp_path: Path, case: str) -> None:
    kind, right, present = OTHER[case]
    tables = _table(tmp_path / "right", kind, right), _table(tmp_path / "present", kind, present)
    assert equal_rows(tables) is None
    assert equal_rows((tables[1], tables[0])) is None
    assert equal_rows((tables[0], tables[0])) == len(right)


def test_values_that_change_places_between_columns_are_seen(tmp_path: Path) -> None:
    columns = (FileColumn("a", "a", pa.string()), FileColumn("b", "b", pa.string()))
    sides = []
    for name, values in (("right", {"a": ["x", ""], "b": ["", "x"]}), ("present", {"a": ["x", "x"], "b": ["", ""]})):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(values), tmp_path / name / "0.parquet")
        sides.append(TableFiles(MountedFolder(str(tmp_path / name)), ("0.parquet",), columns))
    assert equal_rows((sides[0], sides[1])) is None


def test_files_from_before_a_column_or_its_type(tmp_path: Path) -> None:
    old = _table(tmp_path / "old", pa.int64(), [1, None], stored=pa.int16())
    new = _table(tmp_path / "new", pa.int64(), [None, 1])
    assert equal_rows((new, old)) == 2
    added = FileColumn("added", "added", pa.string())
    without, with_column = (TableFiles(table.folder, table.files, (*table.columns, added)) for table in (old, new))
    pq.write_table(pa.table({"c": pa.array([None, 1], pa.int64()), "added": [None, None]}), tmp_path / "new/0.parquet")
    assert equal_rows((with_column, without)) is None  # a file's column of nulls alone has no type
    texts = pa.array([None, None], pa.string())
    pq.write_table(pa.table({"c": pa.array([None, 1], pa.int64()), "added": texts}), tmp_path / "new" / "0.parquet")
    assert equal_rows((with_column, without)) == 2


def test_structs_in_lists_are_left_to_spark(tmp_path: Path) -> None:
    kind = pa.list_(_STRUCT)
    assert equal_rows((_table(tmp_path / "right", kind, [[]]), _table(tmp_path / "present", kind, [[]]))) is None


@pytest.mark.parametrize("harm", ["gone", "cut", "another type"])
def test_what_cannot_be_read_is_left_to_spark(tmp_path: Path, harm: str) -> None:
    right, present = (_table(tmp_path / name, pa.int64(), [1, 2]) for name in ("right", "present"))
    file = tmp_path / "present" / "0.parquet"
    if harm == "gone":
        file.unlink()
    elif harm == "cut":
        file.write_bytes(file.read_bytes()[:-9])
    else:
        pq.write_table(pa.table({"c": pa.array([1.0, 2.0])}), file)
    assert equal_rows((right, present)) is None

"""A small table of any key is written anew: its rows are found by their keys' exact values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from walreplay.delta.data_files import FileColumn
from walreplay.delta.small_table import Before, Keys, rewrite
from walreplay.fold.events import Identity, Mode
from walreplay.fold.net_changes import merge_schema
from walreplay.session.folders import MountedFolder

_OTHER_NAN: Final = struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\xff")[0]
_NAN: Final = float("nan")
_MICROSECOND: Final = timedelta(microseconds=1)
_EARLY, _LATE = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
_DAY: Final = datetime(1582, 10, 4, 12)
_UTC: Final = timezone.utc
_LARGE: Final = Decimal("9" * 28 + "." + "9" * 10)

_KEYS: Final[dict[str, tuple[pa.DataType, Sequence[Any]]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "smallint": (pa.int16(), [-(1 << 15), 0, (1 << 15) - 1]),
    "bigint": (pa.int64(), [-(1 << 63), -1, 0, (1 << 63) - 1]),
    "real": (pa.float32(), [0.0, -0.0, _NAN, float("inf"), 1e-45, 16777216.0]),
    "double": (pa.float64(), [0.0, -0.0, _NAN, float("inf"), float("-inf"), 5e-324, 0.1, 0.1 + 2**-56]),
    "numeric(10,2)": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99")]),
    "numeric(38,10)": (
        pa.decimal128(38, 10),
        [_LARGE, _LARGE.copy_negate(), Decimal("9" * 28 + "." + "9" * 9 + "8"), Decimal(0)],
    ),
    "text": (pa.string(), ["", "i", "I", "ı", "İ", "x ", "x", "x\0"]),
    "bytea": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff", b"x"]),
    "date": (pa.date32(), [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us"), [_EARLY, _DAY, _DAY + _MICROSECOND, _LATE, datetime(1970, 1, 1)]),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        # The hour that a clock shows twice is two hours.
        [moment.replace(tzinfo=_UTC) for moment in (_EARLY, _DAY, _DAY + _MICROSECOND, _LATE)]
        + [datetime(2024, 10, 27, hour, 30, tzinfo=_UTC) for hour in (0, 1)],
    ),
    "integer[]": (pa.list_(pa.int32()), [[], [0], [0, 0], [0, None], [None]]),
    "double precision[]": (pa.list_(pa.float64()), [[0.0], [-0.0], [_NAN], [], [None]]),
}


def _columns(kind: pa.DataType) -> tuple[FileColumn, ...]:
    kinds = {"k": kind, "v": pa.string(), "lsn": pa.int64(), "rescued": pa.string()}
    return tuple(FileColumn(name, name, kind) for name, kind in kinds.items())


def _before(folder: Path, kind: pa.DataType, rows: Sequence[tuple[Any, str, str | None]], keys: Keys) -> Before:
    table = pa.Table.from_pylist(
        [{"k": key, "v": value, "lsn": 1, "rescued": rescued} for key, value, rescued in rows],
        pa.schema([column.field for column in _columns(kind)]),
    )
    pq.write_table(table, folder / "1.parquet")
    return Before(MountedFolder(str(folder)), ("1.parquet",), _columns(kind), ("c0", "c1", "lsn", "rescued"), keys)


def _folded(
    kind: pa.DataType, rows: Sequence[tuple[Any, str, str | None]], *, moves: bool, deleted: bool = False
) -> pa.RecordBatch:
    schema = merge_schema((kind, pa.string()), Identity(Mode.KEYED, (0,)), (), moves=moves)
    flags = {"unknown": False, "deleted": deleted, "expected": True, "claimed": False}
    listed = []
    for key, value, rescued in rows:
        base = {"matches": True, "b0": key, "base_rescued": rescued} if moves else {}
        listed.append({"c0": key, "c1": value, "lsn": 2, "rescued": rescued, **flags, **base})
    return pa.RecordBatch.from_pylist(listed, schema)


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("name", _KEYS)
def test_each_key_finds_its_own_row_and_no_other(name: str, moves: bool, tmp_path: Path) -> None:
    kind, values = _KEYS[name]
    for place, value in enumerate(values):
        before = _before(tmp_path, kind, [(key, f"old {n}", None) for n, key in enumerate(values)], Keys((0,)))
        found = rewrite(before, [_folded(kind, [(value, "new", None)], moves=moves)])
        assert found is not None
        assert {"updated": 1, "deleted": 0, "inserted": 0, "copied": len(values) - 1}.items() <= found.counts.items()
        rows = pa.Table.from_batches(list(found.batches())).to_pydict()
        order = [n for n in range(len(values)) if n != place]  # the row that has changed is the last one
        assert rows["1"] == [*(f"old {n}" for n in order), "new"]
        keys = pq.read_table(tmp_path / "1.parquet")["k"].to_pylist()
        assert list(map(repr, rows["0"])) == [repr(keys[n]) for n in (*order, place)]


def test_a_nan_of_another_form_is_the_same_key(tmp_path: Path) -> None:
    before = _before(tmp_path, pa.float64(), [(_OTHER_NAN, "old", None)], Keys((0,)))
    found = rewrite(before, [_folded(pa.float64(), [(_NAN, "new", None)], moves=False)])
    assert found is not None
    assert found.counts["updated"] == 1


_INFINITE: Final = '{"k":"infinity"}'
_ENDLESS: Final = [(None, "a", _INFINITE), (None, "b", '{"k":"-infinity","v":"x"}'), (_DAY, "c", None)]


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("rescued", [text for _, _, text in _ENDLESS])
def test_a_rescued_key_is_found_by_its_text(rescued: str | None, moves: bool, tmp_path: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    before = _before(tmp_path, kind, _ENDLESS, Keys((0,), rescuable=((0, "k"),)))
    change = next(row for row in _ENDLESS if row[2] == rescued)
    found = rewrite(before, [_folded(kind, [(change[0], "gone", rescued)], moves=moves, deleted=True)])
    assert found is not None
    left = pa.Table.from_batches(list(found.batches())).to_pydict()["1"]
    assert left == [value for _, value, _ in _ENDLESS if value != change[1]]


def test_null_is_no_rescued_key(tmp_path: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    rescuable = Keys((0,), rescuable=((0, "k"),))
    before = _before(tmp_path, kind, [(None, "a", _INFINITE), (None, "b", '{"v":"infinity"}')], rescuable)
    found = rewrite(before, [_folded(kind, [(None, "new", None)], moves=False)])
    assert found is not None
    assert pa.Table.from_batches(list(found.batches())).to_pydict()["1"] == ["a", "new"]
    # Where nothing could be rescued, NULL in a key is for SQL to judge.
    assert (
        rewrite(
            _before(tmp_path, kind, [(None, "a", None)], Keys((0,))), [_folded(kind, [(_DAY, "b", None)], moves=False)]
        )
        is None
    )

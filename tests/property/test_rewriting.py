"""A small table that is written anew has the rows that a MERGE of the folded rows would give it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walreplay.sink import rewriting
from walreplay.sink.data_files import FileColumn
from walreplay.sink.events import Identity, Mode
from walreplay.sink.merge import merge_schema
from walreplay.sink.rewriting import Before, rewrite

_KINDS: Final = (pa.int32(), pa.string(), pa.list_(pa.int32()), pa.bool_())
"""The key is the first two; the last says that a row is deleted, where deletes are soft."""
_TRACKED: Final = (2,)
_SCHEMA: Final = merge_schema(_KINDS, Identity(Mode.KEYED, (0, 1)), _TRACKED, moves=False)
_COLUMNS: Final = tuple(
    FileColumn(name, f"col-{name}", kind)
    for name, kind in [*zip("abcd", _KINDS, strict=True), ("lsn", pa.int64()), ("rescued", pa.string())]
)
_SOURCES: Final = ("c0", "c1", "c2", "c3", "lsn", "rescued")

_Key = tuple[int, str]

_keys = st.tuples(st.integers(-2, 2), st.sampled_from(["", "x", "xx"]))
_lists = st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3)
_rows = st.dictionaries(_keys, st.tuples(_lists, st.booleans(), st.integers(0, 9)), max_size=12)
_flags = st.tuples(*[st.booleans()] * 4)
_rescued = st.none() | st.just("{}")
_changes = st.dictionaries(_keys, st.tuples(_lists, st.integers(10, 19), _rescued, _flags), max_size=12)


def _merged(
    old: dict[_Key, tuple[Any, ...]], changes: dict[_Key, tuple[Any, ...]], *, soft: bool
) -> dict[_Key, tuple[Any, ...]]:
    """Do what the MERGE's clauses say, row by row."""
    rows = dict(old)
    for key, (values, lsn, rescued, (deleted, expected, stays, marked)) in changes.items():
        if key in old:
            if deleted:
                del rows[key]
            else:
                rows[key] = (old[key][0] if stays else values, marked, lsn, rescued)
        elif not deleted and not (soft and marked and expected):
            rows[key] = (values, marked, lsn, rescued)
    return rows


def _folded(changes: dict[_Key, tuple[Any, ...]]) -> pa.RecordBatch:
    rows = [
        {"c0": a, "c1": b, "c2": values, "c3": marked, "lsn": lsn, "rescued": rescued, "unknown": False}
        | {"deleted": deleted, "expected": expected, "claimed": False, "k2": stays}
        for (a, b), (values, lsn, rescued, (deleted, expected, stays, marked)) in changes.items()
    ]
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)


def _write(path: Path, rows: dict[_Key, tuple[Any, ...]]) -> None:
    names = [column.physical for column in _COLUMNS]
    listed = [dict(zip(names, (*key, *values), strict=True)) for key, values in rows.items()]
    pq.write_table(pa.Table.from_pylist(listed, pa.schema([column.field for column in _COLUMNS])), path)


@given(_rows, _changes, st.booleans(), st.booleans(), st.integers(1, 4))
def test_rows_are_as_the_clauses_of_a_merge_say(
    old: dict[_Key, tuple[Any, ...]], changes: dict[_Key, tuple[Any, ...]], soft: bool, tracked: bool, parts: int
) -> None:
    if not tracked:
        changes = {key: (*found[:3], (*found[3][:2], False, found[3][3])) for key, found in changes.items()}
    before = {key: (*found, None) for key, found in old.items()}
    with tempfile.TemporaryDirectory() as folder:
        items = list(before.items())
        paths = [Path(folder, f"{number}.parquet") for number in range(parts)]
        for number, path in enumerate(paths):
            _write(path, dict(items[number::parts]))
        task = Before(tuple(paths), _COLUMNS, _SOURCES, (0, 1), _TRACKED if tracked else (), 5, 3 if soft else None)
        batch = _folded(changes)
        found = rewrite(task, [batch.slice(0, 2), batch.slice(2)])
    assert found is not None
    batches = list(found.batches())
    listed = [tuple(row.values()) for row in pa.Table.from_batches(batches).to_pylist()] if batches else []
    rows = {(row[0], row[1]): row[2:] for row in listed}
    assert len(rows) == len(listed)
    assert rows == _merged(before, changes, soft=soft)
    deleted = {key for key, found in changes.items() if found[3][0]}
    assert found.counts == {
        "updated": len((before.keys() & changes.keys()) - deleted),
        "deleted": len(before.keys() & deleted),
        "inserted": len(rows.keys() - before.keys()),
        "copied": len(before.keys() - changes.keys()),
    }
    assert found.changes == (rows != before or bool((before.keys() & changes.keys()) - deleted))


_OLD: Final[dict[_Key, tuple[Any, ...]]] = {(1, "x"): ([1], False, 1, None), (2, "x"): ([2], False, 1, None)}
_NEW: Final[dict[_Key, tuple[Any, ...]]] = {(1, "x"): ([3], 10, None, (False, True, True, False))}
_TASK: Final = Before((), _COLUMNS, _SOURCES, (0, 1), _TRACKED, 5, None)


def _is_left(tmp_path: Path, task: Before = _TASK, *, rescued: str | None = None, twice: bool = False) -> bool:
    path = tmp_path / "1.parquet"
    _write(path, {key: (*values[:3], rescued) for key, values in _OLD.items()})
    return rewrite(replace(task, paths=(path,) * (1 + twice)), [_folded(_NEW)]) is None


def test_what_is_not_plain_is_left_to_a_merge(tmp_path: Path) -> None:
    assert not _is_left(tmp_path)
    # Texts that would have to be taken apart; but not where no column keeps its value.
    assert _is_left(tmp_path, rescued='{"c": "{{1}}"}')
    assert not _is_left(tmp_path, replace(_TASK, tracked=()), rescued='{"c": "{{1}}"}')
    # Keys that are there twice, files that are not there, columns of another type.
    assert _is_left(tmp_path, twice=True)
    assert rewrite(replace(_TASK, paths=(tmp_path / "none.parquet",)), [_folded(_NEW)]) is None
    as_text = replace(_COLUMNS[2], type=pa.string())
    columns, sources = (*_COLUMNS[:2], as_text, *_COLUMNS[3:]), (*_SOURCES[:2], "c1", *_SOURCES[3:])
    assert _is_left(tmp_path, replace(_TASK, columns=columns, sources=sources))
    wider = replace(_COLUMNS[0], type=pa.int64())
    assert not _is_left(tmp_path, replace(_TASK, columns=(wider, *_COLUMNS[1:])))
    # A file whose dates are those of another calendar.
    path = tmp_path / "old.parquet"
    _write(path, _OLD)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), path)
    assert rewrite(replace(_TASK, paths=(path,)), [_folded(_NEW)]) is None


def test_what_is_large_is_left_to_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small its file is: a text that is there many times is in it once."""
    path = tmp_path / "1.parquet"
    rows = [{"col-a": number, "col-b": "x" * 20_000} for number in range(5_000)]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema([column.field for column in _COLUMNS])), path)
    assert path.stat().st_size < 1 << 20
    assert rewrite(replace(_TASK, paths=(path,)), [_folded(_NEW)]) is None
    monkeypatch.setattr(rewriting, "MOST_BYTES", 1 << 30)
    assert rewrite(replace(_TASK, paths=(path,)), [_folded(_NEW)]) is not None


def test_a_column_that_is_younger_than_a_file_is_null_in_it(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    _write(path, _OLD)
    table = pq.read_table(path).drop_columns(["col-c"])
    pq.write_table(table, path)
    found = rewrite(replace(_TASK, paths=(path,)), [_folded(_NEW)])
    assert found is not None
    rows = pa.Table.from_batches(list(found.batches())).to_pylist()
    assert [row["2"] for row in rows] == [None, None]


def test_keys_of_sql_s_null_are_left_to_a_merge(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    _write(path, {(1, None): ([1], False, 1, None)})  # type: ignore[dict-item]
    assert rewrite(replace(_TASK, paths=(path,)), [_folded(_NEW)]) is None

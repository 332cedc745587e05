"""A small table that is written anew has the rows that a MERGE of the folded rows would give it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walreplay.delta import small_table
from walreplay.delta.data_files import FileColumn
from walreplay.delta.small_table import Before, Images, Keys, rewrite
from walreplay.fold.events import Identity, Mode
from walreplay.fold.net_changes import merge_schema
from walreplay.session.folders import MountedFolder

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
        keys = Keys((0, 1), _TRACKED if tracked else (), 3 if soft else None)
        task = _before(paths, keys)
        batch = _folded(changes)
        found = rewrite(task, [batch.slice(0, 2), batch.slice(2)])
    assert found is not None
    batches = list(found.batches())
    listed = [tuple(row.values()) for row in pa.Table.from_batches(batches).to_pylist()] if batches else []
    rows = {(row[0], row[1]): row[2:] for row in listed}
    assert len(rows) == len(listed)
    assert rows == _merged(before, changes, soft=soft)
    deleted = {key for key, found in changes.items() if found[3][0]}
    counts = {
        "updated": len((before.keys() & changes.keys()) - deleted),
        "deleted": len(before.keys() & deleted),
        "inserted": len(rows.keys() - before.keys()),
        "copied": len(before.keys() - changes.keys()),
    }
    assert counts.items() <= found.counts.items()
    assert found.changes == (rows != before or bool((before.keys() & changes.keys()) - deleted))


_OLD: Final[dict[_Key, tuple[Any, ...]]] = {(1, "x"): ([1], False, 1, None), (2, "x"): ([2], False, 1, None)}
_NEW: Final[dict[_Key, tuple[Any, ...]]] = {(1, "x"): ([3], 10, None, (False, True, True, False))}


def _before(paths: Sequence[Path], rows: Keys | Images) -> Before:
    """Return the table in some files."""
    return Before(MountedFolder("/"), tuple(map(str, paths)), _COLUMNS, _SOURCES, rows)


_TASK: Final = _before([], Keys((0, 1), _TRACKED))


def _is_left(tmp_path: Path, task: Before = _TASK, *, rescued: str | None = None, twice: bool = False) -> bool:
    path = tmp_path / "1.parquet"
    _write(path, {key: (*values[:3], rescued) for key, values in _OLD.items()})
    return rewrite(replace(task, files=(str(path),) * (1 + twice)), [_folded(_NEW)]) is None


def test_what_is_not_plain_is_left_to_a_merge(tmp_path: Path) -> None:
    assert not _is_left(tmp_path)
    # Texts that would have to be taken apart; but not where no column keeps its value.
    assert _is_left(tmp_path, rescued='{"c": "{{1}}"}')
    assert not _is_left(tmp_path, replace(_TASK, rows=Keys((0, 1))), rescued='{"c": "{{1}}"}')
    # Keys that are there twice, files that are not there, columns of another type.
    assert _is_left(tmp_path, twice=True)
    assert rewrite(replace(_TASK, files=(str(tmp_path / "none.parquet"),)), [_folded(_NEW)]) is None
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
    assert rewrite(replace(_TASK, files=(str(path),)), [_folded(_NEW)]) is None


def test_what_is_large_is_left_to_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small its file is: a text that is there many times is in it once."""
    path = tmp_path / "1.parquet"
    rows = [{"col-a": number, "col-b": "x" * 20_000} for number in range(5_000)]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema([column.field for column in _COLUMNS])), path)
    assert path.stat().st_size < 1 << 20
    assert rewrite(replace(_TASK, files=(str(path),)), [_folded(_NEW)]) is None
    monkeypatch.setattr(small_table, "MOST_BYTES", 1 << 30)
    assert rewrite(replace(_TASK, files=(str(path),)), [_folded(_NEW)]) is not None


def test_a_column_that_is_younger_than_a_file_is_null_in_it(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    _write(path, _OLD)
    table = pq.read_table(path).drop_columns(["col-c"])
    pq.write_table(table, path)
    found = rewrite(replace(_TASK, files=(str(path),)), [_folded(_NEW)])
    assert found is not None
    rows = pa.Table.from_batches(list(found.batches())).to_pylist()
    assert [row["2"] for row in rows] == [None, None]


def test_keys_of_sql_s_null_are_left_to_a_merge(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    _write(path, {(1, None): ([1], False, 1, None)})  # type: ignore[dict-item]
    assert rewrite(replace(_TASK, files=(str(path),)), [_folded(_NEW)]) is None


# Keys that have changed, and keys with NULL.

_MOVED: Final = merge_schema(_KINDS, Identity(Mode.KEYED, (0, 1)), _TRACKED, moves=True)
_nullable = st.tuples(st.none() | st.integers(-1, 1), st.none() | st.sampled_from(["", "x"]))
_bases = st.dictionaries(_nullable, st.tuples(_nullable, _lists, _flags), max_size=8)


@given(st.dictionaries(_nullable, _lists, max_size=8), _bases, st.booleans())
def test_a_row_is_found_by_the_key_that_it_had(
    old: dict[Any, list[int] | None], changes: dict[Any, tuple[Any, ...]], with_null: bool
) -> None:
    """``changes`` has by the key before the run: the key after it, a value, and (deleted, has a base, value stays)."""
    if not with_null:
        old = {key: values for key, values in old.items() if None not in key}
        changes = {key: found for key, found in changes.items() if None not in key}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "1.parquet")
        _write(path, {key: (values, False, 1, None) for key, values in old.items()})
        listed = [
            {"c0": after[0], "c1": after[1], "c2": values, "c3": False, "lsn": 2, "unknown": False}
            | {"deleted": deleted, "expected": has_base, "claimed": False, "k2": stays and has_base}
            | {"matches": has_base, "b0": key[0] if has_base else None, "b1": key[1] if has_base else None}
            for key, (after, values, (deleted, has_base, stays, _)) in changes.items()
        ]
        keys = Keys((0, 1), _TRACKED, with_null=with_null)
        found = rewrite(
            _before([path], keys),
            [pa.RecordBatch.from_pylist(listed, schema=_MOVED)],
        )
    assert found is not None
    rows = [(key, values) for key, values in old.items() if not (key in changes and changes[key][2][1])]
    counts = {"updated": 0, "deleted": 0, "inserted": 0, "copied": len(rows)}
    lost = {"without_base": 0, "deletes_without_row": 0}
    for key, (after, values, (deleted, has_base, stays, _)) in changes.items():
        matched = has_base and key in old
        counts["deleted" if deleted else "updated" if matched else "inserted"] += matched or not deleted
        lost["deletes_without_row" if deleted else "without_base"] += has_base and not matched
        if not deleted:
            rows.append((after, old[key] if matched and stays else values))
    batches = list(found.batches())
    there = [tuple(row.values()) for row in pa.Table.from_batches(batches).to_pylist()] if batches else []
    assert sorted(map(repr, (((row[0], row[1]), row[2]) for row in there))) == sorted(map(repr, rows))
    assert found.counts == {**counts, **lost}


# Rows without a key.

_COPIED: Final = merge_schema(_KINDS, Identity(Mode.MULTISET), (), moves=False)
_images = st.tuples(st.none() | st.integers(0, 1), st.none() | st.sampled_from(["", "x"]), _lists, st.booleans())


def _frozen(image: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in image)


@given(
    st.lists(_images, max_size=12),
    st.lists(
        st.tuples(_images, st.integers(-3, 3), st.integers(0, 4)), max_size=8, unique_by=lambda one: _frozen(one[0])
    ),
    st.booleans(),
    st.integers(1, 3),
)
def test_each_image_has_as_many_copies_as_it_should(
    old: list[tuple[Any, ...]], changes: list[tuple[tuple[Any, ...], int, int]], has_younger: bool, parts: int
) -> None:
    # As a fold gives them: nothing is taken that was not there, and no row says nothing.
    changes = [(image, net, max(needed, -net)) for image, net, needed in changes if net or needed]
    copies = Counter(map(_frozen, old))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.parquet") for number in range(parts)]
        names = [column.physical for column in _COLUMNS]
        for number, path in enumerate(paths):
            listed = [dict(zip(names, (*image, 1, None), strict=True)) for image in old[number::parts]]
            pq.write_table(pa.Table.from_pylist(listed, pa.schema([column.field for column in _COLUMNS])), path)
        rows = [
            {"c0": image[0], "c1": image[1], "c2": image[2], "c3": image[3], "lsn": 2, "unknown": False}
            | {"net": net, "needed": needed}
            for image, net, needed in changes
        ]
        before = Before(
            MountedFolder("/"),
            tuple(map(str, paths)),
            _COLUMNS,
            _SOURCES,
            Images((0, 1, 2, 3, 5), has_younger=has_younger),
        )
        found = rewrite(before, [pa.RecordBatch.from_pylist(rows, schema=_COPIED)])
    missing = sum(max(0, needed - copies[_frozen(image)]) for image, _, needed in changes)
    if missing and has_younger:
        assert found is None
        return
    assert found is not None
    batches = list(found.batches())
    there = [tuple(row.values()) for row in pa.Table.from_batches(batches).to_pylist()] if batches else []
    wanted = copies.copy()
    for image, net, needed in changes:
        wanted[_frozen(image)] = max(wanted[_frozen(image)], needed) + net
    assert Counter(_frozen(row[:4]) for row in there) == +wanted
    # What stays is not touched.
    gone = {_frozen(image): needed for image, _, needed in changes}
    untouched = Counter({image: max(count - gone.get(image, 0), 0) for image, count in copies.items()})
    assert Counter(_frozen(row[:4]) for row in there if row[4] == 1) == +untouched
    assert (found.counts["without_base"], found.counts["deletes_without_row"]) == (0, missing)
    assert found.counts["inserted"] == len(there) - found.counts["copied"]
    assert found.counts["deleted"] == len(old) - found.counts["copied"]


def test_copies_that_would_fill_the_memory_are_left_to_a_merge(tmp_path: Path) -> None:
    row = {"c0": 1, "c1": "x" * 1000, "c2": None, "c3": False, "lsn": 2, "unknown": False, "needed": 0}
    for count, is_left in ((1000, False), (1_000_000, True)):
        batch = pa.RecordBatch.from_pylist([row | {"net": count}], schema=_COPIED)
        assert (rewrite(_before([], Images((0, 1, 2, 3, 5))), [batch]) is None) == is_left


def test_rescued_texts_of_rows_without_a_key_are_left_to_a_merge(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    _write(path, {(1, "x"): ([1], False, 1, '{"c": "{{1}}"}')})
    row = {"c0": 2, "c1": "", "c2": None, "c3": False, "lsn": 2, "unknown": False, "net": 1, "needed": 0}
    batch = pa.RecordBatch.from_pylist([row], schema=_COPIED)
    assert rewrite(_before([path], Images((0, 1, 2, 3, 5))), [batch]) is None

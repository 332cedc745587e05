"""What a task of a base load stages: the same rows for a mirror and for a history, which are numbered there."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.planned import catalogue_of, configured, relation
from walreplay.decode.change_batch import type_names
from walreplay.fold.events import OPERATIONS, from_ipc
from walreplay.loading.formats import CopyOptions
from walreplay.names import COUNT, Output
from walreplay.spark.workers.load import LoadPart, LoadTask, load_batches, load_rows
from walreplay.spark.workers.rows import ERROR_TABLE

TOP = 1234


def task_of(*outputs: str, identity: str = "d") -> tuple[Any, LoadTask]:
    found = relation("id* note" if identity == "d" else "id note", identity)
    catalogue = catalogue_of([found], configured(outputs=list(outputs)))
    settings = configured(outputs=list(outputs)).of_tasks
    return found, LoadTask(catalogue.assignments, type_names({}), settings, 150, 4, TOP)


def taken(batches: Any) -> dict[int, list[dict[str, Any]]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert not [row["info"] for row in rows if row["table"] == ERROR_TABLE]
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["table"] % COUNT, []).append(row)
    return found


def ids(rows: list[dict[str, Any]]) -> Counter[int]:
    events = [from_ipc(row["data"]) for row in rows if row["data"]]
    return Counter(value for one in events for value in one.columns[0].to_pylist())


def check_history(rows: list[dict[str, Any]]) -> None:
    events = [from_ipc(row["data"]) for row in rows if row["data"]]
    marks = [one.marks for one in events if one.marks is not None]
    assert len(marks) == len(events)
    ordinals = np.concatenate([one.ordinal for one in marks])
    assert len(set(ordinals.tolist())) == len(ordinals)
    assert {OPERATIONS[kind] for one in marks for kind in one.operation} == {"r"}
    assert {top for one in marks for top in one.top.tolist()} == {TOP}
    assert {lsn for one in events for lsn in one.lsn.to_pylist()} == {150}


@pytest.mark.parametrize("identity", ["d", "f", "n"])
def test_rows_of_files_go_to_mirror_and_history(tmp_path: Path, identity: str) -> None:
    items, task = task_of("mirror", "history", "changelog", identity=identity)
    parts = []
    for number in range(3):
        path = tmp_path / f"{number}.copy"
        path.write_text("".join(f"{id_}\t1\n" for id_ in range(number * 10, number * 10 + 10)))
        parts.append(LoadPart(f"file://{path}", items, number=number))
    numbers = [pa.RecordBatch.from_pydict({"file": pa.array([0, 1, 2], pa.int64())})]
    found = taken(load_batches(numbers, task=task, parts=parts, options=CopyOptions()))
    mirror, history = found[Output.MIRROR.number], found[Output.HISTORY.number]
    assert found.keys() == {Output.MIRROR.number, Output.HISTORY.number}
    assert ids(mirror) == ids(history) == Counter(range(30))
    assert sum(row["rows"] for row in mirror) == sum(row["rows"] for row in history) == 30
    check_history(history)
    # Again it is the same.
    assert found == taken(load_batches(numbers, task=task, parts=parts, options=CopyOptions()))


def test_rows_of_spark_are_numbered_by_their_partitions() -> None:
    items, task = task_of("history", identity="f")
    names = ["id", "note", "part"]

    def batches(part: int) -> list[pa.RecordBatch]:
        empty = pa.RecordBatch.from_arrays([pa.array([], pa.int32())] * 3, names=names)
        values = [pa.array([1] * 5, pa.int32()), pa.array([2] * 5, pa.int32()), pa.array([part] * 5, pa.int32())]
        return [empty, *[pa.RecordBatch.from_arrays(values, names=names)] * 2]

    rows: list[dict[str, Any]] = []
    # Two queries of three and two partitions, of which one has no rows.
    for first, count in ((0, 3), (3, 2)):
        load = partial(load_rows, task=task, relation=items, order=(0, 1), path="query", first=first)
        for part in range(count):
            rows += taken(load(batches(part)))[Output.HISTORY.number]
        assert taken(load([])).keys() == {Output.HISTORY.number}
    assert ids(rows) == Counter({1: 50})
    check_history(rows)


@pytest.mark.parametrize("form", ["csv", "text", "dump"])
@pytest.mark.parametrize(
    "names", ["id note", "note id", "id note a", "id note a b", "a id note", "id a note", "b note a id"]
)
def test_columns_that_are_named_go_by_their_names_whatever_others_there_are(
    tmp_path: Path, names: str, form: str
) -> None:
    items, task = task_of("mirror")
    columns, path = tuple(names.split()), tmp_path / "rows"
    delimiter = "," if form == "csv" else "\t"
    lines = [columns] if form != "dump" else []
    for id_ in range(1, 6):
        values = {"id": id_, "note": 10 * id_}
        lines.append(tuple(str(values.get(name, 7)) for name in columns))
    path.write_text("".join(f"{delimiter.join(line)}\n" for line in lines) + ("\\.\n" if form == "dump" else ""))
    part = LoadPart(f"file://{path}", items, columns=columns if form == "dump" else None)
    options = CopyOptions("csv" if form == "csv" else "text", header=form != "dump")
    numbers = [pa.RecordBatch.from_pydict({"file": pa.array([0], pa.int64())})]
    found = taken(load_batches(numbers, task=task, parts=[part], options=options))[Output.MIRROR.number]
    events = [from_ipc(row["data"]) for row in found if row["data"]]
    rows = {pair for one in events for pair in zip(*(column.to_pylist() for column in one.columns[:2]), strict=True)}
    assert rows == {(id_, 10 * id_) for id_ in range(1, 6)}

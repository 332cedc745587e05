"""Rows that are only added need not meet, so that no worker has to hold more of a table than what a file has of it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from support.event_model import ADD, Event, build
from walreplay.fold.change_log import Projection
from walreplay.fold.events import Events, Identity, Mode, to_ipc
from walreplay.fold.net_changes import split
from walreplay.spark.workers.fold import NetFold, fold_batches
from walreplay.types import resolve

NUMBER = resolve(20, -1, {})
NAMES = ("key", "a", "b")
ADDED = Identity(Mode.APPEND)
FILES = 7


def added(file: int) -> Events:
    return build([Event(ADD, 10 * file + row, (file, row)) for row in range(3)])


def test_files_go_to_the_buckets_in_turn() -> None:
    buckets = [[bucket for bucket, _ in split(added(file), ADDED, NAMES, 3, file)] for file in range(FILES)]
    assert buckets == [[0], [1], [2], [0], [1], [2], [0]]


def test_rows_of_a_file_come_out_before_those_of_the_next_but_one_are_read() -> None:
    read = 0

    def staged() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for file in range(FILES):
            read += 1
            row = {"bucket": 0, "sequence": file, "data": to_ipc(added(file)).to_pybytes()}
            yield pa.RecordBatch.from_pylist([row])

    projection = Projection((0, 1, 2), ((NUMBER,),) * 3, NAMES, NAMES)
    task = NetFold((pa.int64(),) * 3, NAMES, ADDED, (), False, ((0, projection, ()),))
    given = []
    for batch in fold_batches(staged(), task=task):
        assert read <= len(given) + 2
        given.append(batch.column("c0").to_pylist())
    assert given == [[10 * file + row for row in range(3)] for file in range(FILES)]

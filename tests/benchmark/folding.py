"""What moves between tasks when the same rows change again and again, and what does not fit into memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import numpy as np
from archive import watched
from generate import cut
from measuring import Timing

from support.wire import encode
from walreplay.protocol import messages as m

_ROWS_A_TRANSACTION: Final = 1000
_COLUMNS: Final = (m.Column("id", 23, -1, True), m.Column("value", 23, -1, False))
_RELATION: Final = m.Relation(30, "bench", "hot", "d", _COLUMNS)


def run(folder: Path) -> list[list[Timing]]:
    """Apply a million updates of one row, and ten million of a million rows, with 2 GB of heap."""
    timings = []
    for changes, keys in ((1_000_000, 1), (10_000_000, 1_000_000)):
        captures = write_updates(folder / f"updates-{changes}-{keys}", changes, keys, 12)
        timing = watched(captures, folder / "updates-mirror", "2g")
        timing.section, timing.name = "fold", f"{changes:,} updates of {keys:,} row{'s' * (keys > 1)}"
        timings.append(timing)
    return [timings]


def write_updates(folder: Path, changes: int, keys: int, files: int) -> Path:
    """Write a capture of updates of rows at random, a thousand a transaction."""
    if folder.exists():
        return folder
    row = encode(m.Update(30, m.TupleData((m.Cell("t", b"0" * 9), m.Cell("t", b"0" * 9)))))
    begin, commit = encode(m.Begin(0, 0, 0)), encode(m.Commit(0, 0, 0, 0))
    transaction = np.frombuffer(begin + row * _ROWS_A_TRANSACTION + commit, np.uint8)
    count = changes // _ROWS_A_TRANSACTION
    data = np.tile(transaction, (count, 1))
    rng = np.random.default_rng(1)
    powers = 10 ** np.arange(8, -1, -1)
    for column, values in enumerate((rng.integers(0, keys, changes), rng.integers(0, 10**8, changes))):
        # The digits from the row's end: those of the second column, and in front of them a tag, a length, the first.
        last = len(row) - (1 - column) * (9 + 5)
        at = len(begin) + np.arange(_ROWS_A_TRANSACTION)[:, None] * len(row) + last - 9 + np.arange(9)
        digits = (values[:, None] // powers % 10 + ord("0")).astype(np.uint8)
        data[:, at.ravel()] = digits.reshape(count, -1)
    numbers = np.arange(1, count + 1)
    for place, value, kind in (
        (1, numbers * 4096, ">i8"),
        (9, numbers * 1000, ">i8"),
        (17, numbers, ">i4"),
        (len(transaction) - len(commit) + 2, numbers * 4096, ">i8"),
        (len(transaction) - len(commit) + 10, numbers * 4096 + 48, ">i8"),
        (len(transaction) - len(commit) + 18, numbers * 1000, ">i8"),
    ):
        width = np.dtype(kind).itemsize
        data[:, place : place + width] = value.astype(kind).view(np.uint8).reshape(-1, width)
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    first = data[0, : len(begin)].tobytes() + encode(_RELATION) + data[0, len(begin) :].tobytes()
    cut(first + data[1:].tobytes(), part, files)
    part.rename(folder)
    return folder

"""Decoded batches: of a few changes of one table, and all that a batch says of its rows."""

from __future__ import annotations

from typing import Any

from support.framings import frame
from support.runs import plan_runs
from walreplay.changes import decode_plan
from walreplay.decode.change_batch import ChangeBatch
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing


def row(*texts: bytes | None) -> m.TupleData:
    """Make a tuple of texts and NULLs."""
    return m.TupleData(tuple(m.NULL_CELL if text is None else m.Cell("t", text) for text in texts))


def batch_of(table: m.Relation, *changes: m.AnyMessage) -> ChangeBatch:
    """Decode one transaction's changes."""
    data = frame([m.Begin(100, 1, 7), table, *changes, m.Commit(0, 100, 108, 1)], Framing.RAW)
    ((_, planned),) = plan_runs([{"file": data}])
    (batch,) = decode_plan(planned.plan, lambda path: data)
    return batch


def listed(batch: ChangeBatch) -> list[tuple[tuple[int, int], str]]:
    """Return commit LSN and ordinal of each row, and a text of all that the batch says of it."""
    unchanged = {name: mask.to_pylist() for name, mask in batch.unchanged.items()}
    rescued = batch.rescued.to_pylist() if batch.rescued is not None else [None] * batch.data.num_rows
    before: dict[int, Any] = {}
    if batch.before is not None:
        rows = batch.before.to_pylist()
        texts = batch.before_rescued.to_pylist() if batch.before_rescued is not None else [None] * len(rows)
        before = {row.pop("__row"): (row, text) for row, text in zip(rows, texts, strict=True)}
    return [
        (
            (row["__commit_lsn"], row["__ordinal"]),
            repr((row, sorted(name for name, mask in unchanged.items() if mask[at]), rescued[at], before.get(at))),
        )
        for at, row in enumerate(batch.data.to_pylist())
    ]

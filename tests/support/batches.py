"""Decoded batches of a few changes of one table."""

from __future__ import annotations

from support.runs import plan_runs
from walreplay.changes import decode_plan
from walreplay.decode.change_batch import ChangeBatch
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.writer import frame


def row(*texts: bytes | None) -> m.TupleData:
    """Make a tuple of texts and NULLs."""
    return m.TupleData(tuple(m.NULL_CELL if text is None else m.Cell("t", text) for text in texts))


def batch_of(table: m.Relation, *changes: m.AnyMessage) -> ChangeBatch:
    """Decode one transaction's changes."""
    data = frame([m.Begin(100, 1, 7), table, *changes, m.Commit(0, 100, 108, 1)], Framing.RAW)
    ((_, planned),) = plan_runs([{"file": data}])
    (batch,) = decode_plan(planned.plan, lambda path: data)
    return batch

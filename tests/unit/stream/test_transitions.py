"""Each item is applied, or refused, in each state of the streamed or prepared transaction that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_args

import numpy as np
import pytest

from support.framings import frame
from walreplay.decode.files import scan_file
from walreplay.decode.summary import Block, Body, Decided, Item, Unfinished, XidCounts
from walreplay.decode.walk import Place
from walreplay.errors import OrderError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.stream.plan import CutOff, Deferred, Segment
from walreplay.stream.schedule import AddedPart
from walreplay.stream.state import Named, StitchState
from walreplay.stream.stitch import Stitch
from walreplay.stream.transitions import TRANSITIONS, Fault, follow

XID: Final = 5
GID: Final = "mine"
ROLLED_BACK: Final = 6

ITEMS: Final[dict[type, Item]] = {
    Block: Block(XID, False, False, False, 0, 9, XidCounts(1)),
    Body: Body(GID, XID, 300, 300, begins=False, complete=False, start=0, stop=9, ordinal=0, rows=1),
    m.StreamAbort: Decided(m.StreamAbort(XID, ROLLED_BACK), 0),
    m.StreamPrepare: Decided(m.StreamPrepare(0, 300, 308, 300, XID, GID), 0),
    m.StreamCommit: Decided(m.StreamCommit(XID, 0, 300, 308, 300), 0),
    m.Prepare: Decided(m.Prepare(0, 300, 308, 300, XID, GID), 0),
    m.CommitPrepared: Decided(m.CommitPrepared(0, 300, 308, 300, XID, GID), 0),
    m.RollbackPrepared: Decided(m.RollbackPrepared(0, 208, 300, 200, 300, XID, GID), 0),
}
BEHIND: Final = {Block: "streamed", m.StreamAbort: "streamed", Body: "body", m.StreamPrepare: "prepared"} | {
    m.Prepare: "prepared"
}
"""Where the transaction is behind an item, if it was there; behind the others it has ended."""


def _counts(xid: int, rows: int) -> XidCounts:
    return XidCounts.of(np.array([xid]), np.array([rows]))


def _transaction(kind: type, rows: XidCounts) -> Deferred:
    is_prepared = kind in (m.Prepare, m.CommitPrepared, m.RollbackPrepared)
    gid = GID if is_prepared or kind is Body else None
    segment = Segment("a", 9, 0, 0, 9, Place(Framing.RAW), (), (), rows)
    return Deferred(XID, "a", 0, gid, complete=is_prepared, lsn=200, segments=[segment])


def _rows(state: StitchState, kind: type) -> None:
    state.open.put(_transaction(kind, _counts(XID, 1)))


def _fewer_rows(state: StitchState, kind: type) -> None:
    transaction = _transaction(kind, _counts(XID, 1))
    transaction.lacks_rows = transaction.complete
    state.cut[XID] = CutOff(XID, None, _counts(XID, 2), 0)
    state.open.put(transaction)


def _mixed(state: StitchState, kind: type) -> None:
    state.open.put(_transaction(kind, _counts(ROLLED_BACK, 1)))
    state.open.gone.add(ROLLED_BACK)


def _other(state: StitchState, kind: type) -> None:
    other = _transaction(m.Prepare, _counts(XID, 1))
    other.gid, other.lsn = "other", 400
    state.open.put(other)


STATES: Final[dict[Fault | None, Callable[[StitchState, type], None]]] = {
    None: _rows,
    Fault.NOTHING: lambda _, __: None,
    Fault.FEWER_ROWS: _fewer_rows,
    Fault.MIXED: _mixed,
    Fault.OTHER: _other,
}


def _added() -> AddedPart:
    data = frame((m.Begin(100, 100, 7), m.Commit(0, 100, 108, 100)), Framing.RAW)
    scan = scan_file("b", data, Stitch(None).next_scan(Framing.RAW))
    return AddedPart(scan, scan.parts[0], Place(Framing.RAW), Unfinished())


def _where(state: StitchState) -> str:
    transactions = {
        "streamed": state.open.streams.get(XID),
        "body": state.open.body,
        "prepared": state.open.prepared.get((GID, XID)),
    }
    return ", ".join(name for name, transaction in transactions.items() if transaction is not None)


def test_each_item_has_a_place_in_the_table() -> None:
    assert set(TRANSITIONS) == set(ITEMS) == set(get_args(Named))


@pytest.mark.parametrize("fault", STATES)
@pytest.mark.parametrize("kind", ITEMS)
def test_each_item_is_applied_or_refused_in_each_state(kind: type, fault: Fault | None) -> None:
    state, rejection = StitchState(None, lambda _: True, allow_gaps=False), None
    STATES[fault](state, kind)
    if fault is not None:
        rejection = TRANSITIONS[kind].refused.get(fault)
        if rejection is None and fault is Fault.OTHER:
            rejection = TRANSITIONS[kind].refused.get(Fault.NOTHING)
    if rejection is not None:
        with pytest.raises(OrderError, match=rejection.problem.format(xid=XID, name=kind.__name__)):
            follow(state, ITEMS[kind], _added())
        return
    committed = follow(state, ITEMS[kind], _added())
    is_there = fault not in (Fault.NOTHING, Fault.OTHER) or kind is m.Prepare
    assert _where(state) == (BEHIND.get(kind, "") if is_there else "")
    assert (committed is not None) == (kind in (m.StreamCommit, m.CommitPrepared) and is_there)


def test_a_gid_that_is_prepared_again_is_free_even_if_its_new_transaction_is_left_out() -> None:
    state = StitchState(None, lambda _: True, allow_gaps=True)
    state.open.put(_transaction(m.Prepare, _counts(XID, 1)))
    follow(state, Decided(m.StreamPrepare(0, 300, 308, 300, XID + 1, GID), 0), _added())  # its blocks are missing
    assert not state.open.prepared
    assert f"transaction {XID} was prepared as {GID!r}" in " ".join(state.warnings)

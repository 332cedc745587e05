"""Whatever happens to a table's rows, a run's few merged rows do to its mirror what the changes did one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.extent import examples
from support.framings import frame, transaction
from support.histories import (
    BYTEA,
    FLOAT8,
    FLOATS,
    INT4,
    INTS,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    WILD,
    History,
    Op,
    Table,
    ops,
    true_image,
)
from support.mirror_model import MirrorModel, image
from support.runs import cut, grown_to, plan_runs
from walreplay.errors import CaptureError
from walreplay.fold.events import Identity, Mode
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.spark.workers.rows import refusal_in

KEYED = [
    Table((INT4, TEXT, INTS), (0,), "d"),
    Table((TEXT, INT4, INTS, TEXT), (1, 0), "d"),
    Table((TEXT, NUMERIC, INTS), (1,), "i"),
    Table((TIMESTAMP, INTS, NUMERIC, TEXT), (2, 0), "i"),
    Table((FLOAT8, TEXT), (0,), "d"),
    Table((INTS, TEXT), (0,), "d"),
    Table((INT4, TEXT), (0,), "i", alternating=True),
    Table((TEXT, INT4, TIMESTAMP), (1, 2), "f", configured=True),
    Table((INT4, INTS, TEXT), (2,), "f", configured=True),
    Table((BYTEA, TIMESTAMPTZ, WILD), (1, 0), "d"),
    Table((WILD, TEXT), (0,), "d"),
    Table((NUMERIC, TEXT, FLOAT8), (2, 0), "f", configured=True),
    Table((INT4, TEXT, INTS), (0,), "f", configured=True, alternating=True),
]
DEFERRABLE = [
    Table((INT4, TEXT), (0,), "f", configured=True, deferrable=True),
    Table((TIMESTAMPTZ, TEXT, FLOAT8), (2, 0), "f", configured=True, deferrable=True),
    Table((TEXT, INTS), (0,), "f", configured=True, deferrable=True),
    Table((INT4, WILD, NUMERIC), (0, 1), "f", configured=True, deferrable=True),
]
PARTIAL = [
    Table((INT4, TEXT, INTS), (0,), "d", publishes="iu"),
    Table((INT4, TEXT, INTS), (0,), "d", publishes="id"),
    Table((INT4, TEXT, INTS), (0,), "d", publishes="ud"),
    Table((NUMERIC, TEXT), (0,), "i", publishes="u"),
    Table((INT4, TEXT), (0,), "d", publishes="i"),
    Table((INT4, TEXT), (0,), "f", configured=True, publishes="iu"),
    Table((INT4, TEXT), (0,), "f", configured=True, publishes="id"),
    Table((INT4, TEXT, INTS), (0,), "d", filtered=True),
]
MULTISETS = [
    Table((INT4,), (), "f"),
    Table((FLOAT8, TEXT), (), "f"),
    Table((FLOATS, NUMERIC), (), "f"),
    Table((INTS, TIMESTAMP, TEXT), (), "f"),
]
PARTIAL_MULTISETS = [
    Table((INT4,), (), "f", publishes="ud"),
    Table((FLOAT8, TEXT), (), "f", publishes="id"),
    Table((INT4,), (), "f", publishes="d"),
]
APPENDED = [Table((INT4, TEXT), (), "d"), Table((NUMERIC, FLOATS), (), "n")]


@dataclass(frozen=True)
class Delivery:
    """How a history's bytes come: framed, cut into files, in several runs, folded in so many buckets."""

    framing: Framing
    cuts: tuple[int, ...]
    runs: tuple[int, ...]
    anywhere: bool
    leave_open: bool
    buckets: int
    routed: bool


deliveries = st.builds(
    Delivery,
    st.sampled_from([Framing.RAW, Framing.COPYDATA]),
    st.lists(st.integers(0, 2**16), max_size=3).map(tuple),
    st.lists(st.integers(0, 2**16), max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.booleans(),
)


def mode_of(table: Table) -> Mode:
    if table.key:
        return Mode.KEYED
    return Mode.MULTISET if table.identity == "f" else Mode.APPEND


def check(table: Table, operations: list[Op], delivery: Delivery) -> MirrorModel:
    """Play a history, apply its bytes as the delivery says, and compare."""
    history = History(table)
    history.play(operations, leave_open=delivery.leave_open)
    data = frame(history.messages, delivery.framing)
    ends = [len(frame(history.messages[:n], delivery.framing)) for n in range(1, len(history.messages) + 1)]

    def places(numbers: tuple[int, ...]) -> list[int]:
        if delivery.anywhere:
            return sorted(number % (len(data) + 1) for number in numbers)
        return sorted(ends[number % len(ends)] for number in numbers)

    files = cut(data, places(delivery.cuts))
    # What is there when a run begins tells its framing, or it is no run yet.
    stages = [grown_to(files, size) for size in places(delivery.runs) if size >= 64]
    # What is not sent cannot be relied on.
    identity = Identity(mode_of(table), table.key, evicts=table.publishes != "iud")
    types = tuple(kind.arrow for kind in table.kinds)
    mirror = MirrorModel(identity, table.names, types, table.configured, delivery.routed)
    last = None
    for stage, planned in plan_runs([*stages, files], framing=delivery.framing):
        mirror.apply(planned.plan, stage, table.relations, delivery.buckets)
        last = planned.plan
    assert last is not None
    if delivery.leave_open:
        # What is not committed has not happened.
        committed = sum(op.ends for op in operations)
        history = History(table)
        whole = operations[: max((n + 1 for n, op in enumerate(operations) if op.ends), default=0)]
        history.play(whole, leave_open=True)
        assert last.transactions <= committed
    held = history.mirror
    images = Counter(image(row) for row in mirror.rows)
    if not table.deferrable:
        assert images == Counter(true_image(table, row.values) for row in held.rows)
    if table.publishes == "iud" and not table.filtered:
        # The mirror holds what the source holds.
        assert images == Counter(true_image(table, row.values) for row in history.rows)
        assert mirror.missed == 0
    if not table.deferrable:
        lsns = Counter((true_image(table, row.values), row.lsn) for row in held.rows)
        assert Counter((image(row), row.lsn) for row in mirror.rows) == lsns
    if not table.key and table.identity == "f" and not any(op.what == "truncate" for op in operations):
        assert mirror.missed == held.missed
    return mirror


CLAIMS = {
    "a keyed table is what its changes make it": (KEYED, 25),
    "equal rows stay as many as they are": (MULTISETS, 75),
    "rows that only come are appended": (APPENDED, 10),
    "two rows may have one key for a moment": (DEFERRABLE, 50),
    "who takes a key evicts its holder": (PARTIAL, 25),
    "deletes that find no row are counted": (PARTIAL_MULTISETS, 25),
}
"""What holds of some tables, and in how many examples of each."""


@pytest.mark.parametrize(
    ("table", "count"),
    [
        pytest.param(table, count, id=f"{claim}: {table}")
        for claim, (tables, count) in CLAIMS.items()
        for table in tables
    ],
)
def test_whatever_happens_to_its_rows(table: Table, count: int) -> None:
    @settings(max_examples=examples(count))
    @given(ops(table), deliveries)
    def holds(operations: list[Op], delivery: Delivery) -> None:
        check(table, operations, delivery)

    holds()


@pytest.mark.parametrize("cut_at", [0, 4], ids=["in one file", "in two"])
def test_a_configured_key_that_is_not_unique_stops_the_run(cut_at: int) -> None:
    table = Table((INT4, TEXT), (0,), "f", configured=True)
    rows = [m.TupleData((m.Cell("t", b"1"), m.Cell("t", text))) for text in (b"a", b"b")]
    messages: list[m.AnyMessage] = [table.relation]
    for number, row in enumerate(rows):
        messages += transaction(100 + number, m.Insert(table.relation.oid, row))
    data = frame(messages, Framing.RAW)
    files = cut(data, [len(frame(messages[:cut_at], Framing.RAW))])
    ((stage, planned),) = plan_runs([files])
    mirror = MirrorModel(Identity(Mode.KEYED, (0,)), table.names, tuple(kind.arrow for kind in table.kinds), True)
    with pytest.raises(RuntimeError) as caught:
        mirror.apply(planned.plan, stage, table.relations, 2)
    error = refusal_in(f"Traceback: RuntimeError: {caught.value}\n and more")
    assert isinstance(error, CaptureError)
    assert "not unique" in error.problem
    assert refusal_in("RuntimeError: another") is None

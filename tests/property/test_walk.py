"""The walk and the scalar reader agree on any stream of ordinary transactions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.framings import frame
from support.messages import cells
from support.rows import rows_by_reader, rows_by_walk
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing


@st.composite
def streams(draw: st.DrawFn) -> list[m.AnyMessage]:
    """Make transactions over a few relations, announced when they are first needed and sometimes again."""
    widths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    messages: list[m.AnyMessage] = []
    announced: set[int] = set()
    lsn = 0
    for _ in range(draw(st.integers(1, 4))):
        lsn += draw(st.integers(1, 2**40))
        time, xid = draw(st.integers(0, 2**50)), draw(st.integers(0, 2**32 - 1))
        messages.append(m.Begin(lsn, time, xid))
        for _ in range(draw(st.integers(0, 5))):
            oid = draw(st.integers(1, len(widths)))
            if oid not in announced or draw(st.booleans()):
                columns = tuple(m.Column(f"c{n}", 25, -1, n == 0) for n in range(widths[oid - 1]))
                messages.append(m.Relation(oid, "s", f"t{oid}", "d", columns))
                announced.add(oid)
            messages.append(draw(_change(oid, widths[oid - 1])))
            if draw(st.integers(0, 9)) == 0:
                messages.append(m.Origin(lsn, "elsewhere"))
        messages.append(m.Commit(0, lsn, lsn + 8, time))
    return messages


def _change(oid: int, width: int) -> st.SearchStrategy[m.AnyMessage]:
    tuples = st.builds(m.TupleData, st.lists(cells, min_size=width, max_size=width).map(tuple))
    return st.one_of(
        st.builds(m.Insert, st.just(oid), tuples),
        st.builds(m.Update, st.just(oid), tuples),
        st.builds(m.Update, st.just(oid), tuples, old=tuples),
        st.builds(m.Update, st.just(oid), tuples, key=tuples),
        st.builds(m.Delete, st.just(oid), old=tuples),
        st.builds(m.Delete, st.just(oid), key=tuples),
        st.builds(m.Truncate, st.just((oid,)), st.integers(0, 3)),
    )


@given(streams(), st.sampled_from(list(Framing)), st.sampled_from([16, 64, 1 << 16]))
def test_the_walk_and_the_scalar_reader_agree(messages, framing, tile_bytes):
    data = frame(messages, framing)
    assert rows_by_walk(data, framing, tile_bytes) == list(rows_by_reader(data, framing))

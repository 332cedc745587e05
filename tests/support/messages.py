"""Hypothesis strategies for messages and for whole sessions of them."""

from __future__ import annotations

from hypothesis import strategies as st

from walreplay.protocol import messages as m

uint32 = st.integers(0, 2**32 - 1)
oids = st.lists(st.integers(1, 2**32 - 1), max_size=3, unique=True).map(tuple)
lsns = st.integers(0, 2**64 - 1)
times = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
given_names = names.filter(bool)
"""Of what cannot be without one."""
flags = st.just(0)

cells = st.one_of(
    st.just(m.NULL_CELL),
    st.just(m.UNCHANGED_CELL),
    # PostgreSQL's texts hold no NUL.
    st.builds(m.Cell, st.just("t"), st.binary(max_size=12).map(lambda value: value.replace(b"\0", b"0"))),
    st.builds(m.Cell, st.just("b"), st.binary(max_size=12)),
)
tuples = st.builds(m.TupleData, st.lists(cells, max_size=5).map(tuple))
columns = st.builds(m.Column, given_names, uint32, st.integers(-(2**31), 2**31 - 1), st.booleans())

# The first byte of an LSN tells a long Stream Abort from a short one: it is 0 below 2**56.
stream_aborts = st.one_of(
    st.builds(m.StreamAbort, uint32, uint32),
    st.builds(m.StreamAbort, uint32, uint32, st.integers(0, 2**56 - 1), times),
)

plain_messages: st.SearchStrategy[m.AnyMessage] = st.one_of(
    st.builds(m.Begin, lsns, times, uint32),
    st.builds(m.Commit, flags, lsns, lsns, times),
    st.builds(m.Origin, lsns, names),
    st.builds(m.StreamCommit, uint32, flags, lsns, lsns, times),
    stream_aborts,
    st.builds(m.BeginPrepare, lsns, lsns, times, uint32, names),
    st.builds(m.Prepare, flags, lsns, lsns, times, uint32, names),
    st.builds(m.CommitPrepared, flags, lsns, lsns, times, uint32, names),
    st.builds(m.RollbackPrepared, flags, lsns, lsns, times, times, uint32, names),
    st.builds(m.StreamPrepare, flags, lsns, lsns, times, uint32, names),
)
"""Messages that never carry the xid of a stream, but for the two marks of a stream itself."""

stream_starts = st.builds(m.StreamStart, uint32, st.booleans())


def streamable_messages(xid: st.SearchStrategy[int | None]) -> st.SearchStrategy[m.AnyMessage]:
    """Make messages of the kinds that carry an xid inside a stream."""
    relation_oid = uint32
    return st.one_of(
        st.builds(m.Message, st.booleans(), lsns, names, st.binary(max_size=12), xid),
        st.builds(
            m.Relation,
            uint32,
            names,
            given_names,
            st.sampled_from(m.REPLICA_IDENTITIES),
            st.lists(columns, max_size=4, unique_by=lambda column: column.name).map(tuple),
            xid,
        ),
        st.builds(m.Type, uint32, names, given_names, xid),
        st.builds(m.Insert, relation_oid, tuples, xid),
        st.builds(m.Update, relation_oid, tuples, xid=xid),
        st.builds(m.Update, relation_oid, tuples, old=tuples, xid=xid),
        st.builds(m.Update, relation_oid, tuples, key=tuples, xid=xid),
        st.builds(m.Delete, relation_oid, old=tuples, xid=xid),
        st.builds(m.Delete, relation_oid, key=tuples, xid=xid),
        st.builds(m.Truncate, oids, st.integers(0, 3), xid),
    )


outside_stream = st.one_of(plain_messages, streamable_messages(st.none()))
inside_stream = st.one_of(streamable_messages(uint32), st.builds(m.Origin, lsns, names))

_blocks = st.tuples(stream_starts, st.lists(inside_stream, max_size=4)).map(
    lambda parts: [parts[0], *parts[1], m.StreamStop()]
)
_pieces = st.one_of(st.lists(outside_stream, min_size=1, max_size=4), _blocks)

sessions: st.SearchStrategy[list[m.AnyMessage]] = st.lists(_pieces, min_size=1, max_size=4).map(
    lambda pieces: [message for piece in pieces for message in piece]
)
"""Messages in an order that keeps the rules of streams, and no others."""

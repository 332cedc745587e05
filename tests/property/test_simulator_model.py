"""The simulator's model agrees with the reference, which is told where the sessions are."""

from __future__ import annotations

from hypothesis import given, settings

from support.extent import examples
from support.framings import FORMS
from support.reference import Change, Identity, Transactions
from support.simulator import Capture, Drawn, captures, play, seeded
from support.simulator_model import PREPARED, STREAMED, Label, Row, Rows
from support.simulator_server import UNCHANGED, Values
from walreplay.errors import TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.reader import read_stream


class Reader(Transactions):
    """Write committed row changes as the model does."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Rows = {}

    def apply(self, change: Change, relations: tuple[m.Relation, ...], identity: Identity, ordinal: int) -> None:
        lsn, xid, time = identity
        where = (lsn, time, xid, ordinal)
        row: Row = ("t", *where, None, None)
        if isinstance(change, m.Insert):
            row = ("c", *where, values(change.new), None)
        elif isinstance(change, (m.Update, m.Delete)):
            old = change.old or change.key
            before = values(old) if old is not None else None
            row = (
                ("u", *where, values(change.new), before)
                if isinstance(change, m.Update)
                else ("d", *where, before, None)
            )
        for relation in relations:
            self.rows.setdefault(relation.qualified_name, []).append(row)


def values(row: m.TupleData) -> Values:
    found: list[str | None] = []
    for cell in row.cells:
        found.append(cell.value.decode() if cell.value is not None else UNCHANGED if cell.kind == "u" else None)
    return tuple(found)


def read(capture: Capture, size: int) -> Reader:
    """Read the bytes that are there, session by session."""
    reader = Reader()
    for session in capture.sessions:
        if session.start >= size:
            break
        reader.begin_session()
        data = capture.data[session.start : min(session.end, size)]
        try:
            for _, message in read_stream(data, framing=capture.framing, parallel=capture.options.parallel):
                reader.session.read(message)
        except TruncatedMessage:
            continue
        assert not session.torn or size < session.end
    return reader


def check(drawn: Drawn) -> Capture:
    """See that the model agrees at every size of which there is a run, and at some others."""
    capture = play(drawn)
    total = len(capture.data)
    for size in {*capture.sizes, total // 3, total // 2, total - 1, *(s.end for s in capture.sessions)}:
        reader, state = read(capture, max(size, 0)), capture.expected(max(size, 0))
        assert reader.rows == state.rows
        # An empty transaction is one too.
        assert [lsn for lsn, _, _ in sorted(reader.applied)] == [one.commit_lsn for one in state.transactions]
        assert {(one.lsn, one.prefix, one.content) for one in reader.messages} == set(state.messages)
        session = reader.session
        listed: list[Label] = [(STREAMED, xid, None) for xid in session.streams]
        listed += [(PREPARED, xid, gid) for xid, gid in reader.prepared if xid not in session.streams]
        if session.current is not None and not isinstance(session.current.begin, m.StreamStart):
            xid = session.current.begin.xid
            listed = [label for label in listed if label[1] != xid]
            listed.append(("ordinary", xid, None))
        assert state.faults_of(listed) == []
    for number, files in enumerate(capture.stages):
        assert b"".join(files.values()) == capture.data[: capture.sizes[number]]
    return capture


@settings(max_examples=examples(150))
@given(captures)
def test_a_plain_reader_finds_what_the_model_says(drawn: Drawn) -> None:
    check(drawn)


def test_seeds_make_captures_of_all_kinds() -> None:
    seen: set[str] = set()
    for seed in range(150):
        capture = check(seeded(seed))
        seen.add(capture.form.name)
        seen.update("torn" for session in capture.sessions[:-1] if session.torn)
        for *_, sent in capture.pieces:
            seen.add(sent.tag.decode())
    assert seen >= {*"BCOMRYIUDTSEcAbPKrp", "torn", *(form.name for form in FORMS)}

"""The simulator's model agrees with a plain reader that is told where the sessions are."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings

from support.extent import examples
from support.framings import FORMS
from support.simulator import EMPTY_LATE, Capture, Drawn, captures, play, seeded
from support.simulator_model import PREPARED, STREAMED, Label, Row, Rows
from support.simulator_server import UNCHANGED, Values
from walreplay.errors import TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import PGCOPY_HEADER, PGCOPY_TRAILER, Framing, read_newline
from walreplay.protocol.reader import is_streaming_after, read_message


@dataclass
class Gathered:
    """A transaction that has not committed."""

    xid: int
    gid: str | None = None
    changes: list[tuple[int, m.AnyMessage]] = field(default_factory=list)

    def undo(self, subxid: int) -> None:
        self.changes = [change for change in self.changes if change[0] != subxid]


class Reader:
    """Apply the rules, one message after the other."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.applied: set[tuple[int, int, int]] = set()
        self.messages: dict[int, m.Message] = {}
        self.prepared: dict[tuple[str, int], Gathered] = {}
        self.streams: dict[int, Gathered] = {}
        self.open: Gathered | None = None
        self.in_block = False
        self.begin: m.Begin | m.BeginPrepare | None = None
        self.relations: dict[int, m.Relation] = {}

    def connect(self) -> None:
        self.streams, self.open, self.begin, self.in_block, self.relations = {}, None, None, False, {}

    def take(self, message: m.AnyMessage) -> None:
        if isinstance(message, (m.Insert, m.Update, m.Delete, m.Truncate)):
            assert self.open is not None
            oids = message.relation_oids if isinstance(message, m.Truncate) else [message.relation_oid]
            assert all(oid in self.relations for oid in oids)
            self.open.changes.append((message.xid or self.open.xid, message))
        elif isinstance(message, m.Message):
            if message.transactional:
                assert self.open is not None
            else:
                assert self.open is None
                self.messages[message.lsn] = message
        elif isinstance(message, m.Relation):
            assert self.open is not None
            self.relations[message.oid] = message
        elif isinstance(message, (m.Origin, m.Type)):
            assert self.open is not None
        else:
            self.turn(message)

    def turn(self, message: m.AnyMessage) -> None:
        """Take a message that begins or ends something."""
        if isinstance(message, m.StreamStop):
            assert self.in_block
            self.open, self.in_block = None, False
            return
        assert not self.in_block
        if isinstance(message, m.StreamStart):
            assert self.open is None
            if message.first_segment:
                self.streams[message.xid] = Gathered(message.xid)
            self.open, self.in_block = self.streams[message.xid], True
        elif isinstance(message, (m.Begin, m.BeginPrepare)):
            assert self.open is None
            self.begin, self.open = message, Gathered(message.xid)
        elif isinstance(message, m.Commit):
            assert self.open is not None
            assert isinstance(self.begin, m.Begin)
            assert (self.begin.final_lsn, self.begin.commit_time) == (message.commit_lsn, message.commit_time)
            self.apply(self.open, message)
            self.open = None
        elif isinstance(message, m.Prepare):
            one, self.open = self.open or Gathered(message.xid), None
            assert one.xid == message.xid
            self.prepared[message.gid, message.xid] = one
        elif isinstance(message, m.StreamCommit):
            self.apply(self.streams.pop(message.xid), message)
        elif isinstance(message, m.StreamAbort):
            if message.xid == message.subxid:
                del self.streams[message.xid]
            else:
                self.streams[message.xid].undo(message.subxid)
        elif isinstance(message, m.StreamPrepare):
            self.prepared[message.gid, message.xid] = self.streams.pop(message.xid)
        elif isinstance(message, m.CommitPrepared):
            self.apply(self.prepared.pop((message.gid, message.xid), None), message)
        elif isinstance(message, m.RollbackPrepared):
            self.prepared.pop((message.gid, message.xid), None)

    def apply(self, one: Gathered | None, message: m.Commit | m.StreamCommit | m.CommitPrepared) -> None:
        xid = one.xid if one is not None else getattr(message, "xid", 0)
        rows: list[tuple[str, Row]] = []
        changes = one.changes if one is not None else []
        for ordinal, (_, change) in enumerate(changes):
            where = (message.commit_lsn, message.commit_time, xid, ordinal)
            if isinstance(change, m.Truncate):
                names = [self.relation(oid) for oid in change.relation_oids]
                rows += [(name, ("t", *where, None, None)) for name in names]
            elif isinstance(change, m.Insert):
                rows.append((self.relation(change.relation_oid), ("c", *where, values(change.new), None)))
            elif isinstance(change, m.Update):
                old = change.old or change.key
                before = values(old) if old is not None else None
                rows.append((self.relation(change.relation_oid), ("u", *where, values(change.new), before)))
            elif isinstance(change, m.Delete):
                old = change.old or change.key
                assert old is not None
                rows.append((self.relation(change.relation_oid), ("d", *where, values(old), None)))
        same = (message.commit_lsn, xid, message.commit_time)
        if same in self.applied:
            return
        assert all(message.commit_lsn > lsn for lsn, *_ in self.applied) or (EMPTY_LATE and not rows)
        self.applied.add(same)
        for name, row in rows:
            self.rows.setdefault(name, []).append(row)

    def relation(self, oid: int) -> str:
        return {16401: "public.t", 16402: "sales.orders B", 16403: "public.log"}[oid]


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
        reader.connect()
        data = capture.data[session.start : min(session.end, size)]
        try:
            read_session(reader, data, capture)
        except TruncatedMessage:
            continue
        assert not session.torn or size < session.end
    return reader


def read_session(reader: Reader, data: bytes, capture: Capture) -> None:
    at, streaming = 0, False
    if capture.framing is Framing.PGCOPY:
        at = PGCOPY_HEADER.size
    while at < len(data):
        begin, end = at, 0
        if capture.framing is Framing.COPYDATA:
            if len(data) < at + 5:
                raise TruncatedMessage("frame", offset=at)
            begin, end = at + 5 + 25, at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
            if len(data) < end:
                raise TruncatedMessage("frame", offset=at)
            if data[at + 5] == b"k"[0]:
                at = end
                continue
        elif capture.framing is Framing.WALSENDER:
            if len(data) < at + 18:
                raise TruncatedMessage("header", offset=at)
            if data[at] == b"k"[0]:
                at += 18
                continue
            begin = at + 25
        elif capture.framing.length_field is not None:
            if len(data) < at + 5:
                raise TruncatedMessage("length", offset=at)
            end = at + 4 + capture.framing.length_field.size_of(data, at)
            if len(data) < end:
                raise TruncatedMessage("frame", offset=at)
            if data[at + 4] == b"k"[0]:
                at = end
                continue
            begin = at + capture.form.head
        elif capture.framing is Framing.PGCOPY:
            if data[at:] == PGCOPY_TRAILER.pack(-1):
                return
            begin = at + capture.form.head
            if len(data) < begin:
                raise TruncatedMessage("row", offset=at)
            end = begin + int.from_bytes(data[begin - 4 : begin], "big")
        parallel = capture.options.parallel
        message, at = read_message(data, begin, streaming=streaming, parallel=parallel)
        assert end in (0, at)
        if capture.framing is Framing.RECVLOGICAL:
            at = read_newline(data, at)
        streaming = is_streaming_after(message, streaming)
        reader.take(message)


def check(drawn: Drawn) -> Capture:
    """See that the model agrees at every size of which there is a run, and at some others."""
    capture = play(drawn)
    total = len(capture.data)
    for size in {*capture.sizes, total // 3, total // 2, total - 1, *(s.end for s in capture.sessions)}:
        reader, state = read(capture, max(size, 0)), capture.expected(max(size, 0))
        assert reader.rows == state.rows
        # An empty transaction is one too.
        assert [lsn for lsn, _, _ in sorted(reader.applied)] == [one.commit_lsn for one in state.transactions]
        assert {(lsn, one.prefix, one.content) for lsn, one in reader.messages.items()} == set(state.messages)
        listed: list[Label] = [(STREAMED, xid, None) for xid in reader.streams]
        listed += [(PREPARED, xid, gid) for gid, xid in reader.prepared if (xid not in reader.streams)]
        if reader.open is not None and reader.begin is not None and not reader.in_block:
            listed = [label for label in listed if label[1] != reader.begin.xid]
            listed.append(("ordinary", reader.begin.xid, None))
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

"""Files together are what was sent; each begins where the one before ended, where nothing is open if it can."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from walreplay.recording.cutting import Cutting

_KINDS = st.sampled_from(["plain", "streamed", "prepared", "streamed and prepared", "aborted", "message", "quiet"])


@dataclass
class _Sender:
    """What a server sends, with a WAL of its own."""

    lsn: int = 1000
    xid: int = 700
    payloads: list[bytes] = field(default_factory=list)
    open_after: list[bool] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    streams: set[int] = field(default_factory=set)
    end: int = 1000
    commits: list[tuple[bytes, int]] = field(default_factory=list)

    def message(self, body: bytes, *, is_inside: bool, end: int | None = None) -> None:
        """Send a message; ``end``: the LSN behind the transaction that it ends."""
        self.lsn += 16
        self._send(b"w" + struct.pack("!QQQ", self.lsn, self.lsn, len(self.payloads)) + body, is_inside, end)

    def keepalive(self, *, is_inside: bool) -> None:
        """Send a keepalive with the place in the WAL that is reached."""
        self.lsn += 16
        self._send(b"k" + struct.pack("!QQB", self.lsn, 5, 0), is_inside, None if is_inside else self.lsn)

    def _send(self, payload: bytes, is_inside: bool, end: int | None) -> None:
        self.end = self.end if end is None else end
        self.payloads.append(payload)
        self.open_after.append(is_inside)
        self.ends.append(self.end)

    def transaction(self, kind: str, rows: int) -> None:
        """Send a transaction, the block of a streamed one, or what ends it."""
        self.xid += 1
        # Its rows were written before; the record that ends it may begin where all that was sent ends.
        lsn, end = self.end, self.lsn + 1000
        behind = struct.pack("!BQQQ", 0, lsn, end, 0)
        xid = struct.pack("!I", self.xid)
        if kind == "quiet":
            self.keepalive(is_inside=False)
        elif kind == "message":
            self.lsn += 16
            body = b"M" + struct.pack("!BQ", 0, self.lsn) + b"p\0" + struct.pack("!I", 0)
            self.message(body, is_inside=False, end=self.lsn)  # it has the LSN behind its record
        elif kind in ("plain", "prepared"):
            begin, over = (b"B", b"C") if kind == "plain" else (b"b", b"P")
            self.message(begin + bytes(20), is_inside=True)
            for number in range(rows):
                self.message(b"I" + bytes(30), is_inside=True)
                if number % 3 == 2:
                    self.keepalive(is_inside=True)
            self.message(over + behind + xid, is_inside=False, end=end)
        else:
            self.streams.add(self.xid)
            self.message(b"S" + xid + b"\1", is_inside=True)
            for _ in range(rows):
                self.message(b"I" + xid + bytes(30), is_inside=True)
            self.message(b"E", is_inside=False)
            self.message(b"A" + xid + struct.pack("!I", self.xid + 90_000), is_inside=False)  # a subtransaction's
            self._decide(kind, xid, behind, end)
        if self.end == end:
            self.commits.append((self.payloads[-1], lsn))
        self.lsn = max(self.lsn, self.end)

    def _decide(self, kind: str, xid: bytes, behind: bytes, end: int) -> None:
        if kind == "aborted":
            self.message(b"A" + xid + xid, is_inside=False)
        elif kind == "streamed":
            self.message(b"c" + xid + behind, is_inside=False, end=end)
        else:
            self.message(b"p" + behind + xid + b"gid\0", is_inside=False, end=end)


@given(
    st.lists(st.tuples(_KINDS, st.integers(0, 6)), min_size=1, max_size=12),
    st.integers(1, 600),
    st.integers(0, 1 << 30),
)
def test_files_together_are_what_was_sent(transactions: list[tuple[str, int]], size: int, stop: int) -> None:
    sender = _Sender()
    for kind, rows in transactions:
        sender.transaction(kind, rows)
    count = stop % len(sender.payloads) + 1
    cutting, pieces, frames, whole = Cutting(1000, size, 1e9), [], b"", 0
    for payload, is_open, end in zip(
        sender.payloads[:count], sender.open_after[:count], sender.ends[:count], strict=True
    ):
        before = len(cutting.data)
        cutting.add(payload)
        assert cutting.end_lsn == end
        if len(cutting.data) > before:  # a keepalive that says nothing is left out
            frames += b"d" + struct.pack("!I", len(payload) + 4) + payload
        if not is_open and payload[:1] == b"w":
            whole = len(frames)
        if cutting.is_due():
            assert not is_open or len(cutting.data) >= 2 * size
            pieces.append(cutting.cut())
    last = cutting.last_cut()
    if last is not None:
        pieces.append(last)
    assert [piece.start_lsn for piece in pieces] == [1000, *(piece.end_lsn for piece in pieces[:-1])][: len(pieces)]
    for payload, lsn in sender.commits:
        assert all(piece.start_lsn <= lsn < piece.end_lsn for piece in pieces if payload in piece.data)
    data = b"".join(piece.data for piece in pieces)
    assert frames.startswith(data)
    assert len(data) >= whole


@given(st.lists(st.tuples(_KINDS, st.integers(0, 6)), min_size=1, max_size=12), st.integers(0, 1 << 30))
def test_the_last_file_has_all_that_is_whole_and_nothing_that_is_open(
    transactions: list[tuple[str, int]], stop: int
) -> None:
    sender = _Sender()
    for kind, rows in transactions:
        sender.transaction(kind, rows)
    count = stop % len(sender.payloads) + 1
    cutting = Cutting(1000, 1 << 30, 1e9)
    for payload in sender.payloads[:count]:
        cutting.add(payload)
    whole = max((number for number in range(count) if not sender.open_after[number]), default=-1)
    sent = [payload for payload in sender.payloads[: whole + 1] if payload[:1] == b"w"]
    last = cutting.last_cut()
    if not sent:
        assert last is None
        return
    assert last is not None
    assert last.end_lsn == sender.ends[count - 1]
    assert [message for message in sent if message not in last.data] == []
    later = [payload for payload in sender.payloads[whole + 1 : count] if payload[:1] == b"w"]
    assert [message for message in later if message in last.data] == []


def test_a_file_ends_by_its_age_only_while_no_other_one_waits_for_the_store() -> None:
    sender = _Sender()
    for _ in range(4):
        sender.transaction("plain", 1)
    size = sum(len(payload) + 5 for payload in sender.payloads)  # with the heads of CopyData
    cutting = Cutting(1000, size, 1e-9)
    for payload in sender.payloads[:-1]:
        cutting.add(payload)
        assert not cutting.is_due(is_behind=True)
    assert cutting.is_due()
    cutting.add(sender.payloads[-1])
    assert cutting.is_due(is_behind=True)

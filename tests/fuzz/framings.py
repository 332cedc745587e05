"""Framings, and the walk of the kernels beside the scalar reader: both read the same, or both refuse it."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.target import Target
from support.captures import cases
from support.framings import FORMS, Keepalive, transaction
from support.rows import rows_of, walked
from support.wire import encode
from walreplay.decode.kernels.frames import EARLIEST, LATEST
from walreplay.errors import CaptureError, TruncatedMessage, WalReplayError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import PGCOPY_SIGNATURE, Framing
from walreplay.protocol.opening import HEAD_BYTES, detect_framing, what_is
from walreplay.protocol.reader import read_stream

_FRAMINGS = tuple(Framing)
_TILES = (1, 16, 64, 1 << 16)
_REPEATED = 3
_TIMES = 32


def read(data: bytes) -> None:
    """Detect the framing of some bytes, and read them in one.

    Args:
        data: in the first byte, bits 0 to 3 choose the framing, or the detected one, and bits 4 and 5 how many bytes a
            tile has; where bits 6 and 7 are set, the bytes behind it stand there 32 times.
    """
    if not data:
        return
    options, body = data[0], data[1:]
    if options >> 6 == _REPEATED:
        body *= _TIMES
    number = options & 0xF
    if number < len(_FRAMINGS):
        framing: Framing | None = _FRAMINGS[number]
    else:
        what_is(body)
        framing = detect_framing(body[:HEAD_BYTES])
    if framing is not None:
        _read_in(body, framing, _TILES[options >> 4 & 3])


def _read_in(body: bytes, framing: Framing, tile_bytes: int) -> None:
    plain, messages = _Plain(), list[m.AnyMessage]()
    problem: CaptureError | None = None
    try:
        for offset, message in read_stream(body, framing=framing):
            assert body.startswith(encode(message), offset), "what was read is not what was written"
            plain.take(message)
            messages.append(message)
    except CaptureError as error:
        problem = error
    try:
        rows, end = walked(body, framing, tile_bytes)
    except WalReplayError:
        assert problem is not None or not plain.is_plain, "the walk refuses what the reader reads"
        return
    # The walk leaves it to who converts the values to see a NUL in a text.
    has_nul = problem is not None and "NUL byte" in problem.problem
    # A binary COPY without its trailer may go on in the next file.
    lacks_trailer = framing.layout.is_row and isinstance(problem, TruncatedMessage)
    may_end = problem is None or has_nul or lacks_trailer
    assert may_end or end < len(body), "the walk reads to the end what the reader refuses"
    if plain.is_plain:
        assert problem is not None or end == len(body), "the walk does not read to the end"
        expected = list(rows_of(messages))
        assert (rows[: len(expected)] if has_nul else rows) == expected, "the walk reads otherwise"


class _Plain:
    """Whether messages are those of plain transactions, one behind the other, of which a walk knows all."""

    def __init__(self) -> None:
        self.is_plain = True
        self._begin: m.Begin | None = None
        self._widths: dict[int, int] = {}
        self._last = 0

    def take(self, message: m.AnyMessage) -> None:
        """Take the next message."""
        self.is_plain = self.is_plain and self._follows(message)

    def _follows(self, message: m.AnyMessage) -> bool:
        if isinstance(message, m.Begin):
            is_possible = EARLIEST <= message.commit_time <= LATEST and message.final_lsn < 1 << 63
            follows = self._begin is None and is_possible and message.final_lsn > self._last
            self._begin = message
            return follows
        if self._begin is None:
            return False
        if isinstance(message, m.Commit):
            begin, self._begin, self._last = self._begin, None, message.commit_lsn
            is_of_begin = (begin.final_lsn, begin.commit_time) == (message.commit_lsn, message.commit_time)
            return is_of_begin and message.end_lsn >= message.commit_lsn
        if isinstance(message, m.Relation):
            self._widths[message.oid] = len(message.columns)
            return True
        if isinstance(message, (m.Insert, m.Update, m.Delete)):
            tuples = (message.old, message.key) if isinstance(message, m.Delete) else (message.new,)
            if isinstance(message, m.Update):
                tuples += (message.old, message.key)
            width = self._widths.get(message.relation_oid)
            return all(row is None or len(row.cells) == width for row in tuples)
        return isinstance(message, m.Origin)


_TABLE = m.Relation(16500, "s", "t", "d", (m.Column("id", 23, -1, True), m.Column("v", 25, -1, False)))


def _small() -> Iterator[list[m.AnyMessage | Keepalive]]:
    row, old = (m.TupleData((m.Cell("t", value), m.Cell("b", b"\0\1"))) for value in (b"1", b"22"))
    kept = m.TupleData((m.Cell("t", b"1"), m.UNCHANGED_CELL))
    key = m.TupleData((m.Cell("t", b"1"), m.NULL_CELL))
    changes = [m.Insert(16500, row), m.Update(16500, kept, key=key), m.Update(16500, kept, old=old)]
    deletes = [m.Delete(16500, old=old), m.Delete(16500, key=key), m.Truncate((16500,), 1)]
    yield [*transaction(100, _TABLE, *changes)]
    yield [Keepalive(90, 1), *transaction(100, m.Origin(1, "o"), _TABLE, *deletes), *transaction(300, changes[0])]
    streamed = [m.StreamStart(7, True), m.Relation(16500, "s", "t", "d", _TABLE.columns, xid=7)]
    yield [*streamed, m.Insert(16500, row, xid=8), m.StreamStop(), m.StreamAbort(7, 8), m.StreamCommit(7, 0, 9, 9, 1)]
    yield [m.BeginPrepare(9, 9, 1, 7, "g"), _TABLE, changes[0], m.Prepare(0, 9, 9, 1, 7, "g")]


def seeds() -> Iterator[bytes]:
    """Yield small sessions in each form, and the beginning of each capture."""
    for form in FORMS:
        for items in _small():
            yield bytes([_FRAMINGS.index(form.framing) + 0x30]) + form.write(items)
    for case in cases():
        yield bytes([_FRAMINGS.index(case.framing) + 0x30]) + case.streams()[0][:400]


_WORDS = (PGCOPY_SIGNATURE, b"\0\3\0\0\0\x08", b"d\0\0\0", b"\0\0\0\x15B", b"\n")

TARGET = Target("framings", read, seeds, _WORDS, longest=400)

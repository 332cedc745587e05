"""Captures that were harmed: what becomes of single flipped bits, of cuts, and of ranges that are doubled or missing.

Every outcome but the last three is as it should be; the table in docs/notes/damage.md is made of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Final

from support.captures import Case
from support.runs import Files, cut, plan_run
from support.wire import encode
from walreplay.changes import decode_plan
from walreplay.errors import TruncatedMessage, WalReplayError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream
from walreplay.stream.plan import Plan

REFUSED: Final = "refused"
"""With an error of walreplay's own that names file and offset; nothing is applied."""
RIGHT: Final = "applied rightly"
"""All that is whole in the bytes; what is not waits for more."""
UNPROVEN: Final = "applied, nothing could prove it"
"""The same transactions with the same row changes, but for what stands in values or names; or whole row changes or
transactions are missing, or there twice: nothing counts the ones, and nothing links the others to each other.  A
flipped bit may have made a row one of another subtransaction, or have a rollback be one of another (those of which
nothing was streamed roll back, too); or a commit LSN another one, where a Stream Commit or a Commit
Prepared alone has it."""
WAITING: Final = "waiting though more follows"
NOT_TOLD: Final = "refused, but not where"
WRONG: Final = "applied wrongly"

OUTCOMES: Final = (REFUSED, RIGHT, UNPROVEN, WAITING, NOT_TOLD, WRONG)

Row = tuple[int, int, str, int, int, str]
"""Commit LSN, ordinal, operation, oid and number of columns; and all that is said of the row."""


@dataclass
class Applied:
    """What a run applies.

    Attributes:
        rows: of all relations, by commit LSN and ordinal.
    """

    plan: Plan
    rows: list[Row]


def apply(files: Files, framing: Framing | None = None) -> Applied:
    """Plan a run over files and decode it."""
    planned = plan_run(files, None, guessing=False, framing=framing)
    assert planned is not None
    rows: list[Row] = []
    for batch in decode_plan(planned.plan, files.__getitem__):
        before = {row.pop("__row"): row for row in batch.before.to_pylist()} if batch.before is not None else {}
        unchanged = {name: mask.to_pylist() for name, mask in batch.unchanged.items()}
        rescued = batch.rescued.to_pylist() if batch.rescued is not None else None
        oid, columns = batch.relation.oid, len(batch.relation.columns)
        names = [batch.relation.qualified_name, *(column.name for column in batch.relation.columns)]
        for at, values in enumerate(zip(*(column.to_pylist() for column in batch.data.columns), strict=True)):
            op, lsn, _, _, ordinal, *cells = values
            kept = sorted(name for name, mask in unchanged.items() if mask[at])
            said = repr((names, cells, kept, rescued[at] if rescued else None, before.get(at)))
            rows.append((lsn, ordinal, op, oid, columns, said))
    rows.sort(key=lambda row: row[:5])
    return Applied(planned.plan, rows)


@dataclass(frozen=True)
class Harm:
    """One harmed capture.

    Attributes:
        at: the first byte that is not as it was.
        behind: from this byte of the capture as it was on, all is there again.
        size: how many of the capture's bytes are left, where it was cut.
    """

    kind: str
    at: int
    behind: int
    files: Files
    size: int | None = None


@dataclass
class Whole:
    """A capture as it should be."""

    framing: Framing
    data: bytes
    edges: list[int]
    applied: Applied
    ends: list[tuple[int, int]] = field(default_factory=list)
    """Behind each message that commits: the highest commit LSN so far."""
    last: int = 0
    """Where the last of them begins."""
    subxids: set[int] = field(default_factory=set)
    """The bytes that say of which subtransaction a row is."""
    aborted: set[int] = field(default_factory=set)
    """The bytes that say which subtransaction has rolled back."""
    lone: set[int] = field(default_factory=set)
    """The bytes of the commit LSNs that stand in one message alone, and not in a Begin as well."""

    @classmethod
    def of(cls, case: Case) -> Whole:
        files = [path.read_bytes() for path in case.files]
        data = b"".join(files)
        edges = list(accumulate(map(len, files[:-1])))
        whole = cls(case.framing, data, edges, apply(cut(data, edges)))
        base = high = 0
        for stream in case.streams():
            for start, end, lsn in _commits(stream, case.framing):
                high, whole.last = max(high, lsn), base + start
                whole.ends.append((base + end, high))
            for at, message in _messages(stream, case.framing):
                if isinstance(message, (m.Insert, m.Update, m.Delete, m.Truncate)) and message.xid is not None:
                    whole.subxids.update(range(base + at + 1, base + at + 5))
                elif isinstance(message, m.StreamAbort):
                    whole.aborted.update(range(base + at + 5, base + at + 9))
                elif isinstance(message, m.StreamCommit):
                    whole.lone.update(range(base + at + 6, base + at + 14))
                elif isinstance(message, m.CommitPrepared):
                    whole.lone.update(range(base + at + 2, base + at + 10))
            base += len(stream)
        return whole

    def flips(self, chance: Random) -> Iterator[Harm]:
        """Flip single bits."""
        while True:
            at = chance.randrange(len(self.data))
            harmed = bytearray(self.data)
            harmed[at] ^= 1 << chance.randrange(8)
            yield Harm("one bit flipped", at, at + 1, cut(bytes(harmed), self.edges))

    def cuts(self, chance: Random) -> Iterator[Harm]:
        """Let the capture end anywhere."""
        while True:
            size = chance.randrange(64, len(self.data))
            edges = [edge for edge in self.edges if edge < size]
            yield Harm("cut off", size, size, cut(self.data[:size], edges), size)

    def doubled(self, chance: Random) -> Iterator[Harm]:
        """Have ranges of bytes stand there twice."""
        for start, stop in self._ranges(chance):
            data = self.data[:stop] + self.data[start:]
            yield Harm("a range doubled", stop, stop, self._cut(data, stop, stop - start))

    def missing(self, chance: Random) -> Iterator[Harm]:
        """Take ranges of bytes out."""
        for start, stop in self._ranges(chance):
            data = self.data[:start] + self.data[stop:]
            yield Harm("a range missing", start, stop, self._cut(data, start, start - stop))

    def _ranges(self, chance: Random) -> Iterator[tuple[int, int]]:
        while True:
            size = min(round(2 ** (chance.random() * 14)), len(self.data) // 2)
            start = chance.randrange(len(self.data) - size)
            yield start, start + size

    def _cut(self, data: bytes, at: int, more: int) -> Files:
        """Cut into files at the places that were edges before so many bytes more stood at an offset."""
        return cut(data, [edge if edge <= at else max(edge + more, at) for edge in self.edges])

    def outcome(self, harm: Harm) -> str:
        """Return what becomes of a harmed capture."""
        try:
            got = apply(harm.files)
        except WalReplayError as error:
            content = harm.files.get(error.path or "")
            is_told = content is not None and error.offset is not None and 0 <= error.offset <= len(content)
            return REFUSED if is_told else NOT_TOLD
        was, plan = self.applied, got.plan
        upto = was.plan.upto_lsn
        if harm.size is not None:
            number = bisect_right(self.ends, harm.size, key=lambda end: end[0])
            upto = self.ends[number - 1][1] if number else -1
        expected = [row for row in was.rows if row[0] <= upto]
        waits = plan.torn is not None or len(plan.resume.open_transactions) > 0
        if plan.upto_lsn < upto and expected[: len(got.rows)] == got.rows and waits:
            return WAITING if harm.behind <= self.last else RIGHT
        if got.rows == expected:
            return RIGHT
        if harm.kind == "one bit flipped" and harm.at in self.lone and _differ_by_one_lsn(expected, got.rows):
            return UNPROVEN
        if harm.kind == "one bit flipped" and harm.at in self.aborted and _has_all(expected, got.rows):
            return UNPROVEN
        is_other = harm.kind == "one bit flipped" and harm.at not in self.subxids
        return UNPROVEN if _is_unproven(expected, got.rows, harm.kind, is_other=is_other) else WRONG


def _has_all(expected: list[Row], rows: list[Row]) -> bool:
    """Return whether there are more rows, of a subtransaction that has rolled back, and else the same ones."""
    more = iter([(row[0], *row[2:]) for row in rows])
    return all((row[0], *row[2:]) in more for row in expected)


def _differ_by_one_lsn(expected: list[Row], rows: list[Row]) -> bool:
    """Return whether rows are the same but for one transaction's commit LSN."""
    others = {(one[0], other[0]) for one, other in zip(expected, rows, strict=False) if one[0] != other[0]}
    same = [row[1:] for row in expected] == [row[1:] for row in rows]
    return same and len(others) == 1


def _is_unproven(expected: list[Row], rows: list[Row], kind: str, *, is_other: bool) -> bool:
    if [row[:5] for row in rows] == [row[:5] for row in expected]:
        return True
    if kind == "cut off" or is_other or (kind == "one bit flipped" and abs(len(rows) - len(expected)) > 1):
        return False
    # Their numbers are others behind what is missing or doubled.  A flipped bit may have made a row one of another
    # subtransaction, which has rolled back, or has not.
    was, now = ([(row[0], *row[2:]) for row in some] for some in (expected, rows))
    same = next(
        (at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), min(len(was), len(now))
    )
    more = len(now) - len(was)
    # A row may be made of the beginning of one and the end of another.
    same += same < min(len(was), len(now)) and was[same:] != now[same + more :] and now[same:] != was[same - more :]
    return now[same + max(more, 0) :] == was[same + max(-more, 0) :]


HARMS: Final[tuple[Callable[[Whole, Random], Iterator[Harm]], ...]] = (
    Whole.flips,
    Whole.cuts,
    Whole.doubled,
    Whole.missing,
)


def _commits(stream: bytes, framing: Framing) -> Iterator[tuple[int, int, int]]:
    """Yield where each message that commits begins and ends, and the commit LSN."""
    for at, message in _messages(stream, framing):
        if isinstance(message, (m.Commit, m.StreamCommit, m.CommitPrepared)):
            yield at, at + len(encode(message)) + (framing is Framing.RECVLOGICAL), message.commit_lsn


def _messages(stream: bytes, framing: Framing) -> Iterator[tuple[int, m.AnyMessage]]:
    with suppress(TruncatedMessage):
        yield from read_stream(stream, framing=framing)

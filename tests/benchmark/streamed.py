"""Make a capture of one huge streamed transaction, and say what its tables hold in the end.

Protocol version 4 without parallel streaming, framed as pg_recvlogical does, cut into files anywhere.  Every few rows
are a subtransaction of their own; every fiftieth of those is rolled back once it was streamed, some of them a block
later.  Between the blocks stands a small ordinary transaction.  From the command line::

    python tests/benchmark/streamed.py --size 2000 --files 32 OUT

OUT gets ``capture/`` and ``expected.json``; ``--check MIRROR`` compares the tables that were made of it.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.wire import encode
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEGABYTE: Final = 1_000_000

_INT4, _INT8, _TEXT, _NUMERIC, _TIMESTAMPTZ = 23, 20, 25, 1700, 1184
_AMOUNT: Final = (14 << 16 | 2) + 4

EVENTS: Final = m.Relation(
    1,
    "bulk",
    "events",
    "d",
    (
        m.Column("id", _INT8, -1, True),
        m.Column("amount", _NUMERIC, _AMOUNT, False),
        m.Column("at", _TIMESTAMPTZ, -1, False),
        m.Column("k", _INT4, -1, False),
        m.Column("label", _TEXT, -1, False),
        m.Column("note", _TEXT, -1, False),
    ),
)
SIDE: Final = m.Relation(
    2, "bulk", "side", "d", (m.Column("id", _INT8, -1, True), m.Column("amount", _NUMERIC, _AMOUNT, False))
)

_FIRST_ID: Final = 100_000_000_000  # so that all have the same number of digits
_FIRST_SMALL_ID: Final = 200_000_000_000
_INSERTS, _UPDATES, _DELETES = 17, 2, 1
_KEPT: Final = _INSERTS - _DELETES
_ROLLED_BACK: Final = 50  # every so many subtransactions
_OWN: Final = 7  # every so many groups of rows belong to the transaction itself
_CHUNK_GROUPS: Final = 1024
_LABELS: Final = (b"accepted", b"refunded", "größer".encode(), "北京".encode() + b"--", b"withheld", b"new\nline")
_XID: Final = struct.Struct("!I")

Bytes = NDArray[np.uint8]


@dataclass
class Expected:
    """What a table holds in the end."""

    count: int = 0
    sum_of_ids: int = 0
    sum_of_amounts: int = 0
    """In cents."""

    def add(
        self, ids: Sequence[int] | NDArray[np.int64], cents: Sequence[int] | NDArray[np.int64], sign: int = 1
    ) -> None:
        """Count rows that are there, or that are no longer."""
        self.count += sign * len(ids)
        self.sum_of_ids += sign * int(np.sum(ids, dtype=np.int64))
        self.sum_of_amounts += sign * int(np.sum(cents, dtype=np.int64))


def _digits(width: int) -> Bytes:
    """Return all numbers of so many digits as text, by number."""
    numbers = np.arange(10**width)
    return np.stack([numbers // 10**place % 10 + ord("0") for place in reversed(range(width))], axis=1).astype(np.uint8)


_TWO, _FOUR = _digits(2), _digits(4)


def _put(rows: Bytes, at: int, numbers: NDArray[np.int64], width: int) -> None:
    """Write a column of numbers as text of a fixed width, a multiple of two."""
    while width:
        step = 4 if width >= 4 else 2
        width -= step
        rows[:, at : at + step] = (_FOUR if step == 4 else _TWO)[numbers // 10**width % 10**step]
        at += step


@dataclass
class _Group:
    """The bytes of a group's messages, and the places in them of what differs from group to group."""

    data: bytearray = field(default_factory=bytearray)
    xids: list[int] = field(default_factory=list)
    ids: list[tuple[int, int]] = field(default_factory=list)
    amounts: list[tuple[int, int]] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def change(self, tag: bytes, kind: bytes, row: int, version: int, note: bytes | None) -> None:
        """Add a message about a row of the group; its amount is that of a version."""
        self.data += tag
        self.xids.append(len(self.data))
        self.data += bytes(4) + struct.pack("!IcH", EVENTS.oid, kind, len(EVENTS.columns))
        self.ids.append((self._cell(bytes(12)), row))
        if kind == b"K":
            self.data += b"n" * (len(EVENTS.columns) - 1) + b"\n"
            return
        self.amounts.append((self._cell(b"0000.00"), version))
        self.clocks.append(self._cell(b"2026-05-17 12:34:00.000000+00") + 17)
        self.numbers.append(self._cell(b"0000"))
        self.labels.append(self._cell(bytes(len(_LABELS[0]))))
        if note is None:
            self.data += b"n"
        else:
            self._cell(note)
        self.data += b"\n"

    def _cell(self, value: bytes) -> int:
        self.data += b"t" + _XID.pack(len(value))
        at = len(self.data)
        self.data += value
        return at


def _group(note: bytes) -> _Group:
    group = _Group()
    for row in range(_INSERTS):
        group.change(b"I", b"N", row, row, None if row % 5 == 4 else note)
    for row in range(_UPDATES):
        group.change(b"U", b"N", row, _INSERTS + row, note)
    for row in range(_INSERTS - _DELETES, _INSERTS):
        group.change(b"D", b"K", row, row, None)
    return group


class _Transaction:
    """The huge transaction: its rows group by group, and what is left of them."""

    def __init__(self, seed: int, expected: Expected) -> None:
        self.xid = 5000
        self.next_xid = self.xid + 1
        self._expected = expected
        self._groups = 0
        self._random = np.random.default_rng(seed)

    def chunk(self, group: _Group, count: int) -> tuple[bytes, list[int]]:
        """Return the bytes of so many groups, and the subtransactions among them that are rolled back."""
        numbers = np.arange(self._groups, self._groups + count)
        self._groups += count
        own = numbers % _OWN == _OWN - 1
        xids = np.where(own, self.xid, self.next_xid + np.cumsum(~own) - 1).astype(np.int64)
        self.next_xid += int(np.sum(~own))
        rolled_back = (numbers % _ROLLED_BACK == 1) & ~own
        ids = _FIRST_ID + numbers[:, None] * _INSERTS + np.arange(_INSERTS)
        cents = self._random.integers(100_000, 1_000_000, (count, _INSERTS + _UPDATES))
        final = np.concatenate([cents[:, _INSERTS:], cents[:, _UPDATES:_KEPT]], axis=1)
        self._expected.add(ids[~rolled_back, :_KEPT].ravel(), final[~rolled_back].ravel())
        return self._bytes(group, xids, ids, cents), [int(xid) for xid in xids[rolled_back]]

    def _bytes(self, group: _Group, xids: NDArray[np.int64], ids: NDArray[np.int64], cents: NDArray[np.int64]) -> bytes:
        count = len(xids)
        rows = np.tile(np.frombuffer(bytes(group.data), np.uint8), (count, 1))
        packed = xids.astype(">u4").view(np.uint8).reshape(count, 4)
        for at in group.xids:
            rows[:, at : at + 4] = packed
        for at, row in group.ids:
            _put(rows, at, ids[:, row], 12)
        for at, version in group.amounts:
            _put(rows, at, cents[:, version] // 100, 4)
            _put(rows, at + 5, cents[:, version] % 100, 2)
        chance = self._random.integers(0, 1 << 31, (count, 3))
        labels = np.array([list(label) for label in _LABELS], np.uint8)
        for number, (clock, k, label) in enumerate(zip(group.clocks, group.numbers, group.labels, strict=True)):
            _put(rows, clock, (chance[:, 0] + number) % 60, 2)
            _put(rows, clock + 3, (chance[:, 0] + number * 7919) % 1_000_000, 6)
            _put(rows, k, 1000 + (chance[:, 1] + number) % 9000, 4)
            rows[:, label : label + labels.shape[1]] = labels[(chance[:, 2] + number) % len(labels)]
        return rows.tobytes()


class _Small:
    """The ordinary transactions in between: rows of a table of their own, and one of the huge transaction's table."""

    def __init__(self, side: Expected, events: Expected) -> None:
        self._side = side
        self._events = events
        self._count = 0

    def transaction(self, lsn: int, xid: int, deletes: Sequence[int] = ()) -> bytes:
        """Insert some rows, update one of the time before, and delete some of the huge transaction's."""
        number, self._count = self._count, self._count + 1
        messages: list[m.AnyMessage] = [m.Begin(lsn, _time(lsn), xid)]
        if number == 0:
            messages += [SIDE, EVENTS]
        ids = [3 * number + i for i in range(3)]
        messages += [_insert(SIDE.oid, str(i), f"{i}.25") for i in ids]
        self._side.add(ids, [100 * i + 25 for i in ids])
        if number:
            messages.append(m.Update(SIDE.oid, _tuple(str(ids[0] - 1), f"-{ids[0]}.50")))
            self._side.add([0], [100 * (ids[0] - 1) + 25], -1)
            self._side.add([0], [-100 * ids[0] - 50])
        event = _FIRST_SMALL_ID + number
        messages.append(_insert(EVENTS.oid, str(event), "0.01", "2026-05-17 12:34:56+00", "1", "small", None))
        self._events.add([event], [1])
        messages += [m.Delete(EVENTS.oid, key=_tuple(str(i), *[None] * 5)) for i in deletes]
        messages.append(m.Commit(0, lsn, lsn + 48, _time(lsn)))
        return b"".join(encode(message) + b"\n" for message in messages)


def _time(lsn: int) -> int:
    return 830_000_000_000_000 + lsn


def _tuple(*values: str | None) -> m.TupleData:
    return m.TupleData(tuple(m.NULL_CELL if v is None else m.Cell("t", v.encode()) for v in values))


def _insert(oid: int, *values: str | None) -> m.Insert:
    return m.Insert(oid, _tuple(*values))


def capture(
    size: int,
    expected: dict[str, Expected],
    *,
    seed: int = 1,
    blocks: tuple[int, int] = (8 * MEGABYTE, 64 * MEGABYTE),
) -> Iterator[bytes]:
    """Yield a capture's bytes piece by piece; ``expected`` is filled meanwhile.

    Args:
        size: about so many bytes in all.
        blocks: the least and the greatest size of a streamed block.
    """
    chance = random.Random(seed)
    events, side = (expected.setdefault(relation.qualified_name, Expected()) for relation in (EVENTS, SIDE))
    huge, small = _Transaction(seed, events), _Small(side, events)
    made, lsn = 0, 0x1_0000_0000
    late: list[int] = []
    while made < size:
        start = encode(m.StreamStart(huge.xid, made == 0)) + b"\n"
        if made == 0:
            start += encode(m.Relation(**{**_fields(EVENTS), "xid": huge.xid})) + b"\n"
        yield start
        rolled_back: list[int] = []
        block, limit = 0, min(size - made, chance.randrange(*blocks))
        group = _group("".join(chance.choices("abcdefgh ijkl\n", k=chance.randrange(20, 120))).encode())
        while block < limit:
            groups = (limit - block) // len(group.data) + 1
            data, more = huge.chunk(group, min(groups, _CHUNK_GROUPS))
            rolled_back += more
            block += len(data)
            yield data
        made += block
        yield encode(m.StreamStop()) + b"\n"
        yield _aborts(huge.xid, late)
        # A savepoint may be rolled back while a later block is gathered.
        late = rolled_back[len(rolled_back) // 2 :]
        yield _aborts(huge.xid, rolled_back[: len(rolled_back) // 2])
        lsn, huge.next_xid = lsn + 4096, huge.next_xid + 1
        yield small.transaction(lsn, huge.next_xid - 1)
    yield _aborts(huge.xid, late)
    lsn += 4096
    yield encode(m.StreamCommit(huge.xid, 0, lsn, lsn + 48, _time(lsn))) + b"\n"
    yield small.transaction(lsn + 4096, huge.next_xid)


def _fields(relation: m.Relation) -> dict[str, Any]:
    return {name: getattr(relation, name) for name in relation.__slots__}


def _aborts(xid: int, subxids: Sequence[int]) -> bytes:
    return b"".join(encode(m.StreamAbort(xid, subxid)) + b"\n" for subxid in subxids)


class _CutFiles:
    """Files of different sizes, one behind the other."""

    def __init__(self, folder: Path, sizes: Sequence[int]) -> None:
        self._folder = folder
        self._sizes = [*sizes[:-1], sys.maxsize]  # the last takes what is left
        self._number = -1
        self._left = 0
        self._next()

    def __enter__(self) -> _CutFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        view = memoryview(data)
        while len(view) > self._left:
            self._file.write(view[: self._left])
            view = view[self._left :]
            self._file.close()
            self._next()
        self._file.write(view)
        self._left -= len(view)

    def _next(self) -> None:
        self._number += 1
        self._left = self._sizes[self._number]
        self._file = (self._folder / f"part{self._number + 1:04}.bin").open("wb")


def write_capture(folder: Path, size: int, files: int, *, seed: int = 1) -> dict[str, Expected]:
    """Write a capture into ``folder/capture`` and what is expected of it beside; give the latter."""
    chance = random.Random(seed)
    (folder / "capture").mkdir(parents=True)
    sizes = [int(size / files * chance.uniform(0.6, 1.3)) for _ in range(files)]
    expected: dict[str, Expected] = {}
    with _CutFiles(folder / "capture", sizes) as out:
        for piece in capture(size, expected, seed=seed):
            out.write(piece)
    text = json.dumps({name: asdict(table) for name, table in expected.items()}, indent=1)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")
    return expected


def read_expected(folder: Path) -> dict[str, Expected]:
    """Read what `write_capture` has written."""
    stored = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return {name: Expected(**table) for name, table in stored.items()}


def actual(spark: SparkSession, location: str | Path) -> Expected:
    """Sum up a Delta table."""
    from pyspark.sql import functions as F

    frame = spark.read.format("delta").load(str(location))
    count, ids, amounts = frame.agg(
        F.count("*"), F.sum(F.col("id").cast("decimal(38,0)")), F.sum(F.col("amount").cast("decimal(38,2)"))
    ).collect()[0]
    return Expected(count, int(ids or 0), int((amounts or Decimal()) * 100))


def check(spark: SparkSession, target: str | Path, expected: dict[str, Expected]) -> list[str]:
    """Compare the tables at a target; give a line for each that differs."""
    differences = []
    for name, table in expected.items():
        found = actual(spark, Path(target, *name.split(".")))
        if found != table:
            differences.append(f"{name} has {found}, and should have {table}")
    return differences


def main() -> int:
    """Make a capture, or check a mirror."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="OUT")
    parser.add_argument("--size", type=int, default=2000, help="megabytes")
    parser.add_argument("--files", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", type=Path, metavar="MIRROR", help="make nothing, compare the tables at MIRROR")
    arguments = parser.parse_args()
    if arguments.check is None:
        write_capture(arguments.folder, arguments.size * MEGABYTE, arguments.files, seed=arguments.seed)
        return 0
    from walreplay.session.session import build_session

    differences = check(build_session("check"), arguments.check, read_expected(arguments.folder))
    print("\n".join(differences) or "as expected")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())

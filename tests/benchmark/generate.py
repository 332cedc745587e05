"""Make captures for benchmarks: the shapes of pgbench and of a wide orders table, with a seed.

The rows are made up, the bytes are pgoutput's own: in every framing, with values as text or in binary, in ordinary
transactions (protocol version 1) or streamed ones (version 2)::

    python tests/benchmark/generate.py orders 256 orders.bin --framing copydata
"""

from __future__ import annotations

import argparse
import itertools
import random
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.wire import encode
from walreplay.protocol import messages as m
from walreplay.protocol.framing import PGCOPY_HEADER, PGCOPY_ROWS, PGCOPY_SIGNATURE, XLOGDATA, Framing
from walreplay.protocol.messages import Column, Relation
from walreplay.protocol.reader import read_message

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEGABYTE: Final = 1_000_000

_INT4, _INT8, _BOOL, _TEXT, _BPCHAR, _VARCHAR = 23, 20, 16, 25, 1042, 1043
_DATE, _TIMESTAMP, _TIMESTAMPTZ, _NUMERIC, _FLOAT8, _UUID, _JSONB = 1082, 1114, 1184, 1700, 701, 2950, 3802

_CHANGE = struct.Struct("!IcH")
_XID = struct.Struct("!I")
_CELL = struct.Struct("!cI")

Values = Sequence["bytes | None"]
Change = tuple[bytes, int, Values]
"""A row change: its tag, its relation's oid, the new row's values as text."""

Maker = Callable[[int], list[Change]]


@dataclass(frozen=True)
class Shape:
    """What a capture is like.

    Attributes:
        kind: pgbench, orders, or accounts: so many rows that are inserted, a thousand a transaction, then ten updates a
            transaction of any of them.
        streamed: in transactions of some megabytes that are streamed.
        first_id: of the orders.
    """

    kind: str
    framing: Framing = Framing.RECVLOGICAL
    binary: bool = False
    streamed: bool = False
    seed: int = 1
    rows: int = 0
    first_id: int = 1


# Values in binary.


def _numeric_binary(text: bytes) -> bytes:
    whole, _, fraction = text.partition(b".")
    digits = whole.zfill(-(-len(whole) // 4) * 4) + fraction.ljust(-(-len(fraction) // 4) * 4, b"0")
    groups = [int(digits[at : at + 4]) for at in range(0, len(digits), 4)]
    weight = -(-len(whole) // 4) - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    return struct.pack(f"!hhHh{len(groups)}h", len(groups), weight if groups else 0, 0, len(fraction), *groups)


def _micros(text: bytes) -> int:
    moment = datetime.fromisoformat(text.decode().removesuffix("+00")).replace(tzinfo=timezone.utc)
    past = moment - datetime(2000, 1, 1, tzinfo=timezone.utc)
    return (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds


_BINARY: Final[dict[int, Callable[[bytes], bytes]]] = {
    _INT4: lambda text: struct.pack("!i", int(text)),
    _INT8: lambda text: struct.pack("!q", int(text)),
    _BOOL: lambda text: b"\1" if text == b"t" else b"\0",
    _DATE: lambda text: struct.pack("!i", (date.fromisoformat(text.decode()) - date(2000, 1, 1)).days),
    _TIMESTAMP: lambda text: struct.pack("!q", _micros(text)),
    _TIMESTAMPTZ: lambda text: struct.pack("!q", _micros(text)),
    _NUMERIC: _numeric_binary,
    _FLOAT8: lambda text: struct.pack("!d", float(text)),
    _UUID: lambda text: bytes.fromhex(text.decode().replace("-", "")),
    _JSONB: lambda text: b"\1" + text,
}


def _numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale) + 4


def _columns(*columns: tuple[str, int, int], key: int = 1) -> tuple[Column, ...]:
    return tuple(Column(name, oid, typmod, number < key) for number, (name, oid, typmod) in enumerate(columns))


_PGBENCH = (
    Relation(
        1,
        "public",
        "pgbench_accounts",
        "d",
        _columns(("aid", _INT4, -1), ("bid", _INT4, -1), ("abalance", _INT4, -1), ("filler", _BPCHAR, 88)),
    ),
    Relation(
        2,
        "public",
        "pgbench_branches",
        "d",
        _columns(("bid", _INT4, -1), ("bbalance", _INT4, -1), ("filler", _BPCHAR, 92)),
    ),
    Relation(
        3,
        "public",
        "pgbench_tellers",
        "d",
        _columns(("tid", _INT4, -1), ("bid", _INT4, -1), ("tbalance", _INT4, -1), ("filler", _BPCHAR, 88)),
    ),
    Relation(
        4,
        "public",
        "pgbench_history",
        "d",
        _columns(
            ("tid", _INT4, -1),
            ("bid", _INT4, -1),
            ("aid", _INT4, -1),
            ("delta", _INT4, -1),
            ("mtime", _TIMESTAMP, -1),
            ("filler", _BPCHAR, 26),
            key=0,
        ),
    ),
)

_ORDERS = Relation(
    10,
    "shop",
    "orders",
    "d",
    _columns(
        ("id", _INT8, -1),
        ("customer_id", _INT8, -1),
        ("status", _VARCHAR, 24),
        ("placed_at", _TIMESTAMPTZ, -1),
        ("shipped_at", _TIMESTAMPTZ, -1),
        ("due", _DATE, -1),
        ("currency", _BPCHAR, 7),
        ("net", _NUMERIC, _numeric(12, 2)),
        ("tax", _NUMERIC, _numeric(12, 2)),
        ("gross", _NUMERIC, _numeric(14, 2)),
        ("items", _INT4, -1),
        ("weight", _FLOAT8, -1),
        ("express", _BOOL, -1),
        ("token", _UUID, -1),
        ("channel", _TEXT, -1),
        ("note", _TEXT, -1),
        ("address", _TEXT, -1),
        ("payload", _JSONB, -1),
        ("updated_at", _TIMESTAMP, -1),
        ("version", _INT4, -1),
    ),
)


def pgbench(rng: random.Random, scale: int = 10) -> Maker:
    """Return a maker of pgbench's transactions: three updates and an insert each."""
    filler = b" " * 84

    def transaction(number: int) -> list[Change]:
        aid, bid, tid = rng.randrange(100_000 * scale), rng.randrange(scale), rng.randrange(10 * scale)
        delta = rng.randrange(-5000, 5001)
        a, b, t, d = (str(value).encode() for value in (aid, bid, tid, delta))
        day, hour, minute = 1 + number // 864_000 % 28, number // 36_000 % 24, number // 600 % 60
        clock = (day, hour, minute, number // 10 % 60, rng.randrange(1_000_000))
        time = b"2026-05-%02d %02d:%02d:%02d.%06d" % clock
        return [
            (b"U", 1, [a, str(aid // 100_000).encode(), d, filler]),
            (b"U", 3, [t, str(tid // 10).encode(), d, None]),
            (b"U", 2, [b, d, None]),
            (b"I", 4, [t, b, a, d, time, None]),
        ]

    return transaction


def orders(rng: random.Random, first: int = 1) -> Maker:
    """Return a maker of order transactions: five inserts, then updates of recent ones."""
    words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "größe", "hôtel", "北京", "juliett"]
    next_id = iter(range(first, 1 << 40))

    def row(order: int) -> list[bytes | None]:
        cents = rng.randrange(100, 10_000_000)
        tax = cents * 19 // 100
        second = rng.randrange(86400)
        clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        day = f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
        text = " ".join(rng.choices(words, k=8))
        values = [
            str(order),
            str(rng.randrange(1_000_000)),
            rng.choice(["new", "paid", "shipped", "returned"]),
            f"{day} {clock}.{rng.randrange(1_000_000):06}+00",
            None if rng.random() < 0.4 else f"{day} {clock}+00",
            day,
            "EUR",
            f"{cents / 100:.2f}",
            f"{tax / 100:.2f}",
            f"{(cents + tax) / 100:.2f}",
            str(rng.randrange(1, 30)),
            repr(rng.random() * 50),
            rng.choice("tf"),
            f"{rng.getrandbits(128):032x}",
            "web",
            text,
            f"{rng.randrange(200)} {rng.choice(words)} street, {rng.choice(words)}",
            f'{{"ref": {rng.randrange(10**6)}, "tags": ["{rng.choice(words)}", "{rng.choice(words)}"]}}',
            f"{day} {clock}.{rng.randrange(1000):03}",
            str(rng.randrange(9)),
        ]
        token = values[13]
        assert token is not None
        values[13] = "-".join((token[:8], token[8:12], token[12:16], token[16:20], token[20:]))
        return [None if value is None else value.encode() for value in values]

    def transaction(number: int) -> list[Change]:
        ids = [next(next_id) for _ in range(5)]
        changes: list[Change] = [(b"I", 10, row(order)) for order in ids]
        changes += [(b"U", 10, row(max(first, ids[0] - rng.randrange(1000)))) for _ in range(3)]
        return changes

    return transaction


_ACCOUNTS = replace(_PGBENCH[0], oid=20, namespace="bank", name="accounts")


def accounts(rng: random.Random, rows: int) -> Maker:
    """Return a maker of accounts, and then of changes of any of them."""

    def row(aid: int) -> Values:
        filler = b"account %010d of branch %06d at %016x" % (aid, aid % 997, rng.getrandbits(64))
        return [b"%d" % aid, b"%d" % (aid % 997), b"%d" % rng.randrange(-5000, 5001), filler]

    def transaction(number: int) -> list[Change]:
        first = (number - 1) * _LOADED + 1
        if first <= rows:
            return [(b"I", 20, row(aid)) for aid in range(first, first + _LOADED)]
        return [(b"U", 20, row(rng.randrange(1, rows + 1))) for _ in range(10)]

    return transaction


_LOADED: Final = 1000


class _Writer:
    """Messages in a framing, gathered to pieces."""

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self.lsn, self.time = 0x1_0000_0000, 830_000_000_000_000
        self._piece = bytearray()
        if framing is Framing.PGCOPY:
            self._piece += PGCOPY_HEADER.pack(PGCOPY_SIGNATURE, 0, 0)

    def add(self, message: bytes, xid: int = 0) -> None:
        layout = self._framing.layout
        if layout.is_row:
            self._piece += PGCOPY_ROWS[3].pack(3, 8, self.lsn, 4, xid, len(message))
        else:
            sent = b"" if layout.is_bare else XLOGDATA.pack(ord("w"), self.lsn, self.lsn, self.time)
            self._piece += layout.header(len(sent) + len(message)) + sent
        self._piece += message + layout.trailer

    def take(self) -> bytes:
        piece, self._piece = bytes(self._piece), bytearray()
        return piece


def _encoder(relations: Sequence[Relation], *, binary: bool) -> Callable[[Change, bytes], bytes]:
    """Return what makes a message of a change, behind whose tag the xid may stand."""
    readers = {
        relation.oid: [_BINARY.get(column.type_oid) if binary else None for column in relation.columns]
        for relation in relations
    }
    sent = b"b" if binary else b"t"

    def message(change: Change, xid: bytes) -> bytes:
        tag, oid, values = change
        cells = [tag, xid, _CHANGE.pack(oid, b"N", len(values))]
        for value, reader in zip(values, readers[oid], strict=True):
            if value is None:
                cells.append(b"n")
            else:
                own = value if reader is None else reader(value)
                cells += (_CELL.pack(sent, len(own)), own)
        return b"".join(cells)

    return message


_BLOCK: Final = 4 * MEGABYTE


def capture(shape: Shape, size: int) -> Iterator[bytes]:
    """Yield a capture's bytes, piece by piece, until about ``size`` bytes are made."""
    rng = random.Random(shape.seed)
    make, relations = {
        "pgbench": lambda: (pgbench(rng), _PGBENCH),
        "orders": lambda: (orders(rng, shape.first_id), (_ORDERS,)),
        "accounts": lambda: (accounts(rng, shape.rows), (_ACCOUNTS,)),
    }[shape.kind]()
    encoded = _encoder(relations, binary=shape.binary)
    numbers = itertools.count(1)
    pieces = (_streamed if shape.streamed else _ordinary)(
        lambda: make(next(numbers)), relations, encoded, _Writer(shape.framing)
    )
    made = 0
    while made < size:
        piece = next(pieces)
        made += len(piece)
        yield piece


def _ordinary(
    transaction: Callable[[], list[Change]],
    relations: Sequence[Relation],
    encoded: Callable[[Change, bytes], bytes],
    out: _Writer,
) -> Iterator[bytes]:
    xid = 1000
    while True:
        for _ in range(1000):
            out.lsn += 512
            out.time += 1500
            xid += 1
            out.add(encode(m.Begin(out.lsn, out.time, xid)), xid)
            if xid == 1001:
                for relation in relations:
                    out.add(encode(relation), xid)
            for change in transaction():
                out.add(encoded(change, b""), xid)
            out.add(encode(m.Commit(0, out.lsn, out.lsn + 48, out.time)), xid)
        yield out.take()


def _streamed(
    transaction: Callable[[], list[Change]],
    relations: Sequence[Relation],
    encoded: Callable[[Change, bytes], bytes],
    out: _Writer,
) -> Iterator[bytes]:
    """Stream transactions of two blocks each."""
    xid = 1000
    while True:
        xid += 1
        for block in range(2):
            out.lsn += 512
            out.time += 1500
            out.add(encode(m.StreamStart(xid, block == 0)), xid)
            for relation in relations if block == 0 else ():
                out.add(encode(replace(relation, xid=xid)), xid)
            left = _BLOCK
            while left > 0:
                for change in transaction():
                    message = encoded(change, _XID.pack(xid))
                    out.add(message, xid)
                    left -= len(message)
            out.add(encode(m.StreamStop()), xid)
        out.add(encode(m.StreamCommit(xid, 0, out.lsn, out.lsn + 48, out.time)), xid)
        yield out.take()


def write_capture(path: Path, shape: Shape, size: int) -> Path:
    """Write a capture, unless it is there already."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            for piece in capture(shape, size):
                file.write(piece)
        part.rename(path)
    return path


def write_files(folder: Path, shape: Shape, size: int, files: int) -> Path:
    """Write a capture as so many files of one size, cut anywhere; give the folder."""
    if not folder.exists():
        part = folder.with_suffix(".part")
        cut(b"".join(capture(shape, size)), part, files)
        part.rename(folder)
    return folder


class _Places(NamedTuple):
    """Where in a capture stand numbers that a later copy of it has greater: LSNs, times, xids, and orders' ids."""

    lsns: NDArray[np.int64]
    times: NDArray[np.int64]
    xids: NDArray[np.int64]
    ids: NDArray[np.int64]

    @classmethod
    def of(cls, capture: bytes, *, orders: bool) -> _Places:
        places: tuple[list[int], ...] = ([], [], [], [])
        lsns, times, xids, ids = places
        at = 0
        while at < len(capture):
            message, end = read_message(capture, at)
            if isinstance(message, m.Begin):
                lsns.append(at + 1)
                times.append(at + 9)
                xids.append(at + 17)
            elif isinstance(message, m.Commit):
                lsns += [at + 2, at + 10]
                times.append(at + 18)
            elif orders and isinstance(message, m.Insert | m.Update):
                ids.append(at + 1 + _CHANGE.size + 5)
            at = end
        return cls(*(np.array(found, np.int64) for found in places))


_COPIED: Final = 20 * MEGABYTE
_FIRST_ID: Final = 100_000_000


def files_in(captures: Path) -> list[Path]:
    """Return the captures in their order; the index that an earlier run has left beside them is none."""
    return sorted(path for path in captures.iterdir() if path.is_file())


def write_archive(folder: Path, size: int, file_bytes: int, kind: str = "orders") -> Path:
    """Write an archive that may be large: copies of a piece, each with LSNs, times, xids and orders' ids of its own.

    Ten gigabytes take a minute.  Of orders they are 3 million transactions, of pgbench 30 million.
    """
    if folder.exists():
        return folder
    piece = b"".join(capture(Shape(kind, Framing.RAW, first_id=_FIRST_ID), _COPIED))
    places = _Places.of(piece, orders=kind == "orders")
    original = np.frombuffer(piece, np.uint8)

    def numbers(at: NDArray[np.int64], kind: str) -> NDArray[np.int64]:
        width = np.dtype(kind).itemsize
        return original[at[:, None] + np.arange(width)].copy().view(kind).ravel().astype(np.int64)

    lsns, times, xids = numbers(places.lsns, ">i8"), numbers(places.times, ">i8"), numbers(places.xids, ">i4")
    powers = 10 ** np.arange(8, -1, -1)
    digits = places.ids[:, None] + np.arange(9)
    ids = (original[digits].astype(np.int64) - ord("0")) @ powers
    part = folder.with_suffix(".part")
    part.mkdir(parents=True, exist_ok=True)
    rest, written, files = b"", 0, 0
    for number in itertools.count():
        copy = original.copy()
        for at, values, kind in (
            (places.lsns, lsns + number * (lsns[-1] - lsns[0] + 512), ">i8"),
            (places.times, times + number * (times[-1] - times[0] + 1500), ">i8"),
            (places.xids, xids + number * len(xids), ">i4"),
        ):
            width = np.dtype(kind).itemsize
            copy[at[:, None] + np.arange(width)] = values.astype(kind).view(np.uint8).reshape(-1, width)
        moved = ids + number * (ids.max(initial=_FIRST_ID) - _FIRST_ID + 1)
        copy[digits] = (moved[:, None] // powers % 10 + ord("0")).astype(np.uint8)
        rest += copy.tobytes()
        while len(rest) >= file_bytes:
            (part / f"part{files:05}.bin").write_bytes(rest[:file_bytes])
            rest, written, files = rest[file_bytes:], written + file_bytes, files + 1
            if written >= size:
                part.rename(folder)
                return folder
    raise AssertionError


def cut(data: bytes, folder: Path, files: int, first: int = 0) -> None:
    """Write bytes as so many files of one size, numbered from ``first`` on."""
    folder.mkdir(parents=True, exist_ok=True)
    step = -(-len(data) // files)
    for number in range(files):
        (folder / f"part{first + number:05}.bin").write_bytes(data[number * step : (number + 1) * step])


def write_accounts(folder: Path, rows: int, changes: int, files: int) -> tuple[Path, Path]:
    """Write a capture that loads a table, and then changes some of its rows; give one folder for each, files and all.

    Args:
        rows, changes: multiples of 1,000,000 and of 10,000.
    """
    loaded, changed = folder / "loaded", folder / "changed"
    if not folder.exists():
        part = folder.with_suffix(".part")
        pieces = capture(Shape("accounts", rows=rows), 1 << 60)
        load = b"".join(itertools.islice(pieces, rows // (1000 * _LOADED)))
        cut(load, part / "loaded", files)
        cut(b"".join(itertools.islice(pieces, changes // 10_000)), part / "changed", files, files)
        for path in (part / "loaded").iterdir():
            (part / "changed" / path.name).hardlink_to(path)
        part.rename(folder)
    return loaded, changed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["pgbench", "orders"])
    parser.add_argument("megabytes", type=int)
    parser.add_argument("path", type=Path)
    parser.add_argument("--framing", choices=[framing.value for framing in Framing], default="recvlogical")
    parser.add_argument("--binary", action="store_true", help="values in binary")
    parser.add_argument("--streamed", action="store_true", help="transactions that are streamed")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    framing = Framing(arguments.framing)
    shape = Shape(arguments.kind, framing, arguments.binary, arguments.streamed, arguments.seed)
    write_capture(arguments.path, shape, arguments.megabytes * MEGABYTE)

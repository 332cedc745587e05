"""Make captures for benchmarks: the shapes of pgbench and of a wide orders table, with a seed.

The rows are made up, the bytes are pgoutput's own: Begin, Relation, Insert, Update, Delete, Commit in protocol
version 1, framed as pg_recvlogical does or bare.
"""

from __future__ import annotations

import argparse
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from wal2delta.protocol.messages import Column, Relation
from wal2delta.protocol.writer import encode

_INT4, _INT8, _BOOL, _TEXT, _BPCHAR, _VARCHAR = 23, 20, 16, 25, 1042, 1043
_DATE, _TIMESTAMP, _TIMESTAMPTZ, _NUMERIC, _FLOAT8, _UUID, _JSONB = 1082, 1114, 1184, 1700, 701, 2950, 3802

_BEGIN = struct.Struct("!cqqI")
_COMMIT = struct.Struct("!cBqqq")
_CHANGE = struct.Struct("!cIcH")
_TEXT_CELL = struct.Struct("!cI")


def _tuple_cells(values: list[bytes | None]) -> bytes:
    return b"".join(b"n" if value is None else _TEXT_CELL.pack(b"t", len(value)) + value for value in values)


def _change(tag: bytes, oid: int, values: list[bytes | None]) -> bytes:
    return _CHANGE.pack(tag, oid, b"N", len(values)) + _tuple_cells(values)


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


def pgbench(rng: random.Random, scale: int = 10) -> Callable[[int], list[bytes]]:
    """Give a maker of pgbench's transactions: three updates and an insert each."""
    filler = b" " * 84

    def transaction(number: int) -> list[bytes]:
        aid, bid, tid = rng.randrange(100_000 * scale), rng.randrange(scale), rng.randrange(10 * scale)
        delta = rng.randrange(-5000, 5001)
        a, b, t, d = (str(value).encode() for value in (aid, bid, tid, delta))
        day, hour, minute = 1 + number // 864_000 % 28, number // 36_000 % 24, number // 600 % 60
        clock = (day, hour, minute, number // 10 % 60, rng.randrange(1_000_000))
        time = b"2026-05-%02d %02d:%02d:%02d.%06d" % clock
        return [
            _change(b"U", 1, [a, str(aid // 100_000).encode(), d, filler]),
            _change(b"U", 3, [t, str(tid // 10).encode(), d, None]),
            _change(b"U", 2, [b, d, None]),
            _change(b"I", 4, [t, b, a, d, time, None]),
        ]

    return transaction


def orders(rng: random.Random) -> Callable[[int], list[bytes]]:
    """Give a maker of order transactions: five inserts, then updates of recent ones."""
    words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "größe", "hôtel", "北京", "juliett"]
    next_id = iter(range(1, 1 << 40))

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

    def transaction(number: int) -> list[bytes]:
        ids = [next(next_id) for _ in range(5)]
        changes = [_change(b"I", 10, row(order)) for order in ids]
        changes += [_change(b"U", 10, row(max(1, ids[0] - rng.randrange(1000)))) for _ in range(3)]
        return changes

    return transaction


def capture(kind: str, size: int, *, seed: int = 1, newline: bool = True) -> Iterator[bytes]:
    """Give a capture's bytes, piece by piece, until about ``size`` bytes are made."""
    rng = random.Random(seed)
    make, relations = (pgbench(rng), _PGBENCH) if kind == "pgbench" else (orders(rng), (_ORDERS,))
    end = b"\n" if newline else b""
    lsn, time, made, xid, first = 0x1_0000_0000, 830_000_000_000_000, 0, 1000, True
    while made < size:
        piece = bytearray()
        for _ in range(1000):
            changes = make(xid)
            lsn += 512
            time += 1500
            xid += 1
            piece += _BEGIN.pack(b"B", lsn, time, xid) + end
            if first:
                for relation in relations:
                    piece += encode(relation) + end
                first = False
            for change in changes:
                piece += change + end
            piece += _COMMIT.pack(b"C", 0, lsn, lsn + 48, time) + end
        made += len(piece)
        yield bytes(piece)


def write_capture(path: Path, kind: str, size: int, *, seed: int = 1, newline: bool = True) -> Path:
    """Write a capture, unless it is there already."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            for piece in capture(kind, size, seed=seed, newline=newline):
                file.write(piece)
        part.rename(path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["pgbench", "orders"])
    parser.add_argument("megabytes", type=int)
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    write_capture(arguments.path, arguments.kind, arguments.megabytes << 20)

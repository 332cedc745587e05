"""Harm captures in any way there is, a million times: ``make mutants``, or ``mutants.py COUNT [--seed N] [NAME …]``.

Whatever the bytes are, reading them ends within a second of CPU, with rows or an error of walreplay's own, and takes
at most ten times their size and 256 MB.  Where the scalar reader and the decoder both read them, they agree.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.captures import cases
from support.framings import FORMS, Form
from support.harm import Row, apply
from walreplay.errors import CaptureError, WalReplayError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

LONGEST: Final = 48 << 10
"""So many bytes of each capture are harmed: the first of them, which announce its relations."""
SECONDS: Final = 1.0
TIMES: Final = 10
MORE: Final = 256 << 20

Harm = Callable[[bytearray, Random, Sequence[bytes]], None]


def flip(data: bytearray, chance: Random, _: Sequence[bytes]) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def overwrite(data: bytearray, chance: Random, _: Sequence[bytes]) -> None:
    """Put a byte that means something in the protocol, or a limit of a length, somewhere."""
    at = chance.randrange(len(data))
    new = chance.choice(
        [*(bytes([tag]) for tag in b"BCOMRYIUDTSEcAbPKrpwkdntuNK\n\0"), b"\xff" * 4, b"\x7f\xff\xff\xff"]
    )
    data[at : at + len(new)] = new


def insert(data: bytearray, chance: Random, _: Sequence[bytes]) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(chance.randint(1, 40))


def remove(data: bytearray, chance: Random, _: Sequence[bytes]) -> None:
    start, size = chance.randrange(len(data)), round(2 ** (chance.random() * 13))
    del data[start : start + size]


def repeat(data: bytearray, chance: Random, _: Sequence[bytes]) -> None:
    start, size = chance.randrange(len(data)), round(2 ** (chance.random() * 10))
    data[start:start] = data[start : start + size] * chance.choice([1, 1, 2, 20])


def exchange(data: bytearray, chance: Random, _: Sequence[bytes]) -> None:
    size = round(2 ** (chance.random() * 10))
    one, other = (chance.randrange(len(data)) for _ in range(2))
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def end(data: bytearray, chance: Random, _: Sequence[bytes]) -> None:
    del data[chance.randrange(len(data)) :]


def splice(data: bytearray, chance: Random, others: Sequence[bytes]) -> None:
    """Go on with another capture, in any framing."""
    other = chance.choice(others)
    at = chance.randrange(len(other))
    data[chance.randrange(len(data)) :] = other[at : at + LONGEST]


HARMS: Final[tuple[Harm, ...]] = (flip, flip, flip, overwrite, overwrite, insert, remove, repeat, exchange, end, splice)


def captures(names: Sequence[str]) -> list[tuple[str, Form, bytes]]:
    """Return the beginning of each capture, in its own framing and in all others."""
    found = []
    for case in cases():
        if names and not case.name.startswith(tuple(names)):
            continue
        stream = case.streams()[0]
        found.append((case.name, Form(case.framing), stream[:LONGEST]))
        messages = _messages(stream, case.framing)
        found += [(case.name, form, form.write(messages)[:LONGEST]) for form in FORMS]
    return found


def _messages(stream: bytes, framing: Framing) -> list[m.AnyMessage]:
    messages = []
    try:
        for at, message in read_stream(stream, framing=framing):
            messages.append(message)
            if at > LONGEST:
                break
    except CaptureError:
        pass
    return messages


def scalar_rows(data: bytes, framing: Framing) -> list[Row] | None:
    """Return the row changes as the scalar reader reads them; None where they are not those of plain transactions."""
    columns: dict[int, int] = {}
    rows: list[Row] = []
    begin: m.Begin | None = None
    ordinal = high = 0
    try:
        for _, message in read_stream(data, framing=framing):
            if isinstance(message, m.Begin):
                if begin is not None or message.final_lsn <= high:
                    return None
                begin, ordinal = message, 0
            elif isinstance(message, m.Commit):
                if begin is None or message.commit_lsn != begin.final_lsn:
                    return None
                begin, high = None, message.commit_lsn
            elif isinstance(message, m.Relation):
                columns[message.oid] = len(message.columns)
            elif isinstance(message, (m.Insert, m.Update, m.Delete)):
                if begin is None or message.relation_oid not in columns:
                    return None
                kind = {m.Insert: "c", m.Update: "u", m.Delete: "d"}[type(message)]
                rows.append((begin.final_lsn, ordinal, kind, message.relation_oid, columns[message.relation_oid], ""))
                ordinal += 1
            elif not isinstance(message, (m.Type, m.Origin)):
                return None
    except CaptureError:
        return None
    return rows if begin is None else None


def outcome(data: bytes, framing: Framing, *, named: bool) -> str:
    """Read some bytes, and say what becomes of them.

    Args:
        named: the framing is named, and not told from the bytes.
    """
    try:
        got = apply({"mutant": data}, framing if named else None)
    except WalReplayError:
        return "refused"
    expected = scalar_rows(data, framing) if named else None
    if expected is None or got.plan.torn is not None:
        return "read"
    plain = [row[:5] for row in got.rows if row[2] != "t"]
    return "read, as by the scalar reader" if plain == [row[:5] for row in expected] else "READ OTHERWISE"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("names", nargs="*", help="captures by the beginnings of their names; all, if none is given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for those that went wrong")
    given = parser.parse_args()
    found, chance = captures(given.names), Random(given.seed)
    whole = [data for *_, data in found]
    for _, form, data in found:
        outcome(data, form.framing, named=True)  # whatever is loaded late is loaded now
    idle, counts, slowest = _memory(), Counter[str](), 0.0
    began = time.monotonic()
    for number in range(given.count):
        name, form, data = chance.choice(found)
        mutant = bytearray(data)
        for _ in range(chance.choice([1, 1, 1, 2, 3, 8])):
            if mutant:
                chance.choice(HARMS)(mutant, chance, whole)
        before = time.process_time()
        try:
            what = outcome(bytes(mutant), form.framing, named=number % 2 == 0)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            what = f"FAILED: {type(error).__name__} in {traceback.extract_tb(error.__traceback__)[-1].name}"
        spent = time.process_time() - before
        slowest = max(slowest, spent)
        if spent > SECONDS:
            what = "TOO LONG"
        counts[what] += 1
        if what[0].isupper():
            print(f"  {number}: {name} as {form.name}, {len(mutant):,} bytes: {what}, {spent:.1f} s", flush=True)
            if given.keep is not None:
                given.keep.mkdir(parents=True, exist_ok=True)
                (given.keep / f"{given.seed}_{number}.bin").write_bytes(mutant)
        if number % 10_000 == 9_999:
            print(f"{number + 1:,} in {time.monotonic() - began:.0f} s: {dict(counts)}", flush=True)
    taken = _memory() - idle
    print(f"{given.count:,} mutants: {dict(counts)}; slowest {slowest:.2f} s of CPU; {taken >> 20} MB at most")
    bound = TIMES * max(map(len, whole)) * 21 + MORE
    return 1 if any(what[0].isupper() for what in counts) or taken > bound else 0


def _memory() -> int:
    """Return the most memory that this process has had (bytes)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    os.environ.setdefault("WALREPLAY_KERNELS", "checked")
    sys.exit(main())

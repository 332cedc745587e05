"""What is decoded in one pass, as far as that goes, is what a plan of all files gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from support.batches import listed
from support.captures import case
from support.extent import examples, further
from support.runs import Files, cut
from support.simulator import play, seeded
from walreplay.changes import decode_files, decode_plan, plan_files
from walreplay.decode import gathered, onepass
from walreplay.decode.onepass import NotPlain, OnePass
from walreplay.decode.sessions import readings
from walreplay.errors import WalReplayError

CAPTURES: Final = [f"o{number:02}" for number in (*range(1, 14), *range(17, 26))]

Rows = dict[int, list[str]]


@pytest.fixture(autouse=True)
def a_short_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small captures give rows before they end."""
    monkeypatch.setattr(readings, "FAR", 64)


def planned(files: Files, tile_bytes: int | None) -> Rows | str:
    """Return each relation's rows by a plan of all files, or what is wrong."""
    read, found = files.__getitem__, Rows()
    try:
        for batch in decode_plan(plan_files(list(files), read=read), read, tile_bytes=tile_bytes):
            found.setdefault(batch.relation.oid, []).extend(text for _, text in listed(batch))
    except WalReplayError as error:
        return str(error)
    return found


def in_one_pass(files: Files, tile_bytes: int | None) -> Rows | str:
    """Return each relation's rows, read as far as that goes in one pass, or what is wrong."""
    found = Rows()
    try:
        for batch in decode_files(list(files), files.__getitem__, tile_bytes=tile_bytes):
            found.setdefault(batch.relation.oid, []).extend(text for _, text in listed(batch))
    except WalReplayError as error:
        return str(error)
    return found


def how_far(files: Files, tile_bytes: int | None) -> str:
    """Return whether one pass reads everything, some of it, or nothing."""
    one_pass, batches = OnePass(None, tile_bytes=tile_bytes), 0
    try:
        for content in files.values():
            for _ in one_pass.read(content):
                batches += 1
    except NotPlain:
        return "some" if batches else "nothing"
    return "all"


def check(files: Files, rng: Random, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(gathered, "BATCH_ROWS", rng.choice([1, 1, 3, 1 << 17]))
    monkeypatch.setattr(onepass, "MOST_WAITING", rng.choice([0, 1 << 28, 1 << 28]))
    tile_bytes = rng.choice([None, 64, 512])
    assert in_one_pass(files, tile_bytes) == planned(files, tile_bytes)
    return how_far(files, tile_bytes)


@pytest.mark.parametrize("name", further(CAPTURES, but=("o01", "o06", "o09", "o18", "o19")))
def test_captures_cut_and_damaged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (data,) = case(name).streams()
    for seed in range(5):
        rng = Random(seed)
        content = bytearray(data)
        at, other = sorted(rng.randrange(len(data)) for _ in range(2))
        damage = (None, "bit", "lost", "again", "end")[seed]
        if damage == "bit":
            content[at] ^= 1 << rng.randrange(8)
        elif damage == "lost":
            del content[at : at + rng.randrange(1, 200)]
        elif damage == "again":
            # A consumer that reconnects, in the middle of a message.
            content = content[:other] + content[at if seed % 2 else 0 :]
        elif damage == "end":
            del content[other:]
        places = [rng.randrange(len(content) + 1) for _ in range(rng.choice([0, 1, 4]))]
        check(cut(bytes(content), places), rng, monkeypatch)


def test_simulated_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    for seed in range(examples(1000)):
        rng, drawn = Random(seed), seeded(seed)
        if seed % 4:
            # Without streamed or prepared transactions: sessions that break, and torn messages, alone.
            drawn = replace(drawn, options=b"\0\0" + drawn.options[2:])
        capture = play(drawn)
        size = rng.choice([len(capture.data), rng.randrange(len(capture.data) + 1)])
        seen[check(capture.files(size), rng, monkeypatch)] += 1
    assert min(seen[which] for which in ("all", "some", "nothing")) > examples(10), seen

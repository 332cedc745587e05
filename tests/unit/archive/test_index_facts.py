"""What an index tells of each file is what a plain walk of the bytes finds, however they are cut."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from support.archive_model import MemoryArchive, MemoryIndex, difference, walk
from support.captures import case, cases
from support.extent import further
from support.simulator import play, seeded
from support.stopped_run import StoppedError
from walreplay.archive import joining
from walreplay.archive.facts import FileFacts
from walreplay.archive.index import CLASSES, FORMAT, pack, unpack
from walreplay.decode.files import ScanTask, scan_file
from walreplay.errors import CaptureError, OrderError

NAMES = [one.name for one in cases()]
QUICK = [name for name in NAMES if name[:3] in ("o01", "o06", "o18", "o19", "o26")]


def cut_at(data: bytes, places: list[int]) -> dict[str, bytes]:
    edges = [0, *sorted({*places}), len(data)]
    return {f"part{number:03}": data[start:end] for number, (start, end) in enumerate(pairwise(edges)) if start < end}


@pytest.mark.parametrize("files", [1, 2, 9, 60])
@pytest.mark.parametrize("name", further(NAMES, but=QUICK))
def test_facts_are_those_of_a_plain_walk(name: str, files: int) -> None:
    recorded = case(name)
    data = b"".join(recorded.streams())
    chance = Random(f"{name} {files}")
    # From fewer bytes the framing cannot be told: what they hold would be the next file's.
    parts = cut_at(data, [chance.randrange(300, len(data)) for _ in range(files - 1)])
    joined = MemoryArchive().join(parts)
    expected = walk(parts, recorded.streams(), recorded.framing)
    assert [one.file.path for one in joined] == list(parts)
    told = {one.file.path: one.facts and difference(one.facts, expected[one.file.path]) for one in joined}
    assert {path: text for path, text in told.items() if text} == {}


def facts(archive: MemoryArchive, files: Mapping[str, bytes]) -> dict[str, FileFacts | None]:
    return {one.file.path: one.facts for one in archive.join(files)}


@pytest.mark.parametrize("seed", further(range(150), but=range(20)))
def test_growing_archives_come_to_the_same_facts_as_whole_ones(seed: int) -> None:
    capture = play(seeded(seed))
    archive = MemoryArchive()
    try:
        whole = facts(MemoryArchive(), capture.stages[-1])
        for files in capture.stages:
            grown = facts(archive, files)
    except CaptureError:
        # Too few bytes, or a torn message that can be read two ways: then a run is refused, too.
        return
    assert grown == whole
    assert facts(archive, capture.stages[-1]) == whole
    assert archive.scanned == []


def test_few_of_the_simulated_archives_are_refused() -> None:
    refused = 0
    for seed in range(60):
        try:
            MemoryArchive().join(play(seeded(seed)).stages[-1])
        except CaptureError:
            refused += 1
    assert refused <= 6


PARTS = cut_at(b"".join(case("o01").streams()), [4000 * number for number in range(1, 9)])


def test_a_second_look_reads_nothing_and_finds_the_same() -> None:
    archive = MemoryArchive()
    first = facts(archive, PARTS)
    assert set(archive.scanned) == set(PARTS)
    assert facts(archive, PARTS) == first
    assert archive.scanned == []


def test_only_what_is_new_or_has_grown_is_read() -> None:
    *_, last = PARTS
    archive = MemoryArchive()
    facts(archive, {**PARTS, last: PARTS[last][:50]})
    whole = facts(archive, {**PARTS, "part999": b""})
    assert archive.scanned[0] == last
    assert set(archive.scanned) == {last}
    assert whole == facts(MemoryArchive(), PARTS)


def test_a_file_that_is_put_in_front_changes_what_is_known_of_the_others() -> None:
    _, *others = PARTS
    archive = MemoryArchive()
    with pytest.raises(CaptureError):
        archive.join({name: PARTS[name] for name in others})
    assert facts(archive, PARTS) == facts(MemoryArchive(), PARTS)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_files_may_be_taken_in_any_portions(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = facts(MemoryArchive(), PARTS)
    monkeypatch.setattr(joining, "_MOST_FILES", most)
    assert facts(MemoryArchive(), PARTS) == whole


def test_what_was_joined_before_a_stop_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_MOST_FILES", 2)

    class Stopping(MemoryIndex):
        def known(self, files):  # type: ignore[no-untyped-def]
            if len(self.rows) >= 4:
                raise StoppedError
            return super().known(files)

    stopped = Stopping()
    with pytest.raises(StoppedError):
        MemoryArchive(stopped).join(PARTS)
    index = MemoryIndex()
    index.rows = stopped.rows
    archive = MemoryArchive(index)
    assert facts(archive, PARTS) == facts(MemoryArchive(), PARTS)
    assert set(archive.scanned) == set(list(PARTS)[4:])


def test_what_stands_in_front_of_damage_is_kept() -> None:
    names = list(PARTS)
    broken = {name: part for name, part in PARTS.items() if name != names[4]}
    archive = MemoryArchive()
    with pytest.raises(OrderError) as caught:
        archive.join(broken)
    assert caught.value.path == names[5]
    assert set(archive.index.rows) == set(names[:4])


# As bytes.


def test_a_scan_comes_back_as_it_was() -> None:
    for recorded in cases():
        data = b"".join(recorded.streams())
        scan = scan_file("a", data, ScanTask(first=True, codec="utf-8" if recorded.name[:3] != "o00" else ""))
        packed = pack(scan)
        assert packed is not None
        assert unpack(packed, "b") == replace(scan, path="b")


class Harmful:
    def __reduce__(self):  # type: ignore[no-untyped-def]
        return Path.touch, (Path("/tmp/walreplay-was-here"),)


@pytest.mark.parametrize("thing", [Harmful(), {"a": Harmful()}, Path("x"), 3, None, print], ids=range(6))
def test_nothing_but_a_scan_is_made_of_what_somebody_has_put_in_the_index(thing: object) -> None:
    assert unpack(zlib.compress(pickle.dumps(thing)), "a") is None


def test_damaged_bytes_are_no_scan() -> None:
    packed = pack(scan_file("a", PARTS["part000"], ScanTask(first=True)))
    assert packed is not None
    chance = Random(1)
    assert unpack(b"", "a") is None
    for _ in range(200):
        at = chance.randrange(len(packed))
        unpack(packed[:at] + bytes([chance.randrange(256)]) + packed[at + 1 :], "a")
        assert unpack(packed[:at], "a") is None


def test_the_format_is_raised_with_the_classes_that_are_kept() -> None:
    """If this fails: raise `FORMAT`, and put the new number and the new text here."""
    told = [
        (kind.__qualname__, *(f"{one.name}: {one.type}" for one in fields(kind)))
        for kind in CLASSES
        if kind.__name__ != "Framing"
    ]
    assert (FORMAT, zlib.crc32(repr(told).encode())) == (9, 2602424832)

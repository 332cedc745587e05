"""What an index tells of each file is what a plain walk of the bytes finds, however they are cut."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from random import Random
from typing import Any, get_args, get_type_hints

import pytest

from support.archive_model import MemoryArchive, difference, walk
from support.captures import case, cases
from support.extent import further
from support.simulator import play, seeded
from support.stopped_run import StoppedError
from walreplay.archive import joining
from walreplay.archive.facts import FileFacts
from walreplay.archive.index import FORMAT
from walreplay.config import Settings
from walreplay.errors import CaptureError, OrderError
from walreplay.stream.duplicates import DuplicateFileError
from walreplay.stream.plan import Plan, Resume

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
    plan = grow(archive, capture.stages, seed)
    if plan is not None:
        assert archive.is_known(capture.stages[-1])
        assert sum(row.transactions - row.resent for row in archive.index.rows.values()) == plan.transactions


def planned(archive: MemoryArchive, files: Mapping[str, bytes]) -> Plan | CaptureError:
    try:
        archive.join(files)
        return archive.stitch.plan()
    except CaptureError as error:
        return error


def grow(archive: MemoryArchive, stages: Iterable[Mapping[str, bytes]], seed: int) -> Plan | None:
    """Index the stages of an archive, one after the other, in portions of any size; each time it is as if made at once.

    Returns:
        the plan of the whole; None if it is refused: too few bytes, or a torn message that can be read two ways.
    """
    chance = Random(seed)
    whole: Plan | CaptureError | None = None
    for files in stages:
        if archive.is_known(files):
            continue
        at_once = MemoryArchive()
        whole = planned(at_once, files)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(joining, "_MOST_FILES", chance.randrange(1, 6))
            plan = planned(archive, files)
        assert archive.index.facts == at_once.index.facts
        assert not any(re.search('"seam":"[^"]', resume) for resume in archive.index.resumes.values())
        if isinstance(whole, Plan) and isinstance(plan, Plan):
            # What is open is known where it goes on, too, and what the run would warn of.
            waiting, expected = ([item.lsn for item in each.resume.open_transactions] for each in (plan, whole))
            assert waiting == expected
            assert {*plan.warnings} <= {*whole.warnings}
        else:
            assert str(plan) == str(whole)
    return whole if isinstance(whole, Plan) else None


@pytest.mark.parametrize("seed", further(range(40), but=range(3)))
@pytest.mark.parametrize("name", further(NAMES, but=QUICK))
def test_an_archive_may_grow_and_be_indexed_in_any_steps(name: str, seed: int) -> None:
    data, chance = b"".join(case(name).streams()), Random(f"{name} {seed}")
    files = cut_at(data, [chance.randrange(300, len(data)) for _ in range(chance.choice((3, 9, 60)))])
    names = list(files)
    archive, stages = MemoryArchive(), list[dict[str, bytes]]()
    for count in sorted({*chance.sample(range(1, len(names) + 1), min(len(names), 4)), len(names)}):
        stages.append({name: files[name] for name in names[:count]})
        if chance.random() < 0.5 and count < len(names) and len(files[names[count]]) > 300:  # the last is being written
            stages[-1][names[count]] = files[names[count]][: chance.randrange(300, len(files[names[count]]))]
    grow(archive, stages, seed)


def test_few_of_the_simulated_archives_are_refused() -> None:
    refused = 0
    for seed in range(60):
        try:
            MemoryArchive().join(play(seeded(seed)).stages[-1])
        except CaptureError:
            refused += 1
    assert refused <= 6


PARTS = cut_at(b"".join(case("o01").streams()), [4000 * number for number in range(1, 9)])


def test_only_what_is_new_or_has_grown_is_read() -> None:
    names, archive = list(PARTS), MemoryArchive()
    facts(archive, {**PARTS, names[-1]: PARTS[names[-1]][:50]})
    archive.join({**PARTS, "part999": b""})
    # The file in front of it ends inside of a transaction, which is read again from its beginning.
    assert archive.scanned == names[-2:]
    assert archive.index.facts == facts(MemoryArchive(), PARTS)


def test_what_was_joined_before_a_stop_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_MOST_FILES", 2)
    stopped, names = MemoryArchive(), list(PARTS)

    def stop(point: str) -> None:
        if len(stopped.index.rows) >= 4:
            raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(joining.steps, "reached", stop)
        with pytest.raises(StoppedError):
            stopped.join(PARTS)
    stopped.join(PARTS)
    assert set(stopped.scanned) == set(names[3:])
    assert stopped.index.facts == facts(MemoryArchive(), PARTS)


def test_a_file_that_is_read_again_has_to_have_the_bytes_that_it_had() -> None:
    again = 0
    for count in range(2, len(PARTS) + 1):
        *names, last = list(PARTS)[:count]
        files, archive = {name: PARTS[name] for name in (*names, last)}, MemoryArchive()
        archive.join({name: PARTS[name] for name in names})
        reader = MemoryArchive(archive.index, writes=False)
        reader.join(files)
        for name in {*reader.scanned} - {last}:  # in which the one goes on that follows
            before = dict(archive.index.rows)
            with pytest.raises(CaptureError) as caught:
                archive.join({**files, name: files[name][:-1] + b"#"})
            assert caught.value.path in (name, last)
            assert archive.index.rows == before
            again += 1
    assert again > 2


def test_a_copy_of_a_file_that_is_not_read_again_is_told() -> None:
    names, twins = list(PARTS), 0
    for name in names:
        archive = MemoryArchive()
        archive.join(PARTS)
        files = {**PARTS, "part999": PARTS[name]}
        told = planned(MemoryArchive(), files)
        assert str(planned(archive, files)) == str(told) or not isinstance(told, CaptureError)
        assert [*dict.fromkeys(archive.scanned)] == ["part999"]
        twins += isinstance(told, DuplicateFileError)
    assert twins > 5


def test_the_format_is_raised_with_the_classes_of_a_resume() -> None:
    """If this fails: raise `FORMAT`, and put the new number and the new text here."""
    classes, kinds = dict[str, list[str]](), [Resume]
    while kinds:
        kind: Any = kinds.pop()
        if is_dataclass(kind) and kind.__qualname__ not in classes:
            classes[kind.__qualname__] = [f"{one.name}: {one.type}" for one in fields(kind)]
            kinds += get_type_hints(kind).values()
        kinds += get_args(kind)
    assert (FORMAT, zlib.crc32(repr(sorted(classes.items())).encode())) == (15, 1452281731)


def test_an_archive_is_known_once_it_was_read() -> None:
    archive = MemoryArchive()
    assert not archive.is_known(PARTS)
    assert not archive.is_known({})
    assert facts(archive, PARTS) == archive.index.facts
    assert archive.is_known(PARTS)


def test_an_archive_is_not_known_by_rows_that_a_change_has_made_uncertain() -> None:
    first, second, *_, last = PARTS
    archive = MemoryArchive()
    facts(archive, {**PARTS, last: PARTS[last][:50]})
    for files in (
        PARTS,  # the last has grown
        {**PARTS, last: PARTS[last][:50], "part999": b"x"},
        {name: part for name, part in PARTS.items() if name not in (second, last)},
        {"part": PARTS[first], **{name: part for name, part in PARTS.items() if name not in (first, last)}},
    ):
        assert not archive.is_known(files)
    # What in front of the others is as it was is known, but to be the archive's end.
    assert archive.is_known({name: part for name, part in PARTS.items() if name != last})


def test_rows_behind_one_that_was_written_anew_are_not_certain() -> None:
    first, *_ = PARTS
    archive = MemoryArchive()
    facts(archive, {**PARTS, first: PARTS[first] + PARTS["part001"]} | {"part001": b""})
    stopped = MemoryArchive(archive.index)
    stopped.join({first: PARTS[first]}, lenient=True)
    # The file behind it is as it was, but was read behind other bytes.
    assert not stopped.is_known({name: part for name, part in PARTS.items() if name != "part001"})


@pytest.mark.parametrize("name", [name for name in NAMES if name[:3] in ("o01", "o04", "o06")])
def test_what_is_wrong_is_found_again(name: str) -> None:
    data = b"".join(case(name).streams())
    parts = cut_at(data, [len(data) * number // 9 for number in range(1, 9)])
    names = list(parts)
    gap = {name: part for name, part in parts.items() if name != names[4]}
    damaged = {**parts, names[-1]: parts[names[-1]] + b"\xff" * 300}
    for files in (gap, damaged):
        archive = MemoryArchive()
        archive.join(files, lenient=True)
        with contextlib.suppress(CaptureError):
            archive.stitch.plan()
        assert not archive.is_known(files)


@pytest.mark.parametrize("name", further(NAMES, but=QUICK[:2]))
def test_behind_a_gap_that_is_allowed_nothing_is_read_again(name: str) -> None:
    data, allowing = b"".join(case(name).streams()), Settings().allowing_gaps()
    parts = cut_at(data, [len(data) * number // 12 for number in range(1, 12)])
    archive = MemoryArchive(settings=allowing)
    files = {part: content for part, content in parts.items() if part != list(parts)[5]}
    joined = archive.join(files, lenient=True)
    if all(one.facts is not None for one in joined):
        assert archive.is_known(files)
        # What is wrong is told by the rows.
        told = {str(gap) for one in joined for gap in one.gaps}
        assert told <= {text for row in archive.index.rows.values() for text in row.warnings}
    # Where gaps are not allowed it is read again, and refused as ever.
    strict = MemoryArchive(archive.index)
    refused = planned(MemoryArchive(), files)
    assert isinstance(refused, CaptureError)
    assert str(planned(strict, files)) == str(refused)
    # Once the file has come, so is what is behind it.
    archive.join(parts, lenient=True)
    assert archive.index.facts == facts(MemoryArchive(), parts)
    assert archive.is_known(parts)


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


def test_what_stands_in_front_of_damage_is_kept() -> None:
    names = list(PARTS)
    broken = {name: part for name, part in PARTS.items() if name != names[4]}
    archive = MemoryArchive()
    with pytest.raises(OrderError) as caught:
        archive.join(broken)
    assert caught.value.path == names[5]
    assert set(archive.index.rows) == set(names[:4])


@pytest.mark.parametrize("name", further(NAMES, but=QUICK))
def test_an_archive_whose_oldest_files_were_cleared_away_goes_on(name: str) -> None:
    data, chance = b"".join(case(name).streams()), Random(name)
    parts = cut_at(data, [chance.randrange(300, len(data)) for _ in range(8)])
    *names, last = parts
    for cleared in (names[:3], names[:-1]):
        archive = MemoryArchive()
        archive.join({part: parts[part] for part in names})
        for part in cleared:
            del archive.index.rows[part]
        kept = {part: content for part, content in parts.items() if part not in cleared}
        row = archive.index.rows[names[-1]]
        resume = archive.index.resume_of(row) if row.resumes else None
        if resume is not None and resume.path in kept:
            assert facts(archive, kept)[last] == facts(MemoryArchive(), parts)[last]
        elif len(kept) == 2:  # what the file that is kept begins with is in one that was cleared away
            told = planned(archive, kept)
            assert isinstance(told, Plan) or "--allow-gaps" in (told.remedy or "")

"""The scan of a run, over files in memory: which files it reads, and what it leaves in the archive's index."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from support.archive_model import MemoryArchive, MemoryIndex, scans_of
from support.captures import case, cases
from support.extent import examples, further
from support.framings import frame, transaction
from support.runs import Files, cut, what_is_new
from support.simulator import play, seeded
from support.small_mirror import INT4, relation, row
from walreplay.archive.facts import FileFacts
from walreplay.config import Settings
from walreplay.decode.files import ScanTask
from walreplay.decode.proof import Proof
from walreplay.decode.scan import Until, fingerprint
from walreplay.decode.summary import FileScan
from walreplay.errors import CaptureError, TargetError, WalReplayError
from walreplay.job import scanning
from walreplay.job.scanning import RunInput, Scanning
from walreplay.ledger.state import from_json, to_json
from walreplay.progress import Progress
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.spark.captures import CaptureFile
from walreplay.stream.plan import FilePlan, Plan, Resume
from walreplay.stream.planned import PlannedBytes


@dataclass
class Runs:
    """Runs over files in memory.

    Attributes:
        index: what the files' scans are recorded in.
        jobs: the files that were read, job by job.
        stored: where the last run has ended.
    """

    index: MemoryIndex = field(default_factory=MemoryIndex)
    jobs: list[list[str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stored: str | None = None
    settings: Settings = field(default_factory=Settings)

    def run(self, files: Files, until: Until | None = None) -> Plan | None:
        """Plan the next run, and record what it has found; None where there is nothing new."""
        files = {name: content for name, content in files.items() if content}
        resume = None if self.stored is None else from_json(Resume, self.stored)
        names = what_is_new(files, resume)
        if not names:
            return None
        first = resume.offset if resume is not None and names[0] == resume.path else 0
        reading = RunInput(tuple(CaptureFile(name, *2 * (len(files[name]),)) for name in names), first, resume)

        def scan(_: object, tasks: Mapping[str, ScanTask]) -> dict[str, FileScan | WalReplayError]:
            self.jobs.append(list(tasks))
            return scans_of(files, tasks)

        run: Any = SimpleNamespace(
            settings=self.settings,
            session=None,
            spark=SimpleNamespace(),
            progress=Progress(),
            warnings=self.warnings,
            stage=lambda *_: nullcontext(),
        )
        index: Any = self.index
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scanning, "scan_each", scan)
            patch.setattr(scanning, "local_cores", lambda _: 1)
            one = Scanning(run, reading, until, index)
            plan = one.plan()
            one.record()
        self.stored = to_json(plan.resume)
        return plan

    @property
    def read(self) -> list[str]:
        """The files that were read."""
        return [name for job in self.jobs for name in job]


def whole_facts(files: Files) -> dict[str, FileFacts]:
    return {one.file.path: one.facts for one in MemoryArchive().join(files) if one.facts is not None}


def told_wrongly(runs: Runs, facts: Mapping[str, FileFacts]) -> dict[str, Any]:
    """Return what the index has of files as they are now, and an index that is made at once has not."""
    return {
        name: (told, facts[name])
        for name, told in runs.index.facts.items()
        if told.length == facts[name].length and told != facts[name]
    }


_TINY_FIRST_FILE = 189
"""A capture whose facts are not yet told in one way."""

_TINY_FIRST_FILES = 148
"""Another one, where files that the index lacks are read again."""


@pytest.mark.parametrize("seed", further(range(200), but=range(40)))
def test_runs_leave_in_the_index_what_an_index_that_is_made_at_once_has(
    seed: int, request: pytest.FixtureRequest
) -> None:
    if seed == _TINY_FIRST_FILE:
        reason = "the first file has 44 bytes: by the run the second continues it, by the index it begins the session"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    runs, stages = Runs(), play(seeded(seed)).stages
    try:
        facts = whole_facts(stages[-1])
        for files in stages:
            runs.run(files)
    except CaptureError:
        # Too few bytes, or a torn message that can be read two ways.
        return
    assert told_wrongly(runs, facts) == {}
    # If a run has read each file as a whole, as it is now, none need be read to bring the index up to date.
    whole = {name for name, told in runs.index.facts.items() if told.length == len(stages[-1][name])}
    archive = MemoryArchive(runs.index)
    assert archive.is_known(stages[-1]) == (whole == facts.keys() and bool(facts))
    archive.join(stages[-1])
    assert archive.index.facts == facts
    assert archive.is_known(stages[-1]) == bool(facts)


@pytest.mark.parametrize("seed", further(range(240), but=[*range(19), 238]))
def test_files_that_are_read_again_as_the_index_lacks_them_have_the_same_facts(
    seed: int, request: pytest.FixtureRequest
) -> None:
    if seed == _TINY_FIRST_FILES:
        reason = "the first files have 0, 1, 28 and 17 bytes: a run that begins in the fifth takes it for the session's"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    runs, chance, stages = Runs(), Random(seed), play(seeded(seed)).stages
    try:
        facts = whole_facts(stages[-1])
        for files in stages:
            for name in list(runs.index.rows):
                if chance.random() < 0.6:
                    del runs.index.rows[name], runs.index.facts[name]
            runs.run(files)
    except CaptureError:
        return
    assert told_wrongly(runs, facts) == {}


NAMES = ["o01", "o05", "o06", "o11", "o18", "o19", "o26"]


def parts_of(name: str, count: int = 12) -> dict[str, bytes]:
    data = b"".join(case(name).streams())
    return cut(data, [len(data) * number // count for number in range(1, count)])


@pytest.mark.parametrize("files_a_run", [1, 3, 12])
@pytest.mark.parametrize("name", NAMES)
def test_of_files_that_do_not_grow_all_are_indexed(name: str, files_a_run: int) -> None:
    runs, files = Runs(), parts_of(name)
    for count in range(files_a_run, len(files) + 1, files_a_run):
        runs.run(dict(list(files.items())[:count]))
    assert runs.index.rows.keys() == files.keys()
    assert told_wrongly(runs, whole_facts(files)) == {}
    archive = MemoryArchive(runs.index)
    assert archive.is_known(files)
    # What the last run has not recorded is read behind what the one before has left.
    names = list(files)
    for name in names[-files_a_run:]:
        del runs.index.rows[name]
    archive.join(files)
    assert archive.index.facts == whole_facts(files)
    if files_a_run < 12:
        assert set(archive.scanned) <= set(names[-files_a_run - 3 :])


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_ends_somewhere_reads_no_more_than_it_has_to(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_LEAST_BYTES", 0)
    files = parts_of(name)
    names, facts = list(files), whole_facts(files)
    ends = sorted(one.last_lsn for one in facts.values() if one.last_lsn is not None)
    for lsn in (ends[0], ends[len(ends) // 2], ends[-1]):
        until = Until(lsn=lsn)
        in_parts, at_once = Runs(), Runs()
        plan = in_parts.run(files, until)
        monkeypatch.setattr(scanning, "_FILES_A_CORE", 1000)
        assert plan == at_once.run(files, until)
        monkeypatch.setattr(scanning, "_FILES_A_CORE", 2)
        assert plan is not None
        last = names.index(plan.resume.last_path)
        # Two at a time: none behind the next one.
        assert {names.index(path) for path in in_parts.read} == set(range(min(len(names), last // 2 * 2 + 2)))
        # The one that it ends in was not read as a whole, and what it is told of the others is right.
        assert told_wrongly(in_parts, facts) == {}
        assert plan.resume.has_more == (plan.resume.last_path not in in_parts.index.rows)
        # With an index that has all files none is read behind the first that has what is too late.
        whole = Runs()
        whole.run(files)
        informed = Runs(index=whole.index)
        assert informed.run(files, until) == plan
        end = next((number for number, name in enumerate(names, 1) if (facts[name].last_lsn or 0) > lsn), len(names))
        assert set(informed.read) == set(names[:end])
        rest = in_parts.run(files)
        assert (plan.transactions + (0 if rest is None else rest.transactions)) == sum(
            one.transactions - one.resent for one in facts.values()
        )
        assert told_wrongly(in_parts, facts) == {}


def test_a_file_that_is_cut_off_is_recorded_by_who_reads_it_whole() -> None:
    runs, files = Runs(), parts_of("o01", 4)
    first, second, *_ = files
    runs.run({first: files[first], second: files[second][:-300]})
    before = dict(runs.index.rows)
    assert before[second].length < len(files[second])
    runs.run(files)
    assert runs.index.rows[second] == before[second]
    assert set(runs.index.rows) == set(files)


def test_what_cannot_be_written_is_a_warning() -> None:
    class Closed(MemoryIndex):
        def add(self, files: Any, *, renews: bool = True) -> None:
            raise TargetError("the index cannot be written", path="/x", remedy="Open it")

    runs = Runs(index=Closed())
    assert runs.run(parts_of("o01")) is not None
    (warning,) = runs.warnings
    assert "not written to the index" in warning
    assert "Open it" in warning


def test_a_session_that_begins_in_files_of_another_framing_is_counted() -> None:
    table = relation(1, "t", {"id": INT4})
    changes = [transaction(lsn, table, m.Insert(1, row(lsn)), xid=lsn) for lsn in (100, 200)]
    runs, files = Runs(), {"1": frame(changes[0], Framing.RAW)}
    runs.run(files)
    assert runs.stored is not None
    runs.stored = to_json(from_json(Resume, runs.stored).in_session_of(Framing.COPYDATA))
    runs.settings = Settings.from_mapping({"framing": "copydata"})
    runs.run({**files, "2": frame(changes[1], Framing.COPYDATA)})
    assert {name: facts.sessions for name, facts in runs.index.facts.items()} == {"1": 1, "2": 1}


def test_behind_a_gap_files_are_told_of_but_not_the_one_that_is_cut_off() -> None:
    files = parts_of("o01", 8)
    names = list(files)
    lost = {name: content for name, content in files.items() if name != names[3]}
    runs = Runs(settings=Settings().allowing_gaps())
    runs.run(lost)
    assert set(names) - set(runs.index.rows) == {names[3], names[4]}


@pytest.mark.parametrize("name", further([one.name for one in cases()], but=(case("o06").name, case("o26").name)))
def test_beside_an_index_no_flipped_bit_is_applied(name: str) -> None:
    """Of all recorded captures these are the 3,750 flips of `make harm`, a third of which nothing else proves."""
    contents = [path.read_bytes() for path in case(name).files]
    data, edges = b"".join(contents), [*accumulate(map(len, contents))][:-1]
    files = {name: content for name, content in cut(data, edges).items() if content}
    archive, chance = MemoryArchive(), Random(name)
    archive.join(files)
    # An audit reads all files, also those that seem to be as they were.
    archive.index.rows = {name: replace(row, modified=-1) for name, row in archive.index.rows.items()}
    for number in range(examples(150)):
        harmed, at = bytearray(data), chance.randrange(len(data))
        harmed[at] ^= 1 << chance.randrange(8)
        damaged = cut(bytes(harmed), edges)
        path = next(name for name in files if damaged[name] != files[name])
        with pytest.raises(CaptureError, match="not those that were indexed") as caught:
            Runs(index=archive.index, settings=Settings().allowing_gaps()).run(damaged)
        assert caught.value.path == path
        if number % 30:  # audits search what follows for a session, which takes a while
            continue
        audited = MemoryArchive(archive.index, writes=False).join(damaged, lenient=True)
        assert [joined.file.path for joined in audited if joined.differs or "indexed" in str(joined.gaps)] == [path]


def test_what_an_earlier_run_has_scanned_is_proved_where_it_is_decoded() -> None:
    files = parts_of("o19", 30)
    runs, names = Runs(), list(files)
    plans = [runs.run(dict(list(files.items())[:count])) for count in range(1, len(names) + 1)]
    again = {file.path: file for plan in plans if plan for file in plan.files if not file.scanned}
    assert again
    assert {path: file.proof for path, file in again.items()} == {path: Proof.of(files[path]) for path in again}
    # What it is known by without an index are its ends.
    sound = bytes(300_000)
    rotten = sound[:150_000] + b"\1" + sound[150_001:]
    planned = FilePlan("file", len(sound), fingerprint(sound, len(sound)), scanned=False, proof=Proof.of(sound))
    PlannedBytes.of(planned, sound)
    PlannedBytes.of(replace(planned, proof=None), rotten)
    with pytest.raises(CaptureError, match="not those that were indexed"):
        PlannedBytes.of(planned, rotten)

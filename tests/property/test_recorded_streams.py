"""What is recorded in files with chained names reads like the stream that was never broken, wherever files end."""

from __future__ import annotations

from itertools import count, pairwise
from random import Random
from typing import Any

import pytest

from support.archive_model import MemoryArchive
from support.extent import further
from support.framings import Form, Keepalive
from support.runs import Files, plan_run
from support.simulator import seeded
from support.simulator_sender import Options, Sent, Walsender
from support.simulator_server import Server
from walreplay.changes import decode_plan
from walreplay.errors import CaptureError, NotACapture, OrderError
from walreplay.protocol.framing import Framing
from walreplay.recorded_names import RecordedName, broken_chains, refuse_outside
from walreplay.recording.cutting import Cutting, StreamPiece
from walreplay.stream.plan import Plan

_COPYDATA = Form(Framing.COPYDATA)
_HEADER = 5  # of a frame: what is behind is what a CopyData message holds


def framed(sent: Sent, time: int) -> bytes:
    if isinstance(sent.payload, Keepalive):
        return _COPYDATA.wrap_keepalive(Keepalive(sent.payload.wal_end, time))
    return _COPYDATA.wrap(sent.payload, lsn=sent.lsn, time=time)


class Archive:
    """What a recorder makes of a server's stream, whose connection is lost now and then, as is the recorder itself.

    Attributes:
        files: by their names.
        unbroken: the bytes of a session that sends everything.
    """

    def __init__(self, seed: int, file_bytes: int) -> None:
        chance, drawn = Random(seed), seeded(seed)
        version = chance.choice((1, 2, 4))
        self._options = Options(
            version,
            streaming=version > 1,
            parallel=version == 4 and chance.random() < 0.5,
            two_phase=version == 4,
            keepalives=chance.choice((0, 1, 3, 9)),
        )
        server = Server(2, 3, seed % 7, origins=False)
        server.play(drawn.steps)
        self._wal = server.wal
        self._limit = chance.choice((1, 3, 1000))
        self.files: dict[str, bytes] = {}
        self._clock = count(800_000_000_000_000, 977)  # of the server; it sends no two messages in one moment
        self.unbroken = b"".join(framed(sent, next(self._clock)) for sent in self._sent(0))
        end = 0
        for is_last in (False, False, False, True):
            end = self._record(chance, end, file_bytes, is_last=is_last)

    def _sent(self, end: int) -> list[Sent]:
        start = next((number for number, event in enumerate(self._wal) if event.lsn >= end), len(self._wal))
        sender = Walsender(self._options, start=start, known=0, limit=self._limit)
        sender.decode(self._wal, len(self._wal))
        return sender.sent

    def _record(self, chance: Random, end: int, file_bytes: int, *, is_last: bool) -> int:
        """Record a session; return what the archive goes up to then."""
        sent, cutting = self._sent(end), Cutting(end, file_bytes, 1e9)
        for message in sent if is_last else sent[: chance.randrange(len(sent) + 1)]:
            cutting.add(framed(message, next(self._clock))[_HEADER:])
            if cutting.is_due():
                end = self._keep(cutting.cut())
        last = cutting.last_cut() if is_last or chance.random() < 0.6 else None  # None: the recorder was killed
        return end if last is None else self._keep(last)

    def _keep(self, piece: StreamPiece) -> int:
        self.files[str(RecordedName(len(self.files) + 1, piece.start_lsn, piece.end_lsn))] = piece.data
        return piece.end_lsn


def planned(files: Files, *, guessing: bool = True) -> Plan:
    result = plan_run(files, None, guessing=guessing, framing=Framing.COPYDATA)
    assert result is not None
    return result.plan


def rows_of(plan: Plan, files: Files) -> dict[str, list[dict[str, Any]]]:
    """Return the row changes that a run applies, by table."""
    found: dict[str, list[dict[str, Any]]] = {}
    for batch in decode_plan(plan, files.__getitem__):
        found.setdefault(batch.relation.qualified_name, []).extend(batch.data.to_pylist())
    return found


@pytest.mark.parametrize("file_bytes", [1, 300])
@pytest.mark.parametrize("seed", further(range(100), but=range(10)))
def test_recorded_files_hold_what_an_unbroken_stream_holds(seed: int, file_bytes: int) -> None:
    archive = Archive(seed, file_bytes)
    assert list(broken_chains(archive.files)) == []
    if not archive.files:
        return
    stream = {"stream": archive.unbroken}
    whole = planned(stream)
    for guessing in (False, True):
        plan = planned(archive.files, guessing=guessing)
        assert plan.transactions == whole.transactions
        assert rows_of(plan, archive.files) == rows_of(whole, stream)


def test_many_of_these_files_end_inside_of_a_transaction() -> None:
    """The next one goes on with it, or begins it again."""
    heads = 0
    for seed in range(3):
        files = Archive(seed, 1).files
        for number in range(1, len(files), 5):
            heads += planned(dict(list(files.items())[:number])).resume.begun is not None
    assert heads > 5


@pytest.mark.parametrize("seed", further(range(60), but=range(5)))
def test_files_whose_names_are_exchanged_are_refused(seed: int) -> None:
    files = Archive(seed, 300).files
    facts = [joined.facts for joined in MemoryArchive().join(files)]
    commits = {one.name: [one.first_lsn, one.last_lsn] for one in facts if one and one.first_lsn and one.last_lsn}
    for first, second in pairwise(commits):
        for name, lsns in ((first, commits[second]), (second, commits[first])):
            with pytest.raises(NotACapture, match="it was renamed, or it is another file") as caught:
                refuse_outside(name, filter(None, lsns))
            assert caught.value.path == name
    for first, second in [*pairwise(commits)][:3]:
        with pytest.raises(CaptureError):
            planned({**files, first: files[second], second: files[first]})


@pytest.mark.parametrize("seed", further(range(40), but=range(4)))
def test_a_file_that_was_removed_is_named_once_by_the_one_behind_it(seed: int) -> None:
    files = Archive(seed, 300).files
    for _, lost, after in [*zip(files, [*files][1:], [*files][2:], strict=False)][::3]:
        left = {name: data for name, data in files.items() if name != lost}
        told = [(one.file.path, gap) for one in MemoryArchive().join(left, lenient=True) for gap in one.gaps]
        assert [path for path, gap in told if "1 file is missing" in str(gap)] == [after]
        with pytest.raises(OrderError, match="1 file is missing") as caught:
            MemoryArchive().join(left)
        assert caught.value.path == after

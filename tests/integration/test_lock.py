"""Of two runs at once on one target one goes on; a dead one does not keep the next from going on."""

from __future__ import annotations

import getpass
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.killed_run import run_until_killed
from support.paused_run import OtherProcess
from support.readers import collect
from support.small_mirror import INT4, SmallMirror, relation, row
from support.stopped_run import StoppedError
from support.truth import assert_mirror_equals, table_versions
from support.waiting import wait_until
from walreplay.delta import statements as delta
from walreplay.delta.opened import OpenedTable
from walreplay.delta.target import Target
from walreplay.errors import CaptureError, TargetError
from walreplay.ledger import ledger as state_table
from walreplay.ledger import state as lock
from walreplay.ledger.ledger import Ledger
from walreplay.ledger.state import Holder, from_json, to_json
from walreplay.protocol import messages as m
from walreplay.writing import by_statements as row_statements
from walreplay.writing.by_files import choose_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

# One small table.
_SMALL = "o21"

Place = Callable[[], str]


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """Return captures of which a first half is there; `_more` brings the rest."""
    folder = tmp_path / "captures"
    folder.mkdir()
    (data,) = case(_SMALL).streams()
    (folder / "0.bin").write_bytes(data[: len(data) // 2])
    return folder


@pytest.fixture
def no_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs of this process give no signs of life: on a slow machine each is one commit more."""
    monkeypatch.setattr(lock, "BEAT_SECONDS", 3600.0)


def _ledger(spark: SparkSession, target: object) -> Ledger:
    place = Target.parse(str(target))
    return Ledger(spark, place, choose_writer(spark, place))


def _more(captures: Path) -> None:
    (data,) = case(_SMALL).streams()
    (captures / "1.bin").write_bytes(data[len(data) // 2 :])


def _state(spark: SparkSession, target: object) -> tuple[int, Holder | None]:
    """Return the version of the ledger's state, and who holds the lock by it."""
    table = Target.parse(str(target)).ledger("state")
    (row,) = delta.read(spark, table).collect()
    (newest,) = spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT 1").collect()
    return newest.version, from_json(Holder, row.holder) if row.holder else None


def _hand_to(spark: SparkSession, target: object, holder: Holder) -> None:
    table = Target.parse(str(target)).ledger("state").sql
    spark.sql(f"UPDATE {table} SET holder = '{to_json(holder)}'")


def _elsewhere(silent: timedelta = timedelta()) -> Holder:
    here = Holder.here()
    return replace(here, user="ann", host="node1", boot_id="b", pid=99, beat=here.beat - silent)


@pytest.mark.full
def test_of_two_runs_at_once_the_later_is_refused(
    spark: SparkSession, tmp_path: Path, captures: Path, elsewhere: OtherProcess
) -> None:
    target = tmp_path / "mirror"
    walreplay.apply(spark, captures=captures, target=target)
    _more(captures)
    with elsewhere.paused(captures, target, "plan written", folder=tmp_path) as other:
        versions = table_versions(target)
        with pytest.raises(TargetError) as caught:
            walreplay.apply(spark, captures=captures, target=target)
        at_work = walreplay.status(spark, target).at_work
        assert table_versions(target) == versions
        outcome = other.go_on()

    assert f"run 2 is at work on it: {getpass.getuser()} on {socket.gethostname()} (process {other.pid}, since 20" in (
        str(caught.value)
    )
    assert at_work is not None
    assert (at_work.run, at_work.pid, at_work.alive) == (2, other.pid, True)
    assert outcome.exit_code == 0, outcome.stderr
    assert walreplay.apply(spark, captures=captures, target=target).status == "nothing new"
    assert walreplay.status(spark, target).at_work is None
    assert_mirror_equals(spark, target, case(_SMALL))


@pytest.mark.full
def test_a_dead_run_is_taken_over_at_once(spark: SparkSession, tmp_path: Path, captures: Path) -> None:
    target = tmp_path / "mirror"
    _more(captures)
    run_until_killed(captures, target, "plan written", 1, scratch=tmp_path)
    at_work = walreplay.status(spark, target).at_work
    report = walreplay.apply(spark, captures=captures, target=target)

    assert at_work is not None
    assert not at_work.alive
    assert report.warnings[0].startswith(f"took over from {getpass.getuser()} on {socket.gethostname()} (process ")
    assert "which is gone; its last sign of life was at 20" in report.warnings[0]
    assert report.warnings[1] == "run 1 was interrupted; it was finished first"
    assert_mirror_equals(spark, target, case(_SMALL))


@pytest.mark.full
def test_a_paused_run_that_was_taken_over_writes_nothing_more(
    spark: SparkSession, tmp_path: Path, captures: Path, elsewhere: OtherProcess
) -> None:
    target = tmp_path / "mirror"
    walreplay.apply(spark, captures=captures, target=target)
    _more(captures)
    with elsewhere.paused(captures, target, "plan written", folder=tmp_path, silent=True) as zombie:
        _, holder = _state(spark, target)
        assert holder is not None
        # As if it had been silent for so long: nobody can tell it from a dead one then.
        _hand_to(spark, target, replace(holder, beat=holder.beat - timedelta(hours=1)))
        report = walreplay.apply(spark, captures=captures, target=target)
        before = _state(spark, target), table_versions(target)
        outcome = zombie.go_on()

    assert "gave no sign of life for more than 120 s" in report.warnings[0]
    assert outcome.exit_code == 1
    assert "another has taken over" in outcome.stderr.splitlines()[-1]
    assert (_state(spark, target), table_versions(target)) == before
    assert_mirror_equals(spark, target, case(_SMALL))
    assert walreplay.apply(spark, captures=captures, target=target).status == "nothing new"


@pytest.mark.full
def test_an_append_that_another_driver_has_made_is_not_waited_for(
    spark: SparkSession, tmp_path: Path, stop: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(relation(1, "t", {"id": INT4}), m.Insert(1, row(1)), outputs=["changelog"])
    stop("table applied")
    with pytest.raises(StoppedError):
        mirror.apply(m.Insert(1, row(2)), outputs=["changelog"])
    # As if it had come between the look for it and the write.
    with monkeypatch.context() as patched:
        patched.setattr(OpenedTable, "made", {})
        with pytest.raises(TargetError, match="the table's commit is not in its history"):
            mirror.apply(outputs=["changelog"])
    mirror.apply(outputs=["changelog"])
    assert sorted(collect(mirror.location("t__changes"), "id")) == [(1,), (2,)]


@pytest.mark.parametrize("writer", further(["files", "spark"], but=("files",)))
def test_a_run_elsewhere_is_waited_for_until_it_is_silent(
    spark: SparkSession, tmp_path: Path, captures: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", writer)
    target = tmp_path / "mirror"
    walreplay.apply(spark, captures=captures, target=target)
    _more(captures)
    _hand_to(spark, target, _elsewhere())
    with pytest.raises(TargetError, match=r"ann on node1 \(process 99, since .*120 s after its last sign of life"):
        walreplay.apply(spark, captures=captures, target=target)
    _hand_to(spark, target, _elsewhere(silent=2 * lock.LEASE))
    report = walreplay.apply(spark, captures=captures, target=target)
    assert report.warnings[0].startswith("took over from ann on node1 (process 99, since ")
    assert_mirror_equals(spark, target, case(_SMALL))


def test_a_run_takes_the_lock_in_one_commit_and_with_nothing_new_not_at_all(
    spark: SparkSession, tmp_path: Path, captures: Path, no_beats: None
) -> None:
    target = tmp_path / "mirror"
    walreplay.apply(spark, captures=captures, target=target)
    first = _state(spark, target)
    walreplay.apply(spark, captures=captures, target=target)
    again = _state(spark, target)
    _more(captures)
    walreplay.apply(spark, captures=captures, target=target)
    # Made with the lock, the plan, the end; then nothing; then the lock, the plan, the end.
    assert (first, again, _state(spark, target)) == ((2, None), (2, None), (5, None))


def test_a_run_that_fails_gives_the_lock_back(spark: SparkSession, tmp_path: Path, captures: Path) -> None:
    target = tmp_path / "mirror"
    (captures / "1.bin").write_bytes(b"\xff" * 100)
    with pytest.raises(CaptureError):
        walreplay.apply(spark, captures=captures, target=target)
    assert _state(spark, target)[1] is None
    with pytest.raises(TargetError, match="nothing was applied to this target yet"):
        walreplay.status(spark, target)
    _more(captures)
    report = walreplay.apply(spark, captures=captures, target=target)
    assert (report.run, report.warnings) == (1, ())
    assert_mirror_equals(spark, target, case(_SMALL))


@pytest.mark.full
def test_a_state_that_is_too_long_for_a_statement_is_written_all_the_same(
    spark: SparkSession, tmp_path: Path, captures: Path, monkeypatch: pytest.MonkeyPatch, no_beats: None
) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    states = []
    for target in (short, long):
        walreplay.apply(spark, captures=captures, target=target)
        (row,) = delta.read(spark, Target.parse(str(target)).ledger("state")).collect()
        states.append(row.asDict() | dict.fromkeys(("ledger", "started_at", "finished_at", "tables")))
        monkeypatch.setattr(row_statements, "_MAX_LITERAL_CHARS", 0)
    assert states[0] == states[1]
    assert states[0]["phase"] == "applied"
    _more(captures)
    walreplay.apply(spark, captures=captures, target=long)
    assert _state(spark, long) == (5, None)
    assert_mirror_equals(spark, long, case(_SMALL))


@pytest.mark.full
def test_a_lock_that_others_change_all_the_time_is_left_to_them_and_can_be_had_later(
    spark: SparkSession, tmp_path: Path, captures: Path, monkeypatch: pytest.MonkeyPatch, no_beats: None
) -> None:
    target = tmp_path / "mirror"
    walreplay.apply(spark, captures=captures, target=target)
    _more(captures)
    before, take = table_versions(target), state_table.Ledger._take

    def late(self: state_table.Ledger, *given: Any) -> bool:
        # Somebody else, who is dead by now as well, has been quicker.
        _hand_to(spark, target, _elsewhere(silent=2 * lock.LEASE))
        return take(self, *given)

    with monkeypatch.context() as others:
        others.setattr(state_table, "_ATTEMPTS", 2)
        others.setattr(state_table.Ledger, "_take", late)
        with pytest.raises(TargetError, match="others change it all the time") as caught:
            walreplay.apply(spark, captures=captures, target=target)
    assert caught.value.remedy == "Run again later"
    assert table_versions(target) == before
    assert walreplay.apply(spark, captures=captures, target=target).status == "applied"
    assert_mirror_equals(spark, target, case(_SMALL))


@pytest.fixture(params=["a folder", "a catalog"])
def place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    if request.param == "a folder":
        yield str(tmp_path / "mirror")
        return
    yield "spark_catalog.lock_test"
    spark.sql("DROP SCHEMA IF EXISTS lock_test CASCADE")


@pytest.mark.full
def test_of_two_who_reach_for_the_lock_at_the_same_moment_one_gets_it(spark: SparkSession, place: str) -> None:
    # First there is no table, then a row that nobody holds, then one that a dead run holds.
    for number in range(4):
        ledgers = [_ledger(spark, place) for _ in range(3)]
        for ledger in ledgers:
            assert ledger.read() is None
        together = threading.Barrier(len(ledgers))

        def reach(ledger: Ledger, together: threading.Barrier = together) -> str | None:
            together.wait()
            try:
                ledger.acquire()
            except TargetError as error:
                return str(error)
            return None

        with ThreadPoolExecutor(len(ledgers)) as pool:
            refusals = list(pool.map(reach, ledgers))
        (winner,) = [ledger for ledger, refusal in zip(ledgers, refusals, strict=True) if refusal is None]
        assert all("run 1 is at work on it" in refusal for refusal in refusals if refusal is not None)
        assert _state(spark, place)[1] == winner.holder
        for ledger in ledgers:
            if ledger is not winner:
                ledger.release()
        assert _state(spark, place)[1] == winner.holder
        winner.release()
        assert _state(spark, place)[1] is None
        if number == 1:
            _hand_to(spark, place, _elsewhere(silent=2 * lock.LEASE))


def test_the_state_under_the_lock_is_what_has_come_since_it_was_read(
    spark: SparkSession, tmp_path: Path, captures: Path
) -> None:
    target = tmp_path / "mirror"
    walreplay.apply(spark, captures=captures, target=target)
    slow, quick = (_ledger(spark, target) for _ in range(2))
    before = quick.read()
    assert quick.acquire() is before
    assert quick.acquire() is before
    quick.release()
    slow.read()
    _more(captures)
    walreplay.apply(spark, captures=captures, target=target)
    since = slow.acquire()
    assert since is not None
    assert since.run == 2
    slow.release()


@pytest.mark.full
def test_signs_of_life_are_written_while_the_lock_is_held_and_tell_that_it_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mirror"
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.1)
    ledger = _ledger(spark, target)
    ledger.acquire()
    _, first = _state(spark, target)
    assert first is not None

    def changed() -> bool:
        _, holder = _state(spark, target)
        return holder is not None and holder.id == first.id and holder.beat > first.beat

    wait_until(changed, "a sign of life")
    ledger.check_lock()
    other = _elsewhere()
    # Of two writes that meet the quicker one stays, which a sign of life is: there has to be time between them.
    monkeypatch.setattr(lock, "BEAT_SECONDS", 10.0)
    wait_until(lambda: _handed(spark, target, other), "the other one")

    def lost() -> bool:
        try:
            ledger.check_lock()
        except TargetError as error:
            return "another has taken over" in str(error)
        return False

    wait_until(lost, "the loss to be told")
    ledger.release()
    assert _state(spark, target)[1] == other


def _handed(spark: SparkSession, target: Path, holder: Holder) -> bool:
    try:
        _hand_to(spark, target, holder)
    except Exception:
        return False
    return _state(spark, target)[1] == holder

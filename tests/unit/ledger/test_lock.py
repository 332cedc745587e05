import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from walreplay.ledger import state as lock
from walreplay.ledger.ledger import _Held
from walreplay.ledger.state import LEASE, Heartbeat, Holder, from_json, to_json, why_dead

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which process a process id means")


@pytest.fixture
def now():
    return datetime.now(timezone.utc)


@pytest.fixture
def elsewhere():
    """Return a holder on another machine."""
    return replace(Holder.here(), host="elsewhere", boot_id="other")


@pytest.fixture
def child():
    """Return another process that is alive."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def of(process):
    return replace(Holder.here(), pid=process.pid, process_start=lock._process(process.pid)[1])


def test_a_holder_is_read_as_it_was_written():
    for holder in (Holder.here(), replace(Holder.here(), host="wörld'\\\"", process_start=None)):
        assert from_json(Holder, to_json(holder)) == holder


def test_a_statement_looks_for_the_last_beat_as_the_row_has_it():
    holder = Holder.here()
    assert f"= '{json.loads(to_json(holder))['beat']}'" in _Held(holder, silent=True).sql()
    assert (
        _Held(None, of={"run": 7, "phase": "applied", "noted": 2}).sql()
        == "run = 7 AND phase = 'applied' AND noted = 2 AND holder IS NULL"
    )


def test_a_holder_names_its_process():
    assert f"(process {os.getpid()}, since 20" in str(Holder.here())


def test_two_runs_of_one_process_are_two_holders():
    assert Holder.here().id != Holder.here().id


def test_a_holder_elsewhere_is_alive_for_a_lease(elsewhere):
    assert why_dead(elsewhere, elsewhere.beat) is None
    assert why_dead(elsewhere, elsewhere.beat + LEASE) is None
    assert "no sign of life" in why_dead(elsewhere, elsewhere.beat + LEASE + timedelta(seconds=1))


def test_a_clock_that_is_far_ahead_does_not_hold_the_lock_until_then(elsewhere):
    assert why_dead(elsewhere, elsewhere.beat - LEASE) is None
    assert why_dead(elsewhere, elsewhere.beat - timedelta(days=1)) is not None


def test_a_run_of_this_process_is_alive_while_it_holds_the_lock(now):
    holder = Holder.here()
    lock.HERE.add(holder.id)
    assert why_dead(holder, now + timedelta(days=1)) is None
    lock.HERE.discard(holder.id)
    assert why_dead(holder, now + timedelta(days=1)) is not None


@linux
def test_a_run_of_this_process_is_dead_once_it_has_ended(now):
    assert why_dead(Holder.here(), now) == "which is gone"


@linux
def test_another_process_of_this_machine_is_alive_until_it_is_silent(child, now):
    assert why_dead(of(child), now) is None
    assert why_dead(of(child), now + 2 * LEASE) is not None


@linux
@pytest.mark.parametrize("reaped", [True, False])
def test_a_process_that_has_ended_is_dead_at_once(child, reaped, now):
    holder = of(child)
    child.kill()
    if reaped:
        child.wait()
    else:  # it stays in the list of processes, and is none any more
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert why_dead(holder, now) == "which is gone"


@linux
def test_another_process_with_the_same_id_is_not_the_holder(child, now):
    assert why_dead(replace(of(child), process_start=1), now) == "which is gone"


@linux
@pytest.mark.parametrize(
    "other",
    [{"host": "elsewhere"}, {"boot_id": "earlier"}, {"pid_namespace": "pid:[1]"}, {"boot_id": None}],
    ids=["another host", "before it was started again", "another container", "unknown"],
)
def test_a_process_id_means_nothing_elsewhere(child, other, now):
    holder = replace(of(child), **other)
    child.kill()
    child.wait()
    assert why_dead(holder, now) is None


@linux
def test_a_process_that_is_somebody_elses_and_hidden_is_taken_for_alive(child, monkeypatch, now):
    def refuse(pid, signal):
        raise PermissionError

    holder = of(child)
    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(lock, "_process", lambda pid: None)
    assert why_dead(holder, now) is None


@linux
def test_a_programs_name_may_hold_brackets_and_blanks(tmp_path, now):
    program = tmp_path / "a) S (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "60"])
    try:
        assert why_dead(of(process), now) is None
    finally:
        process.kill()
        process.wait()


def test_where_the_system_tells_nothing_the_lease_decides(monkeypatch, now):
    for name in ("_process", "_boot_id", "_pid_namespace"):
        monkeypatch.setattr(lock, name, lambda *_: None)
    holder = Holder.here()
    assert holder.boot_id is None
    assert why_dead(holder, now) is None
    assert why_dead(holder, now + 2 * LEASE) is not None


def test_a_user_without_a_name_has_a_number(monkeypatch):
    def fail():
        raise KeyError("uid not found")

    monkeypatch.setattr(lock.getpass, "getuser", fail)
    assert Holder.here().user == str(os.getuid())


def test_signs_of_life_go_on_after_one_that_failed_and_end_when_there_is_no_more(monkeypatch):
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.001)
    beats, ended = [], threading.Event()

    def beat():
        beats.append(1)
        if len(beats) == 1:
            raise OSError("the storage does not answer")
        if len(beats) == 3:
            ended.set()
            return False
        return True

    heartbeat = Heartbeat(beat)
    assert ended.wait(10)
    heartbeat.stop()
    assert len(beats) == 3


def test_a_heartbeat_that_was_stopped_gives_no_sign(monkeypatch):
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.05)
    beats = []
    heartbeat = Heartbeat(lambda: bool(beats.append(1)))
    heartbeat.stop()
    for thread in threading.enumerate():
        if thread.name == "walreplay lock":
            thread.join(10)
    assert beats == []

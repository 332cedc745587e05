"""A real server's transactions of all kinds, recorded over lost and broken connections, and mirrored."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import Case
from support.extent import further
from support.postgres import server_versions
from support.reference import Replay, replay, replay_of
from support.sessions import (
    CRASHED,
    LOST,
    RESTARTED,
    ROTATED,
    STOPPED,
    TERMINATED,
    TORN,
    Break,
    Recording,
    Scenario,
    record,
)
from support.truth import assert_tables_equal, replay_difference
from walreplay.protocol.framing import Framing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

_OLD, _NEW = server_versions()[0], server_versions()[-1]
_NEVER = 3600


def _then(ending: str, *, new_file: bool = False, settled: bool = True) -> Break:
    return Break(ending, new_file, settled)


SCENARIOS = {
    "one session": Scenario(1, _OLD, messages=True, origins=True),
    "killed and appended": Scenario(
        2,
        _NEW,
        streaming="parallel",
        two_phase=True,
        confirms_every=_NEVER,
        breaks=(_then(LOST), _then(STOPPED), _then(LOST, settled=False)),
    ),
    "a file for each session": Scenario(
        3,
        _OLD,
        two_phase=True,
        origins=True,
        breaks=(_then(LOST, new_file=True, settled=False), _then(ROTATED, new_file=True), _then(LOST, new_file=True)),
    ),
    "crashes and the recorder reconnects": Scenario(
        4,
        _NEW,
        streaming="parallel",
        two_phase=True,
        messages=True,
        reconnects=True,
        confirms_every=_NEVER,
        breaks=(_then(CRASHED), _then(TERMINATED), _then(RESTARTED)),
    ),
    "crashes": Scenario(
        5,
        _OLD,
        streaming="parallel",
        two_phase=True,
        undecided=False,
        breaks=(_then(CRASHED, new_file=True), _then(CRASHED)),
    ),
    "torn": Scenario(
        6, _OLD, streaming="parallel", confirms_every=_NEVER, breaks=(_then(TORN), _then(TORN, new_file=True))
    ),
    "copydata": Scenario(
        7,
        _NEW,
        writer="walsender",
        framing=Framing.COPYDATA,
        two_phase=True,
        confirms_every=_NEVER,
        breaks=(_then(LOST), _then(TORN, new_file=True, settled=False), _then(CRASHED)),
    ),
    "raw": Scenario(
        8,
        _OLD,
        writer="walsender",
        framing=Framing.RAW,
        streaming="parallel",
        two_phase=True,
        messages=True,
        breaks=(_then(LOST, new_file=True), _then(LOST, settled=False)),
    ),
    "copies of the slot's changes": Scenario(
        9,
        _NEW,
        writer="copy",
        framing=Framing.PGCOPY,
        two_phase=True,
        breaks=(_then(LOST), _then(CRASHED), _then(STOPPED)),
    ),
    **{
        f"PostgreSQL {version} without streams": Scenario(
            version,
            version,
            streaming="off",
            breaks=(_then(ROTATED, new_file=True, settled=False), _then(ROTATED, new_file=True)),
            transactions=25,
            rows=40,
        )
        for version in server_versions()
    },
}


_QUICK = {
    *("killed and appended", "crashes and the recorder reconnects", "torn", "copies of the slot's changes"),
    *(name for name, it in SCENARIOS.items() if it.streaming == "off"),
}
"""Those that are recorded in any run of the tests; the others where WALREPLAY_LONG is set."""

_CHOSEN = {name: it for name, it in SCENARIOS.items() if name in _QUICK or os.environ.get("WALREPLAY_LONG")}


@pytest.fixture(scope="module", params=further(_CHOSEN.values()), ids=_CHOSEN.keys())
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Each scenario, recorded once."""
    return record(request.param, tmp_path_factory.mktemp("recorded") / "case")


def test_the_recording_is_complete(recorded: Recording) -> None:
    replayed = replay_of(recorded.case)
    assert replay_difference(recorded.tables, replayed) is None
    scenario, tags = recorded.scenario, recorded.tags()
    if scenario.streaming == "off":
        assert tags["B"] > 200
    else:
        assert tags["S"] > 0
        assert tags["A(sub)"] > 0
    assert len(recorded.case.streams()) > sum(item.ending != ROTATED for item in scenario.breaks)
    if scenario.two_phase:
        assert tags["K"] > 0
        assert tags["p"] > 0 or not scenario.undecided
        assert scenario.undecided == ("undecided" in [gid for _, gid in replayed.prepared])


@pytest.mark.integration
def test_a_live_source_is_mirrored_in_one_run(spark: SparkSession, recorded: Recording, tmp_path: Path) -> None:
    walreplay.apply(spark, captures=str(recorded.case.folder), target=str(tmp_path))
    assert_tables_equal(spark, tmp_path, replay_of(recorded.case).sources(recorded.tables))


@pytest.mark.full
@pytest.mark.integration
def test_a_live_source_is_mirrored_file_by_file(spark: SparkSession, recorded: Recording, tmp_path: Path) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    for number, file in enumerate(recorded.case.files, start=1):
        shutil.copy(file, captures)
        walreplay.apply(spark, captures=str(captures), target=str(target))
        replayed = _replayed_until(recorded.case, recorded.case.files[:number])
        assert_tables_equal(spark, target, replayed.sources(recorded.tables))


def _replayed_until(case: Case, files: Sequence[Path]) -> Replay:
    """Replay what the first files hold of the sessions."""
    left = sum(file.stat().st_size for file in files)
    streams = []
    for stream in case.streams():
        streams.append(stream[:left])
        left = max(0, left - len(stream))
    return replay(streams, case.framing)

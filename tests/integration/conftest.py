"""What the tests with Spark and Delta share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from support.object_store import HADOOP
from support.paused_run import OtherProcess
from support.small_mirror import SmallMirror
from support.spark import start_session
from support.stopped_run import stopping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests: it takes longer to start than most of them."""
    # Only long runs have targets in object stores: the JARs take seconds to find.
    session = start_session(tmp_path_factory.mktemp("spark"), more=HADOOP if "WALREPLAY_LONG" in os.environ else "")
    yield session
    session.stop()


_FEW: Final = 3

_tests_with_spark = itertools.count(1)


@pytest.fixture(autouse=True)
def _forgotten_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let Delta forget after a few tests the tables that it keeps in mind for an hour.

    Each keeps a snapshot, its plans and its session, more than a megabyte, and the tests make thousands of them.
    """
    yield
    if "spark" in request.fixturenames and next(_tests_with_spark) % _FEW == 0:
        session: SparkSession = request.getfixturevalue("spark")
        session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


@pytest.fixture(params=["files of our own", pytest.param("Spark's statements", marks=pytest.mark.statements)])
def mirror(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SmallMirror:
    """Return a mirror that has nothing yet, for each way of writing."""
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark" if request.param != "files of our own" else "")
    return SmallMirror(spark, tmp_path)


@pytest.fixture
def stop() -> Iterator[Callable[[str], None]]:
    """Have a run end at the first step with some name."""
    with stopping() as at:
        yield at


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherProcess]:
    """Return another process, with a Java of its own, whose runs can be held at a step."""
    other = OtherProcess(tmp_path_factory.mktemp("elsewhere"))
    yield other
    other.end()

"""What the tests with Spark and Delta share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests: it takes longer to start than most of them."""
    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _forgotten_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let Delta forget after each test the tables that it keeps in mind for an hour.

    Each keeps a snapshot, its plans and its session, more than a megabyte, and the tests make thousands of them.
    """
    yield
    if "spark" in request.fixturenames:
        session: SparkSession = request.getfixturevalue("spark")
        session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]

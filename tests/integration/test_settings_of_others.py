"""Whatever Spark, Delta and the machine are configured to, the same rows are written (docs/running.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

import walreplay
from support.command import program_environment
from support.fault_cases import assert_fault_mended, fault_case
from support.hostile_settings import OF_NO_MATTER, SET_BY_US, configured, rows_of, runs, truth
from support.refusing_platform import refusing
from support.small_mirror import SmallMirror
from walreplay.errors import ConfigError
from walreplay.session import isolation
from walreplay.session.isolation import own_session, set_for_a_while

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_LEGACY = {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}


def _effective(spark: SparkSession) -> dict[str, str | None]:
    return {key: _value(spark, key) for key in SET_BY_US}


def _value(spark: SparkSession, key: str) -> str | None:
    try:
        return spark.conf.get(key)
    except Exception:
        # Neither is it set, nor has it a default.
        return None


@pytest.fixture(scope="module")
def ours(spark: SparkSession) -> dict[str, str | None]:
    """What a session of ours has where nothing is configured; Delta makes its settings known once it is used."""
    getattr(getattr(spark._jvm.org.apache.spark.sql.delta.sources, "DeltaSQLConf$"), "MODULE$")  # type: ignore[union-attr]
    return _effective(own_session(spark))


# The tests' own session sets the time zone, which counts more than what is configured.
@pytest.mark.parametrize("key", sorted(SET_BY_US.keys() - {"spark.sql.session.timeZone"}))
def test_what_a_cluster_is_configured_to_does_not_reach_us(
    spark: SparkSession, key: str, ours: dict[str, str | None]
) -> None:
    with configured(spark, {key: SET_BY_US[key]}):
        assert spark.newSession().conf.get(key) == SET_BY_US[key]
        assert _value(own_session(spark), key) == ours[key] != SET_BY_US[key]


def test_a_session_that_cannot_be_ours_alone_is_put_right_for_a_while(
    spark: SparkSession, ours: dict[str, str | None]
) -> None:
    theirs = spark.newSession()
    for key, value in SET_BY_US.items():
        theirs.conf.set(key, value)
    with patch.object(isolation, "has_own_sessions", lambda _: False), set_for_a_while(theirs, {"a": "b"}) as session:
        assert session is theirs
        assert _effective(session) == ours
        assert session.conf.get("a") == "b"
    assert _effective(theirs) == SET_BY_US


def test_rows_are_the_sources_whatever_is_configured(mirror: SmallMirror) -> None:
    with configured(mirror.spark, {**SET_BY_US, **OF_NO_MATTER}):
        for changes in runs():
            assert mirror.apply(*changes).status == "applied"
    assert rows_of(mirror.target) == truth()
    assert not mirror.apply().warnings


@pytest.mark.full
def test_rows_are_the_sources_where_nothing_is_configured(mirror: SmallMirror) -> None:
    for changes in runs():
        mirror.apply(*changes)
    assert rows_of(mirror.target) == truth()


_PROGRAM = """
import os, shutil, sys
from pathlib import Path
import walreplay
from walreplay.session.session import build_session
spark, source, target = build_session(), *map(Path, sys.argv[1:])
for way in ("files", "spark"):
    os.environ["WALREPLAY_COMMITS"] = way
    (target / way / "captures").mkdir(parents=True)
    for file in sorted(source.iterdir()):
        shutil.copy(file, target / way / "captures")
        walreplay.apply(spark, captures=target / way / "captures", target=target / way / "mirror")
"""
_ENVIRONMENT = {
    "TZ": "America/New_York",
    "LC_ALL": "C",
    "LANG": "tr_TR.UTF-8",
    "PYTHONHASHSEED": "7",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
}
_JAVA = " -Duser.language=tr -Duser.country=TR -Duser.timezone=America/New_York -Dfile.encoding=ISO-8859-9"


@pytest.mark.full
def test_rows_are_the_sources_whatever_the_machine_is_configured_to(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    for changes in runs():
        mirror.write(*changes)
    environment = {**program_environment(tmp_path), **_ENVIRONMENT}
    environment["SPARK_SUBMIT_OPTS"] += _JAVA
    subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(mirror.captures), str(tmp_path)], env=environment, check=True, timeout=600
    )
    assert rows_of(tmp_path / "files" / "mirror") == rows_of(tmp_path / "spark" / "mirror") == truth()


@pytest.mark.statements
def test_days_before_1582_are_no_days_of_the_julian_calendar(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    with configured(spark, _LEGACY):
        for path in fault_case("rebase_mode_legacy").files:
            (captures / path.name).write_bytes(path.read_bytes())
            walreplay.apply(spark, captures=captures, target=target)
    assert_fault_mended(spark, target, "rebase_mode_legacy")


def test_a_setting_that_cannot_be_put_right_is_refused_and_the_remedy_works(
    spark: SparkSession, tmp_path: Path
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    (changes, *_) = runs()
    with refusing():
        with configured(spark, _LEGACY), pytest.raises(ConfigError, match="RebaseModeInWrite") as refused:
            mirror.apply(*changes)
        assert re.search("Remove it from Spark's configuration, or set it to CORRECTED", str(refused.value))
        with configured(spark, dict.fromkeys(_LEGACY, "CORRECTED")):
            assert mirror.apply().status == "applied"


def test_what_delta_sets_itself_is_no_reason_to_refuse(mirror: SmallMirror) -> None:
    mirror.apply(*runs()[0])
    session = mirror.spark.newSession()
    before = dict(session.conf.getAll)
    session.sql(f"SELECT n FROM delta.`{mirror.target}/s/Parish`").collect()
    assert dict(session.conf.getAll) != before
    with patch.object(isolation, "has_own_sessions", lambda _: False), refusing(), set_for_a_while(session, {}):
        pass

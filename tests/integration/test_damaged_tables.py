"""A table that is damaged in some way: a run says what is wrong and what to do, and that helps."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.extent import further
from support.readers import collect
from support.small_mirror import INT4, TEXT, SmallMirror, forget, relation, row
from walreplay.errors import WalReplayError
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ORDERS = relation(9, "or ders", {"id": INT4, "note": TEXT})
OTHERS = relation(10, "others", {"id": INT4, "note": TEXT})
SAID = {"source": "shop"}
"""The captures are copied to other folders."""


def commit(log: Path, back: int = 0) -> Path:
    """Return a commit of a log, so many in front of the newest."""
    return sorted(log.glob("*.json"))[-1 - back]


def sum_of(path: Path) -> Path:
    """Return the checksum that Hadoop keeps of a file."""
    return path.with_name(f".{path.name}.crc")


def _the_newest_commit_is_lost(table: Path, log: Path) -> None:
    commit(log).unlink()


def _two_commits_and_their_version_checksums_are_lost(table: Path, log: Path) -> None:
    for path in (commit(log), commit(log, 1)):
        path.unlink()
        path.with_suffix(".crc").unlink(missing_ok=True)


def _a_commit_in_the_middle_is_lost(table: Path, log: Path) -> None:
    commit(log, 1).unlink()


def _the_first_commit_is_lost(table: Path, log: Path) -> None:
    sorted(log.glob("*.json"))[0].unlink()


def _tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])
    sum_of(path).unlink(missing_ok=True)


def _the_newest_commit_is_torn(table: Path, log: Path) -> None:
    _tear(commit(log))


def _a_commit_in_the_middle_is_torn(table: Path, log: Path) -> None:
    _tear(commit(log, 1))


def _the_newest_commit_is_empty(table: Path, log: Path) -> None:
    commit(log).write_bytes(b"")
    sum_of(commit(log)).unlink(missing_ok=True)


def _a_checksum_of_a_commit_is_stale(table: Path, log: Path) -> None:
    sum_of(commit(log, 1)).write_bytes(b"crc\0\0\0\2\0stale")


def _a_checksum_of_data_is_stale(table: Path, log: Path) -> None:
    for path in table.glob("*.parquet"):
        sum_of(path).write_bytes(b"crc\0\0\0\2\0" + b"wrong sum " * 8)


def _all_data_is_gone(table: Path, log: Path) -> None:
    for path in table.glob("*.parquet"):
        path.unlink()


def _the_last_checkpoint_is_missing(table: Path, log: Path) -> None:
    (log / "_last_checkpoint").write_text('{"version":2,"size":9}')


def _a_version_checksum_disagrees(table: Path, log: Path) -> None:
    # Spark leaves one, delta-rs none.
    path = commit(log).with_suffix(".crc")
    path.write_text((path.read_text() if path.exists() else '{"numFiles":1}').replace('"numFiles":', '"numFiles":7'))
    sum_of(path).unlink(missing_ok=True)


def _the_log_is_gone(table: Path, log: Path) -> None:
    shutil.rmtree(log)


def _leftovers_are_in_the_log(table: Path, log: Path) -> None:
    following = int(commit(log).stem) + 1
    (log / ".tmp").mkdir()
    (log / ".tmp" / "x.tmp").write_text("x")
    for name in (f"{following:020}.crc", f".{following:020}.json.crc", f".{following:020}.json.0-1.tmp"):
        (log / name).write_text("left")


def _the_table_is_gone(table: Path, log: Path) -> None:
    shutil.rmtree(table)


SOME = (
    _the_newest_commit_is_lost,
    _all_data_is_gone,
    _a_commit_in_the_middle_is_lost,
    _the_newest_commit_is_torn,
    _a_checksum_of_data_is_stale,
    _the_log_is_gone,
)
RARE = (
    _two_commits_and_their_version_checksums_are_lost,
    _the_first_commit_is_lost,
    _a_commit_in_the_middle_is_torn,
    _the_newest_commit_is_empty,
    _a_checksum_of_a_commit_is_stale,
    _the_last_checkpoint_is_missing,
    _a_version_checksum_disagrees,
    _leftovers_are_in_the_log,
    _the_table_is_gone,
)


@pytest.fixture(scope="module", params=further(["statements", "files"], but=("files",)))
def sound(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a mirror of three runs; of what statements have written, Hadoop has checksums."""
    small = SmallMirror(spark, tmp_path_factory.mktemp("sound") / "small")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("WALREPLAY_COMMITS", "spark" if request.param == "statements" else "")
        for number in range(3):
            changes: tuple[m.AnyMessage, ...] = (ORDERS, m.Insert(9, row(number, "a")))
            changes += (OTHERS, m.Insert(10, row(number, "b"))) if number == 2 else ()
            small.apply(*changes, **SAID)
    return small.captures.parent


@pytest.mark.parametrize("harm", further(SOME, but=SOME[:1], long=RARE))
def test_a_damaged_table_is_told_and_what_is_said_to_do_makes_it_right(
    spark: SparkSession, sound: Path, tmp_path: Path, harm: Callable[[Path, Path], None]
) -> None:
    small = SmallMirror(spark, tmp_path / "copy")
    small.go_back_to(sound)
    table = small.location("or ders")
    harm(table, table / "_delta_log")
    small.write(ORDERS, m.Update(9, row(1, "z")), m.Insert(9, row(7, "z")), OTHERS, m.Insert(10, row(7, "z")))

    def apply() -> walreplay.RunReport:
        return small.apply(**SAID)

    def rebuild() -> walreplay.RunReport:
        return walreplay.rebuild(spark, small.captures, small.target, r"s\.or\ ders", config=SAID)

    def error_of(action: Callable[[], walreplay.RunReport]) -> WalReplayError | None:
        """Do something as a new program would; give the error that it ends with."""
        forget(spark)
        try:
            action()
        except WalReplayError as error:
            return error
        return None

    told: list[str] = []
    # A rebuild finds nothing wrong, or makes it right.
    for action in (apply, rebuild):
        error = error_of(action)
        while error is not None:
            # Whoever does what an error says comes to an end.
            told.append(str(error))
            assert len(told) < 5, told
            assert "or ders" in str(error)
            assert "SparkException" not in error.problem
            assert "rebuild" in str(error)
            away = re.search(r"[Mm]ove (\S.*?) away", error.remedy or "")
            if away is not None:
                shutil.move(away[1], tmp_path / f"aside{len(told)}")
            error = error_of(apply if "finishes this run" in str(error) else rebuild)
    small.write(ORDERS, m.Insert(9, row(8, "y")))
    assert error_of(apply) is None
    held = {name: sorted(map(tuple, collect(small.location(name), "id", "note"))) for name in ("or ders", "others")}
    assert held == {"or ders": [(0, "a"), (1, "z"), (2, "a"), (7, "z"), (8, "y")], "others": [(2, "b"), (7, "z")]}

"""What tables need is told by their files, or by their history where the files cannot be looked at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from walreplay.delta.commits import LoggedCommit
from walreplay.delta.upkeep import LEAST, SMALL, FilesOfTable, from_history, from_log, needs_of

MIB = 1 << 20


def test_a_log_tells_how_many_files_are_small_and_how_many_have_deletion_vectors() -> None:
    files = [(SMALL, False), (SMALL - 1, False), (1, True), (1, False)]
    assert from_log(files) == FilesOfTable(4, 2 * SMALL + 1, small=3, marked=1)


def commit(operation: str, metrics: dict[str, str]) -> LoggedCommit:
    return LoggedCommit(0, operation, metrics=metrics)


MERGED = commit(
    "MERGE", {"numTargetFilesAdded": "2", "numTargetBytesAdded": "100", "numTargetDeletionVectorsAdded": "3"}
)
LARGE = commit("WRITE", {"numFiles": "3", "numOutputBytes": str(300 * MIB)})
TOGETHER = commit("OPTIMIZE", {"numAddedFiles": "1", "numAddedBytes": "9"})
PURGED = commit("REORG", {"numAddedFiles": "1", "numAddedBytes": "9"})


@pytest.mark.parametrize(
    ("commits", "small", "marked"),
    [
        ([MERGED, MERGED, TOGETHER, MERGED], 4, 9),
        ([MERGED, PURGED, MERGED], 2, 3),
        ([LARGE, TOGETHER], 0, 0),
        ([TOGETHER, commit("VACUUM END", {}), MERGED], 0, 3),
        # A platform may leave out the bytes.
        ([commit("WRITE", {"numFiles": "3"}), TOGETHER], 3, 0),
        # Nothing was ever written together, so far as the history is read: the average counts.
        ([LARGE], 19, 0),
    ],
)
def test_a_history_tells_it_up_to_where_files_were_written_together(
    commits: Sequence[LoggedCommit], small: int, marked: int
) -> None:
    assert from_history(20, 100 * MIB, commits) == FilesOfTable(20, 100 * MIB, small, marked)


def test_no_history_tells_of_more_files_than_there_are() -> None:
    assert from_history(1, 10, [MERGED] * 30) == FilesOfTable(1, 10, 1, 1)


@pytest.mark.parametrize(
    ("files", "unreferenced", "actions"),
    [
        (FilesOfTable(LEAST - 1, 9, LEAST - 1, LEAST - 1), 0, []),
        (FilesOfTable(LEAST, 9, LEAST, 0), 0, ["optimize"]),
        (FilesOfTable(90, 9, 0, LEAST), 0, ["purge"]),
        (FilesOfTable(90, 9, LEAST, LEAST), 1, ["purge", "optimize", "vacuum"]),
        (FilesOfTable(0, 0, 0, 0), 1, ["vacuum"]),
    ],
)
def test_a_table_needs_what_it_has_enough_of(files: FilesOfTable, unreferenced: int, actions: list[str]) -> None:
    needs = needs_of(files, unreferenced)
    assert list(needs) == actions
    assert all("file" in reason for reason in needs.values())

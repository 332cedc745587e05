"""A version of a table counts only if its commit proves to be the one that a run has noted."""

from __future__ import annotations

import pytest

from walreplay.delta.commits import CommitId, LoggedCommit, RunId, proven


def made(version: int, plan: str, oid: int = 7, time: int = 0) -> LoggedCommit:
    return LoggedCommit(version, "MERGE", {}, CommitId("ledger", version, RunId(plan, 100, 1), oid), time)


def other(version: int, operation: str, time: int = 0, retention: int = 0) -> LoggedCommit:
    return LoggedCommit(version, operation, {"specifiedRetentionMillis": retention}, None, time)


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("commits", "version"),
    [
        ([made(3, "a"), made(4, "b")], 3),
        ([made(3, "b")], None),
        ([made(3, "a", oid=8)], None),
        ([made(4, "a")], None),
        ([other(3, "RESTORE")], None),
        ([made(2, "a"), other(3, "OPTIMIZE")], 3),
        ([made(2, "b"), other(3, "OPTIMIZE")], None),
        # RESTORE and others' changes behind it leave the version as it is.
        ([made(3, "a"), other(4, "DELETE"), other(5, "RESTORE")], 3),
        ([made(3, "a"), made(4, "b", time=HOUR), other(5, "VACUUM START", 2 * HOUR)], None),
        ([made(3, "a"), made(4, "b", time=HOUR), other(5, "VACUUM START", 2 * HOUR, 24 * HOUR)], 3),
        ([made(3, "a"), other(4, "OPTIMIZE", HOUR), other(5, "VACUUM START", 2 * HOUR)], 4),
        ([made(3, "a"), other(4, "VACUUM START", 2 * HOUR)], 3),
    ],
)
def test_a_version_is_read_if_its_commit_is_the_run_s_and_its_files_are_there(commits, version):
    found, reason = proven(commits, 3, "ledger", "a", 7)
    assert (found, bool(reason)) == (version, version is None)

"""What a table's log tells without Spark."""

import json

import pytest

from walreplay.sink.folders import MountedFolder
from walreplay.sink.table_log import commits_from, newest_version


def write(folder, version, *actions):
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def info(operation, **more):
    return {"commitInfo": {"operation": operation, **more}}


def test_the_newest_version_is_told_by_names(tmp_path):
    assert newest_version(MountedFolder(str(tmp_path))) == -1
    write(tmp_path, 0)
    write(tmp_path, 11)
    log = tmp_path / "_delta_log"
    for name in ("_last_checkpoint", ".00000000000000000099.json.crc", "00000000000000000098.crc", "_staged_commits"):
        (log / name).write_text("")
    assert newest_version(MountedFolder(str(tmp_path))) == 11
    (log / "00000000000000000012.checkpoint.0000000001.0000000002.parquet").write_text("")
    assert newest_version(MountedFolder(str(tmp_path))) == 12


@pytest.mark.parametrize(
    ("actions", "files", "metadata"),
    [
        ([{"add": {"path": "a", "dataChange": True}}], False, True),
        ([{"remove": {"path": "a", "dataChange": True}}], False, True),
        # Whoever leaves it out has changed something.
        ([{"add": {"path": "a"}}], False, True),
        ([{"add": {"path": "a", "dataChange": False}}, {"remove": {"path": "b", "dataChange": False}}], True, True),
        ([{"metaData": {"id": "x"}}], True, False),
        ([{"txn": {"appId": "x", "version": 1}}, {"protocol": {}}], True, True),
    ],
)
def test_a_commit_says_whether_it_has_changed_anything(tmp_path, actions, files, metadata):
    write(tmp_path, 3, info("WRITE", userMetadata="mine", operationParameters={"version": 1}), *actions)
    (commit,) = commits_from(MountedFolder(str(tmp_path)), 0, 5)
    assert (commit.version, commit.operation, commit.mark, commit.parameters) == (3, "WRITE", "mine", {"version": 1})
    assert (commit.keeps_files, commit.keeps_metadata) == (files, metadata)


def test_a_commit_that_says_nothing_of_itself_has_a_name_all_the_same(tmp_path):
    write(tmp_path, 0, {"add": {"path": "a", "dataChange": True}})
    (commit,) = commits_from(MountedFolder(str(tmp_path)), 0, 0)
    assert commit.operation == "a commit that does not say what it does"
    assert not commit.keeps_rows

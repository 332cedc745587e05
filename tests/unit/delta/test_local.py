"""Commits by delta-rs: made exactly once, refused where somebody else came first, and read back as they were."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from walreplay.delta.commits import CommitId
from walreplay.delta.data_files import DataFile, DataFileWriter
from walreplay.delta.local import (
    LOG,
    ConflictError,
    DamagedLogError,
    DroppedError,
    LeftToSpark,
    LocalTable,
    clear_leftovers,
    forget_tables,
    newest_version,
    sole_file,
)
from walreplay.session.folders import MountedFolder

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int32(), metadata={b"comment": b"integer"}),
        pa.field("note", pa.string()),
        pa.field("at", pa.timestamp("us")),
        pa.field("amount", pa.decimal128(12, 2)),
        pa.field("tags", pa.list_(pa.string())),
    ],
    metadata={b"comment": b"PostgreSQL table shop.orders"},
)


def rows(*ids: int) -> pa.RecordBatch:
    values = [{"id": id_, "note": f"note {id_}", "tags": ["a"]} for id_ in ids]
    return pa.RecordBatch.from_pylist(values, COLUMNS)


def written(table: LocalTable, *ids: int) -> DataFile:
    columns = table.columns(COLUMNS)
    assert columns is not None
    with DataFileWriter(table.folder, columns) as writer:
        writer.write(rows(*ids))
        file = writer.close()
    assert file is not None
    return file


def ids(folder: MountedFolder) -> list[int]:
    return sorted(DeltaTable(folder.path).to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def folder(tmp_path: Path) -> MountedFolder:
    return MountedFolder(str(tmp_path / "shop" / "the orders"))


def made(folder: MountedFolder, *ids: int, number: int = 1) -> LocalTable:
    table = LocalTable.new(folder, COLUMNS, {})
    assert table.commit([written(table, *ids)], CommitId("ledger", number)) == 0
    return LocalTable.open(folder)


def test_a_table_that_is_created_says_what_it_was_given(folder: MountedFolder) -> None:
    assert newest_version(folder) == -1
    table = made(folder, 1, 2)
    assert (table.version, table.obstacle) == (0, None)
    assert DeltaTable(folder.path).metadata().description == "PostgreSQL table shop.orders"
    assert [field["name"] for field in table.fields] == COLUMNS.names
    assert [field["type"] for field in table.fields][2:] == [
        "timestamp_ntz",
        "decimal(12,2)",
        {"type": "array", "elementType": "string", "containsNull": True},
    ]
    assert table.fields[0]["metadata"] == {"comment": "integer"}
    assert ids(folder) == [1, 2]
    assert table.columns(pa.schema([("id", pa.int64())])) is None
    (commit,) = table.history()
    assert commit.id == CommitId("ledger", 1)


@pytest.mark.parametrize("name", ["delta.columnMapping.mode", "mine"])
def test_what_delta_rs_cannot_create_is_left_to_spark(folder: MountedFolder, name: str) -> None:
    LocalTable.new(folder, COLUMNS, {"delta.feature.typeWidening": "name"})
    with pytest.raises(LeftToSpark, match=name):
        LocalTable.new(folder, COLUMNS, {name: "name"})


def test_a_commit_is_made_once(folder: MountedFolder) -> None:
    table = made(folder, 1)
    assert table.commit([written(table, 2)], CommitId("ledger", 2)) == 1
    # By one who does not know of it, and by one who does.
    assert table.commit([written(table, 2)], CommitId("ledger", 2)) is None
    assert LocalTable.open(folder).commit([written(table, 2)], CommitId("ledger", 2)) is None
    assert LocalTable.open(folder).commit([written(table, 3)], CommitId("ledger", 1)) is None
    assert ids(folder) == [1, 2]
    assert LocalTable.open(folder).commit([written(table, 4)], CommitId("another", 1)) == 2
    assert ids(folder) == [1, 2, 4]


def test_files_take_the_place_of_others_if_nobody_came_in_between(folder: MountedFolder) -> None:
    table = made(folder, 1, 2)
    table.commit([written(table, 3)], CommitId("ledger", 2))
    table = LocalTable.open(folder)
    late = LocalTable.open(folder)
    first = [file for file in table.files if file.size == max(one.size for one in table.files)][:1]
    assert first[0].name is not None
    assert table.commit([written(table, 9)], CommitId("ledger", 3), instead_of=first, metrics={"n": 5}) == 2
    left = ids(folder)
    assert 9 in left
    assert len(left) < 4
    with pytest.raises(ConflictError):
        late.commit([written(late, 10)], CommitId("ledger", 4), instead_of=late.files)
    assert ids(folder) == left
    info = json.loads(Path(folder.path, LOG, f"{2:020}.json").read_text().splitlines()[0])["commitInfo"]
    assert info["operationMetrics"] == {"n": "5"}


def test_two_cannot_create_one_table(folder: MountedFolder) -> None:
    one, other = (LocalTable.new(folder, COLUMNS, {}) for _ in range(2))
    assert one.commit([written(one, 1)], CommitId("one", 1)) == 0
    with pytest.raises(ConflictError):
        other.commit([written(other, 2)], CommitId("other", 1))
    assert ids(folder) == [1]


def test_an_append_follows_what_keeps_the_columns(folder: MountedFolder) -> None:
    table = made(folder, 1)
    table.commit([written(table, 2)])
    DeltaTable(folder.path).optimize.compact()
    assert table.commit([written(table, 3)], CommitId("ledger", 2)) == 3
    assert ids(folder) == [1, 2, 3]
    DeltaTable(folder.path).alter.add_columns([Field("more", PrimitiveType("string"))])
    with pytest.raises(ConflictError):
        table.commit([written(table, 4)], CommitId("ledger", 3))
    assert ids(folder) == [1, 2, 3]


def _say(folder: MountedFolder, protocol: dict[str, Any], metadata: dict[str, Any]) -> None:
    """Commit what Spark's ALTER TABLE says of a table, and no column of it."""
    log = Path(folder.path, LOG)
    of_first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    (before,) = (one["metaData"] for one in of_first if "metaData" in one)
    lines = [json.dumps(one) for one in ({"protocol": protocol}, {"metaData": before | metadata})]
    (log / f"{newest_version(folder) + 1:020}.json").write_text("\n".join(lines))


_PLAIN = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"]}
_MEANWHILE = {
    "a constraint": (["timestampNtz", "checkConstraints"], {"configuration": {"delta.constraints.few": "id < 3"}}),
    "a feature": (["timestampNtz", "domainMetadata", "clustering"], {}),
    "partitions": (["timestampNtz"], {"partitionColumns": ["id"]}),
}


@pytest.mark.parametrize("what", _MEANWHILE)
def test_an_append_does_not_follow_what_only_spark_can_write_to(folder: MountedFolder, what: str) -> None:
    table = made(folder, 1)
    features, metadata = _MEANWHILE[what]
    _say(folder, {**_PLAIN, "writerFeatures": features}, metadata)
    with pytest.raises(ConflictError, match="committed version 1") as caught:
        table.commit([written(table, 4)], CommitId("ledger", 2))
    assert caught.value.path == folder.uri
    assert caught.value.remedy is not None
    assert newest_version(folder) == 1


@pytest.mark.parametrize("how", ["appended", "rewritten", "recreated"])
def test_a_table_that_was_dropped_is_not_begun_in_its_middle(folder: MountedFolder, how: str) -> None:
    table = made(folder, 1)
    added, files = [written(table, 2)], table.files
    shutil.rmtree(folder.path)
    if how == "recreated":
        made(folder, 9)
    with pytest.raises(DroppedError) as caught:
        table.commit(added, CommitId("ledger", 2), instead_of=files if how == "rewritten" else None)
    assert (caught.value.path, newest_version(folder)) == (folder.uri, 0 if how == "recreated" else -1)


def test_a_commit_whose_answer_was_lost_is_known_again(folder: MountedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(folder, 1)
    make = LocalTable._write_commit

    def lose(self: LocalTable, *arguments: object) -> None:
        make(self, *arguments)  # type: ignore[arg-type]
        raise CommitFailedError("it is there already")

    monkeypatch.setattr(LocalTable, "_write_commit", lose)
    assert table.commit([written(table, 2)], CommitId("ledger", 2)) == 1
    assert ids(folder) == [1, 2]


def test_every_tenth_version_has_a_checkpoint(folder: MountedFolder) -> None:
    table = made(folder, 1)
    for number in range(2, 14):
        assert table.commit([written(table, number)], CommitId("ledger", number)) == number - 1
        table = LocalTable.open(folder)
    names = {path.name for path in Path(folder.path, LOG).iterdir()}
    assert f"{10:020}.checkpoint.parquet" in names
    assert ids(folder) == list(range(1, 14))
    assert [commit.version for commit in table.history(3)] == [12, 11, 10]


@pytest.mark.parametrize("harm", ["torn", "missing", "empty", "without a beginning"])
def test_a_damaged_log_is_told(folder: MountedFolder, harm: str) -> None:
    table = made(folder, 1)
    for number in (2, 3):
        table.commit([written(table, number)], CommitId("ledger", number))
        table = LocalTable.open(folder)
    path = Path(folder.path, LOG, f"{0 if harm == 'without a beginning' else 1:020}.json")
    data = path.read_bytes()
    if harm in {"missing", "without a beginning"}:
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if harm == "torn" else b"")
    forget_tables()
    with pytest.raises(DamagedLogError, match=LOG):
        LocalTable.open(folder)


def test_what_a_crash_has_left_of_a_commit_is_removed(folder: MountedFolder) -> None:
    table, log = made(folder, 1), Path(folder.path, LOG)
    left = f"{1:020}.crc", f".{1:020}.json.crc"
    at_work = f".{1:020}.json.0-1.tmp"
    for name in (*left, at_work, f"{0:020}.crc"):
        (log / name).write_text("left")
    clear_leftovers(folder, checksums_only=True)
    assert {path.name for path in log.iterdir()} == {f"{0:020}.json", f"{0:020}.crc", at_work}
    (log / f"{0:020}.crc").unlink()
    clear_leftovers(folder)
    assert not (log / at_work).exists()
    assert table.commit([written(table, 2)], CommitId("ledger", 2)) == 1
    assert ids(folder) == [1, 2]


def test_what_is_open_is_not_taken_for_what_comes_in_its_place(folder: MountedFolder) -> None:
    """A table is opened once as long as its log's newest version is the same file."""
    first = made(folder, 1)
    again, own = LocalTable.open(folder), LocalTable.open(folder, use_cache=False)
    assert again._table is LocalTable.open(folder)._table
    assert own._table is not again._table
    assert own.commit([written(own, 2)], CommitId("ledger", 2)) == 1
    followed = own.followed(1)
    assert followed is not None
    assert len(followed.files) == 2
    assert again.version == first.version == 0
    with pytest.raises(ConflictError):
        again.commit([written(again, 3)], CommitId("ledger", 3), instead_of=again.files)
    shutil.rmtree(folder.path)
    made(folder, 7)
    assert ids(folder) == [7]
    assert LocalTable.open(folder).version == 0


def test_a_table_s_only_file_is_named_by_its_newest_commit(folder: MountedFolder) -> None:
    table = made(folder, 1)
    assert sole_file(folder, 0) == table.files[0].name
    assert table.commit([written(table, 2)], CommitId("ledger", 2)) == 1
    assert sole_file(folder, 1) is None
    table = LocalTable.open(folder)
    assert table.commit([written(table, 3)], CommitId("ledger", 3), instead_of=table.files) == 2
    (file,) = LocalTable.open(folder).files
    assert sole_file(folder, 2) == file.name
    assert sole_file(folder, 3) is None


def test_files_that_no_version_needs_are_counted_without_spark(folder: MountedFolder) -> None:
    table = made(folder, 1)
    kept = written(table, 2)
    old = time.time() - 30 * 86_400
    for name, age in (("old.parquet", old), ("new.parquet", None), (".old.parquet.crc", old), ("in/old.parquet", old)):
        path = Path(folder.path, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, None if age is None else (age, age))
    # Written by a task that is still at work, so it is young; and one that the table has, however old.
    os.utime(Path(folder.path, table.files[0].path), (old, old))
    assert Path(folder.path, kept.name).exists()
    assert LocalTable.open(folder).unreferenced() == 2


@pytest.mark.parametrize("name", ["deletion_vector_1.bin", "x/deletion_vector_1.bin"])
def test_of_deletion_vectors_spark_alone_knows_whether_they_are_needed(folder: MountedFolder, name: str) -> None:
    made(folder, 1)
    path = Path(folder.path, name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (1, 1))
    assert LocalTable.open(folder).unreferenced() is None


@pytest.mark.parametrize(
    ("retention", "count"),
    [("interval 0 seconds", 1), ("interval 3 days", 0), ("interval 1 hours", 1), ("interval 1 day 2 hours", None)],
)
def test_the_retention_of_the_table_counts(folder: MountedFolder, retention: str, count: int | None) -> None:
    table = LocalTable.new(folder, COLUMNS, {"delta.deletedFileRetentionDuration": retention})
    table.commit([written(table, 1)])
    day = time.time() - 86_400
    path = Path(folder.path, "orphan.parquet")
    path.write_bytes(b"x")
    os.utime(path, (day, day))
    assert LocalTable.open(folder).unreferenced() == count


def test_removed_files_that_are_gone_are_not_counted_though_the_log_names_them(folder: MountedFolder) -> None:
    new = LocalTable.new(folder, COLUMNS, {"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    new.commit([written(new, 1)])
    table = LocalTable.open(folder)
    (first,) = table.files
    table.commit([written(table, 2)], instead_of=[first])
    assert LocalTable.open(folder, use_cache=False).unreferenced() == 1
    Path(folder.path, first.path).unlink()
    assert LocalTable.open(folder, use_cache=False).unreferenced() == 0

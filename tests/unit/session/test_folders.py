"""Folders that are mounted, and prefixes of an object store, do the same."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.object_store import KEYS, ObjectStore, object_store
from walreplay.session import folders
from walreplay.session.folders import _FILE_CACHE, WHOLE, Folder, MountedFolder, StoreFolder, forget_files, reason_of


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 with a bucket."""
    with object_store(tmp_path_factory.mktemp("store")) as served:
        served.make_bucket("lake")
        yield served


def in_store(served: ObjectStore, path: str, bucket: str = "lake") -> StoreFolder:
    """Return a prefix in the tests' store."""
    options = (
        ("access_key", KEYS["access"]),
        ("secret_key", KEYS["secret"]),
        ("region", "us-east-1"),
        ("scheme", "http"),
        ("endpoint_override", served.endpoint.removeprefix("http://")),
    )
    return StoreFolder("s3a", bucket, f"{bucket}/{path}", "S3FileSystem", options)


@pytest.fixture(params=["mounted", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder of each kind."""
    if request.param == "mounted":
        return MountedFolder(str(tmp_path / "here"))
    return in_store(request.getfixturevalue("store"), tmp_path.name)


def _written(folder: Folder, name: str, data: bytes) -> bytes:
    folder.make()
    with folder.create(name) as file:
        file.write(data)
    return data


def test_what_is_written_is_read(folder: Folder) -> None:
    small, large = _written(folder, "small", b"abc"), _written(folder, "large", bytes(range(256)) * 8192)
    assert len(large) > WHOLE
    assert folder.read("small") == small
    for name, data in (("small", small), ("large", large)):
        with folder.open(name) as file:
            assert file.size() == len(data)
            file.seek(1)
            assert file.read(2) == data[1:3]
            assert file.read_at(2, len(data) - 2) == data[-2:]
    folder.put("small", b"another")
    assert sorted(folder.names()) == ["large", "small"]


def test_what_is_not_there_is_said_to_be_so(folder: Folder) -> None:
    assert folder.names() == []
    assert folder.changed_at("inside") is None
    for read in (folder.read, folder.open):
        with pytest.raises(FileNotFoundError):
            read("none")
    folder.delete("none")
    folder.delete_all()
    folder.delete_empty()


def test_a_folder_is_deleted_with_all_in_it_and_no_other(folder: Folder) -> None:
    inside, beside = folder.inside("a/b"), folder.inside("a/bc")
    _written(inside, "one", b"1")
    _written(inside.inside("deep"), "two", b"2")
    _written(beside, "three", b"3")
    assert sorted(folder.inside("a").names()) == ["b", "bc"]
    changed = folder.inside("a").changed_at("b")
    assert changed is not None
    assert changed > 1e9
    inside.delete_all()
    assert inside.names() == []
    assert beside.read("three") == b"3"
    beside.delete("three")
    beside.delete_empty()
    assert beside.names() == []


def test_a_folder_goes_to_workers(folder: Folder) -> None:
    _written(folder, "one", b"1")
    assert pickle.loads(pickle.dumps(folder)).read("one") == b"1"


def test_places_are_as_spark_names_them() -> None:
    assert MountedFolder("/lake/t").uri == "file:/lake/t"
    store = StoreFolder("abfss", "box@account.dfs.core.windows.net", "box/lake", "AzureFileSystem", ())
    assert store.inside("t").uri == "abfss://box@account.dfs.core.windows.net/lake/t"
    assert StoreFolder("s3a", "lake", "lake", "S3FileSystem", ()).uri == "s3a://lake"


def test_keys_are_not_shown(store: ObjectStore) -> None:
    assert KEYS["secret"] not in repr(in_store(store, "t"))


def test_what_a_store_refuses_is_told_in_its_words(store: ObjectStore) -> None:
    with pytest.raises(OSError, match="ACCESS_DENIED") as refused:
        in_store(store, "t", "closed").put("x", b"")
    assert reason_of(refused.value) == "ACCESS_DENIED"
    short = "AWS Error INTERNAL_FAILURE during GetObject operation: Failed to flush response stream (eof: 0, bad: 1)"
    assert reason_of(OSError(short)) == "the store has refused to send it"
    assert reason_of(OSError("something about a value")) == "an error of the file system"
    assert reason_of(OSError(28, "whatever")) == "No space left on device"


def test_a_small_file_costs_one_request_to_write_and_two_to_read_however_often(store: ObjectStore) -> None:
    folder = in_store(store, "requests")
    with store.counted() as counts:
        _written(folder, "one", b"1")
        for _ in range(3):
            assert folder.read("one") == b"1"
    assert counts == {
        "PUT /lake/requests/one": 1,
        "HEAD /lake/requests/one": 1,
        "GET /lake/requests/one": 1,
    }


def test_what_is_kept_is_not_given_once_it_is_replaced_or_gone(store: ObjectStore) -> None:
    folder = in_store(store, "again")
    for data in (b"one", b"two"):
        folder.put("x", data)
        assert folder.read("x") == data
    folder.delete("x")
    with pytest.raises(FileNotFoundError):
        folder.read("x")
    folder.put("x", b"three")
    assert folder.read("x") == b"three"
    folder.inside("").delete_all()
    with pytest.raises(FileNotFoundError):
        folder.read("x")


def test_what_somebody_else_has_put_in_place_is_read_after_forgetting(store: ObjectStore) -> None:
    folder = in_store(store, "others")
    folder.put("00000000000000000000.json", b"of one table")
    assert folder.read("00000000000000000000.json") == b"of one table"
    elsewhere = replace(folder, options=(*folder.options, ("session_name", "of somebody else")))
    elsewhere.put("00000000000000000000.json", b"of another")
    forget_files(folder.inside("deeper"))
    assert folder.read("00000000000000000000.json") == b"of one table"
    forget_files(in_store(store, "others"))
    assert folder.read("00000000000000000000.json") == b"of another"
    elsewhere.put("00000000000000000000.json", b"of a third")
    forget_files()
    assert folder.read("00000000000000000000.json") == b"of a third"


def test_no_more_than_some_files_are_kept(store: ObjectStore) -> None:
    folder = in_store(store, "many")
    for number in range(40):
        folder.put(str(number), b"%d" % number)
        assert folder.read(str(number)) == b"%d" % number
    assert len(_FILE_CACHE._values) <= 16


def test_an_arrow_that_cannot_delay_opening_is_used_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's client can since version 21, and 18 is enough for all else."""
    made: list[dict[str, object]] = []

    def client(**arguments: object) -> object:
        if "allow_delayed_open" in arguments:
            raise TypeError("__init__() got an unexpected keyword argument 'allow_delayed_open'")
        made.append(arguments)
        return arguments

    monkeypatch.setattr("pyarrow.fs.S3FileSystem", client)
    folders._client.cache_clear()
    try:
        assert folders._client("S3FileSystem", (("region", "old"),)) == made[0]
        assert made[0]["region"] == "old"
    finally:
        folders._client.cache_clear()

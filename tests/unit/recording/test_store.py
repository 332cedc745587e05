"""Places of archives: folders, and what their URIs show."""

from __future__ import annotations

from pathlib import Path

import pytest

from walreplay.errors import ConfigError, OrderError
from walreplay.recording.store import store_at


def test_a_folder_has_files_under_their_names_alone(tmp_path: Path) -> None:
    store = store_at(f"file://{tmp_path}/new folder/ä%20b")
    store.put("a.zst", b"one")
    store.put("_recorded/1.json", b"two")
    store.put("a.zst", b"one")
    folder = tmp_path / "new folder" / "ä%20b"
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["1.json", "a.zst"]
    assert (folder / "a.zst").read_bytes() == b"one"  # its name does not have it compressed once more
    assert (store.read("a.zst"), store.read("b"), store.names("_recorded")) == (b"one", None, ["1.json"])
    with pytest.raises(OrderError, match="other bytes"):
        store.put("a.zst", b"other")


def test_a_file_system_without_links_is_written_by_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    store = store_at(str(tmp_path))
    store.put("a", b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket/place?region=us-east-1&endpoint_override=store:9000", "s3://bucket/place"),
        ("s3a://bucket/place/?region=us-east-1", "s3a://bucket/place"),
        ("s3://AKIA:se%2Fcret@bucket/place?region=us-east-1", "s3://bucket/place"),
    ],
)
def test_keys_of_a_place_are_not_shown(uri: str, shown: str) -> None:
    assert store_at(uri).shown == shown


def test_a_place_that_nothing_reaches_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing here reaches"):
        store_at("ftp://user:secret@host/place")

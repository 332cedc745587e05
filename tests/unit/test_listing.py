import gzip

import pytest

from wal2delta.errors import ConfigError
from wal2delta.listing import list_files, map_file, natural_order


def test_ten_comes_after_nine():
    assert natural_order(["p10", "p9", "p1"]) == ["p1", "p9", "p10"]


def test_numbers_compare_as_numbers_wherever_they_stand():
    paths = ["2026-11-20/part10.bin", "2026-11-20/part2.bin", "2026-9-1/part99.bin"]
    assert natural_order(paths) == ["2026-9-1/part99.bin", "2026-11-20/part2.bin", "2026-11-20/part10.bin"]


def test_an_order_is_definite_even_where_numbers_are_equal():
    assert natural_order(["a01", "a1", "a001"]) == natural_order(["a001", "a01", "a1"])


def test_folders_give_their_visible_files_in_order(tmp_path):
    for name in ("b10", "b9", ".hidden", "_temporary/x", "sub/a1"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    found = [path.removeprefix(f"{tmp_path}/") for path in list_files(tmp_path)]
    assert found == ["b9", "b10", "sub/a1"]


def test_files_that_are_named_keep_their_order(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).write_bytes(b"")
    assert list_files([tmp_path / "b", tmp_path / "a"]) == [str(tmp_path / "b"), str(tmp_path / "a")]


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file or folder") as caught:
        list_files(tmp_path / "nowhere")
    assert "nowhere" in str(caught.value)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="there are no files"):
        list_files(tmp_path)


def test_an_empty_file_can_be_mapped(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "some").write_bytes(gzip.compress(b"x"))
    assert bytes(map_file(str(tmp_path / "empty"))) == b""
    assert gzip.decompress(map_file(str(tmp_path / "some"))) == b"x"

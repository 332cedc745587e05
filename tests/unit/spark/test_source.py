import os
from pathlib import Path

import pytest

from walreplay.config import Settings
from walreplay.errors import ConfigError
from walreplay.spark.captures import _refuse_unread_names


@pytest.mark.parametrize("name", [b"\xff.bin", b"ab\xc3", b"\x1b[31m\xff", "\xe9".encode("latin-1")])
def test_a_file_that_spark_would_not_list_is_refused_by_its_name(tmp_path, name):
    place = tmp_path / os.fsdecode(name)
    place.touch()
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        _refuse_unread_names(str(tmp_path), Settings())
    assert caught.value.path == str(place)
    assert str(caught.value).isprintable()
    assert "\\udc" in str(caught.value)
    # The remedy.
    place.rename(tmp_path / "renamed.bin")
    _refuse_unread_names(str(tmp_path), Settings())


def test_files_that_are_not_read_may_be_called_anything(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in (b"_\xff", b".\xff", b"a\xff.txt", b"inner/\xff.bin"):
        Path(tmp_path, os.fsdecode(name)).touch()
    _refuse_unread_names(str(tmp_path), Settings(file_pattern="*.dat"))
    with pytest.raises(ConfigError, match="inner"):
        _refuse_unread_names(str(tmp_path), Settings(file_pattern="*.bin"))
    _refuse_unread_names("s3a://bucket/captures", Settings())

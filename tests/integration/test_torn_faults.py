"""Streams that break or are damaged where a reader may take it for something else."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.fault_cases import FAULTS, assert_fault_mended, fault_case
from walreplay.errors import CaptureError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FULL, _BLOCK = 24_576, 4_096
"""Where the disk of the recorder was full first, and how much of it was free each time that it tried again."""

_FLIPPED = 27_305
_NEAR = 500


@pytest.mark.integration
def test_a_stream_that_breaks_inside_a_frames_own_header_is_read_rightly(spark: SparkSession, tmp_path: Path) -> None:
    name = "torn_frame_header"
    walreplay.apply(spark, captures=fault_case(name).folder, target=tmp_path / "mirror")
    assert_fault_mended(spark, tmp_path / "mirror", name)


@pytest.mark.parametrize("again", [0, 1, 30, 300])
def test_a_recorder_on_a_full_disk_may_try_as_often_as_it_likes(tmp_path: Path, again: int) -> None:
    data = (FAULTS / "full_disk" / "capture" / "stream.bin").read_bytes()
    session = data[_FULL + _BLOCK : _FULL + 2 * _BLOCK]
    (tmp_path / "stream.bin").write_bytes(data[: _FULL + _BLOCK] + session * again + data[_FULL + _BLOCK :])
    batches = [batch.data for batch in walreplay.read_changes(tmp_path)]
    assert [id_ for data in batches for id_ in data.column("id").to_pylist()] == list(range(1, 44))
    bodies = [body for data in batches for body in data.column("body").to_pylist()]
    assert [int(body[:6]) for body in bodies] == list(range(1, 44))


@pytest.mark.integration
def test_damage_that_looks_like_an_unfinished_message_stops_the_run_before_a_table_is_touched(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(CaptureError) as raised:
        walreplay.apply(spark, captures=FAULTS / "damaged_waits" / "capture", target=tmp_path / "mirror")
    assert raised.value.offset is not None
    assert abs(raised.value.offset - _FLIPPED) < _NEAR
    assert not (tmp_path / "mirror" / "public").exists()


@pytest.mark.parametrize("behind", [b"B", b"B" + bytes(20), b"\n" * 40])
def test_the_damaged_file_is_named_not_the_one_behind_it(tmp_path: Path, behind: bytes) -> None:
    damaged = tmp_path / "1.bin"
    shutil.copy(FAULTS / "damaged_waits" / "capture" / "stream.bin", damaged)
    (tmp_path / "2.bin").write_bytes(behind)
    with pytest.raises(CaptureError) as raised:
        list(walreplay.read_changes(tmp_path))
    assert raised.value.path == str(damaged)


@pytest.mark.integration
def test_hostile_bytes_end_soon_without_a_row(spark: SparkSession, tmp_path: Path) -> None:
    soup = FAULTS / "parse_soup" / "capture"
    began = time.process_time()
    with suppress(CaptureError):
        assert list(walreplay.read_changes(soup)) == []
    assert time.process_time() - began < 5
    with pytest.raises(CaptureError):
        walreplay.apply(spark, captures=soup, target=tmp_path / "mirror")

"""A worker's process is prepared once, and a driver's is left alone."""

from __future__ import annotations

import gc
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from walreplay.listing import map_file
from walreplay.spark.workers import process as worker_process
from walreplay.spark.workers.process import release_pages
from walreplay.spark.workers.scan import scan_batches


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Stand in for a process in which no task has run yet."""
    worker_process._freeze.cache_clear()
    yield lambda context: monkeypatch.setattr("pyspark.TaskContext.get", lambda: context)
    gc.unfreeze()
    worker_process._freeze.cache_clear()


@pytest.mark.parametrize(("context", "is_worker"), [(None, False), ("a task's", True)])
def test_only_a_worker_is_prepared(
    monkeypatch: pytest.MonkeyPatch, process: Callable[[Any], None], context: str | None, is_worker: bool
) -> None:
    process(context)
    main = lambda infile, outfile: None  # noqa: E731
    worker = _worker(main)
    monkeypatch.setitem(worker_process.sys.modules, "pyspark.worker", worker)
    list(scan_batches([], tasks={}))
    assert (gc.get_freeze_count() > 0) == is_worker
    prepared = worker.main
    assert (prepared is not main) == is_worker
    list(scan_batches([], tasks={}))
    assert worker.main is prepared


def test_what_is_imported_behind_the_first_task_is_frozen_at_the_next(
    monkeypatch: pytest.MonkeyPatch, process: Callable[[Any], None]
) -> None:
    process("a task's")
    list(scan_batches([], tasks={}))
    later = ModuleType("later")
    later.objects = [[] for _ in range(100)]  # type: ignore[attr-defined]
    frozen = gc.get_freeze_count()
    list(scan_batches([], tasks={}))
    assert gc.get_freeze_count() <= frozen  # nothing was imported, so the collector sees what a task leaves behind
    monkeypatch.setitem(worker_process.sys.modules, "later", later)
    list(scan_batches([], tasks={}))
    assert gc.get_freeze_count() > frozen + 100


def _worker(main: Callable[..., None]) -> ModuleType:
    worker = ModuleType("pyspark.worker")
    worker.main = main  # type: ignore[attr-defined]
    return worker


class _Ended(Exception):
    pass


def _end(code: int) -> None:
    raise _Ended(code)


class _Reset(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        raise ConnectionResetError


@pytest.mark.parametrize("infile", [io.BytesIO(b""), _Reset()], ids=["closed", "reset"])
def test_a_worker_that_spark_lets_go_of_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch, infile: io.RawIOBase
) -> None:
    monkeypatch.setattr(worker_process.os, "_exit", _end)
    tasks: list[bytes] = []
    worker = _worker(lambda infile, outfile: tasks.append(infile.read(4)))
    worker_process.end_quietly(worker)
    worker.main(io.BufferedReader(io.BytesIO(b"task")), None)
    assert tasks == [b"task"]
    with pytest.raises(_Ended, match="0"):
        worker.main(io.BufferedReader(infile), None)
    assert tasks == [b"task"]


def _resident_file_pages() -> int:
    (line,) = (text for text in Path("/proc/self/status").read_text().splitlines() if text.startswith("RssFile"))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what is resident")
def test_a_mapped_files_pages_can_be_let_go_and_read_again(tmp_path):
    size = 64 << 20
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(256)) * (size // 256))
    content = map_file(str(path))
    digest = zlib.crc32(content)
    before = _resident_file_pages()
    release_pages(content)
    assert before - _resident_file_pages() > size // 2
    assert zlib.crc32(content) == digest


def test_bytes_that_are_not_mapped_are_left_alone(tmp_path):
    (tmp_path / "empty.bin").write_bytes(b"")
    for content in (memoryview(b"abc"), map_file(str(tmp_path / "empty.bin"))):
        before = bytes(content)
        release_pages(content)
        assert bytes(content) == before

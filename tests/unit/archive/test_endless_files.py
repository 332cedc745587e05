"""Pipes, sockets and devices named as captures, or lying among them, give one error at once."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from support.captures import case
from support.command import run_walreplay
from walreplay import read_changes
from walreplay.archive.messages import inspect_captures, transcribe
from walreplay.errors import ConfigError
from walreplay.listing import refuse_endless

READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "read_changes": lambda paths: list(read_changes(paths)),
    "inspect": inspect_captures,
    "inspect --messages": lambda paths: list(transcribe(paths)),
}


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_socket(path: Path) -> None:
    # A socket's path may not be long.
    with tempfile.TemporaryDirectory() as folder:
        short = Path(folder, "s")
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(short))
            short.rename(path)


KINDS: Final = {"pipe": make_pipe, "device": make_device, "socket": make_socket}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused_by_name(tmp_path: Path, kind: str, reader: str) -> None:
    path = tmp_path / "captures" / "deep" / "0001.bin"
    path.parent.mkdir(parents=True)
    KINDS[kind](path)
    (tmp_path / "captures" / "0002.bin").write_bytes(case("o01").files[0].read_bytes())
    for given in (path, path.parent, tmp_path / "captures", [tmp_path / "captures" / "0002.bin", path]):
        with pytest.raises(ConfigError, match=f"a {kind} is no capture file") as caught:
            READERS[reader](given)
        assert caught.value.path == str(path)


def test_dev_zero_itself_is_refused() -> None:
    for read in READERS.values():
        with pytest.raises(ConfigError, match="a device is no capture file"):
            read("/dev/zero")


def test_hidden_ones_and_links_to_nothing_are_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    os.mkfifo(tmp_path / "_pipe")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "0001.bin").write_bytes(case("o01").files[0].read_bytes())
    assert list(read_changes(tmp_path))


def test_a_pipe_that_the_configuration_leaves_out_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "control")
    refuse_endless(tmp_path, pattern="*.bin")
    (tmp_path / "deep").mkdir()
    os.mkfifo(tmp_path / "deep" / "0001.bin")
    with pytest.raises(ConfigError, match="deep"):
        refuse_endless(tmp_path, pattern="*.bin")


def test_the_command_says_so_in_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    outcome = run_walreplay("inspect", tmp_path / "pipe", scratch=tmp_path)
    assert outcome.exit_code == 2
    assert outcome.stderr.splitlines() == [
        f"error: {tmp_path}/pipe: a pipe is no capture file: its bytes cannot be read a second time. "
        "Write what it gives to a file, and leave it out of the captures' folder"
    ]


@pytest.mark.parametrize("reader", READERS)
def test_a_link_that_leads_to_itself_is_named(tmp_path: Path, reader: str) -> None:
    (tmp_path / "1.bin").write_bytes(case("o01").files[0].read_bytes())
    (tmp_path / "2.bin").symlink_to(tmp_path / "2.bin")
    with pytest.raises(ConfigError) as caught:
        READERS[reader](tmp_path)
    assert caught.value.path == str(tmp_path / "2.bin")

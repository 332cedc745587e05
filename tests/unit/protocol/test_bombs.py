"""Little that becomes much: the limit holds at every step, and memory does not grow with what would come out."""

from __future__ import annotations

import bz2
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

import lz4.frame
import pytest
import zstandard

from support.extent import further

MIB: Final = 1 << 20
ZEROS: Final = bytes(MIB)
LIMIT_MIB: Final = 250
"""What the tests let come out: less than a file may have, so that they take no minutes."""

ROOM_MIB: Final = 150
"""Memory that a refused file may take, beside what the process has before."""

MOST: Final = """
def most():
    # What getrusage tells is that of the parent, if it was larger.
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))
"""

MEASURE: Final = f"""{MOST}
import sys
from pathlib import Path
import pyarrow
from walreplay.errors import CaptureError
from walreplay.protocol.compression import decompress

data, limit = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
before = most()
try:
    decompress(data, limit=limit)
except CaptureError as error:
    print(error)
print(most() - before)
"""


def zeros(mebibytes: int) -> Iterator[bytes]:
    return (ZEROS for _ in range(mebibytes))


@cache
def gzip_of(mebibytes: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join(map(packer.compress, zeros(mebibytes))) + packer.flush()


@cache
def bz2_of(mebibytes: int) -> bytes:
    packer = bz2.BZ2Compressor(9)
    return b"".join(map(packer.compress, zeros(mebibytes))) + packer.flush()


@cache
def zstd_of(mebibytes: int) -> bytes:
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join(map(packer.compress, zeros(mebibytes))) + packer.flush()


@cache
def lz4_of(mebibytes: int) -> bytes:
    packer = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    return packer.begin() + b"".join(map(packer.compress, zeros(mebibytes))) + packer.flush()


PACK: Final[dict[str, Callable[[int], bytes]]] = {"gzip": gzip_of, "bz2": bz2_of, "zstd": zstd_of, "lz4": lz4_of}
SHAPES: Final[dict[str, Callable[[Callable[[int], bytes]], bytes]]] = {
    "one member": lambda pack: pack(LIMIT_MIB + 100),
    "two members": lambda pack: pack(LIMIT_MIB // 2 + 50) * 2,
    "many members": lambda pack: pack(1) * (LIMIT_MIB + 100),
    "a small member in front": lambda pack: pack(1) + pack(LIMIT_MIB + 100),
    "cut": lambda pack: pack(LIMIT_MIB + 100)[:-8],
}


def measured(path: Path, limit: int) -> tuple[str, int]:
    """Decompress a file in a process of its own; give what it says, and how many MiB it took."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", MEASURE, str(path), str(limit)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    *said, took = done.stdout.splitlines()
    return "\n".join(said), int(took)


@pytest.mark.parametrize(
    ("compression", "shape"),
    further(product(PACK, SHAPES), but=[*product(("gzip", "zstd", "lz4"), SHAPES), ("bz2", "one member")]),
)
def test_the_limit_is_told_before_memory_is_taken(tmp_path: Path, compression: str, shape: str) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(SHAPES[shape](PACK[compression]))
    said, took = measured(bomb, LIMIT_MIB * MIB)
    assert f"the {compression} data decompress to more than {LIMIT_MIB * MIB:,} bytes" in said
    assert "split" in said
    assert took < ROOM_MIB


@pytest.mark.parametrize("compression", further(PACK, but=("gzip", "zstd", "lz4")))
def test_much_that_is_within_the_limit_is_given(tmp_path: Path, compression: str) -> None:
    """What is counted first, as bombs are, comes out all the same."""
    packed = tmp_path / "packed"
    packed.write_bytes(PACK[compression](200))
    said, took = measured(packed, 200 * MIB)
    assert said == ""
    assert took > 200 - 1


def test_three_gigabytes_of_zeros_are_refused_with_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "bomb.zst").write_bytes(zstd_of(3000))
    script = (
        f"{MOST}\nimport sys\n"
        "from walreplay import read_changes\n"
        "try:\n    list(read_changes(sys.argv[1]))\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
        "print(most())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    said, most = done.stdout.splitlines()
    assert said.startswith(f"CaptureError {tmp_path}/bomb.zst: the zstd data decompress to more than 2,147,483,647")
    assert int(most) < 600

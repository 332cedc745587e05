"""A compressed file that has a checksum of its own proves itself: no flipped bit gives other content."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from io import BytesIO

import lz4.frame
import pytest
import zstandard

from support.captures import case
from walreplay.decode.files import ScanTask, scan_file
from walreplay.errors import CaptureError
from walreplay.protocol.opening import open_file

CONTENT = b"".join(case("o03").streams())[:1000]


def gzipped(content: bytes) -> bytes:
    stored = BytesIO()
    with gzip.GzipFile("cap.0001", "wb", mtime=5, fileobj=stored) as file:
        file.write(content)
    return stored.getvalue()


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzipped,
    "gzip, two members": lambda content: gzipped(content[:500]) + gzipped(content[500:]),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "lz4": lambda content: lz4.frame.compress(content, content_checksum=True),
    "bz2": bz2.compress,
}


@pytest.mark.parametrize("form", FORMS)
def test_no_flipped_bit_gives_other_content(form: str) -> None:
    stored, same = FORMS[form](CONTENT), set[int]()
    for at in range(8 * len(stored)):
        flipped = bytearray(stored)
        flipped[at // 8] ^= 1 << at % 8
        try:
            content = open_file(bytes(flipped))
            # Without the first bytes that tell of compression it is no capture.
            scan_file("file", bytes(flipped), ScanTask(first=True))
        except CaptureError:
            continue
        assert bytes(content.data) == CONTENT
        same.add(at // 8)
    if form == "gzip":  # time and name say nothing of the content
        assert {*range(4, 8), *range(10, 18)} <= same


def test_without_a_checksum_a_file_proves_nothing() -> None:
    for stored in (zstandard.ZstdCompressor(write_checksum=False).compress(CONTENT), lz4.frame.compress(CONTENT)):
        flipped = bytearray(stored)
        flipped[len(stored) // 4] ^= 1
        assert bytes(open_file(bytes(flipped)).data) != CONTENT

"""The S3 server of the tests answers as a store does, late as it is told to, and tells what it was asked."""

from __future__ import annotations

import time
import urllib.error
from pathlib import Path

import pytest

from support.object_store import kinds_of, object_store

LATE = 0.2


def test_objects_are_kept_and_requests_are_counted_and_late(tmp_path: Path) -> None:
    with object_store(tmp_path, LATE) as store:
        store.make_bucket("lake")
        with store.counted() as counts:
            started = time.monotonic()
            store.put("lake", "captures/1.bin", b"some bytes")
            assert store.get("lake", "captures/1.bin") == b"some bytes"
            assert time.monotonic() - started >= 2 * LATE
        assert counts == {"PUT /lake/captures/1.bin": 1, "GET /lake/captures/1.bin": 1}
        assert kinds_of(counts) == counts


def test_a_bucket_that_is_closed_says_so(tmp_path: Path) -> None:
    with object_store(tmp_path) as store, pytest.raises(urllib.error.HTTPError) as refused:
        store.put("closed", "1.bin", b"")
    with refused.value as error:
        assert error.code == 403

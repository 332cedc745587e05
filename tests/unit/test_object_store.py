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


def test_credentials_that_expire_are_denied_from_some_request_on(tmp_path: Path) -> None:
    with object_store(tmp_path) as store:
        store.make_bucket("lake")
        store.deny_from("PUT /lake/2")
        store.put("lake", "1", b"x")
        for key in ("2", "1"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                store.put("lake", key, b"x")
            refused.value.close()
            assert refused.value.code == 403
        store.deny_from(None)
        assert store.get("lake", "1") == b"x"
        with pytest.raises(urllib.error.HTTPError):
            store.get("lake", "2")


def test_what_is_in_a_bucket_may_be_read_where_it_may_not_be_listed(tmp_path: Path) -> None:
    with object_store(tmp_path) as store:
        store.make_bucket("unlisted")
        store.put("unlisted", "a/1", b"x")
        assert store.get("unlisted", "a/1") == b"x"
        with pytest.raises(urllib.error.HTTPError) as refused:
            store.get("unlisted", "?list-type=2&prefix=a")
        with refused.value as error:
            assert error.code == 403

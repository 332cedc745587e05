"""What storage has against a run is told with its place; what is none of its faults stays what it is."""

import errno
import os

import pytest

from walreplay.delta.target import ledger_errors, storage_errors
from walreplay.errors import CaptureError, TargetError


class OfSpark(Exception):
    pass


OfSpark.__module__ = "pyspark.errors"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_takes_no_more_is_told_with_the_file(number):
    with pytest.raises(TargetError) as caught, storage_errors("/mirror"):
        raise OSError(number, os.strerror(number), "/mirror/s/t/part")
    assert caught.value.path == "/mirror/s/t/part"
    assert os.strerror(number) in str(caught.value)
    assert "run again" in str(caught.value)


_QUOTED = "/mirror/s/it's/part"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("java.io.IOException: No space left on device", "/mirror"),
        (
            "java.io.FileNotFoundException: /mirror/s/t/_delta_log/.x.tmp (No space left on device)",
            "/mirror/s/t/_delta_log/.x.tmp",
        ),
        ("OSError: [Errno 122] Disk quota exceeded", "/mirror"),
        (f"x\nPermissionError: [Errno 1] Failed to open local file '{_QUOTED}'. Detail: [errno 1] Not", _QUOTED),
        (f'x\nPermissionError: [Errno 13] Permission denied: "{_QUOTED}"', _QUOTED),
    ],
)
def test_so_it_is_where_java_or_a_worker_has_met_it(text, path):
    with pytest.raises(TargetError) as caught, storage_errors("/mirror"):
        raise OfSpark(f"An error occurred while calling o1.commit.\n: {text}\n\tat java.base/java.io")
    assert caught.value.path == path


@pytest.mark.parametrize(
    "error", [CaptureError("x"), ConnectionRefusedError(111, "Connection refused"), OfSpark("a cluster"), KeyError("x")]
)
def test_what_is_not_the_storages_fault_is_left_alone(error):
    with pytest.raises(type(error)) as caught, storage_errors("/mirror"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [ValueError("no JSON"), KeyError("holder"), OfSpark("[DELTA_STATE_RECOVER_ERROR] x"), OfSpark("FAILED_READ_FILE")],
)
def test_a_table_of_the_ledger_that_is_damaged_is_named(error):
    with pytest.raises(TargetError, match="its table is damaged") as caught, ledger_errors("/mirror/_walreplay/state"):
        raise error
    assert caught.value.path == "/mirror/_walreplay/state"


@pytest.mark.parametrize(
    "error",
    [OfSpark("a cluster is away"), OfSpark("[DELTA_CONCURRENT_APPEND] x"), TargetError("x"), ConnectionError("x")],
)
def test_what_is_no_damage_is_left_alone(error):
    with pytest.raises(type(error)) as caught, ledger_errors("/mirror/_walreplay/state"):
        raise error
    assert caught.value is error

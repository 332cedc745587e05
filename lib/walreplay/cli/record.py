"""``walreplay record``: from the server to the archive."""

from __future__ import annotations

import logging
import signal
import time
from contextlib import nullcontext
from dataclasses import asdict
from typing import Final

from pydantic import ByteSize, TypeAdapter, ValidationError

from walreplay.cli.metrics import write_gauges
from walreplay.cli.printing import refuse_missing
from walreplay.console import logged
from walreplay.errors import ConfigError, TargetError
from walreplay.lsn import format_lsn
from walreplay.progress import LOGGER, log
from walreplay.recording.first_copy import FirstCopy
from walreplay.recording.recorder import Recorder
from walreplay.recording.store import store_at
from walreplay.recording.transfer import RecordOptions, RecordStatus

_LEAST, _MOST = 1 << 10, 1 << 30  # of bytes: a file that is read has less than 2 GiB, and is cut late sometimes
_NUMBERS: Final = {
    "stored_lsn": "All that committed up to here is stored, in bytes of WAL",
    "stored_time": "When the server sent the newest of it, in seconds since 1970",
    "lag_bytes": "WAL from there to the server's end",
    "files": "Files that this process has stored",
    "bytes": "Their bytes",
    "waiting_bytes": "What the store does not have yet",
    "retained_bytes": "WAL that the server keeps for the slot",
    "spare_bytes": "WAL that may come until it no longer does",
}


def size_of(text: str) -> int:
    """Read a number of bytes, such as 64MiB."""
    try:
        size = TypeAdapter(ByteSize).validate_python(text)
    except ValidationError:
        size = ByteSize(0)
    if not _LEAST <= size <= _MOST:
        raise ConfigError(f"{text!r} is no size from 1KiB to 1GiB", remedy="Write it like 64MiB")
    return size


def run_recorder(options: RecordOptions, archive: str, copy: FirstCopy, metrics: str | None) -> None:
    """Record until a signal ends it.

    Args:
        archive: where the files go.
        copy: is begun when the slot is made.
        metrics: a file for Prometheus.
    """
    if metrics is not None:
        refuse_missing("--metrics", "metrics", "prometheus_client")

    def report(status: RecordStatus) -> None:
        _log(status)
        if metrics is not None:
            try:
                write_gauges(metrics, {"archive": store.shown, "slot": options.slot}, asdict(status), _NUMBERS)
            except TargetError as error:  # what is recorded is worth more
                log("no metrics", reason=str(error))

    store = store_at(archive)
    recorder = Recorder(options, store, report, copy)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: recorder.stop())
    with nullcontext() if LOGGER.isEnabledFor(logging.INFO) else logged("INFO"):  # it is what there is to see of it
        recorder.run()
        log("ended")


def _log(status: RecordStatus) -> None:
    lag = None if status.stored_time is None else max(time.time() - status.stored_time, 0.0)
    log(
        "recorded",
        lsn=format_lsn(status.stored_lsn),
        lag_bytes=status.lag_bytes,
        lag_seconds=lag,
        files=status.files,
        bytes=status.bytes,
        waiting_bytes=status.waiting_bytes or None,
        store_failure=status.store_failure,
    )
    if status.spare_bytes is not None and status.spare_bytes < status.retained_bytes:
        log(
            "the server keeps WAL for the slot, and soon no more: max_slot_wal_keep_size",
            retained_bytes=status.retained_bytes,
            spare_bytes=status.spare_bytes,
        )

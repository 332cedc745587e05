"""Up to which LSN captures are waited for when a target is compared with its source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from walreplay.delta.target import TableName
from walreplay.evolution.shapes import TableShape
from walreplay.job.compare import Verdict
from walreplay.job.verify import _needed_lsn
from walreplay.table.registry import MirrorEntry


@pytest.mark.parametrize(
    ("base_lsn", "has_entry", "rows", "needed"),
    [
        (None, True, 0, 20),
        (51, True, 0, 50),  # later rows were loaded
        (None, False, 1, 20),
        (None, False, 0, -1),  # of an empty table the stream announces nothing
    ],
)
def test_captures_are_needed_up_to_the_latest_rows_that_differ(
    base_lsn: int | None, has_entry: bool, rows: int, needed: int
) -> None:
    entry = MirrorEntry(9, "s.t", TableName("/t"), TableShape(), base_lsn=base_lsn)
    made: Any = SimpleNamespace(state=SimpleNamespace(tables=(entry,) if has_entry else ()))
    source_rows: Any = SimpleNamespace(latest=20)
    assert _needed_lsn(source_rows, made, [(entry, Verdict("it differs", rows))]) == needed

"""Which errors are one table's own, so that they hold it."""

from __future__ import annotations

import pytest

from walreplay.delta.local import ConflictError, dropped
from walreplay.errors import CaptureError, ConfigError, SparkFailure, TargetError, WalReplayError
from walreplay.job.holding import _is_of_table, _reason

_PLACE = "/mirror/s/t"
_REFUSED = "the run cannot go on: Permission denied"


@pytest.mark.parametrize(
    ("error", "is_of_table"),
    [
        (ConfigError("soft deletes need a key", table="s.t"), True),
        (CaptureError("a value does not fit its column", path="1.bin", table="s.t.c"), True),
        (TargetError(_REFUSED, path=f"{_PLACE}/_delta_log"), True),
        (SparkFailure(f"java.io.IOException ({_REFUSED})", table="s.t", path=f"file:{_PLACE}/x"), True),
        # Bytes that cannot be read, a fault that passes, a race, and what concerns the whole target.
        (CaptureError("a number is none", path="1.bin", offset=7, table="s.t"), False),
        (SparkFailure("Spark's JVM ran out of memory", table="s.t", path=_PLACE), False),
        (ConflictError("somebody else has committed", table="s.t", path=_PLACE), False),
        (dropped(_PLACE).at(table="s.t"), False),
        (TargetError(_REFUSED, path="/mirror/_walreplay/staging/x"), False),
        (TargetError("this run gave no sign of life for too long", path="/mirror"), False),
        (TargetError("the run cannot go on: No space left on device", path=f"{_PLACE}/x"), False),
    ],
)
def test_an_error_holds_a_table_if_it_is_about_it_alone_and_comes_again(
    error: WalReplayError, is_of_table: bool
) -> None:
    assert _is_of_table(error, _PLACE) is is_of_table


@pytest.mark.parametrize(
    ("remedy", "reason"),
    [
        ("Nothing was applied; correct keys", "1.bin: no key (correct keys)"),
        ("Nothing was written to it. Move it", "1.bin: no key (Move it)"),
        ("Bring it back, or make it again by walreplay rebuild --table s", "1.bin: no key"),
        (None, "1.bin: no key"),
    ],
)
def test_the_reason_has_the_place_and_the_remedy_of_the_cause_alone(remedy: str | None, reason: str) -> None:
    assert _reason(CaptureError("no key", path="1.bin", table="s.t", remedy=remedy)) == reason

"""A short leg of `make soak`: whatever goes wrong, all hold the same in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.leg import run_leg

pytestmark = [pytest.mark.live, pytest.mark.integration, pytest.mark.full, pytest.mark.long]


@pytest.mark.parametrize("seed", [2, 3])
def test_a_server_its_subscriber_and_all_tables_hold_the_same_whatever_goes_wrong(tmp_path: Path, seed: int) -> None:
    journal, wrong = run_leg(seed, 60, tmp_path)
    assert wrong is None, wrong
    assert journal.counts["tables compared"] > 20
    assert journal.counts["DDL"] > 0

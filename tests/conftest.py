"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support.process import differences, process_state

# Kernels that were compiled ahead trust their callers; in the tests, and in the workers that they start, none does.
os.environ.setdefault("WALREPLAY_KERNELS", "checked")

# The first example of a property compiles kernels, which takes longer than any deadline would allow.
settings.register_profile("walreplay", deadline=None)
settings.load_profile("walreplay")


@pytest.fixture(autouse=True)
def _leaves_the_process_as_it_was() -> Iterator[None]:
    """Fail a test that others in the same process could stumble over, in whatever order they come."""
    before = process_state()
    yield
    changed = differences(before, process_state())
    assert not changed, f"the test leaves changed: {', '.join(changed)}"

"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from support import extent
from support.process import differences, process_state

# Kernels that were compiled ahead trust their callers; in the tests, and in the workers that they start, none does.
os.environ.setdefault("WALREPLAY_KERNELS", "checked")

extent.register()
settings.load_profile(extent.THOROUGH)  # `--hypothesis-profile=quick` comes later

_FOLDERS: Final = ("integration", "property", "unit")
"""Those whose files take longest come first, so that all processes end at about the same time."""


def pytest_report_header() -> str:
    """Say before the tests whether they use the compiled kernels; without them numba compiles for minutes."""
    from walreplay.decode.compile.kernel import LIBRARY

    return "kernels: " + ("compiled" if LIBRARY else "older than the sources; `make kernels` compiles them")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark properties as what they are, and put the folders in order; inside of each the order is left to chance.

    What Spark's statements do takes three times as long as files do: only the tests that say so try both ways, and the
    others where there is time for it.
    """
    folder_of = {item: item.path.relative_to(Path(__file__).parent).parts[0] for item in items}
    for item, folder in folder_of.items():
        if folder == "property":
            item.add_marker(pytest.mark.property)
        if item.get_closest_marker("statements") is not None and item.get_closest_marker("both_ways") is None:
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("statements") is not None or item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.full)
    items.sort(key=lambda item: _FOLDERS.index(folder_of[item]) if folder_of[item] in _FOLDERS else len(_FOLDERS))


@pytest.fixture(autouse=True)
def _leaves_the_process_as_it_was() -> Iterator[None]:
    """Fail a test that others in the same process could stumble over, in whatever order they come."""
    before = process_state()
    yield
    changed = differences(before, process_state())
    assert not changed, f"the test leaves changed: {', '.join(changed)}; if it begins a session, let it use `spark`"

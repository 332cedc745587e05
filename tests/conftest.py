"""What all tests share."""

from __future__ import annotations

import os
import zlib
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

_SHARE: Final = int(os.environ.get("WALREPLAY_SHARE") or 100)

_FOLDERS: Final = ("integration", "property", "unit")
"""Those whose files take longest come first, so that all processes end at about the same time."""


def pytest_report_header() -> str:
    """Say before the tests whether they use the compiled kernels; without them numba compiles for minutes."""
    from walreplay.decode.compile.kernel import LIBRARY

    kernels = "compiled" if LIBRARY else "older than the sources; `make kernels` compiles them"
    return f"kernels: {kernels}; further cases on Spark and PostgreSQL: {_SHARE} of 100"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark properties as what they are, and put the folders in order; inside of each the order is left to chance.

    What Spark's statements do takes three times as long as files do: only the tests that say so try both ways, and the
    others where there is time for it.  Of the further cases there, a share may run (``WALREPLAY_SHARE``), others with
    each seed of pytest-randomly's.
    """
    folder_of = {item: item.path.relative_to(Path(__file__).parent).parts[0] for item in items}
    for item, folder in folder_of.items():
        if folder == "property":
            item.add_marker(pytest.mark.property)
        if item.get_closest_marker("statements") is not None and item.get_closest_marker("both_ways") is None:
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("statements") is not None or item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.full)
    seed = config.getoption("randomly_seed", default=0)  # all processes have the same, and so the same cases
    left_out = {
        item
        for item, folder in folder_of.items()
        if folder == "integration" and item.get_closest_marker("full") is not None
        if zlib.crc32(f"{seed} {item.nodeid}".encode()) % 100 >= _SHARE
    }
    config.hook.pytest_deselected(items=left_out)
    items[:] = (item for item in items if item not in left_out)
    items.sort(key=lambda item: _FOLDERS.index(folder_of[item]) if folder_of[item] in _FOLDERS else len(_FOLDERS))


@pytest.fixture(autouse=True)
def _leaves_the_process_as_it_was() -> Iterator[None]:
    """Fail a test that others in the same process could stumble over, in whatever order they come."""
    before = process_state()
    yield
    changed = differences(before, process_state())
    assert not changed, f"the test leaves changed: {', '.join(changed)}; if it begins a session, let it use `spark`"

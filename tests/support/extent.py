"""How much the tests try: `quick` is for every change, `thorough` for what is to stay.

A test that is marked ``full`` runs in the second alone.  So do a property's further examples.  One that is marked
``long`` runs only where there are hours for it (``make test-long``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final

import pytest
from hypothesis import settings

THOROUGH: Final = "thorough"
QUICK: Final = "quick"

_ALL: Final = 100
"""Examples of a property, where nothing else is said, in the thorough profile."""


def register() -> None:
    """Make both profiles known to Hypothesis; the first example of a property may compile kernels: no deadlines."""
    settings.register_profile(THOROUGH, deadline=None, max_examples=_ALL)
    settings.register_profile(QUICK, deadline=None, max_examples=_ALL // 10)


def examples(thorough: int) -> int:
    """Return how many of a thorough run's examples the profile that is loaded has, at least 1."""
    return max(thorough * settings().max_examples // _ALL, 1)


def further(values: Iterable[Any], *, but: Container[Any] = (), long: Iterable[Any] = ()) -> list[Any]:
    """Return the values of a test's parameter: all are for a thorough run, those in ``but`` for a quick one as well.

    Args:
        values: each a parameter's, or a tuple of several parameters'.
        long: more values, for which there is time in a long run alone.
    """
    thorough = [value if value in but else _marked(value, pytest.mark.full) for value in values]
    return [*thorough, *(_marked(value, pytest.mark.long) for value in long)]


def _marked(value: Any, mark: pytest.MarkDecorator) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=mark)

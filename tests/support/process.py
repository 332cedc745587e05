"""What a test may not leave changed in the process that other tests share."""

from __future__ import annotations

import gc
import locale
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_OURS: Final = "walreplay"

_OF_OTHERS: Final = ("PYTEST_CURRENT_TEST", "_RJEM_MALLOC_CONF")
"""Variables of pytest, and of Polars, which sets its own when it is imported."""


def process_state() -> dict[str, Any]:
    """Take down what there is of it, by a name that tells what it is."""
    return {
        "the environment": {name: value for name, value in os.environ.items() if name not in _OF_OTHERS},
        "the working directory": str(Path.cwd()),
        "sys.path": tuple(sys.path),
        "the standard streams' names": (sys.__stdout__, sys.__stderr__),
        "the answer to an interrupt": signal.getsignal(signal.SIGINT),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the level of logs": logging.root.level,
        "what is frozen for the garbage collector": gc.get_freeze_count() > 0,
        "modules": {name: id(module) for name, module in sys.modules.items() if _is_ours(name)},
        "modules as their packages have them": dict(_attributes()),
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what has changed; that a module was loaded for the first time is none."""
    found = []
    for what, old in before.items():
        new = after[what]
        if isinstance(old, dict):
            only_more = what.startswith("modules")
            names = old.keys() if only_more else old.keys() | new.keys()
            found += [f"{what}: {name}" for name in sorted(names) if old.get(name) != new.get(name)]
        elif old != new:
            found.append(what)
    # What was loaded has to be what its package has, too.
    modules, attributes = after["modules"], after["modules as their packages have them"]
    found += [
        f"modules: {name} is not what its package has" for name, one in attributes.items() if modules[name] != one
    ]
    return found


def _attributes() -> Iterator[tuple[str, int]]:
    for name in filter(_is_ours, list(sys.modules)):
        package, _, short = name.rpartition(".")
        parent = sys.modules.get(package)
        if parent is not None:
            # None where it was not set; a public function may have the name of the module that it is in.
            one = vars(parent).get(short)
            if one is None or type(one).__name__ == "module":
                yield name, id(one)


def _is_ours(name: str) -> bool:
    return name.startswith(_OURS)

"""What the guard that stands around each test sees."""

import importlib
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import walreplay.protocol.messages
from support.process import differences, process_state

_MODULE = "walreplay.protocol.messages"


def _load_again() -> None:
    sys.modules.pop(_MODULE)
    importlib.import_module(_MODULE)


def _replace_module() -> None:
    sys.modules[_MODULE] = types.ModuleType(_MODULE)


def _drop_attribute() -> None:
    del vars(walreplay.protocol)["messages"]


_CHANGES: dict[str, Callable[[], object]] = {
    "the environment: WALREPLAY_KERNELS": lambda: os.environ.update(WALREPLAY_KERNELS="another"),
    "the environment: NEW": lambda: os.environ.update(NEW="value"),
    "the working directory": lambda: os.chdir("/"),
    "sys.path": lambda: sys.path.insert(0, "elsewhere"),
    f"modules: {_MODULE}": _load_again,
    f"modules: {_MODULE} is not what its package has": _replace_module,
    f"modules as their packages have them: {_MODULE}": _drop_attribute,
}


@pytest.mark.parametrize("what", _CHANGES)
def test_a_change_that_others_would_see_is_named(what: str) -> None:
    environment, folder, path = dict(os.environ), Path.cwd(), list(sys.path)
    module = sys.modules[_MODULE]
    before = process_state()
    try:
        _CHANGES[what]()
        found = differences(before, process_state())
    finally:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.path[:] = path
        sys.modules[_MODULE] = walreplay.protocol.messages = module
    assert what in found


def test_what_is_loaded_for_the_first_time_is_no_change() -> None:
    before, after = process_state(), process_state()
    assert differences(before, after) == []
    for what in ("modules", "modules as their packages have them"):
        del before[what][_MODULE]
    assert differences(before, after) == []

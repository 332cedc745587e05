"""What all tests share."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

from wal2delta.decode.kernel import Kernel

# The first example of a property compiles kernels, which takes longer than any deadline would allow.
settings.register_profile("wal2delta", deadline=None)
settings.load_profile("wal2delta")

_call = Kernel.__call__


def _checked_call(self: Kernel, *arguments: Any) -> int:
    self.check(arguments)
    return _call(self, *arguments)


# Kernels that were compiled ahead trust their callers.
Kernel.__call__ = _checked_call  # type: ignore[method-assign]

"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# Kernels that were compiled ahead trust their callers; in the tests, and in the workers that they start, none does.
os.environ.setdefault("WAL2DELTA_KERNELS", "checked")

# The first example of a property compiles kernels, which takes longer than any deadline would allow.
settings.register_profile("wal2delta", deadline=None)
settings.load_profile("wal2delta")

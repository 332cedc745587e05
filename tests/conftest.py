"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# The first example of a property compiles kernels, which takes longer than any deadline would allow.
settings.register_profile("wal2delta", deadline=None)
settings.load_profile("wal2delta")

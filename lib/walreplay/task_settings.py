"""The settings that tasks need, as plain values: importing pydantic would cost every new worker a tenth of a second."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from walreplay.types.text import UTF8

_NO_ORIGIN: Final = "none"
"""Stands for changes without an origin, as in PostgreSQL's own ``origin = none``.

From version 16 on PostgreSQL lets no origin be called ``none`` or ``any``, in whatever case.
"""


@dataclass(frozen=True, slots=True)
class Origins:
    """Whose changes are wanted, by replication origin.  At most one of the two lists is set."""

    include: Collection[str] | None = None
    exclude: Collection[str] | None = None

    def wants(self, origin: str | None) -> bool:
        """Return whether changes of an origin are wanted; None stands for changes made on the server itself.

        The word ``none`` in a list never means an origin with that name.
        """
        names = self.include or self.exclude  # at most one is set
        if names is None:
            return True
        if origin is None:
            listed = any(name.lower() == _NO_ORIGIN for name in names)
        else:
            listed = origin in names and origin.lower() != _NO_ORIGIN  # an origin of an older server may be called none
        return listed == (self.include is not None)


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings that decide how changes are decoded and shown.

    Attributes:
        skipped: kinds of changes that are left out, by Debezium's letters (c, u, d, t).
        codec: Python's name of the source's encoding.
        mask_salt: hashed in front of every masked value.
    """

    origins: Origins = Origins()
    skipped: frozenset[str] = frozenset()
    codec: str = UTF8
    mask_salt: bytes = field(default=b"", repr=False)

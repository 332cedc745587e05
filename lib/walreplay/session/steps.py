"""Named steps of a run, at which tests can stop it."""

from __future__ import annotations

from collections.abc import Callable

on_step: Callable[[str], None] | None = None
"""Called when a step is done, or is the next: ``scanned``, ``files recorded``, ``decoded``,
``plan written``, ``folder is to be renamed: path``, ``table moved: schema.table``, ``columns are to change: path``,
``columns changed: schema.table``, ``features are to come: path``, ``features have come: path``,
``comment is to change: path``, ``comment has changed: path``, ``layout is to change: path``,
``layout has changed: path``, ``table applied: schema.table``, ``transactions written``, ``runs written``,
``run recorded``; behind it, every so many runs, ``ledger is to be kept small``, ``runs kept for tables``,
``runs forgotten: table``, ``ledger's table kept small: table``; of an index ``part indexed``; of a rebuild
``side base loaded``, ``side target made``, ``compared``, ``rebuild written``, ``rows are to be replaced:
schema.table``, ``rows replaced: schema.table``, ``table replaced: schema.table``,
``tables replaced``, ``side removed``; in a catalog ``table made: catalog.schema.table``."""


def reached(step: str) -> None:
    """Report that a step was reached."""
    if on_step is not None:
        on_step(step)

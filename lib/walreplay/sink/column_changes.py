"""What can happen to a mirror table's column, in words for the report.

Entry points: `ColumnChange`, `ChangeKind`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ChangeKind(str, Enum):
    """What can happen to a column."""

    ADDED = "added"
    DROPPED = "dropped"
    KEPT = "kept"
    """Dropped in the source, kept in the mirror."""
    RENAMED = "renamed"
    RETYPED = "retyped"
    RELABELLED = "relabelled"
    """Labels of its enum were renamed."""
    REPLACED = "replaced"
    """Dropped and added again: the old values are gone."""


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of a table's columns."""

    kind: ChangeKind
    column: str
    detail: str = ""

    @property
    def text(self) -> str:
        """The change as a sentence for a report."""
        if self.kind is ChangeKind.KEPT:
            return f"column {self.column} dropped; its values are kept"
        if self.kind is ChangeKind.REPLACED:
            return f"column {self.column} dropped and added again; its old values are gone"
        if self.kind is ChangeKind.RELABELLED:
            return f"labels of column {self.column} renamed: {self.detail}"
        return f"column {self.column} {self.kind.value}" + (f" {self.detail}" if self.detail else "")


__all__ = ["ChangeKind", "ColumnChange"]

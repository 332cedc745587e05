"""The names of the columns that tables have besides their source's."""

from __future__ import annotations

from pydantic import model_validator

from walreplay.names import RESERVED_COLUMNS
from walreplay.settings.strict import StrictModel
from walreplay.settings.values import COMMIT_LSN, COMMIT_TS, Name


class MetadataSettings(StrictModel):
    """The names of a mirror table's metadata columns; None leaves a column out."""

    commit_lsn: Name | None = COMMIT_LSN
    commit_ts: Name | None = COMMIT_TS
    rescued_data: Name | None = "_rescued_data"
    """Left out, a value that its column's type cannot hold stops the run: it has nowhere to go."""
    deleted: Name | None = "__deleted"
    """Only in tables with soft deletes."""
    op: Name = "__op"
    """This and the next in histories and change logs."""
    ordinal: Name = "__ordinal"
    xid: Name | None = "__xid"
    """This and the following only in change logs, which have the commit's LSN and time in any case."""
    origin: Name | None = "__origin"
    file: Name | None = "__file"
    offset: Name | None = "__offset"
    before: Name | None = "__before"
    unchanged: Name = "__unchanged"
    start_at: Name = "__START_AT"
    """This and the following only in histories."""
    end_at: Name = "__END_AT"
    start_lsn: Name = "__start_lsn"
    end_lsn: Name = "__end_lsn"
    source: Name = "__source"
    """Only in tables that several sources share (``shared_tables``)."""

    @model_validator(mode="after")
    def _distinct(self) -> MetadataSettings:
        names = (*self.names, *self.log_names, self.start_at, self.end_at, self.start_lsn, self.end_lsn, self.source)
        for name in names:
            # Delta does not tell upper case from lower.
            if name.lower() in RESERVED_COLUMNS:
                raise ValueError(f"{name} is a name that Delta keeps for itself")
            if sum(name.lower() == other.lower() for other in names) > 1:
                raise ValueError(f"two of the columns are called {name}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of those that are not left out, of the mirror's tables."""
        given = (self.commit_lsn, self.commit_ts, self.rescued_data, self.deleted)
        return tuple(name for name in given if name is not None)

    @property
    def log_names(self) -> tuple[str, ...]:
        """The names of those that only change logs have, whether they are left out or not."""
        given = (self.op, self.xid, self.ordinal, self.origin, self.file, self.offset, self.before, self.unchanged)
        # What a mirror's tables do without, a change log has under its usual name.
        commit = (usual for own, usual in ((self.commit_lsn, COMMIT_LSN), (self.commit_ts, COMMIT_TS)) if own is None)
        return tuple(name for name in (*given, *commit) if name is not None)

    @property
    def history_names(self) -> tuple[str, ...]:
        """The names of those that only histories have, and of those that they share with change logs."""
        return self.start_at, self.end_at, self.start_lsn, self.end_lsn, self.ordinal, self.op


__all__ = ["MetadataSettings"]

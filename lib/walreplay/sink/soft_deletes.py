"""Soft deletes: a deleted row stays in the table, and a column marks it as deleted.

For the fold, a soft delete is an update that leaves all other columns unchanged, so later changes of the row work as
after any update.  A row that takes another key is not deleted, so key changes have to be followed
(``follow`` of `walreplay.sink.intake.events_of`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from walreplay.sink.events import Events, Identity
from walreplay.sink.fold import DELETE, UPDATE


def with_deleted_column(events: Events, identity: Identity, *, all_deleted: bool = False) -> Events:
    """Add the column that marks deleted rows after the others, and turn deletes into updates of it.

    Args:
        all_deleted: a truncate that comes later deletes what the events leave.
    """
    gone = events.action == DELETE
    unchanged = dict(events.unchanged)
    if gone.any():
        for number in range(len(events.columns)):
            if number not in identity.key:
                unchanged[number] = np.where(gone, 1, unchanged.get(number, 0)).astype(np.uint8)
    return replace(
        events,
        columns=[*events.columns, pa.array(gone | all_deleted)],
        action=np.where(gone, UPDATE, events.action),
        unchanged=unchanged,
    )

"""Soft deletes: a deleted row stays, and a column of its own marks it.

For the fold a soft delete is an update that leaves all other columns unchanged.  So what happens to the row afterwards
works as after any other update.  A row that takes another key is not deleted: key changes have to be followed
(`walreplay.sink.intake.events_of`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from walreplay.sink.events import Events, Identity
from walreplay.sink.fold import DELETE, UPDATE


def with_deleted_column(events: Events, identity: Identity) -> Events:
    """Add the column that marks deleted rows, behind the others."""
    gone = events.action == DELETE
    unchanged = dict(events.unchanged)
    if gone.any():
        for number in range(len(events.columns)):
            if number not in identity.key:
                unchanged[number] = np.where(gone, 1, unchanged.get(number, 0)).astype(np.uint8)
    return replace(
        events,
        columns=[*events.columns, pa.array(gone)],
        action=np.where(gone, UPDATE, events.action),
        unchanged=unchanged,
    )

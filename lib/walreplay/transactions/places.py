"""Where a stream stands, from what a summary of its bytes says."""

from __future__ import annotations

from dataclasses import replace

from walreplay.decode.place import Place
from walreplay.decode.summary import Block, Decided, Summary


def continues(place: Place, summary: Summary) -> bool:
    """Whether a guessed summary may follow a known place."""
    open_ = place.transaction
    inside = bool(summary.items) and isinstance(summary.items[0], Block) and summary.items[0].xid == -1
    if inside != (place.stream is not None) or (open_ is not None and open_.gid is not None):
        return False
    if summary.first_message is not None and summary.first_message <= place.message_lsn:
        return False
    if summary.head_commit is not None:
        return (
            open_ is not None
            and summary.head_commit == (open_.final_lsn, open_.commit_time)
            and (open_.final_lsn > place.high_lsn)
        )
    if summary.head_changes and open_ is None:
        return False
    if summary.place is None:
        return True
    begins = summary.first_lsn
    if summary.place.transaction is not None and begins is None:
        begins = summary.place.transaction.final_lsn
    return open_ is None and (begins is None or begins > max(place.last_lsn, place.high_lsn))


def end_place(place: Place, summary: Summary) -> Place:
    """Give the place at a summary's end, given the one at its start."""
    end = summary.place
    if summary.exact and end is not None:
        return end
    if end is None:
        open_ = place.transaction
        if open_ is None:
            return place
        return replace(place, transaction=replace(open_, ordinal=open_.ordinal + summary.head_changes), begun=True)
    stream = place.stream if end.stream == -1 else end.stream
    end = replace(
        end,
        stream=stream,
        message_lsn=max(end.message_lsn, place.message_lsn),
        begun=place.begun or end.begun,
        session=place.session,
    )
    if summary.last_lsn is None:
        return replace(
            end,
            last_lsn=place.last_lsn,
            last_commit_time=place.last_commit_time,
            high_lsn=place.high_lsn,
            high_commit_time=place.high_commit_time,
        )
    # A guess is taken only where it lies behind all that is known.
    return replace(end, high_lsn=end.last_lsn, high_commit_time=end.last_commit_time)


def place_at(before: Place, item: Decided, lsn: int, time: int) -> Place:
    """Give the place at a decision that commits; the decision itself is walked again."""
    return replace(
        before,
        transaction=None,
        stream=None,
        last_lsn=lsn - 1,
        last_commit_time=time,
        high_lsn=max(before.high_lsn, lsn),
        message_lsn=max(before.message_lsn, item.message_lsn),
        begun=True,
    )

"""Compute the place in a stream behind some bytes from the bytes' summary."""

from __future__ import annotations

from dataclasses import replace

from walreplay.decode.place import Place
from walreplay.decode.summary import Decided, Summary


def end_place(place: Place, summary: Summary) -> Place:
    """Give the place at a summary's end, given the one at its start."""
    end = summary.place
    if summary.exact and end is not None:
        return end
    if end is None:
        open_ = place.transaction
        if open_ is None:
            return place
        origin = summary.head_origin if summary.head_origin is not None else open_.origin
        after = replace(open_, ordinal=open_.ordinal + summary.head_changes, origin=origin)
        return replace(place, transaction=after, begun=True)
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
    # A guess is accepted only if its commits are later than all known ones, so its last commit is the highest.
    return replace(end, high_lsn=end.last_lsn, high_commit_time=end.last_commit_time)


def place_at(before: Place, item: Decided, lsn: int, time: int) -> Place:
    """Give the place at a decision that commits; a walk from there reads the decision again."""
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

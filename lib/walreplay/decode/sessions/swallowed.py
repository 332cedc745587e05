"""Refuse an unfinished message that contains the end of its own transaction: a length in it is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from walreplay.decode.place import Place
from walreplay.decode.sessions.torn_messages import ROWS
from walreplay.errors import MalformedMessage
from walreplay.protocol.framing import Framing

_LATEST: Final = 6_000_000_000_000_000
"""Times are earlier than this: microseconds since 2000, up to the year 2190."""


def refuse_swallowed(data: memoryview, stop: int, head: int, place: Place) -> None:
    """Refuse an unfinished message that extends over the end, or a repeated beginning, of its own transaction.

    Args:
        stop: the offset of its frame.
        head: the number of the frame's bytes before the message.
        place: the place at ``stop``.

    Raises:
        MalformedMessage: it does.
    """
    _refuse_ends(data, stop, head, place)
    _refuse_stream(data, stop, head, place)


def _refuse_ends(data: memoryview, stop: int, head: int, place: Place) -> None:
    """Refuse an unfinished message that contains the end of its transaction, or its beginning once more."""
    marks = list(_marks(place))
    tail = bytes(data[stop:]) if marks else b""
    for mark, time_at, time in marks:
        # The search begins after the tag, because the unfinished message may itself be the transaction's end.
        found = tail.find(mark, 1 + head)
        said = tail[found + time_at : found + time_at + 8]
        if found < 0 or len(said) < 8:
            continue
        said_time = int.from_bytes(said, "big", signed=True)
        if said_time == time or (time is None and 0 <= said_time < _LATEST):
            raise MalformedMessage(
                f"the message of {len(tail):,} bytes or more runs over its own transaction's end, or over where that "
                f"begins anew, at offset {found + stop:,}; a length in it is damaged",
                offset=stop,
                remedy="Fetch the file from its source again",
            )


def _marks(place: Place) -> Iterator[tuple[bytes, int, int | None]]:
    """Give byte sequences that only the messages contain which begin or end the open transaction.

    No value written before its commit can contain them, not even a capture inside a value.

    Yields:
        a byte sequence, the offset of a time relative to it, and that time if it is known.
    """
    open_ = place.transaction
    if open_ is not None:
        lsn, time = open_.final_lsn.to_bytes(8, "big"), open_.commit_time
        begin, end, time_at = (b"B", b"C", 9) if open_.gid is None else (b"b", b"P", 17)
        yield end + b"\0" + lsn, 18, time
        yield begin + lsn, time_at, time
    elif place.stream is not None and place.stream >= 0:
        # A streamed transaction's commit LSN and time are not known yet; behind a guessed start its xid is not either.
        xid = place.stream.to_bytes(4, "big")
        yield b"c" + xid + bytes(2), 22, None


def _refuse_stream(data: memoryview, stop: int, head: int, place: Place) -> None:
    """Refuse an unfinished message that contains a second beginning of its streamed transaction."""
    if place.stream is None or place.stream < 0:
        return
    begin = b"S" + place.stream.to_bytes(4, "big") + b"\1"
    tail = bytes(data[stop:])
    found = tail.find(begin, 1 + head)
    behind = found + len(begin) + head + (place.framing is Framing.RECVLOGICAL)
    if found >= 0 and behind < len(tail) and tail[behind] in ROWS + b"E":
        raise MalformedMessage(
            f"the message of {len(tail):,} bytes or more runs over where the stream that it is in begins anew, "
            f"at offset {found + stop:,}",
            offset=stop,
            remedy="Fetch the file from its source again",
        )


__all__ = ["refuse_swallowed"]

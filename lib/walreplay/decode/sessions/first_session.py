"""Find a stream's framing, or the start of its first session, if its first bytes do not show it."""

from __future__ import annotations

import numpy as np

from walreplay.decode.kernels.frames import FRAMING_CODES
from walreplay.decode.sessions.breaks import MOST_CANDIDATES, SOUND_MESSAGES, UNEXPLAINED, WAIT, Explainer
from walreplay.decode.sessions.effort import LEAST, Effort, GaveUp
from walreplay.decode.sessions.starts import next_start
from walreplay.errors import OrderError, TruncatedMessage
from walreplay.protocol.detection import FRAMING_ORDER
from walreplay.protocol.framing import Framing
from walreplay.types.text import UTF8


def framing_of(data: memoryview, codec: str = UTF8) -> Framing | None:
    """Recognise the framing of a stream whose first session ends early, or that is damaged at its beginning.

    It is the framing in which the fewest sessions explain the bytes.  If they are explained in none, it is the one with
    the most sound messages.  None if no framing has any.

    Raises:
        TruncatedMessage: the bytes are too few.
    """
    ranked: list[tuple[int, int, Framing]] = []
    waiting: list[tuple[int, Framing]] = []
    begun = False
    for framing in FRAMING_ORDER:
        explainer = Explainer(data, framing, codec, Effort(len(data) // len(Framing), LEAST // len(Framing)))
        explained = None
        try:
            explained = explainer.fits()
        except GaveUp:
            # The error behind the sound messages is reported later.
            if not explainer.has_read(0):
                continue
        reading = explainer.read(0)
        messages = reading.messages
        begun = begun or messages > 0
        is_torn_only = explained is not None and bool(explained.breaks) and explained.begin == WAIT
        if is_torn_only and framing.length_field is not None and not messages:
            # Any bytes may be the torn beginning of a length.
            continue
        if reading.waits or is_torn_only:
            waiting.append((explained.breaks if explained is not None and messages else UNEXPLAINED, framing))
        elif explained is not None:
            ranked.append((explained.breaks, -messages, framing))
        elif messages > 1 or (messages and not explainer.begins_with_abort):
            ranked.append((UNEXPLAINED, -messages, framing))
    if begun:
        # If bytes begin with a sound message in one framing, they are not a torn length in another.
        ranked = [rank for rank in ranked if rank[1] or rank[2].length_field is None]
    best = min(ranked, key=lambda rank: rank[:2], default=None)
    if waiting and (best is None or best[0] >= UNEXPLAINED or min(waiting)[0] < best[0]):
        if len(waiting) > 1:
            raise TruncatedMessage("the bytes are too few to tell their framing", offset=0)
        return waiting[0][1]
    return best[2] if best is not None else None


def first_session(data: memoryview, framing: Framing, codec: str = UTF8) -> int | None:
    """Find where the first session behind a gap begins.

    Returns:
        the first offset from which on the buffer can be read as a session that announces its relations; None if more
        bytes are needed.

    Raises:
        OrderError: the search was given up, because too many offsets look like a session's start.
    """
    buf, at = np.frombuffer(data, np.uint8), 0
    explainer = Explainer(data, framing, codec, Effort(len(data)))
    for _ in range(MOST_CANDIDATES):
        at = int(next_start(buf, at, len(data), FRAMING_CODES[framing]))
        if at >= len(data):
            break
        try:
            reading = explainer.read(at, strict=False)
        except GaveUp:
            raise OrderError(
                "no session is found to begin behind the gap, among too many places that look like one's beginning",
                offset=at,
                remedy="Cut off what stands in front of the first whole message",
            ) from None
        if reading.stop > at and (reading.error is None or reading.messages >= SOUND_MESSAGES):
            return at
        at += 1
    return None

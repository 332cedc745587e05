"""Recognise files that do not belong to a stream, and make errors that name them and say what they are."""

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.kernels.frames import FRAMING_CODES
from walreplay.decode.place import Place
from walreplay.decode.sessions.breaks import WAIT, Explainer, is_framed_so
from walreplay.decode.sessions.effort import Effort, GaveUp
from walreplay.decode.sessions.readings import Reading, read_session
from walreplay.decode.sessions.resync import guess_framing
from walreplay.decode.sessions.starts import next_start
from walreplay.errors import FramingChange, NotACapture
from walreplay.protocol.detection import FRAMING_ORDER, detect_framing
from walreplay.protocol.foreign import HEAD_BYTES, remedy_for, what_is
from walreplay.protocol.framing import LENGTH_SIZE, Framing
from walreplay.types.text import UTF8, names_in

_LOOKED_AT: Final = 1 << 20
_TELLING_BYTES: Final = 9
"""So many bytes show whether a frame may begin with them.  Those behind may be torn off, and other bytes follow."""

_BY_PATTERN: Final = "out by `captures: pattern`"
_LEAVE_OUT: Final = f"Leave the file {_BY_PATTERN}"
_NAME_IT: Final = f"{_LEAVE_OUT}, or name its framing by `captures: framing`"


def may_become(data: bytes, codec: str = UTF8) -> bool:
    """Say whether a few bytes may be the beginning of a stream, in any framing."""
    first, view = np.frombuffer(data[:_TELLING_BYTES], np.uint8), memoryview(data)
    for framing in FRAMING_ORDER:
        at = int(next_start(first, 0, len(first), FRAMING_CODES[framing]))
        if at > (LENGTH_SIZE if framing.length_field is not None else 0):
            continue
        try:
            if at:
                # A torn length alone proves nothing: a session has to follow it.
                explained = Explainer(view, framing, codec, Effort(len(view))).fits()
                if explained is not None and explained.begin != WAIT:
                    return True
                continue
            reading = _read(view, framing, codec)
            # Even so short a session may be torn, and another one follow.
            if reading.error is None or reading.messages or Explainer(view, framing, codec, Effort(len(view))).fits():
                return True
        except GaveUp:
            continue
    return False


def no_capture(data: bytes | memoryview, compression: str | None = None) -> NotACapture:
    """Make the error for a file that is no capture; it says what the file seems to be."""
    what = what_is(data)
    if what is None:
        known = ", ".join(framing.value for framing in Framing)
        return NotACapture(
            f"no pgoutput capture: the bytes fit none of the framings {known}", offset=0, remedy=_NAME_IT
        )
    packed = f", compressed with {compression}" if compression else ""
    instead = remedy_for(what)
    return NotACapture(
        f"no pgoutput capture, but {what}{packed}",
        offset=0,
        remedy=_LEAVE_OUT if instead is None else f"{instead}, or leave the file {_BY_PATTERN}",
    )


def stranger(
    data: memoryview, compression: str | None, framing: Framing, *, before: str, codec: str = UTF8
) -> NotACapture | FramingChange | None:
    """Make the error for a file that does not continue its stream; None if it might.

    Args:
        data: the file's bytes, decompressed.
        compression: how the file is compressed; None if it is not.
        framing: the stream's.
        before: the path of the file before it.
        codec: the encoding of names.
    """
    view = data[:_LOOKED_AT]
    if what_is(view[:HEAD_BYTES]) is not None:
        # A file may begin inside a value, and look like anything there.
        if guess_framing(view, codec=codec) is not None:
            return None
        error = no_capture(data, compression)
        error.remedy = f"{error.remedy}; if it is a part of a capture, one in front of it is missing"
        return error
    found = detect_framing(bytes(view[:HEAD_BYTES]), names=names_in(codec))
    if found in (None, framing) or not _is_plain(view, found, codec):
        return None
    return FramingChange(
        f"the file's framing is {found.value}, and that of {before} before it is {framing.value}",
        offset=0,
        remedy="A stream has one framing. Apply the files up to there first, leaving the others out by "
        f"`captures: pattern`; then these, with a pattern of their own and `captures: framing: {found.value}`",
    )


def told_for_paths(error: NotACapture | FramingChange, option: str) -> NotACapture | FramingChange:
    """Adapt an error's remedy for callers who give paths and have no configuration file.

    Args:
        option: the name of the option for the framing.
    """
    if isinstance(error, FramingChange):
        error.remedy = "A stream has one framing: give the files of one at a time"
    elif error.remedy is not None:
        error.remedy = error.remedy.replace(_BY_PATTERN, "out of the paths").replace("`captures: framing`", option)
    return error


def _is_plain(data: memoryview, framing: Framing, codec: str) -> bool:
    """Say whether bytes can be read in a framing to their end, or far enough to be beyond doubt."""
    if is_framed_so(data, framing, codec):
        return True
    try:
        reading = _read(data, framing, codec)
    except GaveUp:
        return False
    return reading.error is None and reading.messages > 1


def _read(data: memoryview, framing: Framing, codec: str) -> Reading:
    """Read bytes from a stream's beginning to their end.

    Raises:
        GaveUp: it takes too much work.
    """
    effort = Effort(len(data))
    return read_session(data, 0, Place(framing), strict=False, stop_at=len(data), effort=effort, codec=codec)


__all__ = ["may_become", "no_capture", "stranger", "told_for_paths"]

"""Find out which transaction a torn or damaged message began or ended."""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import Final

from walreplay.decode.place import Place, Transaction
from walreplay.decode.sessions.frames import head_size
from walreplay.decode.sessions.torn_messages import BETWEEN, read_frame
from walreplay.errors import CaptureError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_message
from walreplay.types.text import UTF8, names_in

_COMMIT: Final = Struct("!QQq")  # commit_lsn, end_lsn, commit_time


def is_damaged_end(data: memoryview, at: int, place: Place, codec: str = UTF8) -> bool:
    """Say whether the message at an offset is the end of the open transaction, but either it or the Begin is damaged.

    A Commit with another LSN is the transaction's if the time is: torn messages can only look like that if they contain
    a Begin, whose LSN then stands as the Commit's end LSN.  A Prepare is the transaction's if its LSN and time are, and
    its xid or its gid.
    """
    begin, open_ = at + head_size(place.framing, data, at, len(data)), place.transaction
    if open_ is None:
        return False
    if open_.gid is not None:
        return _is_damaged_prepare(data, at, begin, replace(place, transaction=None), open_, codec)
    if bytes(data[begin : begin + 2]) != b"C\0" or begin + 26 > len(data):
        return False
    lsn, end_lsn, time = _COMMIT.unpack_from(data, begin + 2)
    return bool(time == open_.commit_time and open_.final_lsn not in (lsn, end_lsn) and lsn < end_lsn)


def _is_damaged_prepare(data: memoryview, at: int, begin: int, place: Place, open_: Transaction, codec: str) -> bool:
    if bytes(data[begin : begin + 1]) != b"P":
        return False
    try:
        behind = read_frame(data, at, len(data), place, names_in(codec))
        message, _ = read_message(data, begin, names=names_in(codec))
    except CaptureError:
        return False
    if not isinstance(message, m.Prepare) or (message.prepare_lsn, message.prepare_time) != (
        open_.final_lsn,
        open_.commit_time,
    ):
        return False
    # The gid may also differ because it is torn; then no valid message follows.  A frame's length shows it by itself.
    following = {Framing.RAW: BETWEEN, Framing.WALSENDER: b"wk"}.get(place.framing)
    goes_on = following is None or behind == len(data) or data[behind] in following
    return message.gid == open_.gid or (message.xid == open_.xid and goes_on)


def promised_lsn(data: memoryview, at: int, end: int, place: Place) -> int | None:
    """Give the LSN of the transaction that a torn message began or ended, and that has to be sent again; or None.

    A streamed transaction need not be sent again: when it is not streamed the second time, it may be left out as empty.
    """
    begin = at + head_size(place.framing, data, at, end)
    if begin >= end:
        return None
    where = {ord("B"): 1, ord("b"): 1, ord("K"): 2, ord("P"): 2}.get(data[begin])
    if where is None or begin + where + 8 > end:
        return None
    return int.from_bytes(data[begin + where : begin + where + 8], "big")

"""Plan the files of one stream without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from walreplay.decode.files import scan_file
from walreplay.decode.sessions.foreign_files import told_for_paths
from walreplay.errors import FramingChange, NotACapture
from walreplay.listing import map_file
from walreplay.protocol.framing import Framing
from walreplay.transactions.plan import Plan
from walreplay.transactions.planned import Read
from walreplay.transactions.stitch import Stitch
from walreplay.types.text import UTF8


def plan_files(
    files: Sequence[str], framing: Framing | None = None, *, codec: str = UTF8, read: Read = map_file
) -> Plan:
    """Plan files: scan one after the other, each from the place where the one before ends.

    Args:
        files: their paths, in stream order.
        framing: the stream's; None to recognise it.
        codec: the encoding of names.
        read: gives a file's bytes as stored.

    Raises:
        CaptureError: the bytes are no sound stream; it names file and offset.
    """
    stitch = Stitch(None)
    for path in files:
        content = read(path)
        try:
            scan = scan_file(path, content, stitch.next_scan(framing, codec))
        except (NotACapture, FramingChange) as error:
            raise told_for_paths(error, "`framing`") from None
        stitch.add_exact(scan)
    return stitch.plan()


__all__ = ["plan_files"]

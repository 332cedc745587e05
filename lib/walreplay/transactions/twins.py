"""The same bytes in two files: a recorder that connects again may leave them, and so may a copy by mistake.

What a server sends again after a reconnect is a session of its own.  In one session the same bytes come once: there a
second file with them would bring its rows twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

from walreplay.decode.place import Place
from walreplay.decode.summary import Block, Body, FileScan, Part, Summary
from walreplay.errors import CaptureError, OrderError
from walreplay.transactions.deferred import Deferred

_LEAST: Final = 64
"""Shorter files may be equal by chance."""


class TwinError(OrderError):
    """The same bytes lie under two names."""


class Twins:
    """The files of a stream, by what is in them, each with the session that it ends in."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], tuple[str, int]] = {}

    def check(
        self, scan: FileScan, parts: tuple[Part, ...], place: Place | None, tail: int, streams: Mapping[int, Deferred]
    ) -> None:
        """Check that the session that a file continues has not had the same bytes.

        Args:
            parts: of the file, as they are joined.
            place: where the file before it ends.
            tail: how many bytes were left of the files before.
            streams: the streamed transactions that are open there, by xid.

        Raises:
            TwinError: it has.
        """
        known = self._files.get((scan.length, scan.fingerprint))
        if known is None or known[0] == scan.path or scan.length < _LEAST:
            return
        session = 0 if place is None else place.session
        for part, behind in zip_longest(parts, parts[1:]):
            session += part.new_session
            if part.data is not None and part.base + part.summary.stop <= tail:
                # It is of the files before.
                continue
            # What stands in front of a session that only a commit LSN shows may belong to it already.
            loses_rows = _has_messages(part.summary) and not _begins_anew(part.summary, streams)
            if loses_rows and not (behind is not None and behind.late):
                break
        else:
            # Nothing, as idle writers leave it, or the middle of a message, whose length proves enough.
            return
        if session <= known[1]:
            raise _twin(scan.path, known[0])

    def add(self, scan: FileScan, place: Place | None) -> None:
        """Add a file that was joined, and the place where it ends."""
        self._files[scan.length, scan.fingerprint] = scan.path, 0 if place is None else place.session

    def explain(self, scan: FileScan, error: CaptureError) -> None:
        """Explain why a file does not continue the stream, if its bytes are known.

        Raises:
            TwinError: they are.
        """
        known = self._files.get((scan.length, scan.fingerprint))
        if known is not None and known[0] != scan.path and scan.length >= _LEAST:
            raise _twin(scan.path, known[0]) from error


def _begins_anew(summary: Summary, streams: Mapping[int, Deferred]) -> bool:
    """Return whether all that is not yet decided begins in the file, with no fewer rows than are known of it."""
    blocks = [item for item in summary.items if isinstance(item, Block)]
    begun, rows = {block.xid for block in blocks if block.first}, Counter[int]()
    for item in summary.items:
        if isinstance(item, Block):
            rows[item.xid] += item.rows.total
        elif not (isinstance(item, Body) and item.begins and item.complete):
            return False
    known = {xid: streams[xid].rows.total for xid in rows if xid in streams}
    return bool(summary.items) and begun == rows.keys() and all(known[xid] <= rows[xid] for xid in known)


def _has_messages(summary: Summary) -> bool:
    return bool(summary.counts or summary.messages)


def _twin(path: str, other: str) -> TwinError:
    return TwinError(
        f"the file holds the same bytes as {other}",
        path=path,
        remedy="Remove one of them, or leave it out by `captures: pattern`",
    )


__all__ = ["TwinError", "Twins"]

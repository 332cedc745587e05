"""The streamed transactions that are open in a walk, and those that an earlier session has left behind."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Stream:
    """A streamed transaction: the offset at which it begins, and the oids of the relations that it has announced."""

    at: int
    announced: set[int] = field(default_factory=set)


class OpenStreams:
    """The streamed transactions that were walked from their start, in the order in which they have begun.

    A session sends streamed transactions from their start.  So if one begins a second time, a new session has begun
    before.  Then the transactions that had begun before it also have to begin again; until then they are *lost*.

    Attributes:
        restarted_at: the first start of the transaction that was the last to begin a second time; None if none was.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Stream] = {}
        self._lost: dict[int, _Stream] = {}
        self.restarted_at: int | None = None

    def begin(self, xid: int, at: int) -> None:
        """Note that a stream begins at an offset."""
        if xid in self._open:
            # Streams in front of it have begun earlier; those that have begun again stand behind it.
            while (first := next(iter(self._open))) != xid:
                self._lost[first] = self._open.pop(first)
            self.restarted_at = self._open.pop(xid).at
        elif xid in self._lost:
            self.restarted_at = self._lost.pop(xid).at
        self._open[xid] = _Stream(at)

    def is_lost(self, xid: int) -> bool:
        """Say whether a stream has to begin again before it can continue."""
        return xid in self._lost

    def announced(self, xid: int | None) -> set[int] | None:
        """Give the set of the oids that an open stream has announced; None if its start was not walked.

        The caller adds to the set what the stream announces.
        """
        stream = None if xid is None else self._open.get(xid)
        return None if stream is None else stream.announced

    def end(self, xid: int) -> set[int] | None:
        """End a stream; give the oids that it has announced, or None if its start was not walked."""
        stream = self._open.pop(xid, None)
        return None if stream is None else stream.announced

"""The streamed transactions that are open in a walk, and those that an earlier session has left behind."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Stream:
    """A streamed transaction, from where it begins: the oids of the relations that it has announced."""

    at: int
    announced: set[int] = field(default_factory=set)


class OpenStreams:
    """The streamed transactions that were walked from their start, in the order in which they have begun.

    A session sends what it streams from the start.  So where a stream begins that had begun already, a new session
    has begun before it; and those that had begun in front of it will have to begin anew, too: until then they are
    *lost*.

    Attributes:
        restarted_at: where the stream had begun before that was begun anew last.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Stream] = {}
        self._lost: dict[int, _Stream] = {}
        self.restarted_at: int | None = None

    def begin(self, xid: int, at: int) -> None:
        """Begin a stream, at an offset."""
        if xid in self._open:
            # Those that have begun again since stand behind it.
            while (first := next(iter(self._open))) != xid:
                self._lost[first] = self._open.pop(first)
            self.restarted_at = self._open.pop(xid).at
        elif xid in self._lost:
            self.restarted_at = self._lost.pop(xid).at
        self._open[xid] = _Stream(at)

    def is_lost(self, xid: int) -> bool:
        """Say whether a stream has to begin anew before it can go on."""
        return xid in self._lost

    def announced(self, xid: int | None) -> set[int] | None:
        """Give the oids that an open stream has announced, to be added to; None where its start was not walked."""
        stream = None if xid is None else self._open.get(xid)
        return None if stream is None else stream.announced

    def end(self, xid: int) -> set[int] | None:
        """End a stream; give the oids that it has announced, None where its start was not walked."""
        stream = self._open.pop(xid, None)
        return None if stream is None else stream.announced

"""Relation messages that come again.

A streamed transaction announces every relation that it uses, mostly as another has done before.  A message says the
same wherever its bytes are the same, and ends there: what was read once need not be read again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from walreplay.protocol import messages as m
from walreplay.protocol.reader import Names, read_message

_TAG: Final = ord(m.Relation.tag)


class Announced:
    """What was read of relations last, by the bytes of their oids.

    Args:
        names: see `read_message`.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._last: dict[bytes, tuple[bytes, m.Relation]] = {}

    def read_message(self, data: memoryview, offset: int, *, streaming: bool) -> tuple[m.AnyMessage, int]:
        """Read the message at an offset as `walreplay.protocol.reader.read_message` does."""
        if data[offset] != _TAG:
            return read_message(data, offset, streaming=streaming, names=self._names)
        # The xid in front, which a streamed block's have, differs from transaction to transaction.
        body = offset + (5 if streaming else 1)
        last = self._last.get(bytes(data[body : body + 4]))
        if last is not None:
            said, relation = last
            end = body + len(said)
            if data[body:end] == said:
                xid = int.from_bytes(data[offset + 1 : body], "big") if streaming else None
                return replace(relation, xid=xid), end
        message, end = read_message(data, offset, streaming=streaming, names=self._names)
        assert isinstance(message, m.Relation)
        self._last[bytes(data[body : body + 4])] = bytes(data[body:end]), message
        return message, end


__all__ = ["Announced"]

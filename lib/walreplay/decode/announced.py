"""Recognise repeated Relation messages by their bytes, without reading them again.

A streamed transaction announces every relation that it uses, mostly with the same message as an earlier one.  Equal
bytes are the same message with the same length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from walreplay.protocol import messages as m
from walreplay.protocol.reader import Names, read_message

_TAG: Final = ord(m.Relation.tag)


class Announced:
    """The last Relation message of each relation, by the bytes of its oid.

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
        # In a streamed block the message begins with an xid, which differs between transactions.
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

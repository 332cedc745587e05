"""Decode what one pass may: one session of ordinary transactions, each of which describes itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np

from walreplay.decode import walk
from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import Decoder
from walreplay.decode.place import Place
from walreplay.protocol import messages as m

_PLAIN: Final = (m.Relation, m.Type, m.Origin, m.Truncate)


class NotPlain(Exception):
    """The files hold what only a plan of all of them can tell."""


class PlainWalker(Decoder):
    """Decode bytes as they lie, as long as nothing in them hangs on what comes later.

    Attributes:
        is_sound: the rows that are gathered are whole; not once a value was refused.
    """

    breaks: ClassVar[bool] = True
    is_sound = True

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Refuse what does not describe itself."""
        if not isinstance(message, _PLAIN) or self.doubtful_at is not None:
            raise NotPlain
        super().on_message(message, offset)

    def rows_of(
        self, data: memoryview, place: Place, start: int, stop_at: int | None = None
    ) -> Iterator[list[ChangeBatch]]:
        """Walk whole messages; for each tile, give the batches that it has filled.

        Args:
            place: the place in the stream at ``start``.

        Raises:
            NotPlain: at what only a plan can tell.
        """
        self.start(place, self.relations)
        buf = np.frombuffer(data, np.uint8)
        for tile in self.walk(data, start, stop_at):
            self.is_sound = False
            full = list(self.convert(buf, tile))
            self.is_sound = True
            yield full
        if self.broke:
            raise NotPlain

    @property
    def last_lsn(self) -> int:
        """The commit LSN of the last transaction that has ended."""
        return int(self.kernel.state[walk.LAST_LSN])

    @property
    def last_at(self) -> int:
        """Where the last whole message begins."""
        return int(self.kernel.state[walk.PREVIOUS])

    @property
    def is_between(self) -> bool:
        """Whether the walk stands between transactions."""
        return bool(self.kernel.state[walk.TXN] == walk.IDLE)

    @property
    def has_begun(self) -> bool:
        """Whether the open transaction has its Begin in these bytes."""
        return bool(self.kernel.state[walk.BEGIN_AT] != walk.NO_OFFSET)


__all__ = ["NotPlain", "PlainWalker"]

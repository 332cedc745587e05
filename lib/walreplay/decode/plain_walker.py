"""The decoder for `walreplay.decode.onepass`: it accepts one session of ordinary transactions, and nothing else."""

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
    """The files have something that only a plan of all files can decode."""


class PlainWalker(Decoder):
    """Decode bytes in their order, as long as their rows do not depend on later bytes.

    Attributes:
        is_sound: all gathered rows are complete; False after an error in a value.
    """

    breaks: ClassVar[bool] = True
    is_sound = True

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Refuse messages that need a plan."""
        if not isinstance(message, _PLAIN) or self.doubtful_at is not None:
            raise NotPlain
        super().on_message(message, offset)

    def rows_of(
        self, data: memoryview, place: Place, start: int, stop_at: int | None = None
    ) -> Iterator[list[ChangeBatch]]:
        """Walk over whole messages; for each tile, give the batches that it has filled.

        Args:
            place: the place in the stream at ``start``.
            stop_at: stop at the first boundary at or after this offset.

        Raises:
            NotPlain: a plan is needed.
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
        """The commit LSN of the last complete transaction."""
        return int(self.kernel.state[walk.LAST_LSN])

    @property
    def last_at(self) -> int:
        """The offset of the last whole message."""
        return int(self.kernel.state[walk.PREVIOUS])

    @property
    def is_between(self) -> bool:
        """Whether no transaction is open."""
        return bool(self.kernel.state[walk.TXN] == walk.IDLE)

    @property
    def has_begun(self) -> bool:
        """Whether the open transaction has its Begin in these bytes."""
        return bool(self.kernel.state[walk.BEGIN_AT] != walk.NO_OFFSET)


__all__ = ["NotPlain", "PlainWalker"]

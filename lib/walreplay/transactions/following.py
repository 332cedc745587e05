"""Follow a part's Relation and Type messages outside of streamed blocks, and check that used relations are known."""

from __future__ import annotations

from collections import deque
from typing import Any

from walreplay.decode.summary import Body
from walreplay.transactions.schedule import View
from walreplay.transactions.state import StitchState
from walreplay.transactions.walked import Walk


class Following:
    """Bring a state up to date with what a part announces outside of streamed blocks, offset by offset."""

    def __init__(self, state: StitchState, walked: Walk) -> None:
        summary = walked.part.summary
        self._state = state
        self._walked = walked
        self._relations = deque(summary.relations)
        self._types = deque(summary.types)
        bodies = [(item.start, item.stop) for item in summary.items if isinstance(item, Body)]
        # What a transaction announces that is being prepared holds when it commits.
        inner = {at for at, _ in summary.announced for start, stop in bodies if start <= at < stop}
        self._announced = deque((at, message) for at, message in summary.announced if at not in inner)
        self._used = deque(sorted(summary.used, key=lambda use: use[1]))
        self._coming = [relation for _, relation in summary.relations]
        self._oids = [*dict(summary.used), *dict.fromkeys(relation.oid for relation in self._coming)]

    def view(self) -> View:
        """Give what is in force for the relations that the part uses or announces, and all types."""
        versions, layouts = self._state.versions, self._state.layouts
        known = versions.view_of(self._oids)
        return known, tuple(versions.types.values()), layouts.of(self._oids, (*known, *self._coming))

    def up_to(self, offset: int | None) -> None:
        """Apply everything that stands before an offset; None applies the rest.

        Raises:
            UnknownRelation: a row uses a relation that nothing has announced.
        """

        def is_next(waiting: deque[tuple[int, Any]]) -> bool:
            return bool(waiting) and (offset is None or waiting[0][0] < offset)

        while is_next(self._relations):
            at, relation = self._relations.popleft()
            self._check(at)
            self._announce(at)
            self._state.announce(relation)
        while is_next(self._types):
            _, type_ = self._types.popleft()
            self._state.versions.types[type_.oid] = type_
        self._announce(offset)
        self._check(offset)

    def _announce(self, offset: int | None) -> None:
        layouts = self._state.layouts
        while self._announced and (offset is None or self._announced[0][0] < offset):
            _, message = self._announced.popleft()
            if any(layout.enum is not None for layout in layouts.take(message)):
                self._state.tell_anew()

    def _check(self, offset: int | None) -> None:
        while self._used and (offset is None or self._used[0][1] < offset):
            oid, at = self._used.popleft()
            self._state.known(oid, at, self._walked)


__all__ = ["Following"]

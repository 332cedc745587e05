"""Outputs that the configuration has switched on or off for a relation that has others in the target.

A change log that is switched on begins with the run that writes to it first.  One that is switched off stays as it is.
If its relation is used meanwhile, the ledger notes that changes are missing from it, so that it can be told when it is
switched on again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from walreplay.errors import ConfigError
from walreplay.outputs import Output, output_of, source_oid
from walreplay.spark.planning.placement import Wanted
from walreplay.spark.planning.registry import MirrorEntry, made_again

BEGINS: Final = "it begins with this run: what the run did not read is not in it"
GOES_ON: Final = "it goes on with this run, after it was switched off: the changes of the runs between are not in it"
ENDS: Final = "its {} is switched off: {} stays as it is, and is no longer written"


@dataclass(frozen=True, slots=True)
class Switched:
    """What is switched.

    Attributes:
        on: the oids of outputs that begin, or go on (True), though other outputs of their relations were there.
        ended: the entries of outputs that are not wanted of relations that are used, by the oid of one that is.
    """

    on: Mapping[int, bool]
    ended: Mapping[int, tuple[MirrorEntry, ...]]

    @classmethod
    def of(cls, entries: Sequence[MirrorEntry], wanted: Sequence[Wanted]) -> Switched:
        """Find what is switched.

        Args:
            entries: what the ledger knows.
            wanted: what is wanted of the relations that are used.

        Raises:
            ConfigError: a mirror or a history that lacks changes is switched on again.
        """
        oids = {one.oid for one in wanted}
        known = {entry.oid: entry for entry in entries}
        sources = {source_oid(entry.oid) for entry in entries}
        on: dict[int, bool] = {}
        for one in wanted:
            entry = known.get(one.oid)
            if entry is None and source_oid(one.oid) in sources:
                on[one.oid] = False
            elif entry is not None and entry.paused:
                if output_of(one.oid) is not Output.CHANGELOG:
                    raise _not_whole(one, entry)
                on[one.oid] = True
        used: dict[int, int] = {}
        for oid in sorted(oids):
            used.setdefault(source_oid(oid), oid)
        ended: dict[int, list[MirrorEntry]] = {}
        for entry in entries:
            source = source_oid(entry.oid)
            if source in used and entry.oid not in oids:
                ended.setdefault(used[source], []).append(entry)
        return cls(on, {oid: tuple(found) for oid, found in ended.items()})

    def notes(self, oid: int) -> Iterator[str]:
        """Say what is switched, for the report of a table."""
        if oid in self.on:
            yield GOES_ON if self.on[oid] else BEGINS
        for entry in self.ended.get(oid, ()):
            yield ENDS.format(output_of(entry.oid).value, entry.table.text)

    def off(self, entries: Mapping[int, MirrorEntry]) -> dict[int, MirrorEntry]:
        """Note in the ledger's entries, by oid, what changes are missing from."""
        paused = {entry.oid for found in self.ended.values() for entry in found}
        return {oid: replace(entry, paused=entry.paused or oid in paused) for oid, entry in entries.items()}


def _not_whole(one: Wanted, entry: MirrorEntry) -> ConfigError:
    output = output_of(one.oid).value
    return ConfigError(
        f"the {output} is switched on again, but lacks what has changed while it was switched off",
        table=one.name,
        path=one.table.text,
        remedy=f"Nothing was applied; leave {output} out of the table's outputs, or {made_again(entry)}",
    )

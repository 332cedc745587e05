"""What the ledger knows of how far a table is the source's: the doubts about its rows, and the names it has had.

A run notes both in the table's entry (`walreplay.table.registry.MirrorEntry`), by the LSNs between which they hold.
Whoever asks what a table held at an LSN gets "exact" only where no doubt covers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from walreplay.names import RowKind, output_of, relation_of, source_oid
from walreplay.protocol.messages import Relation
from walreplay.report import TableReport
from walreplay.table.registry import ALWAYS, GAP, Doubt, Doubts, MirrorEntry


def merged(*doubts: Doubt) -> Doubts:
    """Return each reason once, between all its LSNs."""
    by_text: dict[str, Doubt] = {}
    for doubt in doubts:
        earlier = by_text.get(doubt.text, doubt)
        # None: one of both still lasts.
        last = None if None in (earlier.last, doubt.last) else max(earlier.last or 0, doubt.last or 0)
        by_text[doubt.text] = replace(doubt, first=min(earlier.first, doubt.first), last=last)
    return tuple(by_text.values())


def ended(doubts: Iterable[Doubt], lsn: int, run: int = 0) -> Doubts:
    """Return the doubts that are left once all rows have come anew, as of an LSN."""
    return tuple(
        # Versions of the table from before the new rows stay in doubt: such a doubt ends, and is not removed.
        doubt if doubt.lasting or (doubt.last is not None and doubt.last <= lsn) else replace(doubt, last=lsn, run=run)
        for doubt in doubts
        if doubt.lasting or doubt.first <= lsn
    )


def anew(before: Doubts, made: Doubts, lsn: int, run: int) -> Doubts:
    """Return the doubts of a table that is as it was made again: those of its making, and those of older versions."""
    return merged(*ended((replace(doubt, lasting=False) for doubt in before), max(lsn, 0), run), *made)


def over_gap(entry: MirrorEntry, gap: Doubt) -> MirrorEntry:
    """Return an entry behind a run that has gone on over a gap; only the newest gap that lasts is named."""
    older = [doubt for doubt in entry.doubts if doubt.text.startswith(GAP) and doubt.last is None]
    first = min([gap.first, *(doubt.first for doubt in older)])  # the older gaps' LSNs stay in doubt
    others = (doubt for doubt in entry.doubts if doubt not in older)
    return replace(entry, doubts=merged(*others, replace(gap, first=first, text=GAP + gap.text)))


_MISSING: Final = (
    "a row was changed or deleted that the table did not have: others from before the captures may be missing, too"
)
_UNKNOWN: Final = "some row has a value that was never sent"
_IDENTITY: Final = "what identifies the source's rows has changed"


@dataclass(frozen=True, slots=True)
class Ending:
    """A run that ends, for what its tables' entries note of it.

    Attributes:
        since: the commit LSN up to which everything was applied before it; ``upto``: the same behind it.
        loaded: the relations that it has loaded, with the LSN of their rows.
    """

    since: int
    upto: int
    reports: Sequence[TableReport] = ()
    relations: Sequence[Relation] = ()
    loaded: Mapping[int, int] = field(default_factory=dict)

    def noted(self, before: Sequence[MirrorEntry], after: Sequence[MirrorEntry]) -> list[MirrorEntry]:
        """Return the entries behind the run, with names and doubts."""
        by_oid = {entry.oid: entry for entry in before}
        named = [replace(entry, called=self._called(entry, before, after)) for entry in after]
        return [self._doubted(by_oid.get(entry.oid), entry) for entry in named]

    def _doubted(self, entry_before: MirrorEntry | None, entry: MirrorEntry) -> MirrorEntry:
        source, doubts, output = source_oid(entry.oid), list(entry.doubts), output_of(entry.oid)
        loaded = self.loaded.get(source)
        if loaded is not None:
            doubts = list(ended(doubts, loaded))  # a base load brings all rows
        reports = [report for report in self.reports if report.oid == entry.oid]
        # A change log shows by itself what it lacks.
        if output.is_whole and any(report.without_base or report.deletes_without_row for report in reports):
            doubts.append(Doubt(ALWAYS, None, _MISSING))
        if any(report.unknown for report in reports):
            doubts.append(Doubt(self.since + 1, None, _UNKNOWN))
        # Only the run that leaves it out first notes the doubt.
        if entry.paused and not (entry_before is not None and entry_before.paused):
            doubts.append(Doubt(self.since + 1, None, entry.paused))
        sent = [relation.identity for relation in self.relations if relation.oid == source]
        identities = list(filter(None, [entry.identity, entry_before.identity if entry_before else (), *sent]))
        if len(set(identities)) > 1 and output.rows is RowKind.CHANGE:
            doubts.append(Doubt(ALWAYS, None, _IDENTITY, lasting=True))
        return replace(entry, doubts=merged(*doubts), identity=identities[-1] if identities else ())

    def _called(
        self, entry: MirrorEntry, before: Sequence[MirrorEntry], after: Sequence[MirrorEntry]
    ) -> tuple[tuple[int, int, str], ...]:
        """Return a relation's names, with the LSNs between which each was taken; an empty one: it has none."""
        name, source, identity = entry.name_now, source_oid(entry.oid), relation_of(entry.oid)
        own_names = (other.called for other in before if relation_of(other.oid) == identity and other.called)
        called = next(own_names, entry.called)
        names = {relation.qualified_name for relation in self.relations if relation.oid == source}
        others = (other.source_name for other in (*before, *after) if relation_of(other.oid) != identity)
        taken = {other.called[-1][2] for other in before if other.called and relation_of(other.oid) != identity}
        # Nobody else has had the name, so it was its own from the start.
        if not called and entry.source_name not in {*others, *taken} and names <= {entry.source_name}:
            called = ((ALWAYS, ALWAYS, entry.source_name),)
        if called and called[-1][2] == name and names <= {name}:
            return called
        # Where in the run the name changed is not kept: name_at doubts it.
        return (*called, (self.since, max(self.upto, self.loaded.get(source, ALWAYS)), name))


def name_at(entry: MirrorEntry, lsn: int) -> tuple[str, str]:
    """Return the name that a table's relation had at an LSN, and why it may have been another one; empty for none."""
    name, doubt = "", ""
    for since, upto, taken in entry.called:
        if upto <= lsn:
            name = taken
        elif since < lsn:  # inside the run that changed the name
            doubt = "its name, or what has it, changed in the run that has applied this LSN"
            name = name or taken
    return name, doubt

"""Hold a table that an error of its own stops (`on_table_error: hold`), so that the others go on.

A held table is left out of all runs, like one that the configuration leaves out, until a rebuild or a load has made it
again (`MirrorEntry.paused`); all outputs of a table are held together.  While a run is planned, it is planned again
without the table, and the hold is written down with the plan.  Behind that, each table is worked on by itself: one that
fails stays, for the ledger, as it was before the run.  A run that is killed before its end tries it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from walreplay.delta.local import ConflictError, DroppedError
from walreplay.errors import LedgerConflict, SparkFailure, WalReplayError
from walreplay.evolution.shapes import TableShape
from walreplay.job.context import RunContext
from walreplay.lsn import format_lsn
from walreplay.names import Output, output_of, relation_of, source_oid
from walreplay.protocol.messages import Relation
from walreplay.report import TableReport
from walreplay.session.failures import is_refused
from walreplay.stream.plan import Plan
from walreplay.table.certainty import merged
from walreplay.table.identities import Identities
from walreplay.table.plan import TablePlan
from walreplay.table.registry import ALWAYS, HELD, Doubt, Entries, MirrorEntry, left_at, made_again


@dataclass
class Holding:
    """The tables that one run holds.

    Attributes:
        entries: what the ledger knows of the tables, with those that are held while the run is planned.
        resumed: the run was begun before, and may have moved tables: what fails while it is planned stops it.
        failed: the tables that have failed since the plan was written, as before the run, by oid, with the reason.
    """

    run: RunContext
    plan: Plan
    entries: Entries
    resumed: bool
    failed: dict[int, tuple[MirrorEntry, str]] = field(default_factory=dict)

    @contextmanager
    def planning(self) -> Iterator[None]:
        """End here by an error that holds tables: then the run is planned again; any other stops it."""
        try:
            yield
        except WalReplayError as error:
            named = {} if self.resumed or not _is_of_table(error) else self.named(error.table or "")
            if not named:  # an error that comes again, without the table, is not its own
                raise
            for identity, name in named.items():
                self.entries = self._with_held(self.entries, identity, name, _reason(error))

    @contextmanager
    def applying(self, plan: TablePlan) -> Iterator[None]:
        """End here by an error that holds a table behind the run's plan."""
        try:
            yield
        except WalReplayError as error:
            if not _is_of_table(error, plan.table.text) or not self.named(plan.name):
                raise
            self.run.ledger.check_lock()  # if it is lost, that is the reason for whatever has failed
            before = plan.before or plan.after
            before = replace(before, oid=plan.oid, name=plan.name, table=plan.table, set_aside=plan.set_aside)
            self.failed[plan.oid] = before, _reason(error)

    def left_at(
        self, entries: Sequence[MirrorEntry], versions: Mapping[int, int | None], run: str
    ) -> list[MirrorEntry]:
        """Return the entries behind the run, as `registry.left_at` does; what has failed is as it was before."""
        as_before = [self.failed[entry.oid][0] if entry.oid in self.failed else entry for entry in entries]
        noted = tuple(left_at(as_before, versions, run))
        for entry, reason in self.failed.values():
            noted = self._with_held(noted, relation_of(entry.oid), entry.source_name, reason)
        return list(noted)

    def named(self, table: str) -> dict[int, str]:
        """Return what stands for the tables that an error's ``schema.table[.column]`` may name, if it may hold them."""
        # Of a name that is held already, another table may be the next holder.
        held = {relation_of(entry.oid) for entry in self.entries if entry.held}
        identities = self._identities
        # What the run announces has the name now; what was in force before may be a dropped table's.
        for relations in (self.plan.announced, self.plan.versions, self.plan.before):
            names = [(relation, relation.qualified_name + output.suffix) for relation in relations for output in Output]
            named_so = [relation for relation, name in names if f"{table}.".startswith(f"{name}.")]
            meant = [relation for relation in named_so if identities[relation] not in held]
            if meant:
                named = {identities[relation]: relation.qualified_name for relation in meant}
                # Another new table with its oid would be taken for it.
                others = set(identities.values()) - named.keys() - {relation_of(entry.oid) for entry in self.entries}
                is_clear = {source_oid(other) for other in others}.isdisjoint(map(source_oid, named))
                holds = all(self.run.settings.holds(each.namespace or "pg_catalog", each.name) for each in meant)
                return named if is_clear and holds else {}
        return {}

    @property
    def _identities(self) -> dict[Relation, int]:
        return Identities.find(self.plan.relations, self.entries, self.run.settings).of

    def _with_held(self, entries: Entries, identity: int, name: str, reason: str) -> Entries:
        """Return entries, those of a table held; one that no run has written to gets one."""
        is_known, names = any(relation_of(entry.oid) == identity for entry in entries), dict[int, str]()
        if not is_known:  # its place may be that of a table which was dropped: that one is the source's no more
            identities = self._identities
            names = {identities[relation]: relation.qualified_name for relation in self.plan.announced}
            aside = self.run.target.set_aside(identity)
            entries = (*entries, MirrorEntry(identity, name, aside, TableShape(), set_aside=True))
        held = list[MirrorEntry]()
        for entry in entries:
            is_of_name = not is_known and entry.source_name == name and not entry.set_aside
            is_of_name = is_of_name and names.get(relation_of(entry.oid), name) == name  # else it is renamed, not gone
            if is_of_name or relation_of(entry.oid) == identity:
                first = ALWAYS if entry.left is None else self.plan.after_lsn + 1
                doubts = merged(*entry.doubts, Doubt(first, None, HELD + reason))
                entry = replace(entry, name=name + output_of(entry.oid).suffix, paused=HELD + reason, doubts=doubts)
            held.append(entry)
        return tuple(held)


def _is_of_table(error: WalReplayError, place: str | None = None) -> bool:
    """Return whether an error is about one table alone, and comes again until somebody has removed its cause.

    Args:
        place: of the table that is worked on; None if the error alone names it.
    """
    # A place in a file: bytes that cannot be read.  Who has lost a race only has to run again.
    if error.offset is not None or isinstance(error, ConflictError | DroppedError | LedgerConflict):
        return False
    if is_refused(error.problem):  # the file system refuses the table's folder, or one of the whole target
        return error.table is not None if place is None else place.removeprefix("file:") in (error.path or "")
    return error.table is not None and not isinstance(error, SparkFailure)


_NOTHING: Final = re.compile(r"^Nothing was \w+(?: to it)?[;.] ")


def _reason(error: WalReplayError) -> str:
    place, remedy = "" if error.path is None else f"{error.path}: ", _NOTHING.sub("", error.remedy or "")
    # Of a table that is not held, the remedy may be another one.
    return f"{place}{error.problem}" + (f" ({remedy})" if remedy and "walreplay rebuild" not in remedy else "")


def reported(run: RunContext, entries: Sequence[MirrorEntry]) -> list[TableReport]:
    """Return how a run reports the tables that are held; warn of each once, whichever outputs it has."""
    reports, warnings = list[TableReport](), dict[str, str]()
    for entry in (entry for entry in entries if entry.held):
        report = TableReport(entry.name, entry.table.text, "held")
        first = next((doubt.first for doubt in entry.doubts if doubt.text == entry.paused), ALWAYS)
        lacks = f"what has changed since LSN {format_lsn(first - 1)}" if first > 0 else "all rows"
        name, again = entry.source_name, made_again(replace(entry, oid=relation_of(entry.oid), name=entry.source_name))
        warnings.setdefault(name, f"{name}: it is held, and lacks {lacks}; once the cause is gone, {again}")
        reports.append(replace(report, oid=entry.oid, set_aside=entry.set_aside, notes=(entry.held,)))
    run.warnings.extend(warnings.values())
    return reports

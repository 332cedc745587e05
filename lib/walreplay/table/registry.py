"""The ledger's entries: whose rows each mirror table holds, where it lies, and its columns.

A relation is identified by its oid; its name says where it is written.  So entries go by oid.  A table whose name
another relation has taken has an entry too: its rows are set aside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from shlex import quote
from typing import Final, TypeAlias

from walreplay.config.selection import NO_LAYOUT, Share, TableLayout
from walreplay.delta.target import TableName
from walreplay.evolution.shapes import TableShape
from walreplay.names import output_of

ALWAYS: Final = -1  # The LSN of what holds from the beginning on

GAP: Final = "a run has gone on over a gap: "  # The doubt that such a run leaves begins so
FROM: Final = "its changes begin later (--from-lsn)"
HELD: Final = "it is held: "  # What `MirrorEntry.paused` says of a table that an error holds begins so
OFF: Final = "it is left out, or its output is switched off, and its source has changed since"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a table may differ from its source.

    Attributes:
        first: the first LSN that is in doubt; ``last``: the first one that is not any more, None while it lasts.
        text: the reason, a sentence about the table.
        run: the run that has made all rows anew; versions of earlier runs at ``last`` are in doubt, too.
        lasting: the reason is the configuration: new rows do not end it.
    """

    first: int
    last: int | None
    text: str
    run: int = 0
    lasting: bool = False

    def covers(self, lsn: int, run: int | None = None) -> bool:
        """Return whether the table as of an LSN is in doubt; ``run`` is the one that has left its version."""
        # At `last`, only the run that made the rows anew is sure.
        is_older = run is not None and run < self.run and lsn == self.last
        return self.first <= lsn and (self.last is None or lsn < self.last or is_older)


Doubts = tuple[Doubt, ...]


ARCHIVE: Final = "the archive"  # What a table made again of the captures is


@dataclass(frozen=True, slots=True)
class Verified:
    """How a table has compared with one that has the right rows.

    Attributes:
        lsn: what both had applied.
        moment: when that was.
        against: where the right rows came from.
        is_equal: it had the same rows.
    """

    lsn: int
    moment: datetime
    against: str
    is_equal: bool


@dataclass(frozen=True, slots=True)
class MirrorEntry:
    """A mirror table as the last run that wrote to it left it.

    Attributes:
        oid: the source relation's, or what stands for another output of it (`walreplay.names`).
        name: its ``schema.table`` when it was used last.
        table: where its rows lie.
        set_aside: another relation has its place.
        names: the mirror's name of every column that the relation has ever had, by the source's name.  None is reused.
        left: the version that the table had then; None if no run has written to it.
        run: the id of the run that made that version; empty if none has.
        layout: what the configuration wanted of it then.
        comment: what the table was given last to say of itself; empty for nothing.
        paused: why changes of its source are not in it: `OFF`, when its relation was used, or an error behind `HELD`;
            empty if all are.
        base_lsn: the table was loaded with the rows that the source had at this LSN: a transaction whose commit LSN is
            lower is among them.  None if it was not loaded.
        share: the part of the table that is the source's; None if all of it is.
        called: the names that the relation has had, each with the LSNs between which it was taken; empty for none.
        doubts: why it may differ from its source, and at which LSNs.
        identity: the relation's (`Relation.identity`) when it was used last; empty if it is not known.
        verified: how it has compared when it was compared last; None if it never was.
    """

    oid: int
    name: str
    table: TableName
    shape: TableShape
    set_aside: bool = False
    names: tuple[tuple[str, str], ...] = ()
    left: int | None = None
    run: str = ""
    layout: TableLayout = NO_LAYOUT
    comment: str = ""
    paused: str = ""
    base_lsn: int | None = None
    share: Share | None = None
    called: tuple[tuple[int, int, str], ...] = ()
    doubts: Doubts = ()
    identity: tuple[str, ...] = ()
    verified: Verified | None = None

    @property
    def gap(self) -> str | None:
        """What is known of a gap that a run has gone on over, so that the table may have rows that the source has not.

        None for no gap, and where all rows have come behind it.
        """
        texts = [doubt.text for doubt in self.doubts if doubt.text.startswith(GAP) and doubt.last is None]
        return texts[-1].removeprefix(GAP) if texts else None

    @property
    def begins(self) -> int:
        """The commit LSN below which its changes were left out (backfill --from-lsn); -1 for none."""
        return next((doubt.last or -1 for doubt in self.doubts if doubt.text == FROM), -1)

    @property
    def held(self) -> str:
        """The error for which all runs leave the table out, until it is made again; empty for none."""
        return self.paused.removeprefix(HELD) if self.paused.startswith(HELD) else ""

    @property
    def is_unmade(self) -> bool:
        """Whether there is no table: it was held before any run had written to it, or has given up its place."""
        return self.left is None and (bool(self.held) or self.set_aside)

    @property
    def name_now(self) -> str:
        """The source's name of its relation, as far as it is known; empty if another one has it."""
        return self.source_name if not self.set_aside or (self.held and self.is_unmade) else ""

    @property
    def rows_at(self) -> int:
        """The last commit LSN that is among its loaded rows; -1 if it has none, or is set aside."""
        # A load has what committed below its LSN.
        return -1 if self.base_lsn is None or self.set_aside else self.base_lsn - 1

    @property
    def source_name(self) -> str:
        """The source's name, whichever of its outputs the table is."""
        return self.name.removesuffix(output_of(self.oid).suffix)


Entries: TypeAlias = tuple[MirrorEntry, ...]


def made_again(entry: MirrorEntry | None) -> str:
    """Return for a remedy how a table is made again, by what the ledger knows of it; None: it knows nothing."""
    if entry is None or entry.share is not None:  # rebuild refuses tables of several sources
        return "apply to a new target"
    output = output_of(entry.oid)
    further = f" --output {output.value}" if output.suffix else ""
    return f"make it again from the archive by walreplay rebuild --table {quote(re.escape(entry.source_name))}{further}"


def left_at(entries: Sequence[MirrorEntry], versions: Mapping[int, int | None], run: str) -> list[MirrorEntry]:
    """Return entries with the versions that a run, by its id, has made; a table without one (by oid) keeps its own."""
    return [
        # A version without a number was left by no run.
        replace(entry, left=versions[entry.oid], run=run if versions[entry.oid] is not None else "")
        if entry.oid in versions
        else entry
        for entry in entries
    ]

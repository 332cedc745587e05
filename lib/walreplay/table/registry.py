"""The ledger's entries: whose rows each mirror table holds, where it lies, and its columns.

A relation is identified by its oid; its name says where it is written.  So entries go by oid.  A table whose name
another relation has taken has an entry too: its rows are set aside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from walreplay.config.selection import NO_LAYOUT, Share, TableLayout
from walreplay.delta.target import TableName
from walreplay.evolution.shapes import MirrorColumn, TableShape
from walreplay.names import output_of
from walreplay.types.base import type_from_dict, type_to_dict


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
        paused: its output was switched off when its relation was used: those changes are not in it.
        base_lsn: the table was loaded with the rows that the source had at this LSN: a transaction whose commit LSN is
            lower is among them.  None if it was not loaded.
        share: the part of the table that is the source's; None if all of it is.
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
    paused: bool = False
    base_lsn: int | None = None
    share: Share | None = None

    @property
    def rows_at(self) -> int:
        """The last commit LSN that is among its loaded rows; -1 if it has none, or is set aside."""
        return -1 if self.base_lsn is None or self.set_aside else self.base_lsn - 1

    @property
    def source_name(self) -> str:
        """The source's name, whichever of its outputs the table is."""
        return self.name.removesuffix(output_of(self.oid).suffix)

    def to_json(self) -> str:
        """Write the entry."""
        return json.dumps(
            {
                "oid": self.oid,
                "name": self.name,
                "path": self.table.path,
                "parts": list(self.table.parts),
                "set_aside": self.set_aside,
                "names": [list(pair) for pair in self.names],
                "left": self.left,
                "run": self.run,
                "properties": dict(self.layout.properties),
                "cluster_by": list(self.layout.cluster_by),
                "comment": self.comment,
                "paused": self.paused,
                "base_lsn": self.base_lsn,
                "share": None if self.share is None else [self.share.column, self.share.source],
                "next_id": self.shape.next_id,
                "columns": [
                    {
                        "id": column.id,
                        "source": column.source,
                        "name": column.name,
                        "type": type_to_dict(column.type),
                        "dropped": column.dropped,
                        "added": column.added,
                        "comment": column.comment,
                        "filled": column.filled,
                        "number": column.number,
                        "was": list(column.was),
                        "rewritten": column.rewritten,
                    }
                    for column in self.shape.columns
                ],
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> MirrorEntry:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        columns = tuple(
            MirrorColumn(
                one["id"],
                one["source"],
                one["name"],
                type_from_dict(one["type"]),
                one["dropped"],
                one["added"],
                one.get("comment", ""),
                one.get("filled"),
                one.get("number", 0),
                tuple(one.get("was", ())),
                one.get("rewritten", 0),
            )
            for one in values["columns"]
        )
        return cls(
            oid=values["oid"],
            name=values["name"],
            table=TableName(path=values["path"], parts=tuple(values["parts"])),
            shape=TableShape(columns, values["next_id"]),
            set_aside=values["set_aside"],
            names=tuple((source, name) for source, name in values["names"]),
            left=values.get("left"),
            run=values.get("run", ""),
            layout=TableLayout(
                tuple(sorted(values.get("properties", {}).items())), tuple(values.get("cluster_by", ()))
            ),
            comment=values.get("comment", ""),
            paused=values.get("paused", False),
            base_lsn=values.get("base_lsn"),
            share=Share(*values["share"]) if values.get("share") else None,
        )


def made_again(entry: MirrorEntry | None) -> str:
    """Return how a table is made again, for the remedy of an error.

    Args:
        entry: what the ledger knows of the table; None for nothing.
    """
    if entry is None or entry.share is not None:
        return "apply to a new target"
    output = output_of(entry.oid)
    further = f" --output {output.value}" if output.suffix else ""
    return f"make it again from the archive by walreplay rebuild --table {quote(re.escape(entry.source_name))}{further}"


def left_at(entries: Sequence[MirrorEntry], versions: Mapping[int, int | None], run: str) -> list[MirrorEntry]:
    """Return entries with the versions that a run made.

    Args:
        versions: by oid; a table that is not among them keeps its version.
        run: the run's id.
    """
    return [
        replace(entry, left=versions[entry.oid], run=run if versions[entry.oid] is not None else "")
        if entry.oid in versions
        else entry
        for entry in entries
    ]

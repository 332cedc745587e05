"""A mirror table in Python: what a run's rows do to it, by the very rules of the MERGE that Spark is given.

The functions that Spark's workers run are the real ones; staging and the Delta table are lists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from support.runs import Files, staged_rows
from walreplay.decode.change_batch import column_types
from walreplay.decode.masking import Shown
from walreplay.fold.change_log import Projection
from walreplay.fold.events import Identity, Mode
from walreplay.names import Output
from walreplay.protocol.messages import Relation
from walreplay.spark.workers.decode import Assigned, Assignment
from walreplay.spark.workers.fold import NetFold, fold_batches, link_batches, route_batches
from walreplay.spark.workers.rows import NO_BUCKET, links_table
from walreplay.stream.plan import Plan
from walreplay.types import families
from walreplay.types.base import ColumnType

Row = dict[str, Any]


class MergeConflict(Exception):
    """Several source rows match one row of the target, which Delta refuses."""


@dataclass(frozen=True)
class TargetRow:
    """A row of the mirror table; its rescued values by column."""

    values: tuple[Any, ...]
    rescued: tuple[tuple[str, str], ...]
    lsn: int


@dataclass
class MirrorModel:
    """A mirror table.

    Attributes:
        types: the columns' Arrow types.
        configured: the key comes from the configuration, so that it may hold NULLs.
        routed: where keys have moved, only those that are linked come together; else all do.
        sent: relations with the replica identity by which their old rows are really sent, where that is another.
        missed: source rows whose base should have been there but was not.
        unknown: rows that were written with a value that nobody knows.
    """

    identity: Identity
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    configured: bool = False
    routed: bool = True
    sent: Mapping[Relation, Relation] = field(default_factory=dict)
    rows: list[TargetRow] = field(default_factory=list)
    written: bool = False
    missed: int = 0
    unknown: int = 0

    def apply(self, plan: Plan, files: Files, relations: Sequence[Relation], buckets: int) -> None:
        """Do what a run does to this table."""
        truncates = {item.oid: (item.lsn, item.ordinal) for item in plan.truncates}
        staged = self._decode(plan, files, relations, truncates, buckets) if plan.upto_lsn > plan.after_lsn else []
        truncated = any(relation.oid in truncates for relation in relations)
        if not truncated and not any(row["rows"] for row in staged):
            return
        folded, tracked, moves, deletes = self._fold(staged, buckets)
        self.unknown += sum(row["unknown"] for row in folded if not row.get("deleted") and row.get("net", 1) > 0)
        if truncated or not self.written or self.identity.mode is Mode.APPEND:
            rows = self._final_rows(folded)
            self.rows = rows if truncated else self.rows + rows
        elif self.identity.mode is Mode.MULTISET:
            self._merge_multiset(folded)
        else:
            self._merge_keyed(folded, tracked, moves, deletes)
        self.written = True

    def _decode(
        self,
        plan: Plan,
        files: Files,
        relations: Sequence[Relation],
        truncates: dict[int, tuple[int, int]],
        buckets: int,
    ) -> list[Row]:
        assigned = {
            relation: Assigned(
                number,
                tuple(column_types(relation, {})),
                {
                    Output.MIRROR: Assignment(
                        table=0,
                        relation=number,
                        identity=self.identity,
                        shown=Shown(self.sent.get(relation, relation), tuple(range(len(relation.columns)))),
                    )
                },
            )
            for number, relation in enumerate(relations)
        }
        staged = staged_rows(plan, files, assigned, truncates=truncates, buckets=buckets)
        return [row for row in staged if row["table"] >= 0 or row["table"] == links_table(0)]

    def _fold(self, everything: list[Row], buckets: int) -> tuple[list[Row], list[int], bool, bool]:
        links = [row for row in everything if row["table"] < 0]
        infos = [json.loads(row["info"]) for row in everything if row["table"] >= 0]
        staged = [row for row in everything if row["table"] >= 0 and row["bucket"] != NO_BUCKET]
        tracked = sorted({number for info in infos for number in info["tracked"]})
        moves = any(info["moves"] for info in infos)
        deletes = any(info["deletes"] for info in infos)
        assert moves == bool(links)
        task = NetFold(
            types=self.types,
            names=self.names,
            identity=self.identity,
            tracked=tuple(tracked),
            moves=moves,
            projections=tuple((begin, self._as_it_is(), self.identity.key) for begin in _versions(staged)),
        )
        rows = [{**row, "bucket": 0 if moves and not self.routed else row["bucket"]} for row in staged]
        # What the order does not name may come in any.
        rows.reverse()
        if moves and self.routed:
            found = link_batches(_batches(links), buckets=buckets)
            rows += [row for batch in found for row in batch.to_pylist()]
            rows = [
                row for batch in route_batches(_batches(rows), task=task, buckets=buckets) for row in batch.to_pylist()
            ]
        batches = _batches(rows)
        folded = [row for batch in fold_batches(batches, task=task) for row in batch.to_pylist()]
        return folded, tracked, moves, deletes

    def _as_it_is(self) -> Projection:
        """Return the projection of a table whose columns do not change."""
        # Of a chain of one type, nothing but its length is looked at.
        chains = tuple((ColumnType(kind, families.STRING, ""),) for kind in self.types)
        return Projection(tuple(range(len(self.names))), chains, self.names, self.names)

    def _final_rows(self, folded: list[Row]) -> list[TargetRow]:
        if self.identity.mode is Mode.KEYED:
            return [self._new(row) for row in folded if not row["deleted"]]
        if self.identity.mode is Mode.MULTISET:
            self.missed += sum(row["needed"] for row in folded)
            return [self._new(row) for row in folded for _ in range(row["needed"] + row["net"])]
        return [self._new(row) for row in folded]

    def _new(self, row: Row) -> TargetRow:
        values = tuple(row[f"c{number}"] for number in range(len(self.names)))
        return TargetRow(values, _rescued(row["rescued"]), row["lsn"])

    def _merge_keyed(self, folded: list[Row], tracked: Sequence[int], moves: bool, deletes: bool) -> None:
        matches: dict[int, list[Row]] = {}
        inserted: list[TargetRow] = []
        for row in folded:
            found = [at for at, target in enumerate(self.rows) if self._matches(target, row, moves)]
            for at in found:
                matches.setdefault(at, []).append(row)
            if found:
                continue
            self.missed += row["expected"] and (row["matches"] if moves else True)
            if not (row["deleted"] and (deletes or moves)):
                inserted.append(self._new(row))
        result: list[TargetRow] = []
        for at, target in enumerate(self.rows):
            sources = matches.get(at, [])
            if len(sources) > 1:
                raise MergeConflict(f"{len(sources)} source rows match one row")
            if not sources:
                result.append(target)
            elif not (sources[0]["deleted"] and (deletes or moves)):
                result.append(self._updated(target, sources[0], tracked))
        self.rows = result + inserted

    def _matches(self, target: TargetRow, row: Row, moves: bool) -> bool:
        if moves and not row["matches"]:
            return False
        there, here = dict(target.rescued), dict(_rescued(row["base_rescued" if moves else "rescued"]))
        for k, number in enumerate(self.identity.key):
            name = self.names[number]
            value, own = row[f"b{k}" if moves else f"c{number}"], target.values[number]
            rescuable = _rescuable(self.types[number])
            if value is None or own is None:
                if not (value is None and own is None and (self.configured or rescuable)):
                    return False
                if rescuable and there.get(name) != here.get(name):
                    return False
            elif not _same(value, own):
                return False
        return True

    def _updated(self, target: TargetRow, row: Row, tracked: Sequence[int]) -> TargetRow:
        new = self._new(row)
        kept = {number for number in tracked if row[f"k{number}"]}
        values = tuple(target.values[number] if number in kept else value for number, value in enumerate(new.values))
        rescued = dict(new.rescued)
        names = {self.names[number] for number in kept}
        old = {name: text for name, text in target.rescued if name in names}
        assert not old.keys() & rescued.keys(), "map_concat refuses keys that come twice"
        rescued |= old
        return TargetRow(values, tuple(sorted(rescued.items())), new.lsn)

    def _merge_multiset(self, folded: list[Row]) -> None:
        """Take away as many copies as are needed, the newest ones, and add those that come."""
        for row in folded:
            new = self._new(row)
            copies = sorted(
                (at for at, target in enumerate(self.rows) if image(target) == image(new)),
                key=lambda at: self.rows[at].lsn,
            )
            gone = set(copies[max(len(copies) - row["needed"], 0) :])
            self.missed += row["needed"] - len(gone)
            kept = [target for at, target in enumerate(self.rows) if at not in gone]
            self.rows = kept + [new] * (row["needed"] + row["net"])


def _versions(staged: list[Row]) -> list[int]:
    """Return the sequence numbers at which another relation version begins."""
    found: list[tuple[int, int]] = [(0, -1)]
    for sequence, relation in sorted({(row["sequence"], row["relation"]) for row in staged}):
        if relation != found[-1][1]:
            found.append((sequence, relation))
    return [sequence for sequence, _ in found]


def _batches(rows: list[Row]) -> list[pa.RecordBatch]:
    """Return staged rows as they are handed to a task, one a batch."""
    schema = pa.schema([("bucket", pa.int32()), ("sequence", pa.int64()), ("data", pa.binary())])
    ordered = sorted(rows, key=lambda row: (row["bucket"], row["sequence"]))
    return [pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names}], schema=schema) for row in ordered]


def image(row: TargetRow) -> str:
    """Return a row's exact image: -0 is not 0, and NaN equals itself."""
    return repr((row.values, row.rescued))


def _rescued(text: str | None) -> tuple[tuple[str, str], ...]:
    return () if text is None else tuple(sorted(json.loads(text).items()))


def _rescuable(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_temporal(kind) or pa.types.is_list(kind))


def _same(one: Any, other: Any) -> bool:
    """Compare exactly, -0 and 0 are two; a NaN equals itself."""
    return repr(one) == repr(other)

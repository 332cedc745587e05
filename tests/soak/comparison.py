"""What all hold at an LSN at which nobody is at work: the server, its subscriber, and a target's tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from soak import evolving, traffic
from soak.stand import Stand
from support.readers import read
from support.truth import RESCUED, Image, SourceTable, arrow_table, images, row_difference, row_images

_ROOTS = {
    "parts.root": ("parts.low", "parts.high_some", "parts.high_rest"),
    "typed.parted": ("typed.leaf_a", "typed.leaf_b"),
}
_BETWEEN = "parts.high"
"""A partition that has partitions: its rows are theirs."""


class Impossible(Exception):
    """A change cannot have happened to the rows before it."""


@dataclass(frozen=True)
class Stop:
    """A moment at which nobody was at work, and what the server held then."""

    lsn: int
    tables: Mapping[str, SourceTable]


def published_tables(stand: Stand) -> Mapping[str, SourceTable]:
    """Read the server's tables: partitions, or their roots, whichever are published."""
    left_out = {_BETWEEN, *(sum(_ROOTS.values(), ()) if stand.draw.via_root else _ROOTS)}
    tables = stand.server.source_tables(*traffic.SCHEMAS, evolving.SCHEMA)
    return {table.qualified_name: _plain(table) for table in tables if table.qualified_name not in left_out}


def _plain(table: SourceTable) -> SourceTable:
    """Leave out vectors, of which `support.truth` does not know that they are arrays."""
    kept = [n for n, column in enumerate(table.columns) if not column.type.startswith(("vector", "halfvec"))]
    return replace(
        table, columns=tuple(table.columns[n] for n in kept), rows=[[r[n] for n in kept] for r in table.rows]
    )


class Comparison:
    """Compares all with a server's tables.

    Args:
        stops: the moments before; the last one is now.
        first: what the tables held before the archive begins.
    """

    def __init__(self, stand: Stand, target: Path, first: Mapping[str, SourceTable], stops: Sequence[Stop]) -> None:
        self._stand, self._target, self._first, self._stops = stand, target, first, stops
        self.tables = 0

    def differences(self) -> Iterator[str]:
        """Yield a line for each table of whatever kind that differs."""
        now = self._stops[-1].tables
        oracle = self._stand.subscriber
        for name, table in now.items():
            yield from oracle_difference(table, oracle.source_table(table.schema, table.name))
            place = self._target / table.schema / table.name
            if not place.exists():
                if table.rows:
                    yield f"{name}: {len(table.rows)} rows, and no table"
                continue
            self.tables += 1
            yield from self._of_outputs(name, table, place)

    def _of_outputs(self, name: str, table: SourceTable, place: Path) -> Iterator[str]:
        yield from _difference("mirror", table, read(place))
        history = read(place.with_name(f"{place.name}__history"))
        if table.schema == evolving.SCHEMA:
            # Older versions have the names and the types of then.
            if (opened := history["__end_lsn"].null_count) != len(table.rows):
                yield f"{name}: {opened} versions are open, of {len(table.rows)} rows"
            return
        for stop in self._stops:
            yield from _difference(f"history as of {stop.lsn:X}", stop.tables[name], as_of(history, stop.lsn))
        log = place.with_name(f"{place.name}__changes")
        if not log.exists():  # nothing has changed since it was loaded
            first = self._first.get(name)
            if table.rows != ([] if first is None else first.rows):
                yield f"{name}: no change log, and other rows than were loaded"
            return
        changes = read(log)
        for stop in self._stops[-2:]:
            truth = row_images(stop.tables[name], arrow_table(stop.tables[name]))
            try:
                difference = row_difference(table, folded(table, self._first.get(name), changes, stop.lsn), truth)
            except Impossible as error:
                difference = str(error)
            if difference is not None:
                yield f"{name}: change log folded to {stop.lsn:X}: {difference}"


def _difference(what: str, table: SourceTable, rows: pa.Table) -> Iterator[str]:
    missing = [column.name for column in table.columns if column.name not in rows.column_names]
    if missing:
        yield f"{table.qualified_name}: {what}: no columns {missing}"
        return
    difference = row_difference(table, row_images(table, rows), row_images(table, arrow_table(table)))
    if difference is not None:
        yield f"{table.qualified_name}: {what}: {difference}"


def as_of(history: pa.Table, lsn: int) -> pa.Table:
    began = pc.less_equal(history["__start_lsn"], lsn)
    ends = pc.fill_null(pc.greater(history["__end_lsn"], lsn), True)
    return history.filter(pc.and_(began, ends))


def oracle_difference(table: SourceTable, copy: SourceTable) -> Iterator[str]:
    """Compare the server's rows with the subscriber's, text by text."""

    def rows_of(source: SourceTable) -> Counter[tuple[str | None, ...]]:
        names = [column.name for column in source.columns]
        order = [names.index(column.name) for column in table.columns]
        # Without a key a subscriber looks for equal rows, and to it -0 is 0.
        plain = {"-0": "0"} if not table.key else {}
        return Counter(tuple(plain.get(row[n] or "", row[n]) for n in order) for row in source.rows)

    lost, added = rows_of(table) - rows_of(copy), rows_of(copy) - rows_of(table)
    if lost or added:
        yield (
            f"{table.qualified_name}: the subscriber lacks {lost.total()} rows and has {added.total()} others"
            f" (such as {str([*lost][:1])[:300]} and {str([*added][:1])[:300]})"
        )


def folded(table: SourceTable, first: SourceTable | None, changes: pa.Table, lsn: int) -> list[Image]:
    """Play a change log up to an LSN on the rows from before it.

    Raises:
        Impossible: a row is changed that is not there, or inserted though it is.
    """
    names = [column.name for column in table.columns]
    held = Counter[Image]() if first is None else Counter(row_images(first, arrow_table(first)))
    changes = changes.filter(pc.less_equal(changes["__commit_lsn"], lsn))
    changes = changes.sort_by([("__commit_lsn", "ascending"), ("__ordinal", "ascending")])
    before = _flattened(changes, names)
    olds = images(before, names)
    is_old = before["is_there"].to_pylist()
    news, rescued = images(changes, names), changes[RESCUED].to_pylist()
    keys = [names.index(name) for name in table.key]
    by_key: dict[Image, Image] = {}
    if keys:
        by_key = {tuple(row[n] for n in keys): row for row in held.elements()}
    for n, op in enumerate(changes["__op"].to_pylist()):
        if op == "t":
            held.clear()
            by_key.clear()
            continue
        new = (*news[n], _kept(rescued[n]))
        if not keys:
            if is_old[n]:
                _take_out(held, olds[n])
            if op != "d":
                held[new] += 1
            continue
        row = olds[n] if is_old[n] else news[n]
        old = by_key.pop(tuple(row[k] for k in keys), None)
        if (old is None) != (op == "c"):
            raise Impossible(f"{op} of a row that is {'not ' if old is None else ''}there")
        if op != "d":
            new = new if old is None else _completed(new, old, changes["__unchanged"][n].as_py() or (), names)
            by_key[tuple(new[k] for k in keys)] = new
    return list(by_key.values()) if keys else list(held.elements())


def _flattened(changes: pa.Table, names: Sequence[str]) -> pa.Table:
    before = changes["__before"].combine_chunks()
    columns = {name: pc.struct_field(before, name) for name in names}
    return pa.table({**columns, "is_there": pc.is_valid(before)})


def _kept(text: str | None) -> tuple[tuple[str, Any], ...] | None:
    """Return what a row's own columns could not hold."""
    values = {name: value for name, value in json.loads(text or "{}").items() if name != "__before"}
    return tuple(sorted(values.items())) or None


def _take_out(held: Counter[Image], old: Image) -> None:
    """Take one of equal rows out; rows without a key have no rescued values here."""
    row = (*old, None)
    if not held[row]:
        raise Impossible("a change of a row that is not there")
    held[row] -= 1


def _completed(new: Image, old: Image, unchanged: Sequence[str], names: Sequence[str]) -> Image:
    values, rescued = list(new), dict(new[-1] or ())
    for name in unchanged:
        values[names.index(name)] = old[names.index(name)]
        rescued.update({key: value for key, value in (old[-1] or ()) if key == name})
    values[-1] = tuple(sorted(rescued.items())) or None
    return tuple(values)

"""Columns of a table whose older rows may differ from the source's, by what it has announced.

Entry point: `doubts_of`, for one relation version after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from walreplay.lsn import format_lsn
from walreplay.sink.evolution import OWN, MirrorColumn, SourceColumn, TableShape, by_announcement, is_added

LOAD: Final = "Load the table's rows anew (walreplay load --replace)"

_ANNOUNCE: Final = (
    "Announce all tables for each new slot, once it is there (SELECT walreplay.announce_all()), and record with "
    "messages=on"
)


def doubts_of(
    shape: TableShape, columns: Sequence[SourceColumn], ids: Sequence[int], base_lsn: int | None, *, announced: bool
) -> Iterator[str]:
    """Name the columns of a relation version in which the rows from before it may have other values in the source.

    Args:
        shape: the table before the version.
        ids: of the version's columns, as the table takes them.
        base_lsn: the rows were loaded as of this LSN; None if they were not.
        announced: changes of tables are to be announced.
    """
    if not shape.columns:
        return
    if announced and (unannounced := _unannounced(shape, columns, ids)):
        yield (
            f"{_listed(unannounced)}: the source has not announced the change of the table; columns are followed by "
            f"names and places, so older rows may have wrong values. {_ANNOUNCE}. {LOAD}"
        )
    known = {column.id: column for column in shape.columns}
    unmatched = _unmatched(shape, columns, ids)
    unknown = []
    for column, id_ in zip(columns, ids, strict=True):
        if column.target not in unmatched and _is_unknown(shape, column, known.get(id_), base_lsn):
            unknown.append(column)
    if unmatched:
        yield (
            f"{_listed(unmatched)}: the table was announced only behind rows, and had other columns by then; they are "
            f"followed by names and places, so older rows may have wrong values. {_ANNOUNCE}. {LOAD}"
        )
    if unknown:
        newest = max(column.rewritten for column in unknown)
        at = f" by LSN {format_lsn(newest)}" if newest else ""
        yield (
            f"{_listed([column.target for column in unknown])}: the source has given older rows values{at} that are "
            f"not sent, and that do not follow from what is. {LOAD}"
        )


def _is_unknown(shape: TableShape, column: SourceColumn, old: MirrorColumn | None, base_lsn: int | None) -> bool:
    if column.rewritten > max(base_lsn or 0, 0 if old is None else old.rewritten):
        return old is not None or column.missing is None
    # One that is not newer than the others was there before: rows have had values in it.
    return old is None and column.number > 0 and column.missing is None and not is_added(shape, column)


def _unannounced(shape: TableShape, columns: Sequence[SourceColumn], ids: Sequence[int]) -> list[str]:
    """Name the columns that are gone or new in a version of which nothing is announced, and nothing configured."""
    if any(column.number > 0 or column.name == OWN for column in columns):
        return []
    said = {column.target for column in columns if column.missing is not None}
    return [name for name in _gone_or_new(shape, columns, ids) if name not in said]


def _unmatched(shape: TableShape, columns: Sequence[SourceColumn], ids: Sequence[int]) -> list[str]:
    """Name the columns that are gone or new, where announcements do not say what has become of which."""
    own = [column for column in columns if column.name != OWN]
    is_numbered = bool(own) and all(column.number > 0 for column in own)
    if not is_numbered or by_announcement(shape.present, columns) is not None:
        return []
    names = [column.name for column in columns]
    kept = [names.index(column.source) for column in shape.present if column.source in names]
    if len(kept) == len(shape.present) and kept == sorted(kept):
        return []
    return _gone_or_new(shape, columns, ids)


def _gone_or_new(shape: TableShape, columns: Sequence[SourceColumn], ids: Sequence[int]) -> list[str]:
    before, now = {column.id for column in shape.present}, set(ids)
    new = [column.target for column, id_ in zip(columns, ids, strict=True) if id_ not in before]
    return list(dict.fromkeys([*(column.name for column in shape.present if column.id not in now), *new]))


def _listed(names: Sequence[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {', '.join(names)}"


__all__ = ["doubts_of"]

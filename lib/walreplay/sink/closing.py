"""End versions that a small history has, and add new ones: as the MERGE in `walreplay.spark.writing.history` does.

Only files with versions that end are written anew.  What has ended stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from walreplay.sink.identity import contiguous, hash_rows
from walreplay.sink.small_table import (
    Before,
    Images,
    Keys,
    Rewritten,
    Versions,
    are_distinct,
    flags,
    has_texts,
    in_ranges,
    joined,
    matches_of,
    missing_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class _Ends:
    """Which versions of the table end, and when.

    Attributes:
        rows: the numbers of the table's rows.
        lsn: the commit LSNs at which they end; ``at`` has the times.
        missing: see `Rewritten`.
        base: for each folded row whose version has values of the table's, the number of that row; -1 for none.
    """

    rows: NDArray[np.int64]
    lsn: NDArray[np.int64]
    at: NDArray[np.int64]
    missing: dict[str, int]
    base: NDArray[np.int64]


def with_versions(
    before: Before,
    versions: Versions,
    columns: tuple[Sequence[pa.Array], Sequence[pa.Array]],
    rows: pa.Table,
    lengths: Sequence[int],
) -> Rewritten | None:
    """End versions, and add those of the folded rows; None if the table has to be merged by Spark.

    Args:
        columns: the table's columns, with its rows and with the folded ones'.
        rows: folded rows (`walreplay.sink.versions.version_schema`).
        lengths: how many rows each file has.
    """
    old, new = columns
    is_open = np.nonzero(old[versions.end_lsn].is_null().to_numpy(zero_copy_only=False))[0]
    match versions.rows:
        case Keys() as keys:
            ends = _of_keys(before, keys, old, rows, is_open)
        case Images() as images:
            ends = _of_images(before, versions, images, columns, rows, is_open)
        case None:
            nothing = np.zeros(0, np.int64)
            missing = missing_of(flags(rows, "expected"), flags(rows, "deleted"))
            ends = _Ends(nothing, nothing, nothing, missing, np.full(rows.num_rows, -1))
    if ends is None:
        return None
    gone, lsn, at = _with_emptied(ends, versions, is_open)
    opened = np.nonzero(flags(rows, "opens"))[0]
    count = len(old[0])
    files = np.unique(np.searchsorted(np.cumsum(lengths), gone, side="right"))
    counted = np.array(lengths, np.int64)
    kept = in_ranges((np.cumsum(counted) - counted)[files], counted[files])
    places = [np.concatenate([kept, count + opened])] * len(old)
    if isinstance(versions.rows, Keys):
        for number in versions.rows.tracked:
            stays = flags(rows, f"k{number}")[opened]
            places[number] = np.concatenate([kept, np.where(stays, ends.base[opened], count + opened)])
    ended = list(old)
    ended[versions.end_lsn] = _filled(old[versions.end_lsn], gone, lsn)
    ended[versions.end_at] = _filled(old[versions.end_at], gone, at)
    counts = {"updated": len(gone), "deleted": 0, "inserted": len(opened), "copied": len(kept) - len(gone)}
    return Rewritten(joined(ended, new), tuple(places), counts, ends.missing, tuple(map(int, files)))


def _with_emptied(
    ends: _Ends, versions: Versions, is_open: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Add the versions that the first truncate ends: those that are open, and that nothing has ended before."""
    if versions.emptied is None:
        return ends.rows, ends.lsn, ends.at
    rest = np.setdiff1d(is_open, ends.rows)
    lsn, at = (np.full(len(rest), value) for value in versions.emptied)
    return np.concatenate([ends.rows, rest]), np.concatenate([ends.lsn, lsn]), np.concatenate([ends.at, at])


def _filled(column: pa.Array, places: NDArray[np.int64], values: NDArray[np.int64]) -> pa.Array:
    """Give a column of LSNs or times with other values (times in microseconds) at some places."""
    found = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
    is_null = column.is_null().to_numpy(zero_copy_only=False).copy()
    found[places], is_null[places] = values, False
    return pa.array(found, pa.int64(), mask=is_null).cast(column.type)


def _ints(rows: pa.Table, name: str) -> NDArray[np.int64]:
    """Give a folded rows' column of LSNs, ordinals or times (microseconds) as numbers, 0 for NULL."""
    column = contiguous(rows.column(name)).cast(pa.int64()).fill_null(0)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def _of_keys(
    before: Before, keys: Keys, old: Sequence[pa.Array], rows: pa.Table, is_open: NDArray[np.int64]
) -> _Ends | None:
    """Find the open version of each key that has one."""
    closes, opens = flags(rows, "closes"), flags(rows, "opens")
    stays = np.zeros(rows.num_rows, np.bool_)
    for number in keys.tracked:
        stays |= opens & flags(rows, f"k{number}")
    asked = np.nonzero(closes | stays)[0]
    there = [old[number].take(pa.array(is_open)) for number in keys.columns]
    wanted = keys.bases(rows.take(pa.array(asked)), old)
    lengths = len(is_open), len(asked)
    found = matches_of(keys.compared(there), keys.compared(wanted), lengths, with_null=keys.with_null)
    if found is None:
        return None
    base = np.full(rows.num_rows, -1)
    base[asked] = np.where(found >= 0, is_open[found] if len(is_open) else -1, -1)
    ended = np.where(closes, base, -1)
    if not are_distinct(ended) or (keys.claims and (flags(rows, "claimed") & (ended >= 0)).any()):
        return None
    if (stays & (base < 0)).any():
        # There is nothing that the value could be taken from.
        return None
    if before.rescued is not None and has_texts(old[before.rescued].take(pa.array(base[stays]))):
        # Rescued texts stay with their columns.
        return None
    hit = ended >= 0
    missing = missing_of(flags(rows, "expected") & ~hit, flags(rows, "deleted"))
    return _Ends(ended[hit], _ints(rows, "closes_lsn")[hit], _ints(rows, "closes_at")[hit], missing, base)


def _of_images(
    before: Before,
    versions: Versions,
    images: Images,
    columns: tuple[Sequence[pa.Array], Sequence[pa.Array]],
    rows: pa.Table,
    is_open: NDArray[np.int64],
) -> _Ends | None:
    """Find for the n-th closing of an image its n-th open copy, the newest first."""
    old, new = columns
    closing = np.nonzero(flags(rows, "closes"))[0]
    there = [column.take(pa.array(is_open)) for column in old]
    wanted = [column.take(pa.array(closing)) for column in new]
    if before.rescued is not None and (has_texts(there[before.rescued]) or has_texts(wanted[before.rescued])):
        # Rescued texts are compared without those of dropped columns, in whatever order they are.
        return None
    hashes = [
        hash_rows([part[number] for number in images.columns], count)
        for part, count in ((there, len(is_open)), (wanted, len(closing)))
    ]
    start, ordinal = (
        there[number].cast(pa.int64()).to_numpy(zero_copy_only=False)
        for number in (versions.start_lsn, versions.ordinal)
    )
    lsn = _ints(rows, "closes_lsn")[closing]
    found = _paired(
        (*hashes[0], _numbered(*hashes[0], -start, -ordinal)),
        (*hashes[1], _numbered(*hashes[1], lsn, _ints(rows, "ordinal")[closing])),
    )
    hit = found >= 0
    lost = flags(rows, "expected").copy()
    lost[closing[hit]] = False
    at = _ints(rows, "closes_at")[closing][hit]
    # Without a key nothing is updated: all that is missing is deleted.
    missing = missing_of(lost, np.ones(len(lost), np.bool_))
    return _Ends(is_open[found[hit]], lsn[hit], at, missing, np.full(rows.num_rows, -1))


_Places = tuple["NDArray[np.uint64]", "NDArray[np.uint64]", "NDArray[np.int64]"]
"""Both halves of the images' hashes, and each row's number among those of its image."""


def _numbered(first: NDArray[np.uint64], second: NDArray[np.uint64], *order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the rows of each image, from 0, in an order."""
    at = np.lexsort((*reversed(order), second, first))
    begins = np.ones(len(at), np.bool_)
    begins[1:] = (first[at[1:]] != first[at[:-1]]) | (second[at[1:]] != second[at[:-1]])
    begin = np.maximum.accumulate(np.where(begins, np.arange(len(at)), 0))
    numbers = np.empty(len(at), np.int64)
    numbers[at] = np.arange(len(at)) - begin
    return numbers


def _paired(old: _Places, new: _Places) -> NDArray[np.int64]:
    """Give for each new row the old one of the same image and number; -1 for none."""
    first, second, number = (np.concatenate([one, other]) for one, other in zip(old, new, strict=True))
    is_new = np.arange(len(first)) >= len(old[0])
    at = np.lexsort((is_new, number, second, first))
    before, behind = at[:-1], at[1:]
    same = ~is_new[before] & is_new[behind]
    for part in (first, second, number):
        same &= part[before] == part[behind]
    found = np.full(len(new[0]), -1)
    found[behind[same] - len(old[0])] = before[same]
    return found

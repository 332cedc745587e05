"""Whether the labels of columns that tell rows apart are converted: in the run of a rename, and not later.

Entry points: `with_whole_keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from walreplay.sink.events import Mode
from walreplay.sink.evolution import TableShape
from walreplay.spark.planning.versions import Version


def with_whole_keys(segments: Sequence[tuple[int, Version]], shape: TableShape | None) -> list[tuple[int, Version]]:
    """Take the columns that tell rows apart as they are sent, if no label of theirs is renamed in the run.

    Where they may have to be converted, all rows of the table come to one task.  Rows that have an old label behind the
    run of its rename are not worth that in every run.

    Args:
        segments: the versions of the rows, each with the number of its first one.
        shape: the table's before the run.
    """
    known = {} if shape is None else {column.source: column.type for column in shape.present}
    for _, version in segments:
        for n in _telling(version):
            column = version.columns[n]
            before = known.get(column.name, column.type)
            if column.type.labels != before.labels or (column.sent and column.sent.labels != column.type.labels):
                return list(segments)
    return [(start, _exact(version)) for start, version in segments]


def _telling(version: Version) -> Sequence[int]:
    identity = version.identity
    return range(len(version.columns)) if identity.mode is Mode.MULTISET else identity.key


def _exact(version: Version) -> Version:
    telling = set(_telling(version))
    if all(version.columns[n].sent is None for n in telling):
        return version
    columns = (replace(one, sent=None) if n in telling else one for n, one in enumerate(version.columns))
    return replace(version, columns=tuple(columns))


__all__ = ["with_whole_keys"]
